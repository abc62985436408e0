//! A call keeps the configuration that it began with; only a repeat is judged by the one in force then.

use serde_json::json;

use super::{always, apply, ok};
use crate::support::config::ConfigBuilder;
use crate::support::gateway::Outcome;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::Signal;
use crate::support::world::World;

#[tokio::test]
async fn f149_a_call_in_flight_ends_under_the_configuration_that_it_began_with() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.next(Script::new().request().wait(&go).send(ok()).stall());
    let config = || world.config().set("/region", json!("old")).tool(world.tool("one"));
    let gateway = config().start().await;
    let meanwhile = async {
        world.upstream.wait_for_requests(1).await;
        apply(&gateway, &world.config().set("/region", json!("new")).text()).await;
        gateway.call("one", json!({})).await.refused("unknown_tool", None);
        let text = gateway.metrics().await.text;
        assert!(!text.contains(r#"tool="one""#), "{text}");
        go.fire();
    };
    let (outcome, ()) = tokio::join!(gateway.call("one", json!({})), meanwhile);
    outcome.succeeded();
    assert_eq!(gateway.call_line(&outcome.id()).await["region"], json!("old"));
    // Its connection is nobody's any more, and it leaves no series behind.
    world.upstream.wait_until_closed(1).await;
    let text = gateway.metrics().await.text;
    assert!(!text.contains(r#"tool="one""#), "{text}");
    gateway.finish().await;
}

/// A tool that repeats fails once; before that a reload changes the configuration.
async fn repeat(change: impl Fn(&World, ConfigBuilder) -> ConfigBuilder) -> Outcome {
    let world = World::plain().await;
    let go = Signal::new();
    let busy = answer(503, "text/plain", "busy");
    world.upstream.next(Script::new().request().wait(&go).send(busy)).default(always());
    let config = || world.config().tool(world.tool("one").profile("bare-v1"));
    let gateway = config().start().await;
    let meanwhile = async {
        world.upstream.wait_for_requests(1).await;
        apply(&gateway, &change(&world, config()).text()).await;
        go.fire();
    };
    let (outcome, ()) = tokio::join!(gateway.call("one", json!({})), meanwhile);
    assert_eq!(
        outcome.at("/attempts").as_array().map(Vec::len),
        Some(world.upstream.requests().len()),
        "each attempt is a request"
    );
    gateway.finish().await;
    outcome
}

#[tokio::test]
async fn f149_a_repeat_is_not_made_once_its_tool_is_gone_or_closed() {
    let closed: [fn(&World, ConfigBuilder) -> ConfigBuilder; 4] = [
        |world, _| world.config(),
        |_, config| config.set("/tools/0/policy", json!("deny")),
        |_, config| config.set("/tools/0/enabled", json!(false)),
        |_, config| {
            config.set("/egress/deny_cidrs", json!(["127.0.0.0/8"])).set("/tools", json!([]))
        },
    ];
    for change in closed {
        repeat(change).await.failed("http_status", None, "answered");
    }
    // A host that was closed is known as such only where no tool names it.
    let elsewhere = |_: &World, config: ConfigBuilder| {
        config
            .set("/egress/exceptions/0/hosts", json!(["other.example.com"]))
            .set("/tools/0/url", json!("https://other.example.com:8443/"))
    };
    let outcome = repeat(elsewhere).await;
    outcome.failed("http_status", None, "answered");
    assert_eq!(outcome.at("/attempts").as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn f149_a_repeat_is_made_where_the_new_configuration_still_lets_it() {
    let outcome = repeat(|_, config| config.set("/region", json!("new"))).await;
    outcome.succeeded();
    assert_eq!(outcome.at("/attempts").as_array().map(Vec::len), Some(2));
    let moved = repeat(|_, config| config.set("/tools/0/timeout", json!("20s"))).await;
    moved.succeeded();
}

/// A tool with tokens is called twice. Before the second call is answered so, a reload changes the configuration; how
/// many tokens were asked for in the end, and how many requests the tool's server got.
async fn repeat_with_tokens(
    lifetime: u32,
    second: Vec<u8>,
    change: impl Fn(ConfigBuilder) -> ConfigBuilder,
) -> (usize, usize) {
    const LOGIN: &str = "login.example.com";
    let (world, login, go) = (World::plain().await, Upstream::plain().await, Signal::new());
    let grant = json!({"access_token": "t", "token_type": "bearer", "expires_in": lifetime});
    login.default(Script::always(answer(200, "application/json", grant.to_string())));
    world.upstream.next(Script::once(ok()));
    world.upstream.next(Script::new().request().wait(&go).send(second)).default(always());
    let oauth2 = json!({
        "token_url": login.url(LOGIN, "/token"),
        "client_id": "tests",
        "client_secret": {"file": "secrets/client"},
    });
    let tool =
        world.tool("one").profile("bare-v1").set("authentication", json!({"oauth2": oauth2}));
    let config = world
        .config()
        .reach(&login, &world.dns, LOGIN)
        .file("secrets/client", "secret")
        .set("/egress/pool/reuse", json!("never"))
        .tool(tool);
    let gateway = config.start().await;
    gateway.call("one", json!({})).await.succeeded();
    let meanwhile = async {
        world.upstream.wait_for_requests(2).await;
        apply(&gateway, &change(config).text()).await;
        go.fire();
    };
    let (outcome, ()) = tokio::join!(gateway.call("one", json!({})), meanwhile);
    outcome.failed("http_status", None, "answered");
    gateway.finish().await;
    (login.requests().len(), world.upstream.requests().len())
}

#[tokio::test]
async fn f149_a_refused_token_is_not_replaced_once_its_tool_is_closed() {
    let closed = |config: ConfigBuilder| config.set("/tools/0/enabled", json!(false));
    let refused = answer(401, "text/plain", "");
    assert_eq!(repeat_with_tokens(3600, refused, closed).await, (1, 2));
}

#[tokio::test]
async fn f149_a_repeat_asks_no_token_endpoint_that_is_closed_by_then() {
    let closed =
        |config: ConfigBuilder| config.set("/egress/exceptions/1/cidrs", json!(["10.0.0.0/8"]));
    let busy = answer(503, "text/plain", "busy");
    assert_eq!(repeat_with_tokens(0, busy, closed).await, (2, 2));
}
