//! Following calls: one until something happens, or many as they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::gateway::Gateway;
use crate::gateway::ledger::Standing;
use crate::gateway::replay::may_see;
use crate::gateway::told::{CallError, Told};
use crate::model::call::CallContext;
use crate::model::id::CallId;
use crate::model::outcome::Phase;
use crate::policy::identity::Caller;
use crate::store::records::{CallFilter, CallRecord, within};

/// Calls, or approvals, that one request is told at most.
pub(super) const MOST: usize = 1000;
/// Bytes of them that are read at most: arguments and answers can be large.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// Another gateway may change a call that is kept in a shared store: it is looked at this often.
const LOOK: Duration = Duration::from_secs(1);

impl Gateway {
    /// A call as it is, once it has ended or the time is over.
    pub async fn follow(
        &self,
        caller: &Caller,
        id: &CallId,
        wait: Duration,
    ) -> Result<Told, CallError> {
        let until = self.clock.now() + wait;
        let mut changes = self.changes.subscribe();
        loop {
            let left = until.saturating_duration_since(self.clock.now());
            let open = self.ledger.call(&caller.organisation, id).filter(|live| {
                may_see(caller, &live.call.tool, live.call.context.agent_id.as_deref())
            });
            if let Some(live) = open {
                match live.over(left).await {
                    Standing::Ended { told, .. } => return Ok(told),
                    Standing::Runs(_) => {
                        if let Some(told) = self.running(&live) {
                            return Ok(told);
                        }
                    }
                    Standing::Checked | Standing::Left => {}
                }
            }
            changes.borrow_and_update();
            let told = self.follow_kept(caller, id).await?;
            let left = until.saturating_duration_since(self.clock.now());
            if told.phase.is_final() || left.is_zero() {
                return Ok(told);
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
        }
    }

    /// A call as it is kept.
    pub(super) async fn follow_kept(
        &self,
        caller: &Caller,
        id: &CallId,
    ) -> Result<Told, CallError> {
        let record = self.kept(caller, id).await?;
        Ok(Told { phase: record.phase, id: record.id, body: record.outcome })
    }

    /// What an open call was asked with. It may never be kept: `storage.keep.max_calls` can be 0.
    pub fn asked(&self, caller: &Caller, id: &CallId) -> Option<(Bytes, Arc<CallContext>)> {
        let live = self.ledger.call(&caller.organisation, id)?;
        let (call, context) = (&live.call, &live.call.context);
        let is_seen = may_see(caller, &call.tool, context.agent_id.as_deref());
        is_seen.then(|| (call.arguments.text().clone(), context.clone()))
    }

    /// What is kept of a call.
    pub async fn kept(&self, caller: &Caller, id: &CallId) -> Result<CallRecord, CallError> {
        let organisation = &*caller.organisation;
        let found = match self.memory.recorder.find(organisation, Some(id), None) {
            Some(record) => Some(record),
            None if self.memory.store.may_know(organisation, Some(id), None) => {
                self.memory.store.call(organisation, id).await?
            }
            None => None,
        };
        let found = found.filter(|one| may_see(caller, &one.tool, one.context.agent_id.as_deref()));
        found.ok_or(CallError::NotFound)
    }

    /// Calls as they are, the oldest first.
    pub async fn calls(
        &self,
        caller: &Caller,
        filter: CallFilter,
    ) -> Result<Vec<CallRecord>, CallError> {
        // What ended just now is not missing.
        self.memory.recorder.flush().await;
        let organisation = caller.organisation.to_string();
        let most = filter.most.min(MOST);
        let filter = CallFilter { organisation, most: reach(caller, most), ..filter };
        let mut found = self.memory.store.calls(&filter).await?;
        found.retain(|one| may_see(caller, &one.tool, one.context.agent_id.as_deref()));
        if filter.phase.is_none_or(|phase| phase == Phase::Running) {
            self.add_running(caller, &filter, &mut found);
        }
        let newest = found.iter().rev().take(most).map(CallRecord::bytes);
        found.drain(..found.len() - within(newest, Some(MOST_BYTES)));
        Ok(found)
    }

    /// Calls that run are kept a moment later.
    fn add_running(&self, caller: &Caller, filter: &CallFilter, found: &mut Vec<CallRecord>) {
        for (live, begun) in self.ledger.running() {
            let (call, context) = (&live.call, &live.call.context);
            let fits = live.caller.organisation == caller.organisation
                && may_see(caller, &call.tool, context.agent_id.as_deref())
                && filter
                    .session_id
                    .as_ref()
                    .is_none_or(|id| context.session_id.as_ref() == Some(id))
                && filter
                    .run_id
                    .as_deref()
                    .is_none_or(|id| context.run_id.as_ref().is_some_and(|run| run.as_str() == id))
                && filter.tool.as_ref().is_none_or(|tool| call.tool == *tool)
                && filter.since_ms.is_none_or(|since| live.created_at_ms >= since);
            if fits && found.iter().all(|one| one.id != call.id) {
                found.push(self.running_record(&live, &begun));
            }
        }
        found.sort_by_key(|one| one.created_at_ms);
    }
}

/// How many the store is asked for, so that a key sees so many of its own among those of others.
pub(super) fn reach(caller: &Caller, most: usize) -> usize {
    if caller.agents.is_empty() && caller.tools.is_empty() { most } else { MOST }
}
