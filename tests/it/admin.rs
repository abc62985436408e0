//! The admin listener: what an operator can do to a running gateway, and who is an operator.

use serde_json::{Value, json};

use crate::support::config::ConfigBuilder;
use crate::support::http::{Reply, exchange, request};
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll};
use crate::support::world::World;

const TOKEN: &str = "sk-admin-Vq7RkX2mPz9LcT4nBw6";

fn always() -> Script {
    Script::always(answer(200, "application/json", "1"))
}

#[tokio::test]
async fn a_reload_says_what_became_of_it() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = || world.config().tool(world.tool("one"));
    let gateway = config().start().await;
    let reload = async || gateway.admin("POST", "/reload", "").await;
    let told = |reply: &Reply| (reply.status, reply.json()["result"].clone());
    assert_eq!(told(&reload().await), (200, json!("unchanged")));
    // Not in the folder that is watched, so that the request finds it first.
    gateway.folder().replace("sortie.yaml", &config().set("/region", json!("eu")).text());
    let reply = reload().await;
    assert!(
        ["applied", "unchanged"].contains(&told(&reply).1.as_str().unwrap()),
        "{}",
        reply.text()
    );
    assert_eq!(reply.json()["generation"], 2);
    gateway.folder().replace("sortie.yaml", "version: 2\n");
    let reply = reload().await;
    assert_eq!(told(&reply), (422, json!("invalid")));
    assert_eq!(reply.json()["generation"], 2, "the one before stays");
    assert!(
        reply.json()["findings"][0].as_str().unwrap().contains("sortie.yaml:1:"),
        "{}",
        reply.text()
    );
    let moved = config().set("/listeners/api/header_timeout", json!("7s")).text();
    gateway.folder().replace("sortie.yaml", &moved);
    let reply = reload().await;
    assert_eq!(told(&reply), (409, json!("needs_restart")));
    gateway.call("one", json!({})).await.succeeded();
    gateway.finish().await;
}

#[tokio::test]
async fn a_drain_is_the_same_as_sigterm() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.default(Script::new().request().wait(&go).send(answer(
        200,
        "application/json",
        "1",
    )));
    let gateway = world.gateway(world.tool("slow")).await;
    let running = gateway.call("slow", json!({}));
    let drained = async {
        world.upstream.wait_for_requests(1).await;
        let reply = gateway.admin("POST", "/drain", "").await;
        assert_eq!((reply.status, &reply.json()["draining"]), (202, &json!(true)));
        poll("readiness to end", || async {
            (gateway.probe("/readyz").await.status == 503).then_some(())
        })
        .await;
        assert_eq!(gateway.status().await["draining"], true);
        go.fire();
    };
    let (outcome, ()) = tokio::join!(running, drained);
    outcome.succeeded();
    assert_eq!(gateway.ended().await.code, Some(0));
}

#[tokio::test]
async fn the_configuration_is_shown_without_what_could_be_a_secret() {
    let world = World::plain().await;
    let config =
        world.config().tool(world.tool("one").header("Authorization", "Bearer ", "shop-token-1"));
    let gateway = config.start().await;
    let shown = gateway.admin("GET", "/config", "").await.json();
    let tool = &shown["config"]["tools"][0];
    assert_eq!(
        (&tool["name"], &tool["headers"]["Authorization"]["prefix"]),
        (&json!("one"), &json!("Bearer "))
    );
    assert!(tool["secret"]["current"]["file"].is_string() && shown["generation"] == 1, "{shown}");
    // Every answer is searched for the secrets when the gateway ends.
    gateway.finish().await;
}

