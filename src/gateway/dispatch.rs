//! What a person said yes to runs: once, at the earliest moment that limits and circuit allow, by the configuration of that
//! moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::clock::BoxFuture;
use crate::exec::Presence;
use crate::gateway::closing::Closing;
use crate::gateway::ledger::{Entry, Live};
use crate::gateway::record::call_of;
use crate::gateway::told::{CallError, Told};
use crate::gateway::waiting::millis;
use crate::gateway::{Gateway, Leave, Stop};
use crate::model::approval::{Approval, ApprovalStatus};
use crate::model::id::CallId;
use crate::model::outcome::Failure;
use crate::policy::identity::{Caller, Proof};
use crate::store::records::{ApprovalFilter, CallRecord};

/// What limits and circuit stand in the way of is looked at this often: an operator may have opened the way.
const LOOK: Duration = Duration::from_secs(1);
/// Approved calls that are looked at in one round.
const MOST: usize = 10_000;

/// A request that looks a call up holds its names for no longer than this.
const BRIEFLY: Duration = Duration::from_millis(20);

/// A call that runs in a task of its own.
pub(super) type Running = oneshot::Receiver<Result<Told, CallError>>;

impl Gateway {
    /// Lets a call run on a person's yes, in a task of its own: whoever decided need not wait for it.
    pub(super) fn dispatch(self: &Arc<Self>, leave: Leave) -> Running {
        let (sender, receiver) = oneshot::channel();
        let gateway = self.clone();
        let work: BoxFuture<'static, ()> = Box::pin(async move {
            let told = gateway.run_on(leave).await;
            // Nobody may be waiting.
            let _ = sender.send(told);
        });
        self.set_off(work);
        receiver
    }

    /// The same, and waits for its end, but only so long.
    pub(super) async fn dispatch_and_wait(
        self: &Arc<Self>,
        leave: Leave,
        wait: Duration,
    ) -> Result<Told, CallError> {
        let caller = caller_of(&leave.record);
        let id = leave.record.id.clone();
        let running = self.dispatch(leave);
        self.wait_for(running, &caller, &id, wait).await
    }

    /// Waits for the end of a dispatched call, but only so long; then tells it as it is.
    pub(super) async fn wait_for(
        self: &Arc<Self>,
        running: Running,
        caller: &Caller,
        id: &CallId,
        wait: Duration,
    ) -> Result<Told, CallError> {
        match tokio::time::timeout(wait, running).await {
            Ok(Ok(told)) => told,
            // Its time is over, or its task is.
            Ok(Err(_)) | Err(_) => self.follow_kept(caller, id).await,
        }
    }

    async fn run_on(self: &Arc<Self>, leave: Leave) -> Result<Told, CallError> {
        let caller = caller_of(&leave.record);
        let id = leave.record.id.clone();
        let turn = self.ledger.take_turn(&leave.record.organisation, &id);
        let entry = turn.filter(|_| !self.ending.is_up()).and_then(|turn| {
            let entry = self.enter_waiting(&leave.record, &caller)?;
            Some((turn, entry))
        });
        let Some((_turn, entry)) = entry else {
            // It runs already, or waits for its turn: somebody else tells it.
            return self.follow(&caller, &id, Duration::ZERO).await;
        };
        let epoch = self.epoch();
        let turn = epoch.snapshot.waiting.dispatch_within;
        drop(epoch);
        let until = self.clock.now() + self.time_left(&leave.approval, turn);
        self.take_turns(entry, leave, until).await
    }

    /// Tries until it may run, or until the time for that is over.
    async fn take_turns(
        self: &Arc<Self>,
        entry: Entry,
        mut leave: Leave,
        until: Instant,
    ) -> Result<Told, CallError> {
        let live = entry.live().clone();
        let mut entry = Some(entry);
        loop {
            let left = until.saturating_duration_since(self.clock.now());
            leave.is_patient = !left.is_zero();
            let held = match entry.take() {
                Some(entry) => entry,
                None => match self.ledger.enter(&live) {
                    Ok(entry) => entry,
                    Err(_) if leave.is_patient && !self.ending.is_up() => {
                        // Somebody asks about it at this moment.
                        tokio::time::sleep(BRIEFLY.min(left)).await;
                        continue;
                    }
                    Err(_) => return self.follow_kept(&live.caller, &live.call.id).await,
                },
            };
            match self.go(&self.epoch(), held, Some(&leave)).await {
                Ok(told) | Err(Stop::Told(told)) => return Ok(told),
                Err(Stop::Error(error)) => return Err(error),
                // Another gateway was quicker, or it was closed meanwhile.
                Err(Stop::Again | Stop::Ended(_)) => {
                    return self.follow_kept(&live.caller, &live.call.id).await;
                }
                Err(Stop::NotNow(failure)) => {
                    tokio::select! {
                        () = tokio::time::sleep(pause(&failure, left)) => {}
                        () = live.presence.cut_off() => {}
                        () = self.ending.raised() => {}
                    }
                    // It stays approved, and the next process goes on with it.
                    if self.ending.is_up() || !self.still_approved(&leave.approval).await {
                        return self.follow_kept(&live.caller, &live.call.id).await;
                    }
                }
            }
        }
    }

    /// Approved calls that nobody runs: their gateway ended between the yes and the first byte, or is another one.
    pub(super) async fn take_up(self: &Arc<Self>) -> Result<(), CallError> {
        let filter = ApprovalFilter {
            status: Some(ApprovalStatus::Approved),
            unused_of_waiting: true,
            most: MOST,
            ..ApprovalFilter::default()
        };
        let now_ms = self.clock.unix_ms();
        for approval in self.memory.store.approvals(&filter).await? {
            let (organisation, id) = (&approval.organisation, &approval.call_id);
            let is_looked_after = self.ledger.takes_turns(organisation, id)
                || self.ledger.call(organisation, id).is_some();
            if is_looked_after {
                continue;
            }
            if !approval.is_good(now_ms) {
                // Nobody ran it while the yes was good, and nothing can run on it any more.
                if let Err(error) = self.close(approval, Closing::Expired).await {
                    tracing::warn!(%error, "An approved call could not be closed.");
                }
                continue;
            }
            let record = self.memory.store.call(&approval.organisation, id).await?;
            if let Some(record) = record {
                self.dispatch(Leave { approval, record, is_patient: true });
            }
        }
        Ok(())
    }

    async fn still_approved(&self, approval: &Approval) -> bool {
        let found = self.memory.store.approval(&approval.organisation, &approval.id).await;
        // A store that cannot say it is asked again when the call begins.
        !matches!(found, Ok(Some(found)) if !found.is_good(self.clock.unix_ms()))
    }

    fn enter_waiting(&self, record: &CallRecord, caller: &Arc<Caller>) -> Option<Entry> {
        let call = call_of(record)?;
        let presence = Presence::until(self.cut_off.clone());
        let mut live = Live::new(call, caller.clone(), record.created_at_ms, presence);
        live.alias.clone_from(&record.alias);
        self.ledger.enter(&Arc::new(live)).ok()
    }

    /// How long it may wait for its turn: after the yes, and before the yes expires.
    fn time_left(&self, approval: &Approval, turn: Duration) -> Duration {
        let now_ms = self.clock.unix_ms();
        let decided = approval.decided_at_ms.unwrap_or(now_ms);
        // A yes that was used for nothing has its time anew.
        let end = if now_ms.saturating_sub(decided) < millis(turn) { decided } else { now_ms };
        let end = end.saturating_add(millis(turn)).min(approval.expires_at_ms);
        Duration::from_millis(u64::try_from(end.saturating_sub(now_ms)).unwrap_or(0))
    }
}

/// Whoever asked for a kept call, as far as its limits need them: its bounds were looked at when it was asked for.
fn caller_of(record: &CallRecord) -> Arc<Caller> {
    Arc::new(Caller {
        name: record.key.clone(),
        proof: Proof::Key,
        organisation: record.organisation.clone(),
        scopes: Vec::new(),
        agents: Vec::new(),
        tools: Vec::new(),
    })
}

fn pause(failure: &Failure, left: Duration) -> Duration {
    failure.retry_after.unwrap_or(LOOK).min(LOOK).min(left)
}

#[cfg(test)]
mod tests;
