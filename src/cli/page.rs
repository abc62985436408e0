//! What commands print for people: indented blocks, unfolded outcomes, the bytes of a request or an answer.

use crate::net::tap::Exchange;
use crate::telemetry::line::one_line;

/// Bytes of a body that are shown.
const SHOWN: usize = 16 << 10;
/// What stands in place of a secret.
const HIDDEN: &str = "***";

/// Each line four columns to the right.
pub fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}").trim_end().to_owned() + "\n").collect()
}

/// A request or an answer as it was, line by line. What could dress a terminal up stands there escaped, and a long body is
/// cut.
pub fn raw(bytes: &[u8], left_out: usize) -> String {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
    let shown = bytes.get(..head.saturating_add(SHOWN)).unwrap_or(bytes);
    let left_out = left_out.saturating_add(bytes.len() - shown.len());
    let mut text = String::new();
    for line in shown.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        text.push_str(&String::from_utf8_lossy(&one_line(line)));
        text.push('\n');
    }
    if left_out > 0 {
        text.push_str(&format!("[{left_out} more bytes]\n"));
    }
    text
}

/// A request without its secrets: the values of these headers, and the query of its URL, which may hold a key.
pub fn without_secrets(exchange: &Exchange, secret: &[String]) -> Vec<u8> {
    let end = exchange.sent.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = exchange.sent.split_at(end.unwrap_or(exchange.sent.len()));
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let target = lines.next().map(|line| match line.split_once('?') {
        Some((path, rest)) => {
            let version = rest.rsplit(' ').next().unwrap_or_default();
            format!("{path}?{HIDDEN} {version}")
        }
        None => line.to_owned(),
    });
    let lines = lines.map(|line| match line.split_once(": ") {
        Some((name, _)) if secret.iter().any(|one| one.eq_ignore_ascii_case(name)) => {
            format!("{name}: {HIDDEN}")
        }
        _ => line.to_owned(),
    });
    let head = target.into_iter().chain(lines).collect::<Vec<_>>().join("\r\n");
    [head.as_bytes(), body].concat()
}

/// Puts each member of a JSON object on a line of its own; the order and the values stay as they are, and white space is
/// made anew.
pub fn unfold(json: &str) -> String {
    let (mut page, mut depth, mut in_string, mut escaped) = (String::new(), 0usize, false, false);
    for character in json.chars() {
        if in_string {
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            page.push(character);
            continue;
        }
        in_string = character == '"';
        if character.is_ascii_whitespace() {
            continue;
        }
        if matches!(character, '}' | ']') {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                page.push('\n');
            }
        }
        page.push(character);
        match character {
            '{' | '[' => {
                depth += 1;
                if depth == 1 {
                    page.push_str("\n  ");
                }
            }
            ',' if depth == 1 => page.push_str("\n  "),
            ',' | ':' => page.push(' '),
            _ => {}
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stand_on_lines_of_their_own() {
        let json = r#"{"id":"a,{\"b","error":{"code":null},"attempts":[1,2]}"#;
        let page =
            "{\n  \"id\": \"a,{\\\"b\",\n  \"error\": {\"code\": null},\n  \"attempts\": [1, 2]\n}";
        assert_eq!(unfold(json), page);
        assert_eq!(unfold("{\"a\": {\r\n\t\"b\" : \" \"}}"), "{\n  \"a\": {\"b\": \" \"}\n}");
    }

    #[test]
    fn bytes_are_shown_as_lines_that_dress_nothing_up() {
        assert_eq!(raw(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", 0), "HTTP/1.1 200 OK\nA: b\n\n{}\n");
        assert_eq!(raw(b"\x1b[31mred\xff", 0), "\\u001b[31mred\u{fffd}\n");
        let long = [b"A: b\r\n\r\n".as_slice(), &vec![b'x'; SHOWN + 7]].concat();
        let shown = raw(&long, 3);
        assert!(shown.ends_with("x\n[10 more bytes]\n"), "{shown}");
        assert_eq!(shown.len(), SHOWN + "A: b\n\n\n[10 more bytes]\n".len());
    }

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        let sent =
            b"POST /a?key=secret HTTP/1.1\r\nX-Key: secret\r\nX-Key-Id: 7\r\n\r\nX-Key: body";
        let exchange = Exchange { sent: sent.to_vec(), ..Exchange::default() };
        let shown = without_secrets(&exchange, &["x-key".to_owned()]);
        let expected = "POST /a?*** HTTP/1.1\r\nX-Key: ***\r\nX-Key-Id: 7\r\n\r\nX-Key: body";
        assert_eq!(String::from_utf8_lossy(&shown), expected);
    }
}
