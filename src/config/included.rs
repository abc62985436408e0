//! Compiles the files that a configuration includes, each for itself: what is wrong with one is no other's fault.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::config::agents::{Offer, Problem};
use crate::config::context::{Context, FoundFile};
use crate::config::egress::Egress;
use crate::config::file::{File, Standing, Unread, label};
use crate::config::finding::{Finding, Report};
use crate::config::given::{Given, List};
use crate::config::leaf::Verbatim;
use crate::config::limits::Defaults;
use crate::config::names::Names;
use crate::config::policies::Placed;
use crate::config::profiles::Profiles;
use crate::config::raw::{LATER, MAIN_ONLY, RawIncluded, RawSecrets};
use crate::config::snapshot::Tool;
use crate::config::tools::{self, Clash, Home};
use crate::config::yaml::{Document, Kind, NodeId};
use crate::config::{agents, read, redact};
use crate::model::id::ToolName;
use crate::policy::export;
use crate::policy::identity::Glob;

/// More files than this are a pattern that was not meant.
const MAX_FILES: usize = 1000;

/// What the main file gives to those that it includes.
pub struct Main<'a> {
    /// Its own context.
    pub context: &'a Context<'a>,
    /// Its name.
    pub file: &'a str,
    /// The wire formats that every tool may choose from.
    pub profiles: &'a Profiles,
    /// The rules that every URL is judged by.
    pub egress: &'a Egress,
    /// What holds for a tool that says nothing itself.
    pub defaults: &'a Defaults,
    /// The policies over many tools.
    pub policies: &'a [Placed],
    /// Where signing secrets are.
    pub secrets: Option<&'a Path>,
    /// Whether it has a list of agents: no other file decides whether agents are bound at all.
    pub lists_agents: bool,
}

/// What came of the included files.
#[derive(Default)]
pub struct Included {
    /// The tools of all of them.
    pub tools: HashMap<ToolName, Arc<Tool>>,
    /// Tools of broken ones.
    pub unread: HashMap<ToolName, Unread>,
    /// Their agents, each with the tools that it is offered.
    pub agents: BTreeMap<String, Vec<Glob>>,
    /// How each of them stands, in the order in which names were taken.
    pub files: Vec<File>,
    /// The text that is in force of each of them, by its label.
    pub in_force: Vec<(String, Option<Arc<str>>)>,
    /// What looks wrong.
    pub warnings: Vec<Finding>,
    /// What an operator may see of them.
    pub redacted: Vec<Value>,
    offers: Vec<(Offer, Finding)>,
}

/// Names that files have taken.
#[derive(Default)]
pub struct Claims {
    /// Of tools.
    pub tools: Names,
    /// Of profiles.
    pub profiles: Names,
    /// Ids of agents.
    pub agents: Names,
}

/// A tool of which the name could be read, whatever else is wrong.
#[derive(Clone)]
struct Readable {
    name: ToolName,
    owner: Option<String>,
    line: usize,
}

/// One text, compiled.
#[derive(Default)]
struct Part {
    tools: HashMap<ToolName, Arc<Tool>>,
    taken: Claims,
    agents: BTreeMap<String, Vec<Glob>>,
    /// Each with a finding at its place, for what is to be said of it.
    offers: Vec<(Offer, Finding)>,
    names: Vec<Readable>,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    redacted: Value,
}

/// Reads and compiles what `list` names. `taken` are the main file's own names.
pub fn compile(main: &Main<'_>, list: &List<Verbatim>, mut taken: Claims) -> Included {
    let mut included = Included::default();
    for found in find(main.context, list) {
        let file = main.file(&found, &mut taken, &mut included);
        included.files.push(file);
    }
    included
}

