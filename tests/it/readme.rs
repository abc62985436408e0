//! README.md holds what it says: its commands run, its tables are those of the code.

mod approvals;
mod happens;
mod page;
mod server;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use sortie::policy::egress_code::EgressCode;
use sortie::serve::http::ApiCode;

use self::page::{Page, Shell, backticked, words};
use self::server::Server;
use crate::support::config::ConfigBuilder;
use crate::support::dev::Dev;
use crate::support::gateway::Gateway;
use crate::support::http::{Reply, exchange, get, post, request};
use crate::support::languages::runs;
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// The page's addresses, which a test must not take.
const API: &str = "127.0.0.1:8477";
const TELEMETRY: &str = "127.0.0.1:9477";

#[test]
fn the_first_commands_are_the_ones_that_are_promised() {
    let page = Page::read();
    let first = |heading| page.section(heading).blocks("sh").first().cloned().expect("a block");
    assert_eq!(first("## Quick start"), "cargo run --release --locked -- demo --once\n");
    assert_eq!(first("## Tests"), "cargo test --locked\n");
}

/// The page's configuration on free ports.
fn config(yaml: &str, shell: &Shell) -> ConfigBuilder {
    let any = "{address: \"127.0.0.1:0\"}";
    let listeners = format!("listeners:\n  api: {any}\n  telemetry: {any}\n");
    let mut config = ConfigBuilder::new().raw(&yaml.replacen("listeners:\n", &listeners, 1));
    for file in ["secrets/runtime", "secrets/lookup_order"] {
        let secret = shell.read(file);
        config = config.file(file, &secret).watch(secret.trim_end());
    }
    config
}

/// Runs `curl` as the page writes it, without needing curl.
async fn curl(line: &str, gateway: &Gateway) -> Reply {
    let mut parts = words(line, gateway.folder().path()).into_iter().skip(1);
    let (mut headers, mut body, mut target) = (Vec::new(), None, String::new());
    while let Some(part) = parts.next() {
        match part.as_str() {
            "-s" => {}
            "-H" => headers.push(parts.next().expect("a header")),
            "-d" => body = parts.next(),
            _ => target = part,
        }
    }
    let target = target.strip_prefix("http://").expect("an address of the gateway");
    let (address, path) = target.split_at(target.find('/').expect("a path"));
    let address = address.parse().expect("an address");
    let Some(body) = body else { return exchange(address, &get(path)).await };
    let key = headers.iter().find_map(|header| header.strip_prefix("Authorization: Bearer "));
    assert!(headers.contains(&"Content-Type: application/json".to_owned()), "{headers:?}");
    exchange(address, &post(path, key, body)).await
}

/// Lines that are not run as they stand, and why. Every other line is run, so a new one that cannot be needs a row here.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "cargo install --locked --path .",
        "writes outside of the folder; `sortie` is the binary under test",
    ),
    ("cargo test --locked", "is what runs this test"),
    ("deploy/image/build.sh target/context", "builds for minutes; tests/it/deploy/image.rs has it"),
    (
        "docker build -t sortie:0.1.0 -f deploy/image/Dockerfile.scratch target/context",
        "needs a daemon; tests/it/deploy/image.rs builds the same without one",
    ),
    ("deploy/release/make.sh target/release-files", "tests/it/deploy/release.rs runs it"),
    ("sortie dev sortie.yaml", "takes the page's own ports; tests/it/dev.rs runs it on others"),
    (
        "helm install sortie deploy/helm/sortie --namespace sortie --create-namespace --values values.yaml",
        "needs a cluster; tests/it/deploy/helm.rs renders the same",
    ),
    (
        "kubectl apply -k deploy/kustomize/overlays/shared",
        "needs a cluster; tests/it/deploy/helm.rs makes the same",
    ),
    (
        "helm template sortie deploy/helm/sortie --values values.yaml > rendered.yaml",
        "Helm is fetched by tests/it/deploy/helm.rs, which runs it",
    ),
    (
        "python3 tests/deploy/policies.py --external Secret/sortie-tools --sortie \"$(command -v sortie)\" rendered.yaml",
        "needs what the line before it makes; tests/it/deploy/helm.rs runs both",
    ),
];

/// What stands in for a part of a line, which is then run: the binary under test is what the one builds, and the other is a
/// cluster's.
const STANDS_IN: &[(&str, &str)] = &[
    ("cargo run --release --locked -- ", "sortie "),
    ("kubectl logs deploy/sortie ", "cat gateway.log "),
];

