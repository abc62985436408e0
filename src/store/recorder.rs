//! Calls are kept after their answer: in batches, in a queue that nobody waits for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::model::id::{CallId, IdempotencyKey};
use crate::store::Store;
use crate::store::records::CallRecord;
use crate::telemetry::metrics::Metrics;

/// What came in this time is kept together.
const PACE: Duration = Duration::from_millis(100);
/// So many records are not waited with.
const BATCH: usize = 512;
/// Records that may wait.
const MOST: usize = 16_384;
/// Bytes of arguments and answers that may wait.
const MOST_BYTES: usize = 32 << 20;
/// After a failure the store is left alone for so long.
const REST: Duration = Duration::from_secs(1);
/// A store that fails is spoken of so often.
const COMPLAINT: Duration = Duration::from_secs(60);

/// The end of the queue that calls are put into.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Queue>);

/// The other end, which keeps them.
#[derive(Debug)]
pub struct RecordWriter {
    queue: Arc<Queue>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    metrics: Arc<Metrics>,
    offered: Notify,
    hurry: Notify,
    /// How many batches were taken out and written, or given up.
    rounds: watch::Sender<u64>,
}

/// By organisation and id; what is being written now is still found.
#[derive(Debug, Default)]
struct Waiting {
    next: Batch,
    writing: Batch,
}

#[derive(Debug, Default)]
struct Batch {
    records: HashMap<Name, CallRecord>,
    by_identity: HashMap<(Arc<str>, IdempotencyKey), CallId>,
    order: VecDeque<Name>,
    bytes: usize,
}

type Name = (Arc<str>, CallId);

impl Batch {
    fn find(&self, name: &Name) -> Option<&CallRecord> {
        self.records.get(name)
    }

    fn put(&mut self, record: CallRecord) {
        let name = (record.organisation.clone(), record.id.clone());
        if record.bound {
            for identity in [&record.identity, &record.alias].into_iter().flatten() {
                let key = (record.organisation.clone(), identity.clone());
                self.by_identity.insert(key, record.id.clone());
            }
        }
        self.bytes += record.bytes();
        match self.records.insert(name.clone(), record) {
            Some(before) => self.bytes -= before.bytes(),
            None => self.order.push_back(name),
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= MOST || self.bytes >= MOST_BYTES
    }

    /// In the order in which they came.
    fn in_order(&self) -> Vec<CallRecord> {
        self.order.iter().filter_map(|name| self.records.get(name).cloned()).collect()
    }
}

/// Whether a record says that a call runs whose end is known: a call that ended does not run again. Another call under
/// the same id, which was free, does.
fn has_ended(known: &CallRecord, record: &CallRecord) -> bool {
    let is_same = known.created_at_ms == record.created_at_ms;
    is_same && known.phase.is_final() && !record.phase.is_final()
}

impl Recorder {
    /// A queue in front of a store, and what empties it.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> (Self, RecordWriter) {
        let queue = Arc::new(Queue {
            waiting: Mutex::default(),
            metrics,
            offered: Notify::new(),
            hurry: Notify::new(),
            rounds: watch::channel(0).0,
        });
        (Self(queue.clone()), RecordWriter { queue, store, clock })
    }

    /// Takes a call as it is now, in place of what waits under its id. A full queue drops it, and counts that.
    pub fn offer(&self, record: CallRecord) {
        let mut waiting = self.0.lock();
        let name = (record.organisation.clone(), record.id.clone());
        let known = waiting.next.find(&name);
        let kept = known.or_else(|| waiting.writing.find(&name));
        if kept.is_some_and(|one| has_ended(one, &record)) {
            return;
        }
        if known.is_none() && waiting.next.is_full() {
            drop(waiting);
            return self.0.metrics.records_dropped(1);
        }
        waiting.next.put(record);
        let count = waiting.next.records.len();
        drop(waiting);
        match count {
            1 => self.0.offered.notify_one(),
            BATCH => self.0.hurry.notify_one(),
            _ => {}
        }
    }