impl Included {
    /// The names of tools, also of those of which no more is known.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().chain(self.unread.keys()).map(ToolName::as_str)
    }

    /// Tells of offers of no tool, once `tools` are all names.
    pub fn look_at_offers(&mut self, tools: &HashSet<&str>) {
        for (offer, finding) in std::mem::take(&mut self.offers) {
            let problem = offer.problem(tools);
            if let Some(Problem::Unknown(message) | Problem::Unmatched(message)) = problem {
                self.warnings.push(Finding { message, ..finding });
            }
        }
    }
}

/// The folder that `secrets.dir` names.
pub fn secrets_folder(context: &Context<'_>, given: &Given<RawSecrets>) -> Option<PathBuf> {
    let (Verbatim(text), node) = given.get()?.dir.found()?;
    if text.is_empty() {
        context.report.error(node, "must not be empty");
        return None;
    }
    Some(context.folder(node).join(text))
}

/// The files that are named, each once and in the order of their paths. The main file is none of them.
fn find(context: &Context<'_>, list: &List<Verbatim>) -> Vec<FoundFile> {
    let list = list.get().map(Vec::as_slice).unwrap_or_default();
    let mut files = BTreeMap::new();
    for (Verbatim(text), node) in list.iter().filter_map(Given::found) {
        for found in matching(context, text, node) {
            let own = |file: &String| plain(Path::new(file)) == plain(&found.path);
            if !context.report.files().iter().any(own) {
                files.entry(plain(&found.path)).or_insert(found);
            }
        }
    }
    files.into_values().collect()
}

fn matching(context: &Context<'_>, text: &str, node: NodeId) -> Vec<FoundFile> {
    if text.is_empty() || text.contains("**") {
        let message =
            "must be a file or a pattern such as `tools.d/*.yaml`; `*` stays in one folder";
        context.report.error(node, message);
        return Vec::new();
    }
    match (context.environment.include)(&context.folder(node).join(text)) {
        Ok(found) if found.len() > MAX_FILES => {
            let message = format!("names {} files, {MAX_FILES} at most", found.len());
            context.report.error(node, message);
            Vec::new()
        }
        Ok(found) => {
            if found.is_empty() {
                context.report.warn(node, format!("no file matches `{text}`"));
            }
            found
        }
        Err(error) => {
            context.report.error(node, format!("file `{text}` {error}"));
            Vec::new()
        }
    }
}

/// A path without `.`, so that two spellings of it are one.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

