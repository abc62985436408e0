//! Rounds: the calls of one reply run at the same time, so many and so often, and each is answered for itself.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::error;
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::events::Listener;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::{Reply, request};
use crate::support::script::{Script, answer};
use crate::support::wait::Signal;
use crate::support::world::World;

fn fine() -> Script {
    Script::always(answer(200, "application/json", r#"{"status":"shipped"}"#))
}

async fn world(script: Script) -> (World, ConfigBuilder) {
    let world = World::plain().await;
    world.upstream.default(script);
    let config = world.config().tool(world.tool("lookup"));
    (world, config)
}

fn call(tool: &str) -> Value {
    json!({"tool": tool, "arguments": {}})
}

async fn post(gateway: &Gateway, calls: &[Value]) -> Reply {
    let body = json!({"calls": calls}).to_string();
    let body = request("POST", "/v1/calls/batch", Some(API_KEY), &body);
    gateway.send(body.as_bytes()).await
}

/// The outcomes of one round.
async fn batch(gateway: &Gateway, calls: &[Value]) -> Vec<Outcome> {
    let reply = post(gateway, calls).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let body = reply.json();
    let outcomes = body["calls"].as_array().expect("a list").iter().map(|outcome| {
        let body = outcome.to_string().into_bytes();
        Outcome(Reply { status: 200, head: reply.head.clone(), body })
    });
    let outcomes: Vec<_> = outcomes.collect();
    assert_eq!(outcomes.len(), calls.len());
    outcomes
}

/// Requirement S3-061. Other processes disturb some of the calls, and the quickest least.
#[tokio::test]
async fn a_call_goes_out_at_once() {
    let (world, config) = world(fine()).await;
    let gateway = config.start().await;
    let mut quickest = Duration::MAX;
    for count in 1..=10 {
        let begun = Instant::now();
        let id = format!("call_000{count}");
        let mut client = gateway.open_call("lookup", &id, json!({})).await;
        world.upstream.wait_for_requests(count).await;
        quickest = quickest.min(begun.elapsed());
        assert_eq!(client.read_reply().await.status, 200);
    }
    assert!(quickest < Duration::from_millis(50), "{quickest:?}");
    gateway.finish().await;
}

/// Requirement S3-062. Nobody is answered until all three are at the tool's server.
#[tokio::test]
async fn the_calls_of_a_round_run_at_the_same_time() {
    let go = Signal::new();
    let (world, config) =
        world(Script::new().request().wait(&go).send(answer(200, "application/json", "1"))).await;
    let gateway = config.start().await;
    let calls = [call("lookup"), call("lookup"), call("lookup")];
    let (outcomes, ()) = tokio::join!(batch(&gateway, &calls), async {
        world.upstream.wait_for_requests(3).await;
        go.fire();
    });
    for outcome in outcomes {
        assert_eq!(outcome.succeeded(), json!(1));
    }
    gateway.finish().await;
}

/// Requirement S3-063.
#[tokio::test]
async fn the_sixth_call_of_a_round_is_not_run() {
    let (world, config) = world(fine()).await;
    let gateway = config.start().await;
    let outcomes = batch(&gateway, &vec![call("lookup"); 7]).await;
    for outcome in &outcomes[..5] {
        outcome.succeeded();
    }
    for outcome in &outcomes[5..] {
        outcome.refused("not_run", None);
        assert_eq!(outcome.model_text(), "not run: at most 5 calls run in one round.");
        assert_eq!(outcome.at("/error/retryable"), json!(false));
        assert_eq!(gateway.call_line(&outcome.id()).await["code"], "not_run");
    }
    assert_eq!(world.upstream.requests().len(), 5);
    let labels =
        [("tool", "lookup"), ("status", "refused"), ("code", "not_run"), ("fault", "caller")];
    assert_eq!(gateway.metrics().await.value("sortie_calls_total", &labels), 2.0);
    gateway.finish().await;
}

/// Requirement S3-064.
#[tokio::test]
async fn a_filler_is_said_once_a_round() {
    let (world, config) = world(fine()).await;
    let config = config
        .tool(world.tool("first").set("filler", json!("One moment.")))
        .tool(world.tool("second").set("filler", json!("Let me look.")));
    let gateway = config.start().await;
    let mut listener = Listener::open(&gateway, API_KEY, "").await;
    let check = async |listener: &mut Listener, calls: &[Value], expected: &[Option<&str>]| {
        let outcomes = batch(&gateway, calls).await;
        let fillers: Vec<_> = outcomes.iter().map(|outcome| outcome.at("/filler")).collect();
        assert_eq!(fillers, expected.iter().map(|one| json!(one)).collect::<Vec<_>>());
        let ran = outcomes.iter().filter(|outcome| outcome.at("/status") == "succeeded").count();
        let events = listener.events(ran + outcomes.len()).await;
        let starts = events.iter().filter(|one| one.event.as_deref() == Some("tool.start"));
        let said: Vec<_> =
            starts.map(|one| one.data["filler"].clone()).filter(|one| !one.is_null()).collect();
        let expected: Vec<_> = expected.iter().flatten().map(|one| json!(one)).collect();
        assert_eq!(said, expected);
    };
    let (first, second) = (call("first"), call("second"));
    let both = [first.clone(), second.clone()];
    check(&mut listener, &both, &[Some("One moment."), None]).await;
    // A call that has none, and one that does not run, leave it to the next.
    let later = [call("lookup"), call("nobody"), second.clone(), first.clone()];
    check(&mut listener, &later, &[None, None, Some("Let me look."), None]).await;
    let mut refused = first.clone();
    refused["round"] = json!(4);
    check(&mut listener, &[refused, second], &[None, Some("Let me look.")]).await;
    // Each round has its own.
    check(&mut listener, &[first], &[Some("One moment.")]).await;
    drop(listener);
    gateway.finish().await;
}

/// Requirement S3-066. Requirement S3-073.
#[tokio::test]
async fn each_call_is_answered_for_itself_and_a_failed_one_fails_no_other() {
    let respond = |request: &crate::support::upstream::Request| match request.line() {
        line if line.contains("/broken") => answer(500, "text/plain", "broken"),
        _ => answer(200, "application/json", r#"{"status":"shipped"}"#),
    };
    let (world, config) = world(Script::responding(respond)).await;
    let gateway = config.tool(world.tool("broken")).start().await;
    let calls = [call("broken"), call("lookup"), call("nobody")];
    let outcomes = batch(&gateway, &calls).await;
    outcomes[0].failed("http_status", None, "answered");
    assert_eq!(outcomes[0].model_text(), "The tool answered with status 500.");
    assert_eq!(outcomes[1].succeeded(), json!({"status": "shipped"}));
    assert_eq!(outcomes[1].model_text(), r#"{"status":"shipped"}"#);
    outcomes[2].refused("unknown_tool", None);
    assert_eq!(outcomes[2].model_text(), "There is no tool named \"nobody\".");
    // The same of a call that comes alone.
    let alone = gateway.call("broken", json!({})).await;
    alone.failed("http_status", None, "answered");
    assert_eq!(alone.model_text(), "The tool answered with status 500.");
    gateway.finish().await;
}

/// A call that waits for the person, and one that the runtime does not wait for, stand among the others as what they are.
#[tokio::test]
async fn what_has_not_ended_stands_in_the_answer_as_what_it_is() {
    let go = Signal::new();
    let (world, config) =
        world(Script::new().request().wait(&go).send(answer(200, "application/json", "1"))).await;
    let asking = world.tool("delete").set("policy", json!("ask_first"));
    let filler = json!("Deleting.");
    let slow = world.tool("slow").set("filler", json!("One moment."));
    let gateway = config.tool(asking.set("filler", filler)).tool(slow).start().await;
    let slow = json!({"tool": "slow", "arguments": {}, "wait_ms": 0});
    let outcomes = batch(&gateway, &[call("delete"), slow.clone(), slow]).await;
    let statuses: Vec<_> = outcomes.iter().map(|one| one.at("/status")).collect();
    assert_eq!(statuses, ["waiting_approval", "running", "running"]);
    let fillers: Vec<_> = outcomes.iter().map(|one| one.at("/filler")).collect();
    assert_eq!(fillers, [Value::Null, json!("One moment."), Value::Null]);
    world.upstream.wait_for_requests(2).await;
    go.fire();
    gateway.finish().await;
}

/// What a call is refused with as a request stands in its place, and the others run.
#[tokio::test]
async fn a_call_that_conflicts_has_the_error_in_its_place() {
    let (_world, config) = world(fine()).await;
    let gateway = config.start().await;
    let with = |id: &str, n: u32| json!({"tool": "lookup", "arguments": {"n": n}, "call_id": id});
    gateway.call_with(with("call_8f2c", 1)).await.succeeded();
    let calls = [with("call_8f2c", 2), with("call_9a3d", 1), with("call_8f2c", 1)];
    let outcomes = batch(&gateway, &calls[..2]).await;
    assert_eq!(outcomes[0].at("/error/code"), json!("idempotency_conflict"));
    assert!(outcomes[0].at("/error/request_id").is_string());
    outcomes[1].succeeded();
    let again = batch(&gateway, &calls[1..]).await;
    for outcome in again {
        outcome.succeeded();
        assert_eq!(outcome.at("/replayed"), json!(true));
    }
    gateway.finish().await;
}

/// Requirement S3-067.
#[tokio::test]
async fn a_fourth_round_is_not_run() {
    let (world, config) = world(fine()).await;
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let gateway = config.tool(world.tool("count").parameters(schema)).start().await;
    let round = async |tool: &str, round: u32, arguments: Value| {
        let body = json!({"tool": tool, "arguments": arguments, "turn_id": "t1", "round": round});
        gateway.call_with(body).await
    };
    for allowed in 1..=3 {
        round("count", allowed, json!({"n": 1})).await.succeeded();
    }
    for over in [4, 5, u32::MAX] {
        let outcome = round("count", over, json!({"n": 1})).await;
        outcome.refused("not_run", None);
        assert_eq!(outcome.model_text(), "not run: at most 3 rounds run in one reply.");
    }
    // The order of checks: tool, rounds, arguments.
    round("nobody", 4, json!({})).await.refused("unknown_tool", None);
    round("count", 4, json!({"n": "x"})).await.refused("not_run", None);
    round("count", 3, json!({"n": "x"})).await.refused("invalid_arguments", None);
    assert_eq!(world.upstream.requests().len(), 3);
    gateway.finish().await;
}

/// Requirement S3-075. Ten seconds are one here: three rounds that run out of time take three of them, and no more.
#[tokio::test]
async fn rounds_that_run_out_of_time_take_their_time_once_each() {
    let (world, config) = world(Script::new().request().stall()).await;
    let slow = world.tool("slow").set("timeout", json!("1s"));
    let gateway = config.tool(slow).start().await;
    let begun = Instant::now();
    let mut in_the_gateway = 0;
    for round in 1..=3 {
        let call = json!({"tool": "slow", "arguments": {}, "round": round});
        let outcomes = batch(&gateway, &vec![call; 5]).await;
        let durations = outcomes.iter().map(|outcome| {
            outcome.failed("timeout", Some("first_byte"), "unknown");
            outcome.at("/duration_ms").as_u64().expect("a duration")
        });
        in_the_gateway += durations.max().expect("five calls");
    }
    // What a busy machine adds, besides.
    let slack = 1500;
    assert!((3000..=3100 + slack).contains(&in_the_gateway), "{in_the_gateway} ms");
    assert!(begun.elapsed() < Duration::from_millis(3100 + 2 * slack), "{:?}", begun.elapsed());
    gateway.finish().await;
}

#[tokio::test]
async fn a_batch_that_is_wrong_in_one_place_runs_nothing() {
    let (world, config) = world(fine()).await;
    let keyed = world.tool("keyed").profile("bare-v1");
    let gateway = config.tool(keyed).start().await;
    let good = call("lookup");
    let bad = async |calls: Vec<Value>, field: &str, part: &str| {
        let message = error(&post(&gateway, &calls).await, 400, "bad_request", Some(field));
        assert!(message.contains(part), "{message}");
    };
    bad(vec![], "/calls", "1 to 100 calls").await;
    bad(vec![good.clone(); 101], "/calls", "1 to 100 calls").await;
    bad(vec![good.clone(), json!({"tool": "lookup"})], "/calls/1/arguments", "required").await;
    let nested = json!({"tool": "lookup", "arguments": {}, "end_user": {"name": "x"}});
    bad(vec![good.clone(), nested], "/calls/1/end_user/name", "not known").await;
    let foreign = json!({"tool": "lookup", "arguments": {}, "credentials": {"X-User": "1"}});
    bad(vec![good.clone(), foreign], "/calls/1/credentials/X-User", "accept_credentials").await;
    bad(vec![good.clone(), call("keyed")], "/calls/1/run_id", "required").await;
    let with_id = json!({"tool": "lookup", "arguments": {}, "call_id": "call_8f2c"});
    bad(vec![with_id.clone(), with_id], "/calls/1/call_id", "/calls/0").await;
    let indexed =
        json!({"tool": "keyed", "arguments": {}, "run_id": "r", "step": "1", "call_index": 1});
    let mut by_position = indexed.clone();
    by_position["call_index"] = Value::Null;
    bad(vec![indexed, by_position], "/calls/1/call_index", "/calls/0").await;
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

/// The calls of a step need no index of their own: each has another key.
#[tokio::test]
async fn calls_of_a_batch_have_keys_by_position() {
    let (world, config) = world(fine()).await;
    let keyed = world.tool("keyed").profile("bare-v1");
    let gateway = config.tool(keyed).start().await;
    let one = json!({"tool": "keyed", "arguments": {}, "run_id": "run_7Hq2xV", "step": "3"});
    let outcomes = batch(&gateway, &[one.clone(), one]).await;
    let keys: Vec<_> = outcomes.iter().map(|one| one.at("/idempotency_key")).collect();
    // Computed with: printf 'run_7Hq2xV\n3\n0' | sha256sum | cut -c1-32
    assert_eq!(keys[0], "dcecefd7bc74085436b9067e030349d2");
    assert!(keys[1].is_string() && keys[0] != keys[1], "{keys:?}");
    assert_eq!(world.upstream.requests().len(), 2);
    gateway.finish().await;
}
