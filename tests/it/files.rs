//! One configuration in many files: each team's file is its own, and what is wrong with one is no other's fault.

mod broken;
mod merged;
mod sources;

use std::path::Path;

use serde_json::{Value, json};

use crate::support::config::{ConfigBuilder, Folder, SECRET};
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::World;

fn always() -> Script {
    Script::always(answer(200, "application/json", "1"))
}

/// A configuration that includes `tools.d` and has one secret for all tools.
fn main(world: &World) -> ConfigBuilder {
    world
        .config()
        .set("/include", json!(["tools.d/*.yaml"]))
        .file("secrets/all", &format!("{SECRET}\n"))
        .watch(SECRET)
}

/// A tool at the world's upstream, as an item of a list.
fn item(world: &World, name: &str) -> String {
    let url = world.tool(name).url();
    format!(
        "  - name: {name}\n    description: Answers what its test has scripted.\n    url: {url}\n    \
         parameters: {{type: object, properties: {{}}}}\n    \
         secret: {{current: {{file: ../secrets/all}}}}\n"
    )
}

/// The text of a team's file.
fn team(world: &World, owner: &str, tools: &[&str]) -> String {
    let items: String = tools.iter().map(|name| item(world, name)).collect();
    format!("owner: {owner}\nrunbook: https://wiki.example.com/{owner}\ntools:\n{items}")
}

/// Calls a tool, which must reach the upstream.
async fn works(world: &World, gateway: &Gateway, tool: &str) {
    let before = world.upstream.requests().len();
    gateway.call(tool, json!({})).await.succeeded();
    let requests = world.upstream.requests();
    let line = format!("POST /{tool} HTTP/1.1");
    assert_eq!((requests.len(), requests[before].line()), (before + 1, line.as_str()));
}

/// Calls a tool whose file is broken: the model is told, and nobody is called.
async fn is_unread(world: &World, gateway: &Gateway, tool: &str) {
    let before = world.upstream.requests().len();
    let outcome = gateway.call(tool, json!({})).await;
    outcome.failed("not_configured", None, "not_sent");
    let text = "The tool is not configured: its definition is broken.";
    assert_eq!(outcome.model_text(), text);
    assert_eq!(world.upstream.requests().len(), before);
}

/// `sortie_config_file_ok` of one file.
async fn ok(gateway: &Gateway, file: &str) -> f64 {
    gateway.metrics().await.value("sortie_config_file_ok", &[("file", file)])
}

/// Waits until the gateway says that of a file.
async fn wait_for(gateway: &Gateway, file: &str, value: f64) {
    poll(&format!("{file} to be {value}"), || async {
        (ok(gateway, file).await == value).then_some(())
    })
    .await;
}

/// Log lines about a file.
fn said(gateway: &Gateway, file: &str) -> Vec<Value> {
    gateway.log_lines().into_iter().filter(|line| line["file"] == file).collect()
}

/// Asks for a reload, and how it ended.
async fn reload(gateway: &Gateway) -> Value {
    gateway.admin("POST", "/reload", "").await.json()
}

fn write(folder: &Folder, name: &str, text: &str) {
    let path = folder.path().join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    folder.replace(name, text);
}

fn remove(folder: &Path, name: &str) {
    std::fs::remove_file(folder.join(name)).expect("a file");
}
