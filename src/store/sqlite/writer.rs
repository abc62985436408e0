//! The one thread that writes: it takes all jobs that wait and commits them together.

use std::fs::File;
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::store::StoreError;
use crate::store::sqlite::known::Known;
use crate::store::sqlite::segments::{End, Segments};
use crate::store::sqlite::view::View;

/// Jobs that wait at most; whoever comes then waits for a place.
const QUEUE: usize = 1024;
/// Jobs that are committed together at most: the first of them waits for the last.
const GROUP: usize = 256;

/// How sure it has to be that something is kept, before its caller hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// It survives a loss of power.
    Full,
    /// It survives the process.
    Process,
}

/// What the thread works with.
pub(super) struct Desk {
    /// The connection that writes.
    pub(super) connection: Connection,
    /// The rows' names.
    pub(super) known: Known,
    /// The calls of chunks; none where the store is in memory, and they in its tables.
    pub(super) segments: Option<Segments>,
    /// A chunk went since the transaction began.
    pub(super) has_gaps: bool,
    /// The number of the next row of a call.
    pub(super) next: i64,
    /// What the calls are found by that are on their way into a chunk.
    pub(super) names: Vec<u8>,
    /// Finished calls at most, as it was said last.
    pub(super) max_calls: Option<u64>,
    /// Bytes at most, where it is in memory.
    pub(super) max_bytes: Option<u64>,
    /// Held as long as the connection: no other process writes.
    pub(super) lock: Option<File>,
}

/// Takes jobs to the thread. Dropping it lets the thread finish what it has, and waits for that.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Box<dyn Job>>>,
    thread: Option<JoinHandle<()>>,
}

trait Job: Send {
    fn durability(&self) -> Durability;
    fn is_wanted(&self) -> bool;
    /// Whether what it did is to be kept.
    fn run(&mut self, desk: &mut Desk) -> bool;
    fn answer(self: Box<Self>, committed: &Result<(), StoreError>);
}

struct Task<T, F> {
    durability: Durability,
    work: Option<F>,
    result: Option<Result<T, StoreError>>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnOnce(&mut Desk) -> Result<T, StoreError> + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn run(&mut self, desk: &mut Desk) -> bool {
        let Some(work) = self.work.take() else { return false };
        let result = work(desk);
        let keeps = result.is_ok();
        self.result = Some(result);
        keeps
    }

    fn answer(self: Box<Self>, committed: &Result<(), StoreError>) {
        let result = match (committed, self.result) {
            (Err(error), Some(Ok(_)) | None) => Err(error.clone()),
            (Ok(()), None) => Err(stopped()),
            (_, Some(result)) => result,
        };
        // Whoever no longer listens has nothing to hear.
        let _ = self.answer.send(result);
    }
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(mut desk: Desk) -> std::io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel(QUEUE);
        let thread =
            std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
                let mut group = Vec::new();
                while let Some(job) = waiting.blocking_recv() {
                    group.push(job);
                    while group.len() < GROUP
                        && let Ok(job) = waiting.try_recv()
                    {
                        group.push(job);
                    }
                    desk.commit(&mut group);
                }
            })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has something done in a transaction: kept whole, or not at all. What nobody waits for any more is not begun.
    pub(super) async fn run<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let task = Task { durability, work: Some(work), result: None, answer };
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(Box::new(task)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing left to finish.
            let _ = thread.join();
        }
    }
}

impl Desk {
    /// All that is kept, with what this transaction changed.
    pub(super) fn view(&self) -> View<'_> {
        let shelf = self.segments.as_ref().map(Segments::shelf);
        View { connection: &self.connection, known: &self.known, shelf }
    }

    fn commit(&mut self, group: &mut Vec<Box<dyn Job>>) {
        group.retain(|job| job.is_wanted());
        if group.is_empty() {
            return;
        }
        let begin = self.segments.as_ref().map(Segments::mark);
        let result = self.transaction(group);
        if result.is_err() {
            self.known.undo(0);
            if !self.connection.is_autocommit() {
                // What this fails with, the next transaction fails with too, and says so.
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            self.undo_segments(begin);
        } else {
            self.known.keep();
            self.clear_segments();
        }
        for job in group.drain(..) {
            job.answer(&result);
        }
    }

    fn undo_segments(&mut self, mark: Option<End>) {
        if let Some((segments, mark)) = self.segments.as_mut().zip(mark) {
            segments.undo(mark);
        }
    }

    fn transaction(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), StoreError> {
        let durable = group.iter().any(|job| job.durability() == Durability::Full);
        let synchronous = if durable { "FULL" } else { "NORMAL" };
        let begin = format!("PRAGMA synchronous = {synchronous}; BEGIN IMMEDIATE");
        self.connection.execute_batch(&begin).map_err(failed)?;
        for job in group {
            let (mark, end) = (self.known.mark(), self.segments.as_ref().map(Segments::mark));
            self.connection.execute_batch("SAVEPOINT job").map_err(failed)?;
            let end = if job.run(self) {
                "RELEASE job"
            } else if self.connection.is_autocommit() {
                // A full disk can end the whole transaction: then nothing of the group was kept.
                return Err(StoreError::Unavailable("the transaction was broken off".to_owned()));
            } else {
                self.known.undo(mark);
                self.undo_segments(end);
                "ROLLBACK TO job; RELEASE job"
            };
            self.connection.execute_batch(end).map_err(failed)?;
        }
        self.connection.execute_batch("COMMIT").map_err(failed)
    }
}

/// SQLite's error, for the operator.
pub(super) fn failed(error: rusqlite::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the store has stopped".to_owned())
}
