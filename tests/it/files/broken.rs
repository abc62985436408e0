//! Broken files: at start, at a reload, repaired, and of whom the names are.

use serde_json::{Value, json};

use super::{always, is_unread, item, main, ok, reload, said, team, wait_for, works, write};
use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, Folder, Tool};
use crate::support::world::World;

const OWNERS: &[&str] =
    &["shop", "clinic", "billing", "logistics", "search", "people", "legal", "ops"];
const TOOLS: usize = 60;

/// Sixty tools of eight owners, in eight files.
fn many(world: &World, config: ConfigBuilder) -> ConfigBuilder {
    OWNERS.iter().enumerate().fold(config, |config, (at, owner)| {
        let names: Vec<String> = (0..TOOLS)
            .filter(|number| number % OWNERS.len() == at)
            .map(|number| format!("{owner}_{number}"))
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        config.file(&format!("tools.d/{owner}.yaml"), &team(world, owner, &names))
    })
}

/// All names of the sixty tools, with their owners.
fn all() -> impl Iterator<Item = (String, &'static str)> {
    (0..TOOLS).map(|number| {
        let owner = OWNERS[number % OWNERS.len()];
        (format!("{owner}_{number}"), owner)
    })
}

#[tokio::test]
async fn sixty_tools_of_eight_owners_pass_check_and_one_broken_file_takes_nobody_along() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = many(&world, main(&world));
    let checked = config.check(&["--format", "json"]);
    let found: Value = serde_json::from_str(&checked.stdout).expect("JSON");
    let clean = json!({"ok": true, "errors": [], "warnings": []});
    assert_eq!((checked.code, found), (Some(0), clean));

    // With two mistakes in one file, all of them are said, and nothing of the others.
    let text = team(&world, "legal", &["legal_6", "legal_14"]);
    let text = text.replace("url: http", "uri: http").replacen("uri", "url", 1);
    let text = text.replacen("parameters: {type: object", "parameters: {type: odd", 1);
    let config = config.file("tools.d/legal.yaml", &text);
    let checked = config.check(&[]);
    let lines: Vec<&str> = checked.stdout.lines().collect();
    assert_eq!((checked.code, lines.len()), (Some(1), 3), "{}", checked.stdout);
    for (line, end) in lines.iter().zip([
        "legal.yaml:7:24: tools[0].parameters.type: ",
        "legal.yaml:9:5: tools[1].url: is missing",
        "legal.yaml:11:5: tools[1].uri: is not a known key, did you mean `url`?",
    ]) {
        assert!(line.contains(end), "{line} has no {end}");
    }

    let gateway = config.start().await;
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_config_tools", &[]), 53.0);
    for (name, owner) in all() {
        if owner != "legal" {
            works(&world, &gateway, &name).await;
            let labels = [("tool", name.as_str()), ("owner", owner), ("kind", "webhook")];
            assert_eq!(metrics.value("sortie_tool_info", &labels), 1.0, "{name}");
        }
    }
    assert_eq!(metrics.text.matches("\nsortie_tool_info{").count(), 53);
    for name in ["legal_6", "legal_14"] {
        is_unread(&world, &gateway, name).await;
        let labels = [("tool", name), ("code", "not_configured")];
        assert_eq!(gateway.metrics().await.value("sortie_calls_total", &labels), 1.0);
    }
    // A name that cannot be read is nobody's.
    gateway.call("legal_22", json!({})).await.refused("unknown_tool", None);
    assert_eq!(
        (ok(&gateway, "tools.d/legal.yaml").await, ok(&gateway, "tools.d/ops.yaml").await),
        (0.0, 1.0)
    );
    assert_eq!(ok(&gateway, "sortie.yaml").await, 1.0);
    let lines = said(&gateway, "tools.d/legal.yaml");
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines.iter().all(|line| line["level"] == "ERROR"));
    assert!(lines[1]["error"].as_str().expect("a text").contains("legal.yaml:9:5: tools[1].url: "));
    assert_eq!(lines[3]["message"], "An included file is broken, its tools are unavailable.");

    // Repaired, it is taken; the calls of others had nothing to do with it.
    let mut texts = text.replace("uri", "url").replace("odd", "object");
    texts.push_str(&item(&world, "legal_22"));
    write(gateway.folder(), "tools.d/legal.yaml", &texts);
    wait_for(&gateway, "tools.d/legal.yaml", 1.0).await;
    for name in ["legal_6", "legal_14", "legal_22"] {
        works(&world, &gateway, name).await;
    }
    let line = said(&gateway, "tools.d/legal.yaml").pop().expect("a line");
    assert_eq!(
        (&line["level"], &line["message"]),
        (&json!("INFO"), &json!("An included file is well again."))
    );
    gateway.finish().await;
}

