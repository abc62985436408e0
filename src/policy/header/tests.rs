//! What a profile's header list may hold, and what is said about one that may not be.

use super::*;

fn parse(json: &str) -> Vec<HeaderText> {
    serde_json::from_str(json).unwrap()
}

/// A good list with `line` in its middle.
fn with(line: &str) -> String {
    format!(
        r#"[{{"name":"Host","value":"$host"}},{line},"$own",{{"name":"Content-Length","value":"$content_length"}}]"#
    )
}

#[track_caller]
fn check_faults(json: &str, faults: &[(&str, &str)]) {
    let found = compile_lines(&parse(json)).unwrap_err();
    assert_eq!(found.len(), faults.len(), "{found:?}");
    for (fault, (path, message)) in found.iter().zip(faults) {
        assert_eq!(fault.path, *path);
        assert!(fault.message.contains(message), "{fault}");
    }
}

#[track_caller]
fn check_line(name: &str, value: &str, part: &str, message: &str) {
    let json = with(&format!(r#"{{"name":"{name}","value":"{value}"}}"#));
    check_faults(&json, &[(&format!("headers[1].{part}"), message)]);
}

#[test]
fn a_list_keeps_its_order() {
    let lines = compile_lines(&parse(&with(r#"{"name":"X-Tool","value":"$tool"}"#))).unwrap();
    let names = lines.iter().map(|line| match line {
        Line::Field(field) => field.spelling.as_str(),
        Line::Own => "$own",
    });
    assert_eq!(names.collect::<Vec<_>>(), ["Host", "X-Tool", "$own", "Content-Length"]);
}

#[test]
fn a_value_is_one_known_slot_or_plain_text() {
    check_line("X-A", "$signatrue", "value", "there are $host, $content_length, $tool, $call_id, ");
    check_line("X-A", "$Tool", "value", "`$Tool` is no slot of a header");
    for value in ["", " a", "a ", "a\\r\\nX-B: b", "a\\u0000", "a\\tb", "é", "id-$call_id"] {
        check_line("X-A", value, "value", "visible ASCII without `$`");
    }
    check_line("X-A", &"a".repeat(4097), "value", "1 to 4096 characters");
}

#[test]
fn a_name_is_a_token_that_stands_once_and_may_be_sent() {
    for name in ["", "X A", "X:A", "X\\r\\nA", "é"] {
        check_line(name, "a", "name", "is not a header name");
    }
    for name in
        ["Transfer-Encoding", "connection", "Authorization", "Accept-Encoding", "Expect", "Upgrade"]
    {
        check_line(name, "a", "name", "a profile cannot send");
    }
    let twice = with(r#"{"name":"X-A","value":"a"},{"name":"x-a","value":"b"}"#);
    check_faults(&twice, &[("headers[2].name", "`x-a` stands there already")]);
}

#[test]
fn host_and_length_have_their_places_and_their_slots() {
    check_faults(
        "[]",
        &[
            ("headers", "the first must be `Host`"),
            ("headers", "the last must be `Content-Length`"),
            ("headers", "`$own` is missing"),
        ],
    );
    let swapped = r#"[{"name":"X-A","value":"a"},{"name":"Host","value":"$host"},
        {"name":"Content-Length","value":"$content_length"},"$own"]"#;
    check_faults(swapped, &[("headers", "the first must be"), ("headers", "the last must be")]);
    check_line("X-A", "$host", "value", "`host` and `$host` belong together");
    check_line("X-A", "$content_length", "value", "belong together");
    let fixed =
        r#"[{"name":"Host","value":"a.example"},"$own",{"name":"Content-Length","value":"0"}]"#;
    check_faults(
        fixed,
        &[
            ("headers[0].value", "`host` and `$host`"),
            ("headers[2].value", "`$content_length` belong"),
        ],
    );
    check_faults(&with(r#""$own""#), &[("headers[2]", "`$own` stands there already")]);
}

#[test]
fn an_item_is_a_header_or_the_place_of_own_ones() {
    for json in
        [r#"["own"]"#, r#"[{"name":"A"}]"#, r#"[{"name":"A","value":"b","secret":true}]"#, "[1]"]
    {
        let error = serde_json::from_str::<Vec<HeaderText>>(json).unwrap_err().to_string();
        assert!(error.contains("a header is `{name, value}`, or the text `$own`"), "{error}");
    }
}
