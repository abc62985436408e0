//! Calls are kept after their answer: in batches, in a queue that nobody waits for.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::clock::Clock;
use crate::model::id::{CallId, IdempotencyKey};
use crate::store::Store;
use crate::store::batch::Batch;
use crate::store::frame::{self, Frame, Outline};
use crate::store::hashed::Hashed;
use crate::store::records::CallRecord;
use crate::telemetry::metrics::Metrics;

/// What came in this time is kept together.
const PACE: Duration = Duration::from_millis(100);
/// So many records are not waited with.
const BATCH: usize = 512;
/// Records that may wait.
const MOST: usize = 16_384;
/// Bytes of calls that may wait.
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
    names: Names,
    metrics: Arc<Metrics>,
    offered: Notify,
    hurry: Notify,
    /// How many batches were taken out and written, or given up.
    rounds: watch::Sender<usize>,
}

/// What is being written now is still found.
#[derive(Debug, Default)]
struct Waiting {
    next: Collected,
    writing: Collected,
    /// Emptied: its memory is used again.
    spare: Collected,
}

/// Calls, and where they are. The names by which they are found are not kept, only their hashes: a hit is looked at, and
/// nobody outside can make two names of one hash.
#[derive(Debug, Default)]
struct Collected {
    batch: Arc<Batch>,
    places: HashMap<u64, usize, Hashed>,
}

/// By what a record is found: the same for all batches.
#[derive(Debug, Default)]
struct Names(RandomState);

/// A call's id, or an identity that it holds, within its organisation.
#[derive(Clone, Copy, Hash)]
enum Name<'a> {
    Id(&'a str, &'a str),
    Identity(&'a str, &'a str),
}

impl Name<'_> {
    fn is_of(&self, call: &Outline<'_>) -> bool {
        match *self {
            Self::Id(organisation, id) => call.organisation == organisation && call.id == id,
            Self::Identity(organisation, key) => {
                call.organisation == organisation && call.identities.contains(&Some(key))
            }
        }
    }
}

impl Collected {
    fn place(&self, names: &Names, name: Name<'_>) -> Option<(usize, Frame<'_>)> {
        let place = *self.places.get(&names.0.hash_one(name))?;
        // It was written here, so it can be read.
        let call = self.batch.get(place).ok()?;
        name.is_of(&call.outline()).then_some((place, call))
    }

