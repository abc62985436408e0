//! Where files and secrets come from: new ones and gone ones, mounted folders, patterns and `secrets.dir`.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::{always, item, main, ok, reload, remove, team, wait_for, works, write};
use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, SECRET};
use crate::support::gateway::Gateway;
use crate::support::wait::poll;
use crate::support::world::World;

#[tokio::test]
async fn new_files_are_seen_and_gone_ones_too() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = main(&world).file("tools.d/.keep", "");
    let checked = config.check(&["--strict"]);
    let told = "include[0]: warning: no file matches `tools.d/*.yaml`";
    assert!(checked.code == Some(0) && checked.stdout.contains(told), "{}", checked.stdout);
    let gateway = config.start().await;
    // Nothing asks for these reloads but the folder.
    for (name, tool) in [("a", "one"), ("b", "two")] {
        let file = format!("tools.d/{name}.yaml");
        write(gateway.folder(), &file, &team(&world, "shop", &[tool]));
        wait_for_file(&gateway, &file, true).await;
        works(&world, &gateway, tool).await;
    }
    remove(gateway.folder().path(), "tools.d/a.yaml");
    wait_for_file(&gateway, "tools.d/a.yaml", false).await;
    gateway.call("one", json!({})).await.refused("unknown_tool", None);
    works(&world, &gateway, "two").await;
    let metrics = gateway.metrics().await;
    assert!(!metrics.text.contains("sortie_tool_info{kind=\"webhook\",owner=\"shop\",policy=\"allow\",profile=\"envelope-v1\",tool=\"one\"}"));
    assert!(metrics.text.contains("sortie_tool_info{kind=\"webhook\",owner=\"shop\",policy=\"allow\",profile=\"envelope-v1\",tool=\"two\"} 1"));
    // Files that the pattern does not name are no change.
    write(gateway.folder(), "tools.d/notes.txt", "x");
    write(gateway.folder(), "tools.d/.b.yaml.swp", "x");
    assert_eq!(reload(&gateway).await["result"], "unchanged");
    gateway.finish().await;
}

