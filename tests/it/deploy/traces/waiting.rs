//! Calls that end while they wait for a person: each is a span of the trace that it was asked in.

use serde_json::json;

use super::{PARENT, TRACE, call_within, header, traced, traceparent};
use crate::deploy::traces::collector::Collector;
use crate::support::config::API_KEY;
use crate::support::http::request;
use crate::support::world::World;

const APPROVER: &str = "sk-approver-Kc5Tn8WqYb3Rz7Lf";

#[tokio::test]
async fn a_call_that_ends_while_it_waits_is_one_span() {
    let Some(collector) = Collector::plain().await else { return };
    let world = World::plain().await;
    let refund = world.tool("refund").set("policy", json!("require_approval"));
    let book = world.tool("book").set("policy", json!("ask_first"));
    let config = world.config().tool(refund).tool(book).set("/limits/confirm_for", json!("1s"));
    let config = config.key("approver", APPROVER, json!({"scopes": ["agent:approve"]}));
    let gateway = traced(config, &collector.url("127.0.0.1")).start().await;
    let ask = async |tool: &str| {
        let body = json!({"tool": tool, "arguments": {}});
        let call = call_within(&gateway, &[header(&traceparent("01"))], body).await;
        assert_eq!(call.at("/status"), "waiting_approval", "{call:?}");
        call
    };
    let (late, declined, taken_back) =
        (ask("book").await, ask("refund").await, ask("refund").await);
    let id = declined.at("/approval/id");
    let path = format!("/v1/approvals/{}/reject", id.as_str().expect("an approval"));
    let body = json!({"arguments_digest": declined.at("/approval/arguments_digest")}).to_string();
    let reply = gateway.send(request("POST", &path, Some(APPROVER), &body).as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let path = format!("/v1/calls/{}/cancel", taken_back.id());
    let reply = gateway.send(request("POST", &path, Some(API_KEY), "").as_bytes()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());

    let spans = collector.trace(TRACE, 3).await;
    for (call, name, code) in [
        (late, "execute_tool book", "approval_expired"),
        (declined, "execute_tool refund", "rejected"),
        (taken_back, "execute_tool refund", "cancelled"),
    ] {
        let is_it = |span: &&super::Span| *span.attribute("sortie.call.id") == call.id();
        let span = spans.iter().find(is_it).unwrap_or_else(|| panic!("{code}: {spans:#?}"));
        assert_eq!((span.text("name"), span.text("parent")), (name, PARENT));
        assert_eq!(span.span["status"], "STATUS_CODE_ERROR");
        let expected = [
            ("error.type", json!(code)),
            ("sortie.call.status", json!("refused")),
            ("sortie.call.outcome", json!("not_sent")),
            ("sortie.call.attempts", json!(0)),
        ];
        for (attribute, value) in expected {
            assert_eq!(*span.attribute(attribute), value, "{code}: {attribute}");
        }
        let [begin, end] = span.time();
        assert!(begin <= end, "{span:?}");
    }
    gateway.finish().await;
}
