//! HTTP/1.1 answers that are no one message: rows 51 to 69, 71 and 101.

use std::time::Duration;

use serde_json::{Value, json};

use crate::faults::proof::Fault;
use crate::faults::table::{Call, Row, check};
use crate::support::script::{Script, answer, head};
use crate::support::wait::{Signal, poll};
use crate::support::world::World;

const CONNECTIONS: &str = "sortie_upstream_connections_total";

/// The lines of an answer's head, and what follows it.
fn raw(status: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{lines}\r\n{body}").into_bytes()
}

/// Refused by its head: nobody can tell where the answer ends, or it is none.
fn bad(detail: &'static str) -> impl Fn(Call) -> Call {
    move |fault| fault.failed("bad_body").detail(detail).unknown().connections(1)
}

/// Refused in its body, after a head with status 200.
fn bad_body(fault: Call) -> Call {
    bad("framing")(fault).http_status(200)
}

/// A result on a connection that cannot be used again.
fn gives_and_closes(result: Value) -> impl FnOnce(Call) -> Call {
    |fault| fault.result(result).connections(1).kept(0)
}

/// The same, and it is counted that bytes came that nobody asked for.
fn gives_and_poisons(result: Value) -> impl FnOnce(Call) -> Call {
    |fault| gives_and_closes(result)(fault).metric(CONNECTIONS, &[("kind", "poisoned")], 1.0)
}

fn text(body: &str) -> Vec<u8> {
    answer(200, "text/plain", body)
}

#[tokio::test]
async fn f051_a_body_longer_than_its_length_is_cut_there_and_its_connection_left() {
    let longer = [text("first"), b"and more".to_vec()].concat();
    check(vec![Row::answering("longer", longer, gives_and_poisons(json!("first")))]).await;
}

#[tokio::test]
async fn f052_a_second_answer_is_never_that_of_the_next_call() {
    let two = [text("first"), text("second")].concat();
    check(vec![Row::answering("second", two, gives_and_poisons(json!("first")))]).await;
}

#[tokio::test]
async fn f053_bytes_on_an_idle_connection_are_nobody_s_answer() {
    for bytes in [text("forged"), b"noise".to_vec()] {
        let (world, go) = (World::tls().await, Signal::new());
        let poisoned = Script::new().request().send(text("first")).wait(&go).send(bytes).stall();
        world.upstream.next(poisoned).default(Script::always(text("next")));
        let gateway = world.gateway(world.tool("idle")).await;
        Fault::of(&world, "idle").result(json!("first")).connections(1).holds(&gateway).await;
        assert!(world.upstream.connections()[0].open, "it is kept until the bytes come");
        go.fire();
        world.upstream.wait_for_close(0).await;
        poll("a poisoned connection", || async {
            let metrics = gateway.metrics().await;
            (metrics.value(CONNECTIONS, &[("kind", "poisoned")]) == 1.0).then_some(())
        })
        .await;
        Fault::of(&world, "idle").result(json!("next")).connections(1).holds(&gateway).await;
        gateway.finish().await;
    }
}

#[tokio::test]
async fn f054_a_length_and_a_coding_are_refused_together() {
    let (length, coding) = ("Content-Length: 2", "Transfer-Encoding: chunked");
    let both = |lines: &[&str]| raw("200 OK", lines, "2\r\n{}\r\n0\r\n\r\n");
    check(vec![
        Row::answering("length_first", both(&[length, coding]), bad("framing")),
        Row::answering("coding_first", both(&[coding, length]), bad("framing")),
    ])
    .await;
}

#[tokio::test]
async fn f055_two_lengths_are_refused() {
    let two = |lines: &[&str]| raw("200 OK", lines, "{} ");
    let lines = two(&["Content-Length: 2", "Content-Length: 3"]);
    check(vec![
        Row::answering("two_lines", lines, bad("framing")),
        Row::answering("one_line", two(&["Content-Length: 2, 3"]), bad("framing")),
    ])
    .await;
}

#[tokio::test]
async fn f056_a_length_that_is_no_number_is_refused() {
    let rows = [
        ("negative", "-1"),
        ("signed", "+5"),
        ("float", "1e3"),
        ("hex", "0x2"),
        ("huge", "99999999999999999999"),
    ];
    let row = |(name, length): (&str, &str)| {
        let line = format!("Content-Length: {length}");
        Row::answering(name, raw("200 OK", &[&line], "{}"), bad("framing"))
    };
    check(rows.map(row).into()).await;
}

