//! Policies over many tools: which of them match a call, and the strictest of what they say.
//!
//! Contract, section 6: rules only tighten. One in shadow mode changes nothing but the report.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::model::call::Arguments;
use crate::model::outcome::{Decision, Effect, PolicyName, ShadowRuling};
use crate::policy::approval::ToolPolicy;
use crate::policy::condition::{Absent, Condition};
use crate::policy::identity::Glob;

/// Whether a policy is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It is.
    Enforce,
    /// It only watches.
    Shadow,
}

/// What a tool does to the world, by its annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Permission {
    /// `read_only`.
    Read,
    /// Anything else.
    Write,
}

impl Permission {
    /// That of a tool.
    pub fn of(read_only: bool) -> Self {
        if read_only { Self::Read } else { Self::Write }
    }
}

/// One policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its name, for operators.
    pub id: Arc<str>,
    /// Whether it is in force.
    pub mode: Mode,
    /// The tools that it is about; empty: all.
    pub tools: Vec<Glob>,
    /// The agents whose calls it is about; empty: any. A call without one counts as one of an empty name, which `*` holds.
    pub agents: Vec<Glob>,
    /// The tools that it is about, by what they do; `None`: all.
    pub permission: Option<Permission>,
    /// What must hold of the arguments, all of it.
    pub when: Vec<Condition>,
    /// `when` as text, where there is any.
    pub rule: Option<Arc<str>>,
    /// What it says.
    pub effect: Effect,
    /// What the model reads besides.
    pub message: Option<Arc<str>>,
    /// How long a person may take.
    pub expires: Option<Duration>,
    /// Of two that say the same, whose message is read: the higher one's.
    pub priority: i64,
}

impl Policy {
    /// Whether it can be about calls of this tool.
    pub fn is_about(&self, tool: &str, permission: Permission) -> bool {
        let named = self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool));
        named && self.permission.is_none_or(|one| one == permission)
    }

    /// Whether it matches a call of a tool that it is about.
    pub fn matches(&self, agent: Option<&str>, arguments: &Arguments) -> bool {
        let agent = agent.unwrap_or_default();
        (self.agents.is_empty() || self.agents.iter().any(|glob| glob.matches(agent)))
            && self.when.iter().all(|condition| condition.holds(arguments))
    }

    fn name(&self) -> PolicyName {
        PolicyName::Named(self.id.clone())
    }
}

/// Decides on one call by the tool's own policy and the policies that are about the tool.
pub fn decide(
    own: &ToolPolicy,
    policies: &[Arc<Policy>],
    agent: Option<&str>,
    arguments: &Arguments,
) -> Decision {
    let matching = |mode: Mode| {
        let of_mode = policies.iter().filter(move |policy| policy.mode == mode);
        of_mode.filter(|policy| policy.matches(agent, arguments))
    };
    let mut decision = Decision {
        effect: own.effect,
        then_ask: false,
        policy: PolicyName::Tool,
        rule: None,
        message: None,
        expires: None,
        shadow: Vec::new(),
    };
    let mut strictest: Option<&Policy> = None;
    let mut asks = own.ask_first;
    for policy in matching(Mode::Enforce) {
        asks |= policy.effect == Effect::AskFirst;
        let rank = |policy: &Policy| (policy.effect, policy.priority);
        if strictest.is_none_or(|other| rank(policy) > rank(other)) {
            strictest = Some(policy);
        }
    }
    // Where both say the same the policy is named: it has a message. Nothing needs a reason to be allowed.
    if let Some(policy) = strictest
        && policy.effect >= own.effect
        && policy.effect > Effect::Allow
    {
        decision.effect = policy.effect;
        decision.policy = policy.name();
        decision.rule.clone_from(&policy.rule);
        decision.message.clone_from(&policy.message);
        decision.expires = policy.expires;
    }
    decision.then_ask = asks && decision.effect == Effect::RequireApproval;
    if let Some(candidate) = &own.candidate
        && candidate.when.iter().all(|condition| condition.holds(arguments))
    {
        let others = strictest.map_or(Effect::Allow, |policy| policy.effect);
        let would = candidate.effect.max(others);
        decision.shadow.push(ShadowRuling {
            policy: PolicyName::Candidate,
            effect: candidate.effect,
            rule: None,
            would,
            disagrees: would != decision.effect,
        });
    }
    for policy in matching(Mode::Shadow) {
        decision.shadow.push(ShadowRuling {
            policy: policy.name(),
            effect: policy.effect,
            rule: policy.rule.clone(),
            would: policy.effect.max(decision.effect),
            disagrees: policy.effect > decision.effect,
        });
    }
    decision
}

/// A digest over what is in force of a tool's own policy and the policies that are about it: an approval is bound to it.
/// What only watches changes nothing, nor does the order of the file.
pub fn version(own: &ToolPolicy, policies: &[Arc<Policy>]) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut feed = |text: &str| {
        digest.update(text.len().to_be_bytes());
        digest.update(text);
    };
    feed(own.effect.as_str());
    feed(if own.ask_first { "ask_first" } else { "" });
    let enforced = policies.iter().filter(|policy| policy.mode == Mode::Enforce);
    let mut enforced: Vec<&Policy> = enforced.map(Arc::as_ref).collect();
    enforced.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    for policy in enforced {
        let Policy {
            id,
            mode: _,
            tools,
            agents,
            permission,
            when,
            // Made of `when`.
            rule: _,
            effect,
            // These two say what is read, not what may run.
            message: _,
            priority: _,
            expires,
        } = policy;
        feed(id);
        feed(effect.as_str());
        for globs in [tools, agents] {
            feed(&globs.len().to_string());
            globs.iter().for_each(|glob| feed(glob.as_str()));
        }
        feed(match permission {
            None => "",
            Some(Permission::Read) => "READ",
            Some(Permission::Write) => "WRITE",
        });
        feed(&when.len().to_string());
        for condition in when {
            feed(&condition.to_string());
            feed(match condition.on_absent() {
                Absent::Match => "match",
                Absent::Skip => "skip",
            });
        }
        feed(&expires.map(|expires| expires.as_millis().to_string()).unwrap_or_default());
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests;
