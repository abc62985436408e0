//! What is kept of a call, and its end.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::config::snapshot::Tool;
use crate::config::storage::Capture;
use crate::gateway::closing::ruling;
use crate::gateway::ledger::{Begun, Entry, Live};
use crate::gateway::notices::Teller;
use crate::gateway::told::{Told, reference};
use crate::gateway::{Gateway, Leave, Stop, Way};
use crate::model::approval::{Approval, ApprovalStatus};
use crate::model::call::{DEFAULT_WAIT, ToolCall};
use crate::model::canonical;
use crate::model::json;
use crate::model::outcome::{CallOutcome, Decision, Failure, Phase, Sent, Status};
use crate::model::outcome_text::change::{Change, changed, without_answer};
use crate::model::outcome_text::{self, OpenCall};
use crate::net::epoch::Epoch;
use crate::store::records::CallRecord;
use crate::store::{Bound, StoreError};

impl Gateway {
    /// Runs a call that has its place among the open ones, and keeps what became of it.
    pub(super) async fn go(
        self: &Arc<Self>,
        epoch: &Epoch,
        entry: Entry,
        leave: Option<&Leave>,
    ) -> Result<Told, Stop> {
        let ticket = self.in_flight.enter();
        let live = entry.live().clone();
        let way = Way {
            epoch,
            call: &live.call,
            caller: &live.caller,
            presence: &live.presence,
            live: Some(&live),
            leave,
        };
        let ended = self.run(&way, live.created_at_ms).await;
        let told = match ended {
            Ok(outcome) => Ok(self.end(entry, &way, &outcome).await),
            Err(stop) => Err(stop),
        };
        drop(ticket);
        told
    }

    /// Keeps the end of a call and tells it to whoever waits for it.
    async fn end(&self, entry: Entry, way: &Way<'_>, outcome: &CallOutcome) -> Told {
        let body = Bytes::from(outcome_text::write(outcome));
        let phase = Phase::Ended(outcome.status());
        let told = Told { phase, id: outcome.id.clone(), body: body.clone() };
        let is_sent = match &outcome.ended {
            Ok(_) => true,
            Err(failure) => failure.sent != Sent::NotSent,
        };
        let tool = way.epoch.snapshot.tool(&outcome.tool);
        let mut record = record(entry.live(), phase, body);
        record.code = Some(Cow::Borrowed(outcome.code()));
        record.finished_at_ms = Some(outcome.finished_at_ms);
        record.bound = is_sent;
        if let Some(leave) = way.leave
            && !Box::pin(self.may_end(entry.live(), leave, &record)).await
        {
            // Another gateway runs it, or has closed it.
            return Box::pin(self.follow_kept(way.caller, &outcome.id)).await.unwrap_or(told);
        }
        match way.leave {
            None if !keeps_calls(way.epoch) && !is_begun(entry.live()) => {}
            // What an earlier request may have done is what happened.
            None if entry.live().is_repeat && !is_sent => {}
            None => {
                forget_text(&mut record, captures(way.epoch, tool));
                self.memory.recorder.offer(&record);
            }
            Some(leave) => {
                record.alias.clone_from(&leave.record.alias);
                record.arguments_digest = Some(leave.approval.arguments_digest.as_str().into());
                // What sent nothing may run on the same yes, so its identity stays its own.
                let approval = leave.approval_after(&outcome.ended);
                let is_void = approval.status == ApprovalStatus::Void;
                let is_good =
                    !is_sent && leave.approval.expires_at_ms > outcome.finished_at_ms && !is_void;
                record.bound = is_sent || is_good;
                if !is_good {
                    forget_text(&mut record, captures(way.epoch, tool));
                }
                if is_void {
                    Box::pin(self.end_as_void(&approval, record)).await;
                } else {
                    Box::pin(self.end_of_waited(leave, record, is_good)).await;
                }
            }
        }
        let bound = is_sent;
        entry.end(told.clone(), bound);
        told
    }

    /// Keeps the end of a call that a person said yes to.
    async fn end_of_waited(&self, leave: &Leave, record: CallRecord, is_unused: bool) {
        let unused = is_unused.then(|| leave.approval.id.clone());
        let epoch = self.epoch();
        let notices = Teller::new(&epoch.snapshot, self.clock.unix_ms()).call_finished(&record);
        match self.memory.store.finish(record.clone(), unused, notices).await {
            Ok(()) => self.memory.outbox.written(),
            Err(error) => {
                tracing::warn!(%error, "The end of an approved call is kept later.");
                self.memory.recorder.offer(&record);
            }
        }
        self.waiting_changed();
    }

