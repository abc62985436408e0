//! Policies over many tools, and what agents are offered.

use std::sync::Arc;

use crate::config::change::{Changes, Kind, Told, pairs};
use crate::config::leaf::Span;
use crate::model::outcome::Effect;
use crate::policy::agents::Agents;
use crate::policy::condition::{Absent, Condition};
use crate::policy::identity::Glob;
use crate::policy::rules::{Mode, Permission, Policy};

/// Compares what agents are offered.
pub(super) fn compare_agents(changes: &mut Changes, old: &Agents, new: &Agents) {
    let (old, new) = (old.by_name(), new.by_name());
    let (Some(old), Some(new)) = (old, new) else {
        let told = |listed: bool| {
            Told::number(u8::from(listed), if listed { "listed" } else { "any, all tools" })
        };
        return changes.compare(
            Kind::AgentsListed,
            "agents",
            &told(old.is_some()),
            &told(new.is_some()),
        );
    };
    for (id, old, new) in pairs(old, new) {
        let path = format!("agents.{id}");
        let told = |globs: &Vec<Glob>| Told::items(globs.iter().map(Glob::as_str), "none");
        if let (Some(old), Some(new)) = (old, new) {
            changes.compare(Kind::AgentTools, format!("{path}.tools"), &told(old), &told(new));
        } else {
            let text = |globs: Option<&Vec<Glob>>| {
                globs.map(|globs| globs.iter().map(Glob::as_str).collect::<Vec<_>>().join(", "))
            };
            let (old, new) = (text(old), text(new));
            changes.appears(Kind::Agent, path, old.as_deref(), new.as_deref());
        }
    }
}

/// Compares all policies by their names.
pub(super) fn compare_all(changes: &mut Changes, old: &[Arc<Policy>], new: &[Arc<Policy>]) {
    fn by_name(policies: &[Arc<Policy>]) -> impl Iterator<Item = (&str, &Policy)> {
        policies.iter().map(|policy| (&*policy.id, &**policy))
    }
    for (id, old, new) in pairs(by_name(old), by_name(new)) {
        let path = format!("policies.{id}");
        changes.compare(Kind::Policy, &path, &strength(old), &strength(new));
        if let (Some(old), Some(new)) = (old, new) {
            compare(changes, &path, old, new);
        }
    }
}

/// How much a policy closes: one that only watches, or allows, closes nothing.
fn strength(policy: Option<&Policy>) -> Told {
    match policy {
        None => Told::number(0_u8, "none"),
        Some(Policy { mode: Mode::Shadow, effect, .. }) => {
            Told::number(0_u8, format!("{}, which only watches", effect.as_str()))
        }
        Some(Policy { mode: Mode::Enforce, effect, .. }) => {
            Told::number(effect.rank(), effect.as_str())
        }
    }
}

fn compare(changes: &mut Changes, path: &str, old: &Policy, new: &Policy) {
    let Policy {
        // By it the two were found.
        id: _,
        // These two are its strength.
        mode,
        effect,
        tools,
        agents,
        permission,
        when,
        // Made of `when`.
        rule: _,
        message,
        expires,
        priority,
    } = old;
    let closes = |mode: Mode, effect: Effect| mode == Mode::Enforce && effect > Effect::Allow;
    // Where one of the two closes nothing, that is what changed, and the rest is detail.
    let counts = closes(*mode, *effect) && closes(new.mode, new.effect);
    let mut compare = |kind, key: &str, old: &Told, new: &Told| {
        let kind = if counts { kind } else { Kind::Setting };
        changes.compare(kind, format!("{path}.{key}"), old, new);
    };
    let globs = |globs: &[Glob]| Told::items(globs.iter().map(Glob::as_str), "any");
    compare(Kind::PolicyTools, "match.tools", &globs(tools), &globs(&new.tools));
    compare(Kind::PolicyAgents, "match.agents", &globs(agents), &globs(&new.agents));
    let word = |permission: &Option<Permission>| {
        let word = permission.map(|permission| match permission {
            Permission::Read => "READ",
            Permission::Write => "WRITE",
        });
        Told::items(word, "any")
    };
    let (before, after) = (word(permission), word(&new.permission));
    compare(Kind::PolicyPermission, "match.permission", &before, &after);
    let told = |when: &[Condition]| Told::items(conditions(when), "none");
    compare(Kind::PolicyConditions, "match.when", &told(when), &told(&new.when));
    let text = |text: &Option<Arc<str>>| Told::text(text.as_deref().unwrap_or("none"));
    compare(Kind::Setting, "message", &text(message), &text(&new.message));
    let time = |time: &Option<std::time::Duration>| {
        Told::text(time.map_or("the default".into(), |time| Span(time).to_string()))
    };
    compare(Kind::Setting, "expires_minutes", &time(expires), &time(&new.expires));
    compare(Kind::Setting, "priority", &Told::text(priority), &Told::text(new.priority));
}

/// Conditions as texts, each with what it says of what is absent.
pub(super) fn conditions(when: &[Condition]) -> Vec<String> {
    let text = |condition: &Condition| {
        let absent = match condition.on_absent() {
            Absent::Match => "match",
            Absent::Skip => "skip",
        };
        format!("{condition} (absent: {absent})")
    };
    when.iter().map(text).collect()
}
