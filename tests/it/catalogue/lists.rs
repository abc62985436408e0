//! The lists without a format: fields, pages, tags, and who may read them.

use serde_json::{Value, json};

use super::{KEY, get, json, names, refused};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::Gateway;
use crate::support::http::{exchange, request};
use crate::support::script::Script;
use crate::support::world::World;

/// A gateway that nobody calls through, with a key that reads.
async fn reading(change: impl FnOnce(&World, ConfigBuilder) -> ConfigBuilder) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let config = world.config().key("desk", KEY, json!({"scopes": ["agent"]}));
    let gateway = change(&world, config).start().await;
    (world, gateway)
}

#[tokio::test]
async fn a_tool_is_shown_as_it_is_in_force() {
    let (world, gateway) = reading(|world, config| {
        let breaker = json!({"consecutive": 7, "window": "2m"});
        let limits = json!([{"per": "agent", "rate": "60/min", "burst": 10}]);
        let full = world
            .tool("lookup")
            .set("owner", json!("shop"))
            .set("runbook", json!("https://runbooks.example.com/lookup"))
            .set("policy", json!({"effect": "allow", "shadow": {"effect": "deny"}}))
            .set("annotations", json!({"destructive": true, "idempotent": true}))
            .set("timeout", json!("2s"))
            .set("filler", json!("One moment."))
            .set("breaker", breaker)
            .set("rate_limits", limits)
            .set("accept_credentials", json!(["X-User-Token"]))
            .set("result_max_bytes", json!("1KiB"))
            .header("X-Team", "", "team-canary-8Hq2");
        config
            .tool(full)
            .tool(world.tool("other").set("enabled", json!(false)))
            .tool(world.tool("lost"))
            .set("/tools/2/secret", json!({"current": {"file": "secrets/nowhere"}}))
            .set("/tools/2/parameters", Value::Null)
            .set("/tools/2/breaker", json!("off"))
    })
    .await;
    let port = world.upstream.port();
    let tool = json(&gateway, "/v1/tools/lookup").await;
    assert_eq!(
        tool,
        json!({
            "id": tool["id"],
            "name": "lookup",
            "owner": "shop",
            "runbook": "https://runbooks.example.com/lookup",
            "description": "Answers what its test has scripted; for tests of the gateway.",
            "kind": "webhook",
            "profile": "envelope-v1",
            "parameters": {"type": "object", "properties": {}},
            "url": format!("http://tool.example.com:{port}/lookup"),
            "timeout_ms": 2000,
            "header_names": ["X-Team"],
            "ask_first": false,
            "filler": "One moment.",
            "policy": {"effect": "allow", "shadow": {"effect": "deny"}},
            "annotations": {"read_only": false, "destructive": true, "idempotent": true},
            "result_max_bytes": 1024,
            "rate_limits": [{"per": "agent", "rate": "60/min", "burst": 10}],
            "concurrency": 256,
            "accept_credentials": ["X-User-Token"],
            "breaker": {"consecutive": 7, "failure_ratio": 0.5, "min_calls": 10, "window": "2m", "open_for": "30s", "max_open_for": "10m"},
            "enabled": true,
            "unavailable": null,
            "secret_hint": null,
            "agent_ids": null,
            "version": 1,
        })
    );
    let id = tool["id"].as_str().expect("an id").to_owned();
    assert!(id.starts_with("tl_") && id.len() == 19, "{id}");
    assert_eq!(json(&gateway, &format!("/v1/tools/{id}")).await, tool);

    let list = json(&gateway, "/v1/tools").await;
    assert_eq!(names(&list), ["lookup", "lost", "other"]);
    assert_eq!((&list["data"][0], &list["next_cursor"]), (&tool, &Value::Null));
    let lost = &list["data"][1];
    let text = "The tool is not configured: a secret of it is missing.";
    assert_eq!((&lost["unavailable"], &lost["enabled"]), (&json!(text), &json!(true)));
    assert_eq!((&lost["parameters"], &lost["breaker"]), (&Value::Null, &Value::Null));
    assert_eq!(list["data"][2]["enabled"], json!(false));
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn a_schema_is_shown_as_it_is_written_and_a_url_without_its_query() {
    let (world, gateway) = reading(|world, config| {
        let schema = r#"{"type":"object","properties":{"z":{"type":"number","maximum":1e2},"a":{"type":"number","minimum":-0.50}}}"#;
        let tool = world
            .tool("lookup")
            .profile("bare-v1")
            .parameters(json!("SCHEMA"))
            .set("url", json!("https://shop.example.com/x?token=canary-4Tz81q"));
        let config = config.tool(tool).watch("canary-4Tz81q");
        let text = config.text().replace("\"SCHEMA\"", schema);
        config.raw(&text)
    })
    .await;
    let reply = get(&gateway, "/v1/tools").await;
    let text = reply.text();
    assert!(text.contains(r#""properties":{"z":{"type":"number","maximum":1e2},"a":{"type":"number","minimum":-0.50}}"#), "{text}");
    assert!(text.contains(r#""url":"https://shop.example.com/x?***""#), "{text}");
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn pages_follow_each_other_by_name() {
    let (_world, gateway) = reading(|world, config| {
        ["e", "b", "d", "a", "c"]
            .into_iter()
            .fold(config, |config, name| config.tool(world.tool(name)))
    })
    .await;
    let (mut path, mut seen) = ("/v1/tools?limit=2".to_owned(), Vec::new());
    loop {
        let list = json(&gateway, &path).await;
        seen.push(names(&list).join(""));
        let Some(cursor) = list["next_cursor"].as_str() else { break };
        path = format!("/v1/tools?kind=webhook&limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ["ab", "cd", "e"]);
    assert_eq!(json(&gateway, "/v1/tools?limit=5").await["next_cursor"], Value::Null);
    assert_eq!(
        json(&gateway, "/v1/tools?kind=app").await,
        json!({"data": [], "next_cursor": null})
    );
    for (query, part) in [
        ("limit=0", "`limit` must be a whole number from 1 to 1000"),
        ("limit=1001", "`limit`"),
        ("cursor=%00", "`cursor`"),
        ("kind=builtin", "`kind` must be webhook or app"),
        ("limit=1&limit=2", "stands twice"),
        ("page=2", "`page` is not known; known are format, kind, limit, cursor"),
    ] {
        let reply = get(&gateway, &format!("/v1/tools?{query}")).await;
        let message = refused(&reply, 400, "bad_request");
        assert!(message.contains(part), "{query}: {message}");
    }
    refused(&get(&gateway, "/v1/tools/a?limit=1").await, 400, "bad_request");
    gateway.finish().await;
}

#[tokio::test]
async fn what_did_not_change_is_not_sent_again() {
    let (_world, gateway) =
        reading(|world, config| config.tool(world.tool("a")).tool(world.tool("b"))).await;
    let first = get(&gateway, "/v1/tools").await;
    let tag = first.header("etag").expect("a tag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == 34, "{tag}");
    assert_eq!(first.header("cache-control"), Some("private, no-cache"));
    let ask = |tag: &str| {
        let lines = format!("Connection: close\r\nIf-None-Match: {tag}\r\n");
        request("GET", "/v1/tools", Some(KEY), "").replace("Connection: close\r\n", &lines)
    };
    let again = exchange(gateway.api(), ask(&tag).as_bytes()).await;
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(&*tag)));
    assert_eq!(again.header("cache-control"), Some("private, no-cache"));
    let other = exchange(gateway.api(), ask("\"0\"").as_bytes()).await;
    assert_eq!((other.status, other.body == first.body), (200, true));
    assert_ne!(get(&gateway, "/v1/tools?limit=1").await.header("etag"), Some(&*tag));
    gateway.finish().await;
}

#[tokio::test]
async fn only_the_scope_agent_reads() {
    let (_world, gateway) = reading(|world, config| config.tool(world.tool("a"))).await;
    for path in ["/v1/tools", "/v1/tools/a", "/v1/agents/x/tools"] {
        let ask = |key| request("GET", path, key, "");
        refused(&gateway.send(ask(None).as_bytes()).await, 401, "unauthorized");
        let reply = gateway.send(ask(Some(API_KEY)).as_bytes()).await;
        let message = refused(&reply, 403, "missing_scope");
        assert_eq!(message, "the key `test-runtime` does not have the scope `agent`");
        let reply = gateway.send(request("DELETE", path, Some(KEY), "").as_bytes()).await;
        refused(&reply, 405, "method_not_allowed");
    }
    for path in ["/v1/tools/b", "/v1/tools/", "/v1/tools/tl_0000000000000000", "/v1/agents/x"] {
        refused(&get(&gateway, path).await, 404, "not_found");
    }
    gateway.finish().await;
}
