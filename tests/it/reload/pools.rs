//! Connections survive a reload that says nothing about them, and no other.

use serde_json::json;

use super::{FILE, always, apply, wait_for};
use crate::support::certs::{Authority, Rotation};
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::gateway::Gateway;
use crate::support::upstream::Upstream;
use crate::support::wait::poll;
use crate::support::world::{HOST, World};

/// `sortie_upstream_connections_total`, as new, reused and evicted; and how many are open.
async fn counts(gateway: &Gateway) -> [u64; 4] {
    let metrics = gateway.metrics().await;
    let total = |kind| metrics.value("sortie_upstream_connections_total", &[("kind", kind)]) as u64;
    let open = metrics.value("sortie_upstream_connections_open", &[]) as u64;
    [total("new"), total("reused"), total("evicted"), open]
}

async fn call_both(gateway: &Gateway) {
    for tool in ["stays", "moves"] {
        gateway.call(tool, json!({})).await.succeeded();
    }
}

#[tokio::test]
async fn a_tool_that_stays_keeps_its_connections_and_one_that_moves_does_not() {
    let world = World::tls().await;
    world.upstream.default(always());
    let both = || world.config().tool(world.tool("stays")).tool(world.tool("moves"));
    let gateway = both().start().await;
    call_both(&gateway).await;
    assert_eq!(counts(&gateway).await, [2, 0, 0, 2]);
    // Nothing of this is about connections.
    let config = both()
        .set("/tools/0/timeout", json!("5s"))
        .set("/tools/0/description", json!("Answers as before, and is described in other words."))
        .set("/region", json!("eu"))
        .set("/shutdown", json!({"grace": "20s"}));
    apply(&gateway, &config.text()).await;
    call_both(&gateway).await;
    assert_eq!(counts(&gateway).await, [2, 2, 0, 2]);
    // Another path, and a third tool that comes.
    let config = || both().set("/tools/1/url", json!(world.upstream.url(HOST, "/elsewhere")));
    apply(&gateway, &config().text()).await;
    poll("the connection of the tool that moved to be closed", || async {
        (counts(&gateway).await == [2, 2, 1, 1]).then_some(())
    })
    .await;
    call_both(&gateway).await;
    assert_eq!(counts(&gateway).await, [3, 3, 1, 2]);
    let lines: Vec<String> =
        world.upstream.requests().iter().map(|request| request.line().to_owned()).collect();
    assert!(lines[4].starts_with("POST /stays ") && lines[5].starts_with("POST /elsewhere "));
    // How connections are kept is about all of them.
    apply(&gateway, &config().set("/egress/pool", json!({"max_age": "4m"})).text()).await;
    poll("all connections to be closed", || async {
        (counts(&gateway).await[3] == 0).then_some(())
    })
    .await;
    call_both(&gateway).await;
    assert_eq!(counts(&gateway).await, [5, 3, 3, 2]);
    gateway.finish().await;
}

#[tokio::test]
async fn a_deny_rule_closes_a_kept_connection_and_the_server_sees_nothing_more() {
    let world = World::tls().await;
    world.upstream.default(always());
    let config = || world.config().tool(world.tool("one"));
    let gateway = config().start().await;
    for _ in 0..3 {
        gateway.call("one", json!({})).await.succeeded();
    }
    assert_eq!(counts(&gateway).await, [1, 2, 0, 1]);
    // The address, so that the file with the tool in it is still valid.
    apply(&gateway, &config().set("/egress/deny_cidrs", json!(["127.0.0.0/8"])).text()).await;
    gateway.call("one", json!({})).await.refused("blocked_host", Some("denied_cidr"));
    world.upstream.wait_until_closed(1).await;
    assert_eq!((world.upstream.requests().len(), world.upstream.connections().len()), (3, 1));
    // The rule goes, and the tool works again.
    apply(&gateway, &config().text()).await;
    gateway.call("one", json!({})).await.succeeded();
    assert_eq!(world.upstream.connections().len(), 2);
    gateway.finish().await;
}

#[tokio::test]
async fn another_ca_file_is_trusted_from_then_on_and_the_old_one_is_not() {
    let (old, new) = (Authority::new(), Authority::new());
    let world = World::tls().await;
    let servers =
        [Upstream::tls(&old.leaf(&[HOST])).await, Upstream::tls(&new.leaf(&[HOST])).await];
    let mut config = ConfigBuilder::new().ca(&old.pem());
    for (server, name) in servers.iter().zip(["old", "new"]) {
        server.default(always());
        config = config.reach(server, &world.dns, HOST);
        config = config.tool(Tool::new(name, &server.url(HOST, "/")));
    }
    let gateway = config.start().await;
    gateway.call("old", json!({})).await.succeeded();
    gateway.call("new", json!({})).await.failed("network_error", Some("tls"), "not_sent");
    gateway.folder().replace("ca.pem", &new.pem());
    wait_for(&gateway, "applied", 1).await;
    gateway.call("new", json!({})).await.succeeded();
    gateway.call("old", json!({})).await.failed("network_error", Some("tls"), "not_sent");
    servers[0].wait_for_close(0).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f114_a_tool_s_new_certificate_is_seen_by_new_connections_alone() {
    let world = World::plain().await;
    let leaves = [0, 1].map(|_| world.authority.leaf(&[HOST]));
    let rotation = Rotation::new(&leaves[0]);
    let server = Upstream::with_tls_config(rotation.server_config()).await;
    server.default(always());
    let config = || {
        let config = ConfigBuilder::new().ca(&world.authority.pem());
        let tool = Tool::new("one", &server.url(HOST, "/"));
        config.reach(&server, &world.dns, HOST).tool(tool)
    };
    let gateway = config().start().await;
    gateway.call("one", json!({})).await.succeeded();
    rotation.turn_to(&leaves[1]);
    // The kept connection is as good as before, also over a reload.
    gateway.folder().replace(FILE, &config().set("/region", json!("eu")).text());
    wait_for(&gateway, "applied", 1).await;
    gateway.call("one", json!({})).await.succeeded();
    assert_eq!(counts(&gateway).await, [1, 1, 0, 1]);
    apply(&gateway, &config().set("/egress/pool", json!({"reuse": "never"})).text()).await;
    gateway.call("one", json!({})).await.succeeded();
    assert_eq!(counts(&gateway).await, [2, 1, 1, 0]);
    gateway.finish().await;
}
