//! `--config` twice: a base and what one place changes of it.

use serde_json::{Value, json};

use super::{always, works};
use crate::support::cli::{Finished, run};
use crate::support::config::{Folder, SECRET};
use crate::support::world::World;

const STAGING: &str = "region: staging
tools:
  - {name: one, timeout: 5s, owner: staging}
  - name: two
    description: Answers what its test has scripted.
    url: URL
    secret: {current: {file: two.secret}}
";

/// Runs a command on both files.
fn on_both(folder: &Folder, command: &[&str], more: &[&str]) -> Finished {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (base, staging) = (path("sortie.yaml"), path("staging/staging.yaml"));
    let files = ["--config", &base, "--config", &staging];
    run(command.iter().chain(&files).chain(more), "")
}

#[tokio::test]
async fn a_later_file_changes_tools_by_name_and_findings_name_its_places() {
    let world = World::plain().await;
    world.upstream.default(always());
    let staging = STAGING.replace("URL", &world.tool("two").url());
    let config = world
        .config()
        .tool(world.tool("one"))
        .file("staging/staging.yaml", &staging)
        .file("staging/two.secret", SECRET);
    let folder = config.write();
    let checked = on_both(&folder, &["check"], &["--strict"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    // The rules of both hold.
    let target = world.tool("two").url();
    assert_eq!(on_both(&folder, &["egress"], &["--no-dns", &target]).code, Some(0));
    std::fs::write(folder.path().join("staging/staging.yaml"), "egress: {exceptions: []}\n")
        .expect("written");
    assert_eq!(on_both(&folder, &["egress"], &["--no-dns", &target]).code, Some(1));

    std::fs::write(
        folder.path().join("staging/staging.yaml"),
        format!("{staging}\ntool: 1\n").replace("5s", "45s"),
    )
    .expect("written");
    let checked = on_both(&folder, &["check"], &["--format", "json"]);
    let found: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let places: Vec<_> = found["errors"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|error| (&error["line"], &error["column"], &error["path"]))
        .collect();
    assert_eq!(
        places,
        [
            (&json!(3), &json!(26), &json!("tools[0].timeout")),
            (&json!(9), &json!(1), &json!("tool"))
        ]
    );
    assert!(
        found["errors"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|error| error["file"].as_str().expect("a file").ends_with("staging/staging.yaml"))
    );
}

#[tokio::test]
async fn a_gateway_of_two_files_watches_both() {
    let world = World::plain().await;
    world.upstream.default(always());
    let staging = STAGING.replace("URL", &world.tool("two").url());
    let config = world
        .config()
        .tool(world.tool("one"))
        .file("staging/staging.yaml", &staging)
        .file("staging/two.secret", SECRET);
    let gateway = config.start_with("staging/staging.yaml").await;
    works(&world, &gateway, "one").await;
    works(&world, &gateway, "two").await;
    let outcome = gateway.call("one", json!({})).await;
    let line = gateway.call_line(&outcome.id()).await;
    assert_eq!((&line["owner"], &line["region"]), (&json!("staging"), &json!("staging")));
    for (label, value) in [("sortie.yaml", 1.0), ("staging/staging.yaml", 1.0)] {
        super::wait_for(&gateway, label, value).await;
    }
    gateway.folder().replace("staging/staging.yaml", "tool: 1\n");
    super::wait_for(&gateway, "staging/staging.yaml", 0.0).await;
    assert_eq!(super::ok(&gateway, "sortie.yaml").await, 1.0);
    works(&world, &gateway, "two").await;
    gateway.folder().replace("staging/staging.yaml", "region: other\n");
    super::wait_for(&gateway, "staging/staging.yaml", 1.0).await;
    gateway.call("two", json!({})).await.refused("unknown_tool", None);
    works(&world, &gateway, "one").await;
    gateway.finish().await;
}
