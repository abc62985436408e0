//! JSON that passes through as it came: checked, and never built.

use crate::model::json::MAX_DEPTH;

/// One JSON document as text, without white space around it and no deeper than is read elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Box<str>);

impl JsonText {
    /// Takes a text that is JSON (RFC 8259); numbers may be of any size, as nobody reads them here.
    ///
    /// Every answer of a tool goes through here; a parser made for building values takes three times as long.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        Reader { rest: text.as_bytes() }.document()?;
        Some(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is not read yet. Each method takes one thing off its beginning, or says that it is not there.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn document(&mut self) -> Option<()> {
        let mut levels = Levels::default();
        loop {
            self.space();
            let whole = match self.next()? {
                b'{' => {
                    levels.enter(true)?;
                    self.space();
                    let empty = self.take(b'}');
                    if empty {
                        levels.leave();
                    } else {
                        self.key()?;
                    }
                    empty
                }
                b'[' => {
                    levels.enter(false)?;
                    self.space();
                    let empty = self.take(b']');
                    if empty {
                        levels.leave();
                    }
                    empty
                }
                first => {
                    self.scalar(first)?;
                    true
                }
            };
            if whole && self.after_value(&mut levels)? {
                return Some(());
            }
        }
    }

    /// What may follow a value: the ends of levels, then a comma or the end of all, which is true.
    fn after_value(&mut self, levels: &mut Levels) -> Option<bool> {
        loop {
            self.space();
            let Some(in_object) = levels.in_object() else {
                return self.rest.is_empty().then_some(true);
            };
            match (self.next()?, in_object) {
                (b',', true) => {
                    self.space();
                    self.key()?;
                    return Some(false);
                }
                (b',', false) => return Some(false),
                (b'}', true) | (b']', false) => levels.leave(),
                _ => return None,
            }
        }
    }

    fn key(&mut self) -> Option<()> {
        self.word(b"\"")?;
        self.string()?;
        self.space();
        self.word(b":")
    }

    fn scalar(&mut self, first: u8) -> Option<()> {
        match first {
            b'"' => self.string(),
            b'-' => {
                let first = self.next()?;
                self.number(first)
            }
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            first => self.number(first),
        }
    }

    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' => {}
            b'1'..=b'9' => self.more_digits(),
            _ => return None,
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Some(())
    }

    /// One digit at least.
    fn digits(&mut self) -> Option<()> {
        let first = self.next()?;
        self.more_digits();
        first.is_ascii_digit().then_some(())
    }

    fn more_digits(&mut self) {
        while let [b'0'..=b'9', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// The rest of a string, whose first quote is taken.
    fn string(&mut self) -> Option<()> {
        loop {
            let plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | ..0x20);
            let end = self.rest.iter().position(|byte| !plain(byte))?;
            self.rest = self.rest.get(end..)?;
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let (digits, rest) = self.rest.split_at_checked(4)?;
                self.rest = rest;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    fn space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.word(&[byte]).is_some()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }
}

/// The objects and arrays around a place.
#[derive(Default)]
struct Levels {
    depth: usize,
    /// One bit a level, the innermost lowest: set for an object.
    objects: u128,
}

impl Levels {
    fn enter(&mut self, object: bool) -> Option<()> {
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        (self.depth <= MAX_DEPTH).then_some(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
    }

    /// `None` outside of all.
    fn in_object(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.objects & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::model::json::measure;

    /// Takes and refuses what a library does, which knows no depth, and keeps the same text.
    #[track_caller]
    fn check(text: &str) {
        let expected = serde_json::from_str::<Box<RawValue>>(text).ok();
        let expected = expected.filter(|_| measure(text).depth <= MAX_DEPTH);
        let read = JsonText::read(text);
        let texts = (read.as_ref().map(JsonText::as_str), expected.as_ref().map(|raw| raw.get()));
        assert_eq!(texts.0, texts.1, "{text}");
    }

    #[test]
    fn scalars_and_their_near_misses() {
        for text in [
            "",
            " ",
            "0",
            "-0",
            "00",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1.5",
            "1e",
            "1e5",
            "1E+05",
            "1e-",
            "1e999",
            "-1.2e3",
            "1 2",
            "true",
            "tru",
            "truex",
            "false",
            "null",
            "nul",
            "NaN",
            "'a'",
            "\"",
            "\"a",
            "\"a\"",
            "\"\\",
            "\"\\\"",
            "\"\\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\u00zz\"",
            "\"\n\"",
            "\"\u{7f}é\"",
            "\u{feff}1",
            " \t\r\n1 \n",
            "\u{a0}1",
            "\u{b}1",
        ] {
            check(text);
        }
    }

    #[test]
    fn objects_and_arrays_and_their_near_misses() {
        for text in [
            "{}",
            "[]",
            "[ ]",
            "{ }",
            "[1]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1,2]",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{\"a\"}",
            "{\"a\" : [ { } , null ] }",
            "{a:1}",
            "{\"a\":}",
            "{,}",
            "[}",
            "{]",
            "[1}",
            "]",
            "}",
            "[[]",
            "[]]",
            "{\"a\":{}}}",
            "[1]x",
            "{\"a\":1,\"a\":2}",
            "{1:2}",
            "[\"a\":1]",
        ] {
            check(text);
        }
    }

    #[test]
    fn depth_is_bounded() {
        for levels in [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 100_000] {
            for inner in ["", "1", "{}"] {
                check(&format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels)));
            }
            check(&format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)));
        }
    }

    proptest! {
        #[test]
        fn texts_of_the_signs_of_json(text in r#"[\[\]{}":,0-9eE+.\\ub\n truefalsn-]{0,16}"#) {
            check(&text);
        }

        #[test]
        fn documents_with_one_byte_more_or_less(
            seed in prop::collection::vec(any::<(u8, i32, String)>(), 0..6),
            at in any::<prop::sample::Index>(),
            byte in prop::sample::select(&b"\"\\[]{}:,0-e \n"[..]),
        ) {
            let rows: Vec<_> = seed.iter().map(|(kind, number, text)| match kind % 4 {
                0 => serde_json::json!({"n": number, text: [true, null]}),
                1 => serde_json::json!([text, number, [], {}]),
                2 => serde_json::json!(f64::from(*number) / 7.0),
                _ => serde_json::json!(text),
            }).collect();
            let text = serde_json::to_string_pretty(&rows).unwrap();
            check(&text);
            let mut places: Vec<char> = text.chars().collect();
            let at = at.index(places.len());
            places.insert(at, char::from(byte));
            check(&places.iter().collect::<String>());
            places.remove(at);
            places.remove(at);
            check(&places.iter().collect::<String>());
        }
    }
}
