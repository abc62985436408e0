//! What makes the gateway look, and what it sees: content, however it came there.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::{FILE, always, apply, hash, is_current, reloads, said, wait_for};
use crate::support::dns::DnsServer;
use crate::support::namespace::{HOST, PUBLIC, isolated};
use crate::support::world::World;

#[tokio::test]
async fn f147_a_file_that_is_renamed_into_place_is_taken_without_a_signal() {
    let world = World::plain().await;
    world.upstream.default(always());
    let gateway = world.config().tool(world.tool("one")).start().await;
    let before = hash(&gateway).await;
    gateway.call("two", json!({})).await.refused("unknown_tool", None);
    let config = world.config().tool(world.tool("one")).tool(
        world
            .tool("two")
            .no_secret()
            .set("secret", json!({"current": {"file": "secrets/one.secret"}})),
    );
    gateway.folder().replace(FILE, &config.text());
    wait_for(&gateway, "applied", 1).await;
    gateway.call("two", json!({})).await.succeeded();
    assert_ne!(hash(&gateway).await, before);
    assert_eq!(gateway.metrics().await.value("sortie_config_tools", &[]), 2.0);
    assert!(is_current(&gateway).await);
    let lines = said(&gateway, "Another configuration is in force.", 1).await;
    assert_eq!((lines.len(), &lines[0]["generation"]), (1, &json!(2)));
    gateway.finish().await;
}

#[tokio::test]
async fn f147_a_change_that_keeps_size_and_time_is_taken() {
    let world = World::plain().await;
    let config =
        |region: &str| world.config().tool(world.tool("one")).set("/region", json!(region));
    let gateway = config("eu-1").start().await;
    let path = &gateway.folder().config;
    let meta = std::fs::metadata(path).expect("a file");
    // In place, as `echo >` does it, and the time is set back.
    std::fs::write(path, config("eu-2").text()).expect("a written file");
    let file = File::options().write(true).open(path).expect("a file");
    file.set_modified(meta.modified().expect("a time")).expect("a file of ours");
    assert_eq!(std::fs::metadata(path).expect("a file").len(), meta.len());
    wait_for(&gateway, "applied", 1).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f147_a_half_written_file_is_told_once_and_taken_when_it_is_whole() {
    let world = World::plain().await;
    world.upstream.default(always());
    let gateway = world.config().tool(world.tool("one")).start().await;
    let config = world.config().tool(world.tool("one")).set("/region", json!("eu"));
    let text = config.text();
    let path = gateway.folder().config.clone();
    std::fs::write(&path, &text[..text.len() / 2]).expect("a written file");
    wait_for(&gateway, "invalid", 1).await;
    assert!(!is_current(&gateway).await);
    gateway.call("one", json!({})).await.succeeded();
    // Something else happens in the folder: what is known to be wrong is not told again.
    std::fs::write(gateway.folder().path().join("other"), "x").expect("a written file");
    std::fs::write(&path, &text).expect("a written file");
    wait_for(&gateway, "applied", 1).await;
    assert_eq!(reloads(&gateway, "invalid").await, 1.0);
    assert!(is_current(&gateway).await);
    gateway.finish().await;
}

/// What the kubelet does: a new folder, a new link beside the old one, one rename.
fn swap(volume: &Path, version: &str, files: &[(&str, &str)]) {
    let folder = volume.join(format!("..{version}"));
    std::fs::create_dir(&folder).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("a written file");
    }
    let before = std::fs::read_link(volume.join("..data")).ok();
    symlink(format!("..{version}"), volume.join("..data_tmp")).expect("a link");
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("a renamed link");
    if let Some(before) = before {
        std::fs::remove_dir_all(volume.join(before)).expect("a folder");
    }
}

#[tokio::test]
async fn f147_the_kubelet_s_swap_of_a_mounted_volume_is_taken_each_time() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = |region: &str| {
        let reference = json!({"current": {"file": "secret"}});
        let tool = world.tool("one").no_secret().set("secret", reference);
        // The key stands in the folder of the test, beside the volume.
        let key = json!({"file": "../secrets/test-runtime.key"});
        world
            .config()
            .tool(tool)
            .set("/auth/keys/0/key", key)
            .set("/region", json!(region))
            .set("/egress/tls", json!({}))
    };
    let mut folder = config("v1").write();
    let volume = folder.path().join("volume");
    std::fs::create_dir(&volume).expect("a folder");
    let secret = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";
    swap(&volume, "v1", &[(FILE, &config("v1").text()), ("secret", secret)]);
    for name in [FILE, "secret"] {
        symlink(format!("..data/{name}"), volume.join(name)).expect("a link");
    }
    folder.config = volume.join(FILE);
    let gateway = config("v1").start_in(folder).await;
    for (count, version) in [(1, "v2"), (2, "v3"), (3, "v4")] {
        swap(&volume, version, &[(FILE, &config(version).text()), ("secret", secret)]);
        wait_for(&gateway, "applied", count).await;
        let outcome = gateway.call("one", json!({})).await;
        outcome.succeeded();
        assert_eq!(gateway.call_line(&outcome.id()).await["region"], json!(version));
    }
    assert_eq!(reloads(&gateway, "invalid").await, 0.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_signal_reads_again_and_says_where_nothing_has_changed() {
    let world = World::plain().await;
    let gateway = world.config().tool(world.tool("one")).start().await;
    for result in ["applied", "unchanged", "invalid", "needs_restart"] {
        assert_eq!(reloads(&gateway, result).await, 0.0, "{result}");
    }
    let metrics = gateway.metrics().await;
    assert!(is_current(&gateway).await);
    let at = metrics.value("sortie_config_last_reload_success_timestamp_seconds", &[]);
    assert!(at > 1_700_000_000.0, "{at}");
    for count in 1..=3 {
        gateway.hang_up();
        wait_for(&gateway, "unchanged", count).await;
    }
    assert_eq!(said(&gateway, "The configuration is the one in force.", 3).await.len(), 3);
    apply(&gateway, &world.config().tool(world.tool("one")).set("/region", json!("eu")).text())
        .await;
    gateway.finish().await;
}

#[test]
fn f027_another_name_server_in_resolv_conf_is_asked_from_then_on() {
    isolated(async |network| {
        let address = "151.101.1.69:53".parse().expect("an address");
        let other = DnsServer::start_at(address).await;
        other.set(HOST, &[&format!("A {PUBLIC}")]);
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        let gateway = network.config().tool(network.tool("lookup")).start().await;
        gateway.call("lookup", json!({})).await.succeeded();
        let asked = network.dns.questions().len();
        std::fs::write("/etc/resolv.conf", "nameserver 151.101.1.69\n").expect("a written file");
        wait_for(&gateway, "applied", 1).await;
        gateway.call("lookup", json!({})).await.succeeded();
        assert_eq!((network.dns.questions().len(), other.questions().len()), (asked, 2));
        gateway.finish().await;
    });
}
