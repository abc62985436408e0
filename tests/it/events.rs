//! Events: who listens hears what happens to calls, in order, and only of those that are theirs.

use serde_json::{Value, json};

use crate::api::error;
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::events::{Block, Listener};
use crate::support::gateway::Outcome;
use crate::support::http::request;
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll};
use crate::support::world::World;

/// A key that reads and runs nothing.
const READER: &str = "sk-reader-Jd83Lq0sWm5Xz2Pb7";
/// One that may speak of one tool alone.
const BOUND: &str = "sk-bound-Rt6Yh1Nc9Vb4Kf8Ge";

async fn world() -> (World, ConfigBuilder) {
    let world = World::plain().await;
    let respond = |request: &crate::support::upstream::Request| match request.line() {
        line if line.contains("/broken") => answer(500, "text/plain", "broken"),
        _ => answer(200, "application/json", r#"{"status":"shipped"}"#),
    };
    world.upstream.default(Script::responding(respond));
    let config = world
        .config()
        .patient()
        .key("reader", READER, json!({"scopes": ["agent"]}))
        .key("bound", BOUND, json!({"scopes": ["agent:call"], "tools": ["refund"]}))
        .tool(world.tool("lookup").set("filler", json!("Let me check that for you.")))
        .tool(world.tool("broken"))
        .tool(world.tool("refund"));
    (world, config)
}

fn call(tool: &str, session: &str) -> Value {
    json!({"tool": tool, "arguments": {}, "session_id": session, "turn_id": "t1"})
}

/// The events by name and call.
fn names(events: &[Block]) -> Vec<(&str, &str)> {
    events
        .iter()
        .map(|one| {
            let event = one.event.as_deref().unwrap_or_default();
            (event, one.data["call_id"].as_str().unwrap_or_default())
        })
        .collect()
}

/// Requirement S3-065. Requirement S3-074.
#[tokio::test]
async fn each_call_is_told_when_it_starts_and_when_it_ends() {
    let (_world, config) = world().await;
    let gateway = config.start().await;
    let mut listener = Listener::open(&gateway, API_KEY, "").await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("connection", "close"),
    ] {
        assert_eq!(listener.head.header(name), Some(value), "{}", listener.head.head);
    }
    let good = gateway.call_with(call("lookup", "s1")).await;
    let bad = gateway.call_with(call("broken", "s1")).await;
    let refused = gateway.call_with(call("nobody", "s1")).await;
    let events = listener.events(5).await;
    let (good_id, bad_id, refused_id) = (good.id(), bad.id(), refused.id());
    let expected = [
        ("tool.start", good_id.as_str()),
        ("tool.end", &good_id),
        ("tool.start", &bad_id),
        ("tool.end", &bad_id),
        // It never ran, so it has no start.
        ("tool.end", &refused_id),
    ];
    assert_eq!(names(&events), expected);
    let start = json!({
        "type": "tool.start", "call_id": good_id, "name": "lookup",
        "filler": "Let me check that for you.", "session_id": "s1", "turn_id": "t1",
    });
    assert_eq!(events[0].data, start);
    let end = |at: usize, ok: bool, outcome: &Outcome| {
        let data = json!({
            "type": "tool.end", "call_id": outcome.id(), "ok": ok,
            "ms": outcome.at("/duration_ms"), "session_id": "s1", "turn_id": "t1",
        });
        assert_eq!(events[at].data, data);
    };
    end(1, true, &good);
    assert_eq!(events[2].data["filler"], Value::Null);
    end(3, false, &bad);
    end(4, false, &refused);
    drop(listener);
    gateway.finish().await;
}

/// What is another conversation's, or outside of a key's bounds, is not heard.
#[tokio::test]
async fn everyone_hears_of_their_own_calls_alone() {
    let (_world, config) = world().await;
    let gateway = config.start().await;
    let mut all = Listener::open(&gateway, READER, "").await;
    let mut second = Listener::open(&gateway, API_KEY, "?session_id=s%202").await;
    let mut bound = Listener::open(&gateway, BOUND, "").await;
    let first = gateway.call_with(call("lookup", "s1")).await.id();
    let other = gateway.call_with(call("lookup", "s 2")).await.id();
    let refund = gateway.call_with(call("refund", "s1")).await.id();
    // A key cannot speak of a call that it may not make.
    let forged = json!({"tool": "lookup", "arguments": {}, "session_id": "s 2", "call_id": first});
    let forged = gateway.post(Some(BOUND), forged.to_string()).await;
    assert_eq!(forged.json()["error"]["code"], "not_allowed_for_key");
    let last = gateway.call_with(call("refund", "s 2")).await.id();
    let calls = |events: Vec<Block>| -> Vec<String> {
        names(&events).into_iter().map(|(_, call)| call.to_owned()).collect()
    };
    let both = |ids: &[&String]| -> Vec<String> {
        ids.iter().flat_map(|id| [(*id).clone(), (*id).clone()]).collect()
    };
    assert_eq!(calls(all.events(8).await), both(&[&first, &other, &refund, &last]));
    assert_eq!(calls(second.events(4).await), both(&[&other, &last]));
    assert_eq!(calls(bound.events(4).await), both(&[&refund, &last]));
    drop((all, second, bound));
    gateway.finish().await;
}

