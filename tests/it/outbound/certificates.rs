//! The certificate that a tool's server is shown.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde_json::json;

use crate::support::certs::{Authority, Leaf};
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::poll;
use crate::support::world::{HOST, World};

const OK: &str = r#"{"ok":true}"#;

/// A server that takes clients of one authority only, in one version of TLS.
async fn server(
    own: &Authority,
    clients: &Authority,
    version: &'static SupportedProtocolVersion,
) -> Upstream {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&clients.pem())).expect("a root");
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone()).build();
    let leaf = own.leaf(&[HOST]);
    let key = PrivateKeyDer::from_pem_slice(leaf.key_pem.as_bytes()).expect("PEM");
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_client_cert_verifier(verifier.expect("a verifier"))
        .with_single_cert(vec![certificate(&leaf.certificate_pem)], key)
        .expect("a certificate that fits its key");
    let upstream = Upstream::with_tls_config(Arc::new(config)).await;
    upstream.default(Script::always(answer(200, "application/json", OK)));
    upstream
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}

/// A world whose server asks for certificates of the second authority.
async fn world(version: &'static SupportedProtocolVersion) -> (World, Authority) {
    let (authority, clients) = (Authority::new(), Authority::new());
    let upstream = server(&authority, &clients, version).await;
    (World { authority, upstream, dns: DnsServer::start().await }, clients)
}

/// A tool that shows the certificate of this name.
fn showing(tool: Tool, name: &str) -> Tool {
    let chain = json!({"file": format!("{name}.pem")});
    tool.set("client_certificate", json!({"chain": chain, "key": {"file": format!("{name}.key")}}))
}

fn with(config: ConfigBuilder, name: &str, leaf: &Leaf) -> ConfigBuilder {
    let secret = leaf.key_pem.lines().nth(1).expect("a line of the key").to_owned();
    config
        .file(&format!("{name}.pem"), &leaf.certificate_pem)
        .file(&format!("{name}.key"), &leaf.key_pem)
        .watch(&secret)
}

#[tokio::test]
async fn each_tool_is_itself_and_shares_no_connection_and_no_session() {
    for version in [&TLS12, &TLS13] {
        let (world, clients) = world(version).await;
        let config = with(world.config(), "good", &clients.client_leaf("sortie"));
        let gateway = with(config, "bad", &Authority::new().client_leaf("sortie"))
            .tool(showing(world.tool("known"), "good"))
            .tool(showing(world.tool("stranger"), "bad"))
            .tool(world.tool("nobody"))
            .set("/logging/level", json!("trace"))
            .start()
            .await;
        // After the known one's handshake there is a session that could be resumed, and a connection that is kept.
        for _ in 0..2 {
            gateway.call("known", json!({})).await.succeeded();
            for tool in ["stranger", "nobody"] {
                let outcome = gateway.call(tool, json!({})).await;
                outcome.failed("network_error", Some("tls"), "not_sent");
                assert_eq!(outcome.at("/error/retryable"), false, "a certificate is permanent");
                assert_eq!(outcome.at("/attempts").as_array().map(Vec::len), Some(1));
            }
        }
        assert_eq!(world.upstream.requests().len(), 2, "{version:?}");
        poll("the operator's lines", || {
            let lines = gateway.log_lines();
            let said = lines.iter().filter(|line| {
                let reason = line["reason"].as_str().unwrap_or_default();
                reason.contains("the server does not take the client certificate")
            });
            let all = said.count() == 4;
            async move { all.then_some(()) }
        })
        .await;
        gateway.finish().await;
    }
}

#[tokio::test]
async fn a_refused_certificate_is_not_tried_again() {
    let (world, _) = world(&TLS13).await;
    let gateway = with(world.config(), "bad", &Authority::new().client_leaf("sortie"))
        .tool(showing(world.tool("stranger").profile("bare-v1"), "bad"))
        .start()
        .await;
    let outcome = gateway.call("stranger", json!({})).await;
    outcome.failed("network_error", Some("tls"), "not_sent");
    assert_eq!(world.upstream.connections().len(), 1);
    let attempts = gateway.metrics().await;
    assert_eq!(attempts.value("sortie_attempts_total", &[("result", "tls")]), 1.0);
    gateway.finish().await;
}

#[tokio::test]
async fn a_key_of_another_certificate_is_an_error_of_the_file() {
    let world = World::tls().await;
    let (one, other) = (world.authority.client_leaf("a"), world.authority.client_leaf("a"));
    let mixed = Leaf { key_pem: other.key_pem, ..one };
    let config = with(world.config(), "mixed", &mixed).tool(showing(world.tool("lookup"), "mixed"));
    let finished = config.check(&[]);
    assert_eq!(finished.code, Some(1));
    let said =
        "tools[0].client_certificate.key: is not the key of the first certificate of `chain`";
    assert!(finished.stderr.contains(said) || finished.stdout.contains(said), "{finished:#?}");
}