#[tokio::test]
async fn a_file_that_breaks_keeps_its_tools_and_the_rest_is_taken() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = main(&world)
        .file("tools.d/one.yaml", &team(&world, "first", &["one"]))
        .file("tools.d/two.yaml", &team(&world, "second", &["two"]));
    let gateway = config.start().await;
    let folder = gateway.folder();
    for (round, text) in ["tools: [\n", "owner: first\nauth: none\n", "\u{0}"].iter().enumerate() {
        write(folder, "tools.d/one.yaml", text);
        let other = format!("two_{round}");
        write(folder, "tools.d/two.yaml", &team(&world, "second", &[&other]));
        wait_for(&gateway, "tools.d/one.yaml", 0.0).await;
        let reloaded = reload(&gateway).await;
        assert!(["applied", "unchanged"].contains(&reloaded["result"].as_str().expect("a word")));
        works(&world, &gateway, "one").await;
        works(&world, &gateway, &other).await;
        gateway.call("two", json!({})).await.refused("unknown_tool", None);
        let outcome = gateway.call("one", json!({})).await;
        assert_eq!(gateway.call_line(&outcome.id()).await["owner"], "first");
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_config_last_reload_successful", &[]), 1.0);
    let kept = "An included file is broken, its last good tools stay in force.";
    let lines = said(&gateway, "tools.d/one.yaml");
    assert_eq!(lines.iter().filter(|line| line["message"] == kept).count(), 3, "{lines:#?}");
    // A file that is taken away takes its tools along, broken or not.
    super::remove(folder.path(), "tools.d/one.yaml");
    assert_eq!(reload(&gateway).await["result"], "applied");
    gateway.call("one", json!({})).await.refused("unknown_tool", None);
    assert!(!gateway.metrics().await.text.contains("tools.d/one.yaml"));
    gateway.finish().await;
}

#[tokio::test]
async fn kept_tools_are_judged_by_the_rules_in_force() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = main(&world).file("tools.d/one.yaml", &team(&world, "first", &["one"]));
    let gateway = config.start().await;
    works(&world, &gateway, "one").await;
    write(gateway.folder(), "tools.d/one.yaml", "tools: [\n");
    assert_eq!(reload(&gateway).await["result"], "applied");
    works(&world, &gateway, "one").await;
    // The exception goes: what is kept is no way around it.
    let closed = main(&world).set("/egress/exceptions", json!([])).text();
    gateway.folder().replace("sortie.yaml", &closed);
    assert_eq!(reload(&gateway).await["result"], "applied");
    is_unread(&world, &gateway, "one").await;
    gateway.folder().replace("sortie.yaml", &config.text());
    assert_eq!(reload(&gateway).await["result"], "applied");
    works(&world, &gateway, "one").await;
    gateway.finish().await;
}

#[tokio::test]
async fn two_files_with_one_name_are_told_apart_by_their_order() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = main(&world)
        .file("tools.d/a.yaml", &team(&world, "first", &["same", "one"]))
        .file("tools.d/b.yaml", &team(&world, "second", &["two", "same"]));
    let folder = config.write();
    let finished = run(["check", folder.config.to_str().expect("UTF-8")], "");
    let place = |file: &str| folder.path().join(file).display().to_string();
    let told = format!(
        "{}:9:11: tools[1].name: another tool is named `same` too, in {} on line 4\n",
        place("tools.d/b.yaml"),
        place("tools.d/a.yaml"),
    );
    assert_eq!((finished.code, finished.stdout), (Some(1), told));
    let gateway = config.start_in(folder).await;
    works(&world, &gateway, "same").await;
    works(&world, &gateway, "one").await;
    is_unread(&world, &gateway, "two").await;
    let outcome = gateway.call("same", json!({})).await;
    assert_eq!(gateway.call_line(&outcome.id()).await["owner"], "first");
    gateway.finish().await;
}

