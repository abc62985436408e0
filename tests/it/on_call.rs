//! What a person has in hand when a tool fails: `sortie call`, `sortie calls`, `sortie status`.

use serde_json::{Value, json};

use crate::support::cli::{Finished, run};
use crate::support::config::{ADMIN_SOCKET, ConfigBuilder, Folder, SECRET, Tool};
use crate::support::gateway::Gateway;
use crate::support::receiver::{idempotency_key, verify};
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::world::{HOST, World};

const HEADER_SECRET: &str = "shop-token-7Hq2xVb9";

fn always() -> Script {
    Script::always(answer(200, "application/json", r#"{"status":"shipped"}"#))
}

/// Runs a command on a written configuration; no secret of it is in what is printed.
fn command(folder: &Folder, arguments: &[&str], input: &str) -> Finished {
    // The command waits for servers of this test, which have other threads.
    let finished = tokio::task::block_in_place(|| run(arguments, input));
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    folder.canaries.assert_absent("the output of the command", &printed);
    finished
}

fn call(folder: &Folder, tool: &str, arguments: &[&str]) -> Finished {
    let file = folder.config.to_str().expect("UTF-8");
    let all: Vec<&str> = ["call", file, tool].iter().chain(arguments).copied().collect();
    command(folder, &all, "")
}

#[track_caller]
fn outcome(finished: &Finished, code: i32) -> Value {
    assert_eq!(finished.code, Some(code), "{finished:#?}");
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error} {finished:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_test_button_runs_one_marked_call_and_listens_nowhere() {
    let world = World::tls().await;
    world.upstream.default(always());
    // Its port is taken, as by the gateway that runs on this file.
    let taken = Upstream::forbidden_at(([127, 0, 0, 1], 0).into()).await;
    let config = world
        .config()
        .tool(world.tool("lookup"))
        .set("/listeners/api", json!({"address": taken.address().to_string()}));
    let folder = config.write();
    let finished = call(&folder, "lookup", &[r#"{"order_number":"A-1042"}"#, "--agent-id", "me"]);
    assert_eq!(finished.stderr, "");
    let found = outcome(&finished, 0);
    assert_eq!((&found["status"], &found["test"]), (&json!("succeeded"), &json!(true)));
    assert_eq!(found["result"], json!({"status": "shipped"}));
    let request = world.upstream.only_request();
    verify(&request, "X-Tool-Signature", SECRET);
    let body = request.json();
    assert_eq!((&body["test"], &body["agent_id"]), (&json!(true), &json!("me")));
    assert_eq!(body["arguments"], json!({"order_number": "A-1042"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_request_is_shown_without_its_secrets() {
    let world = World::tls().await;
    world.upstream.default(always());
    let url = world.upstream.url(HOST, "/lookup?key=in-the-url");
    let tool = Tool::new("lookup", &url).header("X-Shop", "Bearer ", HEADER_SECRET);
    let folder = world.config().tool(tool.profile("bare-v1")).write();
    let options = ["{}", "--show-request", "--run-id", "run_1", "--step", "7"];
    let finished = call(&folder, "lookup", &options);
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    let request = world.upstream.only_request();
    assert_eq!(request.header("X-Shop"), Some(format!("Bearer {HEADER_SECRET}").as_str()));
    assert_eq!(request.header("Idempotency-Key"), Some(idempotency_key("run_1", "7").as_str()));
    let hidden = String::from_utf8(request.raw())
        .expect("UTF-8")
        .replace(&format!("Bearer {HEADER_SECRET}"), "***")
        .replace("key=in-the-url", "***")
        .replace("\r\n", "\n");
    let (shown, outcome) = finished.stdout.split_once("\n\n{\n").expect("two parts");
    assert_eq!(format!("{shown}\n"), format!("{hidden}\n"), "{finished:#?}");
    assert!(shown.contains("CL-Signature: t="), "{shown}");
    let outcome: Value = serde_json::from_str(&format!("{{{outcome}")).expect("an outcome");
    assert_eq!(outcome["status"], "succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_says_why_in_the_words_of_the_log() {
    let world = World::tls().await;
    world.dns.set("gone.example.com", &["A 10.1.2.3"]);
    let gone = Tool::new("gone", "https://gone.example.com/");
    let no_secret = world.tool("bare").set("secret", json!({"current": {"file": "missing"}}));
    let folder = world
        .config()
        .tool(gone)
        .tool(world.tool("lookup").parameters(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
        ))
        .tool(no_secret.no_secret())
        .tool(world.tool("denied").set("policy", json!("deny")))
        .write();
    for (tool, arguments, status, code, said) in [
        ("gone", "{}", "refused", "blocked_host", "10.1.2.3"),
        ("lookup", "{}", "refused", "invalid_arguments", ""),
        ("bare", "{}", "failed", "not_configured", "missing` is not there"),
        ("denied", "{}", "refused", "denied", ""),
        ("lokup", "{}", "refused", "unknown_tool", "are bare, denied, gone, lookup"),
    ] {
        let finished = call(&folder, tool, &[arguments]);
        let found = outcome(&finished, 1);
        assert_eq!((&found["status"], &found["error"]["code"]), (&json!(status), &json!(code)));
        assert!(finished.stderr.contains(said), "{finished:#?}");
    }
    assert!(world.upstream.connections().is_empty(), "no call went out");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_come_from_files_and_standard_input_too() {
    let world = World::tls().await;
    world.upstream.default(always());
    let folder = world.config().tool(world.tool("lookup")).file("a.json", "{\"a\": 1}").write();
    let path = folder.path().join("a.json");
    let path = path.to_str().expect("UTF-8");
    outcome(&call(&folder, "lookup", &[path]), 0);
    outcome(&call(&folder, "lookup", &[&format!("@{path}")]), 0);
    outcome(&call(&folder, "lookup", &[]), 0);
    let file = folder.config.to_str().expect("UTF-8");
    outcome(&command(&folder, &["call", file, "lookup", "-"], "{\"a\":2}"), 0);
    let sent: Vec<_> =
        world.upstream.requests().iter().map(|one| one.json()["arguments"].clone()).collect();
    assert_eq!(sent, [json!({"a": 1}), json!({"a": 1}), json!({}), json!({"a": 2})]);
    let wrong = call(&folder, "lookup", &["[1]"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""), "{wrong:#?}");
    let wrong = call(&folder, "lookup", &["{}", "--run-id", "a b"]);
    assert_eq!(wrong.code, Some(2), "{wrong:#?}");
    let broken = ConfigBuilder::new().raw("version: 2\n").write();
    let finished = call(&broken, "lookup", &["{}"]);
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert!(finished.stderr.contains("sortie.yaml:1:10: version: "), "{finished:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_found_in_a_log() {
    let world = World::tls().await;
    world.upstream.default(always());
    let gateway = world.config().tool(world.tool("one")).tool(world.tool("two")).start().await;
    let first = gateway.call("one", json!({})).await.id();
    gateway.call("two", json!({})).await.succeeded();
    let unknown = gateway.call("three", json!({})).await.id();
    let lines = gateway.call_lines().await;
    assert_eq!(lines.len(), 3);
    let log = gateway.texts().join("\n") + "\nnot a line\n";
    let calls = |arguments: &[&str]| {
        let arguments: Vec<&str> = ["calls"].iter().chain(arguments).copied().collect();
        let finished = command(gateway.folder(), &arguments, &log);
        assert_eq!(finished.code, Some(0), "{finished:#?}");
        assert!(finished.stderr.contains("1 line is no JSON and left out"), "{finished:#?}");
        finished.stdout
    };
    let all = calls(&["--since", "1h"]);
    assert!(all.ends_with("\n3 calls: 2 ok, 1 unknown_tool\n"), "{all}");
    let one = calls(&["--tool", "one"]);
    assert!(one.contains(&first) && one.ends_with("\n1 call: 1 ok\n"), "{one}");
    let coded: Value =
        serde_json::from_str(&calls(&["--code", "unknown_tool", "--json"])).expect("one line");
    assert_eq!(coded["call_id"], unknown.as_str());
    assert!(calls(&["--since", "2100-01-01T00:00:00Z"]).ends_with("\nno such calls\n"));
    let finished = run(["calls", "--log", "/nowhere"], "");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert!(finished.stderr.contains("`/nowhere` cannot be read"), "{finished:#?}");
    assert_eq!(run(["calls", "--since", "never"], "").code, Some(2));
    gateway.finish().await;
}

fn status(gateway: &Gateway, arguments: &[&str]) -> Finished {
    let socket = format!("unix:{}", gateway.folder().path().join(ADMIN_SOCKET).display());
    let all: Vec<&str> = ["status", "--admin", &socket].iter().chain(arguments).copied().collect();
    command(gateway.folder(), &all, "")
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_of_each_tool_whether_and_why_it_fails() {
    let world = World::tls().await;
    world.upstream.default(Script::responding(|request| {
        let code = if request.line().contains("/works") { 200 } else { 503 };
        answer(code, "application/json", "{}")
    }));
    world.dns.set("gone.example.com", &["A 10.1.2.3"]);
    let limit = json!([{"per": "tool", "rate": "60/min", "burst": 10}]);
    let breaker = json!({"consecutive": 2, "open_for": "5m"});
    let gateway = world
        .config()
        .tool(world.tool("works").set("owner", json!("shop-team")).set("rate_limits", limit))
        .tool(world.tool("fails"))
        .tool(world.tool("breaks").set("breaker", breaker))
        .tool(Tool::new("gone", "https://gone.example.com/"))
        .tool(world.tool("off").set("enabled", json!(false)))
        .tool(world.tool("lacks").no_secret().set("secret", json!({"current": {"file": "no"}})))
        .start()
        .await;
    gateway.call("works", json!({})).await.succeeded();
    for (tool, times) in [("fails", 7), ("breaks", 2), ("gone", 1)] {
        for _ in 0..times {
            gateway.call(tool, json!({})).await;
        }
    }
    let page = status(&gateway, &[]);
    assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{page:#?}");
    assert!(page.stdout.contains(": ready, 0 of 1024 calls running, "), "{page:#?}");
    let row = |tool: &str| {
        let line = page.stdout.lines().find(|line| line.split("  ").next() == Some(tool));
        line.unwrap_or_else(|| panic!("no {tool} in {page:#?}")).to_owned()
    };
    for (tool, said) in [
        ("works", "ok "),
        ("fails", "failing "),
        ("breaks", "circuit open, "),
        ("gone", "blocked_host/private"),
        ("off", "turned off"),
        ("lacks", "unavailable: file `"),
    ] {
        assert!(row(tool).contains(said), "{page:#?}");
    }
    assert!(page.stdout.ends_with("\n5 of 6 tools need a look\n"), "{page:#?}");
    assert!(page.stdout.find("\nbreaks ") < page.stdout.find("\nworks "), "{page:#?}");

    let gone = status(&gateway, &["gone"]).stdout;
    assert!(gone.contains("The tool's address is not allowed.\n"), "{gone}");
    assert!(gone.contains("10.1.2.3"), "the operator reads the address: {gone}");
    let works = status(&gateway, &["works"]).stdout;
    for said in ["owner     shop-team", "60/min per tool, burst 10", "1 succeeded (the last at 2"] {
        assert!(works.contains(said), "no {said:?} in {works}");
    }
    let fails: Value =
        serde_json::from_str(&status(&gateway, &["fails", "--json"]).stdout).expect("JSON");
    assert_eq!(
        (&fails["unsuccessful"], fails["failures"].as_array().unwrap().len()),
        (&json!(7), 5)
    );
    assert_eq!(fails["failures"][0]["status"], 503);
    let nobody = status(&gateway, &["nobody"]);
    assert_eq!(nobody.code, Some(1), "{nobody:#?}");
    assert!(nobody.stderr.contains("there are: breaks, fails, gone"), "{nobody:#?}");
    gateway.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_that_the_new_configuration_is_wrong_and_finds_its_listener_all_the_same() {
    let world = World::plain().await;
    let config = || world.config().tool(world.tool("one"));
    let gateway = config().start().await;
    let file = gateway.folder().config.clone();
    let ask = || {
        let arguments = ["status", "--config", file.to_str().expect("UTF-8")];
        command(gateway.folder(), &arguments, "")
    };
    assert!(!ask().stdout.contains("last reload"));
    gateway.folder().replace("sortie.yaml", &config().set("/region", json!(["no"])).text());
    let reloaded = gateway.admin("POST", "/reload", "").await;
    assert_eq!(reloaded.json()["result"], "invalid", "{}", reloaded.text());
    let page = ask();
    assert_eq!(page.code, Some(0), "{page:#?}");
    for said in ["last reload: invalid at 2", "stays in force", "sortie.yaml:", "region: "] {
        assert!(page.stdout.contains(said), "no {said:?} in {page:#?}");
    }
    gateway.folder().replace("sortie.yaml", &config().set("/region", json!("eu")).text());
    gateway.admin("POST", "/reload", "").await;
    assert!(ask().stdout.contains("(generation 2)"), "{:#?}", ask());
    gateway.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_a_token_and_says_where_nobody_answers() {
    const TOKEN: &str = "sk-admin-Vq7RkX2mPz9LcT4nBw6";
    let admin = json!({"address": "127.0.0.1:0", "token": {"file": "admin.token"}});
    let mut gateway = ConfigBuilder::new()
        .file("admin.token", &format!("{TOKEN}\n"))
        .file("other.token", "sk-other-Vq7RkX2mPz9LcT4nBw6\n")
        .watch(TOKEN)
        .set("/listeners/admin", admin)
        .start()
        .await;
    let place = format!("http://{}", gateway.listening("admin").await);
    let ask = |file: &str| {
        let file = gateway.folder().path().join(file);
        let file = file.to_str().expect("UTF-8");
        let all = ["status", "--admin", &place, "--token-file", file];
        command(gateway.folder(), &all, "")
    };
    assert_eq!(ask("admin.token").code, Some(0), "{:#?}", ask("admin.token"));
    let other = ask("other.token");
    assert_eq!(other.code, Some(1), "{other:#?}");
    assert!(other.stderr.contains("takes another token, give --token-file"), "{other:#?}");
    assert_eq!(ask("no.token").code, Some(1));
    gateway.finish().await;
    let gone = run(["status", "--admin", &place], "");
    assert_eq!(gone.code, Some(1), "{gone:#?}");
    assert!(gone.stderr.contains("--config or --admin says where else to ask"), "{gone:#?}");
    let off = ConfigBuilder::new().raw("version: 1\nauth: none\n").write();
    let off = run(["status", "--config", off.config.to_str().expect("UTF-8")], "");
    assert_eq!(off.code, Some(2), "{off:#?}");
    assert!(off.stderr.contains("has no `listeners.admin`"), "{off:#?}");
    assert_eq!(run(["status", "--admin", "http://10.0.0.5:1"], "").code, Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_names_the_file_that_is_broken_and_its_tools() {
    let world = World::tls().await;
    world.upstream.default(always());
    let broken =
        "owner: shop\nrunbook: https://wiki.example.com/shop\ntools:\n  - {name: refund, ulr: x}\n";
    let config =
        world.config().tool(world.tool("works").set("runbook", json!("https://wiki.example.com/")));
    let config =
        config.set("/include", json!(["tools.d/*.yaml"])).file("tools.d/shop.yaml", broken);
    let gateway = config.start().await;
    let page = status(&gateway, &[]).stdout;
    for said in [
        "tools.d/shop.yaml is broken, its tools are unavailable\n",
        "tools.d/shop.yaml:4:",
        "refund  unavailable: its file tools.d/shop.yaml is broken",
        "1 of 2 tools need a look",
    ] {
        assert!(page.contains(said), "no {said:?} in {page}");
    }
    let works = status(&gateway, &["works"]).stdout;
    assert!(works.contains("  runbook   https://wiki.example.com/\n"), "{works}");
    gateway.finish().await;
}

/// What would dress a terminal up or turn it around, in a JSON text as a foreign server may send it.
const ODD: &str =
    "{\"version\":\"a\u{9b}31m\",\r\n\t\"hash\":\"\u{7f}\u{202e}\",\"tools\":{\"b\u{9b}c\":{}}}";

#[track_caller]
fn is_undressed(finished: &Finished) {
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    let odd = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
    assert!(!printed.contains(odd), "{printed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_says_does_not_dress_the_terminal_up() {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", ODD)));
    let folder = world.config().tool(world.tool("lookup")).write();
    let finished = call(&folder, "lookup", &["{}"]);
    is_undressed(&finished);
    assert_eq!(outcome(&finished, 0)["result"]["version"], "a\u{9b}31m");

    let admin = Upstream::plain().await;
    admin.default(Script::always(answer(200, "application/json", ODD)));
    let place = format!("http://{}", admin.address());
    for more in [&[][..], &["b\u{9b}c"], &["--json"], &["nothing"]] {
        let arguments: Vec<&str> =
            ["status", "--admin", &place].iter().chain(more).copied().collect();
        let finished = command(&folder, &arguments, "");
        assert_eq!(finished.code, Some(i32::from(more == ["nothing"])), "{finished:#?}");
        is_undressed(&finished);
    }
}
