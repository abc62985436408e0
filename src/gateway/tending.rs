//! What has to be looked after although nobody asks: calls that wait too long, calls that somebody else approved, calls
//! whose gateway is gone.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::gateway::Gateway;
use crate::gateway::decisions::since;
use crate::gateway::notices::Teller;
use crate::gateway::policies::Edition;
use crate::gateway::record::{captures, forget_text, keeps_calls};
use crate::gateway::told::CallError;
use crate::gateway::waiting::millis;
use crate::model::approval::ApprovalStatus;
use crate::model::outcome::{Failure, FailureCode, Phase, Sent, Status};
use crate::model::outcome_text::change::{Change, changed};
use crate::store::StoreError;
use crate::store::records::{ApprovalFilter, CallRecord};

/// A call that runs longer than this is kept as running, so that its end is not lost with the process.
const INTENT: Duration = Duration::from_millis(100);
/// Expiry and what others decided are looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// Rounds of [`LOOK`] between two signs of life.
const HEARD: u32 = 5;
/// Rounds of [`LOOK`] between two looks for what is too old.
const SWEPT: u32 = 60;
/// A gateway of which nothing was heard for so long is gone.
const SILENT: Duration = Duration::from_secs(30);
/// What waits and is not due is looked at again so long after the last such look.
const AGAIN: Duration = Duration::from_secs(60);
/// Waiting approvals that are looked at in one round.
const MOST: usize = if cfg!(test) { 10 } else { 10_000 };

/// The last look at all that waits, after which nothing was left to do.
#[derive(Debug)]
struct Seen {
    stand: Stand,
    at: Instant,
}

/// What waiting calls are looked at by: their tools and policies.
#[derive(Debug, PartialEq)]
struct Stand {
    generation: u64,
    policies: Edition,
}