    /// What a person said yes to is not what would run: with the call their yes ends too.
    async fn end_as_void(&self, approval: &Approval, record: CallRecord) {
        let now_ms = self.clock.unix_ms();
        let epoch = self.epoch();
        let notices = Teller::new(&epoch.snapshot, now_ms).call_finished(&record);
        match self.memory.store.decide(ruling(approval, now_ms), Some(record), notices).await {
            Ok(_) => self.memory.outbox.written(),
            // It stays approved, and is looked at again.
            Err(error) => tracing::warn!(%error, "A call's approval could not be closed."),
        }
        self.waiting_changed();
    }

    /// Whether the end of a call that did not begin here is this gateway's to keep: with a shared store another one may
    /// have begun it meanwhile.
    async fn may_end(&self, live: &Live, leave: &Leave, record: &CallRecord) -> bool {
        let store = &self.memory.store;
        if !store.is_shared() || live.begun().is_some() {
            return true;
        }
        let claim = CallRecord {
            phase: Phase::Running,
            bound: true,
            code: None,
            finished_at_ms: None,
            instance: Some(self.memory.instance.clone()),
            ..record.clone()
        };
        let now_ms = self.clock.unix_ms();
        matches!(store.start(claim, &leave.approval.id, now_ms).await, Ok(true))
    }

    /// Before the first byte: what has to be kept is kept, and the identity is the call's own from now on.
    pub(super) async fn begin(
        &self,
        way: &Way<'_>,
        tool: &Arc<Tool>,
        decision: &Decision,
    ) -> Result<(), Stop> {
        let Some(live) = way.live else { return Ok(()) };
        if live.is_doubtful() && !repeats_do_no_harm(tool) {
            return Err(Failure::overloaded().into());
        }
        let at_ms = self.clock.unix_ms();
        let begun = Begun {
            tool: tool.clone(),
            decision: decision.clone(),
            approval: way.leave.map(|leave| Box::new(leave.approval.clone())),
            at_ms,
            is_kept: AtomicBool::new(false),
        };
        if let Some(leave) = way.leave {
            let record = self.running_record(live, &begun);
            let started = self.memory.store.start(record, &leave.approval.id, at_ms).await;
            match started {
                Ok(true) => {
                    begun.is_kept.store(true, Ordering::Release);
                    self.waiting_changed();
                }
                Ok(false) => return Err(Stop::Again),
                Err(error) => return Err(not_kept(&error).into()),
            }
        } else if self.memory.store.is_shared() && (live.call.is_named || live.identity.is_some()) {
            match self.memory.store.bind(self.running_record(live, &begun)).await {
                Ok(Bound::Now) => begun.is_kept.store(true, Ordering::Release),
                // Its own earlier end, which the runtime wants sent again.
                Ok(Bound::Before(other))
                    if live.is_repeat && other.id == live.call.id && other.phase.is_final() => {}
                Ok(Bound::Before(_)) => return Err(Stop::Again),
                Err(error) if repeats_do_no_harm(tool) => {
                    tracing::warn!(%error, "A call's identity is not bound.");
                }
                Err(error) => return Err(not_kept(&error).into()),
            }
        }
        live.begin(begun);
        Ok(())
    }

    /// A running call as it is told; `None` where it does not run.
    pub(super) fn running(&self, live: &Live) -> Option<Told> {
        let begun = live.begun()?;
        let body = Bytes::from(self.open_text(live, &begun));
        Some(Told { phase: Phase::Running, id: live.call.id.clone(), body })
    }

    /// A running call as it is kept.
    pub(super) fn running_record(&self, live: &Live, begun: &Begun) -> CallRecord {
        let mut record = record(live, Phase::Running, self.open_text(live, begun).into());
        record.bound = true;
        record.instance = Some(self.memory.instance.clone());
        if let Some(approval) = &begun.approval {
            record.arguments_digest = Some(approval.arguments_digest.as_str().into());
        }
        forget_text(&mut record, begun.tool.capture);
        record
    }

