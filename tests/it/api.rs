//! The calls API as a runtime meets it: who may call, what a request must be, and that nothing else gets through.

mod bodies;
mod draining;
mod fields;
mod keys;
mod requests;

use serde_json::{Value, json};

use crate::support::config::ConfigBuilder;
use crate::support::gateway::Gateway;
use crate::support::http::Reply;
use crate::support::script::Script;
use crate::support::world::World;

/// A call that would run, were it let in.
const CALL: &str = r#"{"tool":"lookup","arguments":{},"run_id":"run_7Hq2xV","step":"3"}"#;

/// A gateway whose tool must not be reached: [`untouched`] looks.
async fn closed_door(change: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let config = change(world.config().tool(world.tool("lookup")));
    let gateway = config.start().await;
    (world, gateway)
}

/// The end of such a test.
async fn untouched(world: World, gateway: Gateway) {
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

/// Fails unless the answer is this error of the API, in its one shape; its message.
#[track_caller]
pub(crate) fn error(reply: &Reply, status: u16, code: &str, field: Option<&str>) -> String {
    let text = reply.text();
    assert_eq!(reply.header("content-type"), Some("application/json"), "{}{text}", reply.head);
    let body = reply.json();
    let found = |name: &str| body["error"][name].clone();
    let expected = (status, json!(code), json!(field));
    assert_eq!((reply.status, found("code"), found("field")), expected, "{text}");
    let message = found("message").as_str().expect("a message").to_owned();
    let id = found("request_id").as_str().expect("a request id").to_owned();
    assert!(id.starts_with("req_") && id.len() == 20, "{text}");
    let shape = format!(
        r#"{{"error":{{"code":{},"message":{},"field":{},"request_id":{}}}}}"#,
        json!(code),
        json!(message),
        json!(field),
        json!(id)
    );
    assert_eq!(text, shape);
    assert!(!message.is_empty() && !message.ends_with('.'), "{message}");
    message
}

/// A whole request with these lines between the request line and the empty line.
fn request(line: &str, lines: &[&str], body: &str) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{line}\r\n{lines}\r\n{body}").into_bytes()
}

/// A call with some fields changed.
fn call_with(changes: Value) -> String {
    let mut call: Value = serde_json::from_str(CALL).expect("a call");
    for (name, value) in changes.as_object().expect("an object") {
        call[name] = value.clone();
    }
    call.to_string()
}
