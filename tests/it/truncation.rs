//! Long answers: cut one byte past the limit, on a character's edge, with a note, and never drained.

use serde_json::{Value, json};

use crate::support::config::Tool;
use crate::support::fleet::Fleet;
use crate::support::script::{Script, answer, head};
use crate::support::wait::together;
use crate::support::world::World;

/// The limit of the tools below.
const LIMIT: usize = 1000;

struct Case {
    name: &'static str,
    script: Script,
    /// What is kept.
    kept: String,
    /// The rest of the model's text; none where nothing was cut.
    note: Option<&'static str>,
    result_bytes: usize,
}

fn known(body: &str) -> Script {
    Script::new().request().send(answer(200, "text/plain", body)).stall()
}

/// Without Content-Length, in one chunk.
fn chunked(body: &str) -> Script {
    let lines = [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")];
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    Script::new().request().send([head(200, &lines), chunks.into_bytes()].concat()).stall()
}

/// A head that announces so much, of which a little more than the limit ever comes.
fn announced(length: &str) -> Script {
    let lines = [("Content-Type", "text/plain"), ("Content-Length", length)];
    Script::new().request().send(head(200, &lines)).send("x".repeat(LIMIT + 10)).stall()
}

async fn check(cases: Vec<Case>) {
    let mut fleet = Fleet::new().await;
    let mut servers = Vec::new();
    for case in &cases {
        let shape = |tool: Tool| tool.set("result_max_bytes", json!(LIMIT));
        let (next, server) = fleet.plain(case.name, case.script.clone(), shape).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let outcomes = together(cases.iter().map(|case| gateway.call(case.name, json!({})))).await;
    let metrics = gateway.metrics().await;
    for ((case, outcome), server) in cases.iter().zip(&outcomes).zip(&servers) {
        let name = case.name;
        assert_eq!(outcome.succeeded(), json!(case.kept), "{name}");
        let text = format!("{}{}", case.kept, case.note.unwrap_or_default());
        assert_eq!(outcome.model_text(), text, "{name}");
        let cut = case.note.is_some();
        assert_eq!(outcome.at("/truncated"), json!(cut), "{name}");
        assert_eq!(outcome.at("/result_bytes"), json!(case.result_bytes), "{name}");
        let counted = metrics.value("sortie_responses_truncated_total", &[("tool", name)]);
        assert_eq!(counted, f64::from(u8::from(cut)), "{name}");
        let line = gateway.call_line(&outcome.id()).await;
        assert_eq!((&line["truncated"], &line["bytes"]), (&json!(cut), &json!(case.result_bytes)));
        assert_eq!(server.requests().len(), 1, "{name}");
        // What was cut is closed at once; what was whole is kept.
        if cut {
            server.wait_until_closed(1).await;
        } else {
            assert!(server.connections()[0].open, "{name}");
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn an_answer_is_cut_only_past_the_limit() {
    let x = |count| "x".repeat(count);
    check(vec![
        Case {
            name: "known_at",
            script: known(&x(LIMIT)),
            kept: x(LIMIT),
            note: None,
            result_bytes: 1000,
        },
        Case {
            name: "chunked_at",
            script: chunked(&x(LIMIT)),
            kept: x(LIMIT),
            note: None,
            result_bytes: 1000,
        },
        Case {
            name: "known_past",
            script: known(&x(LIMIT + 1)),
            kept: x(LIMIT),
            note: Some("\n[Cut: the first 1000 of 1001 bytes are shown.]"),
            result_bytes: 1001,
        },
        Case {
            name: "chunked_past",
            script: chunked(&x(LIMIT + 1)),
            kept: x(LIMIT),
            note: Some("\n[Cut: the first 1000 of more than 1000 bytes are shown.]"),
            result_bytes: 1001,
        },
        Case {
            name: "far_past",
            script: known(&x(913_402)),
            kept: x(LIMIT),
            note: Some("\n[Cut: the first 1000 of 913402 bytes are shown.]"),
            result_bytes: 913_402,
        },
        Case {
            name: "announced",
            script: announced("9999999999"),
            kept: x(LIMIT),
            note: Some("\n[Cut: the first 1000 of 9999999999 bytes are shown.]"),
            result_bytes: 9_999_999_999,
        },
    ])
    .await;
}

#[tokio::test]
async fn the_kept_part_ends_on_the_edge_of_a_character() {
    let before = |count| "x".repeat(LIMIT - count);
    let body = |count, character: &str| format!("{}{character}{}", before(count), "y".repeat(50));
    check(vec![
        Case {
            name: "fits",
            script: known(&body(2, "é")),
            kept: format!("{}é", before(2)),
            note: Some("\n[Cut: the first 1000 of 1050 bytes are shown.]"),
            result_bytes: 1050,
        },
        Case {
            name: "two_bytes",
            script: known(&body(1, "é")),
            kept: before(1),
            note: Some("\n[Cut: the first 999 of 1051 bytes are shown.]"),
            result_bytes: 1051,
        },
        Case {
            name: "four_bytes",
            script: chunked(&body(3, "😀")),
            kept: before(3),
            note: Some("\n[Cut: the first 997 of more than 1000 bytes are shown.]"),
            result_bytes: 1001,
        },
        Case {
            name: "whole_character_at_the_end",
            script: known(&format!("{}é", before(2))),
            kept: format!("{}é", before(2)),
            note: None,
            result_bytes: 1000,
        },
    ])
    .await;
}

#[tokio::test]
async fn a_cut_json_answer_is_text() {
    let world = World::tls().await;
    let body = json!({"long": "x".repeat(40_000)}).to_string();
    world.upstream.default(Script::always(answer(200, "application/json", &body)));
    let gateway = world.gateway(world.tool("json")).await;
    let outcome = gateway.call("json", json!({})).await;
    // The default profile's limit.
    assert_eq!(outcome.succeeded(), json!(body[..32_768]));
    let note = format!("\n[Cut: the first 32768 of {} bytes are shown.]", body.len());
    assert_eq!(outcome.model_text(), format!("{}{note}", &body[..32_768]));
    gateway.finish().await;
}

#[tokio::test]
async fn bare_v1_shows_262144_bytes_and_no_more() {
    let world = World::tls().await;
    let tools = [("at", 262_144), ("past", 262_145)];
    world.upstream.default(Script::responding(|request| {
        let count = if request.line().contains("/at ") { 262_144 } else { 262_145 };
        answer(200, "text/plain", "x".repeat(count))
    }));
    let mut config = world.config();
    for (name, _) in tools {
        config = config.tool(world.tool(name).profile("bare-v1"));
    }
    let gateway = config.start().await;
    for (name, bytes) in tools {
        let outcome = gateway.call(name, json!({})).await;
        assert_eq!(outcome.succeeded().as_str().map(str::len), Some(262_144), "{name}");
        assert_eq!(outcome.at("/truncated"), json!(bytes > 262_144), "{name}");
        assert_eq!(outcome.at("/result_bytes"), json!(bytes), "{name}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn an_endless_body_at_full_speed_is_cut_and_left() {
    let world = World::tls().await;
    let endless = Script::new()
        .request()
        .send(head(200, &[("Content-Type", "text/plain")]))
        .flood("z".repeat(16 * 1024));
    world.upstream.next(endless).default(Script::always(answer(200, "text/plain", "next")));
    let gateway = world.gateway(world.tool("endless")).await;
    let outcome = gateway.call("endless", json!({})).await;
    assert_eq!(outcome.succeeded().as_str().map(str::len), Some(32_768));
    assert_eq!(outcome.at("/truncated"), json!(true));
    let note = "\n[Cut: the first 32768 of more than 32768 bytes are shown.]";
    assert!(outcome.model_text().ends_with(note), "{}", outcome.model_text());
    let connection = world.upstream.wait_for_close(0).await;
    // What lay in the buffers of two kernels, not what a server can send in the meantime.
    assert!(connection.sent < 16 << 20, "{} bytes were taken", connection.sent);
    let next: Value = gateway.call("endless", json!({})).await.succeeded();
    assert_eq!(next, "next");
    assert_eq!(world.upstream.connections().len(), 2);
    gateway.finish().await;
}
