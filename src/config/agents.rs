//! Compiles `agents`: which agents there are, and which tools each is offered.

use std::collections::{BTreeMap, HashSet};

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::names::{Names, Taken};
use crate::config::raw::RawAgent;
use crate::config::raw_tool::RawTool;
use crate::config::tools::Clash;
use crate::config::yaml::NodeId;
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

/// The agents of one text.
#[derive(Debug, Default)]
pub struct Listed {
    /// Each with the tools that it is offered.
    pub agents: BTreeMap<String, Vec<Glob>>,
    /// Their ids.
    pub ids: Names,
    /// Every glob with its place: whether there are such tools is known once all files are read.
    pub offers: Vec<Offer>,
}

/// One entry of an agent's tools.
#[derive(Debug)]
pub struct Offer {
    glob: Glob,
    text: String,
    /// Its place.
    pub node: NodeId,
}

/// What is wrong with an offer, in words.
#[derive(Debug)]
pub enum Problem {
    /// The name is no tool's.
    Unknown(String),
    /// The pattern may be waiting for its tools.
    Unmatched(String),
}

impl Offer {
    /// What is to be said where no tool has such a name.
    pub fn problem(&self, tools: &HashSet<&str>) -> Option<Problem> {
        match self.glob.literal() {
            Some(name) if !tools.contains(name) => {
                Some(Problem::Unknown(format!("there is no tool named `{name}`")))
            }
            None if !tools.iter().any(|name| self.glob.matches(name)) => {
                Some(Problem::Unmatched(format!("`{}` matches no tool", self.text)))
            }
            Some(_) | None => None,
        }
    }
}

/// Compiles the list of the main file; `None` where there is none. It may be empty where further files have agents.
pub fn listed(
    context: &Context<'_>,
    given: &Given<Vec<Given<RawAgent>>>,
    has_more: bool,
) -> Option<Listed> {
    // A list that could not be read is reported as such.
    let node = given.node()?;
    let list = given.get().map(Vec::as_slice).unwrap_or_default();
    if given.get().is_some_and(Vec::is_empty) && !has_more {
        let message = "is empty, list an agent or leave it out: then every agent has every tool";
        context.report.error(node, message);
    }
    Some(compile(context, list, &Names::default(), Clash::Error))
}

/// Compiles a list; `taken` are ids of other files.
pub fn compile(
    context: &Context<'_>,
    list: &[Given<RawAgent>],
    taken: &Names,
    clash: Clash,
) -> Listed {
    let mut listed = Listed::default();
    for (raw, node) in list.iter().filter_map(Given::found) {
        let id = context.required(node, "id", &raw.id, "it is what a call gives as `agent_id`");
        let elsewhere = id.and_then(|(id, node)| taken.taken(context.report, id, node));
        if elsewhere.is_some() && clash == Clash::Skip {
            continue;
        }
        let hint = "write for example [\"orders.*\"], or [\"*\"] for all";
        let globs = context.required(node, "tools", &raw.tools, hint);
        let offers = globs.map(|(list, _)| offers(context, list)).unwrap_or_default();
        let globs = offers.iter().map(|offer| offer.glob.clone()).collect();
        listed.offers.extend(offers);
        let Some((id, node)) = id else { continue };
        if !is_id(id) {
            let message = "an agent's id is 1 to 128 visible ASCII characters and no pattern";
            context.report.error(node, message);
        }
        let taken = || listed.ids.take(context.report, id, id, node);
        if let Err(Taken { place, .. }) = elsewhere.map_or_else(taken, Err) {
            context.report.error(node, format!("another agent has the id `{id}` too, {place}"));
        }
        listed.agents.insert(id.clone(), globs);
    }
    listed
}

/// Tells of the main file's offers of no tool. Where further files have tools, one that is broken or gone must not take
/// the main file along.
pub fn look_at(context: &Context<'_>, offers: Vec<Offer>, tools: &HashSet<&str>, has_more: bool) {
    for offer in offers {
        match offer.problem(tools) {
            Some(Problem::Unknown(message)) if has_more => context.lacking(offer.node, message),
            Some(Problem::Unknown(message)) => context.report.error(offer.node, message),
            Some(Problem::Unmatched(message)) => context.report.warn(offer.node, message),
            None => {}
        }
    }
}

fn is_id(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && b != b'*')
}

fn offers(context: &Context<'_>, list: &[Given<String>]) -> Vec<Offer> {
    let offer = |(text, node): (&String, NodeId)| match Glob::parse(text) {
        Ok(glob) => Some(Offer { glob, text: text.clone(), node }),
        Err(error) => {
            context.report.error(node, error.to_string());
            None
        }
    };
    list.iter().filter_map(Given::found).filter_map(offer).collect()
}
