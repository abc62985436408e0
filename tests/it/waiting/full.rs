//! A disk that is full: what has to be kept first is refused, all else goes on, and space is enough to heal it.

use std::io::Write;
use std::process::Command;

use serde_json::json;

use super::{approved, config, decide, end, read, waits};
use crate::support::wait::poll;

/// Becomes the gateway, with a disk of its own at `$0`.
const WITH_DISK: &str = r#"mount -t tmpfs -o size=4m none "$0" && exec "$@""#;

#[tokio::test]
async fn f141_a_full_disk_stops_what_has_to_be_kept_and_nothing_else() {
    let made = Command::new("unshare").args(["-rm", "true"]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        let _ = writeln!(std::io::stderr(), "SKIPPED f141_a_full_disk: no mount namespace");
        return;
    }
    let disk = tempfile::tempdir().expect("a folder");
    let place = disk.path().to_str().expect("its path is text");
    let (world, config) = config("require_approval").await;
    let gateway = config
        .tool(world.tool("lookup").set("annotations", json!({"read_only": true})))
        .set("/storage", json!({"url": format!("sqlite:{place}/calls.db")}))
        .start_under("unshare", &["-rm", "sh", "-c", WITH_DISK, place])
        .await;
    let waiting = gateway.call("refund", json!({"amount": 1})).await;
    let id = waits(&waiting);
    let ballast = format!("/proc/{}/root{place}/ballast", gateway.process());
    let mut file = std::fs::File::create(&ballast).expect("the gateway's disk is seen from here");
    while file.write_all(&[0; 4096]).is_ok() {}
    for _ in 0..3 {
        gateway.call("lookup", json!({})).await.succeeded();
        gateway.call("refund", json!({"amount": 2})).await.refused("overloaded", None);
        assert_eq!(waits(&read(&gateway, &id).await), id);
    }
    let sent = world.upstream.requests().len();
    assert_eq!(sent, 3, "only what is read was sent");
    drop(file);
    std::fs::remove_file(&ballast).expect("it is there");
    poll("the store to keep what waits again", || async {
        let again = gateway.call("refund", json!({"amount": 3})).await;
        (again.0.status == 202).then_some(())
    })
    .await;
    approved(&decide(&gateway, &waiting, "approve").await);
    end(&gateway, &id).await.succeeded();
    assert_eq!(world.upstream.requests().len(), sent + 1);
    gateway.finish().await;
}
