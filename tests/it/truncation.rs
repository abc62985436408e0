//! Long answers at the limits that the profiles have.

use serde_json::json;

use crate::support::script::{Script, answer};
use crate::support::world::World;

#[tokio::test]
async fn a_cut_json_answer_is_text() {
    let world = World::tls().await;
    let body = json!({"long": "x".repeat(40_000)}).to_string();
    world.upstream.default(Script::always(answer(200, "application/json", &body)));
    let gateway = world.gateway(world.tool("json")).await;
    let outcome = gateway.call("json", json!({})).await;
    // The default profile's limit.
    assert_eq!(outcome.succeeded(), json!(body[..32_768]));
    let note = format!("\n[Cut: the first 32768 of {} bytes are shown.]", body.len());
    assert_eq!(outcome.model_text(), format!("{}{note}", &body[..32_768]));
    gateway.finish().await;
}

#[tokio::test]
async fn bare_v1_shows_262144_bytes_and_no_more() {
    let world = World::tls().await;
    let tools = [("at", 262_144), ("past", 262_145)];
    world.upstream.default(Script::responding(|request| {
        let count = if request.line().contains("/at ") { 262_144 } else { 262_145 };
        answer(200, "text/plain", "x".repeat(count))
    }));
    let mut config = world.config();
    for (name, _) in tools {
        config = config.tool(world.tool(name).profile("bare-v1"));
    }
    let gateway = config.start().await;
    for (name, bytes) in tools {
        let outcome = gateway.call(name, json!({})).await;
        assert_eq!(outcome.succeeded().as_str().map(str::len), Some(262_144), "{name}");
        assert_eq!(outcome.at("/truncated"), json!(bytes > 262_144), "{name}");
        assert_eq!(outcome.at("/result_bytes"), json!(bytes), "{name}");
    }
    gateway.finish().await;
}
