//! Calls that need a person: parked, durably, until somebody decides; and what a yes is bound to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::config::snapshot::Tool;
use crate::gateway::events::Event;
use crate::gateway::ledger::Live;
use crate::gateway::notices::Teller;
use crate::gateway::record::{not_kept, record};
use crate::gateway::told::{CallError, Told, reference};
use crate::gateway::{Gateway, Stop, Way};
use crate::model::approval::{Approval, ApprovalId, ApprovalKind, ApprovalStatus};
use crate::model::canonical;
use crate::model::id::hex;
use crate::model::outcome::{Decision, Effect, Failure, FailureCode, Phase};
use crate::model::outcome_text::{self, OpenCall};
use crate::policy::approval as words;
use crate::policy::rules::{self, Policy};
use crate::store::Bound;

/// Contract: an operator has 60 minutes unless the policy says otherwise.
const OPERATOR_TIME: Duration = Duration::from_secs(60 * 60);

impl Gateway {
    /// Lets a call pass that needs nobody, or that runs on a yes which still stands; parks every other one. What only some
    /// calls need is in boxes of its own, so that the others do not carry it along.
    pub(super) async fn person(
        self: &Arc<Self>,
        way: &Way<'_>,
        tool: &Arc<Tool>,
        decision: &Decision,
        policies: &[Arc<Policy>],
    ) -> Result<(), Stop> {
        let Some(live) = way.live else { return Ok(()) };
        let Some(leave) = way.leave else {
            let kind = match decision.effect {
                Effect::Allow | Effect::Deny => return Ok(()),
                Effect::AskFirst => ApprovalKind::Person,
                Effect::RequireApproval => ApprovalKind::Operator,
            };
            if live.is_repeat {
                return Err(Stop::Error(CallError::YesIsUsed));
            }
            if !way.call.credentials.is_empty() {
                return Err(Stop::Error(CallError::CredentialsCannotWait));
            }
            if kind == ApprovalKind::Person {
                Box::pin(self.asked_before(live, tool)).await?;
            }
            let parked = self.park(way, live, (tool, policies), decision, kind);
            return Err(Box::pin(parked).await);
        };
        let digest = &leave.approval.arguments_digest;
        if leave.approval.binding != binding(&way.caller.organisation, tool, policies, digest) {
            return Err(Failure::not_sent(FailureCode::ApprovalVoid, words::VOID).into());
        }
        // The operator first, then the person.
        if leave.approval.kind == ApprovalKind::Operator && decision.then_ask {
            let parked = self.park(way, live, (tool, policies), decision, ApprovalKind::Person);
            return Err(Box::pin(parked).await);
        }
        Ok(())
    }

    /// Keeps the call until somebody decides. Nothing is held and nothing is spent for it.
    async fn park(
        &self,
        way: &Way<'_>,
        live: &Live,
        (tool, policies): (&Arc<Tool>, &[Arc<Policy>]),
        decision: &Decision,
        kind: ApprovalKind,
    ) -> Stop {
        let now_ms = self.clock.unix_ms();
        let context = &live.call.context;
        let digest = canonical::digest(live.call.arguments.text());
        let time = match kind {
            ApprovalKind::Operator => decision.expires.unwrap_or(OPERATOR_TIME),
            ApprovalKind::Person => way.epoch.snapshot.waiting.confirm_for,
        };
        let end_user = context.end_user.as_ref();
        let approval = Approval {
            id: ApprovalId::from_random(rand::random_iter::<[u8; 32]>().flatten()),
            organisation: live.caller.organisation.clone(),
            call_id: live.call.id.clone(),
            kind,
            status: ApprovalStatus::Pending,
            tool: tool.name.to_string(),
            tool_id: tool.id.clone(),
            tool_version: 1,
            arguments: Some(live.call.arguments.text().clone()),
            binding: binding(&live.caller.organisation, tool, policies, &digest),
            arguments_digest: digest,
            policy: decision.policy.as_str().to_owned(),
            rule: decision.rule.as_deref().map(str::to_owned),
            message: decision.message.as_deref().map(str::to_owned),
            agent_id: context.agent_id.clone(),
            session_id: context.session_id.clone(),
            turn_index: context.turn_index,
            end_user: end_user
                .and_then(|user| user.external_id.clone().or_else(|| user.id.clone())),
            created_at_ms: now_ms,
            expires_at_ms: now_ms.saturating_add(millis(time)),
            decided_at_ms: None,
            decided_by: None,
            reason: None,
            used_at_ms: None,
        };
        let text = match kind {
            ApprovalKind::Operator => words::waits(decision.message.as_deref()),
            ApprovalKind::Person => words::ask(&approval.tool, live.call.arguments.text()),
        };
        let body = Bytes::from(outcome_text::write_open(&OpenCall {
            phase: Phase::Waiting,
            id: live.call.id.as_str(),
            tool: &live.call.tool,
            reference: Some(&reference(tool, way.call.batch.as_ref())),
            decision: Some(decision),
            approval: Some(&approval),
            model_text: Some(&text),
            idempotency_key: None,
            trace_id: context.trace_id(),
            created_at_ms: live.created_at_ms,
            started_at_ms: None,
            now_ms,
        }));
        let mut record = record(live, Phase::Waiting, body.clone());
        record.bound = true;
        record.arguments_digest = Some(approval.arguments_digest.as_str().into());
        if let Some(leave) = way.leave {
            record.alias.clone_from(&leave.record.alias);
        }
        let notices = Teller::new(&way.epoch.snapshot, now_ms).approval_requested(&approval);
        let parked = self.memory.store.park(record, approval.clone(), notices).await;
        match parked {
            Ok(Bound::Now) => {
                self.memory.outbox.written();
                self.waiting_changed();
                if kind == ApprovalKind::Person {
                    let (owner, ends) = (&approval.organisation, approval.expires_at_ms);
                    self.events.tell(|| Event::confirm(owner, way.call, ends));
                }
                Stop::Told(Told { phase: Phase::Waiting, id: live.call.id.clone(), body })
            }
            Ok(Bound::Before(_)) => Stop::Again,
            Err(error) => not_kept(&error).into(),
        }
    }

    /// Says that a call which waits, or waited, has changed.
    pub(super) fn waiting_changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// What a decision is about: hex of SHA-256 over the organisation, the tool with its version and definition, the
/// arguments, and the policies that were in force (contract, section 6).
pub(super) fn binding(
    organisation: &str,
    tool: &Tool,
    policies: &[Arc<Policy>],
    arguments_digest: &str,
) -> String {
    let mut hash = Sha256::new();
    for part in [organisation, &tool.id, "1", arguments_digest] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.update(tool.definition_digest);
    hash.update(rules::version(&tool.policy, policies));
    hex(&hash.finalize())
}

pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