#[tokio::test]
async fn the_log_s_level_is_changed_while_it_runs() {
    let world = World::plain().await;
    world.upstream.default(always());
    let gateway = world.gateway(world.tool("one")).await;
    assert_eq!(gateway.admin("GET", "/log-level", "").await.json(), json!({"level": "info"}));
    let reply = gateway.admin("PUT", "/log-level", r#"{"level": "error"}"#).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"level": "error"})));
    let outcome = gateway.call("missing", json!({})).await;
    gateway.call_line(&outcome.id()).await;
    for wrong in ["", "{}", r#"{"level": "loud"}"#, r#"{"level": "info", "x": 1}"#, "\u{1b}[31m"] {
        let reply = gateway.admin("PUT", "/log-level", wrong).await;
        assert_eq!(
            (reply.status, &reply.json()["error"]["field"]),
            (400, &json!("/level")),
            "{wrong}"
        );
    }
    assert_eq!(gateway.admin("GET", "/log-level", "").await.json(), json!({"level": "error"}));
    gateway.admin("PUT", "/log-level", r#"{"level": "info"}"#).await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_circuit_is_closed_and_a_pause_ended_by_hand() {
    let world = World::plain().await;
    let config =
        world.config().set("/defaults/breaker", json!({"consecutive": 1, "open_for": "10m"}));
    let gateway = config.tool(world.tool("one")).start().await;
    world.upstream.next(Script::once(answer(500, "text/plain", "no")));
    gateway.call("one", json!({})).await.failed("http_status", None, "answered");
    gateway.call("one", json!({})).await.refused("circuit_open", None);
    assert_eq!(gateway.status().await["circuits"], json!({"one": "open"}));
    let reply = gateway.admin("POST", "/circuits/one/reset", "").await;
    assert_eq!((reply.status, reply.json()), (200, json!({"tool": "one", "state": "closed"})));
    assert_eq!(gateway.status().await["circuits"], json!({"one": "closed"}));
    let busy = "HTTP/1.1 429 Busy\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n";
    world.upstream.next(Script::once(busy));
    gateway.call("one", json!({})).await.failed("http_status", None, "answered");
    gateway.call("one", json!({})).await.refused("rate_limited", None);
    gateway.admin("POST", "/circuits/one/reset", "").await;
    world.upstream.default(always());
    gateway.call("one", json!({})).await.succeeded();
    assert_eq!(gateway.admin("POST", "/circuits/two/reset", "").await.status, 404);
    gateway.finish().await;
}

/// A gateway whose admin listener is on loopback.
fn on_loopback() -> ConfigBuilder {
    let admin = json!({"address": "127.0.0.1:0", "token": {"file": "admin.token"}});
    ConfigBuilder::new().set("/listeners/admin", admin).file("admin.token", TOKEN).watch(TOKEN)
}

#[tokio::test]
async fn f165_on_loopback_a_token_is_shown_under_this_machine_s_own_name() {
    let mut gateway = on_loopback().start().await;
    let admin = gateway.listening("admin").await;
    let ask = async |method: &str, path: &str, host: &str, token: Option<&str>| {
        let text =
            request(method, path, token, "").replace("Host: localhost", &format!("Host: {host}"));
        exchange(admin, text.as_bytes()).await
    };
    for (host, token, status) in [
        ("localhost", Some(TOKEN), 200),
        ("127.0.0.1:9478", Some(TOKEN), 200),
        ("localhost", None, 401),
        ("localhost", Some("sk-admin-Vq7RkX2mPz9LcT4nBw7"), 401),
        ("localhost", Some(""), 401),
        // A page whose own name leads here: the browser still sends that name.
        ("evil.example.com", Some(TOKEN), 400),
        ("127.0.0.1.evil.example.com", Some(TOKEN), 400),
    ] {
        assert_eq!(ask("GET", "/status", host, token).await.status, status, "{host} {token:?}");
    }
    for (method, path) in
        [("POST", "/drain"), ("POST", "/reload"), ("PUT", "/log-level"), ("GET", "/config")]
    {
        assert_eq!(ask(method, path, "localhost", None).await.status, 401, "{method} {path}");
    }
    assert_eq!(ask("GET", "/drain", "localhost", Some(TOKEN)).await.status, 405);
    assert_eq!(ask("GET", "/nothing", "localhost", Some(TOKEN)).await.status, 404);
    // An id that is nobody's and one that is another's look the same.
    assert_eq!(ask("POST", "/circuits/other/reset", "localhost", Some(TOKEN)).await.status, 404);
    let metrics = gateway.metrics().await;
    let refused = [("listener", "admin"), ("code", "401")];
    assert_eq!(metrics.value("sortie_http_requests_total", &refused), 7.0);
    assert_eq!(gateway.probe("/livez").await.status, 200, "nothing was drained");
    gateway.finish().await;
}

#[tokio::test]
async fn a_token_that_cannot_be_read_lets_nobody_in_not_even_on_a_socket() {
    let admin = json!({"unix": {"path": "admin.sock"}, "token": {"file": "missing.token"}});
    let gateway = ConfigBuilder::new().set("/listeners/admin", admin).start().await;
    for path in ["/status", "/config"] {
        assert_eq!(gateway.admin("GET", path, "").await.status, 401, "{path}");
    }
    gateway.finish().await;
}

#[test]
fn a_listener_for_everybody_is_refused() {
    for (admin, told) in [
        (json!({}), "listeners.admin.unix: is missing"),
        (
            json!({"address": "127.0.0.1:0"}),
            "listeners.admin.token: is missing, an address needs one",
        ),
        (
            json!({"address": "0.0.0.0:9478", "token": {"env": "TOKEN"}}),
            "must be a loopback address",
        ),
        (json!({"address": "127.0.0.1:1", "unix": {"path": "x"}}), "one of the two is enough"),
    ] {
        let finished = ConfigBuilder::new().set("/listeners/admin", admin.clone()).check(&[]);
        assert_eq!(finished.code, Some(1), "{admin}");
        assert!(finished.stdout.contains(told), "{admin}: {}", finished.stdout);
    }
}

#[tokio::test]
async fn the_status_counts_what_runs() {
    let world = World::plain().await;
    let go = Signal::new();
    world.upstream.default(
        Script::new().request().wait(&go).send(answer(200, "application/json", "1")).stall(),
    );
    let gateway = world.gateway(world.tool("slow")).await;
    let idle: Value = gateway.status().await;
    assert_eq!(
        (&idle["calls_in_flight"], &idle["upstream_connections_open"]),
        (&json!(0), &json!(0))
    );
    let busy = async {
        world.upstream.wait_for_requests(1).await;
        let busy = gateway.status().await;
        assert_eq!(
            (&busy["calls_in_flight"], &busy["upstream_connections_open"]),
            (&json!(1), &json!(1))
        );
        assert!(busy["tasks"].as_u64() > idle["tasks"].as_u64(), "{busy}");
        go.fire();
    };
    tokio::join!(gateway.call("slow", json!({})), busy).0.succeeded();
    gateway.finish().await;
}