    fn open_text(&self, live: &Live, begun: &Begun) -> Vec<u8> {
        outcome_text::write_open(&OpenCall {
            phase: Phase::Running,
            id: live.call.id.as_str(),
            tool: &live.call.tool,
            reference: Some(&reference(&begun.tool, live.call.batch.as_ref())),
            decision: Some(&begun.decision),
            approval: begun.approval.as_deref(),
            model_text: None,
            idempotency_key: None,
            trace_id: live.call.context.trace_id(),
            created_at_ms: live.created_at_ms,
            started_at_ms: Some(begun.at_ms),
            now_ms: self.clock.unix_ms(),
        })
    }
}

/// Whether finished calls are kept at all.
pub(super) fn keeps_calls(epoch: &Epoch) -> bool {
    epoch.snapshot.storage.keep.max_calls > 0
}

/// Whether it is kept that the call runs: then its end has to be kept too.
fn is_begun(live: &Live) -> bool {
    live.begun().is_some_and(|begun| begun.is_kept.load(Ordering::Acquire))
}

/// What is kept of a call, as far as the call itself says it.
pub(super) fn record(live: &Live, phase: Phase, outcome: Bytes) -> CallRecord {
    CallRecord {
        organisation: live.caller.organisation.clone(),
        id: live.call.id.clone(),
        phase,
        bound: false,
        identity: live.identity.clone(),
        alias: live.alias.clone(),
        tool: live.call.tool.as_str().into(),
        key: live.caller.name.clone(),
        context: live.call.context.clone(),
        deadline: live.call.deadline,
        code: None,
        created_at_ms: live.created_at_ms,
        finished_at_ms: None,
        arguments: Some(live.call.arguments.text().clone()),
        arguments_digest: None,
        outcome,
        instance: None,
    }
}

/// The call that a record is of; `None` where its arguments are no longer kept.
pub(super) fn call_of(record: &CallRecord) -> Option<ToolCall> {
    let text = record.arguments.as_ref()?;
    let arguments = json::read_object(std::str::from_utf8(text).ok()?).ok()?;
    Some(ToolCall {
        id: record.id.clone(),
        is_named: true,
        tool: record.tool.to_string(),
        arguments,
        context: record.context.clone(),
        deadline: record.deadline,
        wait: DEFAULT_WAIT,
        resend: false,
        credentials: Vec::new(),
        batch: None,
    })
}

/// A kept call that ends without having run; its text is told anew.
pub(super) fn ended_unsent(
    record: &CallRecord,
    status: Status,
    failure: &Failure,
    change: Change<'_>,
    at_ms: i64,
) -> CallRecord {
    let phase = Phase::Ended(status);
    let change = Change { failure: Some((failure, at_ms)), ..change };
    let text = changed(&record.outcome, phase, &change);
    CallRecord {
        phase,
        bound: false,
        code: Some(Cow::Borrowed(failure.code.as_str())),
        finished_at_ms: Some(at_ms),
        outcome: text.map_or_else(|| record.outcome.clone(), Bytes::from),
        instance: None,
        ..record.clone()
    }
}

/// Whether arguments and answers of a tool's calls are kept.
pub(super) fn captures(epoch: &Epoch, tool: Option<&Arc<Tool>>) -> Capture {
    tool.map_or(epoch.snapshot.storage.capture, |tool| tool.capture)
}

/// Takes out of a finished call's record what is not to be kept.
pub(super) fn forget_text(record: &mut CallRecord, capture: Capture) {
    if capture == Capture::Full {
        return;
    }
    if let Some(arguments) = record.arguments.take()
        && record.arguments_digest.is_none()
        && record.bound
    {
        record.arguments_digest = Some(canonical::digest(&arguments).into());
    }
    if let Some(text) = without_answer(&record.outcome) {
        record.outcome = text.into();
    }
}

/// Whether the tool's server itself keeps a repeat from having a second effect.
pub(super) fn repeats_do_no_harm(tool: &Tool) -> bool {
    tool.idempotent || tool.read_only || tool.profile.sends_idempotency_key()
}

/// The call would be done without a trace, so it is not done.
pub(super) fn not_kept(error: &StoreError) -> Failure {
    tracing::warn!(%error, "A call is refused: it could not be kept.");
    Failure::overloaded()
}
