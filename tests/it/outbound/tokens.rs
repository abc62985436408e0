//! OAuth2 client credentials against a token endpoint of our own.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::support::config::{ConfigBuilder, Tool};
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::upstream::Upstream;
use crate::support::wait::{Signal, poll, together};
use crate::support::world::World;

const LOGIN: &str = "login.example.com";
const CLIENT_SECRET: &str = "cs-4Tq8Wm2Zr6Yp";
/// What every token of these tests begins with: none may come out of the gateway.
const TOKEN: &str = "at-5Xn9Kc3V";
const OK: &str = r#"{"ok":true}"#;

/// A tool's server and a token endpoint.
struct Issuer {
    world: World,
    login: Upstream,
}

impl Issuer {
    async fn new() -> Self {
        let world = World::tls().await;
        world.upstream.default(Script::always(answer(200, "application/json", OK)));
        let login = Upstream::tls(&world.authority.leaf(&[LOGIN])).await;
        login.default(grants(3600));
        Self { world, login }
    }

    /// A tool that takes tokens of this endpoint.
    fn tool(&self, name: &str, more: Value) -> Tool {
        let mut oauth2 = json!({
            "token_url": self.login.url(LOGIN, "/oauth2/token?tenant=a"),
            "client_id": "sortie tests",
            "client_secret": {"file": "secrets/client"},
        });
        for (key, value) in more.as_object().expect("fields") {
            oauth2[key] = value.clone();
        }
        self.world.tool(name).set("authentication", json!({"oauth2": oauth2}))
    }

    fn config(&self) -> ConfigBuilder {
        self.world
            .config()
            .reach(&self.login, &self.world.dns, LOGIN)
            .file("secrets/client", &format!("{CLIENT_SECRET}\n"))
            .watch(CLIENT_SECRET)
            .watch(TOKEN)
            .set("/logging/level", json!("trace"))
    }

    async fn start(&self) -> Gateway {
        self.config().tool(self.tool("lookup", json!({}))).start().await
    }

    /// The tokens that the tool's server was shown, by their numbers.
    fn shown(&self) -> Vec<String> {
        let requests = self.world.upstream.requests();
        let token = |value: &str| {
            let token = value.strip_prefix(&format!("Bearer {TOKEN}-"));
            token.unwrap_or_else(|| panic!("not one of ours: {value}")).to_owned()
        };
        requests.iter().map(|one| token(one.header("Authorization").expect("a token"))).collect()
    }
}

/// Grants a token with a number of its own to each request.
fn grants(seconds: u64) -> Script {
    let next = AtomicUsize::new(1);
    Script::responding(move |_| {
        let number = next.fetch_add(1, Ordering::SeqCst);
        let grant = json!({
            "access_token": format!("{TOKEN}-{number}"),
            "token_type": "Bearer",
            "expires_in": seconds,
        });
        answer(200, "application/json", grant.to_string())
    })
}

#[tokio::test]
async fn the_request_for_a_token_is_exact() {
    let issuer = Issuer::new().await;
    let more = json!({"scope": "orders:read stock", "audience": "https://shop.example.com/"});
    let post = json!({"method": "post"});
    let gateway = issuer
        .config()
        .tool(issuer.tool("in_a_header", more))
        .tool(issuer.tool("in_the_body", post))
        .start()
        .await;
    gateway.call("in_a_header", json!({})).await.succeeded();
    gateway.call("in_the_body", json!({})).await.succeeded();
    let texts: Vec<_> = issuer
        .login
        .requests()
        .iter()
        .map(|request| String::from_utf8(request.raw()).expect("UTF-8"))
        .collect();
    let host = format!("{LOGIN}:{}", issuer.login.port());
    let begin = |length| {
        format!(
            "POST /oauth2/token?tenant=a HTTP/1.1\r\nHost: {host}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nAccept: application/json\r\n{length}"
        )
    };
    assert_eq!(
        texts,
        [
            // base64 of `sortie+tests:cs-4Tq8Wm2Zr6Yp`
            begin(
                "Authorization: Basic c29ydGllK3Rlc3RzOmNzLTRUcThXbTJacjZZcA==\r\nContent-Length: 98\r\n\r\n"
            ) + "grant_type=client_credentials&scope=orders%3Aread+stock\
                   &audience=https%3A%2F%2Fshop.example.com%2F",
            begin("Content-Length: 82\r\n\r\n")
                + "grant_type=client_credentials&client_id=sortie+tests&client_secret=cs-4Tq8Wm2Zr6Yp",
        ]
    );
    gateway.finish().await;
}

