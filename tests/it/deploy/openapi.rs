//! The description of the API: good by the rules of OpenAPI, served to everybody, and true.

mod fuzzed;

use std::fs;

use serde_json::{Value, json};

use super::{Venv, shipped, venv};
use crate::support::config::API_KEY;
use crate::support::described::{wrong, wrong_event};
use crate::support::gateway::Gateway;
use crate::support::http::{Reply, exchange, get, post, request};
use crate::support::languages::good;
use crate::support::world::World;

/// Everything that is installed, so that each run has the same.
const PACKAGES: &str = include_str!("../../deploy/openapi.txt");

/// The Python that has them.
fn python() -> Option<Venv> {
    venv(&PACKAGES.lines().collect::<Vec<_>>())
}

async fn served(gateway: &Gateway, tags: &str) -> Reply {
    let request = format!(
        "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nIf-None-Match: {tags}\r\n\r\n"
    );
    gateway.send(request.as_bytes()).await
}

#[tokio::test]
async fn it_is_served_without_a_key_and_known_by_its_tag() {
    let world = World::plain().await;
    let gateway = world.config().tool(world.tool("lookup")).start().await;
    let first = gateway.send(&get("/openapi.json")).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    assert_eq!(first.header("cache-control"), Some("no-cache"));
    assert_eq!(first.json()["openapi"], "3.1.1");
    let tag = first.header("etag").expect("a tag").to_owned();
    let again = served(&gateway, "\"other\"").await;
    assert_eq!((again.status, again.body), (200, first.body));
    for tags in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
        let known = served(&gateway, &tags).await;
        assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(&*tag)));
    }
    let other = gateway.send(request("POST", "/openapi.json", None, "{}").as_bytes()).await;
    assert_eq!((other.status, other.header("allow")), (405, Some("GET,HEAD")));
    gateway.finish().await;
}

#[tokio::test]
async fn a_validator_of_openapi_finds_nothing() {
    let Some(python) = python() else { return };
    let world = World::plain().await;
    let gateway = world.config().tool(world.tool("lookup")).start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("openapi.json");
    let text = gateway.send(&get("/openapi.json")).await.text();
    fs::write(&path, &text).expect("a written file");
    let written = shipped("config/openapi.yaml");
    good(
        python.program("openapi-spec-validator").args(["--schema", "3.1"]).args([&path, &written]),
    );
    // And it would find something.
    fs::write(&path, text.replacen("\"responses\":{", "\"responses\":{\"ok\":{},", 1))
        .expect("a written file");
    let output = python.program("openapi-spec-validator").arg(&path).output().expect("it starts");
    assert!(!output.status.success(), "{output:?}");
    gateway.finish().await;
}

/// A gateway's answer to a call, and what is made of it.
async fn changed(change: impl FnOnce(&mut Value)) -> Option<String> {
    let world = World::plain().await;
    let gateway = world.config().tool(world.tool("lookup")).start().await;
    let asked = post("/v1/calls", Some(API_KEY), r#"{"tool":"nobody","arguments":{}}"#);
    let mut reply = exchange(gateway.api(), &asked).await;
    let mut body = reply.json();
    change(&mut body);
    reply.body = body.to_string().into_bytes();
    gateway.finish().await;
    wrong(&asked, &reply)
}

#[tokio::test]
async fn an_answer_that_is_not_described_is_found() {
    assert_eq!(changed(|_| {}).await, None);
    for (pointer, value) in [
        ("/status", json!("done")),
        ("/error/code", json!("unknown")),
        ("/error", Value::Null),
        ("/result", json!(1)),
        ("/created_at", json!("2026-12-01 08:00:00")),
        ("/model/text", Value::Null),
    ] {
        let wrong = changed(|body| *body.pointer_mut(pointer).expect("a field") = value).await;
        assert!(wrong.is_some_and(|wrong| wrong.starts_with("POST /v1/calls: the body of 200")));
    }
    let more = changed(|body| body["more"] = json!(1)).await.expect("a field too many");
    assert!(more.contains("more"), "{more}");
    let less = changed(|body| drop(body.as_object_mut().expect("an object").remove("test"))).await;
    assert!(less.expect("a field too few").contains("\"test\" is a required property"));
}

#[test]
fn a_status_a_type_and_a_parameter_that_are_not_described_are_found() {
    fn reply(status: u16, kind: &str, body: &str) -> Reply {
        let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n\r\n");
        Reply { status, head, body: body.into() }
    }
    #[track_caller]
    fn check(request: &str, reply: &Reply, found: Option<&str>) {
        let said = wrong(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes(), reply);
        match found {
            None => assert_eq!(said, None),
            Some(found) => assert!(said.as_ref().is_some_and(|it| it.contains(found)), "{said:?}"),
        }
    }
    let list = reply(200, "application/json", r#"{"data":[]}"#);
    check("GET /v1/policies", &list, None);
    check("GET /v1/policies?page=1", &list, Some("the parameter page"));
    check("GET /v1/policies", &reply(418, "application/json", "{}"), Some("the status 418"));
    check("GET /v1/policies", &reply(200, "text/plain", "fine"), Some("the type"));
    check("GET /v1/nothing", &list, Some("200 of no path"));
    check("BREW /v1/policies", &list, Some("200 of no method"));
    check(
        "GET /v1/calls/call_1234",
        &reply(202, "application/json", "{}"),
        Some("without Location"),
    );
    check(
        "DELETE /v1/policies/one",
        &reply(204, "application/json", "{}"),
        Some("204 with a body"),
    );
}

#[test]
fn an_event_that_is_not_described_is_found() {
    let end = json!({"type": "tool.end", "call_id": "call_1234", "ok": true, "ms": 1, "session_id": null, "turn_id": null});
    assert_eq!(wrong_event("tool.end", &end), None);
    assert!(wrong_event("tool.start", &end).is_some());
    assert!(wrong_event("reset", &json!({"type": "lagged"})).is_some());
}
