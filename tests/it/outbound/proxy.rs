//! Tools behind a proxy: what it is asked, and what never gets to it.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::certs::Authority;
use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;
use crate::support::gateway::Gateway;
use crate::support::proxy::{Answer, Proxy, Reply};
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::poll;
use crate::support::world::HOST;

const OK: &str = r#"{"ok":true}"#;
const PUBLIC: &str = "93.184.216.34";
const OTHER: &str = "93.184.216.35";
const PROXY: &str = "proxy.corp.internal";

/// A tool's server that nobody can reach directly: no exception names it, and its address is somebody else's.
struct Far {
    authority: Authority,
    upstream: Upstream,
    dns: DnsServer,
}

impl Far {
    async fn new() -> Self {
        let authority = Authority::new();
        let upstream = Upstream::tls(&authority.leaf(&[HOST])).await;
        upstream.default(Script::always(answer(200, "application/json", OK)));
        let dns = DnsServer::start().await;
        dns.set(HOST, &[&format!("A {PUBLIC}")]).set(PROXY, &["A 127.0.0.1"]);
        Self { authority, upstream, dns }
    }

    fn config(&self, proxy: Value) -> ConfigBuilder {
        ConfigBuilder::new().dns(&self.dns).ca(&self.authority.pem()).set("/egress/proxy", proxy)
    }

    fn tool(&self, name: &str) -> Tool {
        Tool::new(name, &format!("https://{HOST}/{name}"))
    }

    async fn start(&self, proxy: Value) -> Gateway {
        self.config(proxy).tool(self.tool("lookup")).start().await
    }

    fn leading(&self) -> Answer {
        let place = self.upstream.address();
        Arc::new(move |_| Reply::Open(place))
    }
}

fn said(text: impl Into<Vec<u8>>) -> Answer {
    let text = text.into();
    Arc::new(move |_| Reply::Say(text.clone()))
}

#[tokio::test]
async fn connect_ip_gives_the_proxy_an_address_that_was_judged() {
    let far = Far::new().await;
    let proxy = Proxy::to(far.upstream.address()).await;
    let gateway = far.start(json!({"url": proxy.url(PROXY)})).await;
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.call("lookup", json!({})).await.succeeded();
    assert_eq!(
        proxy.heads(),
        [format!("CONNECT {PUBLIC}:443 HTTP/1.1\r\nHost: {PUBLIC}:443\r\n\r\n")],
        "the second call finds the tunnel"
    );
    assert_eq!(far.upstream.connections()[0].server_name.as_deref(), Some(HOST));
    assert_eq!(far.upstream.requests()[0].header("Host"), Some(HOST));
    let decisions = gateway.metrics().await;
    let labels = [("verdict", "allow"), ("code", "ok"), ("mode", "enforce")];
    assert_eq!(decisions.value("sortie_address_decisions_total", &labels), 2.0);
    gateway.finish().await;
}

#[tokio::test]
async fn connect_ip_refuses_what_it_would_refuse_without_a_proxy() {
    let far = Far::new().await;
    let proxy = Proxy::to(far.upstream.address()).await;
    far.dns.set(HOST, &["A 10.0.0.5"]);
    let gateway = far.start(json!({"url": proxy.url("127.0.0.1"), "mode": "connect_ip"})).await;
    gateway.call("lookup", json!({})).await.refused("blocked_host", Some("private"));
    assert_eq!(proxy.heads(), [""; 0]);
    gateway.finish().await;
}

#[tokio::test]
async fn connect_ip_goes_on_to_the_next_judged_address() {
    let far = Far::new().await;
    far.dns.set(HOST, &[&format!("A {PUBLIC}"), &format!("A {OTHER}")]);
    let place = far.upstream.address();
    let proxy = Proxy::answering(Arc::new(move |head| {
        if head.contains(OTHER) {
            Reply::Open(place)
        } else {
            Reply::Say(b"HTTP/1.1 502 Bad Gateway\r\n\r\n".to_vec())
        }
    }))
    .await;
    let gateway = far.start(json!({"url": proxy.url(PROXY)})).await;
    gateway.call("lookup", json!({})).await.succeeded();
    let line = |address| format!("CONNECT {address}:443 HTTP/1.1");
    assert_eq!(proxy.lines(), [line(PUBLIC), line(OTHER)]);
    gateway.finish().await;
}

