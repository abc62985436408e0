//! Policies of the API: who may change them, what is wrong with one, and that they hold for the next call.

use serde_json::{Value, json};

use crate::support::config::API_KEY;
use crate::support::gateway::Gateway;
use crate::support::http::{Reply, request};
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// A key that changes policies.
const POLICY_KEY: &str = "sk-policy-Xw4Nf8Zq2Lr6Tb9Km";
/// A key that only reads.
const READ_KEY: &str = "sk-read-Gd7Hs3Jk5Pz1Vc8Bn";

/// A tool `refund`, a tool `lookup`, and one policy in the file.
async fn started() -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let schema = json!({"type": "object", "properties": {"amount": {"type": "number"}}});
    let config = world.config().tool(world.tool("refund").parameters(schema));
    let config = config.tool(world.tool("lookup"));
    let config = config.key("desk", POLICY_KEY, json!({"scopes": ["agent:policy", "agent"]}));
    let config = config.key("reader", READ_KEY, json!({"scopes": ["agent", "agent:write"]}));
    let of_file = json!([{"id": "of-file", "mode": "shadow", "effect": "ask_first"}]);
    let gateway = config.set("/policies", of_file).start().await;
    (world, gateway)
}

async fn ask(gateway: &Gateway, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    gateway.send(request(method, path, Some(POLICY_KEY), &body).as_bytes()).await
}

/// The JSON of an answer that has this status.
#[track_caller]
fn told(reply: &Reply, status: u16) -> Value {
    assert_eq!(reply.status, status, "{}", reply.text());
    reply.json()
}

#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str, field: Option<&str>) {
    let body = reply.json();
    assert_eq!((reply.status, &body["error"]["code"]), (status, &json!(code)), "{body}");
    assert_eq!(body["error"]["field"].as_str(), field, "{body}");
}

fn big_refunds() -> Value {
    json!({
        "id": "big-refunds", "mode": "shadow", "effect": "deny", "message": "Refunds end at 500.",
        "match": {"tools": ["ref*"], "when": [{"pointer": "/amount", "operator": "greater_than", "threshold": 500}]},
    })
}

#[tokio::test]
async fn only_a_key_of_policies_sees_and_changes_them() {
    let (_world, gateway) = started().await;
    for (method, path) in [
        ("GET", "/v1/policies"),
        ("POST", "/v1/policies"),
        ("GET", "/v1/policies/of-file"),
        ("PATCH", "/v1/policies/of-file"),
        ("DELETE", "/v1/policies/of-file"),
        ("POST", "/v1/policies/of-file/enforce"),
        ("GET", "/v1/policies/of-file/shadow"),
        ("POST", "/v1/policies/simulate"),
        ("PUT", "/v1/tools/refund/policy"),
        ("POST", "/v1/tools/refund/policy/promote"),
        ("GET", "/v1/tools/refund/policy/shadow"),
    ] {
        let reply = gateway.send(request(method, path, Some(READ_KEY), "{}").as_bytes()).await;
        refused(&reply, 403, "missing_scope", None);
        let reply = gateway.send(request(method, path, None, "{}").as_bytes()).await;
        refused(&reply, 401, "unauthorized", None);
    }
    let path = "/v1/tools/refund/policy";
    let reply = gateway.send(request("GET", path, Some(READ_KEY), "").as_bytes()).await;
    assert_eq!(told(&reply, 200)["effect"], "allow");
    gateway.finish().await;
}

