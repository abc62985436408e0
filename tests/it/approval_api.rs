//! The routes of waiting calls: who may see and decide what, and a clear answer to everything else.

use serde_json::{Value, json};

use crate::support::cli::{Finished, run};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::Gateway;
use crate::support::http::{Reply, request};
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::World;

const APPROVER: &str = "sk-approver-Tm5QzL9wXc3VbN8k";
const READER: &str = "sk-reader-Hy2KpR7sDf4GjM6q";
const OTHER: &str = "sk-other-Zx8CvB1nMa5SdF3g";
const OWN_READER: &str = "sk-own-Pk3NbV7cXz9QwE5t";
const BOUND: &str = "sk-bound-Wq6ErT2yUi9OpL4k";

/// A tool `refund` that needs an operator, with keys for those who decide, read, and belong elsewhere.
async fn desk() -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", r#"{"paid":true}"#)));
    let config =
        keys(world.config().tool(world.tool("refund").set("policy", json!("require_approval"))));
    (world, config.start().await)
}

fn keys(config: ConfigBuilder) -> ConfigBuilder {
    let approve = json!({"scopes": ["agent:approve"]});
    let other =
        json!({"scopes": ["agent:approve", "agent", "agent:call"], "organisation": "other"});
    let bound = json!({"scopes": ["agent:approve"], "tools": ["lookup"]});
    config
        .set("/organisations", json!([{"id": "default"}, {"id": "other"}]))
        .key("approver", APPROVER, approve)
        .key("reader", READER, json!({"scopes": ["agent"]}))
        .key("other", OTHER, other)
        .key("bound", BOUND, bound)
}

async fn ask(gateway: &Gateway, key: &str, method: &str, path: &str, body: &str) -> Reply {
    gateway.send(request(method, path, Some(key), body).as_bytes()).await
}

/// A call that waits, and its approval as the approver sees it.
async fn waiting(gateway: &Gateway, more: Value) -> (String, Value) {
    let mut body = json!({"tool": "refund", "arguments": {"amount": 900, "note": "b"}});
    for (field, value) in more.as_object().expect("an object") {
        body[field] = value.clone();
    }
    let reply = gateway.post(Some(API_KEY), body.to_string()).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let told = reply.json();
    assert_eq!(told["status"], "waiting_approval");
    assert_eq!(told["model"]["text"], "This call waits for approval.");
    let id = told["id"].as_str().expect("a call id").to_owned();
    assert_eq!(reply.header("location"), Some(format!("/v1/calls/{id}").as_str()));
    let path = format!("/v1/approvals/{}", told["approval"]["id"].as_str().expect("an id"));
    let approval = ask(gateway, APPROVER, "GET", &path, "").await;
    assert_eq!(approval.status, 200, "{}", approval.text());
    (id, approval.json())
}

fn place(approval: &Value, verb: &str) -> String {
    format!("/v1/approvals/{}/{verb}", approval["id"].as_str().expect("an id"))
}

fn decision(approval: &Value) -> Value {
    json!({"arguments_digest": approval["arguments_digest"]})
}

#[track_caller]
fn error(reply: &Reply, status: u16, code: &str, field: Option<&str>) {
    let error = &reply.json()["error"];
    let found = (reply.status, error["code"].as_str(), error["field"].as_str());
    assert_eq!(found, (status, Some(code), field), "{}", reply.text());
}

