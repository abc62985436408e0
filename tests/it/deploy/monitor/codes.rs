//! One call of each outcome code that is built, and of everything else that a panel shows.

use serde_json::{Value, json};
use sortie::model::outcome::FailureCode;

use crate::support::config::{API_KEY, ConfigBuilder, Tool};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::request;
use crate::support::metrics::Metrics;
use crate::support::script::{Script, answer, answer_with_headers};
use crate::support::wait::{Signal, poll};
use crate::support::world::World;

/// Codes of tools in a person's app and of built-in tools, which are not there yet.
const NOT_BUILT: [&str; 4] =
    ["app_disconnected", "app_error", "app_tool_not_offered", "execution_failed"];

/// A key that decides.
const APPROVER: &str = "sk-approver-Wc6HnT2yPq8ZfL4s";
/// A key for one tool alone.
const BOUND: &str = "sk-bound-Kx9VbR3mJd7QwS5t";

/// An agent that is offered every tool.
const AGENT: &str = "support";

/// A call that ran when its gateway was killed.
const HELD: &str = "call_held0001";

/// A gateway and everything around it.
pub(super) struct Run {
    world: World,
    pub(super) gateway: Gateway,
}

/// Every tool; `book` with this timeout, since a change of it is a change of the tool.
fn config(world: &World, book_timeout: &str) -> ConfigBuilder {
    let tool = |name: &str| world.tool(name);
    let order = json!({
        "type": "object",
        "properties": {"order_number": {"type": "string"}},
        "required": ["order_number"],
    });
    let rare = json!([{"per": "tool", "rate": "1/h", "burst": 1}]);
    let candidate = json!({"effect": "allow", "shadow": {"effect": "deny"}});
    let agents = json!([{"id": AGENT, "tools": ["*"]}, {"id": "sales", "tools": []}]);
    world
        .config()
        .key("approver", APPROVER, json!({"scopes": ["agent:approve"]}))
        .key("bound", BOUND, json!({"scopes": ["agent:call"], "tools": ["lookup_order"]}))
        .tool(tool("lookup_order").parameters(order).set("owner", json!("orders")))
        .tool(tool("long"))
        .tool(tool("moves"))
        .tool(tool("broken"))
        .tool(tool("picture"))
        .tool(tool("watched").set("policy", candidate))
        .tool(tool("flaky").profile("bare-v1").set("policy", json!("allow")))
        .tool(tool("slow").set("timeout", json!("3s")))
        .tool(tool("held").set("timeout", json!("30s")))
        .tool(tool("narrow").set("concurrency", json!(1)))
        .tool(tool("rare").set("rate_limits", rare))
        .tool(tool("ill").set("breaker", json!({"consecutive": 1, "open_for": "1h"})))
        .tool(tool("off").set("enabled", json!(false)))
        .tool(tool("guarded").set("policy", json!("deny")))
        .tool(tool("refund").set("policy", json!("require_approval")))
        .tool(
            tool("book")
                .set("policy", json!("require_approval"))
                .set("timeout", json!(book_timeout)),
        )
        .tool(tool("ask").set("policy", json!("ask_first")))
        .tool(tool("lost").no_secret().set("secret", json!({"current": {"file": "nowhere"}})))
        .tool(Tool::new("inside", "https://inside.example.com/"))
        .tool(Tool::new("nowhere", "https://nowhere.example.com/"))
        .set("/agents", agents)
        .set("/limits/confirm_for", json!("1s"))
        .set("/storage", json!({"url": "sqlite:calls.db"}))
}