#[tokio::test]
async fn f057_a_coding_other_than_chunked_is_refused() {
    let rows = [
        ("gzip", "gzip, chunked", "framing"),
        ("twice", "chunked, chunked", "framing"),
        ("xchunked", "xchunked", "framing"),
        ("identity", "chunked, identity", "framing"),
        ("vertical_tab", "\u{b}chunked", "head"),
    ];
    let row = |(name, coding, detail): (&str, &str, &'static str)| {
        let line = format!("Transfer-Encoding: {coding}");
        Row::answering(name, raw("200 OK", &[&line], "2\r\n{}\r\n0\r\n\r\n"), bad(detail))
    };
    let two = ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"];
    let two = raw("200 OK", &two, "2\r\n{}\r\n0\r\n\r\n");
    let rows = rows.into_iter().map(row).chain([Row::answering("two", two, bad("framing"))]);
    // White space around the value is none of it.
    let tab = raw("200 OK", &["Transfer-Encoding: \tchunked\t"], "2\r\n{}\r\n0\r\n\r\n");
    check(rows.chain([Row::giving("tab", tab, json!({}))]).collect()).await;
}

fn chunked(body: &str) -> Vec<u8> {
    raw("200 OK", &["Transfer-Encoding: chunked"], body)
}

#[tokio::test]
async fn f058_broken_chunks_are_refused() {
    let rows = [
        ("letters", "ZZ\r\n{}\r\n0\r\n\r\n"),
        ("seventeen_digits", "10000000000000002\r\n{}\r\n0\r\n\r\n"),
        ("overflow", "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("prefix", "0x2\r\n{}\r\n0\r\n\r\n"),
        ("space_and_extension", "2 ;\n{}\r\n0\r\n\r\n"),
        ("bare_feed", "2\n{}\r\n0\r\n\r\n"),
        ("no_end", "2\r\n{}XX0\r\n\r\n"),
    ];
    let closed = |call: Call| {
        let call = call.failed("network_error").detail("closed").unknown();
        call.http_status(200).connections(1)
    };
    let ending = |name, body| Row::new(name, Script::once(chunked(body)), closed);
    let rows = rows.map(|(name, body)| Row::answering(name, chunked(body), bad_body));
    let ends = [ending("no_last", "2\r\n{}\r\n"), ending("half", "9\r\n{}")];
    check(rows.into_iter().chain(ends).collect()).await;
}

#[tokio::test]
async fn f059_a_million_chunks_of_one_byte_are_read_or_cut() {
    let piece = "1\r\nx\r\n";
    let all = chunked(&format!("{}0\r\n\r\n", piece.repeat(32_768)));
    let million = Script::new().request().send(chunked("")).flood(piece.repeat(1000));
    let cut = |fault: Call| {
        let fault = gives_and_closes(json!("x".repeat(32_768)))(fault);
        fault.metric("sortie_responses_truncated_total", &[("tool", "cut")], 1.0)
    };
    let rows =
        vec![Row::giving("whole", all, json!("x".repeat(32_768))), Row::new("cut", million, cut)];
    let outcomes = check(rows).await;
    assert_eq!([0, 1].map(|at| outcomes[at].at("/truncated")), [json!(false), json!(true)]);
}

#[tokio::test]
async fn f060_a_mebibyte_of_chunk_extensions_is_refused() {
    let long = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(1 << 20));
    let rest = ";x=1\r\n{}\r\n0\r\n\r\n";
    check(vec![
        Row::answering("long", chunked(&long), bad_body),
        Row::giving("short", chunked(&format!("2{rest}")), json!({})),
    ])
    .await;
}

#[tokio::test]
async fn f061_trailers_are_bounded_and_no_headers() {
    let with = |trailers: &str| chunked(&format!("2\r\n{{}}\r\n0\r\n{trailers}\r\n"));
    check(vec![
        Row::answering("flood", with(&"X-Flood: yes\r\n".repeat(5000)), bad_body),
        Row::giving("type", with("Content-Type: image/png\r\n"), json!({})),
        Row::giving("coding", with("Content-Encoding: gzip\r\n"), json!({})),
    ])
    .await;
}

