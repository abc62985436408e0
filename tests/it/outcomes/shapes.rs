//! The outcome and the log line, to the last key and in the contract's order.

use serde_json::json;

use crate::outcomes::steady;
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// A gateway with one tool that has everything which an outcome shows.
async fn shown(world: &World) -> Gateway {
    let tool = world
        .tool("scans.get")
        .profile("bare-v1")
        .parameters(json!({
            "type": "object",
            "properties": {"scanId": {"type": "string", "pattern": r"^RX-\d{4,}$"}},
            "required": ["scanId"],
        }))
        .set("owner", json!("clinic"))
        .set("filler", json!("Let me check that for you."))
        .set("policy", json!({"effect": "allow", "shadow": {"effect": "require_approval"}}));
    world.config().tool(tool).set("/region", json!("eu-1")).start().await
}

fn call(scan: &str) -> serde_json::Value {
    json!({
        "tool": "scans.get", "arguments": {"scanId": scan}, "run_id": "run_7Hq2xV", "step": "3",
        "call_id": "call_8f2c", "agent_id": "agent-1", "session_id": "session-2", "turn_id": "turn-3",
        "end_user": {"id": "eu_4", "external_id": "cust-77"}, "model_call_id": "toolu_5",
        "round": 1, "turn_index": 12, "wait_ms": 30000, "deadline_ms": 60000,
    })
}

#[tokio::test]
async fn a_success_has_every_key_in_order() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", r#"{ "n": 1e2 }"#)));
    let gateway = shown(&world).await;
    let outcome = gateway.call_with(call("RX-4471")).await;
    assert_eq!(outcome.0.header("content-type"), Some("application/json"));
    assert_eq!(
        steady(&outcome.0.text()),
        concat!(
            r#"{"id":"call_8f2c","status":"succeeded","tool":"scans.get","tool_id":"TOOL_ID","#,
            r#""tool_version":1,"kind":"webhook","decision":{"effect":"allow","policy":"tool","#,
            r#""rule":null,"shadow":[{"policy":"candidate","effect":"require_approval","rule":null}]},"#,
            r#""approval":null,"filler":"Let me check that for you.","#,
            r#""result":{ "n": 1e2 },"truncated":false,"result_bytes":12,"error":null,"#,
            r#""model":{"text":"{ \"n\": 1e2 }","is_error":false,"reply_stands":false},"#,
            r#""attempts":[{"n":1,"at":"TIME","duration_ms":0,"status":200,"error":null}],"#,
            r#""idempotency_key":"dcecefd7bc74085436b9067e030349d2","trace_id":null,"#,
            r#""replayed":false,"test":false,"duration_ms":0,"created_at":"TIME","#,
            r#""started_at":"TIME","finished_at":"TIME"}"#,
        )
    );
    assert_eq!(
        steady(&gateway.call_text("call_8f2c").await),
        concat!(
            r#"{"stream":"call","ts":"TIME","call_id":"call_8f2c","trace_id":null,"#,
            r#""organisation":"default","key":"test-runtime","agent_id":"agent-1","#,
            r#""session_id":"session-2","run_id":"run_7Hq2xV","end_user_id":"eu_4","#,
            r#""tool":"scans.get","owner":"clinic","version":1,"status":"succeeded","code":"ok","#,
            r#""outcome":null,"attempts":1,"duration_ms":0,"bytes":12,"truncated":false,"#,
            r#""replayed":false,"shadow":"require_approval","region":"eu-1"}"#,
        )
    );
    gateway.finish().await;
}

#[tokio::test]
async fn a_failure_has_every_key_in_order() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(404, "text/plain", "no such scan")));
    let gateway = shown(&world).await;
    let outcome = gateway.call_with(call("RX-4471")).await;
    assert_eq!(
        steady(&outcome.0.text()),
        concat!(
            r#"{"id":"call_8f2c","status":"failed","tool":"scans.get","tool_id":"TOOL_ID","#,
            r#""tool_version":1,"kind":"webhook","decision":{"effect":"allow","policy":"tool","#,
            r#""rule":null,"shadow":[{"policy":"candidate","effect":"require_approval","rule":null}]},"#,
            r#""approval":null,"filler":"Let me check that for you.","#,
            r#""result":null,"truncated":false,"result_bytes":0,"#,
            r#""error":{"code":"http_status","detail":null,"#,
            r#""message":"The tool answered with status 404.","outcome":"answered","status":404,"#,
            r#""retryable":false,"retry_after_ms":null,"details":[]},"#,
            r#""model":{"text":"The tool answered with status 404.\nno such scan","#,
            r#""is_error":true,"reply_stands":false},"attempts":[{"n":1,"at":"TIME","#,
            r#""duration_ms":0,"status":404,"error":{"code":"http_status","detail":null}}],"#,
            r#""idempotency_key":"dcecefd7bc74085436b9067e030349d2","trace_id":null,"#,
            r#""replayed":false,"test":false,"duration_ms":0,"created_at":"TIME","#,
            r#""started_at":"TIME","finished_at":"TIME"}"#,
        )
    );
    gateway.finish().await;
}