// The commands wait for the fixtures, so these need threads of their own.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_runs_as_it_is_written() {
    if !runs("python3", &["--version"]) {
        return;
    }
    let page = Page::read();
    let first = |language| page.blocks(language).first().cloned().expect("a block");
    let mut server = Server::new();
    let yaml = server.at_home(&first("yaml"));
    let mut shell = Shell::new();
    let mut gateway: Option<Gateway> = None;
    let (mut calls, mut commands, mut not_run) = (0, 0, BTreeSet::new());
    // Those of approvals want another configuration: they have a test of their own.
    let page_without = page.without("## Approvals");
    for line in page_without.blocks("sh").iter().flat_map(|block| page::lines(block)) {
        let line = server.at_home(&line);
        let line = match &gateway {
            None => line,
            Some(running) => line
                .replace(API, &running.api().to_string())
                .replace(TELEMETRY, &running.telemetry().to_string()),
        };
        if let Some((row, _)) = NOT_RUN.iter().find(|(row, _)| *row == line) {
            not_run.insert(*row);
            continue;
        }
        match line.split(' ').next().unwrap_or_default() {
            "cd" => {
                let folder = shell.folder().join(line.trim_start_matches("cd "));
                shell.move_to(&folder);
                // The reader writes these when the folder is made.
                shell.write("server.py", &server.at_home(&first("python")));
                shell.write("sortie.yaml", &yaml);
            }
            "curl" => {
                let reply = curl(&line, gateway.as_ref().expect("`serve` comes first")).await;
                assert_eq!(reply.status, 200, "{line}: {}", reply.text());
                if line.contains("/v1/calls") {
                    let order = json!({"order": "A-1042", "status": "shipped"});
                    assert_eq!(reply.json()["result"], order, "{}", reply.text());
                    calls += 1;
                }
            }
            "python3" if line == "python3 server.py" => server.start(&line, &shell).await,
            "sortie" if line.starts_with("sortie serve ") => {
                assert_eq!(line, "sortie serve --config sortie.yaml");
                let started = config(&yaml, &shell).start().await;
                shell.move_to(started.folder().path());
                gateway = Some(started);
            }
            "sortie" if line.starts_with("sortie dev ") => {
                assert_eq!(line, "sortie dev sortie.yaml");
                let dev = Dev::start(config(&yaml, &shell).write()).await;
                assert_eq!(dev.interrupt().await, Some(0));
                commands += 1;
            }
            _ => {
                if let Some(running) = &gateway {
                    shell.write("gateway.log", &(running.texts().join("\n") + "\n"));
                }
                let replace = |line: String, (part, by): &(&str, &str)| line.replace(part, by);
                shell.run(&STANDS_IN.iter().fold(line, replace));
                commands += 1;
            }
        }
    }
    assert!(calls > 0 && commands > 10, "{calls} calls, {commands} commands");
    let api = gateway.as_ref().expect("a gateway").api().to_string();
    let client = page.section("## Client packages").blocks("python");
    shell.write("client.py", &client.first().expect("a block").replace(API, &api));
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/clients/python/src");
    let ask =
        "python3 client.py | grep -x '{\"order\": \"A-1042\", \"status\": \"shipped\"} False'";
    let environment = format!("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='{}'", package.display());
    shell.run(&format!("{environment} {ask}"));
    assert_eq!(not_run, NOT_RUN.iter().map(|(row, _)| *row).collect(), "rows without a line");
    // The calls were verified: what nobody signed is not answered.
    let unsigned = request("POST", "/tools/lookup-order", None, r#"{"arguments":{}}"#);
    assert_eq!(exchange(server.address(), unsigned.as_bytes()).await.status, 401);
    gateway.expect("a gateway").finish().await;
}

#[test]
fn no_command_hides_in_a_block_that_is_not_run() {
    const PROGRAMS: [&str; 11] = [
        "$", "cargo", "cd", "curl", "docker", "helm", "kubectl", "npm", "pip", "python3", "sortie",
    ];
    const LANGUAGES: [&str; 9] =
        ["go", "http", "json", "python", "rust", "sh", "text", "ts", "yaml"];
    let page = Page::read();
    let fences = page.text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
    let unknown = fences.filter(|language| !language.is_empty() && !LANGUAGES.contains(language));
    assert_eq!(unknown.collect::<Vec<_>>(), [""; 0]);
    for language in LANGUAGES.iter().filter(|language| **language != "sh") {
        let blocks = page.blocks(language);
        let mut lines = blocks.iter().flat_map(|block| block.lines());
        let is_command = |line: &&str| {
            let mut words = line.split_whitespace();
            let program = words.next().is_some_and(|word| PROGRAMS.contains(&word));
            // `sortie: …` of a file and `sortie │` of a picture are none.
            program && words.next().is_some_and(|word| word.starts_with(|c: char| c.is_ascii()))
        };
        assert_eq!(lines.find(is_command), None, "a block of {language}");
    }
}

