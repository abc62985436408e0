//! The policies that the API keeps, compiled, by organisation: what calls are decided by, besides those of the file.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::kept_policy;
use crate::config::snapshot::{Snapshot, Tool};
use crate::gateway::shadow_report::{Days, ShadowReport};
use crate::gateway::simulate::{Simulation, simulate};
use crate::policy::rules::{Permission, Policy};
use crate::store::records::PolicyRecord;
use crate::store::{Store, StoreError};

/// Contract: a change is seen by every replica within 5 s.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A store that fails is told of once in this time.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// All of them.
#[derive(Debug)]
pub struct PolicyBook {
    store: Arc<dyn Store>,
    shelf: RwLock<Arc<Shelf>>,
    simulating: Semaphore,
}

/// One policy as it is kept, and what it means.
#[derive(Debug)]
pub struct Kept {
    /// What the store has.
    pub record: PolicyRecord,
    /// The policy, or why there is none: another version took what this one does not.
    pub compiled: Result<Arc<Policy>, String>,
}

/// The policies at one moment: the same until somebody changes one.
#[derive(Debug)]
pub struct Edition(Arc<Shelf>);

impl PartialEq for Edition {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What was read at once. It is never edited, only replaced.
#[derive(Debug)]
struct Shelf {
    /// `None` before anything was read.
    revision: Option<u64>,
    organisations: HashMap<String, Section>,
    none: Arc<[Arc<Policy>]>,
}

#[derive(Debug, Default)]
struct Section {
    kept: BTreeMap<String, Arc<Kept>>,
    policies: Arc<[Arc<Policy>]>,
}

impl PolicyBook {
    /// One that nothing was read into yet: a gateway that serves refreshes it before its first call.
    pub fn empty(store: Arc<dyn Store>) -> Self {
        let shelf = RwLock::new(Arc::new(Shelf::new(None, Vec::new(), None)));
        Self { store, shelf, simulating: Semaphore::new(1) }
    }

    /// Those of an organisation.
    pub fn of(&self, organisation: &str) -> Arc<[Arc<Policy>]> {
        let shelf = self.shelf();
        let section = shelf.organisations.get(organisation);
        section.map_or(&shelf.none, |section| &section.policies).clone()
    }

