//! People are told: a signed webhook and mail, from an outbox that outlives the process, and at no cost to calls.

mod mailbox;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use sortie::store::Store;
use sortie::store::sqlite::SqliteStore;

use self::mailbox::Mailbox;
use crate::support::config::ConfigBuilder;
use crate::support::gateway::Gateway;
use crate::support::http::request;
use crate::support::script::{Script, answer};
use crate::support::upstream::{Request, Upstream};
use crate::support::world::World;

const HOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const APPROVER: &str = "sk-approver-Jd4KsW8nQy2ZbR6m";

/// A world with a tool `refund` that needs an operator, and a tool `lookup` that needs nobody.
async fn world() -> (World, ConfigBuilder) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "text/plain", "fine")));
    let refund = world.tool("refund").set("policy", json!("require_approval"));
    let config = world.config().tool(refund).tool(world.tool("lookup"));
    (world, config)
}

/// Tells this server of these events.
fn told_at(config: ConfigBuilder, sink: &Upstream, events: Value) -> ConfigBuilder {
    let url = format!("http://{}/hook?token=t", sink.address());
    let webhook = json!({"url": url, "secret": {"file": "secrets/hook"}, "events": events});
    config
        .file("secrets/hook", &format!("{HOOK_SECRET}\n"))
        .watch(HOOK_SECRET)
        .set("/notifications/webhook", webhook)
}

async fn taking() -> Upstream {
    let sink = Upstream::plain().await;
    sink.default(Script::always(answer(204, "text/plain", "")));
    sink
}

async fn waiting(gateway: &Gateway) -> Value {
    let outcome = gateway.call("refund", json!({"amount": 7})).await;
    assert_eq!(outcome.at("/status"), json!("waiting_approval"), "{outcome:?}");
    outcome.0.json()
}