#[test]
fn every_file_that_is_named_is_there() {
    let page = Page::read();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut links = page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    assert!(links.clone().count() > 5);
    let missing = links.find(|link| match link.strip_prefix('#') {
        Some(anchor) => !page.has_anchor(anchor),
        None => !root.join(link).exists(),
    });
    assert_eq!(missing, None);
}

#[test]
fn the_raw_requests_are_the_golden_ones() {
    let page = Page::read();
    let shown: BTreeSet<String> = page.blocks("http").into_iter().collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden = std::fs::read_dir(folder).expect("the folder").map(|entry| {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file");
        text.replace("\r\n", "\n") + "\n"
    });
    assert_eq!(shown, golden.collect());
}

#[test]
fn the_codes_of_the_api_are_all_there_with_their_status() {
    let rows = Page::read().section("### Errors of the API").rows();
    let shown: BTreeSet<(String, String)> =
        rows.iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let known = ApiCode::ALL
        .map(|code| (code.status().as_u16().to_string(), format!("`{}`", code.as_str())));
    assert_eq!(shown, known.into());
}

#[test]
fn the_codes_of_addresses_are_all_there_once() {
    let rows = Page::read().section("### Which addresses may be called").rows();
    let mut shown: Vec<String> = rows.iter().flat_map(|row| backticked(&row[1])).collect();
    shown.sort();
    let mut known: Vec<String> = EgressCode::ALL.iter().map(|code| code.as_str().into()).collect();
    known.retain(|code| code != "ok");
    known.sort();
    assert_eq!(shown, known);
}

/// The metrics that have a series after a good call, a repeated one and one with wrong arguments.
pub(crate) async fn metrics() -> String {
    let world = World::tls().await;
    let good = answer(200, "application/json", "7");
    world.upstream.next(Script::once(answer(503, "application/json", "{}")));
    world.upstream.default(Script::always(good));
    let tool = world
        .tool("lookup")
        .profile("bare-v1")
        .set("policy", json!({"effect": "allow", "shadow": {"effect": "deny"}}));
    let gateway =
        world.gateway(tool.parameters(json!({"type": "object", "maxProperties": 1}))).await;
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.call("lookup", json!({"a": 1, "b": 2})).await.refused("invalid_arguments", None);
    let text = gateway.metrics().await.text;
    gateway.finish().await;
    text
}

#[tokio::test]
async fn the_metrics_are_all_there_with_their_labels() {
    let section = Page::read().section("### Metrics");
    let shown: BTreeSet<String> =
        section.rows().iter().flat_map(|row| backticked(&row[0])).collect();
    let text = metrics().await;
    let exported: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE sortie_")?.split(' ').next())
        .map(|name| format!("sortie_{name}"))
        .collect();
    assert_eq!(shown, exported);
    for row in section.rows() {
        for name in backticked(&row[0]) {
            for label in row[1].split(", ").filter(|label| !label.is_empty()) {
                let series = text.lines().filter(|line| line.starts_with(&name));
                let has = |line: &str| line.contains(&format!("{label}=\""));
                assert!(series.into_iter().any(has), "{name} has no label {label}");
            }
        }
    }
}

#[tokio::test]
async fn the_log_line_has_the_fields_that_are_shown() {
    let page = Page::read();
    let shown = page.section("## Operating").blocks("json").first().cloned().expect("a line");
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let gateway = world.gateway(world.tool("lookup")).await;
    let outcome = gateway.call("lookup", json!({})).await;
    let line = gateway.call_line(&outcome.id()).await;
    let keys = |value: &Value| -> BTreeSet<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    let shown = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(keys(&shown), keys(&line));
    // What is shown of the outcome is part of one.
    let example =
        page.section("## A verified call to a server of your own").blocks("json").first().cloned();
    let example = serde_json::from_str(&example.expect("an outcome")).expect("JSON");
    let unknown = keys(&example).difference(&keys(&outcome.0.json())).cloned().collect::<Vec<_>>();
    assert_eq!(unknown, ["\u{2026}"]);
    gateway.finish().await;
}
