//! What cannot be taken is not taken in part: the configuration before stays, and the operator is told why.

use serde_json::{Value, json};

use super::{FILE, always, apply, hash, is_current, reloads, said, wait_for};
use crate::support::gateway::Gateway;
use crate::support::wait::poll;
use crate::support::world::World;

/// Replaces the file by one that is wrong; the line that names the mistake must hold the text.
async fn check(world: &World, gateway: &Gateway, text: &str, mistake: &str) {
    let (before, count) = (hash(gateway).await, reloads(gateway, "invalid").await as u32);
    gateway.folder().replace(FILE, text);
    wait_for(gateway, "invalid", count + 1).await;
    poll(&format!("a line that says {mistake}"), || async {
        let lines = said(gateway, "The new configuration is wrong here.", 1).await;
        let found = lines.iter().any(|line| {
            let error = line["error"].as_str().unwrap_or_default();
            line["level"] == "ERROR" && error.contains(mistake)
        });
        found.then_some(())
    })
    .await;
    assert_eq!((hash(gateway).await, is_current(gateway).await), (before, false));
    let requests = world.upstream.requests().len();
    gateway.call("one", json!({})).await.succeeded();
    assert_eq!(world.upstream.requests().len(), requests + 1);
}

#[tokio::test]
async fn f146_what_is_wrong_leaves_the_old_configuration_and_names_the_place() {
    let world = World::plain().await;
    world.upstream.default(always());
    let good = world.config().tool(world.tool("one"));
    let gateway = good.start().await;
    let with = |pointer: &str, value: Value| {
        world.config().tool(world.tool("one")).set(pointer, value).text()
    };
    for (text, mistake) in [
        ("version: 1\nauth: [\n".to_owned(), "sortie.yaml:2:7: is not valid YAML"),
        (with("/tols", json!([])), "tols: "),
        (with("/tools/0/timeout", json!("45s")), "tools[0].timeout: must be from 1s to 30s"),
        (with("/tools/0/parameters/type", json!("strange")), "tools[0].parameters.type: "),
        (with("/tools/0/url", json!("https://10.0.0.1/")), "tools[0].url: 10.0.0.1 is"),
        (with("/strict", json!(true)).replace("one.secret", "gone.secret"), "gone.secret` is not"),
        (with("/egress/tls/extra_ca", json!({"file": "gone.pem"})), "gone.pem` is not there"),
        (String::new(), "sortie.yaml:1:1: "),
    ] {
        check(&world, &gateway, &text, mistake).await;
    }
    let lines = said(&gateway, "is not valid, the one before stays in force", 8).await;
    assert_eq!(lines.len(), 8);
    // Back to what is in force, which is said, and then to something else.
    gateway.folder().replace(FILE, &good.text());
    wait_for(&gateway, "unchanged", 1).await;
    assert!(is_current(&gateway).await);
    apply(&gateway, &with("/region", json!("eu"))).await;
    assert!(is_current(&gateway).await);
    gateway.finish().await;
}

#[tokio::test]
async fn f146_a_file_that_is_gone_is_no_configuration() {
    let world = World::plain().await;
    world.upstream.default(always());
    let gateway = world.config().tool(world.tool("one")).start().await;
    let path = gateway.folder().config.clone();
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::remove_file(&path).expect("a file");
    wait_for(&gateway, "invalid", 1).await;
    assert!(!is_current(&gateway).await);
    gateway.call("one", json!({})).await.succeeded();
    // A signal asks, so it is answered, though nothing is new.
    gateway.hang_up();
    wait_for(&gateway, "invalid", 2).await;
    gateway.folder().replace(FILE, &text);
    wait_for(&gateway, "unchanged", 1).await;
    assert!(is_current(&gateway).await);
    gateway.finish().await;
}

#[tokio::test]
async fn a_listener_that_changes_needs_a_restart_and_nothing_else_is_taken() {
    let world = World::plain().await;
    world.upstream.default(always());
    let gateway = world.config().tool(world.tool("one")).start().await;
    let before = hash(&gateway).await;
    let cases = [
        ("/listeners/api/address", json!("127.0.0.1:1"), "listeners.api.address"),
        ("/listeners/api/max_body", json!("2KiB"), "listeners.api.max_body"),
        ("/listeners/api/header_timeout", json!("1s"), "listeners.api.header_timeout"),
        ("/listeners/api/idle_timeout", json!("1s"), "listeners.api.idle_timeout"),
        ("/listeners/api/max_connections", json!(7), "listeners.api.max_connections"),
        ("/listeners/telemetry/address", json!("127.0.0.1:1"), "listeners.telemetry.address"),
    ];
    for (count, (pointer, value, what)) in (1..).zip(cases) {
        // The same file takes the tool away.
        let text = world.config().set(pointer, value).text();
        gateway.folder().replace(FILE, &text);
        wait_for(&gateway, "needs_restart", count).await;
        assert!(!is_current(&gateway).await);
        let lines = said(&gateway, "needs a restart", count as usize).await;
        assert_eq!(lines.last().expect("a line")["what"], json!(what));
        gateway.call("one", json!({})).await.succeeded();
    }
    assert_eq!((hash(&gateway).await, reloads(&gateway, "applied").await), (before, 0.0));
    gateway.finish().await;
}
