//! The catalogue as a runtime meets it: which tools it is told of, and which of them its agent may call.

mod agents;
mod exports;
mod lists;

use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::http::{Reply, request};

/// A key that reads and calls.
const KEY: &str = "sk-desk-Qm72xTz9Lw4Rv8KpYb";

/// Gets a path with [`KEY`].
async fn get(gateway: &Gateway, path: &str) -> Reply {
    gateway.send(request("GET", path, Some(KEY), "").as_bytes()).await
}

/// Fails unless the answer is a 200 with JSON.
async fn json(gateway: &Gateway, path: &str) -> Value {
    let reply = get(gateway, path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    reply.json()
}

/// The names in an answer without a format.
fn names(list: &Value) -> Vec<&str> {
    let data = list["data"].as_array().expect("a list");
    data.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

/// Fails unless the answer is this error.
#[track_caller]
fn refused(reply: &Reply, status: u16, code: &str) -> String {
    let body = reply.json();
    assert_eq!((reply.status, body["error"]["code"].as_str()), (status, Some(code)), "{body}");
    body["error"]["message"].as_str().expect("a message").to_owned()
}