/// Requirement S1-049.
#[tokio::test]
async fn a_policy_that_is_enforced_refuses_the_next_call() {
    let (world, gateway) = started().await;
    let reply = ask(&gateway, "POST", "/v1/policies", big_refunds()).await;
    let made = told(&reply, 201);
    assert_eq!(reply.header("location"), Some("/v1/policies/big-refunds"));
    assert_eq!((&made["version"], &made["managed"]), (&json!(1), &json!("api")));
    assert_eq!(made["rule"], "/amount greater_than 500");
    for (amount, disagrees) in [(501, true), (500, false), (900, true)] {
        let outcome = gateway.call("refund", json!({ "amount": amount })).await;
        outcome.succeeded();
        assert_eq!(outcome.at("/decision/effect"), json!("allow"));
        let shadow = outcome.at("/decision/shadow").to_string();
        assert_eq!(shadow.contains("big-refunds"), disagrees, "{shadow}");
    }
    gateway.call("lookup", json!({})).await.succeeded();
    let report =
        told(&ask(&gateway, "GET", "/v1/policies/big-refunds/shadow", Value::Null).await, 200);
    let numbers = json!({"tool": "refund", "calls": 3, "matched": 2, "disagreements": 2});
    assert_eq!(report["by_tool"], json!([numbers]));
    for name in ["calls", "matched", "disagreements"] {
        assert_eq!(report[name], numbers[name], "{report}");
    }
    assert_eq!((&report["would"], &report["days"]), (&json!("deny"), &json!(7)));
    assert_eq!(report["samples"].as_array().map(Vec::len), Some(2));
    let of_file =
        told(&ask(&gateway, "GET", "/v1/policies/of-file/shadow?days=1", Value::Null).await, 200);
    assert_eq!((&of_file["calls"], &of_file["disagreements"]), (&json!(4), &json!(4)));

    let enforced =
        told(&ask(&gateway, "POST", "/v1/policies/big-refunds/enforce", Value::Null).await, 200);
    assert_eq!((&enforced["mode"], &enforced["version"]), (&json!("enforce"), &json!(2)));
    let outcome = gateway.call("refund", json!({"amount": 501})).await;
    outcome.refused("denied", None);
    assert_eq!(outcome.model_text(), "This call is not allowed. Refunds end at 500.");
    assert_eq!(outcome.at("/decision/policy"), json!("big-refunds"));
    assert_eq!(outcome.at("/decision/rule"), json!("/amount greater_than 500"));
    assert_eq!(world.upstream.requests().len(), 4);

    assert_eq!(ask(&gateway, "DELETE", "/v1/policies/big-refunds", Value::Null).await.status, 204);
    gateway.call("refund", json!({"amount": 501})).await.succeeded();
    refused(
        &ask(&gateway, "GET", "/v1/policies/big-refunds", Value::Null).await,
        404,
        "not_found",
        None,
    );
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_policy_is_named() {
    let (_world, gateway) = started().await;
    let condition = |fields: Value| {
        let mut condition = json!({"pointer": "/amount", "operator": "equals", "threshold": 5});
        condition
            .as_object_mut()
            .expect("an object")
            .extend(fields.as_object().expect("one").clone());
        json!({"effect": "deny", "match": {"when": [condition]}})
    };
    for (policy, field) in [
        (condition(json!({"operator": "over"})), "/match/when/0/operator"),
        (condition(json!({"pointer": "amount"})), "/match/when/0/pointer"),
        (condition(json!({"operator": "in", "threshold": 5})), "/match/when/0/threshold"),
        (json!({"effect": "forbid"}), "/effect"),
        (json!({"mode": "shadow"}), "/effect"),
        (json!({"effect": "deny", "id": "Big"}), "/id"),
        (json!({"effect": "deny", "expires_minutes": 0}), "/expires_minutes"),
        (json!({"effect": "deny", "matches": {}}), "/matches"),
        (json!({"effect": "deny", "match": {"agents": []}}), "/match/agents"),
    ] {
        let reply = ask(&gateway, "POST", "/v1/policies", policy.clone()).await;
        refused(&reply, 422, "invalid_definition", Some(field));
        let body = json!({ "policy": policy });
        let reply = ask(&gateway, "POST", "/v1/policies/simulate", body).await;
        refused(&reply, 422, "invalid_definition", Some(&format!("/policy{field}")));
    }
    for body in ["[]", "{", "{\"effect\":\"deny\",\"effect\":\"allow\"}"] {
        let bytes = request("POST", "/v1/policies", Some(POLICY_KEY), body);
        let reply = gateway.send(bytes.as_bytes()).await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("bad_request")));
    }
    for days in ["0", "91", "x", "7.0", "+7", ""] {
        let path = format!("/v1/policies/of-file/shadow?days={days}");
        refused(&ask(&gateway, "GET", &path, Value::Null).await, 400, "bad_request", None);
    }
    let list = told(&ask(&gateway, "GET", "/v1/policies", Value::Null).await, 200);
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1), "{list}");
    gateway.finish().await;
}

