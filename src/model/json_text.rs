//! JSON that passes through as it came: checked, and never built.

use serde_json::value::RawValue;

use crate::model::json::is_deeper;

/// Levels of arrays and objects that are read: one more meets the recursion limit of `serde_json`.
const MAX_DEPTH: usize = 127;

/// One JSON document as text, without white space around it and no deeper than its readers can follow.
#[derive(Debug, Clone)]
pub struct JsonText(Box<RawValue>);

impl JsonText {
    /// Takes a text that is JSON (RFC 8259); numbers may be of any size, as nobody reads them here.
    pub fn read(text: &str) -> Option<Self> {
        if is_deeper(text, MAX_DEPTH) {
            return None;
        }
        serde_json::from_str(text).ok().map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, kept: Option<&str>) {
        assert_eq!(JsonText::read(text).as_ref().map(JsonText::as_str), kept, "{text}");
    }

    #[test]
    fn a_document_is_kept_as_it_is_written() {
        check(" {\"b\":1e999, \"a\" : [12345678901234567890]}\n", {
            Some("{\"b\":1e999, \"a\" : [12345678901234567890]}")
        });
        check("{\"a\":1,\"a\":2}", Some("{\"a\":1,\"a\":2}"));
        check("\"é\\u0000\"", Some("\"é\\u0000\""));
    }

    #[test]
    fn what_is_no_document_is_not_taken() {
        for text in ["", " ", "NaN", "[1,]", "{a:1}", "1 2", "\u{feff}1", "\"\n\"", "{\"a\":1}x"] {
            check(text, None);
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        check(&nested(MAX_DEPTH), Some(&nested(MAX_DEPTH)));
        check(&nested(MAX_DEPTH + 1), None);
        check(&nested(100_000), None);
    }
}
