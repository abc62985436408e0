//! A running `sortie dev`, watched from outside as somebody at its terminal sees it.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::support::cli::sortie;
use crate::support::config::Folder;
use crate::support::gateway::collect;
use crate::support::http::{Reply, exchange, post};
use crate::support::wait::{Log, poll};

/// The process. When it is dropped it is killed, and what it wrote is searched for its secrets.
pub(crate) struct Dev {
    pub(crate) folder: Folder,
    child: Child,
    readers: Vec<JoinHandle<()>>,
    lines: Arc<Log<String>>,
    api: SocketAddr,
    telemetry: SocketAddr,
}

impl Dev {
    /// Starts it on a configuration and waits until it takes calls.
    pub(crate) async fn start(folder: Folder) -> Self {
        let mut command = sortie();
        command.arg("dev").arg(&folder.config);
        command.args(["--listen", "127.0.0.1:0", "--telemetry", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let lines = Arc::new(Log::new());
        let readers = vec![
            collect(child.stdout.take().expect("a pipe"), Arc::clone(&lines)),
            collect(child.stderr.take().expect("a pipe"), Arc::clone(&lines)),
        ];
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut dev = Self { folder, child, readers, lines, api: nowhere, telemetry: nowhere };
        dev.api = dev.listens("api").await;
        dev.telemetry = dev.listens("telemetry").await;
        dev.line(&["Ready."]).await;
        dev
    }

    async fn listens(&self, listener: &str) -> SocketAddr {
        let line = self.line(&["Listening.", &format!("listener=\"{listener}\"")]).await;
        let address = line.split("address=\"").nth(1).and_then(|rest| rest.split('"').next());
        address.expect("a place").parse().expect("an address")
    }

    /// The first line that holds all of these, once it is there.
    pub(crate) async fn line(&self, parts: &[&str]) -> String {
        let holds = |line: &&String| parts.iter().all(|part| line.contains(part));
        let what = format!("a line with {parts:?} in {:#?}", self.lines.all());
        self.lines.wait(&what, |lines| lines.iter().find(holds).cloned()).await
    }

    /// Everything that was written so far.
    pub(crate) fn text(&self) -> String {
        self.lines.all().join("\n")
    }

    /// Where calls are taken.
    pub(crate) fn api(&self) -> SocketAddr {
        self.api
    }

    /// Where metrics and probes are.
    pub(crate) fn telemetry(&self) -> SocketAddr {
        self.telemetry
    }

    /// Calls a tool without a key.
    pub(crate) async fn call(&self, tool: &str) -> Value {
        let body = json!({"tool": tool, "arguments": {}}).to_string();
        let reply: Reply = exchange(self.api, &post("/v1/calls", None, body)).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Presses Ctrl-C, and waits for the end: the exit code.
    pub(crate) async fn interrupt(mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-INT", &id]).status().expect("`kill` starts");
        assert!(status.success(), "it takes a signal");
        poll("the end", || {
            let ended = self.child.try_wait().expect("a child of ours");
            async move { ended.map(|status| status.code()) }
        })
        .await
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.readers.drain(..).for_each(|reader| reader.join().expect("a reader that ends"));
        if std::thread::panicking() {
            eprintln!("--- its output ---\n{}\n---", self.text());
            return;
        }
        self.folder.canaries.assert_absent("the terminal", &self.text());
    }
}
