//! Calls that wait: for an operator, for the person, for both; what drops them, and what they run as.

mod asked;
mod dispatch;
mod full;
mod replicas;
mod survival;

use serde_json::{Value, json};

use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::{Reply, request};
use crate::support::script::{Script, answer};
use crate::support::world::World;

const APPROVER: &str = "sk-approver-Tm5QzL9wXc3VbN8k";

/// One tool `refund` with this policy, calls kept in a file, and a key that decides.
async fn config(policy: &str) -> (World, ConfigBuilder) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", r#"{"paid":true}"#)));
    let tool = world.tool("refund").set("policy", json!(policy));
    let config = world.config().tool(tool).set("/storage", json!({"url": "sqlite:calls.db"})).key(
        "approver",
        APPROVER,
        json!({"scopes": ["agent:approve"]}),
    );
    (world, config)
}

async fn ask(gateway: &Gateway, key: &str, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    gateway.send(request(method, path, Some(key), &body).as_bytes()).await
}

/// A call as it is now.
async fn read(gateway: &Gateway, id: &str) -> Outcome {
    Outcome(ask(gateway, API_KEY, "GET", &format!("/v1/calls/{id}"), &Value::Null).await)
}

/// A call once it has ended.
async fn end(gateway: &Gateway, id: &str) -> Outcome {
    let path = format!("/v1/calls/{id}?wait_ms=30000");
    Outcome(ask(gateway, API_KEY, "GET", &path, &Value::Null).await)
}

#[track_caller]
fn waits(outcome: &Outcome) -> String {
    let found = (outcome.0.status, outcome.at("/status"));
    assert_eq!(found, (202, json!("waiting_approval")), "{}", outcome.0.text());
    outcome.id()
}

/// The operator's yes or no to what a waiting call is about.
async fn decide(gateway: &Gateway, waiting: &Outcome, verb: &str) -> Reply {
    let id = waiting.at("/approval/id");
    let path = format!("/v1/approvals/{}/{verb}", id.as_str().expect("an approval"));
    let body = json!({"arguments_digest": waiting.at("/approval/arguments_digest")});
    ask(gateway, APPROVER, "POST", &path, &body).await
}

#[track_caller]
fn approved(reply: &Reply) {
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (200, &json!("approved")),
        "{}",
        reply.text()
    );
}