/// Waits until a file has a series, or none.
async fn wait_for_file(gateway: &Gateway, file: &str, is_there: bool) {
    poll(&format!("{file} to be there: {is_there}"), || async {
        let series = format!("sortie_config_file_ok{{file=\"{file}\"}}");
        (gateway.metrics().await.text.contains(&series) == is_there).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_named_must_be_there() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = world.config().set("/include", json!(["tools.d/one.yaml"]));
    let config = config.file("secrets/all", SECRET);
    let checked = config.check(&[]);
    assert_eq!(checked.code, Some(1));
    let told = "include[0]: file `tools.d/one.yaml` is not there\n";
    assert!(checked.stdout.ends_with(told), "{}", checked.stdout);
    let gateway = config.file("tools.d/one.yaml", &team(&world, "shop", &["one"])).start().await;
    remove(gateway.folder().path(), "tools.d/one.yaml");
    assert_eq!(reload(&gateway).await["result"], "invalid");
    works(&world, &gateway, "one").await;
    gateway.finish().await;
}

/// What the kubelet does: a new folder, a new link beside the old one, one rename.
fn swap(volume: &Path, version: &str, files: &[(&str, &str)]) {
    let folder = volume.join(format!("..{version}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.join(name), text).expect("a written file");
    }
    let before = std::fs::read_link(volume.join("..data")).ok();
    symlink(format!("..{version}"), volume.join("..data_tmp")).expect("a link");
    std::fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("a renamed link");
    for (name, _) in files {
        // It is there already where an earlier version had the file.
        let _ = symlink(format!("..data/{name}"), volume.join(name));
    }
    let links = std::fs::read_dir(volume).expect("a folder").map(|entry| entry.expect("an entry"));
    for link in links.filter(|entry| entry.path().metadata().is_err()) {
        std::fs::remove_file(link.path()).expect("a link");
    }
    if let Some(before) = before {
        std::fs::remove_dir_all(volume.join(before)).expect("a folder");
    }
}

#[tokio::test]
async fn a_mounted_folder_that_is_swapped_is_taken_each_time() {
    let world = World::plain().await;
    world.upstream.default(always());
    let text = |tools: &[&str]| team(&world, "shop", tools).replace("../secrets/all", "all");
    let folder = main(&world).write();
    let volume = folder.path().join("tools.d");
    swap(&volume, "v1", &[("a.yaml", &text(&["one"])), ("all", SECRET)]);
    let gateway = main(&world).start_in(folder).await;
    works(&world, &gateway, "one").await;
    swap(
        &volume,
        "v2",
        &[("a.yaml", &text(&["two"])), ("b.yaml", &text(&["one"])), ("all", SECRET)],
    );
    wait_for_file(&gateway, "tools.d/b.yaml", true).await;
    works(&world, &gateway, "one").await;
    works(&world, &gateway, "two").await;
    swap(
        &volume,
        "v3",
        &[("a.yaml", "tools: [\n"), ("b.yaml", &text(&["three"])), ("all", SECRET)],
    );
    wait_for(&gateway, "tools.d/a.yaml", 0.0).await;
    works(&world, &gateway, "two").await;
    works(&world, &gateway, "three").await;
    let invalid = [("result", "invalid")];
    assert_eq!(gateway.metrics().await.value("sortie_config_reloads_total", &invalid), 0.0);
    gateway.finish().await;
}

/// A configuration whose tools have no secret of their own.
fn with_folder(world: &World, folder: &str) -> ConfigBuilder {
    let text = item(world, "one").replace("    secret: {current: {file: ../secrets/all}}\n", "");
    main(world)
        .set("/secrets", json!({"dir": folder}))
        .file("tools.d/a.yaml", &format!("tools:\n{text}"))
}

#[tokio::test]
async fn secrets_of_a_folder_are_taken_by_name_and_rotate() {
    let world = World::plain().await;
    world.upstream.default(always());
    let other = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
    let config = with_folder(&world, "keys").file("keys/one.secret", &format!("{SECRET}\n"));
    let gateway = config.watch(other).start().await;
    let keys = async |count: f64| {
        let tool = [("tool", "one")];
        poll(&format!("{count} signing keys"), || async {
            let metrics = gateway.metrics().await;
            (metrics.value("sortie_signing_keys_active", &tool) == count).then_some(())
        })
        .await;
        works(&world, &gateway, "one").await;
        let request = world.upstream.requests().pop().expect("a request");
        let signature = request.header("X-Tool-Signature").expect("a signature").to_owned();
        assert_eq!(signature.matches("v1=").count() as f64, count);
        assert_eq!(gateway.metrics().await.value("sortie_secret_errors", &[]), 0.0);
    };
    keys(1.0).await;
    write(gateway.folder(), "keys/one.previous", &format!("{SECRET}\n"));
    write(gateway.folder(), "keys/one.secret", &format!("{other}\n"));
    keys(2.0).await;
    // The rotation ends where the file goes.
    remove(gateway.folder().path(), "keys/one.previous");
    keys(1.0).await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_folder_of_secrets_that_cannot_be_read_makes_its_tools_unavailable() {
    let world = World::plain().await;
    world.upstream.default(always());
    // The tests may be root, whom no permission stops: no folder, and a file in the place of one.
    for (folder, why) in [
        ("gone", "gone/one.secret` is not there, "),
        ("sortie.yaml", "cannot be read: Not a directory"),
    ] {
        let config = with_folder(&world, folder);
        let checked = config.check(&[]);
        assert_eq!(checked.code, Some(0), "{}", checked.stdout);
        assert!(
            checked.stdout.contains("a.yaml:2:5: tools[0]: warning: file `"),
            "{}",
            checked.stdout
        );
        assert!(checked.stdout.contains(why), "{}", checked.stdout);
        assert_eq!(config.check(&["--strict"]).code, Some(1));
        let gateway = config.start().await;
        let outcome = gateway.call("one", json!({})).await;
        outcome.failed("not_configured", None, "not_sent");
        let text = "The tool is not configured: a secret of it is missing.";
        assert_eq!(outcome.model_text(), text);
        // Nothing is wrong with the file.
        assert_eq!(ok(&gateway, "tools.d/a.yaml").await, 1.0);
        gateway.finish().await;
    }
    assert_eq!(world.upstream.requests().len(), 0);
}

#[test]
fn the_example_of_many_teams_is_good_but_for_its_secrets() {
    let main = concat!(env!("CARGO_MANIFEST_DIR"), "/config/examples/many-teams/sortie.yaml");
    let checked = run(["check", main], "");
    let lines: Vec<&str> = checked.stdout.lines().collect();
    assert_eq!((checked.code, lines.len()), (Some(0), 4), "{}", checked.stdout);
    for (line, missing) in lines.iter().zip([
        "/run/secrets/sortie/runtime",
        "/run/secrets/clinic/scans.get.secret",
        "/run/secrets/sortie/tools/orders_lookup.secret",
    ]) {
        assert!(line.contains(&format!("warning: file `{missing}` is not there")), "{line}");
    }
    // What an editor is told of such a file.
    let schema = run(["schema", "--included"], "");
    let schema: serde_json::Value = serde_json::from_str(&schema.stdout).expect("JSON");
    assert!(schema["properties"]["owner"].is_object() && schema["properties"]["auth"].is_null());
}
