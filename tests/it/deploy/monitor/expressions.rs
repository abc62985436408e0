//! Finds the PromQL of rules, dashboard and runbooks, and what it selects.

use std::fs;

use regex::Regex;
use serde_json::Value;

use super::FOLDER;
use crate::deploy::shipped;

/// Labels that a scrape adds.
const OF_THE_SCRAPE: [&str; 4] = ["namespace", "job", "pod", "instance"];

/// An alert and its whole rule.
pub(super) struct Alert {
    pub(super) name: String,
    pub(super) rule: Value,
}

fn read(file: &str) -> String {
    fs::read_to_string(shipped(FOLDER).join(file)).expect("a file")
}

/// A file of the folder, as JSON.
pub(super) fn yaml(file: &str) -> Value {
    serde_saphyr::from_str(&read(file)).expect("YAML")
}

fn all_rules() -> Vec<Value> {
    let groups = yaml("rules.yaml")["groups"].as_array().expect("groups").clone();
    let rules = groups.iter().map(|group| group["rules"].as_array().expect("rules").clone());
    rules.flatten().collect()
}

/// The alerts.
pub(super) fn alerts() -> Vec<Alert> {
    let named = |rule: Value| {
        let name = rule["alert"].as_str()?.to_owned();
        Some(Alert { name, rule })
    };
    all_rules().into_iter().filter_map(named).collect()
}

/// The names that rules record.
pub(super) fn recorded() -> Vec<String> {
    let rules = all_rules();
    rules.iter().filter_map(|rule| rule["record"].as_str().map(str::to_owned)).collect()
}

/// The expressions of all rules.
pub(super) fn rules() -> Vec<String> {
    let expression = |rule: &Value| rule["expr"].as_str().expect("an expression").to_owned();
    all_rules().iter().map(expression).collect()
}

fn board() -> Value {
    serde_json::from_str(&read("dashboard.json")).expect("JSON")
}

/// How many panels show something.
pub(super) fn panels() -> usize {
    let board = board();
    let panels = board["panels"].as_array().expect("panels");
    panels.iter().filter(|panel| panel["type"] != "row").count()
}

/// The expressions of all panels and annotations.
pub(super) fn dashboard() -> Vec<String> {
    let board = board();
    let panels = board["panels"].as_array().expect("panels").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let annotations = board["annotations"]["list"].as_array().expect("annotations").iter();
    let expression = |from: &Value| from["expr"].as_str().expect("an expression").to_owned();
    targets.chain(annotations).map(expression).collect()
}

/// The lines of a page's blocks of a language.
pub(super) fn blocks(page: &str, language: &str) -> Vec<String> {
    let (page, fence) = (read(page), format!("```{language}\n"));
    let blocks = page.split(&fence).skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).map(str::to_owned).collect()
}

/// An expression with everything chosen that a dashboard's reader can choose.
pub(super) fn with_values(expression: &str) -> String {
    let times = expression.replace("$__rate_interval", "1m").replace("$__range", "1h");
    Regex::new(r"\$\w+").expect("a pattern").replace_all(&times, ".*").into_owned()
}

/// A metric with what is asked of its labels.
#[derive(Debug)]
pub(super) struct Selector {
    metric: String,
    /// Label and value; one for each alternative of a pattern.
    values: Vec<(String, String)>,
}

impl Selector {
    /// Those of an expression, of Sortie's own metrics.
    pub(super) fn all(expression: &str) -> Vec<Self> {
        let selector = Regex::new(r"\b(sortie_[a-z0-9_]+)(?:\{([^}]*)\})?").expect("a pattern");
        let matcher = Regex::new(r#"(\w+)(?:=~|!~|!=|=)"([^"]*)""#).expect("a pattern");
        // A recorded name is none of the gateway's.
        let own = |found: &regex::Captures<'_>| {
            let at = found.get(0).expect("a match").start();
            !expression[..at].ends_with(':')
        };
        let read = |found: regex::Captures<'_>| {
            let matchers = found.get(2).map_or("", |matchers| matchers.as_str());
            let values = matcher.captures_iter(matchers).flat_map(|found| {
                let (label, values) = (found[1].to_owned(), found[2].to_owned());
                let all: Vec<_> = values
                    .split('|')
                    .filter(|value| !value.starts_with('$') && *value != ".*")
                    .map(|value| (label.clone(), value.to_owned()))
                    .collect();
                all
            });
            Self { metric: found[1].to_owned(), values: values.collect() }
        };
        selector.captures_iter(expression).filter(own).map(read).collect()
    }

    /// Fails unless this scrape has the metric, with each of the values.
    #[track_caller]
    pub(super) fn assert_selects(&self, scrape: &str) {
        let is_it = |line: &&str| {
            let after = line.strip_prefix(&self.metric);
            after.is_some_and(|after| after.starts_with(['{', ' ']))
        };
        let series: Vec<&str> = scrape.lines().filter(is_it).collect();
        assert!(!series.is_empty(), "no metric is named {}", self.metric);
        for (label, value) in &self.values {
            let found = series.iter().any(|line| {
                line.contains(&format!("{{{label}=\"{value}\""))
                    || line.contains(&format!(",{label}=\"{value}\""))
            });
            let scraped = OF_THE_SCRAPE.contains(&label.as_str());
            assert!(found || scraped, "{} has no {label}=\"{value}\"", self.metric);
        }
    }
}

#[test]
fn selectors_are_found_with_each_alternative() {
    let expression = r#"sum(rate(sortie_calls_total{job=~"$job",fault=~"none|upstream"}[5m])) / job:sortie_calls:x > sortie_draining"#;
    let found: Vec<_> = Selector::all(expression)
        .into_iter()
        .map(|selector| (selector.metric, selector.values))
        .collect();
    let fault = |value: &str| ("fault".to_owned(), value.to_owned());
    let calls = ("sortie_calls_total".to_owned(), vec![fault("none"), fault("upstream")]);
    assert_eq!(found, [calls, ("sortie_draining".to_owned(), vec![])]);
    let scrape = "sortie_calls_total{code=\"ok\",fault=\"none\"} 1";
    let selector = |text: &str| Selector::all(text).remove(0);
    selector(r#"sortie_calls_total{fault="none"}"#).assert_selects(scrape);
    for wrong in [r#"sortie_calls_total{fault="no"}"#, r#"sortie_calls{fault="none"}"#] {
        let selector = selector(wrong);
        std::panic::catch_unwind(move || selector.assert_selects(scrape)).expect_err(wrong);
    }
}
