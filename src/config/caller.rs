//! What keys and certificates have in common: a name, an organisation, scopes and bounds.

use std::collections::HashSet;

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::organisations::of_caller;
use crate::config::raw_auth::RawScope;
use crate::config::snapshot::Organisation;
use crate::config::yaml::NodeId;
use crate::policy::identity::{Caller, Glob, Proof, Scope};

/// A caller as it is written.
pub struct RawCaller<'g> {
    /// By what it is known.
    pub proof: Proof,
    /// `name`.
    pub name: &'g Given<String>,
    /// `organisation`.
    pub organisation: &'g Given<String>,
    /// Those that there are.
    pub organisations: &'g [Organisation],
    /// `scopes`.
    pub scopes: &'g Given<Vec<Given<RawScope>>>,
    /// `agents`.
    pub agents: &'g Given<Vec<Given<String>>>,
    /// `tools`.
    pub tools: &'g Given<Vec<Given<String>>>,
}

/// Compiles a caller; `names` are those before it, since each stands for one caller in the log.
pub fn caller<'g>(
    context: &Context<'_>,
    node: NodeId,
    raw: &RawCaller<'g>,
    names: &mut HashSet<&'g str>,
) -> Caller {
    let name = context.required(node, "name", raw.name, "it stands in log lines");
    if let Some((name, node)) = name {
        if !(1..=64).contains(&name.chars().count()) {
            context.report.error(node, "must have 1 to 64 characters");
        }
        if !names.insert(name) {
            let kind = if raw.proof == Proof::Certificate { "caller" } else { "key" };
            context.report.error(node, format!("another {kind} is named `{name}` too"));
        }
    }
    let hint = "write for example [agent, \"agent:call\"]";
    let list = context.required(node, "scopes", raw.scopes, hint);
    Caller {
        name: name.map(|(name, _)| name.as_str().into()).unwrap_or_default(),
        proof: raw.proof,
        organisation: of_caller(context, raw.organisations, node, raw.organisation).into(),
        scopes: list.map(|(list, node)| scopes(context, list, node)).unwrap_or_default(),
        agents: globs(context, raw.agents),
        tools: globs(context, raw.tools),
    }
}

/// Compiles a list of scopes.
pub fn scopes(context: &Context<'_>, list: &[Given<RawScope>], node: NodeId) -> Vec<Scope> {
    if list.is_empty() {
        let message = "is empty, write for example [agent, \"agent:call\"]";
        context.report.error(node, message);
    }
    let scopes = list.iter().filter_map(Given::get).map(|scope| match scope {
        RawScope::Agent => Scope::Agent,
        RawScope::Approve => Scope::AgentApprove,
        RawScope::Call => Scope::AgentCall,
        RawScope::Policy => Scope::AgentPolicy,
        RawScope::Write => Scope::AgentWrite,
    });
    let scopes: Vec<_> = scopes.collect();
    if scopes.contains(&Scope::AgentCall) && scopes.contains(&Scope::AgentApprove) {
        context.report.warn(node, "lets one key run calls and approve them, use two keys");
    }
    scopes
}

/// The globs of a bound. A list that is given and empty would bind to nothing and read as everything.
pub fn globs(context: &Context<'_>, given: &Given<Vec<Given<String>>>) -> Vec<Glob> {
    let Some((list, node)) = given.found() else { return Vec::new() };
    if list.is_empty() {
        context.report.error(node, "is empty, name one or leave it out for all");
    }
    let globs = list.iter().filter_map(Given::found).filter_map(|(text, node)| {
        let glob = Glob::parse(text);
        glob.map_err(|error| context.report.error(node, error.to_string())).ok()
    });
    globs.collect()
}
