//! Which policies a call is decided by, and the counts of those that only watch it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::config::snapshot::Tool;
use crate::gateway::flight::aside;
use crate::gateway::policies::PolicyBook;
use crate::gateway::record::not_kept;
use crate::gateway::tally::{Decided, Tally};
use crate::gateway::{Gateway, Stop, Way};
use crate::model::approval::{Approval, ApprovalKind, ApprovalStatus};
use crate::model::json::read_object;
use crate::model::outcome::Decision;
use crate::policy::rules::{self, Policy};
use crate::store::StoreError;
use crate::store::records::CallRecord;

impl Gateway {
    /// The policies that the API keeps.
    pub fn policies(&self) -> &Arc<PolicyBook> {
        &self.memory.policies
    }

    /// The counts of what only watches.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.memory.tally
    }

    /// The policies that are about a tool's calls, the file's and the kept ones.
    pub(super) async fn policies_about<'t>(
        &self,
        way: &Way<'_>,
        tool: &'t Tool,
    ) -> Result<Cow<'t, [Arc<Policy>]>, Stop> {
        if way.leave.is_some() {
            Box::pin(self.look_at_policies()).await.map_err(|error| not_kept(&error))?;
        }
        Ok(self.memory.policies.about(&way.caller.organisation, tool))
    }

    /// What a person decided on is judged by the policies of now: another gateway may have changed one a moment ago.
    pub(super) async fn look_at_policies(&self) -> Result<(), StoreError> {
        if self.memory.store.is_shared() {
            self.memory.policies.refresh().await?;
        }
        Ok(())
    }

    /// Counts a new call for the reports. One that was asked about before was counted then, be it that it runs now, or that
    /// the runtime asks for it once more.
    pub(super) fn count_watching(
        &self,
        way: &Way<'_>,
        tool: &Tool,
        decision: &Decision,
        policies: &[Arc<Policy>],
        passed: &Result<(), Stop>,
    ) {
        let Some(live) = way.live else { return };
        let is_new = way.leave.is_none()
            && match passed {
                Ok(()) | Err(Stop::Ended(_)) => true,
                Err(Stop::Told(told)) => told.id == live.call.id,
                Err(Stop::Again | Stop::Error(_) | Stop::NotNow(_)) => false,
            };
        if is_new {
            self.memory.tally.note(&Decided {
                organisation: &live.caller.organisation,
                tool: &tool.name,
                has_candidate: tool.policy.candidate.is_some(),
                policies,
                call_id: &live.call.id,
                created_at_ms: live.created_at_ms,
                decision,
            });
        }
    }

    /// Counts what became of a call that waited, where the tool's candidate would have let it run unasked.
    pub(super) fn count_unasked(&self, record: &CallRecord, approval: &Approval) {
        let epoch = self.epoch();
        let tool = epoch.snapshot.tool(&approval.tool);
        let Some(tool) = tool.filter(|tool| tool.policy.candidate.is_some()) else { return };
        let text = approval.arguments.as_deref().and_then(|text| std::str::from_utf8(text).ok());
        let Some(arguments) = text.and_then(|text| read_object(text).ok()) else { return };
        let policies = self.memory.policies.about(&approval.organisation, tool);
        let agent = approval.agent_id.as_deref();
        let decision = aside(|| rules::decide(&tool.policy, &policies, agent, &arguments));
        // After the operator's yes the person's own answer follows.
        let is_halfway = approval.kind == ApprovalKind::Operator
            && approval.status == ApprovalStatus::Approved
            && decision.then_ask;
        if decision.would_run_unasked() && !is_halfway {
            let created_at_ms = record.created_at_ms;
            let organisation = &approval.organisation;
            self.memory.tally.resolved(organisation, &tool.name, created_at_ms, approval.status);
        }
    }
}

#[cfg(test)]
mod tests;
