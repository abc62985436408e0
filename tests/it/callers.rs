//! Callers: TLS on the api listener, and certificates and tokens beside keys.

mod certificates;
mod key_sets;
mod tls;
mod tokens;

use std::sync::Arc;

use rustls::ClientConfig;
use serde_json::{Value, json};

use crate::support::certs::{Authority, Leaf};
use crate::support::config::ConfigBuilder;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::http::{RawClient, Reply, post};
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// A call of the tool that these tests have.
const CALL: &str = r#"{"tool":"lookup","arguments":{}}"#;
/// The gateway's own name.
const NAME: &str = "gateway.example.com";

/// A tool that answers, and a configuration with it.
async fn open_door() -> (World, ConfigBuilder) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let config = world.config().tool(world.tool("lookup")).tool(world.tool("refund"));
    (world, config)
}

/// The authorities of a gateway that speaks TLS: its own, and its clients'.
struct Authorities {
    own: Authority,
    clients: Authority,
}

impl Authorities {
    fn new() -> Self {
        Self { own: Authority::new(), clients: Authority::new() }
    }

    /// TLS without client certificates.
    fn serve(&self, config: ConfigBuilder) -> ConfigBuilder {
        let Leaf { certificate_pem, key_pem } = self.own.leaf(&[NAME]);
        let secret = key_pem.lines().nth(1).expect("a line of the key").to_owned();
        config
            .file("tls/cert.pem", &certificate_pem)
            .file("tls/key.pem", &key_pem)
            .watch(&secret)
            .set("/listeners/api/tls/cert", json!({"file": "tls/cert.pem"}))
            .set("/listeners/api/tls/key", json!({"file": "tls/key.pem"}))
    }

    /// TLS with client certificates.
    fn ask(&self, config: ConfigBuilder) -> ConfigBuilder {
        self.serve(config)
            .file("tls/clients.pem", &self.clients.pem())
            .set("/listeners/api/tls/client_ca", json!({"file": "tls/clients.pem"}))
    }

    /// A client without a certificate.
    fn nobody(&self) -> Arc<ClientConfig> {
        self.own.client_config(&["http/1.1"])
    }

    /// A client with this one.
    fn with(&self, leaf: &Leaf) -> Arc<ClientConfig> {
        self.own.client_config_with(&["http/1.1"], leaf)
    }

    /// A client whose certificate the clients' authority made for this name.
    fn client(&self, name: &str) -> Arc<ClientConfig> {
        self.with(&self.clients.client_leaf(name))
    }
}

/// One request over TLS; `None` where the gateway does not talk with this client.
async fn over_tls(gateway: &Gateway, client: Arc<ClientConfig>, request: &[u8]) -> Option<Reply> {
    let client = RawClient::connect_tls(gateway.api(), client, NAME).await.ok()?;
    let bytes = client.offer(request).await;
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a UTF-8 head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    Some(Reply { status, head, body: bytes[end..].to_vec() })
}

/// One call over TLS.
async fn call_over_tls(
    gateway: &Gateway,
    client: Arc<ClientConfig>,
    key: Option<&str>,
    body: &str,
) -> Option<Outcome> {
    over_tls(gateway, client, &post("/v1/calls", key, body)).await.map(Outcome)
}

/// Fails unless the API refused the request in this way; what it says.
#[track_caller]
fn refusal(reply: &Reply, status: u16, code: &str) -> String {
    let error = reply.json()["error"].clone();
    assert_eq!((reply.status, &error["code"]), (status, &json!(code)), "{}", reply.text());
    error["message"].as_str().expect("a message").to_owned()
}

/// A body of a call with some fields changed.
fn call_with(changes: Value) -> String {
    let mut call: Value = serde_json::from_str(CALL).expect("a call");
    for (name, value) in changes.as_object().expect("an object") {
        call[name] = value.clone();
    }
    call.to_string()
}