#[tokio::test]
async fn f062_a_head_of_too_many_lines_is_refused() {
    let lines = |count: usize| {
        let lines: Vec<String> = (0..count).map(|n| format!("X-{n}: 1")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        raw("200 OK", &[&["Content-Length: 2"], &*lines].concat(), "{}")
    };
    check(vec![
        Row::giving("most", lines(63), json!({})),
        Row::answering("one_more", lines(64), bad("head")),
        Row::answering("hundred", lines(101), bad("head")),
        Row::answering("ten_thousand", lines(10_000), bad("head")),
    ])
    .await;
}

#[tokio::test]
async fn f063_a_head_of_too_many_bytes_is_refused() {
    let long = format!("X-Long: {}", "x".repeat(1 << 20));
    let status = format!("200 {}", "x".repeat(1 << 20));
    let wide = format!("X-Wide: {}", "x".repeat(70_000));
    check(vec![
        Row::answering("line", raw("200 OK", &[&long], ""), bad("head")),
        Row::answering("status_line", raw(&status, &[], ""), bad("head")),
        Row::answering("past_64k", raw("200 OK", &[&wide], ""), bad("head")),
    ])
    .await;
}

#[tokio::test]
async fn f064_interim_answers_come_to_an_end_by_bytes_and_by_time() {
    let flood = |status| {
        let interim = head(status, &[("Link", "</style.css>; rel=preload")]);
        Script::new().request().flood(interim.repeat(50))
    };
    let hint = head(103, &[]);
    let slow = Script::new().request().drip(hint.repeat(50), Duration::from_millis(50));
    let late = |fault: Call| fault.failed("timeout").detail("first_byte").unknown();
    let hinted = [hint.repeat(3), text("after all")].concat();
    check(vec![
        Row::new("s100", flood(100), bad("head")),
        Row::new("s102", flood(102), bad("head")),
        Row::new("s103", flood(103), bad("head")),
        Row::new("slow", slow, late).shaped(|tool| tool.set("timeout", json!("1s"))),
        Row::giving("three", hinted, json!("after all")),
    ])
    .await;
}

#[tokio::test]
async fn f065_a_switch_of_protocols_that_nobody_asked_for_is_refused() {
    let switch = raw("101 Switching Protocols", &["Upgrade: x", "Connection: upgrade"], "bytes");
    check(vec![Row::answering("switch", switch, bad("framing"))]).await;
}

#[tokio::test]
async fn f066_what_is_not_http_1_is_no_answer() {
    check(vec![
        Row::answering("http_0_9", "just text\n\nand more of it", bad("head")),
        Row::answering("http_2", "HTTP/2.0 200 OK\r\n\r\n", bad("head")),
        Row::answering("icy", "ICY 200 OK\r\n\r\n", bad("head")),
    ])
    .await;
}

#[tokio::test]
async fn f067_a_status_is_one_from_200_to_599() {
    let status = |line: &str| raw(line, &["Content-Length: 0"], "");
    // By its first digit an interim answer, after which the real one never comes.
    let odd = Script::new().request().send(status("199 Odd")).fin();
    let closed = |fault: Call| fault.failed("network_error").detail("closed").unknown();
    check(vec![
        Row::answering("s000", status("000 Below"), bad("head")),
        Row::answering("s099", status("099 Below"), bad("head")),
        Row::answering("s20", status("20 Short"), bad("head")),
        Row::answering("s600", status("600 Beyond"), bad("framing")),
        Row::answering("s999", status("999 Beyond"), bad("framing")),
        Row::new("s199", odd, closed),
        Row::giving("s299", status("299 Fine"), Value::Null),
    ])
    .await;
}

#[tokio::test]
async fn f068_the_body_of_an_answer_that_has_none_is_not_the_next_answer() {
    let with_body = |status: &str| raw(status, &["Content-Length: 5"], "first");
    let not_modified = |fault: Call| {
        let fault = fault.failed("http_status").answered().http_status(304).connections(1);
        fault.metric(CONNECTIONS, &[("kind", "poisoned")], 1.0)
    };
    // The pool's counter is nobody's: each row by itself.
    let no_content = with_body("204 No Content");
    check(vec![Row::answering("s204", no_content, gives_and_poisons(Value::Null))]).await;
    check(vec![Row::answering("s304", with_body("304 Not Modified"), not_modified)]).await;
}

#[tokio::test]
async fn f069_a_line_that_is_no_header_is_refused() {
    let rows = [
        ("nul", "X-Nul: a\0b"),
        ("bare_return", "X-Return: a\rb"),
        ("folded", "X-Folded: a\r\n b"),
        ("space_before_colon", "X-Space : a"),
        ("no_name", ": a"),
        ("no_colon", "X-None"),
    ];
    let row = |(name, line): (&str, &str)| {
        Row::answering(name, raw("200 OK", &[line, "Content-Length: 2"], "{}"), bad("head"))
    };
    check(rows.map(row).into()).await;
}

#[tokio::test]
async fn f071_a_connection_that_its_server_ends_is_not_kept() {
    let with = |lines: &[&str]| raw("200 OK", &[lines, &["Content-Length: 5"]].concat(), "first");
    let (close, keep) = ("Connection: close", "Connection: keep-alive");
    let old = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nfirst";
    let until_close = Script::new().request().send(raw("200 OK", &[], "first")).fin();
    let first = || gives_and_closes(json!("first"));
    check(vec![
        Row::answering("close_first", with(&[close, keep]), first()),
        Row::answering("keep_first", with(&[keep, close]), first()),
        Row::answering("one_line", with(&["Connection: keep-alive, close"]), first()),
        Row::answering("old_http", old, first()),
        Row::new("until_close", until_close, first()),
    ])
    .await;
}

/// What an HTTP/2 server says first: an empty SETTINGS frame.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn f101_http_2_where_http_1_was_agreed_is_no_answer() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    check(vec![
        Row::answering("settings", SETTINGS, bad("head")).over_tls(),
        Row::answering("preface", preface, bad("head")).over_tls(),
        Row::answering("in_clear", SETTINGS, bad("head")),
    ])
    .await;
}
