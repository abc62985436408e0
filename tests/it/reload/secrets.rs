//! Secrets are files like the others: read again, kept where they are gone, and told of before they end.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::{always, apply, is_current, said, wait_for};
use crate::support::config::API_KEY;
use crate::support::gateway::Gateway;
use crate::support::receiver::verify;
use crate::support::wait::poll;
use crate::support::world::World;

const OLD: &str = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";
const NEW: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";

async fn secret_errors(gateway: &Gateway) -> f64 {
    gateway.metrics().await.value("sortie_secret_errors", &[])
}

/// Calls, and checks that the request is signed with this secret.
async fn signed_with(world: &World, gateway: &Gateway, secret: &str) {
    gateway.call("one", json!({})).await.succeeded();
    let requests = world.upstream.requests();
    verify(requests.last().expect("a request"), "X-Tool-Signature", secret);
}

#[tokio::test]
async fn f150_a_secret_that_changes_signs_the_next_call_and_one_that_goes_is_kept() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = || world.config().tool(world.tool("one"));
    let gateway = config().watch(NEW).start().await;
    signed_with(&world, &gateway, OLD).await;
    let folder = gateway.folder();
    folder.replace("secrets/one.secret", NEW);
    wait_for(&gateway, "applied", 1).await;
    signed_with(&world, &gateway, NEW).await;
    std::fs::remove_file(folder.path().join("secrets/one.secret")).expect("a file");
    wait_for(&gateway, "applied", 2).await;
    assert_eq!(secret_errors(&gateway).await, 1.0);
    signed_with(&world, &gateway, NEW).await;
    let lines = said(&gateway, "something looks wrong", 1).await;
    let warning = lines[0]["warning"].as_str().expect("a warning");
    assert!(warning.contains("one.secret` is not there, its last value is kept"), "{warning}");
    // It stays kept over further reloads, but a strict configuration is not taken without it.
    apply(&gateway, &config().set("/region", json!("eu")).text()).await;
    signed_with(&world, &gateway, NEW).await;
    folder.replace("sortie.yaml", &config().set("/strict", json!(true)).text());
    wait_for(&gateway, "invalid", 1).await;
    signed_with(&world, &gateway, NEW).await;
    assert!(!is_current(&gateway).await);
    folder.replace("secrets/one.secret", OLD);
    wait_for(&gateway, "applied", 4).await;
    assert_eq!(secret_errors(&gateway).await, 0.0);
    signed_with(&world, &gateway, OLD).await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_secret_that_comes_later_makes_its_tool_available() {
    let world = World::plain().await;
    world.upstream.default(always());
    let reference = json!({"current": {"file": "secrets/late"}});
    let tool = world.tool("one").no_secret().set("secret", reference);
    let gateway = world.config().tool(tool).watch(NEW).start().await;
    gateway.call("one", json!({})).await.failed("not_configured", None, "not_sent");
    assert_eq!(secret_errors(&gateway).await, 1.0);
    gateway.folder().replace("secrets/late", NEW);
    wait_for(&gateway, "applied", 1).await;
    assert_eq!(secret_errors(&gateway).await, 0.0);
    signed_with(&world, &gateway, NEW).await;
    gateway.finish().await;
}

#[tokio::test]
async fn another_bearer_key_is_taken_and_the_one_before_is_not() {
    let world = World::plain().await;
    world.upstream.default(always());
    let key = "sk-test-Kx83Wq2mTn1RwYk3Zr8";
    let gateway = world.config().tool(world.tool("one")).watch(key).start().await;
    let body = r#"{"tool":"one","arguments":{}}"#;
    assert_eq!(gateway.post(Some(key), body).await.status, 401);
    gateway.folder().replace("secrets/test-runtime.key", key);
    wait_for(&gateway, "applied", 1).await;
    assert_eq!(gateway.post(Some(key), body).await.status, 200);
    assert_eq!(gateway.post(Some(API_KEY), body).await.status, 401);
    gateway.finish().await;
}

/// A moment so many seconds from now, as the file takes it.
fn moment(seconds: u64) -> String {
    let then = SystemTime::now() + Duration::from_secs(seconds);
    let unix = then.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    jiff::Timestamp::from_second(unix as i64).expect("a time").to_string()
}

#[tokio::test]
async fn the_end_of_an_overlap_is_told_before_and_after() {
    let world = World::plain().await;
    let config = |until: &str| {
        let previous = json!({"file": "keys/previous"});
        let config = world.config().tool(world.tool("one")).watch(NEW).file("keys/previous", NEW);
        config
            .set("/tools/0/secret/previous", previous)
            .set("/tools/0/secret/previous_until", json!(until))
    };
    let gateway = config(&moment(7200)).start().await;
    let keys =
        async || gateway.metrics().await.value("sortie_signing_keys_active", &[("tool", "one")]);
    assert_eq!(keys().await, 2.0);
    apply(&gateway, &config(&moment(3000)).text()).await;
    let lines = said(&gateway, "stops signing within an hour", 1).await;
    assert_eq!((lines.len(), &lines[0]["tool"]), (1, &json!("one")));
    apply(&gateway, &config(&moment(2)).text()).await;
    // Each look at the files is a look at the time too.
    poll("the previous key to stop", || async {
        gateway.hang_up();
        (keys().await == 1.0).then_some(())
    })
    .await;
    assert_eq!(said(&gateway, "no longer signs, it can go", 1).await.len(), 1);
    assert_eq!(said(&gateway, "stops signing within an hour", 1).await.len(), 1);
    gateway.finish().await;
}