impl Run {
    /// Starts it. One call ran when the process was killed, and is told of by the next one.
    pub(super) async fn start() -> Self {
        let world = World::tls().await;
        world.dns.set("inside.example.com", &["A 10.0.0.5"]);
        world.dns.set("nowhere.example.com", &["NXDOMAIN"]);
        world.upstream.default(Script::responding(|request| {
            let path = request.line().split(' ').nth(1).unwrap_or_default();
            match path {
                "/moves" => answer_with_headers(302, &[("Location", "https://a.example/")], ""),
                "/broken" | "/ill" => answer(503, "text/plain", "ill"),
                "/picture" => answer(200, "image/png", "png"),
                "/long" => answer(200, "text/plain", "x".repeat(40_000)),
                _ => answer(200, "application/json", r#"{"status":"shipped"}"#),
            }
        }));
        let mut gateway = config(&world, "10s").start().await;
        world.upstream.next(Script::new().request().stall());
        let more = json!({"run_id": "h", "step": "1", "agent_id": AGENT});
        let _client = gateway.open_call("held", HELD, more).await;
        world.upstream.wait_for_requests(1).await;
        poll("its intent to be kept", || async {
            let metrics = gateway.metrics().await;
            let kept = metrics.value("sortie_call_records_total", &[("result", "written")]);
            (kept >= 1.0).then_some(())
        })
        .await;
        gateway.kill_and_start().await;
        Self { world, gateway }
    }

    /// The end: nothing is in flight.
    pub(super) async fn finish(self) {
        self.gateway.finish().await;
    }

    async fn call(&self, tool: &str) -> Outcome {
        let body = json!({"tool": tool, "arguments": {}, "agent_id": AGENT});
        self.gateway.call_with(body).await
    }

    async fn ask(&self, key: &str, method: &str, path: &str, body: Value) -> Outcome {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Outcome(self.gateway.send(request(method, path, Some(key), &body).as_bytes()).await)
    }

    async fn waits(&self, tool: &str) -> Outcome {
        let outcome = self.call(tool).await;
        assert_eq!(outcome.at("/status"), json!("waiting_approval"), "{}", outcome.0.text());
        outcome
    }

    /// An operator's word, and the call once it has ended.
    async fn decide(&self, waiting: &Outcome, verb: &str) -> Outcome {
        let id = waiting.at("/approval/id");
        let path = format!("/v1/approvals/{}/{verb}", id.as_str().expect("an approval"));
        let body = json!({"arguments_digest": waiting.at("/approval/arguments_digest")});
        assert_eq!(self.ask(APPROVER, "POST", &path, body).await.0.status, 200);
        self.end(waiting).await
    }

    async fn end(&self, waiting: &Outcome) -> Outcome {
        let path = format!("/v1/calls/{}?wait_ms=30000", waiting.id());
        self.ask(API_KEY, "GET", &path, Value::Null).await
    }

    /// Makes all the calls.
    pub(super) async fn calls(&self) {
        self.callers().await;
        self.refusals().await;
        self.failures().await;
        self.people().await;
        let told = self.ask(API_KEY, "GET", &format!("/v1/calls/{HELD}"), Value::Null).await;
        told.failed("internal", None, "unknown");
    }

    /// What works, and what the caller is to blame for.
    async fn callers(&self) {
        let arguments = json!({"order_number": "A-1042"});
        let lookup = json!({"tool": "lookup_order", "arguments": arguments, "agent_id": AGENT});
        let with = |more: Value| {
            let mut body = lookup.clone();
            for (field, value) in more.as_object().expect("an object") {
                body[field] = value.clone();
            }
            body
        };
        for nth in 0..20 {
            self.gateway.call_with(with(json!({"run_id": "r", "step": nth.to_string()}))).await;
        }
        let again = self.gateway.call_with(with(json!({"run_id": "r", "step": "1"}))).await;
        again.succeeded();
        assert_eq!(again.at("/replayed"), json!(true));
        self.call("long").await.succeeded();
        self.call("watched").await.succeeded();
        self.world.upstream.next(Script::once(answer(503, "text/plain", "")));
        self.call("flaky").await.succeeded();
        self.call("lookup_order").await.refused("invalid_arguments", None);
        self.call("nobody").await.refused("unknown_tool", None);
        self.call("off").await.refused("tool_disabled", None);
        let sales = with(json!({"agent_id": "sales"}));
        self.gateway.call_with(sales).await.refused("not_on_agent", None);
        let body = json!({"tool": "broken", "arguments": {}});
        let bound = self.ask(BOUND, "POST", "/v1/calls", body).await;
        bound.refused("not_allowed_for_key", None);
        let fourth = with(json!({"round": 4}));
        self.gateway.call_with(fourth).await.refused("not_run", None);
    }

    /// What a rule, a limit or a circuit refuses.
    async fn refusals(&self) {
        self.call("guarded").await.refused("denied", None);
        self.call("inside").await.refused("blocked_host", Some("private"));
        self.call("rare").await.succeeded();
        self.call("rare").await.refused("rate_limited", None);
        self.call("ill").await.failed("http_status", None, "answered");
        self.call("ill").await.refused("circuit_open", None);
        let go = Signal::new();
        let late = answer(200, "text/plain", "late");
        let sent = self.world.upstream.requests().len();
        self.world.upstream.next(Script::new().request().wait(&go).send(late));
        let (running, ()) = tokio::join!(self.call("narrow"), async {
            self.world.upstream.wait_for_requests(sent + 1).await;
            self.call("narrow").await.refused("overloaded", None);
            go.fire();
        });
        running.succeeded();
    }

    /// What the tool's server, or whoever set it up, is to blame for.
    async fn failures(&self) {
        self.call("moves").await.failed("redirect", None, "answered");
        self.call("broken").await.failed("http_status", None, "answered");
        self.call("picture").await.failed("bad_body", Some("media"), "unknown");
        self.call("nowhere").await.failed("network_error", Some("dns"), "not_sent");
        self.call("lost").await.failed("not_configured", None, "not_sent");
        self.world.upstream.next(Script::new().request().stall());
        self.call("slow").await.failed("timeout", Some("first_byte"), "unknown");
    }

    /// What waits for people; one call is left to wait.
    async fn people(&self) {
        let asked = self.waits("ask").await;
        let (yes, no) = (self.waits("refund").await, self.waits("refund").await);
        self.decide(&yes, "approve").await.succeeded();
        self.decide(&no, "reject").await.refused("rejected", None);
        let taken_back = self.waits("refund").await;
        let path = format!("/v1/calls/{}/cancel", taken_back.id());
        let taken_back = self.ask(API_KEY, "POST", &path, Value::Null).await;
        taken_back.refused("cancelled", None);
        let void = self.waits("book").await;
        crate::reload::apply(&self.gateway, &config(&self.world, "7s").text()).await;
        self.end(&void).await.refused("approval_void", None);
        self.end(&asked).await.refused("approval_expired", None);
        self.waits("refund").await;
    }
}

/// Fails unless each code that is built was counted, with its status and whose fault it is.
#[track_caller]
pub(super) fn assert_all_are_counted(metrics: &Metrics) {
    let value = |labels: &[(&str, &str)]| metrics.value("sortie_calls_total", labels);
    assert!(value(&[("code", "ok"), ("status", "succeeded"), ("fault", "none")]) >= 1.0);
    for code in FailureCode::ALL {
        let labels = [("code", code.as_str()), ("fault", code.fault().as_str())];
        assert!(value(&labels) >= 1.0, "no call ended as {}", code.as_str());
        assert!(!NOT_BUILT.contains(&code.as_str()), "{} is built", code.as_str());
    }
}
