//! Text as a JSON string, quickly where quotes are dense: JSON inside a string is what every answer to a model holds.

/// What a byte becomes: whether a backslash goes before it, and the letter that stands for it.
type Written = (bool, u8);

/// A control character without a short form; it is rare, and `serde_json` writes texts that have one.
const RARE: u8 = 0;

const WRITTEN: [Written; 256] = {
    let mut table = [(false, 0); 256];
    let mut byte = 0;
    while byte < 256 {
        let this = byte as u8;
        table[byte] = match this {
            b'"' | b'\\' => (true, this),
            0x08 => (true, b'b'),
            b'\t' => (true, b't'),
            b'\n' => (true, b'n'),
            0x0c => (true, b'f'),
            b'\r' => (true, b'r'),
            0..0x20 => (true, RARE),
            _ => (false, this),
        };
        byte += 1;
    }
    table
};

/// Appends the text with its quotes, as `serde_json` would write it.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    // Room for a backslash before each byte, so that the loop has no branch to guess wrong.
    out.resize(start + 2 * text.len() + 2, b'"');
    let mut at = start + 1;
    let mut rare = false;
    for byte in text.bytes() {
        let (escaped, letter) = WRITTEN[usize::from(byte)];
        out[at] = b'\\';
        at += usize::from(escaped);
        out[at] = letter;
        at += 1;
        rare |= letter == RARE;
    }
    if rare {
        out.truncate(start);
        serde_json::to_writer(out, text).expect("text is written to memory");
        return;
    }
    out[at] = b'"';
    out.truncate(at + 1);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str) {
        let mut out = b"before".to_vec();
        write_string(text, &mut out);
        assert_eq!(out, format!("before{}", serde_json::Value::from(text)).into_bytes());
    }

    #[test]
    fn every_character_of_one_byte_is_written_as_a_library_writes_it() {
        check("");
        (0..128_u8).for_each(|byte| check(&char::from(byte).to_string()));
        check(r#"{"a":["\"",null]}"#);
        check("é\u{7f}\u{2028}\u{10ffff}");
    }

    proptest! {
        #[test]
        fn every_text_is_written_as_a_library_writes_it(text in "(?s)[\"\\\\\n\t\u{0}-\u{1f}a-zé🦀]{0,40}") {
            check(&text);
        }
    }
}