#[tokio::test]
async fn the_main_file_is_all_or_nothing_and_so_is_everything_where_it_is_strict() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = main(&world).file("tools.d/one.yaml", &team(&world, "first", &["one"]));
    let gateway = config.start().await;
    let folder = gateway.folder();
    folder.replace("sortie.yaml", &config.text().replace("\"auth\"", "\"oath\""));
    wait_for(&gateway, "sortie.yaml", 0.0).await;
    write(folder, "tools.d/two.yaml", &team(&world, "second", &["two"]));
    assert_eq!(reload(&gateway).await["result"], "invalid");
    works(&world, &gateway, "one").await;
    gateway.call("two", json!({})).await.refused("unknown_tool", None);
    assert_eq!(
        (ok(&gateway, "sortie.yaml").await, ok(&gateway, "tools.d/one.yaml").await),
        (0.0, 1.0)
    );

    let strict = main(&world).set("/strict", json!(true)).text();
    folder.replace("sortie.yaml", &strict);
    assert_eq!(reload(&gateway).await["result"], "applied");
    works(&world, &gateway, "two").await;
    write(folder, "tools.d/two.yaml", "tool: []\n");
    let answer = reload(&gateway).await;
    assert_eq!(answer["result"], "invalid");
    let finding = answer["findings"][0].as_str().expect("a finding");
    assert!(
        finding.ends_with("tools.d/two.yaml:1:1: tool: is not a known key, did you mean `tools`?")
    );
    assert_eq!(
        (ok(&gateway, "sortie.yaml").await, ok(&gateway, "tools.d/two.yaml").await),
        (1.0, 0.0)
    );
    works(&world, &gateway, "two").await;
    gateway.finish().await;

    let config = main(&world).set("/strict", json!(true)).file("tools.d/two.yaml", "tool: []\n");
    let folder = config.write();
    let finished = run(["serve", "--config", folder.config.to_str().expect("UTF-8")], "");
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("tools.d/two.yaml:1:1: tool: "), "{}", finished.stderr);
}

#[tokio::test]
async fn a_tool_of_a_broken_file_is_known_by_its_exported_name_too() {
    let world = World::plain().await;
    world.upstream.default(always());
    let text = team(&world, "first", &["shop.get"]).replace("url: http", "uri: http");
    let gateway = main(&world).file("tools.d/one.yaml", &text).start().await;
    for name in ["shop.get", "shop_get"] {
        is_unread(&world, &gateway, name).await;
    }
    gateway.finish().await;
}

#[tokio::test]
async fn the_operator_sees_the_tools_of_all_files() {
    let world = World::plain().await;
    let inline = Tool::new("zero", &world.tool("zero").url());
    let config =
        main(&world).tool(inline).file("tools.d/one.yaml", &team(&world, "first", &["one"]));
    let config = config.file("tools.d/two.yaml", "tools: [\n");
    let gateway = config.start().await;
    let shown = gateway.admin("GET", "/config", "").await.json()["config"].clone();
    let names: Vec<_> =
        shown["tools"].as_array().expect("a list").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["zero", "one"]);
    assert_eq!(shown["tools"][1]["owner"], "first");
    assert_eq!(shown["tools"][1]["runbook"], "https://wiki.example.com/first");
    assert_eq!(shown["include"], json!(["tools.d/*.yaml"]));
    gateway.finish().await;
}

#[tokio::test]
async fn half_a_configuration_is_not_compared() {
    let world = World::plain().await;
    let good = main(&world).file("tools.d/one.yaml", &team(&world, "first", &["one"])).write();
    let broken = main(&world).file("tools.d/one.yaml", "tool: []\n").write();
    let path = |folder: &Folder| folder.config.to_str().expect("UTF-8").to_owned();
    let finished = run(["diff", &path(&good), &path(&broken)], "");
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""));
    assert!(finished.stderr.contains("tools.d/one.yaml:1:1: tool: "), "{}", finished.stderr);
    // Tools of included files are compared like any other.
    let changed = team(&world, "first", &["one", "two"]);
    let changed = main(&world).file("tools.d/one.yaml", &changed).write();
    let finished = run(["diff", &path(&good), &path(&changed)], "");
    assert!(finished.stdout.contains("tools.two"), "{finished:?}");
}
