//! The audit trail: what an operator did, and who was refused for a key, each as one line of a stream of its own.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sortie::model::id::hex;
use sortie::store::Store;
use sortie::store::sqlite::SqliteStore;

use crate::support::gateway::Gateway;
use crate::support::http::request;
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::World;

const DESK: &str = "sk-desk-Vb3NmK7pLs9XqT2w";
const READER: &str = "sk-reader-Lm4QxT8vRk2WzPn7";

/// The lines of this action, once there are so many.
async fn lines(gateway: &Gateway, action: &str, count: usize) -> Vec<Value> {
    poll(&format!("{count} lines of {action}"), || async {
        let mut lines = gateway.log_lines();
        lines.retain(|line| line["stream"] == "audit" && line["action"] == action);
        (lines.len() >= count).then_some(lines)
    })
    .await
}

#[track_caller]
fn check(line: &Value, actor: &str, subject: Value, change: [Value; 2]) {
    let found = [&line["actor"], &line["subject"], &line["before"], &line["after"]];
    let [before, after] = change;
    assert_eq!(found, [&json!(actor), &subject, &before, &after], "{line}");
    assert_eq!(line["organisation"], "default");
    let ts = line["ts"].as_str().expect("a time");
    assert!(ts.len() == 24 && ts.ends_with('Z'), "{ts}");
}

