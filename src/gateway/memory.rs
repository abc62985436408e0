//! What outlives a call.

use std::sync::Arc;

use crate::gateway::notify::Outbox;
use crate::gateway::policies::PolicyBook;
use crate::gateway::tally::Tally;
use crate::store::Store;
use crate::store::recorder::Recorder;
use crate::telemetry::audit::Audit;
use crate::telemetry::trace::Tracer;

/// What outlives a call.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Where calls and approvals are kept.
    pub store: Arc<dyn Store>,
    /// Keeps finished calls, after their answer.
    pub recorder: Recorder,
    /// Takes down who did what.
    pub audit: Audit,
    /// The way to whoever tells people.
    pub outbox: Outbox,
    /// Who this process is among those that share the store.
    pub instance: Arc<str>,
    /// The policies that the API keeps.
    pub policies: Arc<PolicyBook>,
    /// Counts what only watches.
    pub tally: Arc<Tally>,
    /// Records the spans of calls.
    pub tracer: Tracer,
}
