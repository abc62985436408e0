//! A text as a JSON string, byte for byte as `serde_json` writes it.
//!
//! What the model reads of a call is mostly JSON itself, with a quote every few bytes. `serde_json` copies what stands
//! between two of them piece by piece, which costs several times as much as the bytes.

/// How many bytes are looked at together.
const PIECE: usize = 16;

/// Appends a text in quotes, with what has to be escaped.
pub fn write(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let (pieces, rest) = text.as_bytes().as_chunks::<PIECE>();
    for piece in pieces {
        write_piece(piece, out);
    }
    rest.iter().for_each(|byte| write_byte(*byte, out));
    out.push(b'"');
}

/// Appends some of it. No branch depends on where the quotes are: to guess that wrong costs more than all of this.
fn write_piece(piece: &[u8; PIECE], out: &mut Vec<u8>) {
    if piece.iter().fold(false, |any, byte| any | (*byte < b' ')) {
        return piece.iter().for_each(|byte| write_byte(*byte, out));
    }
    // A backslash is everywhere at first, and stays before each byte that needs one.
    let mut written = [b'\\'; 2 * PIECE];
    let mut length = 0;
    for &byte in piece {
        length += usize::from(byte == b'"' || byte == b'\\');
        written[length] = byte;
        length += 1;
    }
    out.extend_from_slice(&written[..length]);
}

fn write_byte(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let escape = match byte {
        b'\x08' => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        b'\x0c' => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        0..b' ' => {
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
        _ => return out.push(byte),
    };
    out.extend_from_slice(&[b'\\', escape]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        let mut out = b"before".to_vec();
        write(text, &mut out);
        String::from_utf8(out.split_off(6)).expect("UTF-8")
    }

    #[test]
    fn each_character_in_each_place_is_written_as_serde_json_does() {
        for character in ('\0'..='\u{ff}').chain(['\u{2028}', '\u{ffff}', '😀']) {
            for before in 0..2 * PIECE {
                let text = format!("{}{character}", "a".repeat(before));
                assert_eq!(written(&text), serde_json::to_string(&text).expect("JSON"));
            }
        }
    }

    #[test]
    fn nothing_but_quotes_is_all_escapes() {
        let text = "\"".repeat(3 * PIECE + 1);
        assert_eq!(written(&text), serde_json::to_string(&text).expect("JSON"));
    }

    proptest! {
        #[test]
        fn a_text_is_written_as_serde_json_does(text in "[ -~\\x00-\\x20\"\\\\é😀]{0,100}") {
            prop_assert_eq!(written(&text), serde_json::to_string(&text).expect("JSON"));
        }
    }
}
