//! What a call with several attempts tells, and what the tool's own words may add.

use serde_json::json;

use crate::outcomes::{Expected, FAILED, check};
use crate::support::script::{Script, answer, answer_with_headers};
use crate::support::world::World;

#[tokio::test]
async fn each_attempt_is_told_and_the_last_one_decides() {
    let world = World::plain().await;
    world
        .upstream
        .next(Script::once(answer(503, "text/plain", "later")))
        .next(Script::new().request().reset())
        .next(Script::once(answer(200, "application/json", "7")));
    let gateway = world.gateway(world.tool("x").profile("bare-v1")).await;
    let outcome = gateway.call("x", json!({})).await;
    assert_eq!(outcome.succeeded(), json!(7));
    let attempts = outcome.at("/attempts");
    let told: Vec<_> = attempts
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| json!([one["n"], one["status"], one["error"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!([1, 503, {"code": "http_status", "detail": null}]),
            json!([2, null, {"code": "network_error", "detail": "reset"}]),
            json!([3, 200, null]),
        ]
    );
    let metrics = gateway.metrics().await;
    let count = |name: &str, label: (&str, &str)| metrics.value(name, &[("tool", "x"), label]);
    for result in ["2xx", "5xx", "reset"] {
        assert_eq!(count("sortie_attempts_total", ("result", result)), 1.0, "{result}");
    }
    for reason in ["5xx", "reset"] {
        assert_eq!(count("sortie_retries_total", ("reason", reason)), 1.0, "{reason}");
    }
    assert_eq!(metrics.value("sortie_calls_total", &[("tool", "x"), ("code", "ok")]), 1.0);
    assert_eq!(metrics.value("sortie_calls_total", &[]), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_tool_may_say_what_was_wrong_where_the_profile_lets_it() {
    let world = World::plain().await;
    let gateway = world
        .config()
        .tool(world.tool("x").profile("plain-v1").no_secret())
        .tool(world.tool("quiet"))
        .start()
        .await;
    let long = "é".repeat(2000);
    for (tool, status, kind, body, text) in [
        (
            "x",
            422,
            "application/json",
            r#"{"error":"no such order"}"#,
            "The tool answered with status 422.\n{\"error\":\"no such order\"}",
        ),
        (
            "x",
            404,
            "text/plain",
            "a\u{1b}[31m\r\nb",
            "The tool answered with status 404.\na[31m\nb",
        ),
        ("x", 400, "image/png", "png", "The tool answered with status 400."),
        ("x", 500, "text/plain", "stack trace", "The tool answered with status 500."),
        (
            "x",
            302,
            "text/plain",
            "elsewhere",
            "The tool answered with a redirect, which is not followed.",
        ),
        ("quiet", 422, "text/plain", "no such order", "The tool answered with status 422."),
    ] {
        world.upstream.next(Script::once(answer(status, kind, body)));
        let outcome = gateway.call(tool, json!({})).await;
        assert_eq!(outcome.model_text(), text, "{tool} {status}");
        let message = text.lines().next().expect("a line");
        assert_eq!(outcome.at("/error/message"), message, "{tool} {status}");
    }
    world.upstream.next(Script::once(answer(400, "text/plain", &long)));
    let text = gateway.call("x", json!({})).await.model_text();
    let said = text.strip_prefix("The tool answered with status 400.\n").expect("the sentence");
    assert_eq!(said, "é".repeat(1024), "2 KiB, whole characters");
    gateway.finish().await;
}

#[tokio::test]
async fn a_pause_that_a_tool_asks_for_is_passed_on() {
    let world = World::plain().await;
    let gateway = world.gateway(world.tool("x")).await;
    let busy = [("Retry-After", "7"), ("Content-Type", "text/plain")];
    world.upstream.next(Script::once(answer_with_headers(429, &busy, "busy")));
    let text = "The tool answered with status 429.";
    let expected = Expected { text, http_status: Some(429), ..FAILED };
    let outcome = check(&gateway, json!({"tool": "x", "arguments": {}}), &expected).await;
    assert_eq!(outcome.at("/error/retry_after_ms"), 7000);
    gateway.finish().await;
}
