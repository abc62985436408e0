//! Each refusal with its text: nothing leaves the gateway.

use serde_json::{Value, json};

use crate::outcomes::{Expected, REFUSED, check};
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::metrics::Metrics;
use crate::support::script::Script;
use crate::support::world::World;

fn call(tool: &str) -> Value {
    json!({"tool": tool, "arguments": {}})
}

/// A gateway whose tool's server must not be reached.
async fn closed(change: impl FnOnce(&World, ConfigBuilder) -> ConfigBuilder) -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = change(&world, world.config()).start().await;
    (world, gateway)
}

async fn untouched(world: World, gateway: Gateway) {
    gateway.finish().await;
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused() {
    let (world, gateway) = closed(|world, config| {
        let schema = json!({
            "type": "object",
            "properties": {"order_number": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["order_number"],
        });
        config.tool(world.tool("lookup").parameters(schema))
    })
    .await;
    let expected = Expected {
        tool: "lookup",
        code: "invalid_arguments",
        fault: "caller",
        text: "The arguments do not fit the tool: /order_number is required; /count must be an integer.",
        ..REFUSED
    };
    let body = json!({"tool": "lookup", "arguments": {"count": "many"}});
    let outcome = check(&gateway, body, &expected).await;
    assert_eq!(
        outcome.at("/error/details"),
        json!([
            {"pointer": "/order_number", "keyword": "required", "message": "is required"},
            {"pointer": "/count", "keyword": "type", "message": "must be an integer"},
        ])
    );
    for keyword in ["type", "required"] {
        let labels = [("tool", "lookup"), ("keyword", keyword)];
        let counted = gateway.metrics().await.value("sortie_argument_failures_total", &labels);
        assert_eq!(counted, 1.0, "{keyword}");
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn an_unknown_tool_has_no_label_of_its_own() {
    let (world, gateway) = closed(|world, config| config.tool(world.tool("lookup"))).await;
    for (name, text) in [
        ("nobody_knows", "There is no tool named \"nobody_knows\"."),
        ("_unknown", "There is no tool named \"_unknown\"."),
        ("lookup\"} 1", "There is no tool named \"lookup\"} 1\"."),
    ] {
        let expected =
            Expected { tool: "_unknown", code: "unknown_tool", fault: "caller", text, ..REFUSED };
        check(&gateway, call(name), &expected).await;
    }
    let metrics = gateway.metrics().await.text;
    assert!(!metrics.contains("nobody_knows") && !metrics.contains("lookup\\\"}"), "{metrics}");
    untouched(world, gateway).await;
}

#[tokio::test]
async fn a_tool_that_is_turned_off_is_refused() {
    let (world, gateway) =
        closed(|world, config| config.tool(world.tool("lookup").set("enabled", json!(false))))
            .await;
    let expected = Expected {
        tool: "lookup",
        code: "tool_disabled",
        fault: "caller",
        text: "The tool \"lookup\" is turned off.",
        ..REFUSED
    };
    // Turned off comes before what is wrong with the call.
    let call = json!({"tool": "lookup", "arguments": {"a": 1}});
    let outcome = check(&gateway, call, &expected).await;
    assert_eq!(outcome.at("/decision"), Value::Null);
    untouched(world, gateway).await;
}

#[tokio::test]
async fn an_agent_that_is_not_offered_the_tool_is_refused() {
    let (world, gateway) = closed(|world, config| {
        let agents = json!([{"id": "support", "tools": ["look*"]}, {"id": "sales", "tools": []}]);
        config.tool(world.tool("lookup")).set("/agents", agents)
    })
    .await;
    let expected = Expected {
        tool: "lookup",
        code: "not_on_agent",
        fault: "caller",
        text: "The tool \"lookup\" is turned off.",
        ..REFUSED
    };
    // The agent comes before what is wrong with the call.
    let call = json!({"tool": "lookup", "arguments": {"a": 1}, "agent_id": "sales"});
    let outcome = check(&gateway, call, &expected).await;
    assert_eq!(outcome.at("/decision"), Value::Null);
    untouched(world, gateway).await;
}

#[tokio::test]
async fn a_call_outside_of_its_key_is_refused() {
    let (world, gateway) = closed(|world, config| {
        let config = config.tool(world.tool("lookup"));
        config.set("/auth/keys/0/tools", json!(["other"]))
    })
    .await;
    let expected =
        Expected { tool: "lookup", code: "not_allowed_for_key", fault: "caller", ..REFUSED };
    check(&gateway, call("lookup"), &expected).await;
    untouched(world, gateway).await;
}

#[tokio::test]
async fn only_the_effect_allow_lets_a_call_run() {
    let (world, gateway) = closed(|world, config| {
        let tool = |name: &str, policy: Value| world.tool(name).set("policy", policy);
        config
            .tool(tool("deny", json!("deny")))
            .tool(tool("ask", json!("ask_first")))
            .tool(tool("approve", json!("require_approval")))
            .tool(tool("watched", json!({"effect": "deny", "shadow": {"effect": "allow"}})))
            .tool(tool("profiled", Value::Null).profile("bare-v1"))
            .tool(tool("asked", Value::Null).set("ask_first", json!(true)))
    })
    .await;
    let denied = "This call is not allowed.";
    let asked = "Ask the person, in your own words, whether to do this: NAME with {}. \
        Call the tool again with the same arguments only after they say yes.";
    let approved = "This call waits for approval.";
    for (tool, effect, shadow, text) in [
        ("deny", "deny", None, denied),
        ("ask", "ask_first", None, asked),
        ("approve", "require_approval", None, approved),
        // A candidate that would let it run changes nothing.
        ("watched", "deny", Some("allow"), denied),
        // What the profile or the tool says without a policy.
        ("profiled", "require_approval", None, approved),
        ("asked", "ask_first", None, asked),
    ] {
        let outcome = if effect == "deny" {
            let expected = Expected { tool, text, ..REFUSED };
            let outcome = check(&gateway, call(tool), &expected).await;
            assert_eq!(gateway.call_line(&outcome.id()).await["shadow"], json!(shadow));
            outcome
        } else {
            waits(&gateway, tool, &text.replace("NAME", tool)).await
        };
        let shown: Vec<_> = shadow
            .iter()
            .map(|effect| json!({"policy": "candidate", "effect": effect, "rule": null}))
            .collect();
        assert_eq!(
            outcome.at("/decision"),
            json!({"effect": effect, "policy": "tool", "rule": null, "shadow": shown}),
        );
        let labels = [("tool", tool), ("effect", effect)];
        let decided = gateway.metrics().await.value("sortie_policy_decisions_total", &labels);
        assert_eq!(decided, 1.0, "{tool}");
    }
    let metrics = gateway.metrics().await;
    let name = "sortie_policy_shadow_disagreements_total";
    assert_eq!(metrics.value(name, &[("tool", "watched")]), 1.0);
    assert_eq!(metrics.value(name, &[]), 1.0);
    untouched(world, gateway).await;
}

/// Makes a call that waits for a person: it has not ended, so it is neither counted nor logged, and holds nothing.
async fn waits(gateway: &Gateway, tool: &str, text: &str) -> Outcome {
    let before = gateway.metrics().await;
    let outcome = gateway.call_with(call(tool)).await;
    let found = ["/status", "/error", "/result", "/finished_at", "/attempts", "/approval/status"]
        .map(|pointer| outcome.at(pointer));
    let null = Value::Null;
    let expected =
        [json!("waiting_approval"), null.clone(), null.clone(), null, json!([]), json!("pending")];
    assert_eq!((outcome.0.status, found), (202, expected), "{}", outcome.0.text());
    let place = format!("/v1/calls/{}", outcome.id());
    assert_eq!(outcome.0.header("location"), Some(place.as_str()));
    assert_eq!((outcome.model_text(), outcome.at("/model/is_error")), (text.into(), json!(false)));
    let after = gateway.metrics().await;
    let ended = |metrics: &Metrics| metrics.value("sortie_calls_total", &[]);
    assert_eq!(ended(&after), ended(&before));
    assert_eq!(after.value("sortie_calls_in_flight", &[]), 0.0);
    outcome
}

#[tokio::test]
async fn a_host_that_may_not_be_called_is_refused_without_saying_where() {
    let (world, gateway) = closed(|world, config| {
        world.dns.set("inside.example.com", &["A 10.0.0.5"]);
        world.dns.set("mixed.example.com", &["A 198.41.0.4", "A 169.254.169.254"]);
        config
            .tool(Tool::new("inside", "https://inside.example.com/"))
            .tool(Tool::new("mixed", "https://mixed.example.com/"))
    })
    .await;
    for (tool, detail) in [("inside", "private"), ("mixed", "link_local")] {
        let expected = Expected {
            tool,
            code: "blocked_host",
            detail: Some(detail),
            text: "The tool's address is not allowed.",
            ..REFUSED
        };
        let outcome = check(&gateway, call(tool), &expected).await;
        for secret in ["10.0.0.5", "169.254", "198.41", "example.com"] {
            assert!(!outcome.0.text().contains(secret), "{}", outcome.0.text());
        }
        let labels = [("tool", tool), ("verdict", "refuse"), ("code", detail)];
        let decided = gateway.metrics().await.value("sortie_address_decisions_total", &labels);
        assert_eq!(decided, 1.0, "{tool}");
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn the_first_check_that_fails_decides() {
    let (world, gateway) = closed(|world, config| {
        let missing = json!({"current": {"file": "secrets/nowhere"}});
        let tool = |name: &str, enabled: bool| {
            world.tool(name).set("enabled", json!(enabled)).set("policy", json!("deny"))
        };
        config
            .tool(tool("all", false))
            .tool(tool("typed", true))
            .set("/tools/0/secret", missing.clone())
            .set("/tools/1/secret", missing)
            .set("/tools/1/parameters", Value::Null)
            .set("/auth/keys/0/tools", json!(["all", "typed", "unknown"]))
    })
    .await;
    let body = |tool: &str| json!({"tool": tool, "arguments": {"a": 1}});
    gateway.call_with(body("other")).await.refused("not_allowed_for_key", None);
    gateway.call_with(body("unknown")).await.refused("unknown_tool", None);
    gateway.call_with(body("all")).await.refused("tool_disabled", None);
    gateway.call_with(body("typed")).await.refused("invalid_arguments", None);
    gateway.call("typed", json!({})).await.refused("denied", None);
    untouched(world, gateway).await;
}
