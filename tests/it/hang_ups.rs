//! What somebody asked for is whole where they hang up before it is: the store's change, what follows from it, and the
//! line of the audit trail.
//!
//! The store is held by a transaction of the test, so that the gateway is in the midst of it when its client goes away.

use std::fs::read_to_string;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use sortie::store::Store;
use sortie::store::sqlite::SqliteStore;
use tokio::time::timeout;

use crate::support::config::API_KEY;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, request};
use crate::support::script::{Script, answer};
use crate::support::wait::{poll, together};
use crate::support::world::World;

const DESK: &str = "sk-desk-Rf7HnQ2xWc9KpL4m";
/// How often the thread that writes goes to sleep until it is clear that it waits for the file: idle it sleeps once.
const SLEEPS: u64 = 5;
/// An end that waits for nothing gives the trail up sooner, and the store is waited for longer.
const HELD: Duration = Duration::from_millis(1500);

/// A gateway that keeps what it does in a file.
struct Desk {
    gateway: Gateway,
    world: World,
    folder: tempfile::TempDir,
}

impl Desk {
    /// Its tool `refund` waits for an operator, its tool `book` for the person.
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::plain().await;
        world.upstream.default(Script::always(answer(200, "application/json", r#"{"paid":true}"#)));
        let refund = world.tool("refund").set("policy", json!("require_approval"));
        let book = world.tool("book").set("policy", json!("ask_first"));
        let scopes = json!({"scopes": ["agent:approve", "agent:policy", "agent:call"]});
        let url = format!("sqlite:{}", Self::file(&folder).display());
        let config = world.config().tool(refund).tool(book).key("desk", DESK, scopes);
        let gateway = config.set("/storage", json!({"url": url})).start().await;
        Self { gateway, world, folder }
    }

    fn file(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("kept.db")
    }

    /// Holds the store: until this is dropped, nobody else writes.
    fn hold(&self) -> Connection {
        let connection = Connection::open(Self::file(&self.folder)).expect("the file");
        connection.execute_batch("BEGIN IMMEDIATE").expect("it is held");
        connection
    }

    /// A call of a tool that waits.
    async fn waiting(&self, tool: &str) -> Value {
        let call = self.gateway.call(tool, json!({})).await;
        assert_eq!(call.0.status, 202, "{}", call.0.text());
        call.0.json()
    }

    /// Asks for something, and hangs up before the answer.
    async fn ask(&self, method: &str, path: &str, body: Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut client = RawClient::connect(self.gateway.api()).await;
        let before = self.sleeps();
        client.write(request(method, path, Some(DESK), &body).as_bytes()).await;
        poll("what is asked for to wait for the store", || async {
            (self.sleeps() > before + SLEEPS).then_some(())
        })
        .await;
        client.half_close().await;
        assert!(client.read_to_end().await.is_empty(), "nobody is answered any more");
    }

    /// How often the thread that writes to the store has gone to sleep.
    fn sleeps(&self) -> u64 {
        let threads = format!("/proc/{}/task", self.gateway.process());
        let threads = std::fs::read_dir(threads).expect("a running process");
        let mut statuses =
            threads.flatten().filter_map(|one| read_to_string(one.path().join("status")).ok());
        let writer = statuses.find(|status| status.starts_with("Name:\tstore-writer\n"));
        let writer = writer.expect("a thread that writes");
        let line = writer.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.expect("a count").trim().parse().expect("a number")
    }

    /// Waits until the trail is kept: then nothing is written but what is asked for.
    async fn trail_is_kept(&self) {
        poll("the trail to be kept", || async {
            let lines = self.gateway.log_lines();
            let noted = lines.iter().filter(|line| line["stream"] == "audit").count();
            let written = [("result", "written")];
            let written =
                self.gateway.metrics().await.value("sortie_audit_entries_total", &written);
            (written >= noted as f64).then_some(())
        })
        .await;
    }

    /// The same while the store is held, which is free afterwards.
    async fn ask_meanwhile(&self, method: &str, path: &str, body: Value) {
        self.trail_is_kept().await;
        let held = self.hold();
        self.ask(method, path, body).await;
        drop(held);
    }

    /// The line of the audit trail that says who did this.
    async fn taken_down(&self, action: &str, subject: &Value) -> Value {
        let line = poll(&format!("the line of {action}"), || async {
            let lines = self.gateway.log_lines();
            lines.into_iter().find(|line| line["action"] == action)
        })
        .await;
        assert_eq!((&line["actor"], &line["subject"]), (&json!("desk"), subject), "{line}");
        line
    }

    /// How a call ended.
    async fn ended(&self, call: &Value) -> Value {
        let path = format!("/v1/calls/{}?wait_ms=20000", call["id"].as_str().expect("an id"));
        self.gateway.send(request("GET", &path, Some(API_KEY), "").as_bytes()).await.json()
    }
}

fn decision(call: &Value, verb: &str) -> (String, Value) {
    let approval = &call["approval"];
    let id = approval["id"].as_str().expect("an id");
    let digest = &approval["arguments_digest"];
    (format!("/v1/approvals/{id}/{verb}"), json!({"arguments_digest": digest}))
}

#[tokio::test]
async fn a_decision_is_whole_where_whoever_decides_hangs_up() {
    let desk = Desk::new().await;
    for (verb, action, status) in
        [("approve", "approved", "succeeded"), ("reject", "rejected", "refused")]
    {
        let call = desk.waiting("refund").await;
        let (path, body) = decision(&call, verb);
        desk.ask_meanwhile("POST", &path, body).await;
        desk.taken_down(&format!("approval.{action}"), &call["approval"]["id"]).await;
        assert_eq!(desk.ended(&call).await["status"], status);
        let labels = [("tool", "refund"), ("result", action)];
        assert_eq!(desk.gateway.metrics().await.value("sortie_approvals_total", &labels), 1.0);
    }
    assert_eq!(desk.world.upstream.requests().len(), 1);
    desk.gateway.finish().await;
}

#[tokio::test]
async fn a_person_s_word_is_whole_where_the_runtime_hangs_up() {
    let desk = Desk::new().await;
    for (yes, action, status) in
        [(true, "call.confirmed", "succeeded"), (false, "call.declined", "refused")]
    {
        let call = desk.waiting("book").await;
        let path = format!("/v1/calls/{}/confirmed", call["id"].as_str().expect("an id"));
        desk.ask_meanwhile("POST", &path, json!({ "yes": yes })).await;
        desk.taken_down(action, &call["id"]).await;
        assert_eq!(desk.ended(&call).await["status"], status);
    }
    desk.gateway.finish().await;
}

#[tokio::test]
async fn a_call_is_taken_back_whole_where_the_runtime_hangs_up() {
    let desk = Desk::new().await;
    let call = desk.waiting("refund").await;
    let path = format!("/v1/calls/{}/cancel", call["id"].as_str().expect("an id"));
    desk.ask_meanwhile("POST", &path, Value::Null).await;
    let line = desk.gateway.call_line(call["id"].as_str().expect("an id")).await;
    assert_eq!(line["code"], "cancelled", "{line}");
    assert_eq!(desk.ended(&call).await["status"], "refused");
    desk.gateway.finish().await;
}

#[tokio::test]
async fn a_change_of_a_policy_is_whole_where_whoever_makes_it_hangs_up() {
    let desk = Desk::new().await;
    let one = "/v1/policies/rule";
    let rule = json!({"id": "rule", "mode": "shadow", "effect": "deny"});
    for (method, path, body, action) in [
        ("POST", "/v1/policies", rule, "policy.created"),
        ("PATCH", one, json!({"message": "No."}), "policy.changed"),
        ("POST", "/v1/policies/rule/enforce", Value::Null, "policy.enforced"),
        ("DELETE", one, Value::Null, "policy.deleted"),
    ] {
        desk.ask_meanwhile(method, path, body).await;
        desk.taken_down(action, &json!("rule")).await;
    }
    desk.gateway.finish().await;
}

#[tokio::test]
async fn what_the_store_may_keep_too_late_is_in_the_trail() {
    let desk = Desk::new().await;
    let (decided, told) = (desk.waiting("refund").await, desk.waiting("book").await);
    let (approve, digest) = decision(&decided, "approve");
    let confirm = format!("/v1/calls/{}/confirmed", told["id"].as_str().expect("an id"));
    let rule = json!({"id": "rule", "mode": "shadow", "effect": "deny"});
    let asked = [
        ("policy.created", json!("rule"), "/v1/policies", rule),
        ("approval.approved", decided["approval"]["id"].clone(), &*approve, digest),
        ("call.confirmed", told["id"].clone(), &*confirm, json!({"yes": true})),
    ];
    let held = desk.hold();
    let requests = asked
        .each_ref()
        .map(|(_, _, path, body)| request("POST", path, Some(DESK), &body.to_string()));
    let replies = together(requests.iter().map(|one| desk.gateway.send(one.as_bytes()))).await;
    drop(held);
    for (reply, (action, subject, ..)) in replies.iter().zip(&asked) {
        assert_eq!(reply.status, 503, "{action}: {}", reply.text());
        let line = desk.taken_down(action, subject).await;
        assert_eq!(line["detail"], json!({"outcome": "unknown"}), "{line}");
    }
    desk.gateway.finish().await;
}

#[tokio::test]
async fn the_end_waits_for_what_is_not_whole_yet() {
    let mut desk = Desk::new().await;
    let held = desk.hold();
    let rule = json!({"id": "rule", "mode": "shadow", "effect": "deny"});
    desk.ask("POST", "/v1/policies", rule).await;
    desk.gateway.terminate();
    let over = poll("the end", || async {
        desk.gateway.log_lines().iter().any(|line| line["message"] == "Stopped.").then_some(())
    });
    assert!(timeout(HELD, over).await.is_err(), "somebody waits for the store");
    drop(held);
    let finished = desk.gateway.ended().await;
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    let store = SqliteStore::open(&Desk::file(&desk.folder)).expect("a store");
    let trail = store.audited("default", 0, 10).await.expect("it works");
    let trail: Vec<_> = trail.iter().rev().map(|entry| entry.action.as_str()).collect();
    assert_eq!(trail, ["drain", "policy.created"]);
}
