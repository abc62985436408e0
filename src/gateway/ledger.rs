//! The calls that are open in this process: who asks for one of them again joins it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::snapshot::Tool;
use crate::exec::Presence;
use crate::gateway::told::Told;
use crate::model::approval::Approval;
use crate::model::call::ToolCall;
use crate::model::id::{CallId, IdempotencyKey};
use crate::model::outcome::Decision;
use crate::policy::identity::Caller;

/// Open calls by their id and by their identities. The names themselves are not kept as keys, only their hashes: a hit is
/// looked at, and nobody outside can make two names of one hash.
#[derive(Debug, Default)]
pub struct Ledger {
    open: Mutex<HashMap<u64, Arc<Live>>>,
    turns: Mutex<HashSet<(Arc<str>, CallId)>>,
    hasher: RandomState,
}

/// One open call.
#[derive(Debug)]
pub struct Live {
    /// The call, its names resolved and its agent filled in.
    pub call: ToolCall,
    /// Who asked for it.
    pub caller: Arc<Caller>,
    /// `run_id`, `step` and `call_index`, where they were given.
    pub identity: Option<IdempotencyKey>,
    /// The identity of the next turn's request on which it runs: that request holds it here meanwhile.
    pub alias: Option<IdempotencyKey>,
    /// Whether it was sent before, and is sent again because the runtime wants that.
    pub is_repeat: bool,
    /// The earlier call that runs in its place, where it is sent again.
    pub runs_as: OnceLock<Arc<Live>>,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Who waits for it.
    pub presence: Presence,
    standing: Mutex<Standing>,
    changed: Notify,
    is_doubtful: AtomicBool,
}

/// How far an open call has come.
#[derive(Debug, Clone)]
pub enum Standing {
    /// It is being checked: its identity is held for it, and not bound yet.
    Checked,
    /// It runs, and is bound.
    Runs(Arc<Begun>),
    /// It ended; `bound`: asking for it again gives the same outcome.
    Ended {
        /// What is told.
        told: Told,
        /// Whether its identity stays its own.
        bound: bool,
    },
    /// It is no longer here: it waits for a person, or never began.
    Left,
}

/// What is known of a call that runs.
#[derive(Debug)]
pub struct Begun {
    /// Its tool.
    pub tool: Arc<Tool>,
    /// What the policies said.
    pub decision: Decision,
    /// On which decision of a person it runs.
    pub approval: Option<Box<Approval>>,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// Whether it is kept that it runs.
    pub is_kept: AtomicBool,
}

impl Live {
    /// A call that begins to be checked.
    pub fn new(
        call: ToolCall,
        caller: Arc<Caller>,
        created_at_ms: i64,
        presence: Presence,
    ) -> Self {
        let identity = call.context.idempotency_key();
        let standing = Mutex::new(Standing::Checked);
        let changed = Notify::new();
        let is_doubtful = AtomicBool::new(false);
        Self {
            call,
            caller,
            identity,
            alias: None,
            is_repeat: false,
            runs_as: OnceLock::new(),
            created_at_ms,
            presence,
            standing,
            changed,
            is_doubtful,
        }
    }

    /// Says that nobody knows whether it ran before.
    pub fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::Release);
    }

    /// Whether nobody knows whether it ran before.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Ordering::Acquire)
    }

    /// How far it has come.
    pub fn standing(&self) -> Standing {
        self.lock().clone()
    }

    /// It begins to run.
    pub fn begin(&self, begun: Begun) {
        self.set(Standing::Runs(Arc::new(begun)));
    }

    /// What is known of it while it runs.
    pub fn begun(&self) -> Option<Arc<Begun>> {
        match self.standing() {
            Standing::Runs(begun) => Some(begun),
            Standing::Checked | Standing::Ended { .. } | Standing::Left => None,
        }
    }

    /// Waits until it runs or is over, but only so long.
    pub async fn past_checks(&self, wait: Duration) -> Standing {
        self.until(wait, |standing| !matches!(standing, Standing::Checked)).await
    }

    /// Waits until it is over, but only so long.
    pub async fn over(&self, wait: Duration) -> Standing {
        let is_over =
            |standing: &Standing| matches!(standing, Standing::Ended { .. } | Standing::Left);
        self.until(wait, is_over).await
    }

    async fn until(&self, wait: Duration, holds: impl Fn(&Standing) -> bool) -> Standing {
        let reached = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                // Enabled before the look, so that no change falls between the two.
                changed.as_mut().enable();
                let standing = self.standing();
                if holds(&standing) {
                    return standing;
                }
                changed.await;
            }
        };
        tokio::time::timeout(wait, reached).await.unwrap_or_else(|_| self.standing())
    }

    fn set(&self, standing: Standing) {
        *self.lock() = standing;
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_named(&self, name: &Name<'_>) -> bool {
        let organisation = &*self.caller.organisation;
        match name {
            Name::Id(of, id) => organisation == *of && self.call.id == **id,
            Name::Identity(of, key) => organisation == *of && self.identity.as_ref() == Some(*key),
        }
    }
}

