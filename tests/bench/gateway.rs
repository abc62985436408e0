//! The real gateway, as an operator runs it, on a configuration of its own.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::CONNECTIONS;
use crate::load::{Connection, STEP};
use crate::process::{Load, Plan};
use crate::upstream::Upstream;

/// The tool's signing secret.
pub(crate) const SECRET: &str = "whsec_a-bench-has-no-secrets-to-keep";
/// The tool's path.
pub(crate) const PATH: &str = "/tools/scans-get";
/// The run of every call.
pub(crate) const RUN_ID: &str = "run_7Hq2xV";
/// The arguments of every call.
pub(crate) const ARGUMENTS: &str = r#"{"scanId":"RX-4471","site":"north","limit":10,"note":"damage flags and photos of the pallet that came in on Tuesday morning from the northern depot"}"#;

const API_KEY: &str = "sk-bench-4vQmT8xWzK2nR6yL0cHd";
/// Longer than any start takes; the bench gives up then.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running gateway; it is killed when it is dropped.
pub(crate) struct Gateway {
    folder: TempDir,
    process: std::process::Child,
    address: SocketAddr,
    ready: Duration,
}

impl Gateway {
    /// Starts it and waits until it is ready; where `storage` is null, it keeps calls in memory.
    pub(crate) fn start(upstream: &Upstream, storage: &Value) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (address, telemetry) = (free_port(), free_port());
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("a file");
        };
        write("secret", SECRET);
        write("key", API_KEY);
        write("ca.pem", &upstream.authority_pem);
        write("sortie.yaml", &config(upstream, storage, address, telemetry));
        let begun = Instant::now();
        let process = Command::new(env!("CARGO_BIN_EXE_sortie"))
            .arg("serve")
            .arg("--config")
            .arg(folder.path().join("sortie.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("the gateway starts");
        let mut gateway = Self { folder, process, address, ready: Duration::ZERO };
        while !is_ready(telemetry) {
            assert!(begun.elapsed() < PATIENCE, "the gateway does not get ready");
            std::thread::sleep(Duration::from_millis(1));
        }
        gateway.ready = begun.elapsed();
        gateway
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn ready_ms(&self) -> f64 {
        self.ready.as_secs_f64() * 1000.0
    }

    /// Where its configuration stands.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("sortie.yaml")
    }

    /// The whole request of one call.
    pub(crate) fn request(&self) -> String {
        let body = call_body();
        format!(
            "POST /v1/calls HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {API_KEY}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
    }

    /// How long the first two calls take, in microseconds: the first one dials.
    pub(crate) fn first_calls(&self) -> (f64, f64) {
        let plan =
            Plan { connections: 1, warm_up: Duration::ZERO, window: Duration::ZERO, rate: None };
        let load = Load { plan, address: self.address, request: self.request() };
        let mut connection = Connection::open(&load, CONNECTIONS).expect("the gateway listens");
        let mut time = || {
            let begun = Instant::now();
            assert!(connection.call().expect("an answer"), "the call succeeds");
            begun.elapsed().as_secs_f64() * 1e6
        };
        (time(), time())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The body of a call, as a runtime posts it.
pub(crate) fn call_body() -> String {
    format!(
        r#"{{"tool":"scans.get","run_id":"{RUN_ID}","step":"{STEP}","agent_id":"support","session_id":"ses_0193b1e2","end_user":{{"id":"eu_7Gq"}},"arguments":{ARGUMENTS}}}"#
    )
}

fn config(upstream: &Upstream, storage: &Value, api: SocketAddr, telemetry: SocketAddr) -> String {
    let server = upstream.address;
    let mut config = json!({
        "version": 1,
        "listeners": {
            "api": {"address": api.to_string()},
            "telemetry": {"address": telemetry.to_string()},
        },
        "auth": {"keys": [{"name": "bench", "scopes": ["agent:call"], "key": {"file": "key"}}]},
        "egress": {
            "tls": {"extra_ca": {"file": "ca.pem"}},
            "pool": {"max_idle_per_host": 2 * CONNECTIONS},
            "exceptions": [{
                "tools": ["scans.get"],
                "hosts": [server.ip().to_string()],
                "cidrs": [format!("{}/32", server.ip())],
                "ports": [server.port().to_string()],
                "reason": "the server of the bench",
                "owner": "bench",
            }],
        },
        "tools": [{
            "name": "scans.get",
            "description": "Finds a scan and its damage flags, for the bench.",
            "url": format!("https://{server}{PATH}"),
            "profile": "bare-v1",
            "policy": "allow",
            "secret": {"current": {"file": "secret"}},
            "parameters": {
                "type": "object",
                "additionalProperties": false,
                "required": ["scanId"],
                "properties": {
                    "scanId": {"type": "string", "pattern": "^RX-\\d{4,}$"},
                    "site": {"type": "string", "enum": ["north", "south"]},
                    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                    "note": {"type": "string", "maxLength": 400},
                },
            },
        }],
    });
    if !storage.is_null() {
        config["storage"] = storage.clone();
    }
    format!("{config:#}\n")
}

/// A port that nobody listens at now; the gateway takes it a moment later.
fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("it is bound")
}

fn is_ready(telemetry: SocketAddr) -> bool {
    let asked = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(telemetry)?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    asked().unwrap_or(false)
}
