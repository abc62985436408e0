//! A person's own token: it goes out with its call, and is nowhere else.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::canary::Canaries;
use crate::support::config::{API_KEY, ConfigBuilder, Tool};
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::World;

const PERSON: &str = "person-Kx83Wq2m-5Rt9";
/// Another person's, whose tool sends it back.
const ECHOED: &str = "echoed-Vn47Jb6z-2Qs8";
const HEADER: &str = "X-User-Token";

fn tool(world: &World, name: &str) -> Tool {
    world.tool(name).profile("plain-v1").no_secret().set("accept_credentials", json!([HEADER]))
}

fn call(tool: &str, person: &str) -> Value {
    json!({"tool": tool, "arguments": {}, "credentials": {HEADER: person}})
}

fn canary(secret: &str) -> Canaries {
    let mut canaries = Canaries::default();
    canaries.watch(secret);
    canaries
}

/// Searches every file below a folder, and their names.
fn search(folder: &Path, canaries: &Canaries) -> usize {
    let mut files = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        canaries.assert_absent("a file's name", &path.to_string_lossy());
        if path.is_dir() {
            files += search(&path, canaries);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).expect("a file");
            canaries.assert_absent("a file", &String::from_utf8_lossy(&bytes));
            files += 1;
        }
    }
    files
}