#[tokio::test]
async fn another_organisation_hears_nothing() {
    let (_world, config) = world().await;
    let other = "sk-other-Mz4Xc7Vb1Nq8Lw3Ke";
    let gateway = config
        .set("/organisations", json!([{"id": "default"}, {"id": "other"}]))
        .key("other", other, json!({"scopes": ["agent:call"], "organisation": "other"}))
        .start()
        .await;
    let mut own = Listener::open(&gateway, API_KEY, "").await;
    let mut foreign = Listener::open(&gateway, other, "?session_id=s1").await;
    let first = gateway.call_with(call("lookup", "s1")).await.id();
    let reply = gateway.post(Some(other), call("lookup", "s1").to_string()).await;
    let second = reply.json()["id"].as_str().expect("an id").to_owned();
    let (heard, abroad) = (own.events(2).await, foreign.events(2).await);
    assert_eq!(names(&heard), [("tool.start", first.as_str()), ("tool.end", &first)]);
    assert_eq!(names(&abroad), [("tool.start", second.as_str()), ("tool.end", &second)]);
    drop((own, foreign));
    gateway.finish().await;
}

/// Requirement S3-078. The person's yes lets the call start, and a no ends it.
#[tokio::test]
async fn a_call_that_waits_for_the_person_is_told_with_its_arguments() {
    let (world, config) = world().await;
    let asking = world.tool("delete").set("policy", json!("ask_first"));
    let gateway = config.tool(asking.set("filler", json!("Deleting."))).start().await;
    let mut listener = Listener::open(&gateway, API_KEY, "").await;
    for yes in [true, false] {
        let mut asked = call("delete", "s1");
        asked["arguments"] = json!({"number": 7});
        let outcome = gateway.call_with(asked).await;
        assert_eq!(outcome.0.status, 202, "{}", outcome.0.text());
        let id = outcome.id();
        let confirm = listener.event().await;
        assert_eq!(confirm.event.as_deref(), Some("tool.confirm"));
        let expected = json!({
            "type": "tool.confirm", "call_id": id, "name": "delete", "arguments": {"number": 7},
            "expires_at": outcome.at("/approval/expires_at"), "session_id": "s1", "turn_id": "t1",
        });
        assert_eq!(confirm.data, expected);
        let path = format!("/v1/calls/{id}/confirmed");
        let body = json!({ "yes": yes }).to_string();
        gateway.send(request("POST", &path, Some(API_KEY), &body).as_bytes()).await;
        if yes {
            let start = listener.event().await;
            assert_eq!(names(std::slice::from_ref(&start)), [("tool.start", id.as_str())]);
            assert_eq!(start.data["filler"], json!("Deleting."));
        }
        let end = listener.event().await;
        assert_eq!(names(std::slice::from_ref(&end)), [("tool.end", id.as_str())]);
        assert_eq!(end.data["ok"], json!(yes));
    }
    drop(listener);
    gateway.finish().await;
}

#[tokio::test]
async fn who_comes_back_hears_what_was_missed() {
    let (_world, config) = world().await;
    let gateway = config.start().await;
    let mut listener = Listener::open(&gateway, API_KEY, "?session_id=s1").await;
    gateway.call_with(call("lookup", "s1")).await.succeeded();
    let events = listener.events(2).await;
    drop(listener);
    let missed = gateway.call_with(call("refund", "s1")).await.id();
    gateway.call_with(call("refund", "s2")).await.succeeded();
    let after = |at: usize| events[at].id.clone().expect("an id");
    let mut again = Listener::resume(&gateway, API_KEY, "?session_id=s1", Some(&after(0))).await;
    let heard = again.events(3).await;
    assert_eq!(heard[0], events[1]);
    assert_eq!(names(&heard[1..]), [("tool.start", missed.as_str()), ("tool.end", &missed)]);
    // What is of another process, or was never told, is said to be lost.
    for foreign in ["zzzzzzzz-1", "1", "x"] {
        let mut anew = Listener::resume(&gateway, API_KEY, "", Some(foreign)).await;
        let first = anew.event().await;
        assert_eq!((first.event.as_deref(), first.data), (Some("reset"), json!({"type": "reset"})));
        assert!(first.id.is_some(), "it goes on from here");
    }
    drop(again);
    gateway.finish().await;
}

