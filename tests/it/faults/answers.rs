//! Answers that are one message and still trouble: rows 70, 72 to 80, 84 to 87.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::faults::proof::{Fault, prove};
use crate::faults::table::{Call, Row, check};
use crate::support::config::{SECRET, Tool};
use crate::support::fleet::{Fleet, eager_profile};
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::upstream::Upstream;
use crate::support::world::World;

const TRUNCATED: &str = "sortie_responses_truncated_total";

/// The limit of the tools whose answers are cut.
const LIMIT: usize = 1000;

fn typed(kind: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    answer(200, kind, body)
}

#[tokio::test]
async fn f070_a_redirect_is_not_followed_and_its_target_not_told() {
    let elsewhere = Upstream::forbidden_at(([127, 0, 0, 1], 0).into()).await;
    let place = format!("http://{}/latest/meta-data/{}", elsewhere.address(), "x".repeat(400));
    let (mut fleet, mut servers) = (Fleet::new().await, Vec::new());
    for status in [300, 301, 302, 303, 305, 307, 308] {
        let name = format!("s{status}");
        let away = answer_with_headers(status, &[("Location", &place)], "");
        let shape = |tool: Tool| tool.profile("bare-v1");
        let (next, server) = fleet.plain(&name, Script::always(away), shape).await;
        fleet = next;
        servers.push((name, status, server));
    }
    let gateway = fleet.config.start().await;
    let faults = servers.iter().map(|(name, status, server)| {
        let fault = Fault::of_fleet(name, server).profile("bare-v1").failed("redirect").answered();
        let refused = ("sortie_redirects_refused_total", [("tool", name.as_str())]);
        fault.http_status(*status).connections(1).kept(1).metric(refused.0, &refused.1, 1.0)
    });
    let outcomes = prove(&gateway, faults.collect()).await;
    for outcome in &outcomes {
        let sentence = "The tool answered with a redirect, which is not followed.";
        assert_eq!(outcome.model_text(), sentence);
        assert!(!outcome.0.text().contains("meta-data"), "{}", outcome.0.text());
    }
    let lines = gateway.log_lines();
    let failed = |name: &str| {
        let is_it = |line: &&Value| line["message"] == "Attempt failed." && line["tool"] == name;
        lines.iter().find(is_it).expect("the operator's line")["reason"].to_string()
    };
    for (name, status, _) in &servers {
        let reason = failed(name);
        let begin = format!("status {status} with location http://127.0.0.1:");
        assert!(reason.contains(&begin) && reason.len() < begin.len() + 210, "{reason}");
    }
    elsewhere.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn f072_an_endless_body_at_full_speed_is_cut_and_left() {
    let world = World::tls().await;
    let endless = Script::new()
        .request()
        .send(head(200, &[("Content-Type", "text/plain")]))
        .flood("z".repeat(16 * 1024));
    world.upstream.next(endless).default(Script::always(typed("text/plain", "next")));
    let gateway = world.gateway(world.tool("endless")).await;
    let fault = Fault::of(&world, "endless").result(json!("z".repeat(32_768))).connections(1);
    let outcome =
        fault.kept(0).metric(TRUNCATED, &[("tool", "endless")], 1.0).holds(&gateway).await;
    assert_eq!(outcome.at("/truncated"), json!(true));
    let note = "\n[Cut: the first 32768 of more than 32768 bytes are shown.]";
    assert!(outcome.model_text().ends_with(note), "{}", outcome.model_text());
    // What lay in the buffers of two kernels, not what a server can send in the meantime.
    let sent = world.upstream.connections()[0].sent;
    assert!(sent < 16 << 20, "{sent} bytes were taken");
    Fault::of(&world, "endless").result(json!("next")).connections(1).holds(&gateway).await;
    gateway.finish().await;
}

/// An answer around the limit: what is kept, the note that follows it for the model, and the size that is told.
struct Long {
    name: &'static str,
    answer: Vec<u8>,
    kept: String,
    note: Option<&'static str>,
    size: u64,
}

/// With a length.
fn known(body: &str) -> Vec<u8> {
    typed("text/plain", body)
}

/// Without one, in one chunk.
fn chunked(body: &str) -> Vec<u8> {
    let lines = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")];
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    [head(200, &lines), chunks.into_bytes()].concat()
}

/// A head that announces so much, of which a little more than the limit ever comes.
fn announced(length: &str) -> Vec<u8> {
    let lines = [("Content-Type", "text/plain"), ("Content-Length", length)];
    [head(200, &lines), "x".repeat(LIMIT + 10).into_bytes()].concat()
}

fn whole(name: &'static str, answer: Vec<u8>, kept: String) -> Long {
    Long { name, answer, kept, note: None, size: LIMIT as u64 }
}

fn cut(name: &'static str, answer: Vec<u8>, kept: String, note: &'static str, size: u64) -> Long {
    Long { name, answer, kept, note: Some(note), size }
}

impl Long {
    fn row(&self) -> Row {
        let (name, kept, is_cut) = (self.name, json!(self.kept), self.note.is_some());
        let expect = move |call: Call| {
            let call = call.result(kept).connections(1).kept(usize::from(!is_cut));
            call.metric(TRUNCATED, &[("tool", name)], f64::from(u8::from(is_cut)))
        };
        let row = Row::answering(name, self.answer.clone(), expect);
        let row = row.shaped(|tool| tool.set("result_max_bytes", json!(LIMIT)));
        if is_cut { row } else { row.on_a_kept_connection() }
    }
}

#[tokio::test]
async fn f073_an_answer_is_cut_one_byte_past_the_limit_on_the_edge_of_a_character() {
    let x = |count| "x".repeat(count);
    let before = |count| "x".repeat(LIMIT - count);
    let body = |count, character: &str| format!("{}{character}{}", before(count), "y".repeat(50));
    let (two, four) = (body(1, "é"), body(3, "😀"));
    let told = "\n[Cut: the first 1000 of 1001 bytes are shown.]";
    let more = "\n[Cut: the first 1000 of more than 1000 bytes are shown.]";
    let far = "\n[Cut: the first 1000 of 913402 bytes are shown.]";
    let huge = "\n[Cut: the first 1000 of 9999999999 bytes are shown.]";
    let fits = "\n[Cut: the first 1000 of 1050 bytes are shown.]";
    let inside_two = "\n[Cut: the first 999 of 1051 bytes are shown.]";
    let inside_four = "\n[Cut: the first 997 of more than 1000 bytes are shown.]";
    let at_the_end = format!("{}é", before(2));
    let rows = [
        whole("known_at", known(&x(LIMIT)), x(LIMIT)),
        whole("chunked_at", chunked(&x(LIMIT)), x(LIMIT)),
        whole("whole_character", known(&at_the_end), at_the_end.clone()),
        cut("known_past", known(&x(LIMIT + 1)), x(LIMIT), told, 1001),
        cut("chunked_past", chunked(&x(LIMIT + 1)), x(LIMIT), more, 1001),
        cut("far_past", known(&x(913_402)), x(LIMIT), far, 913_402),
        cut("announced", announced("9999999999"), x(LIMIT), huge, 9_999_999_999),
        cut("fits", known(&body(2, "é")), at_the_end.clone(), fits, 1050),
        cut("two_bytes", known(&two), before(1), inside_two, 1051),
        cut("four_bytes", chunked(&four), before(3), inside_four, 1001),
    ];
    let outcomes = check(rows.iter().map(Long::row).collect()).await;
    for (Long { name, kept, note, size, .. }, outcome) in rows.iter().zip(outcomes) {
        assert_eq!(outcome.model_text(), format!("{kept}{}", note.unwrap_or_default()), "{name}");
        assert_eq!(outcome.at("/truncated"), json!(note.is_some()), "{name}");
        assert_eq!(outcome.at("/result_bytes"), json!(size), "{name}");
    }
}

#[tokio::test]
async fn f074_an_empty_answer_is_a_result_of_nothing() {
    let status = |line: &str, rest: &str| format!("HTTP/1.1 {line}\r\n{rest}\r\n");
    check(vec![
        Row::giving("json", typed("application/json", ""), Value::Null),
        Row::giving("text", typed("text/plain", ""), Value::Null),
        Row::giving("created", status("201 Created", "Content-Length: 0\r\n"), Value::Null),
        Row::giving("no_content", status("204 No Content", ""), Value::Null),
    ])
    .await;
}

#[tokio::test]
async fn f075_what_is_no_json_is_text_whatever_it_says() {
    let html = "<html>sorry</html>";
    let problem = br#"{"title":"no"}"#;
    check(vec![
        Row::giving("html", typed("application/json", html), json!(html)),
        Row::giving("half", typed("application/json", r#"{"a":"#), json!(r#"{"a":"#)),
        Row::giving("problem", typed("application/problem+json", problem), json!({"title": "no"})),
        Row::giving("untyped", answer_with_headers(200, &[], r#"{"x":1}"#), json!({"x": 1})),
        Row::giving("untyped_text", answer_with_headers(200, &[], "hello"), json!("hello")),
        Row::giving("typed_text", typed("text/plain", "hello"), json!("hello")),
    ])
    .await;
}

/// An answer that was read to its end and cannot be shown.
fn unreadable(name: &str, answer: Vec<u8>, detail: &'static str) -> Row {
    let expect = move |call: Call| {
        let call = call.failed("bad_body").detail(detail).answered();
        call.http_status(200).connections(1).kept(1)
    };
    Row::answering(name, answer, expect).on_a_kept_connection()
}

#[tokio::test]
async fn f076_an_answer_is_read_in_its_own_charset_or_not_at_all() {
    let utf16: Vec<u8> = "hi".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let latin = typed("text/plain; charset=ISO-8859-1", b"caf\xe9");
    let marked = typed("application/json", b"\xef\xbb\xbf{\"x\":1}");
    check(vec![
        unreadable("bad_utf8", typed("text/plain", b"a\xff\xfe"), "utf8"),
        unreadable("bad_json", typed("application/json", b"\"\xff\""), "utf8"),
        unreadable("untyped", answer_with_headers(200, &[], b"\x00\xff"), "utf8"),
        unreadable("utf16", typed("text/plain; charset=utf-16", &utf16), "utf8"),
        unreadable("marked_utf16", typed("text/plain", b"\xff\xfeh\0i\0"), "utf8"),
        Row::giving("latin1", latin, json!("café")),
        Row::giving("bom", typed("text/plain", b"\xef\xbb\xbfhello"), json!("hello")),
        Row::giving("bom_before_json", marked, json!({"x": 1})),
    ])
    .await;
}

#[tokio::test]
async fn f077_json_bombs_are_passed_on_as_they_came() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let many = format!(r#"{{{}"a":0}}"#, r#""a":0,"#.repeat(40_000));
    let numbers = r#"{"z": 1e999, "a": 12345678901234567890.10, "a": 2, "n": -0}"#.to_owned();
    let (mut fleet, mut servers) = (Fleet::new().await, Vec::new());
    for (name, body) in [("deep", &deep), ("many", &many), ("numbers", &numbers)] {
        let script = Script::always(typed("application/json", body));
        let shape = |tool: Tool| tool.profile("bare-v1");
        let (next, server) = fleet.plain(name, script, shape).await;
        fleet = next;
        servers.push((name, server));
    }
    let gateway = fleet.config.start().await;
    let faults = servers[..2]
        .iter()
        .map(|(name, server)| Fault::of_fleet(name, server).profile("bare-v1").connections(1));
    let outcomes = prove(&gateway, faults.collect()).await;
    // Deeper than anybody reads: as text.
    assert_eq!(outcomes[0].succeeded(), json!(deep));
    // A number that no double holds cannot be read here either, so that this call is made by itself.
    let outcomes = [outcomes[1].clone(), gateway.call("numbers", json!({})).await];
    for (outcome, body) in outcomes.iter().zip([&many, &numbers]) {
        let (result, text) = (format!("\"result\":{body},"), format!("\"text\":{}", json!(body)));
        let all = outcome.0.text();
        assert!(all.contains(&result) && all.contains(&text), "{all:.1000}");
    }
    gateway.finish().await;
}

/// An answer that is ruled out by its head and not read.
fn ruled_out(name: &str, answer: impl Into<Vec<u8>>, detail: &'static str) -> Row {
    let expect = move |call: Call| {
        let call = call.failed("bad_body").detail(detail).unknown();
        call.http_status(200).connections(1)
    };
    Row::answering(name, answer, expect)
}

#[tokio::test]
async fn f078_what_cannot_be_text_is_not_shown_and_its_type_is_told() {
    let types = [
        ("image", "IMAGE/PNG; x=1", "image/png"),
        ("pdf", "application/pdf", "application/pdf"),
        ("events", "text/event-stream", "text/event-stream"),
        ("zip", "application/zip", "application/zip"),
    ];
    let mut rows: Vec<Row> = types
        .iter()
        .map(|(name, kind, _)| ruled_out(name, typed(kind, b"%PDF\x89PNG"), "media"))
        .collect();
    // Without a length and without an end: nobody waits for it.
    let endless = head(200, &[("Content-Type", "image/png")]);
    rows.push(ruled_out("endless", [endless, b"x".to_vec()].concat(), "media"));
    let outcomes = check(rows).await;
    let shown = types.iter().map(|(.., shown)| *shown).chain(["image/png"]);
    for (outcome, shown) in outcomes.iter().zip(shown) {
        let sentence = format!("The tool answered with {shown}, which cannot be shown.");
        assert_eq!(outcome.at("/error/message"), json!(sentence));
        let warning = "It may have taken effect; check before trying again.";
        assert_eq!(outcome.model_text(), format!("{sentence} {warning}"));
    }
}

#[tokio::test]
async fn f079_control_characters_stay_in_the_result_and_out_of_the_log() {
    let world = World::plain().await;
    let odd = "a\u{1b}[31m\u{202e}\u{200b}\u{7f}\u{0}b\r\n{\"stream\":\"call\"}";
    world.upstream.default(Script::always(typed("text/plain", odd)));
    let gateway = world.gateway(world.tool("odd")).await;
    let outcome = Fault::of(&world, "odd").result(json!(odd)).holds(&gateway).await;
    assert_eq!(outcome.model_text(), odd);
    let raw = outcome.0.text();
    assert!(!raw.contains(|c: char| c.is_ascii_control() && c != '\u{7f}'), "{raw:?}");
    let finished = gateway.finish().await;
    for output in [finished.stdout, finished.stderr] {
        assert!(!output.contains("[31m") && !output.contains('\u{202e}'), "{output}");
    }
}

#[tokio::test]
async fn f080_an_encoded_answer_is_not_read() {
    let encoded = |coding: &str| {
        let lines = [("Content-Type", "text/plain"), ("Content-Encoding", coding)];
        answer_with_headers(200, &lines, "\u{1f}x")
    };
    // That no coding is asked for stands in the exact bytes of every request.
    check(vec![
        ruled_out("gzip", encoded("gzip"), "encoding"),
        ruled_out("brotli", encoded("br"), "encoding"),
        ruled_out("stacked", encoded("gzip, gzip"), "encoding"),
        Row::giving("identity", encoded("identity"), json!("\u{1f}x")),
    ])
    .await;
}

/// A busy server's answers, and what a tool that may be asked again makes of them: with a wait that fits, three
/// attempts; with one that does not, one.
#[tokio::test]
async fn f084_retry_after_is_waited_for_where_it_fits_and_told_where_it_does_not() {
    let ahead = |seconds| httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(seconds));
    let rows = [
        ("second", 503, "1".to_owned(), 3, Some(1000..=1000)),
        ("second_429", 429, "1".to_owned(), 3, Some(1000..=1000)),
        ("date", 503, ahead(3), 3, Some(0..=3000)),
        ("day", 503, "86400".to_owned(), 1, Some(86_400_000..=86_400_000)),
        ("day_429", 429, "86400".to_owned(), 1, Some(86_400_000..=86_400_000)),
        ("hour", 429, ahead(3600), 1, Some(3_500_000..=3_600_000)),
        ("junk", 503, "soon".to_owned(), 3, None),
        ("exponent", 429, "1e300".to_owned(), 3, None),
    ];
    let profile = json!([eager_profile("eager-key", true)]);
    let mut fleet = Fleet::new().await.configure(|config| config.set("/profiles", profile));
    let mut servers = Vec::new();
    for (name, status, value, ..) in &rows {
        let busy = Script::always(answer_with_headers(*status, &[("Retry-After", value)], ""));
        let shape = |tool: Tool| tool.no_secret().profile("eager-key");
        let (next, server) = fleet.plain(name, busy, shape).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let faults = rows.iter().zip(&servers).map(|((name, status, _, attempts, _), server)| {
        let fault = Fault::of_fleet(name, server).profile("eager-key").failed("http_status");
        let result = if *status == 429 { "4xx" } else { "5xx" };
        fault.answered().http_status(*status).retryable().attempts(result, *attempts).kept(1)
    });
    let outcomes = prove(&gateway, faults.collect()).await;
    for ((name, .., told), outcome) in rows.iter().zip(&outcomes) {
        let found = outcome.at("/error/retry_after_ms").as_u64();
        match (told, found) {
            (None, None) => {}
            (Some(range), Some(found)) => assert!(range.contains(&found), "{name}: {found}"),
            (expected, found) => panic!("{name}: {found:?} and not {expected:?}"),
        }
    }
    gateway.finish().await;
}

/// A tool whose server gives these statuses in turn, the last for ever; and what a call comes to.
type Turns<'a> = (&'a str, &'a [u16], fn(Fault<'_>) -> Fault<'_>);

/// A secret that the scheme of `standard-webhooks` takes.
const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn check_statuses(profile: &'static str, secret: &'static str, rows: &[Turns<'_>]) {
    let (mut fleet, mut servers) = (Fleet::new().await, Vec::new());
    for (name, statuses, _) in rows {
        let said = |status: &u16| answer(*status, "application/json", "1");
        let last = Script::always(said(statuses.last().expect("a status")));
        let shape = |tool: Tool| tool.profile(profile).secret(secret);
        let (next, server) = fleet.plain(name, last, shape).await;
        let turns = Script::new();
        let turns = statuses.iter().fold(turns, |turns, status| turns.request().send(said(status)));
        server.next(turns.stall());
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let faults = rows.iter().zip(&servers).map(|((name, _, expect), server)| {
        let fault = Fault::of_fleet(name, server).profile(profile).secret(secret);
        expect(fault.kept(1).connections(1))
    });
    prove(&gateway, faults.collect()).await;
    gateway.finish().await;
}

/// The server is asked so often, and its status is what is told.
fn asked(times: usize, status: u16, fault: Fault<'_>) -> Fault<'_> {
    let result = if status < 500 { "4xx" } else { "5xx" };
    fault.failed("http_status").answered().http_status(status).attempts(result, times)
}

#[tokio::test]
async fn f085_f086_a_5xx_is_asked_three_times_with_one_key_and_fresh_signatures() {
    // That key and body stay, and that each `t` is signed anew, is part of what each request is held against.
    let rows: [Turns<'_>; 2] = [
        ("recovers", &[500, 500, 200], |fault| fault.attempts("5xx", 2).attempts("2xx", 1)),
        ("stays", &[500, 500, 500, 500], |fault| asked(3, 500, fault).retryable()),
    ];
    check_statuses("bare-v1", SECRET, &rows).await;
}

#[tokio::test]
async fn f087_each_profile_repeats_the_statuses_that_it_wants() {
    let bare: [Turns<'_>; 5] = [
        ("s408", &[408, 408], |fault| asked(1, 408, fault).retryable()),
        ("s409", &[409, 409], |fault| asked(1, 409, fault)),
        ("s425", &[425, 425], |fault| asked(1, 425, fault).retryable()),
        ("s501", &[501, 501, 501, 501], |fault| asked(3, 501, fault).retryable()),
        ("s505", &[505, 505, 505, 505], |fault| asked(3, 505, fault).retryable()),
    ];
    check_statuses("bare-v1", SECRET, &bare).await;
    let webhooks: [Turns<'_>; 5] = [
        ("s408", &[408, 408, 408, 408], |fault| asked(3, 408, fault)),
        ("s409", &[409, 409], |fault| asked(1, 409, fault)),
        ("s425", &[425, 200], |fault| fault.attempts("4xx", 1).attempts("2xx", 1)),
        ("s501", &[501, 501], |fault| asked(1, 501, fault)),
        ("s505", &[505, 505], |fault| asked(1, 505, fault)),
    ];
    check_statuses("standard-webhooks", WEBHOOK_SECRET, &webhooks).await;
}