impl Main<'_> {
    /// Compiles one file, or else what it was before; whatever comes of it is added.
    fn file(&self, found: &FoundFile, taken: &mut Claims, included: &mut Included) -> File {
        let name = found.path.display().to_string();
        let label = label(self.file, &name);
        let part = match &found.text {
            Ok(text) => self.part(&name, text, taken, Clash::Error),
            Err(fault) => {
                let errors = vec![Finding::of_fault(&name, fault.clone())];
                Part { errors, ..Part::default() }
            }
        };
        let (standing, good, part, errors) = match &found.text {
            Ok(text) if part.errors.is_empty() => {
                (Standing::Current, Some(text.clone()), part, Vec::new())
            }
            _ => {
                let earlier = self.context.environment.earlier;
                let good = earlier.and_then(|earlier| earlier.text(&name)).cloned();
                let (standing, kept) = self.kept(&name, good.as_deref(), &part.names, taken);
                (standing, good, kept, part.errors)
            }
        };
        let in_force = good.clone().filter(|_| standing != Standing::Unavailable);
        included.in_force.push((label.clone(), in_force));
        included.warnings.extend(part.warnings);
        if standing == Standing::Unavailable {
            // They stay its own: no other file is to take calls of them meanwhile.
            for Readable { name: tool, owner, line } in part.names {
                if taken.tools.reserve(&export::name(tool.as_str()), tool.as_str(), &name, line) {
                    included.unread.insert(tool, Unread { owner, file: label.as_str().into() });
                }
            }
        } else {
            included.redacted.push(part.redacted);
            included.tools.extend(part.tools);
            included.agents.extend(part.agents);
            included.offers.extend(part.offers);
        }
        taken.tools.extend(part.taken.tools);
        taken.profiles.extend(part.taken.profiles);
        taken.agents.extend(part.taken.agents);
        File { name, label, standing, errors, good }
    }

    /// What stands for a broken file: its last good text, judged by what the main file says now, or the names of its tools
    /// alone.
    fn kept(
        &self,
        name: &str,
        good: Option<&str>,
        names: &[Readable],
        taken: &Claims,
    ) -> (Standing, Part) {
        let mut part = match good {
            Some(text) => self.part(name, text, taken, Clash::Skip),
            None => Part::default(),
        };
        if good.is_some() && part.errors.is_empty() {
            for warning in &mut part.warnings {
                warning.message.push_str(" (in the text that is kept)");
            }
            return (Standing::Kept, part);
        }
        let names = part.names.into_iter().chain(names.iter().cloned());
        (Standing::Unavailable, Part { names: names.collect(), ..Part::default() })
    }

    /// Compiles one text.
    fn part(&self, name: &str, text: &str, taken: &Claims, clash: Clash) -> Part {
        let (document, faults) = Document::parse(text);
        let errors = faults.into_iter().map(|fault| Finding::of_fault(name, fault)).collect();
        let Some(document) = document else { return Part { errors, ..Part::default() } };
        let report = Report::new(name.to_owned(), errors, &document);
        let raw: Given<RawIncluded> = read::read_part(&report, LATER, MAIN_ONLY);
        let context = Context { report: &report, ..*self.context };
        let mut part = Part { names: readable(&document), ..Part::default() };
        if let Some(raw) = raw.get() {
            self.compile(&context, raw, taken, clash, &mut part);
        }
        part.redacted = redact::redacted(&document);
        (part.errors, part.warnings) = report.into_findings();
        part
    }

    fn compile(
        &self,
        context: &Context<'_>,
        raw: &RawIncluded,
        taken: &Claims,
        clash: Clash,
        part: &mut Part,
    ) {
        let mut profiles = self.profiles.clone();
        let none = Names::default();
        let others = if clash == Clash::Error { &taken.profiles } else { &none };
        part.taken.profiles = profiles.add(context, &raw.profiles, others);
        let own = secrets_folder(context, &raw.secrets);
        let home = Home {
            main: self.file,
            owner: raw.owner.get().map(String::as_str),
            runbook: raw.runbook.get().map(String::as_str),
            secrets: own.as_deref().or(self.secrets),
            taken: &taken.tools,
            clash,
        };
        (part.tools, part.taken.tools) = tools::compile(
            context,
            &raw.tools,
            &profiles,
            self.egress,
            self.defaults,
            self.policies,
            &home,
        );
        let Some((list, node)) = raw.agents.found() else { return };
        if !self.lists_agents {
            let message = "needs a list in the main file too, an empty one will do: \
                           without one every agent is offered every tool";
            context.report.error(node, message);
        }
        let listed = agents::compile(context, list, &taken.agents, clash);
        let placed = |offer: Offer| {
            let place = context.report.finding(offer.node, "");
            (offer, place)
        };
        part.offers = listed.offers.into_iter().map(placed).collect();
        (part.agents, part.taken.agents) = (listed.agents, listed.ids);
    }
}

/// The tools of a text whose names can be read.
fn readable(document: &Document) -> Vec<Readable> {
    let text = |node, key| document.text(document.child(node, key)?);
    let root = document.root();
    let tools = document.child(root, "tools").map(|node| document.kind(node));
    let Some(Kind::List(items)) = tools else { return Vec::new() };
    let readable = |item: &NodeId| {
        let owner = text(*item, "owner").or_else(|| text(root, "owner")).map(str::to_owned);
        let name = ToolName::parse(text(*item, "name")?).ok()?;
        Some(Readable { name, owner, line: document.position(*item).line })
    };
    items.iter().filter_map(readable).collect()
}
