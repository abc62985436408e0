//! The tests' own collector of traces: `tests/deploy/otlp_receiver.py`, which decodes with OpenTelemetry's own classes.

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;

use crate::deploy::{shipped, venv};
use crate::support::certs::Leaf;
use crate::support::gateway::collect;
use crate::support::wait::Log;

/// A collector that runs, and what it got.
pub(super) struct Collector {
    child: Child,
    reader: Option<JoinHandle<()>>,
    lines: Arc<Log<String>>,
    port: u16,
    scheme: &'static str,
}

/// One span, with what its export said of all of them.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub(super) span: Value,
    pub(super) export: Value,
}

impl Span {
    #[track_caller]
    pub(super) fn text(&self, field: &str) -> &str {
        self.span[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.span))
    }

    pub(super) fn time(&self) -> [u64; 2] {
        ["start", "end"].map(|field| self.span[field].as_u64().expect("nanoseconds"))
    }

    pub(super) fn attribute(&self, name: &str) -> &Value {
        &self.span["attributes"][name]
    }
}

impl Collector {
    /// One that speaks plain HTTP; none where its packages cannot be had.
    pub(super) async fn plain() -> Option<Self> {
        Self::start(None).await
    }

    /// One that speaks TLS with this certificate.
    pub(super) async fn tls(leaf: &Leaf) -> Option<Self> {
        Self::start(Some(leaf)).await
    }

    async fn start(leaf: Option<&Leaf>) -> Option<Self> {
        let venv = venv(&["opentelemetry-proto==1.45.2"])?;
        let mut command = venv.program("python");
        command.arg(shipped("tests/deploy/otlp_receiver.py"));
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(leaf) = leaf {
            for (name, pem) in [("crt", &leaf.certificate_pem), ("key", &leaf.key_pem)] {
                let path = folder.path().join(name);
                std::fs::write(&path, pem).expect("written");
                command.arg(path);
            }
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let lines: Arc<Log<String>> = Arc::new(Log::new());
        let reader = collect(child.stdout.take().expect("a pipe"), Arc::clone(&lines));
        let first = lines.wait("the collector's port", |lines| lines.first().cloned()).await;
        let first: Value = serde_json::from_str(&first).expect("JSON");
        let port = first["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
        let scheme = if leaf.is_some() { "https" } else { "http" };
        Some(Self { child, reader: Some(reader), lines, port, scheme })
    }

    /// Its address under a name of this machine.
    pub(super) fn url(&self, host: &str) -> String {
        format!("{}://{host}:{}", self.scheme, self.port)
    }

    /// Everything that it printed.
    pub(super) fn text(&self) -> String {
        self.lines.all().join("\n")
    }

    fn spans(lines: &[String]) -> Vec<Span> {
        let exports = lines.iter().skip(1).map(|line| serde_json::from_str(line).expect("JSON"));
        let spans = exports.flat_map(|export: Value| {
            let spans = export["spans"].as_array().expect("spans").clone();
            spans.into_iter().map(move |span| Span { span, export: export.clone() })
        });
        spans.collect()
    }

    /// The spans of a trace, once there are so many, in the order in which they began.
    pub(super) async fn trace(&self, id: &str, count: usize) -> Vec<Span> {
        let spans = self.trace_when(id, |spans| spans.len() >= count).await;
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }

    /// The same, once they are what is waited for.
    pub(super) async fn trace_when(&self, id: &str, is_it: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let find = |lines: &[String]| {
            let mut spans = Self::spans(lines);
            spans.retain(|span| span.span["trace"] == id);
            is_it(&spans).then_some(spans)
        };
        let mut spans = self.lines.wait(&format!("the spans of {id}"), find).await;
        // What begins together is ordered from the outside in.
        let rank = |span: &Span| {
            let name = span.text("name");
            ["execute_tool", "attempt", "dns", "connect", "tls"]
                .iter()
                .position(|one| name.starts_with(one))
        };
        spans.sort_by_key(|span| (span.time()[0], rank(span)));
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Its end is that of its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