    /// Those that are about calls of a tool by an organisation: first the file's, then the kept ones.
    pub fn about<'t>(&self, organisation: &str, tool: &'t Tool) -> Cow<'t, [Arc<Policy>]> {
        let kept = self.of(organisation);
        let permission = Permission::of(tool.read_only);
        let is_about = |policy: &&Arc<Policy>| policy.is_about(tool.name.as_str(), permission);
        let mut kept = kept.iter().filter(is_about).peekable();
        if kept.peek().is_none() {
            return Cow::Borrowed(&tool.policies);
        }
        tool.policies.iter().chain(kept).cloned().collect()
    }

    /// The kept policies of an organisation, by id.
    pub fn list(&self, organisation: &str) -> Vec<Arc<Kept>> {
        let shelf = self.shelf();
        let section = shelf.organisations.get(organisation);
        section.map(|section| section.kept.values().cloned().collect()).unwrap_or_default()
    }

    /// The kept policy of this id.
    pub fn find(&self, organisation: &str, id: &str) -> Option<Arc<Kept>> {
        self.shelf().organisations.get(organisation)?.kept.get(id).cloned()
    }

    /// Keeps a policy, which holds for every call from here on. `expected` is the version that it has now, or `None` for a
    /// new one.
    pub async fn put(&self, record: PolicyRecord, expected: Option<u64>) -> Result<(), StoreError> {
        self.store.put_policy(record.clone(), expected).await?;
        self.changed(|records| {
            records.retain(|one| one.organisation != record.organisation || one.id != record.id);
            records.push(record.clone());
        })
        .await;
        Ok(())
    }

    /// Forgets a policy.
    pub async fn delete(&self, organisation: &str, id: &str) -> Result<(), StoreError> {
        self.store.delete_policy(organisation, id).await?;
        self.changed(|records| {
            records.retain(|one| one.organisation != organisation || one.id != id);
        })
        .await;
        Ok(())
    }

    /// The policies as they are now.
    pub fn edition(&self) -> Edition {
        Edition(self.shelf())
    }

    /// What was counted of a policy that watches, or of a tool's candidate by its key.
    pub async fn report(
        &self,
        organisation: &str,
        policy: &str,
        days: Days,
    ) -> Result<ShadowReport, StoreError> {
        let counted = self.store.shadow(organisation, policy, [days.from, days.to]).await;
        counted.map(|(counts, samples)| ShadowReport::of(counts, samples))
    }

    /// The one place of a simulation, which reads a great deal; `None` while it is taken.
    pub fn simulating(&self) -> Option<SemaphorePermit<'_>> {
        self.simulating.try_acquire().ok()
    }

    /// What a policy would have done, by the calls that are kept.
    pub async fn simulate(
        &self,
        snapshot: &Snapshot,
        organisation: &str,
        policy: &Policy,
        days: Days,
    ) -> Result<Simulation, StoreError> {
        simulate(&*self.store, snapshot, organisation, policy, days).await
    }

    /// Reads them again where the store's revision is another one: somebody changed a policy, or the store was put back to
    /// an earlier state. One that was put back and has reached the same revision again since the last look is not noticed,
    /// until the next change.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        loop {
            let before = self.shelf();
            // The revision comes first: what is read then is as new as that, or newer.
            let revision = Some(self.store.revision().await?);
            if revision == before.revision {
                return Ok(());
            }
            let records = self.store.policies().await?;
            let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
            // Where somebody else was quicker, whose look was the later one is not known: a revision may go down.
            if Arc::ptr_eq(&before, &shelf) {
                *shelf = Arc::new(Shelf::new(revision, records, Some(&before)));
                return Ok(());
            }
        }
    }

    /// Looks for changes of other gateways, for as long as it runs.
    pub async fn watch(self: Arc<Self>, clock: Arc<dyn Clock>) {
        let mut warned: Option<Instant> = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Err(error) = self.refresh().await else { continue };
            let now = clock.now();
            if warned.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY) {
                warned = Some(now);
                tracing::warn!(%error, "The policies cannot be looked at, the last ones hold.");
            }
        }
    }

    /// The change is in the store. Where the store cannot be read just now, it is made here alone until the next look.
    async fn changed(&self, change: impl FnOnce(&mut Vec<PolicyRecord>)) {
        if self.refresh().await.is_ok() {
            return;
        }
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        let sections = shelf.organisations.values();
        let kept = sections.flat_map(|section| section.kept.values());
        let mut records: Vec<_> = kept.map(|one| one.record.clone()).collect();
        change(&mut records);
        *shelf = Arc::new(Shelf::new(shelf.revision, records, Some(&shelf)));
    }

    fn shelf(&self) -> Arc<Shelf> {
        self.shelf.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shelf {
    /// Compiles the records; what did not change is taken over from the shelf before.
    fn new(revision: Option<u64>, records: Vec<PolicyRecord>, before: Option<&Self>) -> Self {
        let mut organisations: HashMap<String, Section> = HashMap::new();
        for record in records {
            let known = before.and_then(|shelf| {
                let kept = shelf.organisations.get(&record.organisation)?.kept.get(&record.id)?;
                (kept.record == record).then(|| kept.clone())
            });
            let kept = known.unwrap_or_else(|| Arc::new(Kept::new(record)));
            let section = organisations.entry(kept.record.organisation.clone()).or_default();
            section.kept.insert(kept.record.id.clone(), kept);
        }
        for section in organisations.values_mut() {
            let compiled = section.kept.values().filter_map(|kept| kept.compiled.as_ref().ok());
            section.policies = compiled.cloned().collect();
        }
        Self { revision, organisations, none: Arc::default() }
    }
}

impl Kept {
    /// What was written, field by field; nothing where it is no JSON object.
    pub fn fields(&self) -> Map<String, Value> {
        serde_json::from_str(&self.record.body).unwrap_or_default()
    }

    fn new(record: PolicyRecord) -> Self {
        let compiled = kept_policy::compile(&record.body).map_err(|fault| fault.to_string());
        if let Err(error) = &compiled {
            let PolicyRecord { organisation, id, .. } = &record;
            tracing::error!(organisation, policy = id, error, "A kept policy is not in force.");
        }
        Self { record, compiled }
    }
}

#[cfg(test)]
mod tests;
