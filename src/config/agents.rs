//! Compiles `agents`: which agents there are, and which tools each is offered.

use std::collections::{BTreeMap, HashSet};

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::raw::RawAgent;
use crate::config::raw_tool::RawTool;
use crate::policy::agents::Agents;
use crate::policy::identity::Glob;

/// The names in a list of tools, also of those that have errors of their own.
pub fn tool_names<'c>(
    context: &'c Context<'_>,
    given: &Given<Vec<Given<RawTool>>>,
) -> HashSet<&'c str> {
    let document = context.report.document;
    let tools = given.get().map(Vec::as_slice).unwrap_or_default().iter();
    let names = tools.filter_map(|tool| document.child(tool.node()?, "name"));
    names.filter_map(|name| document.text(name)).collect()
}

/// Compiles the list; `tools` are the names of all tools.
pub fn compile(
    context: &Context<'_>,
    given: &Given<Vec<Given<RawAgent>>>,
    tools: &HashSet<&str>,
) -> Agents {
    let Some((list, node)) = given.found() else { return Agents::default() };
    if list.is_empty() {
        let message = "is empty, list an agent or leave it out: then every agent has every tool";
        context.report.error(node, message);
    }
    let mut agents = BTreeMap::new();
    for (raw, node) in list.iter().filter_map(Given::found) {
        let id = context.required(node, "id", &raw.id, "it is what a call gives as `agent_id`");
        let hint = "write for example [\"orders.*\"], or [\"*\"] for all";
        let globs = context.required(node, "tools", &raw.tools, hint);
        let globs = globs.map(|(list, _)| globs_of(context, list, tools)).unwrap_or_default();
        let Some((id, node)) = id else { continue };
        if !is_id(id) {
            let message = "an agent's id is 1 to 128 visible ASCII characters and no pattern";
            context.report.error(node, message);
        }
        if agents.insert(id.clone(), globs).is_some() {
            context.report.error(node, format!("another agent has the id `{id}` too"));
        }
    }
    Agents::listed(agents)
}

fn is_id(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b'*')
}

/// A name that is no tool's is a mistake; a pattern may be waiting for its tools.
fn globs_of(context: &Context<'_>, list: &[Given<String>], tools: &HashSet<&str>) -> Vec<Glob> {
    let mut globs = Vec::new();
    for (text, node) in list.iter().filter_map(Given::found) {
        let glob = match Glob::parse(text) {
            Ok(glob) => glob,
            Err(error) => {
                context.report.error(node, error.to_string());
                continue;
            }
        };
        match glob.literal() {
            Some(name) if !tools.contains(name) => {
                context.report.error(node, format!("there is no tool named `{name}`"));
            }
            None if !tools.iter().any(|name| glob.matches(name)) => {
                context.report.warn(node, format!("`{text}` matches no tool"));
            }
            Some(_) | None => {}
        }
        globs.push(glob);
    }
    globs
}