    fn find(&self, names: &Names, name: Name<'_>) -> Option<Frame<'_>> {
        self.place(names, name).map(|(_, call)| call)
    }

    fn put(&mut self, names: &Names, call: &Outline<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let id = Name::Id(call.organisation, call.id);
        let known = self.place(names, id).map(|(place, _)| place);
        let place = known.unwrap_or(self.batch.len());
        if known.is_none() {
            self.places.insert(names.0.hash_one(id), place);
        }
        for identity in call.identities.into_iter().flatten().filter(|_| call.bound) {
            let name = Name::Identity(call.organisation, identity);
            self.places.insert(names.0.hash_one(name), place);
        }
        // A copy only where a store that was given up on still reads it.
        let batch = Arc::make_mut(&mut self.batch);
        match known {
            Some(place) => batch.replace(place, write),
            None => batch.push(write),
        }
    }

    fn is_full(&self) -> bool {
        self.batch.len() >= MOST || self.batch.bytes() >= MOST_BYTES
    }

    /// Empty, its memory kept where nobody reads it any more.
    fn emptied(mut self) -> Self {
        match Arc::get_mut(&mut self.batch) {
            Some(batch) => batch.clear(),
            None => self.batch = Arc::default(),
        }
        self.places.clear();
        self.places.shrink_to(4 * BATCH);
        self
    }
}

/// Whether a record says that a call runs whose end is known: a call that ended does not run again. Another call under
/// the same id, which was free, does.
fn has_ended(known: &Frame<'_>, call: &Outline<'_>) -> bool {
    known.created_at_ms == call.created_at_ms && known.is_final() && !call.is_final
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
            names: Names::default(),
            metrics,
            offered: Notify::new(),
            hurry: Notify::new(),
            rounds: watch::channel(0).0,
        });
        (Self(queue.clone()), RecordWriter { queue, store, clock })
    }

    /// Takes a call as it is now, in place of what waits under its id. A full queue drops it, and counts that.
    pub fn offer(&self, record: &CallRecord) {
        let call = Outline::of(record);
        let names = &self.0.names;
        let name = Name::Id(call.organisation, call.id);
        let mut waiting = self.0.lock();
        let known = waiting.next.find(names, name);
        let kept = known.or_else(|| waiting.writing.find(names, name));
        if kept.is_some_and(|one| has_ended(&one, &call)) {
            return;
        }
        if known.is_none() && waiting.next.is_full() {
            drop(waiting);
            return self.0.metrics.records_dropped(1);
        }
        waiting.next.put(names, &call, |bytes| frame::push(bytes, record));
        let count = waiting.next.batch.len();
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
        if waiting.next.batch.is_empty() && waiting.writing.batch.is_empty() {
            return None;
        }
        let find = |name: Name<'_>| {
            let batches = [&waiting.next, &waiting.writing];
            batches.into_iter().find_map(|batch| batch.find(&self.0.names, name))
        };
        let by_id = id.and_then(|id| find(Name::Id(organisation, id.as_str())));
        let by_id = by_id.filter(|one| one.bound || identity.is_none());
        let by_identity =
            || identity.and_then(|key| find(Name::Identity(organisation, key.as_str())));
        by_id.or_else(by_identity)?.record().ok()
    }

    /// Waits until what was offered before is kept, or could not be.
    pub async fn flush(&self) {
        let mut rounds = self.0.rounds.subscribe();
        let until = {
            let waiting = self.0.lock();
            let batches = [&waiting.next, &waiting.writing];
            let more = batches.iter().filter(|one| !one.batch.is_empty()).count();
            if more == 0 {
                return;
            }
            *rounds.borrow() + more
        };
        self.0.offered.notify_one();
        self.0.hurry.notify_one();
        let _ = tokio::time::timeout(REST, rounds.wait_for(|round| *round >= until)).await;
    }
}

impl RecordWriter {
    /// Keeps what is offered, until it is dropped.
    pub async fn run(self) {
        let mut told = None;
        loop {
            if self.queue.lock().next.batch.is_empty() {
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
                    self.queue.metrics.records_written(count);
                    let spare = self.queue.written().emptied();
                    self.queue.lock().spare = spare;
                }
                Err(error) => {
                    self.queue.put_back();
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
    fn take(&self) -> Arc<Batch> {
        let mut waiting = self.lock();
        let spare = std::mem::take(&mut waiting.spare);
        waiting.writing = std::mem::replace(&mut waiting.next, spare);
        waiting.writing.batch.clone()
    }

    /// What was taken is kept; nobody finds it here any more.
    fn written(&self) -> Collected {
        let mut waiting = self.lock();
        // Under the lock: whoever flushes sees the batch, or the round that ended it.
        self.rounds.send_modify(|round| *round += 1);
        std::mem::take(&mut waiting.writing)
    }

    /// What could not be written waits again, as far as there is room; the rest is dropped, and counted.
    fn put_back(&self) {
        let mut waiting = self.lock();
        let failed = std::mem::take(&mut waiting.writing);
        let newer = std::mem::replace(&mut waiting.next, failed);
        let mut dropped = 0;
        for (place, call) in newer.batch.calls().flatten() {
            let call = call.outline();
            let known = waiting.next.find(&self.names, Name::Id(call.organisation, call.id));
            if known.is_some_and(|one| has_ended(&one, &call)) {
                continue;
            }
            if waiting.next.is_full() && known.is_none() {
                dropped += 1;
            } else {
                let frame = newer.batch.slice(&place);
                waiting.next.put(&self.names, &call, |bytes| bytes.extend_from_slice(frame));
            }
        }
        self.metrics.records_dropped(dropped);
        self.rounds.send_modify(|round| *round += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
