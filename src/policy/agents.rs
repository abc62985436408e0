//! Which agent is offered which tools (contract, section 1).

use std::collections::BTreeMap;

use crate::policy::identity::{Caller, Glob};

/// The agents that the configuration lists, or none: then every agent is offered every tool.
#[derive(Debug, Clone, Default)]
pub struct Agents(Option<BTreeMap<String, Vec<Glob>>>);

impl Agents {
    /// Only these agents, each with the tools that it is offered.
    pub fn listed(agents: BTreeMap<String, Vec<Glob>>) -> Self {
        Self(Some(agents))
    }

    /// The agents by name, each with the tools that it is offered, where any are listed.
    pub fn by_name(&self) -> Option<&BTreeMap<String, Vec<Glob>>> {
        self.0.as_ref()
    }

    /// Whether there is such an agent.
    pub fn knows(&self, agent: &str) -> bool {
        self.0.as_ref().is_none_or(|listed| listed.contains_key(agent))
    }

    /// Whether a call of this tool by this agent may go on; one that names no agent may where none is listed.
    pub fn offers(&self, agent: Option<&str>, tool: &str) -> bool {
        let Some(listed) = &self.0 else { return true };
        agent.and_then(|agent| listed.get(agent)).is_some_and(|globs| holds(globs, tool))
    }

    /// The agents that are offered this tool and for which the caller may speak, in order; `None`: every agent is.
    pub fn of_tool(&self, caller: &Caller, tool: &str) -> Option<Vec<&str>> {
        let listed = self.0.as_ref()?.iter();
        let offered =
            listed.filter(|(agent, globs)| caller.speaks_for(agent) && holds(globs, tool));
        Some(offered.map(|(agent, _)| agent.as_str()).collect())
    }

    /// Whether the caller may know of this tool: its own bounds hold it, and where it is bound to agents, one of them is
    /// offered it.
    pub fn shows(&self, caller: &Caller, tool: &str) -> bool {
        let bound_to_others = || {
            !caller.agents.is_empty() && self.of_tool(caller, tool).is_some_and(|of| of.is_empty())
        };
        caller.may_call(tool) && !bound_to_others()
    }
}

fn holds(globs: &[Glob], tool: &str) -> bool {
    globs.iter().any(|glob| glob.matches(tool))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(list: &[&str]) -> Vec<Glob> {
        list.iter().map(|text| Glob::parse(text).expect("a glob")).collect()
    }

    fn agents() -> Agents {
        let listed = [("support", globs(&["orders.*", "lookup"])), ("idle", Vec::new())];
        Agents::listed(listed.map(|(id, tools)| (id.to_owned(), tools)).into())
    }

    fn caller(agents: &[&str], tools: &[&str]) -> Caller {
        Caller { agents: globs(agents), tools: globs(tools), ..Caller::anonymous() }
    }

    #[track_caller]
    fn check_offer(agent: Option<&str>, tool: &str, expected: bool) {
        assert_eq!(agents().offers(agent, tool), expected, "{agent:?} {tool}");
    }

    #[test]
    fn an_agent_is_offered_its_own_tools_alone() {
        check_offer(Some("support"), "orders.get", true);
        check_offer(Some("support"), "lookup", true);
        check_offer(Some("support"), "lookups", false);
        check_offer(Some("idle"), "lookup", false);
        check_offer(Some("Support"), "lookup", false);
        check_offer(None, "lookup", false);
    }

    #[test]
    fn without_a_list_every_agent_is_offered_everything() {
        let agents = Agents::default();
        assert!(agents.offers(None, "x") && agents.offers(Some("a"), "x") && agents.knows("a"));
        assert_eq!(agents.of_tool(&caller(&[], &[]), "x"), None);
        assert!(agents.shows(&caller(&["a"], &[]), "x"));
    }

    #[track_caller]
    fn check_shown(bounds: &[&str], tools: &[&str], tool: &str, expected: bool) {
        assert_eq!(agents().shows(&caller(bounds, tools), tool), expected, "{bounds:?} {tool}");
    }

    #[test]
    fn a_caller_knows_of_the_tools_of_its_agents() {
        check_shown(&[], &[], "refund", true);
        check_shown(&["support"], &[], "lookup", true);
        check_shown(&["support"], &[], "refund", false);
        check_shown(&["sup*"], &["orders.*"], "orders.get", true);
        check_shown(&["sup*"], &["orders.*"], "lookup", false);
        check_shown(&["idle", "other"], &[], "lookup", false);
        assert_eq!(agents().of_tool(&caller(&["idle"], &[]), "lookup"), Some(Vec::new()));
        assert_eq!(agents().of_tool(&caller(&[], &[]), "lookup"), Some(vec!["support"]));
    }
}