/// By what a call is found.
#[derive(Hash)]
enum Name<'a> {
    Id(&'a str, &'a CallId),
    Identity(&'a str, &'a IdempotencyKey),
}

/// A call's place in the ledger. Dropping it without an end says that the call never began, or waits elsewhere.
#[derive(Debug)]
pub struct Entry {
    ledger: Arc<Ledger>,
    live: Arc<Live>,
}

impl Entry {
    /// The call.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// The call ended.
    pub fn end(self, told: Told, bound: bool) {
        self.live.set(Standing::Ended { told, bound });
    }
}

/// One task's wait for the turn of an approved call: nobody else tries meanwhile.
#[derive(Debug)]
pub struct Turn {
    ledger: Arc<Ledger>,
    name: (Arc<str>, CallId),
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.ledger.turns().remove(&self.name);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.leave(&self.live);
        let mut standing = self.live.lock();
        if !matches!(*standing, Standing::Ended { .. }) {
            *standing = Standing::Left;
        }
        drop(standing);
        self.live.changed.notify_waiters();
    }
}

impl Ledger {
    /// Takes a call in, or gives the open one that has one of its names.
    pub fn enter(self: &Arc<Self>, live: &Arc<Live>) -> Result<Entry, Arc<Live>> {
        let names = names(live);
        let mut open = self.lock();
        let hashes = names.each_ref().map(|name| name.as_ref().map(|name| self.hash(name)));
        for (name, hash) in names.iter().flatten().zip(hashes.iter().flatten()) {
            if let Some(other) = open.get(hash).filter(|other| other.is_named(name)) {
                return Err(other.clone());
            }
        }
        for hash in hashes.into_iter().flatten() {
            open.entry(hash).or_insert_with(|| live.clone());
        }
        // One that waited for its turn is checked anew: whoever asks for it now waits for that.
        *live.lock() = Standing::Checked;
        Ok(Entry { ledger: self.clone(), live: live.clone() })
    }

    /// The open call of this id.
    pub fn call(&self, organisation: &str, id: &CallId) -> Option<Arc<Live>> {
        let name = Name::Id(organisation, id);
        let open = self.lock();
        open.get(&self.hash(&name)).filter(|live| live.is_named(&name)).cloned()
    }

    /// Lets a call of this id wait for its turn to run; `None` where it does so already.
    pub fn take_turn(self: &Arc<Self>, organisation: &Arc<str>, id: &CallId) -> Option<Turn> {
        let name = (organisation.clone(), id.clone());
        self.turns().insert(name.clone()).then(|| Turn { ledger: self.clone(), name })
    }

    /// Whether a call of this id waits for its turn to run.
    pub fn takes_turns(&self, organisation: &Arc<str>, id: &CallId) -> bool {
        self.turns().contains(&(organisation.clone(), id.clone()))
    }

    fn turns(&self) -> MutexGuard<'_, HashSet<(Arc<str>, CallId)>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls that run, each once.
    pub fn running(&self) -> Vec<(Arc<Live>, Arc<Begun>)> {
        let open = self.lock();
        let by_id = open.iter().filter(|(hash, live)| {
            let name = Name::Id(&live.caller.organisation, &live.call.id);
            **hash == self.hash(&name)
        });
        by_id.filter_map(|(_, live)| Some((live.clone(), live.begun()?))).collect()
    }

    fn leave(&self, live: &Arc<Live>) {
        let mut open = self.lock();
        for name in names(live).iter().flatten() {
            let hash = self.hash(name);
            if open.get(&hash).is_some_and(|one| Arc::ptr_eq(one, live)) {
                open.remove(&hash);
            }
        }
    }

    fn hash(&self, name: &Name<'_>) -> u64 {
        self.hasher.hash_one(name)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Live>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn names(live: &Live) -> [Option<Name<'_>>; 2] {
    let organisation = &*live.caller.organisation;
    [
        Some(Name::Id(organisation, &live.call.id)),
        live.identity.as_ref().map(|key| Name::Identity(organisation, key)),
    ]
}

#[cfg(test)]
mod tests;
