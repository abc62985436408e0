//! The audit trail: who did what, as log lines of a stream of its own and, beside the call path, in the store.

mod pace;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::model::id::DEFAULT_ORGANISATION;
use crate::model::time::{TimeText, rfc3339};
use crate::policy::identity::Caller;
use crate::store::Store;
use crate::store::records::AuditEntry;
use crate::telemetry::audit::pace::Pace;
use crate::telemetry::log::LogSink;
use crate::telemetry::metrics::Metrics;

/// Entries that wait for the store: past this, new ones stand in the log alone and are counted as dropped.
const WAITING: usize = 4096;
/// Entries that are kept together.
const BATCH: usize = 256;
/// How long the worker waits after the store failed.
const PAUSE: Duration = Duration::from_secs(1);

/// The actor of what an operator does by the admin listener.
pub const ADMIN: &str = "admin";
/// The actor of what nobody asked for.
pub const SYSTEM: &str = "system";
/// The actor of a request whose key is nobody's.
const UNKNOWN: &str = "unknown";

/// Takes down who did what. Clones share the queue.
#[derive(Clone)]
pub struct Audit(Arc<Shared>);

struct Shared {
    log: LogSink,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Message>,
    refusals: Mutex<Pace>,
}

enum Message {
    Entry(AuditEntry),
    /// Everything that was sent before is kept.
    Reached(oneshot::Sender<()>),
}

/// Carries entries to the store.
pub struct AuditWorker {
    queue: mpsc::Receiver<Message>,
    metrics: Arc<Metrics>,
}

/// The detail of a deed of which it is not known whether the store kept it: it was late.
pub const OUTCOME_UNKNOWN: &str = r#"{"outcome":"unknown"}"#;

/// Why a request was refused for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRefusal {
    /// It lacks the scope.
    MissingScope,
    /// It is bound to other agents or tools.
    NotAllowedForKey,
    /// It is nobody's, or there is none.
    UnknownKey,
}

impl KeyRefusal {
    /// The word in an entry's detail.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MissingScope => "missing_scope",
            Self::NotAllowedForKey => "not_allowed_for_key",
            Self::UnknownKey => "unknown_key",
        }
    }
}

impl Audit {
    /// Makes the trail and its worker. Without a worker that runs, entries stand in the log alone.
    pub fn new(log: LogSink, metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> (Self, AuditWorker) {
        let (sender, queue) = mpsc::channel(WAITING);
        let worker = AuditWorker { queue, metrics: metrics.clone() };
        let refusals = Mutex::default();
        (Self(Arc::new(Shared { log, metrics, clock, queue: sender, refusals })), worker)
    }

    /// What somebody does now, to be filled in: to the gateway as a whole where no organisation is set.
    pub fn deed(&self, actor: &str, action: &str) -> AuditEntry {
        AuditEntry {
            at_ms: self.0.clock.unix_ms(),
            organisation: DEFAULT_ORGANISATION.to_owned(),
            actor: actor.to_owned(),
            action: action.to_owned(),
            subject: None,
            before: None,
            after: None,
            detail: None,
        }
    }

    /// The same of a caller, in their organisation.
    pub fn deed_of(&self, caller: &Caller, action: &str) -> AuditEntry {
        let organisation = caller.organisation.to_string();
        AuditEntry { organisation, ..self.deed(&caller.name, action) }
    }

    /// Takes it down; never waits.
    pub fn note(&self, entry: AuditEntry) {
        let line = AuditLine::new(&entry);
        self.0.log.line(&line, || line.as_text());
        if self.0.queue.try_send(Message::Entry(entry)).is_err() {
            self.0.metrics.audit_entries("dropped", 1);
        }
    }

    /// Takes down that a request was refused for its key; `what` is the listener, the
    /// scope or the tool that it was about. Of one key
    /// and reason one a second is taken down, with the number of those before it that were left out.
    pub fn refused(&self, refusal: KeyRefusal, caller: Option<&Caller>, what: Option<&str>) {
        let actor = caller.map_or(UNKNOWN, |caller| &caller.name);
        let now = self.0.clock.now();
        let left_out = {
            let mut pace = self.0.refusals.lock().expect("no panic holds this lock");
            pace.next(
                refusal.as_str(),
                caller.map(|caller| (&*caller.organisation, &*caller.name)),
                now,
            )
        };
        let Some(left_out) = left_out else { return };
        let mut detail = json!({"reason": refusal.as_str()});
        if left_out > 0 {
            detail["left_out"] = left_out.into();
        }
        let entry = match caller {
            Some(caller) => self.deed_of(caller, "key.refused"),
            None => self.deed(actor, "key.refused"),
        };
        let (subject, detail) = (what.map(str::to_owned), Some(detail.to_string()));
        self.note(AuditEntry { subject, detail, ..entry });
    }

    /// Waits until everything that was noted before is kept; for ever, where the store keeps nothing.
    pub async fn kept(&self) {
        let (sender, reached) = oneshot::channel();
        // Without a worker nothing is kept at all.
        if self.0.queue.send(Message::Reached(sender)).await.is_ok() {
            let _ = reached.await;
        }
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Audit")
    }
}

impl AuditWorker {
    /// Works until it is dropped, or nobody can note anything any more. What a failing store does not take is offered to
    /// it again; meanwhile the queue fills.
    pub async fn run(mut self, store: Arc<dyn Store>) {
        let mut messages = Vec::with_capacity(BATCH);
        while self.queue.recv_many(&mut messages, BATCH).await > 0 {
            let (mut entries, mut waiting) = (Vec::new(), Vec::new());
            for message in messages.drain(..) {
                match message {
                    Message::Entry(entry) => entries.push(entry),
                    Message::Reached(sender) => waiting.push(sender),
                }
            }
            let mut is_told = false;
            while !entries.is_empty() {
                match store.audit(entries.clone()).await {
                    Ok(()) => {
                        self.metrics.audit_entries("written", entries.len());
                        entries.clear();
                    }
                    Err(error) => {
                        if !is_told {
                            tracing::warn!(%error, "The audit trail waits for the store.");
                        }
                        is_told = true;
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
            for sender in waiting {
                // Whoever waited may have gone.
                let _ = sender.send(());
            }
        }
    }
}

impl std::fmt::Debug for AuditWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuditWorker")
    }
}

/// An entry as a log line.
#[derive(Debug, Serialize)]
struct AuditLine<'a> {
    stream: &'static str,
    ts: TimeText,
    organisation: &'a str,
    actor: &'a str,
    action: &'a str,
    subject: Option<&'a str>,
    before: Option<&'a str>,
    after: Option<&'a str>,
    detail: Option<&'a RawValue>,
}

impl<'a> AuditLine<'a> {
    fn new(entry: &'a AuditEntry) -> Self {
        Self {
            stream: "audit",
            ts: rfc3339(entry.at_ms),
            organisation: &entry.organisation,
            actor: &entry.actor,
            action: &entry.action,
            subject: entry.subject.as_deref(),
            before: entry.before.as_deref(),
            after: entry.after.as_deref(),
            // JSON by its contract; what is not is left out of the line rather than breaking it.
            detail: entry.detail.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        }
    }

    /// The line for eyes.
    fn as_text(&self) -> String {
        let mut line = format!("{} audit {} {}", self.ts.as_str(), self.actor, self.action);
        let parts = [("subject", self.subject), ("before", self.before), ("after", self.after)];
        let parts = parts.into_iter().chain([("detail", self.detail.map(RawValue::get))]);
        for (name, value) in parts {
            if let Some(value) = value {
                line.push_str(&format!(" {name}={value}"));
            }
        }
        line
    }
}
