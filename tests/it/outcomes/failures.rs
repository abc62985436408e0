//! Each failure with its text and what may have happened at the tool.

use std::time::Duration;

use serde_json::{Value, json};

use crate::outcomes::{Expected, FAILED, check};
use crate::support::config::Tool;
use crate::support::deaf::Vacant;
use crate::support::dns::Answer;
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::wait::Signal;
use crate::support::world::World;

const UNSURE: &str = "It may have taken effect; check before trying again.";

fn call(tool: &str) -> Value {
    json!({"tool": tool, "arguments": {}})
}

/// A gateway with the one-attempt tool `x`.
async fn one_tool(world: &World) -> Gateway {
    world.gateway(world.tool("x").set("timeout", json!("1s"))).await
}

#[tokio::test]
async fn a_status_is_a_failure_unless_it_is_2xx() {
    let world = World::plain().await;
    let gateway = one_tool(&world).await;
    for (status, code, text, retryable) in [
        (300, "redirect", "The tool answered with a redirect, which is not followed.", false),
        (302, "redirect", "The tool answered with a redirect, which is not followed.", false),
        (308, "redirect", "The tool answered with a redirect, which is not followed.", false),
        (304, "http_status", "The tool answered with status 304.", false),
        (400, "http_status", "The tool answered with status 400.", false),
        (404, "http_status", "The tool answered with status 404.", false),
        (500, "http_status", "The tool answered with status 500.", false),
        (503, "http_status", "The tool answered with status 503.", false),
    ] {
        let headers = [("Location", "https://elsewhere.example/"), ("Content-Type", "text/plain")];
        world.upstream.next(Script::once(answer_with_headers(status, &headers, "")));
        let http_status = Some(status);
        let expected = Expected { code, text, retryable, http_status, ..FAILED };
        check(&gateway, call("x"), &expected).await;
    }
    assert_eq!(gateway.metrics().await.value("sortie_redirects_refused_total", &[]), 3.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_body_that_cannot_be_read_fails_with_its_reason() {
    let world = World::plain().await;
    let gateway = one_tool(&world).await;
    let unread = "The tool's answer could not be read.";
    let unsure =
        "The tool's answer could not be read. It may have taken effect; check before trying again.";
    let image = "The tool answered with image/png, which cannot be shown. It may have taken effect; check before trying again.";
    let gzip = [("Content-Type", "text/plain"), ("Content-Encoding", "gzip")];
    let chunked = head(200, &[("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")]);
    let broken = [&chunked[..], b"5\r\nhello\r\nzz\r\n"].concat();
    let two = head(200, &[("Content-Length", "1"), ("Transfer-Encoding", "chunked")]);
    let (ok, none) = (Some(200), None);
    for (bytes, detail, outcome, text, http_status) in [
        (answer(200, "text/plain", b"\xff\xfe"), "utf8", "answered", unread, ok),
        (answer(200, "image/png", "png"), "media", "unknown", image, ok),
        (answer_with_headers(200, &gzip, "x"), "encoding", "unknown", unsure, ok),
        (broken, "framing", "unknown", unsure, ok),
        (two, "framing", "unknown", unsure, none),
        (b"no http at all\r\n\r\n".to_vec(), "head", "unknown", unsure, none),
    ] {
        world.upstream.next(Script::once(bytes));
        let detail = Some(detail);
        let expected = Expected { code: "bad_body", detail, outcome, text, http_status, ..FAILED };
        check(&gateway, call("x"), &expected).await;
    }
    gateway.finish().await;
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_timeout() {
    let world = World::plain().await;
    let gateway = one_tool(&world).await;
    let late =
        "The tool did not answer within 1 s. It may have taken effect; check before trying again.";
    assert!(late.ends_with(UNSURE));
    let begun = head(200, &[("Content-Type", "text/plain"), ("Content-Length", "9")]);
    for (script, detail, http_status) in [
        (Script::new().request().stall(), "first_byte", None),
        (Script::new().request().send(begun).send("half").stall(), "body", Some(200)),
    ] {
        world.upstream.next(script);
        let (detail, code, text) = (Some(detail), "timeout", late);
        let expected = Expected { code, detail, text, http_status, outcome: "unknown", ..FAILED };
        let outcome = check(&gateway, call("x"), &expected).await;
        // S1-034: after 1.0 s, and not much later.
        let took = outcome.at("/attempts/0/duration_ms").as_u64().expect("a number");
        assert!((1000..2000).contains(&took), "{took}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_name_that_is_looked_up_in_vain_has_sent_nothing() {
    let world = World::plain().await;
    world.dns.set("nowhere.example.com", &["NXDOMAIN"]);
    let held = Signal::new();
    world.dns.script("slow.example.com", vec![Answer::lines(&["A 10.0.0.5"]).held(&held)]);
    let slow = Tool::new("slow", "https://slow.example.com/").set("timeout", json!("1s"));
    let gateway = world
        .config()
        .tool(Tool::new("nowhere", "https://nowhere.example.com/"))
        .tool(slow)
        .set("/dns/timeout", json!("5s"))
        .start()
        .await;
    let expected = Expected {
        tool: "nowhere",
        code: "network_error",
        detail: Some("dns"),
        outcome: "not_sent",
        text: "The tool's server could not be reached.",
        retryable: true,
        ..FAILED
    };
    check(&gateway, call("nowhere"), &expected).await;
    let text = "The tool did not answer within 1 s.";
    let expected = Expected { tool: "slow", code: "timeout", text, ..expected };
    check(&gateway, call("slow"), &expected).await;
    held.fire();
    gateway.finish().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_or_not_itself_has_been_sent_nothing() {
    let world = World::tls().await;
    world.dns.set("wrong.example.com", &["A 127.0.0.1"]);
    let vacant = Vacant::take();
    let dead = vacant.port();
    let port = world.upstream.port();
    let exception = |host: &str, port: u16| {
        json!({
            "tools": ["*"], "hosts": [host], "cidrs": ["127.0.0.1/32"], "ports": [port.to_string()],
            "reason": "a test", "owner": "tests",
        })
    };
    let gateway = world
        .config()
        .exception(exception("wrong.example.com", dead))
        .exception(exception("wrong.example.com", port))
        .tool(Tool::new("dead", &format!("https://wrong.example.com:{dead}/")))
        .tool(Tool::new("wrong", &format!("https://wrong.example.com:{port}/")))
        .start()
        .await;
    world.upstream.default(Script::new());
    let text = "The tool's server could not be reached.";
    for (tool, detail, retryable) in [("dead", "connect", true), ("wrong", "tls", false)] {
        let detail = Some(detail);
        let (code, outcome) = ("network_error", "not_sent");
        let expected = Expected { tool, code, detail, outcome, text, retryable, ..FAILED };
        check(&gateway, call(tool), &expected).await;
    }
    assert!(world.upstream.requests().is_empty());
    gateway.finish().await;
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_it_open_what_happened() {
    let world = World::plain().await;
    let tool = |name: &str| world.tool(name);
    let gateway = world
        .config()
        .tool(tool("x"))
        .tool(tool("reads").set("annotations", json!({"read_only": true})))
        .tool(tool("repeats").set("annotations", json!({"idempotent": true})))
        .start()
        .await;
    let unsure = "The tool's server could not be reached. It may have taken effect; check before trying again.";
    let sure = "The tool's server could not be reached.";
    for (tool, script, detail, text, retryable) in [
        ("x", Script::new().request().reset(), "reset", unsure, false),
        ("x", Script::new().request(), "closed", unsure, false),
        // A tool that only reads has no effect, and one that may be repeated may be called again.
        ("reads", Script::new().request().reset(), "reset", sure, false),
        ("repeats", Script::new().request().reset(), "reset", unsure, true),
    ] {
        world.upstream.next(script);
        let (detail, outcome, code) = (Some(detail), "unknown", "network_error");
        let expected = Expected { tool, code, detail, outcome, text, retryable, ..FAILED };
        check(&gateway, call(tool), &expected).await;
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_tool_without_its_secret_is_not_configured() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let gateway = world
        .config()
        .tool(world.tool("lost"))
        .tool(world.tool("bare").header("Authorization", "Bearer ", "tool-token-Yk3Zr8"))
        .tool(world.tool("fine"))
        .set("/tools/0/secret", json!({"current": {"file": "secrets/nowhere"}}))
        .set("/tools/1/headers/Authorization", json!({"env": "SORTIE_TEST_NOT_SET"}))
        .start()
        .await;
    for tool in ["lost", "bare"] {
        let expected = Expected {
            tool,
            code: "not_configured",
            outcome: "not_sent",
            fault: "gateway",
            text: "The tool is not configured: a secret of it is missing.",
            ..FAILED
        };
        check(&gateway, call(tool), &expected).await;
    }
    assert!(world.upstream.requests().is_empty());
    // The others work.
    gateway.call("fine", json!({})).await.succeeded();
    let warned =
        gateway.log_lines().iter().any(|line| line.to_string().contains("secrets/nowhere"));
    assert!(warned, "the operator is told");
    gateway.finish().await;
}

#[tokio::test]
async fn a_deadline_bounds_the_whole_call() {
    let world = World::plain().await;
    world.upstream.next(Script::new().request().stall());
    let gateway = world.gateway(world.tool("x")).await;
    let text = "The tool did not answer within 0.3 s. It may have taken effect; check before trying again.";
    let expected = Expected {
        code: "timeout",
        detail: Some("first_byte"),
        outcome: "unknown",
        text,
        ..FAILED
    };
    let body = json!({"tool": "x", "arguments": {}, "deadline_ms": 300});
    let outcome = check(&gateway, body, &expected).await;
    let took = Duration::from_millis(outcome.at("/duration_ms").as_u64().expect("a number"));
    assert!((300..2000).contains(&took.as_millis()), "{took:?}");
    gateway.finish().await;
}
