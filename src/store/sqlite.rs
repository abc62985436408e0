//! The store in one SQLite file of this process's own, or in memory.

mod approvals;
mod calls;
mod chunks;
mod known;
mod lookup;
mod mark;
mod names;
mod notices;
mod open;
mod policies;
mod segments;
mod sweep;
mod view;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::config::storage::Keep;
use crate::model::approval::{Approval, ApprovalId};
use crate::model::id::{CallId, IdempotencyKey};
use crate::store::batch::Batch;
use crate::store::records::{
    ApprovalFilter, AuditEntry, CallFilter, CallRecord, Claimed, Notice, PolicyRecord, ShadowCount,
    ShadowSample,
};
use crate::store::sqlite::known::{Known, Name};
use crate::store::sqlite::segments::Shelf;
use crate::store::sqlite::sweep::Stage;
use crate::store::sqlite::view::View;
use crate::store::sqlite::writer::{Desk, Durability, Writer};
use crate::store::{Bound, Decided, Ruling, Store, StoreError, Stored};

pub use crate::store::sqlite::open::OpenError;

/// How long anybody waits for the file: a disk that does not answer must not hold calls.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections that read at the same time.
const READERS: usize = 4;

/// Calls, approvals and the rest in one SQLite database.
pub struct SqliteStore {
    writer: Writer,
    known: Known,
    /// None where it is in memory: there the one connection does it all.
    readers: Option<Arc<Readers>>,
}

struct Readers {
    path: PathBuf,
    shelf: Shelf,
    idle: Mutex<Vec<Connection>>,
    places: Arc<Semaphore>,
}

impl SqliteStore {
    /// Opens a file, which is this process's alone from now on. It is made where there is none, and never deleted.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let (desk, shelf) = open::file(path)?;
        let readers = Readers {
            path: path.to_owned(),
            shelf,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(READERS)),
        };
        Self::start(path, desk, Some(Arc::new(readers)))
    }

    /// One in memory: it holds 32 MiB, the oldest finished calls go first, and all of it goes with the process.
    pub fn memory() -> Result<Self, OpenError> {
        Self::start(Path::new(":memory:"), open::memory()?, None)
    }

    fn start(path: &Path, desk: Desk, readers: Option<Arc<Readers>>) -> Result<Self, OpenError> {
        let known = desk.known.clone();
        let writer = Writer::start(desk)
            .map_err(|error| OpenError::Access { path: path.to_owned(), error })?;
        Ok(Self { writer, known, readers })
    }

    async fn change<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Desk) -> Result<T, StoreError> + Send + 'static,
    {
        let change = self.writer.run(durability, work);
        if self.readers.is_none() {
            return change.await;
        }
        tokio::time::timeout(PATIENCE, change).await.unwrap_or_else(|_| Err(late()))
    }

    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&View<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let Some(readers) = &self.readers else {
            let work = move |desk: &mut Desk| work(&desk.view());
            return self.writer.run(Durability::Process, work).await;
        };
        let known = self.known.clone();
        let read = readers.clone().read(known, work);
        tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(late()))
    }

    /// A call by a name. Where it is on its way from one row to another, whoever reads finds neither of them: then the
    /// thread that moves it is asked, for which it is in one place.
    async fn find<F>(&self, name: Name, work: F) -> Result<Option<CallRecord>, StoreError>
    where
        F: Fn(&View<'_>) -> Result<Option<CallRecord>, StoreError> + Send + Sync + 'static,
    {
        let work = Arc::new(work);
        let first = work.clone();
        let found = self.read(move |view| first(view)).await?;
        if found.is_some() || self.readers.is_none() || !self.known.may_have(name) {
            return Ok(found);
        }
        let again = move |desk: &mut Desk| work(&desk.view());
        self.change(Durability::Process, again).await
    }
}

impl Readers {
    async fn read<T, F>(self: Arc<Self>, known: Known, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&View<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let readers = self.clone();
        let place = self.places.clone().acquire_owned().await.map_err(|_| late())?;
        let read = tokio::task::spawn_blocking(move || {
            // Until it is over, not until nobody waits for it: a disk that hangs must not get ever more readers.
            let _place = place;
            let idle = || readers.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = idle().pop();
            let connection = match kept {
                Some(connection) => connection,
                None => open::reader(&readers.path)
                    .map_err(|error| StoreError::Unavailable(error.to_string()))?,
            };
            let shelf = Some(&readers.shelf);
            let result = work(&View { connection: &connection, known: &known, shelf });
            if result.is_ok() {
                idle().push(connection);
            }
            result
        });
        read.await.map_err(|error| StoreError::Unavailable(error.to_string()))?
    }
}