#[tokio::test]
async fn a_request_for_events_is_as_strict_as_others() {
    let (_world, config) = world().await;
    let approver = "sk-approver-Zx8Cv7Bn6Mq5Wl4";
    let config = config.key("approver", approver, json!({"scopes": ["agent:approve"]}));
    let gateway = config.start().await;
    let ask = async |path: &str, key: Option<&str>| {
        gateway.send(request("GET", path, key, "").as_bytes()).await
    };
    let reply = ask("/v1/events?session=s1", Some(API_KEY)).await;
    let message = error(&reply, 400, "bad_request", None);
    assert_eq!(message, "the parameter `session` is not known; known are session_id");
    for bad in ["", "%0a", &"x".repeat(257)] {
        let reply = ask(&format!("/v1/events?session_id={bad}"), Some(API_KEY)).await;
        assert!(error(&reply, 400, "bad_request", None).contains("`session_id`"));
    }
    error(&ask("/v1/events", None).await, 401, "unauthorized", None);
    let reply = ask("/v1/events", Some(approver)).await;
    let message = error(&reply, 403, "missing_scope", None);
    assert_eq!(message, "the key `approver` does not have the scope `agent` or `agent:call`");
    let reply = gateway.send(request("POST", "/v1/events", Some(API_KEY), "").as_bytes()).await;
    error(&reply, 405, "method_not_allowed", None);
    gateway.finish().await;
}

#[tokio::test]
async fn streams_leave_room_for_calls() {
    let (_world, config) = world().await;
    let config = config.set("/listeners/api/max_connections", json!(4));
    let gateway = config.start().await;
    let first = Listener::open(&gateway, API_KEY, "").await;
    let _second = Listener::open(&gateway, API_KEY, "").await;
    let third = gateway.send(request("GET", "/v1/events", Some(API_KEY), "").as_bytes()).await;
    let message = error(&third, 503, "overloaded", None);
    assert!(message.starts_with("2 streams of events are open"), "{message}");
    gateway.call_with(call("lookup", "s1")).await.succeeded();
    drop(first);
    poll("room for another stream", || async {
        let again = Listener::resume(&gateway, API_KEY, "", None).await;
        (again.head.status == 200).then_some(())
    })
    .await;
    drop(_second);
    gateway.finish().await;
}

/// No bound on an idle client is one on a stream: this one is silent for longer than each of them.
#[tokio::test]
async fn a_stream_on_which_nothing_happens_is_not_idle() {
    let (world, config) = world().await;
    world.upstream.default(Script::new().request().stall());
    let gateway = config
        .set("/listeners/api/idle_timeout", json!("1s"))
        .set("/listeners/api/header_timeout", json!("200ms"))
        .tool(world.tool("slow").set("timeout", json!("3s")))
        .start()
        .await;
    let mut listener = Listener::open(&gateway, API_KEY, "").await;
    gateway.call_with(call("slow", "s1")).await.failed("timeout", Some("first_byte"), "unknown");
    let events = listener.events(2).await;
    assert_eq!(events[1].data["ok"], json!(false));
    drop(listener);
    gateway.finish().await;
}

/// It is told nothing more, and closed; calls go on as if it were not there.
#[tokio::test]
async fn a_client_that_does_not_read_slows_no_call() {
    let (_world, config) = world().await;
    let gateway = config.set("/listeners/api/idle_timeout", json!("1s")).start().await;
    let stalled = Listener::open_narrow(&gateway, API_KEY).await;
    let mut quick = Listener::open(&gateway, READER, "?session_id=quick").await;
    // More than the sockets between them hold.
    let long = "x".repeat(256);
    let one = json!({"tool": "nobody", "arguments": {}, "session_id": long, "turn_id": long});
    let batch = json!({"calls": vec![one; 100]}).to_string();
    let batch = request("POST", "/v1/calls/batch", Some(API_KEY), &batch);
    let tasks = async || gateway.status().await["tasks"].as_u64().expect("a number");
    let with_both = tasks().await;
    let mut batches = 0;
    while tasks().await >= with_both {
        assert_eq!(gateway.send(batch.as_bytes()).await.status, 200);
        batches += 1;
        assert!(batches < 500, "the stalled stream is still open");
    }
    gateway.call_with(call("lookup", "quick")).await.succeeded();
    assert_eq!(quick.events(2).await[1].data["ok"], json!(true));
    let rest = stalled.into_client().read_to_end().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "it is cut off");
    drop(quick);
    gateway.finish().await;
}

#[tokio::test]
async fn a_drain_ends_streams_once_the_last_call_is_told() {
    let (world, config) = world().await;
    let go = Signal::new();
    let fine = answer(200, "application/json", "{}");
    world.upstream.default(Script::new().request().wait(&go).send(fine));
    let mut gateway = config.start().await;
    let mut listener = Listener::open(&gateway, API_KEY, "").await;
    let mut running = gateway.open_call("lookup", "call_drain1", json!({})).await;
    assert_eq!(listener.event().await.data["call_id"], "call_drain1");
    gateway.terminate();
    poll("/readyz to say no", || async {
        (gateway.probe("/readyz").await.status == 503).then_some(())
    })
    .await;
    go.fire();
    let end = listener.event().await;
    assert_eq!((end.event.as_deref(), &end.data["ok"]), (Some("tool.end"), &json!(true)));
    assert_eq!(listener.block().await, None);
    assert_eq!(running.read_reply().await.status, 200);
    assert_eq!(gateway.ended().await.code, Some(0));
}
