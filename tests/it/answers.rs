//! Answers that no honest server gives: each has a code, a detail and an outcome, and spoils no other call.

mod media;
mod refused;

use serde_json::{Value, json};

use crate::support::fleet::Fleet;
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::wait::together;
use crate::support::world::World;

/// What a call came to.
enum Ends {
    /// It failed: code, detail, outcome, and the `result` of its attempt.
    Fails(&'static str, Option<&'static str>, &'static str, &'static str),
    /// It succeeded with this result.
    Gives(Value),
}

/// One answer and what becomes of it.
struct Case {
    name: &'static str,
    answer: Vec<u8>,
    /// What the server does after its answer.
    after: Script,
    ends: Ends,
    /// Whether the next call finds the connection kept.
    kept: bool,
}

fn case(name: &'static str, answer: impl Into<Vec<u8>>, ends: Ends) -> Case {
    Case { name, answer: answer.into(), after: Script::new().stall(), ends, kept: false }
}

fn bad(detail: &'static str, outcome: &'static str) -> Ends {
    Ends::Fails("bad_body", Some(detail), outcome, "bad_body")
}

fn closed() -> Ends {
    Ends::Fails("network_error", Some("closed"), "unknown", "closed")
}

/// The lines of an answer's head, and what follows it.
fn raw(status: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status}\r\n");
    lines.iter().for_each(|line| text.push_str(&format!("{line}\r\n")));
    format!("{text}\r\n{body}").into_bytes()
}