#[tokio::test]
async fn connect_name_asks_nobody_and_still_judges_urls_and_names() {
    let far = Far::new().await;
    let proxy = Proxy::to(far.upstream.address()).await;
    let config = far
        .config(json!({"url": proxy.url("127.0.0.1"), "mode": "connect_name"}))
        .set("/egress/deny_hosts", json!(["denied.example.com"]))
        .tool(far.tool("lookup"));
    let gateway = config.start().await;
    let before = far.dns.questions().len();
    gateway.call("lookup", json!({})).await.succeeded();
    gateway.call("lookup", json!({})).await.succeeded();
    assert_eq!(proxy.lines(), [format!("CONNECT {HOST}:443 HTTP/1.1")]);
    assert_eq!(far.dns.questions().len(), before, "no lookup of ours");
    assert_eq!(far.upstream.connections()[0].server_name.as_deref(), Some(HOST));
    let decisions = gateway.metrics().await;
    let labels = [("verdict", "allow"), ("code", "ok"), ("mode", "enforce")];
    assert_eq!(decisions.value("sortie_address_decisions_total", &labels), 2.0);
    gateway.finish().await;

    let folder = config.write();
    let file = folder.config.to_str().expect("UTF-8").to_owned();
    let ask = |options: &[&str], target: &str| {
        let fixed = ["egress", "--config", &file, "--tool", "lookup"];
        run([&fixed, options, &[target]].concat(), "")
    };
    for (target, line) in [
        (
            HOST,
            json!({"input": HOST, "verdict": "allow", "code": "ok", "addresses": [], "delegated": true}),
        ),
        (
            "10.0.0.5",
            json!({"input": "10.0.0.5", "verdict": "refuse", "code": "private", "addresses": ["10.0.0.5"]}),
        ),
        (PUBLIC, json!({"input": PUBLIC, "verdict": "allow", "code": "ok", "addresses": [PUBLIC]})),
        (
            "denied.example.com",
            json!({"input": "denied.example.com", "verdict": "refuse", "code": "denied_host", "addresses": []}),
        ),
        (
            "api.example.com:80",
            json!({"input": "api.example.com:80", "verdict": "refuse", "code": "port", "addresses": []}),
        ),
        (
            "db.svc.cluster.local",
            json!({"input": "db.svc.cluster.local", "verdict": "refuse", "code": "name_denied", "addresses": []}),
        ),
    ] {
        let told = ask(&["--json"], target);
        assert_eq!(serde_json::from_str::<Value>(&told.stdout).expect("JSON"), line);
        assert_eq!(told.code, Some(i32::from(line["verdict"] != "allow")));
    }
    let text = ask(&[], HOST);
    assert!(text.stdout.starts_with("allow") && text.stdout.contains("delegated"), "{text:?}");
}

#[tokio::test]
async fn what_an_exception_names_goes_past_the_proxy() {
    let far = Far::new().await;
    for mode in ["connect_ip", "connect_name"] {
        let proxy = Proxy::answering(said("HTTP/1.1 500 not for me\r\n\r\n")).await;
        let near = Tool::new("near", &far.upstream.url(HOST, "/near"));
        let gateway = far
            .config(json!({"url": proxy.url(PROXY), "mode": mode}))
            .reach(&far.upstream, &far.dns, HOST)
            .tool(near)
            .start()
            .await;
        gateway.call("near", json!({})).await.succeeded();
        assert_eq!(proxy.heads(), [""; 0]);
        gateway.finish().await;
    }
}

#[tokio::test]
async fn a_proxy_may_speak_tls_and_ask_for_a_password() {
    let far = Far::new().await;
    let own = Authority::new();
    let proxy = Proxy::tls(&own.leaf(&[PROXY]), far.leading()).await;
    let settings = json!({
        "url": proxy.url(PROXY),
        "basic": {"user": "sortie", "password": {"file": "secrets/proxy"}},
        "extra_ca": {"file": "proxy-ca.pem"},
    });
    let gateway = far
        .config(settings)
        .file("proxy-ca.pem", &own.pem())
        .file("secrets/proxy", "pw-3Hs9Ld2Kt\n")
        .watch("pw-3Hs9Ld2Kt")
        .watch("c29ydGllOnB3LTNIczlMZDJLdA==")
        .set("/logging/level", json!("trace"))
        .tool(far.tool("lookup"))
        .start()
        .await;
    gateway.call("lookup", json!({})).await.succeeded();
    assert_eq!(
        proxy.heads(),
        [format!(
            "CONNECT {PUBLIC}:443 HTTP/1.1\r\nHost: {PUBLIC}:443\r\n\
             Proxy-Authorization: Basic c29ydGllOnB3LTNIczlMZDJLdA==\r\n\r\n"
        )]
    );
    let request = far.upstream.only_request();
    assert_eq!(request.header("Proxy-Authorization"), None);
    gateway.finish().await;
}