#[tokio::test]
async fn calls_that_come_together_wait_for_one_token() {
    let issuer = Issuer::new().await;
    let granted = Signal::new();
    let grant = format!(r#"{{"access_token":"{TOKEN}-1","token_type":"bearer"}}"#);
    issuer.login.next(Script::new().request().wait(&granted).send(answer(
        200,
        "application/json",
        grant,
    )));
    let gateway = issuer.start().await;
    let calls = together((0..20).map(|_| gateway.call("lookup", json!({}))));
    let grant = async {
        issuer.login.wait_for_requests(1).await;
        granted.fire();
    };
    let (outcomes, ()) = tokio::join!(calls, grant);
    outcomes.iter().for_each(|outcome| drop(outcome.succeeded()));
    gateway.call("lookup", json!({})).await.succeeded();
    assert_eq!(issuer.login.requests().len(), 1);
    assert_eq!(issuer.shown(), ["1"; 21]);
    gateway.finish().await;
}

#[tokio::test]
async fn a_token_at_its_end_is_not_used_again() {
    let issuer = Issuer::new().await;
    issuer.login.default(grants(0));
    let gateway = issuer.start().await;
    for _ in 0..3 {
        gateway.call("lookup", json!({})).await.succeeded();
    }
    assert_eq!(issuer.shown(), ["1", "2", "3"]);
    gateway.finish().await;
}

#[tokio::test]
async fn a_kept_token_that_is_refused_is_replaced_once() {
    let issuer = Issuer::new().await;
    // Tokens 1 and from 3 on are no longer taken when they are used a second time, and 3 not even the first time.
    let seen = std::sync::Mutex::new(Vec::new());
    issuer.world.upstream.default(Script::responding(move |request| {
        let token = request.header("Authorization").expect("a token").to_owned();
        let mut seen = seen.lock().expect("no panic");
        let used = seen.contains(&token);
        seen.push(token.clone());
        let refused = token.ends_with("-3") || (used && token.ends_with("-1"));
        answer(if refused { 401 } else { 200 }, "application/json", OK)
    }));
    let gateway = issuer.start().await;
    gateway.call("lookup", json!({})).await.succeeded();
    let renewed = gateway.call("lookup", json!({})).await;
    renewed.succeeded();
    assert_eq!(renewed.at("/attempts").as_array().map(Vec::len), Some(2), "{renewed:?}");
    assert_eq!(renewed.at("/attempts/0/error/code"), "http_status");
    assert_eq!(issuer.shown(), ["1", "1", "2"]);
    let retries = gateway.metrics().await;
    assert_eq!(retries.value("sortie_retries_total", &[("reason", "status")]), 1.0);
    assert_eq!(retries.value("sortie_attempts_total", &[("result", "4xx")]), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_fresh_token_that_is_refused_ends_the_call() {
    let issuer = Issuer::new().await;
    issuer.world.upstream.default(Script::always(answer(401, "application/json", OK)));
    let gateway = issuer.start().await;
    let first = gateway.call("lookup", json!({})).await;
    first.failed("http_status", None, "answered");
    assert_eq!(issuer.shown(), ["1"]);
    // It was kept, so the next call may ask for another, and that is all.
    let second = gateway.call("lookup", json!({})).await;
    second.failed("http_status", None, "answered");
    assert_eq!(issuer.shown(), ["1", "1", "2"]);
    assert_eq!(second.at("/error/status"), 401);
    gateway.finish().await;
}

#[tokio::test]
async fn tools_share_tokens_only_where_every_input_is_the_same() {
    let issuer = Issuer::new().await;
    let gateway = issuer
        .config()
        .tool(issuer.tool("one", json!({})))
        .tool(issuer.tool("same", json!({})))
        .tool(issuer.tool("other", json!({"scope": "orders"})))
        .start()
        .await;
    for tool in ["one", "same", "other", "one"] {
        gateway.call(tool, json!({})).await.succeeded();
    }
    assert_eq!(issuer.shown(), ["1", "1", "2", "1"]);
    gateway.finish().await;
}

#[tokio::test]
async fn a_refused_grant_is_remembered_and_the_tool_is_sent_nothing() {
    let issuer = Issuer::new().await;
    let refusal = json!({"error": "invalid_client", "error_description": CLIENT_SECRET});
    issuer.login.default(Script::always(answer(401, "application/json", refusal.to_string())));
    let gateway = issuer.start().await;
    for _ in 0..3 {
        let outcome = gateway.call("lookup", json!({})).await;
        outcome.failed("not_configured", None, "not_sent");
        assert_eq!(
            (outcome.model_text(), outcome.at("/error/retryable"), outcome.at("/attempts")),
            (
                "The tool is not configured: its authorization was refused.".into(),
                json!(false),
                json!([])
            )
        );
    }
    assert_eq!(issuer.login.requests().len(), 1);
    issuer.world.upstream.assert_untouched().await;
    let reason = format!(
        "token endpoint https://{LOGIN}:{}/oauth2/token: the grant was refused with status 401 (invalid_client)",
        issuer.login.port()
    );
    poll("the operator's line", || {
        let told = gateway.log_lines().iter().any(|line| line["reason"] == reason.as_str());
        async move { told.then_some(()) }
    })
    .await;
    gateway.finish().await;
}

#[tokio::test]
async fn an_endpoint_without_a_usable_answer_fails_the_call_closed() {
    let issuer = Issuer::new().await;
    let gateway = issuer.start().await;
    let elsewhere = format!("https://{LOGIN}/elsewhere");
    let wrong_type = format!(r#"{{"access_token":"{TOKEN}-1","token_type":"mac"}}"#);
    let large = format!(
        r#"{{"access_token":"{TOKEN}-1","token_type":"bearer","x":"{}"}}"#,
        "x".repeat(70_000)
    );
    for script in [
        Script::once(answer(503, "application/json", "{}")),
        Script::once(answer_with_headers(302, &[("Location", &elsewhere)], "")),
        Script::once(answer(200, "application/json", wrong_type)),
        Script::once(answer(200, "application/json", large)),
        Script::once(answer(200, "text/html", "<html>")),
        Script::new().request().send(head(200, &[("Content-Length", "99")])),
        Script::new().request(),
    ] {
        issuer.login.next(script);
        let outcome = gateway.call("lookup", json!({})).await;
        let detail = outcome.at("/error/detail");
        outcome.failed("network_error", detail.as_str(), "not_sent");
        assert!(["connect", "closed"].contains(&detail.as_str().expect("a detail")), "{outcome:?}");
        assert_eq!(outcome.at("/error/retryable"), true);
    }
    assert_eq!(issuer.login.requests().len(), 7, "no redirect was followed");
    issuer.world.upstream.assert_untouched().await;
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.finish().await;
}

#[tokio::test]
async fn the_time_for_a_token_is_the_attempt_s() {
    let issuer = Issuer::new().await;
    issuer.login.next(Script::new().request().stall());
    let tool = issuer.tool("lookup", json!({})).set("timeout", json!("1s"));
    let gateway = issuer.config().tool(tool).start().await;
    let outcome = gateway.call("lookup", json!({})).await;
    outcome.failed("timeout", Some("first_byte"), "not_sent");
    assert_eq!(outcome.model_text(), "The tool did not answer within 1 s.");
    issuer.world.upstream.assert_untouched().await;
    gateway.finish().await;
}

#[tokio::test]
async fn the_endpoint_is_judged_like_the_tool() {
    let issuer = Issuer::new().await;
    issuer
        .world
        .dns
        .set("inside.example.com", &["A 10.0.0.5"])
        .set("gone.example.com", &["NXDOMAIN"]);
    let at = |name: &str, host: &str| {
        issuer.tool(name, json!({"token_url": format!("https://{host}/")}))
    };
    let gateway = issuer
        .config()
        .tool(at("inside", "inside.example.com"))
        .tool(at("gone", "gone.example.com"))
        .start()
        .await;
    let inside = gateway.call("inside", json!({})).await;
    inside.refused("blocked_host", Some("private"));
    assert!(!inside.0.text().contains("10.0.0.5"));
    gateway.call("gone", json!({})).await.failed("network_error", Some("dns"), "not_sent");
    issuer.world.upstream.assert_untouched().await;
    let decisions = gateway.metrics().await;
    let labels = [("tool", "inside"), ("verdict", "refuse"), ("code", "private")];
    assert_eq!(decisions.value("sortie_address_decisions_total", &labels), 1.0);
    gateway.finish().await;
}
