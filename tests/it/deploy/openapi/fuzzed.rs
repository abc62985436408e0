//! What the document says, tried with requests that are made from it: thousands of good and of wrong ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::python;
use crate::deploy::{Venv, shipped};
use crate::support::config::ConfigBuilder;
use crate::support::gateway::Gateway;
use crate::support::http::{get, post};
use crate::support::script::{Script, answer};
use crate::support::upstream::Request;
use crate::support::world::World;

/// A key that may do everything.
const KEY: &str = "sk-everything-Ht4Wq9Zr2Xk7Lm5P";
/// A header that calls of one tool may bring along.
const CREDENTIAL: &str = "X-User-Token";
/// Requests of each kind for each operation.
const EXAMPLES: &str = "20";
/// The same requests each time.
const SEED: &str = "42";
/// It takes half a minute; a machine that has others to serve, some more.
const SECONDS: &str = "540";
/// The stream of events has no end that a client of this kind could wait for: `events.rs` looks at it.
const LEFT_OUT: &str = "/v1/events";

/// What the tools' server answers, by path.
fn tool_server(request: &Request) -> Vec<u8> {
    let path = request.line().split(' ').nth(1).unwrap_or_default();
    match path {
        "/text" => answer(200, "text/plain", "It is on its way."),
        "/image" => answer(200, "image/png", "PNG"),
        "/busy" => answer(503, "application/json", "{}"),
        "/wrong" => answer(404, "application/json", r#"{"why":"no such order"}"#),
        "/elsewhere" => answer(302, "text/plain", ""),
        "/long" => answer(200, "text/plain", "x".repeat(100_000)),
        _ => answer(200, "application/json", r#"{"status":"shipped","weight":1.50}"#),
    }
}

/// Names of tools whose calls end in different ways, or wait.
const TOOLS: &[&str] =
    &["json", "text", "image", "busy", "wrong", "elsewhere", "long", "refund", "delete", "off"];

fn config(world: &World) -> ConfigBuilder {
    let tools = TOOLS.iter().map(|name| {
        let tool = world.tool(name);
        match *name {
            "json" => tool
                .profile("bare-v1")
                .set("policy", json!({"effect": "allow", "shadow": {"effect": "deny"}}))
                .set("filler", json!("One moment."))
                .set("accept_credentials", json!([CREDENTIAL])),
            "refund" => tool.set("policy", json!("require_approval")),
            "delete" => tool.set("policy", json!("ask_first")),
            "off" => tool.set("enabled", json!(false)),
            _ => tool,
        }
    });
    let scopes = json!(["agent", "agent:call", "agent:approve", "agent:policy"]);
    let config = tools.fold(world.config(), ConfigBuilder::tool);
    config
        .key("everything", KEY, json!({ "scopes": scopes }))
        .set("/agents", json!([{"id": "support", "tools": ["*"]}]))
        .set("/policies", json!([{"id": "of-file", "mode": "shadow", "effect": "ask_first"}]))
        .set("/storage", json!({"url": "sqlite:calls.db"}))
        .patient()
}

/// Calls that have ended or wait, by their ids.
async fn calls(gateway: &Gateway) -> Vec<String> {
    let mut ids = Vec::new();
    for (tool, count) in [("text", 2), ("refund", 20), ("delete", 4)] {
        for nth in 0..count {
            let id = format!("call_{tool}{nth}");
            let call = json!({"tool": tool, "arguments": {}, "call_id": id, "agent_id": "support"});
            let reply = gateway.send(&post("/v1/calls", Some(KEY), call.to_string())).await;
            assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
            // What the approvals are of is left to them.
            if nth < 4 {
                ids.push(id);
            }
        }
    }
    ids
}

/// Runs it, and fails with what it found.
async fn run(python: &Venv, gateway: &Gateway, known: &Value, seen: &std::path::Path) {
    let folder = seen.parent().expect("a folder");
    let document = folder.join("openapi.json");
    let text = gateway.send(&get("/openapi.json")).await.text();
    fs::write(&document, text).expect("a written file");
    let program = python.program("schemathesis");
    let mut command = Command::new("timeout");
    command.arg(SECONDS).arg(program.get_program()).arg("--config-file");
    command.arg(shipped("tests/deploy/schemathesis.toml")).arg("run").arg(&document);
    command.args(["--url", &format!("http://{}", gateway.api())]);
    command.args(["--header", &format!("Authorization: Bearer {KEY}")]);
    command.args(["--seed", SEED, "--max-examples", EXAMPLES, "--exclude-path", LEFT_OUT]);
    command.args(["--request-timeout", "60", "--no-color", "--no-shrink"]);
    command
        .current_dir(folder)
        .env("OPENAPI_KNOWN", known.to_string())
        .env("OPENAPI_SEEN", seen)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONPATH", shipped("tests/deploy"))
        .env("SCHEMATHESIS_HOOKS", "openapi_hooks")
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.expect("a task").expect("`timeout` starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}\n{problem}", output.status);
}

/// The statuses that each operation was answered with.
fn statuses(seen: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut by_operation: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (operation, status) in seen.lines().filter_map(|line| line.rsplit_once(' ')) {
        by_operation.entry(operation).or_default().insert(status);
    }
    by_operation
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_made_from_the_document_is_answered_in_another_way() {
    let Some(python) = python() else { return };
    let world = World::plain().await;
    world.upstream.default(Script::responding(tool_server));
    let gateway = config(&world).start().await;
    let known = json!({
        "url": format!("http://{}", gateway.api()), "authorization": format!("Bearer {KEY}"),
        "agent": "support", "tools": TOOLS, "calls": calls(&gateway).await,
        "credential": CREDENTIAL, "takes_credential": "json",
    });
    let folder = tempfile::tempdir().expect("a folder");
    let seen = folder.path().join("seen.txt");
    run(&python, &gateway, &known, &seen).await;

    // It went deep: each operation did what it is for at least once, and calls ended in all these ways.
    let seen = fs::read_to_string(&seen).expect("what was seen");
    let statuses = statuses(&seen);
    let document = gateway.send(&get("/openapi.json")).await.json();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let methods = item.as_object().expect("a path").iter();
        for (method, operation) in methods.filter(|(method, _)| *method != "parameters") {
            let name = format!("{} {path}", method.to_uppercase());
            if path == LEFT_OUT {
                continue;
            }
            let told = operation["responses"].as_object().expect("responses").keys();
            let mut good = told.filter(|status| status.starts_with('2')).peekable();
            let found = statuses.get(name.as_str()).unwrap_or_else(|| panic!("{name} was asked"));
            let is_good = good.peek().is_none() || good.any(|one| found.contains(one.as_str()));
            assert!(is_good, "{name}: {found:?}");
        }
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_panics_total", &[]), 0.0);
    for code in ["ok", "bad_body", "http_status", "redirect", "rejected", "tool_disabled"] {
        assert!(metrics.value("sortie_calls_total", &[("code", code)]) > 0.0, "{code}");
    }
    gateway.finish().await;
}
