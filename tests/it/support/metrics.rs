//! Reads the Prometheus text format.

/// One scrape.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) text: String,
    samples: Vec<Sample>,
}

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    pub(crate) fn parse(text: String) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        let samples = lines
            .map(|line| sample(line).unwrap_or_else(|| panic!("not a sample: {line}")))
            .collect();
        Self { text, samples }
    }

    /// The sum of the samples of this name that carry these labels (and perhaps more); 0 where there is none with the
    /// labels. A name that stands nowhere is a failure, so that a misspelt one cannot pass as 0.
    #[track_caller]
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let mut named = self.samples.iter().filter(|sample| sample.name == name).peekable();
        assert!(named.peek().is_some(), "no metric is named {name} in\n{}", self.text);
        let carries = |sample: &Sample, (name, value): (&str, &str)| {
            sample.labels.iter().any(|(other, text)| other == name && text == value)
        };
        named
            .filter(|sample| labels.iter().all(|label| carries(sample, *label)))
            .map(|sample| sample.value)
            .sum()
    }

    /// Whether a metric of this name stands here at all.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.name == name)
    }
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, rest)) => (name, parse_labels(rest.strip_suffix('}')?)?),
    };
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

fn parse_labels(mut rest: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        rest = after[end..].trim_start_matches(',');
    }
    Some(labels)
}

#[test]
fn samples_are_found_by_name_and_labels() {
    let text = "# HELP x y\n# TYPE a_total counter\na_total{tool=\"x\",code=\"o\\\"k\"} 2\na_total{tool=\"y\",code=\"ok\"} 3\nb 1e3\n";
    let metrics = Metrics::parse(text.to_owned());
    assert_eq!(metrics.value("a_total", &[]), 5.0);
    assert_eq!(metrics.value("a_total", &[("tool", "x"), ("code", "o\"k")]), 2.0);
    assert_eq!(metrics.value("a_total", &[("tool", "z")]), 0.0);
    assert_eq!(metrics.value("b", &[]), 1000.0);
    assert!(metrics.has("b") && !metrics.has("c"));
    std::panic::catch_unwind(|| metrics.value("c", &[])).expect_err("a misspelt name");
}
