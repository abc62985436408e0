//! What is not about tools is hot as well: how lines and series look, who may call, how the end goes.

use serde_json::json;

use super::{always, apply};
use crate::support::wait::poll;
use crate::support::world::World;

#[tokio::test]
async fn series_of_tools_that_stay_go_on_and_those_of_others_go() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = || world.config().tool(world.tool("stays"));
    let gateway = config().tool(world.tool("goes")).start().await;
    for tool in ["stays", "goes", "stays"] {
        gateway.call(tool, json!({})).await.succeeded();
    }
    let calls = async |tool: &str| {
        gateway.metrics().await.value("sortie_calls_total", &[("tool", tool), ("code", "ok")])
    };
    assert_eq!((calls("stays").await, calls("goes").await), (2.0, 1.0));
    apply(&gateway, &config().text()).await;
    gateway.call("stays", json!({})).await.succeeded();
    gateway.call("goes", json!({})).await.refused("unknown_tool", None);
    assert_eq!(calls("stays").await, 3.0);
    let text = gateway.metrics().await.text;
    assert!(!text.contains(r#"tool="goes""#), "{text}");
    // It comes back and begins anew.
    apply(&gateway, &config().tool(world.tool("goes")).text()).await;
    assert_eq!((calls("stays").await, calls("goes").await), (3.0, 0.0));
    // The label goes and comes.
    apply(&gateway, &config().set("/metrics/per_tool", json!(false)).text()).await;
    gateway.call("stays", json!({})).await.succeeded();
    let text = gateway.metrics().await.text;
    assert!(!text.contains(r#"tool="stays""#) && !text.contains("_unknown"), "{text}");
    assert_eq!(calls("").await, 1.0);
    apply(&gateway, &config().text()).await;
    gateway.call("stays", json!({})).await.succeeded();
    assert_eq!(calls("stays").await, 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn level_and_form_of_log_lines_change_with_the_file() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = |level: &str, format: &str| {
        let logging = json!({"level": level, "format": format});
        world.config().tool(world.tool("one")).set("/logging", logging)
    };
    let gateway = config("info", "json").start().await;
    gateway.call("one", json!({})).await.succeeded();
    apply(&gateway, &config("info", "text").set("/region", json!("two")).text()).await;
    let outcome = gateway.call("one", json!({})).await;
    let id = outcome.id();
    poll("lines as text", || async {
        let lines = gateway.texts();
        let call = lines.iter().any(|line| line.contains(&format!("call {id} tool=one")));
        let event = lines.iter().any(|line| line.contains(" INFO sortie::reload: "));
        (call && event).then_some(())
    })
    .await;
    apply(&gateway, &config("warn", "json").set("/region", json!("three")).text()).await;
    let before = gateway.texts().len();
    gateway.hang_up();
    super::wait_for(&gateway, "unchanged", 1).await;
    let outcome = gateway.call("one", json!({})).await;
    let id = outcome.id();
    poll("the line of a call", || async {
        let lines = gateway.texts().split_off(before);
        let at = lines.iter().position(|line| line.contains(&id))?;
        let earlier = &lines[..at];
        assert!(!earlier.iter().any(|line| line.contains("INFO")), "{lines:#?}");
        assert!(lines[at].starts_with('{'), "{lines:#?}");
        Some(())
    })
    .await;
    gateway.finish().await;
}

#[tokio::test]
async fn keys_and_their_bounds_change_with_the_file() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = || world.config().tool(world.tool("one"));
    let gateway = config().start().await;
    gateway.call("one", json!({})).await.succeeded();
    apply(&gateway, &config().set("/auth/keys/0/tools", json!(["other"])).text()).await;
    gateway.call("one", json!({})).await.refused("not_allowed_for_key", None);
    apply(&gateway, &config().set("/auth/keys/0/scopes", json!(["agent"])).text()).await;
    assert_eq!(gateway.call("one", json!({})).await.0.status, 403);
    gateway.finish().await;
}
