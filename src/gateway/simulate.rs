//! Tries a policy on the calls that are kept: what it would have done, had it watched.

use crate::config::snapshot::Snapshot;
use crate::gateway::flight::aside;
use crate::gateway::shadow_report::{Counted, Days, ShadowReport};
use crate::gateway::tally::{self, SAMPLES};
use crate::model::json::read_object;
use crate::model::outcome::Effect;
use crate::policy::rules::{Permission, Policy};
use crate::store::records::{CallRecord, ShadowSample};
use crate::store::{Store, StoreError};

/// Calls that are read at once: with the largest arguments and answers they are a hundred megabytes.
const PAGE: usize = 64;
/// Calls that are read at most.
const MAX_CALLS: usize = 100_000;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Simulation {
    /// What the policy would have done.
    pub report: ShadowReport,
    /// Calls that it is about and that it could not be tried on, since their arguments are not kept.
    pub without_arguments: u64,
    /// Whether there are more calls than are read: the oldest are left out.
    pub is_cut: bool,
}

/// What of an outcome says how the call was decided.
#[derive(Debug, serde::Deserialize)]
struct Told<'a> {
    #[serde(borrow)]
    decision: Option<ToldDecision<'a>>,
}

#[derive(Debug, serde::Deserialize)]
struct ToldDecision<'a> {
    effect: &'a str,
}

/// Tries the policy on the calls of an organisation, the latest first.
pub async fn simulate(
    store: &dyn Store,
    snapshot: &Snapshot,
    organisation: &str,
    policy: &Policy,
    days: Days,
) -> Result<Simulation, StoreError> {
    let mut simulation = Simulation::default();
    let (mut below, mut read) = (i64::MAX, 0);
    loop {
        let (page, next) = store.walk(organisation, days.begin_ms(), below, PAGE).await?;
        aside(|| page.iter().for_each(|call| simulation.judge(snapshot, policy, call)));
        read += page.len();
        let Some(next) = next else { break };
        if read >= MAX_CALLS {
            simulation.is_cut = true;
            break;
        }
        below = next;
    }
    Ok(simulation)
}

impl Simulation {
    fn judge(&mut self, snapshot: &Snapshot, policy: &Policy, call: &CallRecord) {
        // What a tool that is gone did is not known: it counts as one that changes something.
        let read_only = snapshot.tool(&call.tool).is_some_and(|tool| tool.read_only);
        if !policy.is_about(&call.tool, Permission::of(read_only)) {
            return;
        }
        let told: Result<Told<'_>, _> = serde_json::from_slice(&call.outcome);
        let decided = told.ok().and_then(|told| Effect::parse(told.decision?.effect));
        // Nobody decided on a call that was refused before.
        let Some(decided) = decided else { return };
        let arguments = call.arguments.as_deref().and_then(|text| std::str::from_utf8(text).ok());
        let Some(arguments) = arguments.and_then(|text| read_object(text).ok()) else {
            self.without_arguments += 1;
            return;
        };
        let matches = policy.matches(call.context.agent_id.as_deref(), &arguments);
        let disagrees = matches && policy.effect > decided;
        let counted = Counted {
            calls: 1,
            matched: u64::from(matches),
            disagreements: u64::from(disagrees),
            ..Counted::default()
        };
        self.report.add(&call.tool, counted);
        if disagrees && self.report.samples.len() < SAMPLES {
            self.report.samples.push(ShadowSample {
                organisation: call.organisation.to_string(),
                policy: policy.id.to_string(),
                day: tally::day(call.created_at_ms),
                call_id: call.id.as_str().to_owned(),
                tool: call.tool.to_string(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
