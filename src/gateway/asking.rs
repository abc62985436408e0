//! What makes a request a call at all: names that are known here, fields that its tool needs, and the key's bounds.

use std::sync::Arc;

use crate::config::snapshot::Tool;
use crate::model::call::ToolCall;
use crate::net::epoch::Epoch;
use crate::policy::identity::Caller;

/// A request that is no call of this tool: the runtime's own mistake, told as an error of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The profile sends an Idempotency-Key, which is made of it.
    #[error("`{0}` is required: the tool is sent an Idempotency-Key that is made of it")]
    Missing(&'static str),
    /// A credential whose value cannot be a header's.
    #[error("`{name}`: {reason}")]
    Credential {
        /// The header's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A credential that the tool does not list.
    #[error("`{0}` is not among the tool's accept_credentials")]
    UnlistedCredential(String),
}

/// The tool under the name that it has here, and what makes the request a call of it at all.
pub fn resolve_names(epoch: &Epoch, caller: &Caller, call: &mut ToolCall) -> Result<(), Malformed> {
    let known = epoch.snapshot.tool_by_any_name(&call.tool);
    // To a key that is not bound to it, a tool's other name is nobody's.
    if let Some(tool) = known.filter(|tool| caller.may_call(tool.name.as_str())) {
        tool.name.as_str().clone_into(&mut call.tool);
        well_formed(tool, call)?;
    } else if known.is_none()
        && let Some(name) = epoch.snapshot.unread_by_any_name(&call.tool)
        && caller.may_call(name.as_str())
    {
        name.as_str().clone_into(&mut call.tool);
    }
    Ok(())
}

/// Fills the agent in where the key knows it; `false` where the call is outside the key's bounds.
pub(super) fn hold(caller: &Caller, call: &mut ToolCall) -> bool {
    let agent = caller.agent(call.context.agent_id.as_deref());
    let Ok(agent) = agent else { return false };
    Arc::make_mut(&mut call.context).agent_id = agent;
    caller.may_call(&call.tool)
}

/// Whether the call, whose agent is filled in, is inside of the key's bounds.
pub(super) fn bounds_hold(caller: &Caller, call: &ToolCall) -> bool {
    let agent = call.context.agent_id.as_deref();
    let is_spoken_for = match agent {
        Some(agent) => caller.speaks_for(agent),
        None => caller.agents.is_empty(),
    };
    is_spoken_for && caller.may_call(&call.tool)
}

fn well_formed(tool: &Tool, call: &ToolCall) -> Result<(), Malformed> {
    if tool.profile.needs_run() {
        if call.context.run_id.is_none() {
            return Err(Malformed::Missing("run_id"));
        }
        if call.context.step.is_none() {
            return Err(Malformed::Missing("step"));
        }
    }
    let listed =
        |name: &str| tool.accept_credentials.iter().any(|one| one.eq_ignore_ascii_case(name));
    for (name, value) in &call.credentials {
        if !listed(name) {
            return Err(Malformed::UnlistedCredential(name.clone()));
        }
        let checked = tool.profile.check_own_header(name, value.clone());
        let reason = match checked {
            Ok(_) if value.is_empty() => "is empty, leave it out".into(),
            Ok(_) => continue,
            Err(error) => error.to_string(),
        };
        return Err(Malformed::Credential { name: name.clone(), reason });
    }
    Ok(())
}
