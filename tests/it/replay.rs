//! The same call asked for again: it is joined, told again, or refused, and never sent twice unless that is asked for.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::config::{API_KEY, Tool};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::request;
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll, together};
use crate::support::world::World;

fn step(step: &str, arguments: Value) -> Value {
    json!({"tool": "refund", "arguments": arguments, "run_id": "run_1", "step": step})
}

async fn with(change: impl Fn(Tool) -> Tool) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", r#"{"paid":true}"#)));
    let tool = change(world.tool("refund").set("policy", json!("allow")));
    let config = world.config().tool(tool).tool(world.tool("other"));
    let gateway = config.set("/storage", json!({"url": "sqlite:calls.db"})).start().await;
    (world, gateway)
}

#[track_caller]
fn conflicts(outcome: &Outcome) -> String {
    let found = (outcome.0.status, outcome.at("/error/code"));
    assert_eq!(found, (409, json!("idempotency_conflict")), "{}", outcome.0.text());
    outcome.at("/error/message").as_str().expect("a text").to_owned()
}

/// Requirement S1-041. Faults 131 and 133.
#[tokio::test]
async fn a_step_is_told_again_and_is_no_other_call_s() {
    let (world, mut gateway) = with(|tool| tool).await;
    let first = gateway.call_with(step("3", json!({"a": 1, "b": [2]}))).await;
    first.succeeded();
    for restart in [false, true] {
        if restart {
            // What is answered is kept a moment later.
            poll("the record to be kept", || async {
                let kept = [("result", "written")];
                let metrics = gateway.metrics().await;
                (metrics.value("sortie_call_records_total", &kept) >= 1.0).then_some(())
            })
            .await;
            gateway.kill_and_start().await;
        }
        let again = gateway.call_with(step("3", json!({"b": [2], "a": 1}))).await;
        assert_eq!(again.succeeded(), json!({"paid": true}));
        assert_eq!((again.at("/replayed"), again.id()), (json!(true), first.id()));
        let other_arguments = gateway.call_with(step("3", json!({"a": 2}))).await;
        assert_eq!(
            conflicts(&other_arguments),
            "Step 3 of run_1 already ran another call; give each call of a step its own call_index."
        );
        let mut other_tool = step("3", json!({"a": 1, "b": [2]}));
        other_tool["tool"] = json!("other");
        conflicts(&gateway.call_with(other_tool).await);
        let by_id =
            json!({"tool": "refund", "arguments": {"a": 1, "b": [2]}, "call_id": first.id()});
        assert_eq!(gateway.call_with(by_id).await.at("/replayed"), json!(true));
        let other_id = json!({"tool": "refund", "arguments": {}, "call_id": first.id()});
        assert!(conflicts(&gateway.call_with(other_id).await).contains("call_id"));
    }
    assert_eq!(world.upstream.requests().len(), 1);
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_idempotent_replays_total", &[("tool", "refund")]), 2.0);
    gateway.finish().await;
}