/// Checks the signature as any receiver would (Standard Webhooks), and gives the body.
#[track_caller]
fn verified(request: &Request) -> Value {
    let header = |name: &str| request.header(name).unwrap_or_else(|| panic!("no {name}"));
    let key = STANDARD.decode(HOOK_SECRET.trim_start_matches("whsec_")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&request.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(header("webhook-signature"), expected);
    assert_eq!(header("Content-Type"), "application/json");
    request.json()
}

async fn told(gateway: &Gateway, sink: &str, result: &str) -> f64 {
    let labels = [("sink", sink), ("result", result)];
    gateway.metrics().await.value("sortie_notifications_total", &labels)
}

#[tokio::test]
async fn a_call_that_waits_is_told_at_once_and_signed() {
    let (sink, (_world, config)) = (taking().await, world().await);
    let config = told_at(config, &sink, json!(["approval.requested"]));
    let gateway = config.start().await;
    let call = waiting(&gateway).await;
    let asked = std::time::Instant::now();
    let requests = sink.wait_for_requests(1).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    let request = &requests[0];
    assert_eq!(request.line(), "POST /hook?token=t HTTP/1.1");
    let body = verified(request);
    assert_eq!(body["type"], "approval.requested");
    let data = &body["data"];
    assert_eq!(data["call_id"], call["id"]);
    assert_eq!(data["id"], call["approval"]["id"]);
    assert_eq!(data["arguments"], json!({"amount": 7}));
    assert_eq!(data["arguments_digest"], call["approval"]["arguments_digest"]);
    assert_eq!(data["expires_at"], call["approval"]["expires_at"]);
    assert_eq!((&data["tool"], &data["status"]), (&json!("refund"), &json!("pending")));
    assert_eq!(data["organisation"], "default");
    crate::support::wait::poll("the delivery to be counted", || async {
        (told(&gateway, "webhook", "sent").await == 1.0).then_some(())
    })
    .await;
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_not_captured_is_not_told() {
    let (sink, (world, config)) = (taking().await, world().await);
    let quiet = world.tool("quiet").set("policy", json!("require_approval"));
    let config = config.tool(quiet.set("capture", json!("none")));
    let gateway = told_at(config, &sink, json!(["approval.requested"])).start().await;
    gateway.call("quiet", json!({"card": "4111"})).await;
    let body = verified(&sink.wait_for_requests(1).await[0]);
    assert_eq!(body["data"]["arguments"], Value::Null);
    assert!(body["data"]["arguments_digest"].as_str().is_some_and(|text| text.len() == 71));
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_not_taken_is_sent_again_under_the_same_id() {
    let (sink, (_world, config)) = (taking().await, world().await);
    sink.next(Script::once(answer(500, "text/plain", "no")));
    sink.next(Script::once(answer(302, "text/plain", "elsewhere")));
    let gateway = told_at(config, &sink, json!(["approval.requested"])).start().await;
    waiting(&gateway).await;
    let requests = sink.wait_for_requests(3).await;
    let ids: Vec<_> = requests.iter().map(|request| request.header("webhook-id")).collect();
    assert!(ids[0].is_some_and(|id| id.starts_with("msg_") && id.len() == 28), "{ids:?}");
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(requests[0].body, requests[2].body);
    verified(&requests[2]);
    crate::support::wait::poll("it to be counted", || async {
        (told(&gateway, "webhook", "sent").await == 1.0).then_some(())
    })
    .await;
    assert_eq!(told(&gateway, "webhook", "failed").await, 2.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_that_nobody_decides_on_is_told_to_its_end() {
    let (sink, (world, config)) = (taking().await, world().await);
    let config = config
        .tool(world.tool("book").set("policy", json!("ask_first")))
        .set("/limits/confirm_for", json!("1s"));
    let events = json!(["approval.requested", "approval.decided", "call.finished"]);
    let gateway = told_at(config, &sink, events).start().await;
    let outcome = gateway.call("book", json!({})).await;
    let requests = sink.wait_for_requests(3).await;
    let bodies: Vec<_> = requests.iter().map(verified).collect();
    let of = |event: &str| {
        let found = bodies.iter().find(|body| body["type"] == event);
        found.unwrap_or_else(|| panic!("no {event} in {bodies:?}"))["data"].clone()
    };
    assert_eq!(of("approval.requested")["kind"], "person");
    assert_eq!(of("approval.decided")["status"], "expired");
    let finished = of("call.finished");
    assert_eq!(finished["call_id"], outcome.id());
    assert_eq!(finished["status"], "refused");
    assert_eq!(finished["code"], "approval_expired");
    gateway.finish().await;
}

#[tokio::test]
async fn what_a_person_decides_is_told_and_so_is_the_end_of_the_call() {
    let (sink, (world, config)) = (taking().await, world().await);
    let key = json!({"scopes": ["agent:approve"]});
    let events = json!(["approval.decided", "call.finished"]);
    let config = told_at(config.key("approver", APPROVER, key), &sink, events);
    let gateway = config.start().await;
    for (nth, verb, status, end) in
        [(1, "approve", "approved", "succeeded"), (2, "reject", "rejected", "refused")]
    {
        let call = waiting(&gateway).await;
        let path =
            format!("/v1/approvals/{}/{verb}", call["approval"]["id"].as_str().expect("an id"));
        let body = json!({
            "arguments_digest": call["approval"]["arguments_digest"], "reason": "Seen.", "name": "Ada",
        });
        let decided = request("POST", &path, Some(APPROVER), &body.to_string());
        assert_eq!(gateway.send(decided.as_bytes()).await.status, 200);
        let bodies: Vec<_> = sink.wait_for_requests(2 * nth).await.iter().map(verified).collect();
        let of = |event: &str| {
            let mut found = bodies.iter().filter(|body| body["type"] == event);
            let is_its = |body: &&Value| body["data"]["call_id"] == call["id"];
            found.find(is_its).unwrap_or_else(|| panic!("no {event} in {bodies:?}"))["data"].clone()
        };
        let told = of("approval.decided");
        assert_eq!((&told["status"], &told["reason"]), (&json!(status), &json!("Seen.")));
        let by = json!({"id": "approver", "name": "Ada", "verified": false});
        assert_eq!((&told["decided_by"], &told["id"]), (&by, &call["approval"]["id"]));
        assert_eq!(of("call.finished")["status"], end);
    }
    assert_eq!(world.upstream.requests().len(), 1, "the rejected one was not sent");
    // Of a call that nobody was asked about nobody is told.
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.finish().await;
    assert_eq!(sink.requests().len(), 4);
}

#[tokio::test]
async fn after_a_crash_it_is_told_and_at_most_once_more() {
    let (sink, (_world, config)) = (taking().await, world().await);
    // The first gateway finds a server that never answers.
    sink.next(Script::new().request().stall());
    let config = told_at(config, &sink, json!(["approval.requested"]))
        .set("/storage/url", json!("sqlite:kept.db"));
    let folder = config.write();
    let kept = folder.path().join("kept.db");
    let gateway = config.start_in(folder).await;
    waiting(&gateway).await;
    let first = sink.wait_for_requests(1).await[0].clone();
    gateway.signal("KILL");
    let after = tempfile::tempdir().expect("a folder");
    for end in ["", "-wal", "-shm"] {
        let (from, name) = (format!("{}{end}", kept.display()), format!("kept.db{end}"));
        if std::path::Path::new(&from).exists() {
            std::fs::copy(&from, after.path().join(name)).expect("copied");
        }
    }
    let url = format!("sqlite:{}", after.path().join("kept.db").display());
    let second = config.set("/storage/url", json!(url)).start().await;
    let requests = sink.wait_for_requests(2).await;
    assert_eq!(requests[1].header("webhook-id"), first.header("webhook-id"));
    assert_eq!(requests[1].body, first.body);
    crate::support::wait::poll("it to be counted", || async {
        (told(&second, "webhook", "sent").await == 1.0).then_some(())
    })
    .await;
    second.finish().await;
    assert_eq!(sink.requests().len(), 2);
    // Nothing is left that a third delivery could come of, however late.
    let store = SqliteStore::open(&after.path().join("kept.db")).expect("a store");
    let much_later = i64::MAX - 1;
    assert_eq!(store.claim_notices(much_later, i64::MAX, 9).await, Ok(Vec::new()));
}

#[tokio::test]
async fn a_tool_that_fails_and_a_configuration_that_is_wrong_are_told() {
    let (sink, (world, config)) = (taking().await, world().await);
    world.upstream.default(Script::always(answer(503, "text/plain", "no")));
    let broken = world.tool("broken").set("owner", json!("shop"));
    let config = config.tool(broken.set("breaker", json!({"consecutive": 2})));
    let gateway = told_at(config, &sink, json!(["tool.failing", "config.rejected"])).start().await;
    for _ in 0..2 {
        gateway.call("broken", json!({})).await.failed("http_status", None, "answered");
    }
    let failing = verified(&sink.wait_for_requests(1).await[0]);
    assert_eq!(failing["type"], "tool.failing");
    assert_eq!(failing["data"], json!({"tool": "broken", "owner": "shop", "runbook": null}));
    gateway.folder().replace("sortie.yaml", "version: 2\nauth: none\n");
    gateway.admin("POST", "/reload", "").await;
    let rejected = verified(&sink.wait_for_requests(2).await[1]);
    assert_eq!(rejected["type"], "config.rejected");
    let error = rejected["data"]["errors"][0].as_str().expect("a text");
    assert!(error.contains("version: must be 1"), "{error}");
    gateway.finish().await;
}

#[tokio::test]
async fn the_end_of_an_overlap_is_told_a_day_before() {
    let (sink, (world, config)) = (taking().await, world().await);
    let rotated = world.tool("rotated").no_secret().set(
        "secret",
        json!({"current": {"file": "secrets/new"}, "previous": {"file": "secrets/old"}}),
    );
    let config = config
        .file("secrets/new", "whsec_0123456789012345678901234\n")
        .file("secrets/old", "whsec_abcdefghijklmnopqrstuvwxy\n")
        .tool(rotated);
    let gateway = told_at(config, &sink, json!(["secret.overlap_ending"])).start().await;
    let body = verified(&sink.wait_for_requests(1).await[0]);
    assert_eq!(body["type"], "secret.overlap_ending");
    assert_eq!(body["data"]["tool"], "rotated");
    assert!(body["data"]["previous_until"].as_str().is_some_and(|text| text.ends_with('Z')));
    gateway.finish().await;
}

#[tokio::test]
async fn those_who_decide_get_mail() {
    let (mailbox, (_world, config)) = (Mailbox::start().await, world().await);
    let admins = json!([{"id": "default", "admins": ["ada@example.com", "bob@example.com"]}]);
    let config = config.set("/organisations", admins).set(
        "/notifications/smtp",
        json!({"url": format!("smtp://{}", mailbox.address()), "from": "sortie@example.com",
               "to": "admins", "events": ["approval.requested"]}),
    );
    let gateway = config.start().await;
    let call = waiting(&gateway).await;
    let mail = mailbox.first().await;
    assert_eq!(mail.from, "sortie@example.com");
    assert_eq!(mail.to, ["ada@example.com", "bob@example.com"]);
    let id = call["approval"]["id"].as_str().expect("an id");
    for part in [
        "Subject: Approval needed: refund",
        "Message-ID: <msg_",
        call["id"].as_str().expect("an id"),
        r#"Arguments: {"amount":7}"#,
        &format!("sortie approvals show {id}"),
    ] {
        assert!(mail.text.contains(part), "no {part} in {}", mail.text);
    }
    crate::support::wait::poll("it to be counted", || async {
        (told(&gateway, "smtp", "sent").await == 1.0).then_some(())
    })
    .await;
    gateway.finish().await;
}

#[tokio::test]
async fn servers_that_are_down_cost_calls_nothing() {
    let (_world, config) = world().await;
    let nowhere = Upstream::plain().await;
    nowhere.default(Script::new().stall());
    let config = told_at(config, &nowhere, json!(["approval.requested"])).set(
        "/notifications/smtp",
        json!({"url": format!("smtp://{}", nowhere.address()), "from": "a@b.example", "to": ["c@d.example"]}),
    );
    let gateway = config.start().await;
    for _ in 0..20 {
        waiting(&gateway).await;
    }
    let begun = std::time::Instant::now();
    gateway.call("lookup", json!({})).await.succeeded();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    gateway.finish().await;
}
