//! Key sets that are fetched by URL, under the rules that tools are called by.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{CALL, open_door, refusal};
use crate::support::certs::Authority;
use crate::support::config::ConfigBuilder;
use crate::support::dns::DnsServer;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::tokens::{AUDIENCE, ISSUER, Signer};
use crate::support::upstream::Upstream;
use crate::support::wait::{poll, together};
use crate::support::world::World;

const HOST: &str = "idp.example.com";
const UNAVAILABLE: &str = "the token is not taken: the keys of its issuer cannot be had now";

/// An issuer's server, with a certificate of the world's authority.
async fn issuer(authority: &Authority, dns: &DnsServer) -> Upstream {
    dns.set(HOST, &["A 127.0.0.1"]);
    Upstream::tls(&authority.leaf(&[HOST])).await
}

fn takes(config: ConfigBuilder, issuer: &Upstream) -> ConfigBuilder {
    let url = issuer.url(HOST, "/keys?tenant=7");
    let entry = json!({
        "issuer": ISSUER, "audiences": [AUDIENCE], "jwks": {"url": url}, "scopes": "scope",
    });
    config.set("/auth/jwt", json!([entry]))
}

fn opens(config: ConfigBuilder, issuer: &Upstream, tools: Value) -> ConfigBuilder {
    config.exception(json!({
        "tools": tools, "hosts": [HOST], "cidrs": ["127.0.0.1/32"],
        "ports": [issuer.port().to_string()], "reason": "the test's own issuer", "owner": "tests",
    }))
}

/// A world, an issuer that its gateway may ask, and the gateway.
async fn known_issuer() -> (World, Upstream, Gateway) {
    let (world, config) = open_door().await;
    let issuer = issuer(&world.authority, &world.dns).await;
    let config = opens(takes(config, &issuer), &issuer, json!(["_jwks"]));
    let gateway = config.start().await;
    (world, issuer, gateway)
}

#[tokio::test]
async fn a_set_is_fetched_once_when_the_first_token_comes() {
    let (world, issuer, gateway) = known_issuer().await;
    let signer = Signer::new("key-1");
    issuer.default(Script::always(answer(200, "application/jwk-set+json", signer.set())));
    assert!(world.dns.questions().is_empty(), "nothing is looked up before it is needed");
    issuer.assert_untouched().await;
    let token = signer.token(json!({}));
    let calls = (0..8).map(|_| gateway.post(Some(&token), CALL));
    for reply in together(calls).await {
        Outcome(reply).succeeded();
    }
    let request = issuer.only_request();
    assert_eq!(request.line(), "GET /keys?tenant=7 HTTP/1.1");
    let host = format!("{HOST}:{}", issuer.port());
    assert_eq!(request.headers(), [("Host", host.as_str()), ("Accept", "application/json")]);
    gateway.finish().await;
}

/// The issuer replaces its key by one of this name; why a token of the key before is not taken then.
async fn replaced(id: &str) -> String {
    let (_world, issuer, gateway) = known_issuer().await;
    let (old, new) = (Signer::new("key-1"), Signer::new(id));
    let set = Arc::new(Mutex::new(old.set()));
    let shown = Arc::clone(&set);
    issuer.default(Script::responding(move |_| {
        answer(200, "application/json", shown.lock().expect("no panic holds it").as_str())
    }));
    Outcome(gateway.post(Some(&old.token(json!({}))), CALL).await).succeeded();
    *set.lock().expect("no panic holds it") = new.set();
    let token = new.token(json!({}));
    // For ten seconds after a fetch it does not ask again.
    poll("the new key to be taken", || async {
        (gateway.post(Some(&token), CALL).await.status == 200).then_some(())
    })
    .await;
    let text = refusal(&gateway.post(Some(&old.token(json!({}))), CALL).await, 401, "unauthorized");
    gateway.finish().await;
    text
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_found() {
    let text = replaced("key-2").await;
    assert_eq!(text, "the token is not taken: the key that signed it is not known");
}

#[tokio::test]
async fn a_new_key_under_the_old_name_is_found() {
    let text = replaced("key-1").await;
    assert_eq!(text, "the token is not taken: its signature is wrong");
}

/// The reason in the line about a fetch that failed.
async fn reason(gateway: &Gateway) -> String {
    poll("the line of the fetch", || async {
        let lines = gateway.log_lines();
        let said = |line: &&Value| line["message"] == "The keys of an issuer cannot be fetched.";
        let line = lines.iter().find(said)?;
        assert_eq!((&line["level"], &line["kept"]), (&json!("WARN"), &json!(false)));
        line["error"].as_str().map(str::to_owned)
    })
    .await
}

#[tokio::test]
async fn answers_that_are_no_set_let_nobody_in() {
    let signer = Signer::new("key-1");
    let redirect = "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n";
    let encoded = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n{}",
        signer.set().len(),
        signer.set()
    );
    for (bytes, why) in [
        (redirect.as_bytes().to_vec(), "the answer has status 302"),
        (answer(503, "text/plain", "busy"), "the answer has status 503"),
        (encoded.into_bytes(), "the answer cannot be read"),
        (answer(200, "text/html", "<html>"), "the answer is not a JSON Web Key Set"),
        (answer(200, "application/json", " ".repeat(70_000)), "the answer is larger than 64 KiB"),
    ] {
        let (world, issuer, gateway) = known_issuer().await;
        issuer.default(Script::always(bytes));
        let token = signer.token(json!({}));
        let text = refusal(&gateway.post(Some(&token), CALL).await, 401, "unauthorized");
        assert_eq!(text, UNAVAILABLE);
        let said = reason(&gateway).await;
        assert!(said.starts_with(why), "{said}");
        assert_eq!(issuer.only_request().line(), "GET /keys?tenant=7 HTTP/1.1");
        world.upstream.assert_untouched().await;
        gateway.finish().await;
    }
}

#[tokio::test]
async fn a_set_on_a_private_address_needs_an_exception_of_its_own() {
    for tools in [None, Some(json!(["lookup"]))] {
        let (world, config) = open_door().await;
        let issuer = issuer(&world.authority, &world.dns).await;
        issuer.default(Script::new());
        let config = takes(config, &issuer);
        let config = match tools {
            None => config,
            Some(tools) => opens(config, &issuer, tools),
        };
        let gateway = config.start().await;
        let token = Signer::new("key-1").token(json!({}));
        let reply = gateway.post(Some(&token), CALL).await;
        assert_eq!(refusal(&reply, 401, "unauthorized"), UNAVAILABLE);
        let said = reason(&gateway).await;
        assert!(said.contains("127.0.0.1"), "{said}");
        issuer.assert_untouched().await;
        gateway.finish().await;
    }
}

#[tokio::test]
async fn a_set_at_a_forbidden_address_is_an_error_of_the_file() {
    let (_world, config) = open_door().await;
    let entry = json!({
        "issuer": ISSUER, "audiences": [AUDIENCE], "jwks": {"url": "https://169.254.169.254/keys"}, "scopes": "scope",
    });
    let checked = config.set("/auth/jwt", json!([entry])).check(&[]);
    assert_eq!(checked.code, Some(1));
    let line = checked.stdout.lines().find(|line| line.contains("auth.jwt[0].jwks.url"));
    assert!(line.expect("a line").ends_with("(link_local)"), "{}", checked.stdout);
}
