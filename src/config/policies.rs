//! Compiles `policies`, and the conditions of a tool's candidate.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::config::caller::globs;
use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::raw_condition::RawCondition;
use crate::config::raw_policy::{RawMatch, RawPolicy};
use crate::config::snapshot::Tool;
use crate::config::storage::{Storage, StoreUrl};
use crate::config::yaml::NodeId;
use crate::model::id::random_base62;
use crate::model::json;
use crate::model::outcome::Effect;
use crate::policy::condition::{Absent, Condition, ConditionError};
use crate::policy::rules::{Mode, Permission, Policy};

/// Names of what is no policy of its own, in `decision.policy` and in paths of the API.
const RESERVED: &[&str] = &["candidate", "simulate", "tool"];
/// With this begin the names of policies that the API makes.
const MADE: &str = "pol_";
/// So many letters and digits follow.
const MADE_LENGTH: usize = 16;
const MAX_ID: usize = 64;
const MAX_MESSAGE: usize = 200;
/// Contract, section 6: an approval expires after 60 minutes, or as a rule says; seven days at most.
const MAX_MINUTES: u64 = 7 * 24 * 60;
/// Conditions of one policy.
const MAX_CONDITIONS: usize = 16;

/// A policy with the place that warnings about it have.
#[derive(Debug)]
pub struct Placed {
    /// The policy.
    pub policy: Arc<Policy>,
    tools: Option<NodeId>,
    when: Vec<NodeId>,
}

/// Compiles the policies; their names are unique.
pub fn compile(context: &Context<'_>, given: &Given<Vec<Given<RawPolicy>>>) -> Vec<Placed> {
    let mut ids = HashSet::new();
    let list = given.get().map(Vec::as_slice).unwrap_or_default();
    let policies = list.iter().filter_map(Given::found);
    let placed = policies.filter_map(|(raw, node)| {
        let id = id(context, raw, node, &mut ids);
        policy(context, raw, node, id)
    });
    placed.collect()
}

/// Compiles one policy that the API keeps. Its id is one that the file may use too, or one that was made for it.
pub fn compile_kept(context: &Context<'_>, raw: &RawPolicy, node: NodeId) -> Option<Arc<Policy>> {
    let made = raw.id.get().filter(|id| is_made(id));
    let id = match made {
        Some(id) => Some(id.as_str()),
        None => id(context, raw, node, &mut HashSet::new()),
    };
    policy(context, raw, node, id).map(|placed| placed.policy)
}

/// An id for a policy that comes without one.
pub fn make_id(random: impl Iterator<Item = u8>) -> String {
    format!("{MADE}{}", random_base62(MADE_LENGTH, random))
}

/// Whether an id is of those that are made.
pub fn is_made(id: &str) -> bool {
    let rest = id.strip_prefix(MADE);
    rest.is_some_and(|rest| {
        rest.len() == MADE_LENGTH && rest.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// The policies that can be about calls of this tool.
pub fn about(policies: &[Placed], tool: &str, read_only: bool) -> Vec<Arc<Policy>> {
    let permission = Permission::of(read_only);
    let about = policies.iter().filter(|placed| placed.policy.is_about(tool, permission));
    about.map(|placed| placed.policy.clone()).collect()
}

/// Warns of what works and looks wrong, once the tools are known.
pub fn look_at<'t>(
    context: &Context<'_>,
    policies: &[Placed],
    tools: impl Iterator<Item = &'t Tool> + Clone,
) {
    for placed in policies {
        let about = |tool: &&Tool| tool.policies.iter().any(|one| one.id == placed.policy.id);
        let mut about: Vec<&Tool> = tools.clone().filter(about).collect();
        about.sort_unstable_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        if let (true, Some(node)) = (about.is_empty(), placed.tools) {
            context.report.warn(node, "names no tool of this configuration");
        }
        for (condition, node) in placed.policy.when.iter().zip(&placed.when) {
            let may_lack = about.iter().find(|tool| !requires(tool, condition.pointer()));
            if let Some(tool) = may_lack {
                let pointer = condition.pointer();
                let consequence = match condition.on_absent() {
                    Absent::Match => "matches",
                    Absent::Skip => "does not match",
                };
                let message = format!(
                    "`{pointer}` is not required by `{}`: a call without it {consequence}",
                    tool.name
                );
                context.report.warn(*node, message);
            }
        }
    }
}

/// Warns where a call can wait for a person and nothing outlives the process.
pub fn look_at_waits<'t>(
    context: &Context<'_>,
    root: NodeId,
    storage: &Storage,
    mut tools: impl Iterator<Item = &'t Tool>,
) {
    let waits = |effect| matches!(effect, Effect::AskFirst | Effect::RequireApproval);
    let may_wait = |tool: &Tool| {
        let policies = tool.policies.iter().filter(|policy| policy.mode == Mode::Enforce);
        let others = policies.map(|policy| policy.effect).any(waits);
        tool.enabled && tool.policy.effect != Effect::Deny && (waits(tool.policy.effect) || others)
    };
    if storage.url == StoreUrl::Memory && tools.any(may_wait) {
        let message = "waiting calls are lost when the gateway restarts; set `storage`";
        context.report.warn_below(root, &["storage"], message);
    }
}

/// Whether a tool's schema sees to it that the arguments have this value, as far as `properties` and `required` say.
fn requires(tool: &Tool, pointer: &str) -> bool {
    let schema = tool.parameters.as_ref().and_then(|text| serde_json::from_str(text.get()).ok());
    let mut at: Option<&Value> = schema.as_ref();
    for step in pointer.split('/').skip(1) {
        let name = json::pointer_name(step);
        let Some(object) = at else { return false };
        let required = object.get("required").and_then(Value::as_array);
        if !required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(&name))) {
            return false;
        }
        at = object.get("properties").and_then(|properties| properties.get(&name));
    }
    true
}