#[tokio::test]
async fn what_an_operator_does_is_taken_down() {
    let world = World::plain().await;
    let config = || world.config().tool(world.tool("one"));
    let gateway = config().start().await;
    let hash = async || gateway.status().await["hash"].clone();
    let before = hash().await;
    gateway.admin("POST", "/reload", "").await;
    let line = lines(&gateway, "reload", 1).await.remove(0);
    check(&line, "admin", Value::Null, [before.clone(), before.clone()]);
    assert_eq!(line["detail"], json!({"result": "unchanged", "trigger": "admin"}));
    gateway.folder().replace("sortie.yaml", &config().set("/region", json!("eu")).text());
    gateway.hang_up();
    let applied = poll("a reload", || async {
        let all = lines(&gateway, "reload", 2).await;
        all.into_iter().find(|line| line["detail"]["result"] == "applied")
    })
    .await;
    assert_ne!(before, hash().await);
    check(&applied, "system", Value::Null, [before, hash().await]);
    gateway.admin("PUT", "/log-level", r#"{"level": "error"}"#).await;
    let line = lines(&gateway, "log_level.changed", 1).await.remove(0);
    check(&line, "admin", Value::Null, [json!("info"), json!("error")]);
    gateway.admin("PUT", "/log-level", r#"{"level": "info"}"#).await;
    gateway.admin("POST", "/circuits/one/reset", "").await;
    gateway.admin("POST", "/circuits/two/reset", "").await;
    let resets = lines(&gateway, "circuit.reset", 1).await;
    check(&resets[0], "admin", json!("one"), [Value::Null, Value::Null]);
    assert_eq!(resets.len(), 1, "there is no other tool");
    gateway.admin("POST", "/drain", "").await;
    let finished = gateway.ended().await;
    let drains = finished.stdout.lines().filter(|line| line.contains(r#""action":"drain""#));
    let drains: Vec<Value> =
        drains.map(|line| serde_json::from_str(line).expect("a JSON line")).collect();
    assert_eq!(drains.len(), 1);
    check(&drains[0], "admin", Value::Null, [Value::Null, Value::Null]);
}

#[tokio::test]
async fn a_signal_that_ends_it_is_taken_down() {
    let world = World::plain().await;
    let finished = world.gateway(world.tool("one")).await.finish().await;
    let line = finished.stdout.lines().find(|line| line.contains(r#""action":"drain""#));
    let line = serde_json::from_str(line.expect("a line")).expect("JSON");
    check(&line, "system", Value::Null, [Value::Null, Value::Null]);
}

#[tokio::test]
async fn who_is_refused_for_a_key_is_taken_down_and_nobody_floods_the_trail() {
    let world = World::plain().await;
    let config = world.config().tool(world.tool("one")).tool(world.tool("two"));
    let fields = json!({"scopes": ["agent", "agent:call"], "tools": ["one"]});
    let gateway = config.key("bound", READER, fields).start().await;
    let call = r#"{"tool":"two","arguments":{}}"#;
    for _ in 0..50 {
        assert_eq!(gateway.post(Some("sk-nobody"), call).await.status, 401);
    }
    assert_eq!(
        gateway.post(Some(READER), call).await.json()["error"]["code"],
        "not_allowed_for_key"
    );
    let tools = request("GET", "/v1/tools", Some(crate::support::config::API_KEY), "");
    assert_eq!(gateway.send(tools.as_bytes()).await.status, 403);
    let refusals = lines(&gateway, "key.refused", 3).await;
    let of = |actor: &str| {
        let lines = refusals.iter().filter(|line| line["actor"] == actor);
        lines.cloned().collect::<Vec<_>>()
    };
    // One for each second that the requests took.
    assert!((1..20).contains(&of("unknown").len()), "{refusals:?}");
    check(&of("unknown")[0], "unknown", json!("api"), [Value::Null, Value::Null]);
    assert_eq!(of("unknown")[0]["detail"], json!({"reason": "unknown_key"}));
    check(&of("bound")[0], "bound", json!("two"), [Value::Null, Value::Null]);
    assert_eq!(of("bound")[0]["detail"], json!({"reason": "not_allowed_for_key"}));
    check(&of("test-runtime")[0], "test-runtime", json!("agent"), [Value::Null, Value::Null]);
    assert_eq!(of("test-runtime")[0]["detail"], json!({"reason": "missing_scope"}));
    gateway.finish().await;
}

#[tokio::test]
async fn what_people_decide_and_change_is_taken_down_and_kept() {
    let kept = tempfile::tempdir().expect("a folder");
    let file = kept.path().join("kept.db");
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let config = world.config().tool(world.tool("refund").set("policy", json!("require_approval")));
    let config = config.tool(world.tool("delete").set("policy", json!("ask_first")));
    let scopes = json!({"scopes": ["agent:approve", "agent:policy", "agent:call"]});
    let url = json!(format!("sqlite:{}", file.display()));
    let gateway = config.key("desk", DESK, scopes).set("/storage/url", url).start().await;
    let send = async |method: &str, path: &str, body: Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = gateway.send(request(method, path, Some(DESK), &body).as_bytes()).await;
        assert!(reply.status < 300, "{}", reply.text());
    };
    let mut expected = Vec::new();
    for (verb, status) in [("approve", "approved"), ("reject", "rejected")] {
        let call = gateway.call("refund", json!({"card": "4111-1111"})).await;
        let approval = call.at("/approval/id").as_str().expect("an id").to_owned();
        let digest = call.at("/approval/arguments_digest");
        let body = json!({"arguments_digest": digest, "reason": "Seen.", "name": "Ada"});
        send("POST", &format!("/v1/approvals/{approval}/{verb}"), body).await;
        let line = lines(&gateway, &format!("approval.{status}"), 1).await.remove(0);
        check(&line, "desk", json!(approval), [json!("pending"), json!(status)]);
        let detail = json!({
            "call_id": call.id(), "tool": "refund", "arguments_digest": digest, "name": "Ada",
        });
        assert_eq!(line["detail"], detail);
        expected.push(format!("approval.{status}"));
    }
    for (yes, action) in [(true, "call.confirmed"), (false, "call.declined")] {
        let call = gateway.call("delete", json!({"yes": yes})).await.id();
        send("POST", &format!("/v1/calls/{call}/confirmed"), json!({"yes": yes})).await;
        let line = lines(&gateway, action, 1).await.remove(0);
        check(&line, "desk", json!(call), [Value::Null, Value::Null]);
        expected.push(action.to_owned());
    }
    let digest = |body: Value| json!(format!("sha256:{}", hex(&Sha256::digest(body.to_string()))));
    let watching = json!({"id": "rule", "mode": "shadow", "effect": "deny"});
    let changed = json!({"id": "rule", "mode": "shadow", "effect": "deny", "message": "No."});
    let enforced = json!({"id": "rule", "mode": "enforce", "effect": "deny", "message": "No."});
    let path = "/v1/policies/rule";
    for (method, path, body, action, before, after) in [
        ("POST", "/v1/policies", watching.clone(), "created", None, Some(&watching)),
        ("PATCH", path, json!({"message": "No."}), "changed", Some(&watching), Some(&changed)),
        (
            "POST",
            "/v1/policies/rule/enforce",
            Value::Null,
            "enforced",
            Some(&changed),
            Some(&enforced),
        ),
        ("DELETE", path, Value::Null, "deleted", Some(&enforced), None),
    ] {
        send(method, path, body).await;
        let action = format!("policy.{action}");
        let line = lines(&gateway, &action, 1).await.remove(0);
        let change = [before, after].map(|body| body.cloned().map_or(Value::Null, digest));
        check(&line, "desk", json!("rule"), change);
        expected.push(action);
    }
    assert_eq!(gateway.post(Some("sk-nobody"), "{}").await.status, 401);
    lines(&gateway, "key.refused", 1).await;
    expected.extend(["key.refused", "drain"].map(str::to_owned));
    let finished = gateway.finish().await;
    assert!(!finished.stdout.contains("4111"), "arguments are no matter of the trail");
    let store = SqliteStore::open(&file).expect("a store");
    let mut trail = store.audited("default", 0, 100).await.expect("it works");
    trail.reverse();
    let actions: Vec<_> = trail.iter().map(|entry| entry.action.as_str()).collect();
    assert_eq!(actions, expected);
    assert_eq!((trail[0].actor.as_str(), trail[0].after.as_deref()), ("desk", Some("approved")));
}