/// Faults 132.
#[tokio::test]
async fn who_asks_while_it_runs_joins_it() {
    let (world, gateway) = with(|tool| tool).await;
    let go = Signal::new();
    let body = answer(200, "application/json", "1");
    world.upstream.next(Script::new().request().wait(&go).send(body));
    let asked = (0..10).map(|_| gateway.call_with(step("3", json!({}))));
    let (outcomes, ()) = tokio::join!(together(asked), async {
        world.upstream.wait_for_requests(1).await;
        conflicts(&gateway.call_with(step("3", json!({"a": 1}))).await);
        go.fire();
    });
    let fresh = outcomes.iter().filter(|one| one.at("/replayed") == json!(false)).count();
    assert_eq!(fresh, 1);
    for outcome in &outcomes {
        outcome.succeeded();
        assert_eq!(outcome.id(), outcomes[0].id());
    }
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn what_was_refused_or_not_sent_binds_nothing() {
    let (world, gateway) = with(|tool| {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        tool.parameters(schema)
            .set("rate_limits", json!([{"per": "tool", "rate": "1/min", "burst": 1}]))
    })
    .await;
    gateway.call_with(step("1", json!({"a": "x"}))).await.refused("invalid_arguments", None);
    let ran = gateway.call_with(step("1", json!({"a": 1}))).await;
    ran.succeeded();
    let limited = gateway.call_with(step("2", json!({"a": 1}))).await;
    limited.refused("rate_limited", None);
    // Its own id again, and other arguments: it is nobody's.
    let mut other = step("2", json!({"a": 2}));
    other["call_id"] = json!(limited.id());
    gateway.call_with(other).await.refused("rate_limited", None);
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;

    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    world.upstream.default(Script::new().reset());
    let nobody = format!("https://tool.example.com:{}/", world.upstream.port());
    let gateway = world.config().tool(world.tool("refund").set("url", json!(nobody))).start().await;
    let failed = gateway.call_with(step("1", json!({}))).await;
    assert_eq!(failed.at("/error/outcome"), json!("not_sent"), "{}", failed.0.text());
    let again = gateway.call_with(step("1", json!({"other": 1}))).await;
    assert_eq!(
        (again.at("/error/outcome"), again.at("/replayed")),
        (json!("not_sent"), json!(false))
    );
    gateway.finish().await;
}

#[tokio::test]
async fn an_unknown_outcome_is_sent_again_only_where_that_is_asked_for_and_does_no_harm() {
    for idempotent in [true, false] {
        let annotations = json!({ "idempotent": idempotent });
        let (world, gateway) = with(|tool| tool.set("annotations", annotations.clone())).await;
        world.upstream.next(Script::new().request().reset());
        let mut body = step("1", json!({"a": 1}));
        body["turn_id"] = json!("t1");
        let first = gateway.call_with(body).await;
        first.failed("network_error", Some("reset"), "unknown");
        let sent = world.upstream.requests().len();
        let told = gateway.call_with(step("1", json!({"a": 1}))).await;
        assert_eq!(
            (told.at("/replayed"), told.at("/error/outcome")),
            (json!(true), json!("unknown"))
        );
        assert_eq!(world.upstream.requests().len(), sent);
        world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
        let mut resend = step("1", json!({"a": 1}));
        resend["resend"] = json!(true);
        let again = gateway.call_with(resend.clone()).await;
        if !idempotent {
            assert_eq!((again.0.status, again.at("/error/code")), (409, json!("not_idempotent")));
            assert_eq!(world.upstream.requests().len(), sent);
            gateway.finish().await;
            continue;
        }
        again.succeeded();
        assert_eq!((again.id(), again.at("/replayed")), (first.id(), json!(false)));
        let requests = world.upstream.requests();
        assert_eq!(requests.len(), sent + 1);
        let (before, after) = (requests[0].json(), requests[sent].json());
        for field in ["call_id", "arguments", "turn_id"] {
            assert_eq!(before[field], after[field], "{field}");
        }
        // It is known now, and not sent once more.
        let known = gateway.call_with(resend).await;
        assert_eq!((known.succeeded(), known.at("/replayed")), (json!("fine"), json!(true)));
        assert_eq!(world.upstream.requests().len(), sent + 1);
        gateway.finish().await;
    }
}

/// Requirement S1-023. Requirement S3-068.
#[tokio::test]
async fn a_call_is_kept_with_arguments_answer_failure_and_duration() {
    let (world, gateway) = with(|tool| tool).await;
    let mut ids = Vec::new();
    world.upstream.default(Script::responding(|request| {
        let is_second = request.json()["arguments"]["amount"] == json!(1);
        answer(if is_second { 503 } else { 200 }, "application/json", r#"{"paid":true}"#)
    }));
    for index in 0..3 {
        let mut body = step(&index.to_string(), json!({"amount": index}));
        body["session_id"] = json!("s1");
        ids.push(gateway.call_with(body).await.id());
    }
    gateway.call_with(step("elsewhere", json!({}))).await;
    let read = async |path: String| {
        gateway.send(request("GET", &path, Some(API_KEY), "").as_bytes()).await.json()
    };
    let one = read(format!("/v1/calls/{}", ids[0])).await;
    assert_eq!(
        (&one["arguments"], &one["result"]),
        (&json!({"amount": 0}), &json!({"paid": true}))
    );
    assert!(one["error"].is_null() && one["duration_ms"].is_u64());
    let failed = read(format!("/v1/calls/{}", ids[1])).await;
    assert_eq!(
        (&failed["error"]["code"], &failed["error"]["status"]),
        (&json!("http_status"), &json!(503))
    );
    let session = read("/v1/calls?session_id=s1".to_owned()).await;
    let listed: Vec<&Value> =
        session["data"].as_array().expect("a list").iter().map(|call| &call["id"]).collect();
    assert_eq!(
        listed,
        ids.iter().map(|id| json!(id)).collect::<Vec<_>>().iter().collect::<Vec<_>>()
    );
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_not_to_be_kept_is_not() {
    let (world, config) = {
        let world = World::plain().await;
        world.upstream.default(Script::always(answer(
            200,
            "application/json",
            r#"{"told":"plum-answer"}"#,
        )));
        let config = world.config().tool(world.tool("refund").set("policy", json!("allow")));
        (world, config.set("/storage", json!({"url": "sqlite:calls.db", "capture": "none"})))
    };
    let mut gateway = config.start().await;
    let first = gateway.call_with(step("1", json!({"secret": "plum-argument"}))).await;
    assert_eq!(first.succeeded(), json!({"told": "plum-answer"}));
    poll("the record to be kept", || async {
        let metrics = gateway.metrics().await;
        let kept = [("result", "written")];
        (metrics.value("sortie_call_records_total", &kept) >= 1.0).then_some(())
    })
    .await;
    gateway.kill_and_start().await;
    let again = gateway.call_with(step("1", json!({"secret": "plum-argument"}))).await;
    assert_eq!(
        (again.at("/status"), again.at("/result"), again.at("/replayed")),
        (json!("succeeded"), Value::Null, json!(true))
    );
    assert_eq!(again.model_text(), "The call succeeded; its answer was not kept.");
    conflicts(&gateway.call_with(step("1", json!({"secret": "other"}))).await);
    assert_eq!(world.upstream.requests().len(), 1);
    let folder = gateway.folder().path().to_owned();
    let within = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).expect("it is there");
        entries.map(|entry| entry.expect("it works").path()).collect()
    };
    let mut files = within(&folder.join("calls.db.calls"));
    assert!(!files.is_empty(), "the call stands in a file of its own");
    files.extend(["calls.db", "calls.db-wal"].map(|file| folder.join(file)));
    for file in files {
        let bytes = std::fs::read(&file).expect("the gateway runs, so it is there");
        let holds = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(!holds(b"plum-argument") && !holds(b"plum-answer"), "{}", file.display());
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_runtime_s_patience_ends_as_running_and_the_call_goes_on() {
    let (world, gateway) = with(|tool| tool).await;
    let go = Signal::new();
    world.upstream.next(Script::new().request().wait(&go).send(answer(200, "text/plain", "late")));
    let mut body = step("1", json!({}));
    body["wait_ms"] = json!(0);
    let mut running = gateway.call_with(body.clone()).await;
    if running.at("/status") != json!("running") {
        running = gateway.call_with(body.clone()).await;
    }
    assert_eq!(
        (running.0.status, running.at("/status")),
        (202, json!("running")),
        "{}",
        running.0.text()
    );
    assert_eq!(running.at("/model/text"), Value::Null);
    let id = running.id();
    assert_eq!(running.0.header("location"), Some(format!("/v1/calls/{id}").as_str()));
    world.upstream.wait_for_requests(1).await;
    go.fire();
    let path = format!("/v1/calls/{id}?wait_ms=30000");
    let ended = Outcome(gateway.send(request("GET", &path, Some(API_KEY), "").as_bytes()).await);
    assert_eq!(ended.succeeded(), json!("late"));
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn a_running_call_that_is_taken_back_ends_as_unknown() {
    let (world, gateway) = with(|tool| tool).await;
    world.upstream.next(Script::new().request().stall());
    let mut body = step("1", json!({}));
    body["call_id"] = json!("call_takenback1");
    let (outcome, ()) = tokio::join!(gateway.call_with(body), async {
        world.upstream.wait_for_requests(1).await;
        let path = "/v1/calls/call_takenback1/cancel";
        let told = gateway.send(request("POST", path, Some(API_KEY), "{}").as_bytes()).await;
        assert_eq!(
            (told.status, &told.json()["status"]),
            (200, &json!("failed")),
            "{}",
            told.text()
        );
    });
    outcome.failed("cancelled", None, "unknown");
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_is_followed_while_it_runs_though_none_is_kept() {
    let world = World::plain().await;
    let go = Signal::new();
    let script = Script::new().request().wait(&go);
    world.upstream.default(script.send(answer(200, "text/plain", "fine")));
    let config = world.config().tool(world.tool("refund"));
    let gateway = config.set("/storage", json!({"keep": {"max_calls": 0}})).start().await;
    let call = json!({"tool": "refund", "arguments": {"a": 1}, "session_id": "s1", "wait_ms": 0});
    let running = gateway.call_with(call).await;
    assert_eq!(running.0.status, 202, "{}", running.0.text());
    let path = format!("/v1/calls/{}", running.id());
    let told = gateway.send(request("GET", &path, Some(API_KEY), "").as_bytes()).await;
    assert_eq!((told.status, &told.json()["status"]), (202, &json!("running")), "{}", told.text());
    let found = (&told.json()["arguments"], &told.json()["session_id"]);
    assert_eq!(found, (&json!({"a": 1}), &json!("s1")));
    go.fire();
    gateway.call_line(&running.id()).await;
    let gone = gateway.send(request("GET", &path, Some(API_KEY), "").as_bytes()).await;
    assert_eq!(gone.status, 404, "it is not kept: {}", gone.text());
    gateway.finish().await;
}