fn policy(
    context: &Context<'_>,
    raw: &RawPolicy,
    node: NodeId,
    id: Option<&str>,
) -> Option<Placed> {
    let hint = "write ask_first, require_approval or deny";
    let effect = context.required(node, "effect", &raw.effect, hint);
    let effect = effect.map(|(effect, node)| {
        if effect.effect() == Effect::Allow {
            context.report.warn(node, "changes nothing, policies only tighten");
        }
        effect.effect()
    });
    let message = raw.message.found().map(|(text, node)| {
        let fits = (1..=MAX_MESSAGE).contains(&text.chars().count());
        if !fits || text.trim() != text || text.chars().any(char::is_control) {
            let message = format!(
                "must be a sentence of 1 to {MAX_MESSAGE} characters, without line ends, or white space around it"
            );
            context.report.error(node, message);
        }
        Arc::from(text.as_str())
    });
    let minutes = raw
        .expires_minutes
        .found()
        .map(|(minutes, node)| context.number(Some((*minutes, node)), 60, 1..=MAX_MINUTES));
    let nothing = RawMatch::default();
    let matching = raw.matching.get().unwrap_or(&nothing);
    let conditions = conditions(context, &matching.when);
    let (when, places): (Vec<_>, Vec<_>) = conditions.into_iter().unzip();
    let texts: Vec<_> = when.iter().map(Condition::to_string).collect();
    let policy = Policy {
        id: id?.into(),
        mode: raw.mode.get().copied().unwrap_or(Mode::Enforce),
        tools: globs(context, &matching.tools),
        agents: globs(context, &matching.agents),
        permission: matching.permission.get().copied(),
        rule: (!texts.is_empty()).then(|| texts.join(" and ").into()),
        when,
        effect: effect?,
        message,
        expires: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
        priority: raw.priority.get().copied().unwrap_or(0),
    };
    Some(Placed { policy: Arc::new(policy), tools: matching.tools.node(), when: places })
}

fn id<'g>(
    context: &Context<'_>,
    raw: &'g RawPolicy,
    node: NodeId,
    ids: &mut HashSet<&'g str>,
) -> Option<&'g str> {
    let hint = "it stands in decisions and reports";
    let (id, node) = context.required(node, "id", &raw.id, hint)?;
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let fits = id.starts_with(|c: char| c.is_ascii_lowercase()) && id.chars().all(is_plain);
    if !fits || id.len() > MAX_ID {
        let message = format!(
            "must be 1 to {MAX_ID} lower-case letters, digits, `-` and `_`, and begin with a letter"
        );
        context.report.error(node, message);
    } else if RESERVED.contains(&id.as_str()) || id.starts_with(MADE) {
        context.report.error(node, format!("`{id}` has a meaning of its own, choose another name"));
    } else if !ids.insert(id) {
        context.report.error(node, format!("another policy is named `{id}` too"));
    }
    Some(id)
}

/// Compiles conditions, each with its place.
pub fn conditions(
    context: &Context<'_>,
    given: &Given<Vec<Given<RawCondition>>>,
) -> Vec<(Condition, NodeId)> {
    let Some((list, node)) = given.found() else { return Vec::new() };
    if !(1..=MAX_CONDITIONS).contains(&list.len()) {
        let message = format!("must be 1 to {MAX_CONDITIONS} conditions, or left out");
        context.report.error(node, message);
    }
    let conditions = list.iter().filter_map(Given::found);
    conditions.filter_map(|(raw, node)| Some((condition(context, raw, node)?, node))).collect()
}

fn condition(context: &Context<'_>, raw: &RawCondition, node: NodeId) -> Option<Condition> {
    let hint = "write a JSON pointer such as /amount";
    let pointer = context.required(node, "pointer", &raw.pointer, hint);
    let operator = context.required(node, "operator", &raw.operator, "write one such as equals");
    let hint = "write what the value is compared with";
    let threshold = context.required(node, "threshold", &raw.threshold, hint);
    let on_absent = raw.on_absent.get().copied();
    let ((pointer, pointer_node), (operator, _), (threshold, threshold_node)) =
        (pointer?, operator?, threshold?);
    let made = Condition::new(pointer, *operator, threshold.clone(), on_absent);
    let wrong = |error: ConditionError| {
        let node = match error {
            ConditionError::Pointer => pointer_node,
            ConditionError::NoNumber(_) | ConditionError::NoScalar(_) | ConditionError::NoList => {
                threshold_node
            }
        };
        context.report.error(node, error.to_string());
    };
    made.map_err(wrong).ok()
}