#[tokio::test]
async fn a_policy_of_the_file_is_shown_and_changes_there() {
    let (_world, gateway) = started().await;
    let shown = told(&ask(&gateway, "GET", "/v1/policies/of-file", Value::Null).await, 200);
    let expected = json!({
        "id": "of-file", "managed": "file", "version": 1, "mode": "shadow", "match": {},
        "effect": "ask_first", "message": null, "expires_minutes": 60, "priority": 0, "rule": null,
        "error": null, "created_at": null, "updated_at": null,
    });
    assert_eq!(shown, expected);
    let path = "/v1/policies/of-file";
    for (method, path, body) in [
        ("PATCH", path, json!({"mode": "enforce"})),
        ("DELETE", path, Value::Null),
        ("POST", "/v1/policies/of-file/enforce", Value::Null),
        ("PUT", "/v1/tools/refund/policy", json!({"effect": "deny"})),
        ("POST", "/v1/tools/refund/policy/promote", Value::Null),
    ] {
        refused(&ask(&gateway, method, path, body).await, 409, "file_managed", None);
    }
    let taken = json!({"id": "of-file", "effect": "deny"});
    refused(&ask(&gateway, "POST", "/v1/policies", taken).await, 409, "name_taken", None);
    for path in ["/v1/policies/other", "/v1/policies/other/shadow", "/v1/tools/other/policy/shadow"]
    {
        refused(&ask(&gateway, "GET", path, Value::Null).await, 404, "not_found", None);
    }
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_sent_changes_and_null_clears() {
    let (_world, gateway) = started().await;
    let made = told(
        &ask(&gateway, "POST", "/v1/policies", json!({"effect": "deny", "mode": "shadow"})).await,
        201,
    );
    let id = made["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("pol_") && id.len() == 20, "{id}");
    let path = format!("/v1/policies/{id}");
    let change = async |body: Value| ask(&gateway, "PATCH", &path, body).await;
    let matching = json!({"tools": ["refund"], "permission": "WRITE"});
    let body = json!({"message": "No.", "match": matching, "expected_version": 1});
    let changed = told(&change(body).await, 200);
    assert_eq!((&changed["message"], &changed["match"]), (&json!("No."), &matching));
    assert_eq!((&changed["version"], &changed["mode"]), (&json!(2), &json!("shadow")));
    let changed = told(&change(json!({"message": null, "match": {"permission": null}})).await, 200);
    assert_eq!(
        (&changed["message"], &changed["match"]),
        (&Value::Null, &json!({"tools": ["refund"]}))
    );
    refused(
        &change(json!({"priority": 1, "expected_version": 2})).await,
        409,
        "version_conflict",
        None,
    );
    refused(
        &change(json!({"expected_version": "3"})).await,
        400,
        "bad_request",
        Some("/expected_version"),
    );
    refused(&change(json!({"effect": null})).await, 422, "invalid_definition", Some("/effect"));
    refused(&change(json!({"id": "other"})).await, 422, "invalid_definition", Some("/id"));
    let same = told(&change(json!({"id": id, "expected_version": 3})).await, 200);
    assert_eq!(same["version"], 3, "nothing changed");
    let again = json!({"id": id, "effect": "deny"});
    refused(&ask(&gateway, "POST", "/v1/policies", again).await, 409, "name_taken", None);
    let list = told(&ask(&gateway, "GET", "/v1/policies", Value::Null).await, 200);
    let ids: Vec<_> =
        list["data"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!("of-file"), &json!(id)]);
    gateway.finish().await;
}

/// Requirement S1-047b. Nobody is asked less while the candidate is tried.
#[tokio::test]
async fn a_looser_candidate_s_report_says_what_people_decided() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let tried = |effect: &str| json!({"effect": effect, "shadow": {"effect": "allow"}});
    let config = world.config().tool(world.tool("refund").set("policy", tried("require_approval")));
    let config = config.tool(world.tool("book").set("policy", tried("ask_first")));
    let scopes = json!({"scopes": ["agent:policy", "agent:approve"]});
    let config = config.key("desk", POLICY_KEY, scopes).set("/limits/confirm_for", json!("1s"));
    let gateway = config.start().await;
    let asked = gateway.call("book", json!({})).await;
    assert_eq!(asked.0.status, 202, "{}", asked.0.text());
    let verdicts = [["approve"; 7].as_slice(), &["reject"; 2]].concat();
    for nth in 0..10 {
        let call = gateway.call("refund", json!({ "amount": nth })).await;
        assert_eq!(call.0.status, 202, "{}", call.0.text());
        let shadow = json!([{"policy": "candidate", "effect": "allow", "rule": null}]);
        assert_eq!(call.at("/decision/shadow"), shadow);
        let Some(verb) = verdicts.get(nth) else { continue };
        let id = call.at("/approval/id");
        let path = format!("/v1/approvals/{}/{verb}", id.as_str().expect("an id"));
        let digest = json!({"arguments_digest": call.at("/approval/arguments_digest")});
        told(&ask(&gateway, "POST", &path, digest).await, 200);
    }
    let id = asked.id();
    let ended = request("GET", &format!("/v1/calls/{id}?wait_ms=20000"), Some(API_KEY), "");
    assert_eq!(
        told(&gateway.send(ended.as_bytes()).await, 200)["error"]["code"],
        "approval_expired"
    );
    let report = async |tool: &str| {
        let path = format!("/v1/tools/{tool}/policy/shadow");
        let report = told(&ask(&gateway, "GET", &path, Value::Null).await, 200);
        ["calls", "would_run_unasked", "approved", "rejected", "expired"]
            .map(|name| report[name].as_u64().unwrap_or_else(|| panic!("{report}")))
    };
    assert_eq!(report("refund").await, [10, 10, 7, 2, 0], "on one nobody has decided yet");
    assert_eq!(report("book").await, [1, 1, 0, 0, 1]);
    assert_eq!(world.upstream.wait_for_requests(7).await.len(), 7);
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_null_is_left_out_of_a_policy_that_is_kept_or_tried() {
    let (_world, gateway) = started().await;
    let matching = json!({"tools": null, "kinds": ["webhook"], "agents": null, "when": null});
    let policy =
        json!({"id": null, "mode": null, "effect": "deny", "message": null, "match": matching});
    let body = json!({"policy": policy, "days": null});
    let report = told(&ask(&gateway, "POST", "/v1/policies/simulate", body).await, 200);
    assert_eq!((&report["policy"], &report["days"]), (&json!("unnamed"), &json!(7)));
    let kept = told(&ask(&gateway, "POST", "/v1/policies", policy).await, 201);
    assert_eq!(kept["match"], json!({"kinds": ["webhook"]}));
    gateway.finish().await;
}
