//! Client certificates as callers.

use serde_json::json;

use super::{Authorities, CALL, call_over_tls, call_with, open_door, over_tls, refusal};
use crate::support::certs::Authority;
use crate::support::config::API_KEY;
use crate::support::http::post;

const RUNTIME: &str = "spiffe://corp.example.com/ns/agents/sa/runtime";

#[tokio::test]
async fn a_certificate_is_a_caller() {
    let (_world, config) = open_door().await;
    let authorities = Authorities::new();
    let certs = json!([
        {"name": "runtime", "san": "spiffe://corp.example.com/ns/agents/*", "scopes": ["agent:call"]},
        {"name": "desk", "san": "DESK.corp.example.com", "scopes": ["agent:call"]},
    ]);
    let config = authorities.ask(config).set("/auth", json!({"certs": certs}));
    let gateway = config.start().await;
    for (name, known_as) in [(RUNTIME, "runtime"), ("desk.corp.example.com", "desk")] {
        let called = call_over_tls(&gateway, authorities.client(name), None, CALL).await;
        let called = called.expect("an answer");
        called.succeeded();
        assert_eq!(gateway.call_line(&called.id()).await["key"], known_as);
    }
    let request = post("/v1/calls", None, CALL);
    // It is signed by the right authority, and nobody here.
    for stranger in ["other.corp.example.com", "spiffe://corp.example.com/ns/other"] {
        let reply = over_tls(&gateway, authorities.client(stranger), &request).await;
        let text = refusal(&reply.expect("an answer"), 401, "unauthorized");
        assert_eq!(text, "a client certificate that is known is required");
    }
    // Those do not even connect: there is no other way in than a certificate.
    let foreign = Authority::new();
    for client in [
        authorities.nobody(),
        authorities.with(&foreign.client_leaf(RUNTIME)),
        authorities.with(&authorities.own.client_leaf(RUNTIME)),
        authorities.with(&authorities.clients.expired_client_leaf(RUNTIME)),
        // A server's certificate is no client's.
        authorities.with(&authorities.clients.leaf(&["desk.corp.example.com"])),
    ] {
        assert!(over_tls(&gateway, client, &request).await.is_none());
    }
    gateway.finish().await;
}

#[tokio::test]
async fn keys_and_certificates_stand_side_by_side() {
    let (_world, config) = open_door().await;
    let authorities = Authorities::new();
    let certs = json!([
        {"name": "runtime", "san": RUNTIME, "scopes": ["agent:call"]},
        {"name": "reader", "san": "reader.corp.example.com", "scopes": ["agent"]},
    ]);
    let gateway = authorities.ask(config).set("/auth/certs", certs).start().await;
    let by = async |client, key| {
        let called = call_over_tls(&gateway, client, key, CALL).await.expect("an answer");
        called.succeeded();
        gateway.call_line(&called.id()).await["key"].clone()
    };
    assert_eq!(by(authorities.nobody(), Some(API_KEY)).await, "test-runtime");
    assert_eq!(by(authorities.client(RUNTIME), None).await, "runtime");
    // The header comes first.
    assert_eq!(by(authorities.client(RUNTIME), Some(API_KEY)).await, "test-runtime");
    let refused = async |client, key, status, code| {
        let reply = over_tls(&gateway, client, &post("/v1/calls", key, CALL)).await;
        refusal(&reply.expect("an answer"), status, code)
    };
    let ways = "a known key (`Authorization: Bearer KEY`) or a client certificate that is known is required";
    assert_eq!(refused(authorities.nobody(), None, 401, "unauthorized").await, ways);
    let wrong = Some("sk-wrong-Wq9");
    assert_eq!(refused(authorities.client(RUNTIME), wrong, 401, "unauthorized").await, ways);
    let reader = authorities.client("reader.corp.example.com");
    let text = refused(reader, None, 403, "missing_scope").await;
    assert_eq!(text, "the certificate `reader` does not have the scope `agent:call`");
    // With a key there is another way in, so a certificate is not a must; a bad one is still none.
    let bad = authorities.with(&Authority::new().client_leaf(RUNTIME));
    let request = post("/v1/calls", Some(API_KEY), CALL);
    assert!(over_tls(&gateway, bad, &request).await.is_none());
    gateway.finish().await;
}

#[tokio::test]
async fn a_certificate_has_bounds_as_a_key_has() {
    let (world, config) = open_door().await;
    let authorities = Authorities::new();
    let certs = json!([{
        "name": "runtime", "san": RUNTIME, "scopes": ["agent:call"],
        "agents": ["support"], "tools": ["look*"],
    }]);
    let gateway = authorities.ask(config).set("/auth", json!({"certs": certs})).start().await;
    let call = async |changes| {
        let body = call_with(changes);
        let called = call_over_tls(&gateway, authorities.client(RUNTIME), None, &body).await;
        called.expect("an answer")
    };
    call(json!({})).await.succeeded();
    assert_eq!(world.upstream.only_request().json()["agent_id"], "support");
    call(json!({"agent_id": "sales"})).await.refused("not_allowed_for_key", None);
    call(json!({"tool": "refund"})).await.refused("not_allowed_for_key", None);
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn only_named_clients_connect_also_with_a_key() {
    let (_world, config) = open_door().await;
    let authorities = Authorities::new();
    let names = json!(["spiffe://corp.example.com/ns/agents/*"]);
    let config = authorities.ask(config).set("/listeners/api/tls/client_names", names);
    let gateway = config.start().await;
    let called = call_over_tls(&gateway, authorities.client(RUNTIME), Some(API_KEY), CALL).await;
    called.expect("an answer").succeeded();
    let request = post("/v1/calls", Some(API_KEY), CALL);
    for client in [authorities.nobody(), authorities.client("spiffe://corp.example.com/ns/other")] {
        assert!(over_tls(&gateway, client, &request).await.is_none());
    }
    // A name lets in; it takes a key to be somebody.
    let reply =
        over_tls(&gateway, authorities.client(RUNTIME), &post("/v1/calls", None, CALL)).await;
    refusal(&reply.expect("an answer"), 401, "unauthorized");
    gateway.finish().await;
}
