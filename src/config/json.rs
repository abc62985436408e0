//! A value of the document as JSON text: keys in their order, and numbers as the file has them.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Number, Value};

use crate::config::yaml::{Document, Kind, NodeId};

/// The value below this place as compact JSON.
pub fn text(document: &Document, node: NodeId) -> Arc<RawValue> {
    let mut out = String::new();
    write(document, node, &mut out);
    RawValue::from_string(out).expect("a tree of a document is JSON").into()
}

fn write(document: &Document, node: NodeId, out: &mut String) {
    match document.kind(node) {
        Kind::Null => out.push_str("null"),
        Kind::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        // YAML has spellings of numbers that JSON has not, such as `.5`.
        Kind::Float(number, text) => match serde_json::from_str::<&RawValue>(text) {
            Ok(text) => out.push_str(text.get()),
            Err(_) => {
                let number = Number::from_f64(*number).map_or(Value::Null, Value::Number);
                out.push_str(&number.to_string());
            }
        },
        Kind::Integer(number) => out.push_str(&number.to_string()),
        Kind::Text(text) => write_text(text, out),
        Kind::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(document, *item, out);
            }
            out.push(']');
        }
        Kind::Map(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(document.text(*key).unwrap_or_default(), out);
                out.push(':');
                write(document, *value, out);
            }
            out.push('}');
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a text is JSON"));
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
        assert_eq!(text(&document, node).get(), json);
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