#[tokio::test]
async fn a_refusal_has_every_key_in_order() {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = shown(&world).await;
    let outcome = gateway.call_with(call("RX-447")).await;
    assert_eq!(
        steady(&outcome.0.text()),
        concat!(
            r#"{"id":"call_8f2c","status":"refused","tool":"scans.get","tool_id":"TOOL_ID","#,
            r#""tool_version":1,"kind":"webhook","decision":null,"approval":null,"#,
            r#""filler":"Let me check that for you.","result":null,"truncated":false,"#,
            r#""result_bytes":0,"error":{"code":"invalid_arguments","detail":null,"#,
            r#""message":"The arguments do not fit the tool: /scanId must match ^RX-\\d{4,}$.","#,
            r#""outcome":"not_sent","status":null,"retryable":false,"retry_after_ms":null,"#,
            r#""details":[{"pointer":"/scanId","keyword":"pattern","#,
            r#""message":"must match ^RX-\\d{4,}$"}]},"#,
            r#""model":{"text":"The arguments do not fit the tool: /scanId must match ^RX-\\d{4,}$.","#,
            r#""is_error":true,"reply_stands":false},"attempts":[],"idempotency_key":null,"#,
            r#""trace_id":null,"replayed":false,"test":false,"duration_ms":0,"#,
            r#""created_at":"TIME","started_at":null,"finished_at":"TIME"}"#,
        )
    );
    assert_eq!(
        steady(&gateway.call_text("call_8f2c").await),
        concat!(
            r#"{"stream":"call","ts":"TIME","call_id":"call_8f2c","trace_id":null,"#,
            r#""organisation":"default","key":"test-runtime","agent_id":"agent-1","#,
            r#""session_id":"session-2","run_id":"run_7Hq2xV","end_user_id":"eu_4","#,
            r#""tool":"scans.get","owner":"clinic","version":1,"status":"refused","#,
            r#""code":"invalid_arguments","outcome":"not_sent","attempts":0,"duration_ms":0,"#,
            r#""bytes":0,"truncated":false,"replayed":false,"shadow":null,"region":"eu-1"}"#,
        )
    );
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn an_unknown_tool_has_every_key_too() {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = shown(&world).await;
    let call = json!({"tool": "a \"b\"", "arguments": {}, "call_id": "call_9000"});
    let outcome = gateway.call_with(call).await;
    assert_eq!(
        steady(&outcome.0.text()),
        concat!(
            r#"{"id":"call_9000","status":"refused","tool":"a \"b\"","tool_id":null,"#,
            r#""tool_version":null,"kind":null,"decision":null,"approval":null,"filler":null,"#,
            r#""result":null,"truncated":false,"result_bytes":0,"#,
            r#""error":{"code":"unknown_tool","detail":null,"#,
            r#""message":"There is no tool named \"a \"b\"\".","outcome":"not_sent","#,
            r#""status":null,"retryable":false,"retry_after_ms":null,"details":[]},"#,
            r#""model":{"text":"There is no tool named \"a \"b\"\".","#,
            r#""is_error":true,"reply_stands":false},"attempts":[],"idempotency_key":null,"#,
            r#""trace_id":null,"replayed":false,"test":false,"duration_ms":0,"#,
            r#""created_at":"TIME","started_at":null,"finished_at":"TIME"}"#,
        )
    );
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn results_are_json_text_or_null() {
    let world = World::plain().await;
    world.upstream.default(Script::responding(|request| {
        let wanted = request.json();
        let text = |name: &str| wanted[name].as_str().expect("a text").to_owned();
        answer(200, &text("type"), text("body"))
    }));
    let gateway = world.gateway(world.tool("echo").profile("plain-v1").no_secret()).await;
    for (kind, body, result, text) in [
        ("application/json", r#"{"x":1}"#, json!({"x": 1}), r#"{"x":1}"#),
        ("application/problem+json", "[1]", json!([1]), "[1]"),
        ("application/json", "null", json!(null), "null"),
        ("application/json", "not json", json!("not json"), "not json"),
        ("text/plain", "hello", json!("hello"), "hello"),
        ("text/plain; charset=utf-8", r#"{"x":1}"#, json!(r#"{"x":1}"#), r#"{"x":1}"#),
        ("text/html", "<p>Zoë</p>", json!("<p>Zoë</p>"), "<p>Zoë</p>"),
        ("application/json", "", json!(null), "The tool answered with an empty body."),
    ] {
        let outcome = gateway.call("echo", json!({"type": kind, "body": body})).await;
        assert_eq!(outcome.succeeded(), result, "{kind} {body}");
        assert_eq!(outcome.model_text(), text, "{kind} {body}");
        assert_eq!(outcome.at("/result_bytes"), body.len(), "{kind} {body}");
        assert_eq!(outcome.at("/truncated"), false);
    }
    gateway.finish().await;
}
