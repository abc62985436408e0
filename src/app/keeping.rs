//! Opens what calls and approvals are kept in.

use std::sync::Arc;

use crate::app::StartError;
use crate::clock::Clock;
use crate::config::storage::StoreUrl;
use crate::gateway::Memory;
use crate::model::id::random_base62;
use crate::store::recorder::{RecordWriter, Recorder};
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};
use crate::telemetry::audit::Audit;
use crate::telemetry::metrics::Metrics;

/// Opens the store that the configuration names, and the queue in front of it.
pub(super) async fn open(
    url: &StoreUrl,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    audit: &Audit,
) -> Result<(Memory, RecordWriter), StartError> {
    let store: Arc<dyn Store> = match url {
        StoreUrl::Lacking(reason) => {
            return Err(StartError::Store(StoreError::Unavailable(reason.clone())));
        }
        StoreUrl::Memory => Arc::new(SqliteStore::memory()?),
        StoreUrl::Postgres(_) => {
            return Err(StartError::Store(StoreError::Unavailable("not yet".into())));
        }
        StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
    };
    Ok(memory(store, clock, metrics, audit.clone()))
}

/// What outlives a call, kept in this store.
pub(super) fn memory(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    audit: Audit,
) -> (Memory, RecordWriter) {
    let (recorder, writer) = Recorder::new(store.clone(), clock, metrics);
    let random = rand::random_iter::<[u8; 32]>().flatten();
    let instance = format!("gw_{}", random_base62(16, random)).into();
    (Memory { store, recorder, audit, instance }, writer)
}