    /// What is not kept yet, by id or by identity.
    pub fn find(
        &self,
        organisation: &str,
        id: Option<&CallId>,
        identity: Option<&IdempotencyKey>,
    ) -> Option<CallRecord> {
        let waiting = self.0.lock();
        if waiting.next.records.is_empty() && waiting.writing.records.is_empty() {
            return None;
        }
        let organisation: Arc<str> = organisation.into();
        let batches = [&waiting.next, &waiting.writing];
        let by_id = id.and_then(|id| {
            let name = (organisation.clone(), id.clone());
            batches.into_iter().find_map(|batch| batch.find(&name))
        });
        let by_identity = || {
            let key = (organisation.clone(), identity?.clone());
            batches.into_iter().find_map(|batch| {
                let id = batch.by_identity.get(&key)?;
                batch.find(&(organisation.clone(), id.clone()))
            })
        };
        by_id.filter(|one| one.bound || identity.is_none()).or_else(by_identity).cloned()
    }

    /// Waits until what was offered before is kept, or could not be.
    pub async fn flush(&self) {
        let mut rounds = self.0.rounds.subscribe();
        let (is_empty, is_writing) = {
            let waiting = self.0.lock();
            (waiting.next.records.is_empty(), !waiting.writing.records.is_empty())
        };
        let more = u64::from(!is_empty) + u64::from(is_writing);
        if more == 0 {
            return;
        }
        self.0.offered.notify_one();
        self.0.hurry.notify_one();
        let until = rounds.borrow().wrapping_add(more);
        let _ = tokio::time::timeout(REST, rounds.wait_for(|round| *round >= until)).await;
    }
}

impl RecordWriter {
    /// Keeps what is offered, until it is dropped.
    pub async fn run(self) {
        let mut told = None;
        loop {
            if self.queue.lock().next.records.is_empty() {
                self.queue.offered.notified().await;
            }
            tokio::select! {
                () = tokio::time::sleep(PACE) => {}
                () = self.queue.hurry.notified() => {}
            }
            let batch = self.queue.take();
            let count = batch.len();
            if count == 0 {
                continue;
            }
            match self.store.write(batch).await {
                Ok(()) => {
                    self.queue.lock().writing = Batch::default();
                    self.queue.metrics.records_written(count);
                    self.queue.rounds.send_modify(|round| *round = round.wrapping_add(1));
                }
                Err(error) => {
                    let dropped = self.queue.put_back();
                    self.queue.metrics.records_dropped(dropped);
                    self.queue.rounds.send_modify(|round| *round = round.wrapping_add(1));
                    let now = self.clock.now();
                    if told.is_none_or(|told| now.saturating_duration_since(told) >= COMPLAINT) {
                        tracing::warn!(%error, "Finished calls could not be kept, they are tried again.");
                        told = Some(now);
                    }
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }
}

impl Queue {
    /// What is to be written next; it is found until it is.
    fn take(&self) -> Vec<CallRecord> {
        let mut waiting = self.lock();
        let batch = std::mem::take(&mut waiting.next);
        let records = batch.in_order();
        waiting.writing = batch;
        records
    }

    /// What could not be written waits again, as far as there is room; how many were dropped.
    fn put_back(&self) -> usize {
        let mut waiting = self.lock();
        let failed = std::mem::take(&mut waiting.writing);
        let newer = std::mem::replace(&mut waiting.next, failed);
        let mut dropped = 0;
        for name in &newer.order {
            let Some(record) = newer.records.get(name) else { continue };
            let known = waiting.next.find(name);
            if known.is_some_and(|one| has_ended(one, record)) {
                continue;
            }
            if waiting.next.is_full() && known.is_none() {
                dropped += 1;
            } else {
                waiting.next.put(record.clone());
            }
        }
        dropped
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