/// Waits until a call has ended, as its runtime would.
async fn ended(gateway: &Gateway, id: &str) -> Value {
    let reply = ask(gateway, API_KEY, "GET", &format!("/v1/calls/{id}?wait_ms=20000"), "").await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Requirement S1-043. Requirement S1-044. Requirement S1-046.
#[tokio::test]
async fn an_approval_shows_the_exact_call_and_lets_it_run_once() {
    let (world, gateway) = desk().await;
    let arguments = r#"{"tool":"refund","arguments":{"z":1e2, "a":12345678901234567890},"session_id":"s1","agent_id":"support"}"#;
    let reply = gateway.post(Some(API_KEY), arguments).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let told = reply.json();
    let path = format!("/v1/approvals/{}", told["approval"]["id"].as_str().expect("an id"));
    let shown = ask(&gateway, APPROVER, "GET", &path, "").await;
    assert!(
        shown.text().contains(r#""arguments":{"z":1e2,"a":12345678901234567890},"#),
        "{}",
        shown.text()
    );
    let approval = shown.json();
    let fields: Vec<&String> = approval.as_object().expect("an object").keys().collect();
    let mut expected = [
        "id",
        "call_id",
        "kind",
        "status",
        "tool",
        "tool_version",
        "arguments",
        "arguments_digest",
        "policy",
        "rule",
        "message",
        "created_at",
        "expires_at",
        "decided_at",
        "decided_by",
        "reason",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(approval["call_id"], told["id"]);
    let mut without = approval.clone();
    without.as_object_mut().expect("an object").remove("arguments");
    assert_eq!(told["approval"], without);
    let list = ask(&gateway, APPROVER, "GET", "/v1/approvals?status=pending&tool=refund", "").await;
    assert_eq!(list.json(), json!({"data": [approval]}));
    world.upstream.assert_untouched().await;

    let body =
        json!({"arguments_digest": approval["arguments_digest"], "reason": "Fine.", "name": "Ada"});
    let decided =
        ask(&gateway, APPROVER, "POST", &place(&approval, "approve"), &body.to_string()).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    let decided = decided.json();
    assert_eq!((&decided["status"], &decided["reason"]), (&json!("approved"), &json!("Fine.")));
    assert_eq!(
        decided["decided_by"],
        json!({"id": "approver", "name": "Ada", "verified": false}),
        "a name is the key's word alone"
    );
    let call = ended(&gateway, told["id"].as_str().expect("an id")).await;
    assert_eq!((&call["status"], &call["result"]), (&json!("succeeded"), &json!({"paid": true})));
    assert_eq!(call["arguments"]["a"], json!(12345678901234567890u64));
    assert_eq!((&call["session_id"], &call["agent_id"]), (&json!("s1"), &json!("support")));
    for verb in ["approve", "reject"] {
        let again = ask(
            &gateway,
            APPROVER,
            "POST",
            &place(&approval, verb),
            &decision(&approval).to_string(),
        )
        .await;
        error(&again, 409, "approval_closed", None);
    }
    assert_eq!(world.upstream.requests().len(), 1);
    let none = ask(&gateway, APPROVER, "GET", "/v1/approvals?status=pending", "").await;
    assert_eq!(none.json()["data"], json!([]));
    let line = poll("the line of the decision", || async {
        let lines = gateway.log_lines();
        lines.into_iter().find(|line| line["action"] == "approval.approved")
    })
    .await;
    assert_eq!((&line["actor"], &line["subject"]), (&json!("approver"), &approval["id"]));
    assert_eq!(line["detail"]["arguments_digest"], approval["arguments_digest"]);
    gateway.finish().await;
}

#[tokio::test]
async fn a_no_is_refused_with_its_reason_and_sends_nothing() {
    let (world, gateway) = desk().await;
    let (id, approval) = waiting(&gateway, json!({})).await;
    let body =
        json!({"arguments_digest": approval["arguments_digest"], "reason": "Not on a Sunday."});
    let decided =
        ask(&gateway, APPROVER, "POST", &place(&approval, "reject"), &body.to_string()).await;
    assert_eq!((decided.status, &decided.json()["status"]), (200, &json!("rejected")));
    let call = ended(&gateway, &id).await;
    assert_eq!((&call["status"], &call["error"]["code"]), (&json!("refused"), &json!("rejected")));
    let text = call["model"]["text"].as_str().expect("a text");
    assert!(
        text.starts_with("A person declined this call.") && text.contains("Not on a Sunday."),
        "{text}"
    );
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_decision_is_about_the_arguments_that_were_seen() {
    let (world, gateway) = desk().await;
    let (_, approval) = waiting(&gateway, json!({})).await;
    for verb in ["approve", "reject"] {
        let decide =
            async |body: &str| ask(&gateway, APPROVER, "POST", &place(&approval, verb), body).await;
        let field = Some("/arguments_digest");
        let wrong = json!({"arguments_digest": format!("sha256:{}", "0".repeat(64))}).to_string();
        error(&decide(&wrong).await, 409, "digest_mismatch", field);
        error(&decide("{}").await, 400, "bad_request", field);
        error(
            &decide(r#"{"arguments_digest":null,"reason":"x"}"#).await,
            400,
            "bad_request",
            field,
        );
        error(&decide(r#"{"arguments_digest":1}"#).await, 400, "bad_request", field);
        error(
            &decide(r#"{"arguments_digest":"x","when":1}"#).await,
            400,
            "bad_request",
            Some("/when"),
        );
        for text in ["", "[]", "yes", "{"] {
            error(&decide(text).await, 400, "bad_request", Some(""));
        }
        let long =
            json!({"arguments_digest": approval["arguments_digest"], "reason": "x".repeat(1001)});
        error(&decide(&long.to_string()).await, 400, "bad_request", Some("/reason"));
        error(&decide(&"x".repeat(9000)).await, 413, "too_large", None);
    }
    let now = ask(
        &gateway,
        APPROVER,
        "GET",
        &format!("/v1/approvals/{}", approval["id"].as_str().expect("an id")),
        "",
    )
    .await;
    assert_eq!(now.json(), approval, "nothing was decided");
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn who_may_not_decide_is_told_so_and_learns_nothing() {
    let (world, gateway) = desk().await;
    let (id, approval) = waiting(&gateway, json!({})).await;
    let (one, body) = (
        format!("/v1/approvals/{}", approval["id"].as_str().expect("an id")),
        decision(&approval).to_string(),
    );
    for key in [API_KEY, READER] {
        error(
            &ask(&gateway, key, "POST", &place(&approval, "approve"), &body).await,
            403,
            "missing_scope",
            None,
        );
        error(&ask(&gateway, key, "GET", &one, "").await, 403, "missing_scope", None);
        error(&ask(&gateway, key, "GET", "/v1/approvals", "").await, 403, "missing_scope", None);
    }
    // Another organisation's, a key of other tools, and an id that is nobody's look the same.
    for key in [OTHER, BOUND] {
        error(
            &ask(&gateway, key, "POST", &place(&approval, "approve"), &body).await,
            404,
            "not_found",
            None,
        );
        error(
            &ask(&gateway, key, "POST", &place(&approval, "reject"), &body).await,
            404,
            "not_found",
            None,
        );
        error(&ask(&gateway, key, "GET", &one, "").await, 404, "not_found", None);
        assert_eq!(ask(&gateway, key, "GET", "/v1/approvals", "").await.json()["data"], json!([]));
    }
    for path in ["/v1/approvals/ap_0123456789abcdef", "/v1/approvals/x", "/v1/approvals/ap_%ff"] {
        error(&ask(&gateway, APPROVER, "GET", path, "").await, 404, "not_found", None);
        error(
            &ask(&gateway, APPROVER, "POST", &format!("{path}/approve"), &body).await,
            404,
            "not_found",
            None,
        );
    }
    error(
        &ask(&gateway, OTHER, "GET", &format!("/v1/calls/{id}"), "").await,
        404,
        "not_found",
        None,
    );
    error(
        &ask(&gateway, OTHER, "POST", &format!("/v1/calls/{id}/cancel"), "").await,
        404,
        "not_found",
        None,
    );
    assert_eq!(ask(&gateway, OTHER, "GET", "/v1/calls", "").await.json()["data"], json!([]));
    error(
        &ask(&gateway, APPROVER, "GET", &format!("/v1/calls/{id}"), "").await,
        403,
        "missing_scope",
        None,
    );
    error(
        &ask(&gateway, READER, "POST", &format!("/v1/calls/{id}/cancel"), "").await,
        403,
        "missing_scope",
        None,
    );
    let nobody = gateway.send(request("GET", "/v1/approvals", None, "").as_bytes()).await;
    error(&nobody, 401, "unauthorized", None);
    error(
        &ask(&gateway, APPROVER, "GET", "/v1/approvals?status=open", "").await,
        400,
        "bad_request",
        None,
    );
    error(
        &ask(&gateway, APPROVER, "GET", "/v1/approvals?organisation=default", "").await,
        400,
        "bad_request",
        None,
    );
    error(&ask(&gateway, APPROVER, "DELETE", &one, "").await, 405, "method_not_allowed", None);
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

/// Requirement S1-023. Requirement S3-068.
#[tokio::test]
async fn calls_are_read_one_by_one_and_by_conversation() {
    let (world, gateway) = desk().await;
    world.upstream.default(Script::always(answer(200, "application/json", r#"{"paid":true}"#)));
    let (first, _) =
        waiting(&gateway, json!({"session_id": "s1", "run_id": "r1", "step": "1"})).await;
    let (second, _) =
        waiting(&gateway, json!({"session_id": "s1", "run_id": "r2", "step": "1"})).await;
    let (third, _) = waiting(&gateway, json!({"session_id": "s2"})).await;
    let ids = async |query: &str| {
        let reply = ask(&gateway, READER, "GET", &format!("/v1/calls{query}"), "").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let data = reply.json()["data"].clone();
        let ids = data
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| one["id"].as_str().expect("an id").to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids("").await, [first.clone(), second.clone(), third.clone()]);
    assert_eq!(ids("?session_id=s1").await, [first.clone(), second.clone()]);
    assert_eq!(ids("?run_id=r2&status=waiting_approval").await, std::slice::from_ref(&second));
    assert_eq!(ids("?limit=1").await, std::slice::from_ref(&third));
    assert_eq!(ids("?status=succeeded").await, [""; 0]);
    assert_eq!(ids("?since=2999-01-01T00:00:00Z").await, [""; 0]);
    for query in ["?status=done", "?limit=0", "?since=x", "?cursor=x", "?tool=a&tool=b"] {
        error(
            &ask(&gateway, READER, "GET", &format!("/v1/calls{query}"), "").await,
            400,
            "bad_request",
            None,
        );
    }
    let cancelled = ask(&gateway, API_KEY, "POST", &format!("/v1/calls/{second}/cancel"), "").await;
    assert_eq!((cancelled.status, &cancelled.json()["error"]["code"]), (200, &json!("cancelled")));
    assert_eq!(cancelled.json()["status"], "refused");
    let one = ask(&gateway, READER, "GET", &format!("/v1/calls/{first}"), "").await;
    assert_eq!((one.status, &one.json()["status"]), (202, &json!("waiting_approval")));
    assert_eq!(one.json()["arguments"], json!({"amount": 900, "note": "b"}));
    assert_eq!((&one.json()["run_id"], &one.json()["step"]), (&json!("r1"), &json!("1")));
    for path in ["/v1/calls/call_nobody", "/v1/calls/x", "/v1/calls/call_nobody?wait_ms=60000"] {
        error(&ask(&gateway, READER, "GET", path, "").await, 404, "not_found", None);
    }
    for wait in ["60001", "-1", "1s", ""] {
        let path = format!("/v1/calls/{first}?wait_ms={wait}");
        error(&ask(&gateway, READER, "GET", &path, "").await, 400, "bad_request", None);
    }
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_sees_its_own_however_many_of_others_are_newer() {
    let world = World::plain().await;
    let waits = |name: &str| world.tool(name).set("policy", json!("require_approval"));
    let config = keys(world.config().tool(waits("refund")).tool(waits("lookup")));
    let fields = json!({"scopes": ["agent"], "tools": ["lookup"]});
    let gateway = config.key("own-reader", OWN_READER, fields).start().await;
    let own = gateway.call("lookup", json!({})).await.id();
    for _ in 0..3 {
        waiting(&gateway, json!({})).await;
    }
    for (key, path, field) in
        [(BOUND, "/v1/approvals?limit=2", "call_id"), (OWN_READER, "/v1/calls?limit=2", "id")]
    {
        let reply = ask(&gateway, key, "GET", path, "").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let data = reply.json()["data"].clone();
        let ids: Vec<_> = data.as_array().expect("a list").iter().map(|one| &one[field]).collect();
        assert_eq!(ids, [&json!(own)], "{path}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn the_person_s_word_is_yes_or_no() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "1")));
    let config = keys(world.config().tool(world.tool("refund").set("policy", json!("ask_first"))));
    let gateway = config.start().await;
    let call = async || {
        let body = json!({"tool": "refund", "arguments": {}});
        let reply = gateway.post(Some(API_KEY), body.to_string()).await;
        assert_eq!(
            (reply.status, &reply.json()["approval"]["kind"]),
            (202, &json!("person")),
            "{}",
            reply.text()
        );
        format!("/v1/calls/{}/confirmed", reply.json()["id"].as_str().expect("an id"))
    };
    let path = call().await;
    for body in ["{}", r#"{"yes":"true"}"#, r#"{"yes":null}"#] {
        error(&ask(&gateway, API_KEY, "POST", &path, body).await, 400, "bad_request", Some("/yes"));
    }
    error(&ask(&gateway, API_KEY, "POST", &path, "x").await, 400, "bad_request", Some(""));
    error(
        &ask(&gateway, READER, "POST", &path, r#"{"yes":true}"#).await,
        403,
        "missing_scope",
        None,
    );
    error(&ask(&gateway, OTHER, "POST", &path, r#"{"yes":true}"#).await, 404, "not_found", None);
    world.upstream.assert_untouched().await;
    let no = ask(&gateway, API_KEY, "POST", &path, r#"{"yes":false}"#).await;
    assert_eq!(
        (no.status, &no.json()["error"]["code"]),
        (200, &json!("rejected")),
        "{}",
        no.text()
    );
    error(
        &ask(&gateway, API_KEY, "POST", &path, r#"{"yes":true}"#).await,
        409,
        "approval_closed",
        None,
    );
    let path = call().await;
    let yes = ask(&gateway, API_KEY, "POST", &path, r#"{"yes":true}"#).await;
    assert!([200, 202].contains(&yes.status), "{}", yes.text());
    let id = path.split('/').nth(3).expect("an id");
    assert_eq!(ended(&gateway, id).await["status"], "succeeded");
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn an_operator_decides_by_the_admin_listener() {
    let (world, gateway) = desk().await;
    let (id, approval) = waiting(&gateway, json!({"agent_id": "support"})).await;
    let list = gateway.admin("GET", "/approvals?status=pending", "").await.json();
    assert_eq!(
        (&list["data"][0]["id"], &list["data"][0]["agent_id"]),
        (&approval["id"], &json!("support"))
    );
    assert_eq!(list["data"][0]["arguments"], approval["arguments"]);
    let none = gateway.admin("GET", "/approvals?organisation=other", "").await.json();
    assert_eq!(none["data"], json!([]));
    let path = place(&approval, "approve").replace("/v1", "");
    error(&gateway.admin("POST", &path, "{}").await, 400, "bad_request", Some("/arguments_digest"));
    let elsewhere = format!("{path}?organisation=other");
    error(
        &gateway.admin("POST", &elsewhere, &decision(&approval).to_string()).await,
        404,
        "not_found",
        None,
    );
    let decided = gateway.admin("POST", &path, &decision(&approval).to_string()).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    assert_eq!(
        decided.json()["decided_by"],
        json!({"id": "admin", "name": null, "verified": true})
    );
    assert_eq!(ended(&gateway, &id).await["status"], "succeeded");
    error(
        &gateway.admin("POST", &path, &decision(&approval).to_string()).await,
        409,
        "approval_closed",
        None,
    );
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

/// Runs `sortie approvals`.
fn command(gateway: &Gateway, arguments: &[&str], input: &str) -> Finished {
    let all: Vec<&str> = ["approvals"].iter().chain(arguments).copied().collect();
    // The command waits for the gateway, whose fixtures have other threads.
    let finished = tokio::task::block_in_place(|| run(&all, input));
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    gateway.folder().canaries.assert_absent("the output of the command", &printed);
    finished
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_lists_shows_approves_and_the_call_runs() {
    let (world, gateway) = desk().await;
    let (id, approval) = waiting(&gateway, json!({"agent_id": "support"})).await;
    let ap = approval["id"].as_str().expect("an id");
    let digest = approval["arguments_digest"].as_str().expect("a digest");
    let socket = format!("unix:{}", gateway.folder().path().join("admin.sock").display());
    let runtime = gateway.folder().path().join("secrets/test-runtime.key");
    let runtime = runtime.display().to_string();
    let key = gateway.folder().path().join("secrets/approver.key");
    let (url, key) = (format!("http://{}", gateway.api()), key.display().to_string());
    let by_admin = ["--admin", &socket];
    let by_api = ["--url", &url, "--key-file", &key];
    for (whom, agent) in [(&by_admin[..], "support"), (&by_api[..], "-")] {
        let list = command(&gateway, &[&["list"], whom].concat(), "");
        assert_eq!((list.code, list.stderr.as_str()), (Some(0), ""), "{list:#?}");
        let row = list.stdout.lines().nth(1).expect("a row");
        let cells: Vec<&str> = row.split_whitespace().take(3).collect();
        assert_eq!(cells, [ap, "refund", agent]);
        assert!(list.stdout.ends_with("\n1 approval\n"), "{}", list.stdout);
        let shown = command(&gateway, &[&["show", ap], whom].concat(), "");
        assert_eq!(shown.code, Some(0), "{shown:#?}");
        assert!(
            shown.stdout.contains(digest) && shown.stdout.contains(r#"{"amount":900,"note":"b"}"#),
            "{shown:#?}"
        );
    }
    let wrong = command(
        &gateway,
        &[&["approve", ap, "--digest", "sha256:00"], &by_api[..]].concat(),
        "y\n",
    );
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("not that of --digest"), "{wrong:#?}");
    // A no, and no answer, decide nothing.
    for input in ["n\n", ""] {
        let unsure = command(&gateway, &[&["approve", ap], &by_api[..]].concat(), input);
        assert_eq!((unsure.code, unsure.stderr.as_str()), (Some(1), "Nothing was decided.\n"));
    }
    world.upstream.assert_untouched().await;
    let approved = command(
        &gateway,
        &[&["approve", ap, "--digest", digest, "--name", "Ada"], &by_api[..]].concat(),
        "y\n",
    );
    assert_eq!(approved.code, Some(0), "{approved:#?}");
    assert!(approved.stdout.ends_with(&format!("{ap} is approved: call {id}\n")), "{approved:#?}");
    assert_eq!(ended(&gateway, &id).await["status"], "succeeded");
    let again = command(&gateway, &[&["reject", ap, "--yes"], &by_admin[..]].concat(), "");
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("409 approval_closed"), "{again:#?}");
    let (id, approval) = waiting(&gateway, json!({})).await;
    let ap = approval["id"].as_str().expect("an id");
    let rejected = command(
        &gateway,
        &[&["reject", ap, "--yes", "--reason", "No."], &by_admin[..]].concat(),
        "",
    );
    assert_eq!(rejected.stdout, format!("{ap} is rejected: call {id}\n"), "{rejected:#?}");
    assert_eq!(ended(&gateway, &id).await["error"]["code"], "rejected");
    let calls = |more: &[&str]| {
        let all = ["calls", "--url", &url, "--key-file", &runtime];
        let all: Vec<&str> = all.iter().chain(more).copied().collect();
        tokio::task::block_in_place(|| run(&all, ""))
    };
    let shown = calls(&[]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:#?}");
    assert!(shown.stdout.ends_with("\n2 calls: 1 ok, 1 rejected\n"), "{shown:#?}");
    let shown = calls(&["--code", "rejected", "--json"]);
    let line: Value = serde_json::from_str(&shown.stdout).expect("one call");
    assert_eq!((&line["id"], &line["arguments"]["amount"]), (&json!(id), &json!(900)));
    assert_eq!(calls(&["--log", "x"]).code, Some(2));
    assert_eq!(command(&gateway, &["show", "x"], "").code, Some(2));
    let gone = command(&gateway, &[&["show", "ap_0123456789abcdef"], &by_admin[..]].concat(), "");
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.contains("404 not_found"), "{gone:#?}");
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}
