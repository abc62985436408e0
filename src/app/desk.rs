//! A gateway without listeners: the same path of a call, in a command's own process, and what passed on the wire.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use crate::app::keeping;
use crate::clock::Clock;
use crate::config::snapshot::Snapshot;
use crate::exec::webhook::WebhookExecutor;
use crate::gateway::Gateway;
use crate::gateway::asking::Malformed;
use crate::gateway::recent::History;
use crate::limits::Limits;
use crate::model::call::ToolCall;
use crate::model::outcome::CallOutcome;
use crate::net::epoch::{Epoch, NetworkError};
use crate::net::pool::Pool;
use crate::net::tap::{Exchange, Tap};
use crate::policy::identity::Caller;
use crate::store::sqlite::{OpenError, SqliteStore};
use crate::telemetry::audit::Audit;
use crate::telemetry::log::{LogSink, LogWriter};
use crate::telemetry::metrics::Metrics;

/// Why there is no desk.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    /// Its log has no writer.
    #[error("the log writer does not start: {0}")]
    Log(#[from] io::Error),
    /// What reaches the network cannot be built.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Its memory cannot be made.
    #[error(transparent)]
    Store(#[from] OpenError),
}

/// Runs calls on one configuration. It says nothing by itself.
pub struct Desk {
    gateway: Arc<Gateway>,
    tap: Tap,
    _writer: LogWriter,
}

impl Desk {
    /// A desk on this configuration; signatures bear the time of this clock.
    pub fn new(snapshot: Snapshot, clock: Arc<dyn Clock>) -> Result<Self, DeskError> {
        let tap = Tap::default();
        let epoch = Epoch::new(Arc::new(snapshot), None, &clock)?.tapped(tap.clone());
        let metrics = Arc::new(Metrics::new(epoch.snapshot.metrics_per_tool));
        let limits = Arc::new(Limits::new(clock.clone(), metrics.clone()));
        limits.configure(&epoch.snapshot);
        let (log, writer) = LogSink::start(true, io::sink())?;
        let (_, epochs) = watch::channel(Arc::new(epoch));
        let pool = Pool::new(clock.clone());
        let webhook = Arc::new(WebhookExecutor::new(
            pool,
            clock.clone(),
            metrics.clone(),
            rand::random,
            epochs.clone(),
        ));
        // Nothing of these calls is kept.
        let store = Arc::new(SqliteStore::memory()?);
        let (audit, _) = Audit::new(log.clone(), metrics.clone(), clock.clone());
        let (memory, _) = keeping::memory(store, clock.clone(), metrics.clone(), audit);
        let gateway = Gateway::new(epochs, webhook, limits, clock, metrics, log, memory);
        Ok(Self { gateway: Arc::new(gateway), tap, _writer: writer })
    }

    /// The configuration.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.gateway.epoch().snapshot.clone()
    }

    /// Runs one call to its end, for whoever sits at this terminal.
    pub async fn call(&self, call: ToolCall) -> Result<CallOutcome, Malformed> {
        let caller = Arc::new(Caller::anonymous());
        self.gateway.call_at_desk(self.gateway.epoch(), caller, call).await
    }

    /// What is remembered of a tool's calls.
    pub fn history(&self, tool: &str) -> History {
        self.gateway.recent().of(tool)
    }

    /// What passed between here and tools until now.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.tap.exchanges()
    }
}
