//! Configuration text to a snapshot, or to everything that is wrong with it.

use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::config::context::{Context, Environment};
use crate::config::finding::{ConfigErrors, Finding, Report};
use crate::config::given::Given;
use crate::config::profile::{self, RawProfile};
use crate::config::raw::{LATER, RawConfig};
use crate::config::snapshot::{Bind, Operators, Snapshot};
use crate::config::tools::Profiles;
use crate::config::yaml::{Document, NodeId};
use crate::config::{
    agents, auth, egress, limits, listeners, policies, read, redact, runtime, serving, tools,
};
use crate::model::id::hex;
use crate::model::secret::Secret;

/// The only version of the file's format.
const VERSION: u32 = 1;

/// Compiles the text of a configuration file. `file` is its name as it was given: findings begin with it, and relative
/// paths start at its folder.
pub fn parse(
    file: &str,
    text: &str,
    environment: &Environment<'_>,
) -> Result<Snapshot, ConfigErrors> {
    let (document, faults) = Document::parse(text);
    let faults = faults.into_iter().map(|fault| Finding::of_fault(file, fault)).collect();
    let Some(document) = document else {
        return Err(ConfigErrors { errors: faults, warnings: Vec::new() });
    };
    let report = Report::new(file.to_owned(), faults, &document);
    let raw: Given<RawConfig> = read::read(&report, LATER);
    let snapshot = raw.found().and_then(|(raw, root)| {
        let strict = environment.strict || raw.strict.get() == Some(&true);
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        compile(&Context { report: &report, environment, strict, folder }, raw, root)
    });
    let (errors, warnings) = report.into_findings();
    match snapshot {
        Some(snapshot) if errors.is_empty() => {
            Ok(Snapshot { hash: hash(text), warnings, ..snapshot })
        }
        _ => Err(ConfigErrors { errors, warnings }),
    }
}

/// Where the admin listener of a file is, and its token, whatever is wrong with the rest: for whoever asks a gateway that
/// still runs on an earlier text. `None` where there is none, or where its own section is wrong.
pub fn admin(
    file: &str,
    text: &str,
    environment: &Environment<'_>,
) -> Option<(Bind, Option<Secret>)> {
    let (document, _) = Document::parse(text);
    let document = document?;
    let report = Report::new(file.to_owned(), Vec::new(), &document);
    let raw: Given<RawConfig> = read::read(&report, LATER);
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let context = Context { report: &report, environment, strict: false, folder };
    let listeners = &raw.get()?.listeners;
    let bind = listeners::listeners(&context, listeners).admin?.bind;
    let token = &listeners.get()?.admin.get()?.token;
    let token = token.found().and_then(|(token, node)| {
        let source = context.source(node, &token.file, &token.env)?;
        context.secret(node, &source).ok()
    });
    Some((bind, token))
}

/// Compiles every section, whatever is wrong with the others; `None` where there are no rules to compile with.
fn compile(context: &Context<'_>, raw: &RawConfig, root: NodeId) -> Option<Snapshot> {
    if let Some((version, node)) =
        context.required(root, "version", &raw.version, "write `version: 1`")
        && *version != VERSION
    {
        context
            .report
            .error(node, format!("must be {VERSION}, this Sortie reads no other version"));
    }
    let listeners = listeners::listeners(context, &raw.listeners);
    let admin = raw.listeners.get().map(|raw| &raw.admin);
    let operators = admin.map_or(Operators::Nobody, |admin| listeners::operators(context, admin));
    let own = listeners::own(context, &listeners);
    let dns = runtime::dns(context, &raw.dns);
    let egress = egress::compile(context, &raw.egress, own, &dns);
    let api_tls = raw.listeners.get().and_then(|raw| raw.api.get()).map(|raw| &raw.tls);
    let around = auth::Surroundings {
        listeners: &listeners,
        asks_for_certificates: api_tls.is_some_and(serving::asks_for_certificates),
        rules: egress.rules.as_deref(),
    };
    let authentication = auth::authentication(context, root, &raw.auth, &around);
    let serving = serving::compile(context, api_tls, &raw.auth);
    let profiles = profiles(context, &raw.profiles);
    let defaults = limits::defaults(context, &raw.defaults);
    let policies = policies::compile(context, &raw.policies);
    let tools = tools::compile(context, &raw.tools, &profiles, &egress, &defaults, &policies);
    policies::look_at(context, &policies, tools.values().map(Arc::as_ref));
    let agents = agents::compile(context, &raw.agents, &agents::tool_names(context, &raw.tools));
    let exported = tools.values().filter(|tool| tool.exports.name != tool.name.as_str());
    let exported = exported.map(|tool| (tool.exports.name.clone(), tool.name.clone()));
    let exported = exported.collect();
    let metrics = raw.metrics.get();
    Some(Snapshot {
        generation: 1,
        hash: String::new(),
        tools,
        exported,
        agents,
        policies: policies.into_iter().map(|placed| placed.policy).collect(),
        authentication,
        listeners,
        operators,
        redacted: redact::redacted(context.report.document),
        serving,
        dns,
        tls: egress.tls,
        connect_timeout: egress.connect_timeout,
        pool: egress.pool,
        max_calls_in_flight: limits::max_calls_in_flight(context, &raw.limits),
        proxy: egress.proxy,
        shutdown: runtime::shutdown(context, &raw.shutdown),
        logging: runtime::logging(&raw.logging),
        metrics_per_tool: metrics.and_then(|raw| raw.per_tool.get().copied()).unwrap_or(true),
        region: raw.region.get().cloned(),
        warnings: Vec::new(),
        egress: egress.rules?,
    })
}

/// The shipped wire formats and the file's own.
fn profiles(context: &Context<'_>, given: &Given<Vec<Given<RawProfile>>>) -> Profiles {
    let mut profiles = Profiles::default();
    for profile in profile::builtin() {
        if profiles.by_name.is_empty() {
            profiles.default.clone_from(&profile.name);
        }
        profiles.by_name.insert(profile.name.clone(), Arc::new(profile));
    }
    let list = given.get().map(Vec::as_slice).unwrap_or_default();
    for given in list {
        let Some(node) = given.node() else { continue };
        let Some(raw) = given.get() else {
            // It was not read, and its tools are not to blame.
            let name = context.report.document.child(node, "name");
            profiles.broken.extend(
                name.and_then(|name| context.report.document.text(name)).map(str::to_owned),
            );
            continue;
        };
        let compiled = profile::compile(context.report, node, raw);
        let Some((name, name_node)) = raw.name.found() else { continue };
        match (compiled, profiles.by_name.entry(name.clone())) {
            (_, Entry::Occupied(_)) => {
                let message = format!("another profile is named `{name}` too, choose another name");
                context.report.error(name_node, message);
            }
            (Some(profile), Entry::Vacant(place)) => {
                place.insert(Arc::new(profile));
            }
            (None, Entry::Vacant(_)) => {
                profiles.broken.insert(name.clone());
            }
        }
    }
    profiles
}

/// Tells two configurations apart: 16 hex digits.
fn hash(text: &str) -> String {
    let mut hash = hex(&Sha256::digest(text));
    hash.truncate(16);
    hash
}

#[cfg(test)]
mod tests;