#[tokio::test]
async fn it_goes_out_with_its_own_call_alone() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = world.config().tool(tool(&world, "mine")).watch(PERSON).start().await;
    let header = |at: usize| {
        let request = &world.upstream.requests()[at];
        let found =
            request.headers().into_iter().find(|(name, _)| name.eq_ignore_ascii_case(HEADER));
        found.map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    gateway.call_with(call("mine", PERSON)).await.succeeded();
    // On the same connection, of somebody else.
    gateway.call("mine", json!({})).await.succeeded();
    let lower = json!({"tool": "mine", "arguments": {}, "credentials": {"x-user-token": "a b~!"}});
    gateway.call_with(lower).await.succeeded();
    let sent = |value: &str| Some((HEADER.to_owned(), value.to_owned()));
    assert_eq!([header(0), header(1), header(2)], [sent(PERSON), None, sent("a b~!")]);
    assert_eq!(world.upstream.connections().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn each_attempt_of_the_call_has_it() {
    let world = World::plain().await;
    let again = [answer(503, "text/plain", "no"), answer(200, "application/json", "{}")];
    for text in again {
        world.upstream.next(Script::once(text));
    }
    world.upstream.default(Script::new());
    let mine = world.tool("mine").profile("bare-v1").set("accept_credentials", json!([HEADER]));
    let gateway = world.config().tool(mine).watch(PERSON).start().await;
    gateway.call_with(call("mine", PERSON)).await.succeeded();
    let requests = world.upstream.requests();
    let sent: Vec<_> = requests.iter().map(|request| request.header(HEADER)).collect();
    assert_eq!(sent, [Some(PERSON), Some(PERSON)]);
    gateway.finish().await;
}

/// Tools for every kind of end, at the level that says most, with an admin listener.
fn every_kind(world: &World) -> ConfigBuilder {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let elsewhere = |name: &str, url: &str| {
        let tool = Tool::new(name, url).profile("plain-v1").no_secret();
        tool.set("accept_credentials", json!([HEADER]))
    };
    world
        .config()
        .tool(tool(world, "mine").parameters(schema).set("timeout", json!("1s")))
        .tool(tool(world, "denied").set("policy", json!("deny")))
        .tool(tool(world, "asked").set("policy", json!("require_approval")))
        .tool(tool(world, "off").set("enabled", json!(false)))
        .tool(elsewhere("inside", "https://inside.example.com/"))
        .tool(elsewhere("nowhere", "https://nowhere.example.com/"))
        .tool(tool(world, "limited").set("rate_limits", json!([{"per": "tool", "rate": "1/day"}])))
        .tool(world.tool("signed").set("accept_credentials", json!([HEADER])))
        .tool(world.tool("unlisted").profile("plain-v1").no_secret())
        .set("/logging/level", json!("trace"))
        .set("/storage", json!({"url": "sqlite:calls.db"}))
        .key("desk", "sk-desk-Qm72xTz9Lw4Rv8KpYb", json!({"scopes": ["agent"]}))
        .watch(PERSON)
}

async fn everything_that_can_go_wrong(world: &World, gateway: &Gateway) {
    let ok = || answer(200, "application/json", "{}");
    let moved = answer(302, "text/plain", "");
    for script in [
        Script::once(ok()),
        Script::once(answer(500, "text/plain", "broken")),
        Script::once(answer(404, "text/plain", "no such thing")),
        Script::once(moved),
        Script::new().request().reset(),
        Script::new().request().stall(),
        Script::once(answer(200, "image/png", "x")),
        Script::once(ok()),
        Script::once(ok()),
    ] {
        world.upstream.next(script);
    }
    world.upstream.default(Script::new());
    let with = |tool: &str| gateway.call_with(call(tool, PERSON));
    with("mine").await.succeeded();
    with("mine").await.failed("http_status", None, "answered");
    with("mine").await.failed("http_status", None, "answered");
    with("mine").await.failed("redirect", None, "answered");
    with("mine").await.failed("network_error", Some("reset"), "unknown");
    with("mine").await.failed("timeout", Some("first_byte"), "unknown");
    with("mine").await.failed("bad_body", Some("media"), "unknown");
    with("signed").await.succeeded();
    with("limited").await.succeeded();
    with("limited").await.refused("rate_limited", None);
    with("denied").await.refused("denied", None);
    let waits = with("asked").await.0;
    assert_eq!((waits.status, &waits.json()["error"]["field"]), (422, &json!("/credentials")));
    with("off").await.refused("tool_disabled", None);
    with("inside").await.refused("blocked_host", Some("private"));
    with("nowhere").await.failed("network_error", Some("dns"), "not_sent");
    with("unknown").await.refused("unknown_tool", None);
    let mut wrong = call("mine", PERSON);
    wrong["arguments"] = json!({"a": "text"});
    gateway.call_with(wrong).await.refused("invalid_arguments", None);
    let sent = world.upstream.requests();
    assert!(sent.iter().all(|request| request.header(HEADER) == Some(PERSON)));
    assert_eq!(sent.len(), 9);
}

async fn every_request_that_is_none(gateway: &Gateway) {
    let whole = call("mine", PERSON).to_string();
    let value = format!("\"{PERSON}\"");
    let line_end = format!("\"{PERSON}\\r\\n\"");
    let fields = |fields: &str| format!(r#"{{"tool":"mine","arguments":{{}},{fields}}}"#);
    for body in [
        // It breaks off, goes on, or is not UTF-8's JSON at all.
        whole[..whole.len() - 1].to_owned(),
        format!("{whole}{whole}"),
        whole.replace("credentials", "credential"),
        whole.replace("{}", "[]"),
        whole.replace("mine", "unlisted"),
        whole.replace(&value, &line_end),
        whole.replace(&value, &format!("[{value}]")),
        whole.replace(&value, &format!("{value},\"{HEADER}\":{value}")),
        whole.replace(&value, &format!("{value},\"x-user-token\":{value}")),
        whole.replace(HEADER, "Authorization"),
        fields(&format!(r#""credentials":{value}"#)),
        fields(&format!(r#""credentials":[{value}]"#)),
        fields(&format!(r#""credentials":{{"{HEADER}":{value}}},"wait_ms":-1"#)),
        fields(&format!(r#""credentials":{{"{HEADER}":{value}}},"run_id":{value},"step":"a b""#)),
    ] {
        let reply = gateway.post(Some(API_KEY), &body).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
    }
    assert_eq!(gateway.post(None, &whole).await.status, 401);
    assert_eq!(gateway.post(Some("sk-desk-Qm72xTz9Lw4Rv8KpYb"), &whole).await.status, 403);
}

#[tokio::test]
async fn it_is_in_no_log_metric_outcome_admin_answer_or_file() {
    let world = World::plain().await;
    world.dns.set("inside.example.com", &["A 10.9.8.7"]);
    world.dns.set("nowhere.example.com", &["NXDOMAIN"]);
    let gateway = every_kind(&world).start().await;
    everything_that_can_go_wrong(&world, &gateway).await;
    every_request_that_is_none(&gateway).await;
    for path in ["/status", "/config", "/log-level"] {
        assert_eq!(gateway.admin("GET", path, "").await.status, 200);
    }
    assert_eq!(gateway.admin("POST", "/reload", "").await.status, 200);
    let canaries = canary(PERSON);
    poll("all calls in the store's file", || async {
        let metrics = gateway.metrics().await;
        let (kept, ended) =
            (("sortie_call_records_total", [("result", "written")]), "sortie_calls_total");
        (metrics.value(kept.0, &kept.1) >= metrics.value(ended, &[])).then_some(())
    })
    .await;
    let files = search(gateway.folder().path(), &canaries);
    assert!(files >= 4, "the file, a key, a secret and the store: {files}");
    let folder = gateway.folder().path().to_owned();
    let found = std::panic::catch_unwind(|| search(&folder, &canary(API_KEY)));
    assert!(found.is_err(), "what is in a file is found");
    for path in ["/metrics", "/readyz", "/livez"] {
        canaries.assert_absent(path, &gateway.probe(path).await.text());
    }
    // Standard output, standard error and every answer of both APIs are searched when it is dropped.
    let finished = gateway.finish().await;
    assert!(finished.stdout.contains("\"code\":\"timeout\""), "{}", finished.stdout);
}

#[tokio::test]
async fn a_tool_that_sends_it_back_has_answered_with_it_and_the_log_still_has_not() {
    let world = World::plain().await;
    let echo = format!("you are {ECHOED}");
    for status in [500, 404, 200] {
        world.upstream.next(Script::once(answer(status, "text/plain", &echo)));
    }
    world.upstream.default(Script::new());
    let config = world.config().tool(tool(&world, "mine")).set("/logging/level", json!("trace"));
    let gateway = config.start().await;
    let broken = gateway.call_with(call("mine", ECHOED)).await;
    broken.failed("http_status", None, "answered");
    canary(ECHOED).assert_absent("the outcome of a 500", &broken.0.text());
    // The profile hands on what a 4xx says, and a 2xx is the result: both are the tool's own words.
    let refused = gateway.call_with(call("mine", ECHOED)).await;
    assert!(refused.model_text().ends_with(&echo), "{}", refused.model_text());
    assert_eq!(gateway.call_with(call("mine", ECHOED)).await.succeeded(), json!(echo));
    search(gateway.folder().path(), &canary(ECHOED));
    let metrics = gateway.metrics().await.text;
    let finished = gateway.finish().await;
    for output in [&finished.stdout, &finished.stderr, &metrics] {
        canary(ECHOED).assert_absent("the log or the metrics", output);
    }
}

#[test]
fn names_that_are_somebody_else_s_cannot_be_listed() {
    let refused = [
        "Host",
        "Content-Type",
        "Content-Length",
        "Transfer-Encoding",
        "TE",
        "Trailer",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Proxy-Authorization",
        "Expect",
        "User-Agent",
        "Accept-Encoding",
        "Idempotency-Key",
        "X-Tool-Name",
        "CL-Signature",
        "webhook-id",
        "X Y",
        "",
        "é",
        "X:",
    ];
    let listed = |names: Value| {
        let tool = Tool::new("mine", "https://shop.example.com/x").profile("plain-v1").no_secret();
        ConfigBuilder::new().tool(tool.set("accept_credentials", names)).check(&["--strict"])
    };
    for name in refused {
        for name in [name.to_owned(), name.to_lowercase(), name.to_uppercase()] {
            let checked = listed(json!([name]));
            let said = format!("{}{}", checked.stdout, checked.stderr);
            assert_eq!(checked.code, Some(1), "{name}: {said}");
            assert!(said.contains("tools[0].accept_credentials[0]: "), "{name}: {said}");
        }
    }
    for good in ["Authorization", "Cookie", "X-User-Token"] {
        assert_eq!(listed(json!([good])).code, Some(0), "{good}");
    }
}
