//! TLS on the api listener.

use std::process::Stdio;
use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::json;

use super::{Authorities, CALL, call_over_tls, open_door, over_tls};
use crate::support::certs::Authority;
use crate::support::cli::sortie;
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::http::{RawClient, get, post};
use crate::support::wait::poll;

use super::NAME;

#[tokio::test]
async fn calls_come_over_tls() {
    let (_world, config) = open_door().await;
    let authorities = Authorities::new();
    let gateway = authorities.serve(config).start().await;
    let called = call_over_tls(&gateway, authorities.nobody(), Some(API_KEY), CALL).await;
    let called = called.expect("an answer");
    called.succeeded();
    assert_eq!(gateway.call_line(&called.id()).await["key"], "test-runtime");
    let reply = over_tls(&gateway, authorities.nobody(), &post("/v1/calls", None, CALL)).await;
    assert_eq!(reply.expect("an answer").status, 401);
    let count = gateway.metrics().await;
    let labels = |code| [("listener", "api"), ("code", code)];
    assert_eq!(count.value("sortie_http_requests_total", &labels("200")), 1.0);
    assert_eq!(count.value("sortie_http_requests_total", &labels("401")), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_tls_connection_is_kept() {
    let (world, config) = open_door().await;
    let authorities = Authorities::new();
    let gateway = authorities.serve(config).start().await;
    let nobody = authorities.nobody();
    let mut client =
        RawClient::connect_tls(gateway.api(), nobody, NAME).await.expect("a handshake");
    let request = String::from_utf8(post("/v1/calls", Some(API_KEY), CALL)).expect("text");
    let request = request.replace("Connection: close\r\n", "");
    for _ in 0..3 {
        client.write(request.as_bytes()).await;
        let reply = client.read_reply().await;
        assert_eq!((reply.status, reply.header("connection")), (200, None));
    }
    assert_eq!(world.upstream.requests().len(), 3);
    gateway.finish().await;
}

#[tokio::test]
async fn only_tls_1_2_and_1_3_and_http_1_1_are_spoken() {
    let authorities = Authorities::new();
    let gateway = authorities.serve(ConfigBuilder::new()).start().await;
    let request = get("/nothing");
    for versions in [&[&rustls::version::TLS12], &[&rustls::version::TLS13]] {
        let mut roots = rustls::RootCertStore::empty();
        let pem = authorities.own.pem();
        let certificate = rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes());
        roots.add(certificate.expect("PEM")).expect("a root");
        let provider = rustls::crypto::aws_lc_rs::default_provider().into();
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let reply = over_tls(&gateway, Arc::new(config), &request).await.expect("an answer");
        assert_eq!(reply.status, 404, "{versions:?}");
    }
    let h2 = authorities.own.client_config(&["h2"]);
    assert!(RawClient::connect_tls(gateway.api(), h2, NAME).await.is_err());
    let other = Authority::new().client_config(&["http/1.1"]);
    assert!(RawClient::connect_tls(gateway.api(), other, NAME).await.is_err(), "not its authority");
    gateway.finish().await;
}

#[tokio::test]
async fn plain_http_on_the_tls_port_is_not_answered() {
    let (world, config) = open_door().await;
    let authorities = Authorities::new();
    let gateway = authorities.serve(config).start().await;
    for bytes in [&post("/v1/calls", Some(API_KEY), CALL)[..], b"\x16\x03\x01\xff\xff", b"\0"] {
        let mut client = RawClient::connect(gateway.api()).await;
        client.write(bytes).await;
        client.half_close().await;
        let answer = client.read_to_end().await;
        assert!(!answer.starts_with(b"HTTP/"), "{:?}", String::from_utf8_lossy(&answer));
    }
    world.upstream.assert_untouched().await;
    let called = call_over_tls(&gateway, authorities.nobody(), Some(API_KEY), CALL).await;
    called.expect("an answer").succeeded();
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_panics_total", &[]), 0.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_stalled_handshake_ends_and_holds_nobody_up() {
    let authorities = Authorities::new();
    let config = ConfigBuilder::new().set("/listeners/api/header_timeout", json!("500ms"));
    let gateway = authorities.serve(config).start().await;
    let mut silent = RawClient::connect(gateway.api()).await;
    let mut begun = RawClient::connect(gateway.api()).await;
    // The beginning of a ClientHello.
    begun.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await;
    let reply = over_tls(&gateway, authorities.nobody(), &get("/nothing")).await;
    assert_eq!(reply.expect("an answer").status, 404);
    // Without its bound they would be open for as long as anybody waits.
    assert!(silent.read_to_end().await.is_empty());
    begun.read_to_end().await;
    gateway.finish().await;
}

#[tokio::test]
async fn a_handshake_makes_room_and_ends_with_the_drain() {
    let authorities = Authorities::new();
    let config = ConfigBuilder::new()
        .set("/listeners/api/max_connections", json!(2))
        .set("/listeners/api/header_timeout", json!("300s"));
    let mut gateway = authorities.serve(config).start().await;
    let mut stalled = Vec::new();
    for _ in 0..2 {
        stalled.push(RawClient::connect(gateway.api()).await);
    }
    let reply = over_tls(&gateway, authorities.nobody(), &get("/nothing")).await;
    assert_eq!(reply.expect("an answer").status, 404);
    assert!(stalled.remove(0).read_to_end().await.is_empty(), "whoever waited longest");
    gateway.terminate();
    assert!(stalled.remove(0).read_to_end().await.is_empty());
    assert_eq!(gateway.ended().await.code, Some(0));
}

#[tokio::test]
async fn without_its_certificate_a_file_is_checked_and_not_served() {
    let authorities = Authorities::new();
    let config = authorities
        .serve(ConfigBuilder::new())
        .set("/listeners/api/tls/key", json!({"file": "tls/missing.pem"}));
    let checked = config.check(&[]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let warning = "missing.pem` is not there, the api listener does not serve without it";
    assert!(checked.stdout.contains(warning), "{}", checked.stdout);
    assert_eq!(config.check(&["--strict"]).code, Some(1));
    let folder = config.write();
    let mut child = sortie()
        .arg("serve")
        .arg("--config")
        .arg(&folder.config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    poll("an end", || {
        let ended = child.try_wait().expect("a child of ours");
        async move { ended }
    })
    .await;
    let output = child.wait_with_output().expect("its output");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot speak TLS") && said.contains("missing.pem"), "{said}");
}