/// Calls one tool per case twice: the bad answer ends as it should, and the next call works.
async fn check(cases: Vec<Case>) {
    let mut fleet = Fleet::new().await;
    let mut servers = Vec::new();
    for case in &cases {
        let good = answer(200, "application/json", r#""next""#);
        let mut first = Script::new().request().send(case.answer.clone());
        if case.kept {
            first = first.forever(Script::new().request().send(good.clone()));
        }
        let (next, server) = fleet.plain(case.name, Script::always(good), |tool| tool).await;
        let steps = case.after.steps().iter().cloned();
        server.next(steps.fold(first, Script::then));
        servers.push(server);
        fleet = next;
    }
    let gateway = fleet.config.start().await;
    let outcomes = together(cases.iter().map(|case| gateway.call(case.name, json!({})))).await;
    let nexts = together(cases.iter().map(|case| gateway.call(case.name, json!({})))).await;
    let metrics = gateway.metrics().await;
    for (index, case) in cases.iter().enumerate() {
        let (name, outcome) = (case.name, &outcomes[index]);
        let (code, result) = match &case.ends {
            Ends::Fails(code, detail, left, result) => {
                assert_eq!(outcome.at("/tool"), json!(name));
                outcome.failed(code, *detail, left);
                (*code, *result)
            }
            Ends::Gives(expected) => {
                assert_eq!(&outcome.succeeded(), expected, "{name}");
                ("ok", "2xx")
            }
        };
        let counted = |metric, label| metrics.value(metric, &[("tool", name), label]);
        let twice = if result == "2xx" { 2.0 } else { 1.0 };
        assert_eq!(counted("sortie_attempts_total", ("result", result)), twice, "{name}");
        assert_eq!(counted("sortie_calls_total", ("code", code)), twice, "{name}");
        assert_eq!(gateway.call_line(&outcome.id()).await["code"], code, "{name}");
        assert_eq!(nexts[index].succeeded(), json!("next"), "{name}");
        let server = &servers[index];
        assert_eq!(server.requests().len(), 2, "{name}: each call is asked once");
        let connections = if case.kept { 1 } else { 2 };
        assert_eq!(server.connections().len(), connections, "connections of {name}");
        if !case.kept {
            assert_eq!(server.requests()[1].connection, 1, "{name}: on a connection of its own");
            let closed = server.wait_for_close(0).await;
            assert!(!closed.open, "{name}");
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn lengths_and_codings_that_make_no_one_message_are_refused() {
    let framing = || bad("framing", "unknown");
    let chunked = |body: &str| raw("200 OK", &["Transfer-Encoding: chunked"], body);
    let coded = |line: &str| raw("200 OK", &[line], "2\r\n{}\r\n0\r\n\r\n");
    let length = |line: &str| raw("200 OK", &[line], "{}");
    check(vec![
        case(
            "length_and_coding",
            raw(
                "200 OK",
                &["Content-Length: 2", "Transfer-Encoding: chunked"],
                "2\r\n{}\r\n0\r\n\r\n",
            ),
            framing(),
        ),
        case(
            "coding_and_length",
            raw(
                "200 OK",
                &["Transfer-Encoding: chunked", "Content-Length: 2"],
                "2\r\n{}\r\n0\r\n\r\n",
            ),
            framing(),
        ),
        case(
            "two_lengths",
            raw("200 OK", &["Content-Length: 2", "Content-Length: 3"], "{} "),
            framing(),
        ),
        case("negative_length", length("Content-Length: -1"), framing()),
        case("signed_length", length("Content-Length: +2"), framing()),
        case("float_length", length("Content-Length: 1e3"), framing()),
        case("huge_length", length("Content-Length: 99999999999999999999"), framing()),
        case("gzip_coding", coded("Transfer-Encoding: gzip, chunked"), framing()),
        case("twice_chunked", coded("Transfer-Encoding: chunked, chunked"), framing()),
        case("xchunked", coded("Transfer-Encoding: xchunked"), framing()),
        case("identity", coded("Transfer-Encoding: chunked, identity"), framing()),
        case("vertical_tab", coded("Transfer-Encoding: \u{b}chunked"), bad("head", "unknown")),
        case("chunk_letters", chunked("ZZ\r\n{}\r\n0\r\n\r\n"), framing()),
        case("chunk_hex", chunked("0x2\r\n{}\r\n0\r\n\r\n"), framing()),
        case("chunk_overflow", chunked("fffffffffffffffff\r\n{}\r\n0\r\n\r\n"), framing()),
        case("chunk_without_end", chunked("2\r\n{}XX0\r\n\r\n"), framing()),
        case("chunk_bare_feed", chunked("2\n{}\r\n0\r\n\r\n"), framing()),
        case(
            "chunk_extensions",
            chunked(&format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(1 << 17))),
            framing(),
        ),
        case(
            "trailers",
            chunked(&format!("2\r\n{{}}\r\n0\r\n{}\r\n", "X-Flood: yes\r\n".repeat(5000))),
            framing(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_head_that_is_none_is_refused() {
    let unknown = |detail| bad(detail, "unknown");
    let lines = |count: usize| {
        let lines: Vec<String> = (0..count).map(|n| format!("X-{n}: 1")).collect();
        raw("200 OK", &lines.iter().map(String::as_str).collect::<Vec<_>>(), "")
    };
    let line = |line: &str| raw("200 OK", &[line, "Content-Length: 2"], "{}");
    check(vec![
        case("switching", raw("101 Switching", &["Upgrade: x"], ""), unknown("framing")),
        case("s600", raw("600 Beyond", &["Content-Length: 0"], ""), unknown("framing")),
        case("s999", raw("999 Beyond", &["Content-Length: 0"], ""), unknown("framing")),
        case("s099", raw("099 Below", &["Content-Length: 0"], ""), unknown("head")),
        case("s000", raw("000 Below", &["Content-Length: 0"], ""), unknown("head")),
        case("s20", raw("20 Short", &["Content-Length: 0"], ""), unknown("head")),
        // A number that is none of ours is an interim answer by its first digit, and the answer never comes.
        Case { after: Script::new().fin(), ..case("s199", raw("199 Odd", &[], ""), closed()) },
        case("lines_65", lines(65), unknown("head")),
        case("lines_10000", lines(10_000), unknown("head")),
        case("one_line_70000", line(&format!("X-Long: {}", "x".repeat(70_000))), unknown("head")),
        case(
            "status_line_1m",
            raw(&format!("200 {}", "x".repeat(1 << 20)), &[], ""),
            unknown("head"),
        ),
        case("no_head", "just text\n\nand more of it", unknown("head")),
        case("http_2", "HTTP/2.0 200 OK\r\n\r\n", unknown("head")),
        case("icy", "ICY 200 OK\r\n\r\n", unknown("head")),
        case("nul_in_line", line("X-Nul: a\0b"), unknown("head")),
        case("return_in_line", line("X-Return: a\rb"), unknown("head")),
        case("folded", line("X-Folded: a\r\n b"), unknown("head")),
        case("space_before_colon", line("X-Space : a"), unknown("head")),
        case("no_name", line(": a"), unknown("head")),
    ])
    .await;
}

#[tokio::test]
async fn interim_answers_come_to_an_end() {
    let hints = head(103, &[("Link", "</style.css>; rel=preload")]);
    let endless = case("endless_hints", "", bad("head", "unknown"));
    let hinted = [hints.repeat(3), answer(200, "text/plain", "after all")].concat();
    check(vec![
        Case { after: Script::new().flood(hints), ..endless },
        Case {
            kept: true,
            after: Script::new(),
            ..case("three_hints", hinted, Ends::Gives(json!("after all")))
        },
    ])
    .await;
}

#[tokio::test]
async fn a_body_that_breaks_off_is_no_result() {
    let fin = |case: Case| Case { after: Script::new().fin(), ..case };
    let long = answer_with_headers(200, &[("Content-Type", "text/plain")], "half of it");
    let half = long[..long.len() - 5].to_vec();
    let chunked = |body: &str| raw("200 OK", &["Transfer-Encoding: chunked"], body);
    let reset = Ends::Fails("network_error", Some("reset"), "unknown", "reset");
    check(vec![
        fin(case("short_body", half.clone(), closed())),
        Case { after: Script::new().reset(), ..case("reset_body", half, reset) },
        fin(case("no_last_chunk", chunked("2\r\n{}\r\n"), closed())),
        fin(case("half_a_chunk", chunked("9\r\n{}"), closed())),
        fin(case("half_a_head", "HTTP/1.1 200 OK\r\nContent-Le", closed())),
        // A server that has closed its side and reads on gets nothing more.
        Case { after: Script::new().bare_fin().stall(), ..case("half_closed", "", closed()) },
    ])
    .await;
}

#[tokio::test]
async fn under_tls_only_a_proper_end_is_the_end_of_a_body_without_length() {
    let world = World::tls().await;
    let unframed = raw("200 OK", &["Content-Type: text/plain"], "as far as it goes");
    let framed = answer(200, "text/plain", "whole");
    let sending = |bytes: &[u8]| Script::new().request().send(bytes);
    world
        .upstream
        .next(sending(&unframed).fin())
        .next(sending(&unframed).bare_fin().stall())
        .next(sending(&framed).bare_fin().stall());
    let gateway = world.gateway(world.tool("ending")).await;
    let call = async || gateway.call("ending", json!({})).await;
    assert_eq!(call().await.succeeded(), json!("as far as it goes"));
    // Somebody on the way may have cut it.
    call().await.failed("network_error", Some("closed"), "unknown");
    assert_eq!(call().await.succeeded(), json!("whole"));
    assert_eq!(world.upstream.requests().len(), 3);
    gateway.finish().await;
}

#[tokio::test]
async fn what_follows_an_answer_is_never_the_next_one() {
    let ok = |body: &str| answer(200, "text/plain", body);
    let two = [ok("first"), ok("second")].concat();
    let longer = [ok("first"), b"and more".to_vec()].concat();
    let first = || Ends::Gives(json!("first"));
    let empty = |name, status: &str| {
        case(name, raw(status, &["Content-Length: 5"], "first"), Ends::Gives(Value::Null))
    };
    check(vec![
        case("second_answer", two, first()),
        case("longer_body", longer, first()),
        empty("body_of_204", "204 No Content"),
        Case {
            ends: Ends::Fails("http_status", None, "answered", "3xx"),
            ..empty("body_of_304", "304 Not Modified")
        },
        case(
            "both_connections",
            raw(
                "200 OK",
                &["Connection: close", "Connection: keep-alive", "Content-Length: 5"],
                "first",
            ),
            first(),
        ),
        case("old_http", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nfirst", first()),
        Case {
            after: Script::new().fin(),
            ..case("until_close", raw("200 OK", &[], "first"), first())
        },
    ])
    .await;
}
