//! One event, one line: what could end a line, or dress it up, is escaped.

use std::borrow::Cow;
use std::fmt::Write;

/// The bytes of one line with whatever stands in it: only its last byte may be a line feed.
pub fn one_line(line: &[u8]) -> Cow<'_, [u8]> {
    let (inner, end) = match line.split_last() {
        Some((b'\n', inner)) => (inner, "\n"),
        _ => (line, ""),
    };
    // Nearly every line: nothing to look at twice.
    // Without a way out of the loop, so that the compiler looks at many bytes at once.
    if inner.iter().fold(true, |plain, byte| plain & (b' '..=b'~').contains(byte)) {
        return Cow::Borrowed(line);
    }
    let text = String::from_utf8_lossy(inner);
    let mut clean = String::with_capacity(line.len() + 64);
    for character in text.chars() {
        if is_odd(character) {
            // Valid in the strings of a JSON line, where alone such a character can stand.
            let _ = write!(clean, "\\u{:04x}", u32::from(character));
        } else {
            clean.push(character);
        }
    }
    clean.push_str(end);
    Cow::Owned(clean.into_bytes())
}

/// A text of several lines, for a terminal or a file: only line feeds and tabs stand in it as they are.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_escaped = |character: char| is_odd(character) && !matches!(character, '\n' | '\t');
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 64);
    for character in text.chars() {
        if is_escaped(character) {
            // As above.
            let _ = write!(clean, "\\u{:04x}", u32::from(character));
        } else {
            clean.push(character);
        }
    }
    Cow::Owned(clean)
}

/// Control characters, what some readers take for a line's end, and what turns the direction of writing.
fn is_odd(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{2028}'
                | '\u{2029}'
                | '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&one_line(line.as_bytes())), expected);
    }

    #[test]
    fn f160_a_line_has_one_end_and_no_dress() {
        check("", "");
        check("\n", "\n");
        check("plain\n", "plain\n");
        check("Grüße, 東京\n", "Grüße, 東京\n");
        check("a\nb\r\n", "a\\u000ab\\u000d\n");
        check("\u{1b}[31mred\n", "\\u001b[31mred\n");
        check("\u{2028}\u{2029}\u{85}\u{7f}", "\\u2028\\u2029\\u0085\\u007f");
        check("{\"a\":\"\u{202e}\"}\n", "{\"a\":\"\\u202e\"}\n");
        assert_eq!(&one_line(b"\xff\n")[..], "\u{fffd}\n".as_bytes());
    }

    #[test]
    fn a_text_keeps_its_lines_and_has_no_dress() {
        assert_eq!(printable("a\tb\né\n"), "a\tb\né\n");
        assert_eq!(printable("\u{1b}[31m\r\n\u{9b}\u{202e}"), "\\u001b[31m\\u000d\n\\u009b\\u202e");
    }
}