impl Gateway {
    /// Ends what an earlier process left running, before the first request is taken. Nothing is sent for it.
    pub async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        self.memory.store.heard(&self.memory.instance, self.clock.unix_ms()).await?;
        self.bury_the_lost().await
    }

    /// Looks after what nobody asks for, until it is dropped.
    pub async fn tend(self: Arc<Self>) {
        let intents = async {
            loop {
                tokio::time::sleep(INTENT).await;
                self.keep_intents();
            }
        };
        let rounds = async {
            let mut epochs = self.epochs.clone();
            let mut round: u32 = 0;
            let mut seen = None;
            loop {
                if let Err(error) = self.look_after(round, &mut seen).await {
                    tracing::warn!(%error, "Waiting calls could not be looked after.");
                }
                round = round.wrapping_add(1);
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    // What waits is looked at by the new configuration at once.
                    changed = epochs.changed() => if changed.is_err() {
                        return;
                    },
                }
            }
        };
        tokio::join!(intents, rounds);
    }

    /// Keeps that calls run which have been running for a while.
    fn keep_intents(&self) {
        if !keeps_calls(&self.epoch()) {
            return;
        }
        for (live, begun) in self.ledger.running() {
            // What is sent again is kept already, and what the earlier request did stays unknown until it ends.
            if !live.is_repeat && !begun.is_kept.swap(true, Ordering::AcqRel) {
                self.memory.recorder.offer(&self.running_record(&live, &begun));
            }
        }
    }

    async fn look_after(
        self: &Arc<Self>,
        round: u32,
        seen: &mut Option<Seen>,
    ) -> Result<(), CallError> {
        let store = &self.memory.store;
        let now_ms = self.clock.unix_ms();
        if round.is_multiple_of(HEARD) {
            store.heard(&self.memory.instance, now_ms).await?;
            if store.is_shared() {
                self.bury_the_lost().await?;
            }
        }
        let pending = store.pending().await?;
        let pending =
            pending.iter().map(|one| (one.tool.as_str(), one.count, since(one.oldest_ms, now_ms)));
        self.metrics.approvals_stand(pending);
        self.close_what_cannot_be_decided(seen, now_ms).await?;
        self.take_up().await?;
        if round.is_multiple_of(SWEPT) {
            store.sweep(&self.epoch().snapshot.storage.keep, now_ms).await?;
        }
        Ok(())
    }

    /// Past their time, or about a tool that is not what it was.
    async fn close_what_cannot_be_decided(
        &self,
        seen: &mut Option<Seen>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        self.close_some_of(Some(now_ms), now_ms).await?;
        // Another gateway may have another configuration: the tool itself says what holds when the call runs.
        if self.memory.store.is_shared() {
            return Ok(());
        }
        let generation = self.epoch().snapshot.generation;
        let stand = Stand { generation, policies: self.memory.policies.edition() };
        let at = self.clock.now();
        // What is not due is looked at where something changed; and now and then, since a call may be parked by what held
        // just before.
        let is_seen = seen.as_ref().is_some_and(|seen| {
            seen.stand == stand && at.saturating_duration_since(seen.at) < AGAIN
        });
        if !is_seen && self.close_some_of(None, now_ms).await? {
            *seen = Some(Seen { stand, at });
        }
        Ok(())
    }

    /// Closes what nobody can decide any more, among those that expire by a time, or among all: whether none of them is
    /// left.
    async fn close_some_of(
        &self,
        expires_by_ms: Option<i64>,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let filter = ApprovalFilter {
            status: Some(ApprovalStatus::Pending),
            expires_by_ms,
            most: MOST,
            ..ApprovalFilter::default()
        };
        let pending = self.memory.store.approvals(&filter).await?;
        let mut is_whole = pending.len() < MOST;
        for approval in pending {
            let Some(closing) = self.stands(&approval, now_ms) else { continue };
            let id = approval.id.clone();
            // One that cannot be closed keeps nobody else waiting.
            if let Err(error) = self.close(approval, closing).await {
                is_whole = false;
                tracing::warn!(approval = %id, %error, "A waiting call could not be closed.");
            }
        }
        Ok(is_whole)
    }

    async fn bury_the_lost(&self) -> Result<(), StoreError> {
        let now_ms = self.clock.unix_ms();
        let silent_since = now_ms.saturating_sub(millis(SILENT));
        for record in self.memory.store.lost(&self.memory.instance, silent_since).await? {
            let (call_id, tool) = (record.id.clone(), record.tool.clone());
            let failure = Failure {
                sent: Sent::Unknown,
                ..Failure::not_sent(FailureCode::Internal, "The call failed inside the gateway.")
            };
            let ended = self.ended_unknown(record, &failure, now_ms);
            if self.memory.store.bury(ended.clone()).await? {
                let call_id = call_id.as_str();
                tracing::warn!(
                    call_id,
                    tool = &*tool,
                    "A call was lost with its gateway: whether it ran is not known."
                );
                self.ended_elsewhere(&ended, None, failure);
                self.waiting_changed();
                let waited = self.memory.store.approvals_of(&ended.organisation, &ended.id).await?;
                if !waited.is_empty() {
                    let epoch = self.epoch();
                    let teller = Teller::new(&epoch.snapshot, now_ms);
                    self.memory.outbox.offer(teller.call_finished(&ended));
                }
            }
        }
        Ok(())
    }

    fn ended_unknown(&self, record: CallRecord, failure: &Failure, now_ms: i64) -> CallRecord {
        let phase = Phase::Ended(Status::Failed);
        let epoch = self.epoch();
        let change = Change {
            failure: Some((failure, now_ms)),
            created_at_ms: record.created_at_ms,
            read_only: epoch.snapshot.tool(&record.tool).is_some_and(|tool| tool.read_only),
            ..Change::default()
        };
        let text = changed(&record.outcome, phase, &change);
        let mut ended = CallRecord {
            phase,
            bound: true,
            code: Some(Cow::Borrowed(failure.code.as_str())),
            finished_at_ms: Some(now_ms),
            outcome: text.map_or_else(|| record.outcome.clone(), Bytes::from),
            instance: None,
            ..record
        };
        let capture = captures(&epoch, epoch.snapshot.tool(&ended.tool));
        forget_text(&mut ended, capture);
        ended
    }
}

#[cfg(test)]
mod tests;