#[tokio::test]
async fn a_proxy_whose_certificate_is_not_trusted_is_told_nothing() {
    let far = Far::new().await;
    let proxy = Proxy::tls(&Authority::new().leaf(&[PROXY]), far.leading()).await;
    let gateway = far.start(json!({"url": proxy.url(PROXY)})).await;
    gateway.call("lookup", json!({})).await.failed("network_error", Some("connect"), "not_sent");
    assert_eq!(proxy.heads(), [""; 0]);
    gateway.finish().await;
}

#[tokio::test]
async fn what_is_no_tunnel_is_no_connection() {
    let far = Far::new().await;
    let large = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(9000));
    for (text, reason) in [
        ("HTTP/1.1 407 Who are you\r\n\r\n", "407"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "opens no tunnel to 93.184.216.34:443: 403"),
        ("HTTP/1.1 301 Moved\r\nLocation: http://10.0.0.5/\r\n\r\n", "301"),
        ("HTTP/1.1 101 Switching\r\n\r\n", "101"),
        ("HTTP/1.1 200 OK\r\n\r\nsurprise", "sent more than its answer"),
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not answer in HTTP/1"),
        ("HTTP/1.1 200 OK\r\n", "closed before it answered"),
        (&large, "more than 8 KiB"),
    ] {
        let proxy = Proxy::answering(said(text)).await;
        let gateway = far.start(json!({"url": proxy.url(PROXY)})).await;
        let outcome = gateway.call("lookup", json!({})).await;
        outcome.failed("network_error", Some("connect"), "not_sent");
        assert_eq!(outcome.model_text(), "The tool's server could not be reached.");
        poll("the operator's line", || {
            let lines = gateway.log_lines();
            let told = lines.iter().any(|line| {
                let told = line["reason"].as_str().unwrap_or_default();
                told.starts_with("the proxy http://") && told.contains(reason)
            });
            async move { told.then_some(()) }
        })
        .await;
        gateway.finish().await;
    }
    far.upstream.assert_untouched().await;
}

#[tokio::test]
async fn a_silent_proxy_ends_at_connect_timeout() {
    let far = Far::new().await;
    let proxy = Proxy::answering(Arc::new(|_| Reply::Stall)).await;
    let gateway = far
        .config(json!({"url": proxy.url(PROXY)}))
        .set("/egress/connect_timeout", json!("200ms"))
        .tool(far.tool("lookup"))
        .start()
        .await;
    gateway.call("lookup", json!({})).await.failed("network_error", Some("connect"), "not_sent");
    gateway.finish().await;
}

#[tokio::test]
async fn tokens_are_fetched_through_the_proxy_too() {
    let far = Far::new().await;
    let grant = r#"{"access_token":"at-2Jf7Ws5Pq","token_type":"bearer"}"#;
    far.upstream.default(Script::responding(move |request| {
        let body = if request.line().starts_with("POST /token ") { grant } else { OK };
        answer(200, "application/json", body)
    }));
    let proxy = Proxy::to(far.upstream.address()).await;
    let oauth2 = json!({
        "token_url": format!("https://{HOST}/token"),
        "client_id": "sortie",
        "client_secret": {"file": "secrets/client"},
    });
    let gateway = far
        .config(json!({"url": proxy.url("127.0.0.1"), "mode": "connect_name"}))
        .file("secrets/client", "cs-8Vb4Nx6Mz")
        .watch("cs-8Vb4Nx6Mz")
        .watch("at-2Jf7Ws5Pq")
        .tool(far.tool("lookup").set("authentication", json!({"oauth2": oauth2})))
        .start()
        .await;
    gateway.call("lookup", json!({})).await.succeeded();
    assert_eq!(proxy.lines(), vec![format!("CONNECT {HOST}:443 HTTP/1.1"); 2]);
    gateway.finish().await;
}

#[tokio::test]
async fn variables_of_the_environment_name_no_proxy() {
    let far = Far::new().await;
    let (named, stranger) =
        (Proxy::to(far.upstream.address()).await, Proxy::to(far.upstream.address()).await);
    let mut config = far.config(json!({"url": named.url(PROXY)})).tool(far.tool("lookup"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"]
    {
        config = config.environment(name, &stranger.url("127.0.0.1"));
    }
    // Nor does it take a proxy's place away.
    let config = config.environment("NO_PROXY", "*").environment("no_proxy", "*");
    let gateway = config.start().await;
    gateway.call("lookup", json!({})).await.succeeded();
    assert_eq!((named.heads().len(), stranger.heads().len()), (1, 0));
    gateway.finish().await;
}
