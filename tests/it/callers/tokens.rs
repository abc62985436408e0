//! Tokens as callers, by a key set in a file.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{CALL, call_with, open_door, refusal};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::Outcome;
use crate::support::tokens::{AUDIENCE, ISSUER, Signer, base64url, claims, unix_seconds, unsigned};

/// Takes tokens of this signer, besides the usual key.
fn takes(config: ConfigBuilder, signer: &Signer, fields: Value) -> ConfigBuilder {
    let mut entry = json!({
        "issuer": ISSUER, "audiences": [AUDIENCE], "jwks": {"file": "jwks.json"}, "scopes": "scope",
    });
    for (name, value) in fields.as_object().expect("an object") {
        entry[name] = value.clone();
    }
    config.file("jwks.json", &signer.set()).set("/auth/jwt", json!([entry]))
}

#[tokio::test]
async fn a_token_calls_as_its_subject() {
    let (world, config) = open_door().await;
    let signer = Signer::new("key-1");
    let gateway = takes(config, &signer, json!({})).start().await;
    let token = signer.token(json!({"sub": "runtime-7 \u{1b}[31m", "aud": ["x", AUDIENCE]}));
    let called = Outcome(gateway.post(Some(&token), CALL).await);
    called.succeeded();
    let line = gateway.call_text(&called.id()).await;
    assert!(line.contains(r#""key":"runtime-7 \u001b[31m""#), "{line}");
    // Keys go on beside it.
    Outcome(gateway.post(Some(API_KEY), CALL).await).succeeded();
    let text = refusal(&gateway.post(None, CALL).await, 401, "unauthorized");
    assert_eq!(text, "a known key or a valid token is required: `Authorization: Bearer KEY`");
    let reader = signer.token(json!({"scope": "agent openid"}));
    let text = refusal(&gateway.post(Some(&reader), CALL).await, 403, "missing_scope");
    assert_eq!(text, "the token of `runtime-7` does not have the scope `agent:call`");
    assert_eq!(world.upstream.requests().len(), 2);
    let finished = gateway.finish().await;
    assert!(!finished.stdout.contains(&token[..40]), "a token is in the log");
}

#[tokio::test]
async fn only_good_tokens_are_taken() {
    let (world, config) = open_door().await;
    let (signer, stranger) = (Signer::new("key-1"), Signer::new("key-1"));
    let gateway = takes(config, &signer, json!({})).start().await;
    let now = unix_seconds();
    let header = json!({"alg": "ES256", "kid": "key-1"});
    let hmac = {
        let signed = unsigned(&json!({"alg": "HS256", "kid": "key-1"}), &claims(json!({})));
        let mut mac = Hmac::<Sha256>::new_from_slice(signer.set().as_bytes()).expect("a key");
        mac.update(signed.as_bytes());
        format!("{signed}.{}", base64url(mac.finalize().into_bytes()))
    };
    let none = |name: &str| format!("{}.", unsigned(&json!({"alg": name}), &claims(json!({}))));
    let good = signer.token(json!({}));
    let cut = good.rsplit_once('.').expect("parts").0;
    let swapped = {
        let boss = unsigned(&header, &claims(json!({"sub": "boss"})));
        format!("{boss}.{}", good.rsplit_once('.').expect("parts").1)
    };
    let embedded = {
        let mut header = header.clone();
        header["jwk"] = stranger.jwk();
        stranger.sign(&header, &claims(json!({})))
    };
    for (token, why) in [
        (none("none"), "its algorithm is not taken here"),
        (none("None"), "its algorithm is not taken here"),
        (hmac, "its algorithm is not taken here"),
        (stranger.token(json!({})), "its signature is wrong"),
        (embedded, "its signature is wrong"),
        (swapped, "its signature is wrong"),
        (format!("{cut}."), "its signature is wrong"),
        (format!("{cut}.AA=="), "it is not a signed token of three parts"),
        ("a.b.c".to_owned(), "it is not a signed token of three parts"),
        (Signer::new("key-2").token(json!({})), "the key that signed it is not known"),
        (
            signer.sign(&json!({"alg": "RS256", "kid": "key-1"}), &claims(json!({}))),
            "the key that signed it is not known",
        ),
        (
            signer.sign(
                &json!({"alg": "ES256", "kid": "key-1", "crit": ["b64"], "b64": false}),
                &claims(json!({})),
            ),
            "it is not a signed token of three parts",
        ),
        (
            signer.token(json!({"iss": "https://other.example.com/"})),
            "its issuer is not known here",
        ),
        (signer.token(json!({"iss": null})), "its issuer is not known here"),
        (
            signer.token(json!({"aud": "https://other.example.com"})),
            "it is meant for somebody else",
        ),
        (signer.token(json!({"aud": null})), "its claim `aud` is missing or cannot be used"),
        (signer.token(json!({"exp": now - 600})), "it has expired"),
        (signer.token(json!({"exp": null})), "its claim `exp` is missing or cannot be used"),
        (signer.token(json!({"nbf": now + 600})), "it is not valid yet"),
        (signer.token(json!({"sub": null})), "its claim `sub` is missing or cannot be used"),
    ] {
        let reply = gateway.post(Some(&token), CALL).await;
        let text = refusal(&reply, 401, "unauthorized");
        assert_eq!(text, format!("the token is not taken: {why}"), "{token}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    world.upstream.assert_untouched().await;
    // Clocks differ.
    let early = json!({"nbf": now + 30, "exp": now - 10});
    Outcome(gateway.post(Some(&signer.token(early)), CALL).await).succeeded();
    gateway.finish().await;
}

#[tokio::test]
async fn an_agent_claim_binds_the_call() {
    let (world, config) = open_door().await;
    let signer = Signer::new("key-1");
    let gateway = takes(config, &signer, json!({"agent": "/act/agent"})).start().await;
    let call = async |agent: Value, claimed: Value| {
        let token = signer.token(json!({"act": {"agent": agent}}));
        Outcome(gateway.post(Some(&token), call_with(json!({"agent_id": claimed}))).await)
    };
    call(json!("support"), json!(null)).await.succeeded();
    assert_eq!(world.upstream.only_request().json()["agent_id"], "support");
    call(json!("support"), json!("support")).await.succeeded();
    call(json!("support"), json!("sales")).await.refused("not_allowed_for_key", None);
    call(json!(["support", "desk"]), json!("desk")).await.succeeded();
    call(json!(["support", "desk"]), json!(null)).await.refused("not_allowed_for_key", None);
    // What the issuer writes is a name and never a pattern.
    let star = call(json!("*"), json!("sales")).await;
    let text = refusal(&star.0, 401, "unauthorized");
    assert_eq!(text, "the token is not taken: its claim `/act/agent` is missing or cannot be used");
    assert_eq!(world.upstream.requests().len(), 3);
    gateway.finish().await;
}

#[tokio::test]
async fn values_of_a_claim_stand_for_scopes() {
    let (_world, config) = open_door().await;
    let signer = Signer::new("key-1");
    let scopes = json!({"claim": "groups", "values": {"agent-runtimes": ["agent", "agent:call"]}});
    let gateway = takes(config, &signer, json!({"scopes": scopes})).start().await;
    let with = |groups: Value| signer.token(json!({"groups": groups, "scope": "agent:call"}));
    let member = with(json!(["everybody", "agent-runtimes"]));
    Outcome(gateway.post(Some(&member), CALL).await).succeeded();
    for other in [json!(["everybody"]), json!([]), json!("agent:call")] {
        refusal(&gateway.post(Some(&with(other)), CALL).await, 403, "missing_scope");
    }
    gateway.finish().await;
}
