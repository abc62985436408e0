//! Reads the case file; a line that is left out is a failure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const FILE: &str = include_str!("../cases/egress.jsonl");

/// Lines whose settings the loader refuses as likely mistakes: the rules' own tests cover them without it.
pub(super) const REFUSED_BY_LOADER: [&str; 2] = ["dns-ex-mapped-cidr", "dns-fakeip-metadata"];

/// One line.
#[derive(Debug, Clone)]
pub(super) struct Case(Value);

impl Case {
    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.0))
    }

    pub(super) fn id(&self) -> &str {
        self.text("id")
    }

    pub(super) fn input(&self) -> &str {
        self.text("input")
    }

    pub(super) fn verdict(&self) -> &str {
        self.text("verdict")
    }

    pub(super) fn code(&self) -> &str {
        self.text("code")
    }

    /// What DNS says; empty for other kinds.
    pub(super) fn answers(&self, field: &str) -> Vec<&str> {
        texts(&self.0[field])
    }

    /// What DNS would say to names that must not be asked for.
    pub(super) fn search_answers(&self) -> BTreeMap<&str, Vec<&str>> {
        let names = self.0["search_answers"].as_object().into_iter().flatten();
        names.map(|(name, lines)| (name.as_str(), texts(lines))).collect()
    }

    /// The addresses among the answers.
    pub(super) fn addresses(&self) -> Vec<&str> {
        let lines = self.answers("answers").into_iter().filter_map(|line| line.split_once(' '));
        lines.filter(|(kind, _)| ["A", "AAAA"].contains(kind)).map(|(_, address)| address).collect()
    }

    /// The tool that calls: the one of the exception.
    pub(super) fn tool(&self) -> &str {
        self.0.pointer("/config/exceptions/0/tool").and_then(Value::as_str).unwrap_or("lookup")
    }

    /// The section `egress` of the configuration file.
    pub(super) fn settings(&self) -> Value {
        let mut settings = self.0.get("config").cloned().unwrap_or_else(|| json!({}));
        let exceptions = settings.get_mut("exceptions").and_then(Value::as_array_mut);
        for exception in exceptions.into_iter().flatten() {
            let tool = exception.as_object_mut().expect("an object").remove("tool");
            exception["tools"] = json!([tool.expect("a tool")]);
            exception["reason"] = json!("a case");
            exception["owner"] = json!("tests");
        }
        settings
    }
}

/// The texts of a list; none where there is no list.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().expect("a text")).collect()
}

/// The lines of one kind, in groups of equal settings and tool.
pub(super) fn groups(kind: &str) -> Vec<Vec<Case>> {
    let mut groups: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases(kind) {
        let key = format!("{} {}", case.tool(), case.settings());
        groups.entry(key).or_default().push(case);
    }
    groups.into_values().collect()
}

/// The lines of one kind.
pub(super) fn cases(kind: &str) -> Vec<Case> {
    let all: Vec<Case> =
        FILE.lines().map(|line| Case(serde_json::from_str(line).expect("a JSON line"))).collect();
    let of = |kind: &str| all.iter().filter(|case| case.text("kind") == kind).count();
    let known = (of("ip"), of("url"), of("dns"));
    assert_eq!(known, (223, 130, 58), "the lines of the case file");
    assert_eq!(all.len(), FILE.matches(r#"{"id":"#).count(), "each line is read");
    assert_eq!(all.len(), 223 + 130 + 58, "no other kind");
    all.into_iter().filter(|case| case.text("kind") == kind).collect()
}
