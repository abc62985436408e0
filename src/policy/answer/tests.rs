//! Tests of reading an answer.

use proptest::prelude::*;

use super::*;

fn head<'a>(status: u16, content_type: &'a str) -> AnswerHead<'a> {
    let content_type = (!content_type.is_empty()).then_some(content_type.as_bytes());
    AnswerHead { status, content_type, content_encoding: None }
}

/// What a whole answer becomes: `json …`, `text …`, `null` or the detail of its error.
fn shown(content_type: &str, body: &[u8]) -> String {
    let read =
        judge_head(&head(200, content_type)).and_then(|m| read(m, body, true, None, 1 << 20));
    match read {
        Ok(success) => {
            assert_eq!(success.result_bytes, body.len() as u64);
            assert_eq!(success.cut_note, None);
            match success.result {
                ToolResult::Json(value) => format!("json {}", value.as_str()),
                ToolResult::Null => "null".into(),
                ToolResult::Text(text) => format!("text {text}"),
            }
        }
        Err(error) => error.detail().into(),
    }
}

#[track_caller]
fn check(content_type: &str, body: impl AsRef<[u8]>, expected: &str) {
    assert_eq!(shown(content_type, body.as_ref()), expected, "{content_type}");
}

#[test]
fn json_stays_as_it_came() {
    check("application/json", r#"{"x": 1}"#, r#"json {"x": 1}"#);
    check(
        "Application/JSON ; charset=UTF-8",
        " [1e2, 12345678901234567890]\n",
        "json [1e2, 12345678901234567890]",
    );
    check("application/problem+json", "{}", "json {}");
    check("text/json", "\"a\"", "json \"a\"");
    check("application/json", "1e999", "json 1e999");
    check("application/json", r#"{"a":1,"a":2}"#, r#"json {"a":1,"a":2}"#);
    check("application/json", "null", "json null");
    check("application/json", "\u{feff}{}", "json {}");
}

#[test]
fn json_that_does_not_parse_is_text() {
    check("application/json", "<html>", "text <html>");
    check("application/json", "{", "text {");
    check("application/json", "{} {}", "text {} {}");
    check("application/json", " ", "text  ");
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    check("application/json", &deep, &format!("text {deep}"));
}

#[test]
fn without_a_type_json_is_what_parses() {
    for none in ["", "json", "/", "text/", "a b/c", "text/pl\u{e9}in"] {
        check(none, "{}", "json {}");
        check(none, "hello", "text hello");
        check(none, b"\xff", "utf8");
    }
}

#[test]
fn text_is_text_even_if_it_looks_like_json() {
    check("text/plain", "hello", "text hello");
    check("text/plain", "{}", "text {}");
    check("text/html; charset=\"utf-8\"", "<p>é", "text <p>é");
    check("text/csv", "\u{feff}a,b", "text a,b");
    check("application/xml", "<a/>", "text <a/>");
    check("application/octet-stream", "plain after all", "text plain after all");
    check("application/x-unheard-of", "é", "text é");
}

#[test]
fn only_declared_charsets_are_decoded() {
    check("text/plain", b"caf\xe9", "utf8");
    check("text/plain; charset=iso-8859-1", b"caf\xe9", "text café");
    check("text/plain;charset=Latin1", b"\xa0\x00", "text \u{a0}\0");
    check("application/json; charset=ISO-8859-1", b"\"\xe9\"", "json \"é\"");
    check("text/plain; charset=us-ascii", "a", "text a");
    check("text/plain; charset=us-ascii", b"\xe9", "utf8");
    check("text/plain; charset=utf-16", "a\0", "utf8");
    check("text/plain; charset=windows-1252", "a", "utf8");
    check("text/plain; format=flowed; charset=utf-8", "a", "text a");
    check("text/plain", b"\xff\xfea\0", "utf8");
    check("text/plain", b"\xed\xa0\x80", "utf8");
    check("application/octet-stream", b"\x89PNG\r\n", "utf8");
}

#[test]
fn an_empty_body_is_null() {
    for kind in
        ["", "application/json", "text/plain", "application/octet-stream", "text/a;charset=utf-16"]
    {
        check(kind, "", "null");
    }
    // A byte order mark says nothing, and a model cannot be given an empty text.
    check("text/plain", "\u{feff}", "null");
    check("application/json", "\u{feff}", "null");
    let no_content = AnswerHead { content_encoding: Some(b"gzip"), ..head(204, "image/png") };
    let read = read(judge_head(&no_content).unwrap(), b"", true, None, 10).unwrap();
    assert!(matches!(read.result, ToolResult::Null));
}

#[test]
fn types_that_cannot_be_text_fail_by_their_head() {
    for kind in [
        "image/png",
        "IMAGE/SVG+XML",
        "audio/ogg",
        "video/mp4",
        "font/woff2",
        "model/gltf+json",
        "multipart/form-data; boundary=x",
        "text/event-stream",
        "application/pdf",
        "application/zip",
        "application/gzip",
        "application/x-tar",
        "application/wasm",
        "application/vnd.ms-excel",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/epub+zip",
        "application/grpc+proto",
        "application/x-thing+zip",
    ] {
        check(kind, "", "media");
    }
    let error = judge_head(&head(200, "Image/PNG; q=1")).unwrap_err();
    assert_eq!(error.sentence(), "The tool answered with image/png, which cannot be shown.");
}

#[test]
fn the_named_type_is_clean_and_short() {
    for kind in
        ["image/png\u{1b}[2J", "image/<b>", "image/a b", &format!("image/{}", "a".repeat(100))]
    {
        assert_eq!(judge_head(&head(200, kind)).map(|media| media.shape), Ok(Shape::Unknown));
    }
}

#[test]
fn an_encoded_body_is_refused() {
    let encoded = |value: &'static str| {
        let head =
            AnswerHead { content_encoding: Some(value.as_bytes()), ..head(200, "text/plain") };
        judge_head(&head).is_err_and(|error| {
            assert_eq!(error.sentence(), "The tool's answer could not be read.");
            error.detail() == "encoding"
        })
    };
    for value in ["gzip", "br", "x-gzip", "identity, gzip", "gzip,gzip", "\u{e9}"] {
        assert!(encoded(value), "{value}");
    }
    for value in ["", "identity", " Identity ", "identity,"] {
        assert!(!encoded(value), "{value}");
    }
}

#[track_caller]
fn check_cut(
    kind: &str,
    body: &[u8],
    whole: bool,
    total: Option<u64>,
    expected: (&str, u64, &str),
) {
    let media = judge_head(&head(200, kind)).unwrap();
    let success = read(media, body, whole, total, 4).unwrap();
    let ToolResult::Text(text) = success.result else { panic!("a cut answer is text") };
    let note = success.cut_note.unwrap();
    assert_eq!((text.as_str(), success.result_bytes, note.as_str()), expected);
}

#[test]
fn past_the_limit_the_first_part_is_kept() {
    let known = "\n[Cut: the first 4 of 9 bytes are shown.]";
    check_cut("text/plain", b"abcde", false, Some(9), ("abcd", 9, known));
    check_cut("application/json", b"[1,2,", false, Some(9), ("[1,2", 9, known));
    let unknown = "\n[Cut: the first 4 of more than 4 bytes are shown.]";
    check_cut("text/plain", b"abcde", false, None, ("abcd", 5, unknown));
    check_cut("text/plain", b"abcde", true, None, ("abcd", 5, unknown));
    let character = "\n[Cut: the first 3 of more than 4 bytes are shown.]";
    check_cut("text/plain", "abcé".as_bytes(), false, None, ("abc", 5, character));
    check_cut("text/plain; charset=latin1", b"abc\xe9\xe9", false, None, ("abcé", 5, unknown));
}

#[test]
fn at_the_limit_nothing_is_cut() {
    let media = judge_head(&head(200, "text/plain")).unwrap();
    let success = read(media, b"abcd", true, Some(4), 4).unwrap();
    assert_eq!(success.cut_note, None);
    assert!(matches!(success.result, ToolResult::Text(text) if text == "abcd"));
}

#[test]
fn a_cut_body_that_is_no_text_fails() {
    let media = judge_head(&head(200, "text/plain")).unwrap();
    assert_eq!(read(media, b"a\xffcde", false, None, 4).unwrap_err(), AnswerError::Utf8);
    assert_eq!(read(media, &[0x80; 5], false, None, 4).unwrap_err(), AnswerError::Utf8);
}

#[track_caller]
fn check_error(status: u16, kind: &str, body: &[u8], expected: Option<&str>) {
    let text = error_text(&head(status, kind), body, ErrorBody::ClientErrors);
    assert_eq!(text.as_deref(), expected);
    assert_eq!(error_text(&head(status, kind), body, ErrorBody::Never), None);
}

#[test]
fn a_client_error_speaks_to_the_model() {
    check_error(422, "application/json", br#"{"e": 1}"#, Some(r#"{"e": 1}"#));
    check_error(404, "text/plain", b" no such order\r\n", Some("no such order"));
    check_error(400, "", b"bad", Some("bad"));
    check_error(409, "application/problem+json", b"{}", Some("{}"));
    check_error(499, "text/plain; charset=latin1", b"\xe9", Some("é"));
    check_error(400, "text/plain", b"\x1b[31mred\x00\t1\n2\x7f\xc2\x9b", Some("[31mred\t1\n2"));
}

#[test]
fn other_failures_do_not() {
    for status in [101, 200, 302, 399, 500, 503, 599] {
        check_error(status, "text/plain", b"text", None);
    }
    check_error(400, "image/png", b"text", None);
    check_error(400, "application/octet-stream", b"text", None);
    check_error(400, "text/plain", b"\xff", None);
    check_error(400, "text/plain; charset=utf-16", b"text", None);
    check_error(400, "text/plain", b" \x00\r\n", None);
    let encoded = AnswerHead { content_encoding: Some(b"gzip"), ..head(400, "text/plain") };
    assert_eq!(error_text(&encoded, b"text", ErrorBody::ClientErrors), None);
}

#[test]
fn an_error_body_is_cut_at_two_kibibytes() {
    let long = "é".repeat(2000);
    check_error(400, "text/plain", long.as_bytes(), Some(&"é".repeat(1024)));
    let odd = format!("a{long}");
    check_error(400, "text/plain", odd.as_bytes(), Some(&format!("a{}", "é".repeat(1023))));
    check_error(400, "text/plain; charset=latin1", &[0xe9; 2048], Some(&"é".repeat(1024)));
}

proptest! {
    #[test]
    fn a_cut_answer_is_a_prefix_within_the_limit(text in "\\PC{0,40}", limit in 0..60_usize) {
        let body = text.as_bytes();
        let sent = body.get(..=limit).unwrap_or(body);
        let whole = body.len() <= limit;
        let media = judge_head(&head(200, "text/plain")).unwrap();
        let success = read(media, sent, whole, Some(body.len() as u64), limit).unwrap();
        prop_assert_eq!(success.cut_note.is_none(), whole);
        prop_assert_eq!(success.result_bytes, body.len() as u64);
        match success.result {
            ToolResult::Text(kept) => {
                let mark = '\u{feff}';
                let text = text.strip_prefix(mark).unwrap_or(&text);
                prop_assert!(text.starts_with(&kept));
                prop_assert!(kept.len() <= limit && kept.len() + 3 >= body.len().min(limit));
            }
            ToolResult::Null => {
                let is_nothing = matches!(text.as_str(), "" | "\u{feff}");
                prop_assert!(is_nothing);
            }
            ToolResult::Json(_) => prop_assert!(false, "text/plain is no JSON"),
        }
    }

    #[test]
    fn any_answer_is_read_or_refused(
        status in 100..=599_u16,
        kind in prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
        known in prop::sample::select(&["", "text/plain", "application/json", "text/x; charset=latin1"][..]),
        body in prop::collection::vec(any::<u8>(), 0..40),
        whole in any::<bool>(),
        total in prop::option::of(any::<u64>()),
        limit in 0..40_usize,
    ) {
        let content_type = kind.as_deref().unwrap_or(known.as_bytes());
        let head = AnswerHead { status, content_type: Some(content_type), content_encoding: None };
        if let Ok(media) = judge_head(&head) {
            let _ = read(media, &body, whole, total, limit);
        }
        let text = error_text(&head, &body, ErrorBody::ClientErrors);
        prop_assert!(text.is_none_or(|text| (1..=ERROR_BODY_LIMIT).contains(&text.len())));
    }
}
