//! The configuration as an operator may see it: places of secrets, never what could be one.

use serde_json::{Map, Number, Value};

use crate::config::yaml::{Document, Kind, NodeId};

/// What stands for something that is left out.
const HIDDEN: &str = "***";
/// Keys whose values are digests of secrets.
const DIGESTS: &[&str] = &["sha256"];

/// The document as JSON. A digest is left out, and so is what follows the `?` of a URL: people put tokens there.
pub fn redacted(document: &Document) -> Value {
    part(document, document.root())
}

/// One part of the document in the same way.
pub fn part(document: &Document, node: NodeId) -> Value {
    value(document, node, "")
}

/// Adds what an included file says to what the main file says: its lists go on with the file's items, and its tools get its
/// owner and runbook.
pub fn join(main: &mut Value, included: Value) {
    let (Some(main), Value::Object(mut included)) = (main.as_object_mut(), included) else {
        return;
    };
    let shared = ["owner", "runbook"].map(|key| (key, included.remove(key)));
    for (key, value) in included {
        let Value::Array(mut items) = value else { continue };
        for (key, value) in shared.iter().filter(|_| key == "tools") {
            let tools = items.iter_mut().filter_map(Value::as_object_mut);
            for tool in tools.filter(|tool| tool.get(*key).is_none_or(Value::is_null)) {
                tool.extend(value.clone().map(|value| ((*key).to_owned(), value)));
            }
        }
        match main.entry(key).or_insert(Value::Null) {
            Value::Array(list) => list.extend(items),
            other => *other = Value::Array(items),
        }
    }
}

fn value(document: &Document, node: NodeId, key: &str) -> Value {
    match document.kind(node) {
        Kind::Bool(_) | Kind::Float(..) | Kind::Integer(_) | Kind::Text(_)
            if DIGESTS.contains(&key) =>
        {
            Value::String(HIDDEN.into())
        }
        Kind::Null => Value::Null,
        Kind::Bool(truth) => Value::Bool(*truth),
        Kind::Float(number, _) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Kind::Integer(number) => Number::from_i128(*number).map_or(Value::Null, Value::Number),
        Kind::Text(text) => Value::String(without_query(text)),
        Kind::List(items) => items.iter().map(|item| value(document, *item, key)).collect(),
        Kind::Map(entries) => {
            let entries = entries.iter().map(|(name, node)| {
                let name = document.text(*name).unwrap_or_default();
                (name.to_owned(), value(document, *node, name))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}

/// The text; of a URL what follows the `?` is left out.
pub fn without_query(text: &str) -> String {
    match text.split_once('?') {
        Some((place, _)) if text.contains("://") => format!("{place}?{HIDDEN}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_stay_and_what_could_be_a_secret_goes() {
        let text = "\
auth: {keys: [{name: k, key: {sha256: 0a1b}, previous: {file: old}}, {name: l, key: {sha256: 123}}]}
tools:
  - {name: t, url: 'https://h.example.com/p?token=x', timeout: 2.5, n: 12345678901234567890, on: true, x: null}
  - {name: what?, description: Is it there? It is.}
";
        let (document, faults) = Document::parse(text);
        assert!(faults.is_empty());
        let expected = json!({
            "auth": {"keys": [{"name": "k", "key": {"sha256": "***"}, "previous": {"file": "old"}},
                {"name": "l", "key": {"sha256": "***"}}]},
            "tools": [
                {"name": "t", "url": "https://h.example.com/p?***", "timeout": 2.5,
                 "n": 12_345_678_901_234_567_890_u64, "on": true, "x": null},
                {"name": "what?", "description": "Is it there? It is."},
            ],
        });
        assert_eq!(redacted(&document.expect("a tree")), expected);
    }
}