fn late() -> StoreError {
    StoreError::Unavailable(format!("the file did not answer within {} s", PATIENCE.as_secs()))
}

impl Store for SqliteStore {
    fn is_shared(&self) -> bool {
        false
    }

    fn may_know(
        &self,
        organisation: &str,
        id: Option<&CallId>,
        identity: Option<&IdempotencyKey>,
    ) -> bool {
        let known = &self.known;
        id.is_some_and(|id| known.may_have(known.of_id(organisation, id)))
            || identity.is_some_and(|one| known.may_have(known.of_identity(organisation, one)))
    }

    fn call<'a>(&'a self, organisation: &'a str, id: &'a CallId) -> Stored<'a, Option<CallRecord>> {
        let name = self.known.of_id(organisation, id);
        let (organisation, id) = (organisation.to_owned(), id.clone());
        Box::pin(self.find(name, move |view| lookup::by_id(view, &organisation, &id)))
    }

    fn call_by_identity<'a>(
        &'a self,
        organisation: &'a str,
        identity: &'a IdempotencyKey,
    ) -> Stored<'a, Option<CallRecord>> {
        let name = self.known.of_identity(organisation, identity);
        let (organisation, identity) = (organisation.to_owned(), identity.clone());
        Box::pin(self.find(name, move |view| lookup::by_identity(view, &organisation, &identity)))
    }

    fn calls<'a>(&'a self, filter: &'a CallFilter) -> Stored<'a, Vec<CallRecord>> {
        let filter = filter.clone();
        Box::pin(self.read(move |view| lookup::list(view, &filter)))
    }

    fn walk<'a>(
        &'a self,
        organisation: &'a str,
        since_ms: i64,
        below: i64,
        most: usize,
    ) -> Stored<'a, (Vec<CallRecord>, Option<i64>)> {
        let organisation = organisation.to_owned();
        Box::pin(self.read(move |view| lookup::walk(view, &organisation, since_ms, below, most)))
    }

    fn write(&self, batch: Arc<Batch>) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Process, move |desk| {
            desk.put_all(&batch)?;
            desk.trim(batch.len())
        }))
    }

    fn bind(&self, record: CallRecord) -> Stored<'_, Bound> {
        Box::pin(self.change(Durability::Full, move |desk| desk.bind(&record)))
    }

    fn park(
        &self,
        record: CallRecord,
        approval: Approval,
        notices: Vec<Notice>,
    ) -> Stored<'_, Bound> {
        Box::pin(self.change(Durability::Full, move |desk| desk.park(&record, &approval, &notices)))
    }

    fn decide(
        &self,
        ruling: Ruling,
        record: Option<CallRecord>,
        notices: Vec<Notice>,
    ) -> Stored<'_, Decided> {
        Box::pin(
            self.change(Durability::Full, move |desk| {
                desk.decide(&ruling, record.as_ref(), &notices)
            }),
        )
    }

    fn start<'a>(
        &'a self,
        record: CallRecord,
        approval: &'a ApprovalId,
        at_ms: i64,
    ) -> Stored<'a, bool> {
        let approval = approval.clone();
        Box::pin(self.change(Durability::Full, move |desk| desk.start(&record, &approval, at_ms)))
    }

    fn finish(
        &self,
        record: CallRecord,
        unused: Option<ApprovalId>,
        notices: Vec<Notice>,
    ) -> Stored<'_, ()> {
        Box::pin(
            self.change(Durability::Full, move |desk| {
                desk.finish(&record, unused.as_ref(), &notices)
            }),
        )
    }

    fn release<'a>(&'a self, organisation: &'a str, id: &'a CallId) -> Stored<'a, ()> {
        let (organisation, id) = (organisation.to_owned(), id.clone());
        let work = move |desk: &mut Desk| desk.release(&organisation, &id);
        Box::pin(self.change(Durability::Full, work))
    }

    fn approval<'a>(
        &'a self,
        organisation: &'a str,
        id: &'a ApprovalId,
    ) -> Stored<'a, Option<Approval>> {
        let (organisation, id) = (organisation.to_owned(), id.clone());
        Box::pin(self.read(move |view| approvals::one(view.connection, &organisation, &id)))
    }

    fn approvals_of<'a>(
        &'a self,
        organisation: &'a str,
        call: &'a CallId,
    ) -> Stored<'a, Vec<Approval>> {
        let row = self.known.row(self.known.of_id(organisation, call));
        Box::pin(self.read(move |view| match row {
            None => Ok(Vec::new()),
            Some(row) => approvals::of_call(view.connection, row),
        }))
    }

    fn approvals<'a>(&'a self, filter: &'a ApprovalFilter) -> Stored<'a, Vec<Approval>> {
        let filter = filter.clone();
        Box::pin(self.read(move |view| approvals::list(view.connection, &filter)))
    }

    fn lost<'a>(&'a self, instance: &'a str, _silent_since_ms: i64) -> Stored<'a, Vec<CallRecord>> {
        let instance = instance.to_owned();
        Box::pin(self.read(move |view| calls::lost(view.connection, &instance)))
    }

    fn bury(&self, record: CallRecord) -> Stored<'_, bool> {
        Box::pin(self.change(Durability::Full, move |desk| desk.bury(&record)))
    }

    /// Nobody else could hear it: the file is one process's.
    fn heard<'a>(&'a self, _instance: &'a str, _at_ms: i64) -> Stored<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn claim_notices(&self, now_ms: i64, until_ms: i64, most: usize) -> Stored<'_, Vec<Claimed>> {
        Box::pin(self.change(Durability::Process, move |desk| desk.claim(now_ms, until_ms, most)))
    }

    fn drop_notice(&self, id: i64) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Process, move |desk| desk.drop_notice(id)))
    }

    fn put_off_notice(&self, id: i64, due_at_ms: i64) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Process, move |desk| desk.put_off(id, due_at_ms)))
    }

    fn notify(&self, notices: Vec<Notice>) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Full, move |desk| desk.notify(&notices)))
    }

    fn audit(&self, entries: Vec<AuditEntry>) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Full, move |desk| desk.audit(&entries)))
    }

    fn audited<'a>(
        &'a self,
        organisation: &'a str,
        since_ms: i64,
        most: usize,
    ) -> Stored<'a, Vec<AuditEntry>> {
        let organisation = organisation.to_owned();
        Box::pin(
            self.read(move |view| notices::audited(view.connection, &organisation, since_ms, most)),
        )
    }

    fn revision(&self) -> Stored<'_, u64> {
        Box::pin(self.read(|view| policies::revision(view.connection)))
    }

    fn policies(&self) -> Stored<'_, Vec<PolicyRecord>> {
        Box::pin(self.read(|view| policies::policies(view.connection)))
    }

    fn put_policy(&self, record: PolicyRecord, expected: Option<u64>) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Full, move |desk| desk.put_policy(&record, expected)))
    }

    fn delete_policy<'a>(&'a self, organisation: &'a str, id: &'a str) -> Stored<'a, ()> {
        let (organisation, id) = (organisation.to_owned(), id.to_owned());
        Box::pin(self.change(Durability::Full, move |desk| desk.delete_policy(&organisation, &id)))
    }

    fn count_shadow(&self, counts: Vec<ShadowCount>, samples: Vec<ShadowSample>) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Process, move |desk| desk.count_shadow(&counts, &samples)))
    }

    fn shadow<'a>(
        &'a self,
        organisation: &'a str,
        policy: &'a str,
        days: [i64; 2],
    ) -> Stored<'a, (Vec<ShadowCount>, Vec<ShadowSample>)> {
        let (organisation, policy) = (organisation.to_owned(), policy.to_owned());
        Box::pin(
            self.read(move |view| policies::shadow(view.connection, &organisation, &policy, days)),
        )
    }

    fn sweep<'a>(&'a self, keep: &'a Keep, now_ms: i64) -> Stored<'a, ()> {
        Box::pin(async move {
            let mut stage = Some(Stage::Chunks(i64::MIN));
            while let Some(now) = stage {
                let keep = *keep;
                let step = move |desk: &mut Desk| desk.sweep(now, &keep, now_ms);
                stage = self.change(now.durability(), step).await?;
            }
            Ok(())
        })
    }

    /// It writes: a full disk and a file that became read-only are seen before a call needs them.
    fn check(&self) -> Stored<'_, ()> {
        Box::pin(self.change(Durability::Process, |desk| desk.touch()))
    }
}
