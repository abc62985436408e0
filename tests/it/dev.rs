//! `sortie dev`: a configuration on the developer's own machine, and what is seen there.

use serde_json::json;

use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dev::Dev;
use crate::support::http::{exchange, get};
use crate::support::receiver::verify;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;

/// A tool on this machine, as its author writes it.
fn tool(upstream: &Upstream, name: &str) -> Tool {
    Tool::new(name, &upstream.url("127.0.0.1", &format!("/{name}")))
}

/// A configuration as it is meant for production: keys, TLS, listeners for others, an admin listener.
fn production() -> ConfigBuilder {
    ConfigBuilder::new()
        .set(
            "/listeners/api",
            json!({"address": ":8477", "tls": {"cert": {"file": "no"}, "key": {"file": "no"}}}),
        )
        .set("/listeners/telemetry", json!({"address": ":9477"}))
}

async fn upstream() -> Upstream {
    let upstream = Upstream::plain().await;
    upstream.default(Script::responding(|request| {
        let code = if request.line().contains("/fails") { 503 } else { 200 };
        answer(code, "application/json", r#"{"status":"shipped"}"#)
    }));
    upstream
}

#[tokio::test]
async fn a_tool_on_this_machine_is_called_without_a_key_and_the_call_is_seen() {
    let upstream = upstream().await;
    let config = production().tool(tool(&upstream, "one")).tool(tool(&upstream, "fails"));
    let dev = Dev::start(config.write()).await;
    assert!(dev.text().starts_with("=== LOCAL DEVELOPMENT: not for production ===\n"));
    assert!(dev.api().ip().is_loopback());
    assert_eq!(dev.call("one").await["status"], "succeeded");
    verify(&upstream.only_request(), "X-Tool-Signature", crate::support::config::SECRET);
    let line = dev.line(&["call one: succeeded ok, "]).await;
    assert!(line.ends_with(" ms"), "{line}");
    assert_eq!(dev.call("fails").await["error"]["code"], "http_status");
    let line = dev.line(&["call fails: failed http_status, "]).await;
    assert!(line.ends_with(" ms. The tool answered with status 503."), "{line}");
    // A web page under a name of its own comes in vain.
    let foreign = "POST /v1/calls HTTP/1.1\r\nHost: evil.example.com\r\n\
                   Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    assert_eq!(exchange(dev.api(), foreign.as_bytes()).await.status, 400);
    assert_eq!(exchange(dev.api(), &get("/v1/nothing")).await.status, 404);
    for path in ["/metrics", "/readyz", "/livez", "/nothing"] {
        let foreign = format!(
            "GET {path} HTTP/1.1\r\nHost: evil.example.com:9477\r\nConnection: close\r\n\r\n"
        );
        let told = exchange(dev.telemetry(), foreign.as_bytes()).await;
        assert_eq!(told.status, 400, "{path}: {}", told.text());
    }
    let metrics = exchange(dev.telemetry(), &get("/metrics")).await;
    assert!(metrics.status == 200 && metrics.text().contains("sortie_calls_total"), "{metrics:?}");
    assert_eq!(dev.interrupt().await, Some(0));
}

#[tokio::test]
async fn a_saved_file_is_in_force_and_a_broken_one_is_said() {
    let upstream = upstream().await;
    let config = || production().tool(tool(&upstream, "one"));
    let more = config().tool(tool(&upstream, "two"));
    let dev = Dev::start(more.write()).await;
    assert_eq!(dev.call("two").await["status"], "succeeded");
    // Its secret is there already.
    dev.folder.replace("sortie.yaml", &config().text());
    dev.line(&["Another configuration is in force.", "generation=2"]).await;
    assert_eq!(dev.call("two").await["error"]["code"], "unknown_tool");
    assert_eq!(dev.call("one").await["status"], "succeeded");
    dev.folder.replace("sortie.yaml", &more.text().replace("\"url\"", "\"ulr\""));
    dev.line(&["The new configuration is wrong here.", "sortie.yaml:", "ulr"]).await;
    dev.line(&["is not valid, the one before stays in force."]).await;
    assert_eq!(dev.call("one").await["status"], "succeeded");
    dev.folder.replace("sortie.yaml", &more.text());
    dev.line(&["Another configuration is in force.", "generation=3"]).await;
    assert_eq!(dev.call("two").await["status"], "succeeded");
    assert_eq!(dev.interrupt().await, Some(0));
}

#[test]
fn nothing_but_this_machine_is_listened_on_or_opened() {
    let folder = production().write();
    let file = folder.config.to_str().expect("UTF-8");
    for option in ["--listen", "--telemetry"] {
        let finished = run(["dev", file, option, "0.0.0.0:0"], "");
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{finished:#?}");
        assert!(finished.stderr.contains("0.0.0.0:0 is not a loopback address"), "{finished:#?}");
    }
    for url in ["http://localhost:3000/", "http://10.0.0.5:3000/", "http://shop.example.com/"] {
        let folder = production().tool(Tool::new("one", url)).write();
        let finished = run(["dev", folder.config.to_str().expect("UTF-8")], "");
        assert_eq!(finished.code, Some(1), "{finished:#?}");
        assert!(finished.stderr.contains("sortie.yaml:"), "{finished:#?}");
        assert!(finished.stderr.contains("tools[0].url: "), "{finished:#?}");
    }
}
