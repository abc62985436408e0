//! A real Prometheus on the shipped configuration, which scrapes one gateway every second.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::FOLDER;
use crate::deploy::shipped;
use crate::support::http::{exchange, get};
use crate::support::wait::poll;

/// The process; it is killed when it is dropped.
pub(super) struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The local trial's configuration, quicker, with the labels that a cluster adds, for this gateway.
fn configuration(gateway: SocketAddr) -> String {
    let mut text = std::fs::read_to_string(shipped(FOLDER).join("prometheus.yml")).expect("a file");
    let target = r#"- targets: ["127.0.0.1:9477"]"#;
    let rules = shipped(FOLDER).join("rules.yaml");
    for (there, instead) in [
        ("15s", "1s".to_owned()),
        ("[rules.yaml]", format!("[{rules:?}]")),
        (
            target,
            format!(
                "- targets: [\"{gateway}\"]\n        labels: {{namespace: agents, pod: sortie-0}}"
            ),
        ),
    ] {
        assert!(text.contains(there), "{there} is not in\n{text}");
        text = text.replace(there, &instead);
    }
    text
}

impl Prometheus {
    /// Starts it and waits until it answers.
    pub(super) async fn start(program: &Path, gateway: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (config, log) = (folder.path().join("prometheus.yml"), folder.path().join("log"));
        std::fs::write(&config, configuration(gateway)).expect("a written file");
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg("--web.listen-address=127.0.0.1:0");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log).expect("a file"));
        let mut child = command.spawn().expect("it starts");
        let address = poll("Prometheus to listen", || {
            let said = std::fs::read_to_string(&log).expect("its log");
            let ended = child.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "it ended with {ended:?}\n{said}");
            let line = said.lines().find(|line| line.contains("\"Listening on\""));
            let address = line.and_then(|line| line.split("address=").nth(1)?.trim().parse().ok());
            async move { address }
        })
        .await;
        let prometheus = Self { child, address, _folder: folder };
        poll("Prometheus to be ready", || async {
            (exchange(address, &get("/-/ready")).await.status == 200).then_some(())
        })
        .await;
        prometheus
    }

    /// Where it answers.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    async fn ask(&self, path: &str) -> Value {
        let reply = exchange(self.address, &get(path)).await;
        let body = reply.json();
        assert_eq!((reply.status, &body["status"]), (200, &"success".into()), "{path}: {body}");
        body["data"].clone()
    }

    /// What an expression is now: a list of series, or a number.
    pub(super) async fn query(&self, expression: &str) -> Value {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let reply = exchange(self.address, &get(&format!("/api/v1/query?query={encoded}"))).await;
        assert_eq!(reply.status, 200, "{expression}: {}", reply.text());
        reply.json()["data"]["result"].clone()
    }

    /// Waits until an expression has a series.
    pub(super) async fn answers(&self, expression: &str) {
        poll(&format!("{expression} to have an answer"), || async {
            (self.query(expression).await != Value::Array(Vec::new())).then_some(())
        })
        .await;
    }

    /// Its clock, in seconds.
    pub(super) async fn now(&self) -> f64 {
        let result = self.query("time()").await;
        result[0].as_f64().expect("a time")
    }

    /// The rules as it has them, each with its health.
    pub(super) async fn rules(&self) -> Vec<Value> {
        let data = self.ask("/api/v1/rules").await;
        let groups = data["groups"].as_array().expect("groups").iter();
        groups.flat_map(|group| group["rules"].as_array().expect("rules").clone()).collect()
    }
}
