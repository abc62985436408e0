//! Opens what calls and approvals are kept in.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::snapshot::TlsSettings;
use crate::config::storage::StoreUrl;
use crate::gateway::memory::Memory;
use crate::gateway::notify::{Offered, Outbox};
use crate::gateway::policies::PolicyBook;
use crate::gateway::tally::{Tally, TallyWorker};
use crate::model::id::random_base62;
use crate::store::postgres::{PostgresError, PostgresStore};
use crate::store::recorder::{RecordWriter, Recorder};
use crate::store::sqlite::{OpenError, SqliteStore};
use crate::store::{Store, StoreError};
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::{Spool, Tracer};

/// Why calls and approvals cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepingError {
    /// The file cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database cannot be used.
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    /// It was opened, and does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens the store that the configuration names, and the queue in front of it.
pub(super) async fn open(
    url: &StoreUrl,
    tls: &TlsSettings,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    audit: &Audit,
) -> Result<(Memory, Workers), KeepingError> {
    let store: Arc<dyn Store> = match url {
        StoreUrl::Lacking(reason) => {
            return Err(StoreError::Unavailable(reason.clone()).into());
        }
        StoreUrl::Memory => Arc::new(SqliteStore::memory()?),
        StoreUrl::Postgres(url) => {
            let text = std::str::from_utf8(url.expose());
            let text = text.map_err(|error| PostgresError::Url(error.to_string()))?;
            Arc::new(PostgresStore::open(text.trim_end(), tls).await?)
        }
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
    };
    let (memory, workers) = memory(store, clock, metrics, audit.clone());
    // No call is decided without them.
    memory.policies.refresh().await?;
    Ok((memory, workers))
}

/// What brings into the store what waits for it.
pub(super) struct Workers {
    /// Of calls.
    pub(super) writer: RecordWriter,
    /// Of counts.
    pub(super) counting: TallyWorker,
    /// What people are to be told.
    pub(super) offered: Offered,
    /// What is recorded of calls.
    pub(super) spool: Spool,
}

/// What outlives a call, kept in this store.
pub(super) fn memory(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    audit: Audit,
) -> (Memory, Workers) {
    let (recorder, writer) = Recorder::new(store.clone(), clock.clone(), metrics.clone());
    let (tracer, spool) = Tracer::new(clock.clone(), metrics);
    let policies = Arc::new(PolicyBook::empty(store.clone()));
    let (tally, counting) = Tally::new(store.clone(), clock);
    let random = rand::random_iter::<[u8; 32]>().flatten();
    let instance = format!("gw_{}", random_base62(16, random)).into();
    let (outbox, offered) = Outbox::new();
    let memory = Memory { store, recorder, audit, outbox, instance, policies, tally, tracer };
    (memory, Workers { writer, counting, offered, spool })
}
