//! `agents`: an agent calls and is told of the tools that it is offered, and of no other.

use serde_json::{Value, json};

use super::{KEY, get, json, names, refused};
use crate::support::config::ConfigBuilder;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// Four tools of one server.
fn tools(world: &World) -> ConfigBuilder {
    let tool = |name: &str| world.tool(name).profile("plain-v1").no_secret();
    world
        .config()
        .tool(tool("orders.get"))
        .tool(tool("orders.list"))
        .tool(tool("lookup"))
        .tool(tool("quote").set("enabled", json!(false)))
}

fn configured(world: &World) -> ConfigBuilder {
    let agents = json!([
        {"id": "support", "tools": ["orders.*", "lookup"]},
        {"id": "sales", "tools": ["quote"]},
    ]);
    tools(world).set("/agents", agents)
}

async fn open(change: impl FnOnce(ConfigBuilder) -> ConfigBuilder) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = change(configured(&world)).start().await;
    (world, gateway)
}

async fn reading(fields: Value) -> (World, Gateway) {
    open(|config| config.key("desk", KEY, fields)).await
}

#[tokio::test]
async fn a_call_of_another_agent_s_tool_is_refused() {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = configured(&world).start().await;
    for (agent, tool) in [
        (json!("sales"), "lookup"),
        (json!("nobody"), "lookup"),
        (json!("Support"), "lookup"),
        (Value::Null, "lookup"),
        // What it is not offered, it is not told more of.
        (json!("support"), "quote"),
    ] {
        let call = json!({"tool": tool, "arguments": {}, "agent_id": agent});
        let outcome = gateway.call_with(call).await;
        outcome.refused("not_on_agent", None);
        assert_eq!(outcome.model_text(), format!("The tool \"{tool}\" is turned off."));
    }
    let call = json!({"tool": "quote", "arguments": {}, "agent_id": "sales"});
    gateway.call_with(call).await.refused("tool_disabled", None);
    let call = json!({"tool": "nothing", "arguments": {}, "agent_id": "sales"});
    gateway.call_with(call).await.refused("unknown_tool", None);
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn an_agent_calls_what_it_is_offered() {
    let (world, gateway) = open(|config| config).await;
    for tool in ["orders.get", "orders.list", "lookup"] {
        let call = json!({"tool": tool, "arguments": {}, "agent_id": "support"});
        gateway.call_with(call).await.succeeded();
    }
    assert_eq!(world.upstream.requests().len(), 3);
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_of_one_agent_has_its_tools_without_saying_it() {
    let fields = json!({"scopes": ["agent", "agent:call"], "agents": ["sales"]});
    let (_world, gateway) = reading(fields).await;
    let list = json(&gateway, "/v1/tools").await;
    assert_eq!(names(&list), ["quote"]);
    assert_eq!(list["data"][0]["agent_ids"], json!(["sales"]));
    assert_eq!(names(&json(&gateway, "/v1/agents/sales/tools").await), ["quote"]);
    for path in ["/v1/agents/support/tools", "/v1/agents/nobody/tools", "/v1/tools/lookup"] {
        refused(&get(&gateway, path).await, 404, "not_found");
    }
    let call = json!({"tool": "quote", "arguments": {}}).to_string();
    let outcome = Outcome(gateway.post(Some(KEY), call).await);
    outcome.refused("tool_disabled", None);
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_by_patterns_sees_what_both_bounds_hold() {
    let fields = json!({"scopes": ["agent"], "agents": ["sup*"], "tools": ["*.get", "quote"]});
    let (_world, gateway) = reading(fields).await;
    assert_eq!(names(&json(&gateway, "/v1/tools").await), ["orders.get"]);
    assert_eq!(names(&json(&gateway, "/v1/agents/support/tools").await), ["orders.get"]);
    refused(&get(&gateway, "/v1/agents/sales/tools").await, 404, "not_found");
    refused(&get(&gateway, "/v1/tools/quote").await, 404, "not_found");
    gateway.finish().await;
}

#[tokio::test]
async fn an_unbound_key_sees_each_agent_s_tools() {
    let (_world, gateway) = reading(json!({"scopes": ["agent"]})).await;
    let list = json(&gateway, "/v1/tools").await;
    assert_eq!(names(&list), ["lookup", "orders.get", "orders.list", "quote"]);
    let of_agent = json(&gateway, "/v1/agents/support/tools").await;
    assert_eq!(names(&of_agent), ["lookup", "orders.get", "orders.list"]);
    // A path's escapes are read: there is no agent `s ales`.
    refused(&get(&gateway, "/v1/agents/s%20ales/tools").await, 404, "not_found");
    assert_eq!(names(&json(&gateway, "/v1/agents/s%61les/tools").await), ["quote"]);
    refused(&get(&gateway, "/v1/agents/%ff/tools").await, 404, "not_found");
    gateway.finish().await;
}

#[tokio::test]
async fn without_agents_each_has_every_tool_within_the_key() {
    let fields = json!({"scopes": ["agent"], "agents": ["support-*"]});
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = tools(&world).key("desk", KEY, fields).start().await;
    let list = json(&gateway, "/v1/agents/support-eu/tools").await;
    assert_eq!(names(&list), ["lookup", "orders.get", "orders.list", "quote"]);
    assert_eq!(list["data"][0]["agent_ids"], Value::Null);
    refused(&get(&gateway, "/v1/agents/sales/tools").await, 404, "not_found");
    gateway.finish().await;
}

#[tokio::test]
async fn another_list_is_in_force_with_the_next_load() {
    let (world, gateway) = reading(json!({"scopes": ["agent"]})).await;
    let call =
        || gateway.call_with(json!({"tool": "lookup", "arguments": {}, "agent_id": "sales"}));
    call().await.refused("not_on_agent", None);
    let before = get(&gateway, "/v1/agents/sales/tools").await;
    let text = std::fs::read_to_string(&gateway.folder().config).expect("the file");
    let text = text.replace("\"quote\"\n", "\"quote\", \"lookup\"\n");
    gateway.folder().replace("sortie.yaml", &text);
    assert_eq!(gateway.admin("POST", "/reload", "").await.status, 200);
    call().await.succeeded();
    let after = get(&gateway, "/v1/agents/sales/tools").await;
    assert_eq!(names(&after.json()), ["lookup", "quote"]);
    assert_ne!(before.header("etag"), after.header("etag"));
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}
