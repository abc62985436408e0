//! A value of the document as JSON: keys in their order, and numbers as the file has them.

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::config::yaml::{Document, Kind, NodeId};
use crate::model::json_tree::Tree;

/// The value below this place.
pub fn tree(document: &Document, node: NodeId) -> Tree {
    match document.kind(node) {
        Kind::Null => Tree::Word("null".into()),
        Kind::Bool(truth) => Tree::truth(*truth),
        // YAML has spellings of numbers that JSON has not, such as `.5`.
        Kind::Float(number, text) => Tree::Word(match serde_json::from_str::<&RawValue>(text) {
            Ok(text) => text.get().to_owned(),
            Err(_) => Number::from_f64(*number).map_or(Value::Null, Value::Number).to_string(),
        }),
        Kind::Integer(number) => Tree::Word(number.to_string()),
        Kind::Text(text) => Tree::text(text),
        Kind::List(items) => Tree::List(items.iter().map(|item| tree(document, *item)).collect()),
        Kind::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let key = document.text(*key).unwrap_or_default();
                (key.to_owned(), tree(document, *value))
            });
            Tree::Map(entries.collect())
        }
    }
}

/// The same, where the order of keys and the text of numbers mean nothing.
pub fn value(document: &Document, node: NodeId) -> Value {
    serde_json::from_str(&tree(document, node).to_json()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(yaml: &str, json: &str) {
        let (document, faults) = Document::parse(yaml);
        assert!(faults.is_empty());
        let document = document.expect("a tree");
        let node = document.child(document.root(), "x").expect("a value");
        let text = tree(&document, node).to_json();
        assert_eq!(text, json);
        assert!(serde_json::from_str::<&RawValue>(&text).is_ok());
    }

    #[test]
    fn keys_keep_their_order_and_numbers_their_text() {
        check(
            "x: {b: 1e2, a: [12345678901234567890, -0.50, 123456789012345678901234567890]}",
            r#"{"b":1e2,"a":[12345678901234567890,-0.50,123456789012345678901234567890]}"#,
        );
    }

    #[test]
    fn spellings_that_json_has_not_are_written_anew() {
        check("x: [.5, 0x10, +1, 1., 007]", "[0.5,16,1,1.0,7]");
    }

    #[test]
    fn everything_else_is_what_it_means() {
        check(
            "x: [~, true, no, \"a\\\"\\n\\u2028é\", {}]",
            "[null,true,\"no\",\"a\\\"\\n\u{2028}é\",{}]",
        );
        check("a: &a {k: 1.50}\nx: [*a, *a]", r#"[{"k":1.50},{"k":1.50}]"#);
    }
}
