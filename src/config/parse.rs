//! Configuration text to a snapshot, or to everything that is wrong with it.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::config::agents::Listed;
use crate::config::context::{Context, Environment};
use crate::config::file::{File, Standing, label};
use crate::config::finding::{ConfigErrors, Finding, Report};
use crate::config::given::Given;
use crate::config::included::{self, Claims, Included, Main};
use crate::config::listening::{Bind, Operators, Serving};
use crate::config::names::Names;
use crate::config::profiles::Profiles;
use crate::config::raw::{LATER, RawConfig};
use crate::config::snapshot::{Logging, Snapshot, Tool};
use crate::config::tools::{Clash, Home};
use crate::config::yaml::{Document, NodeId};
use crate::config::{
    agents, auth, egress, keeping, limits, listeners, organisations, policies, read, redact,
    runtime, serving, telling, tools, tracing,
};
use crate::model::id::{ToolName, hex};
use crate::model::secret::Secret;
use crate::policy::agents::Agents;
use crate::policy::authentication::Authentication;
use crate::policy::identity::Caller;

/// The only version of the file's format.
const VERSION: u32 = 1;

/// The text of a configuration file, and the file's name as it was given: findings begin with it, and relative paths
/// start at its folder.
#[derive(Debug, Clone, Copy)]
pub struct Text<'t> {
    /// The name.
    pub file: &'t str,
    /// The text.
    pub text: &'t str,
}

/// Compiles the text of a configuration file.
pub fn parse(
    file: &str,
    text: &str,
    environment: &Environment<'_>,
) -> Result<Snapshot, ConfigErrors> {
    parse_all(&[Text { file, text }], environment)
}

/// Compiles the texts of one configuration, of which each changes what those before it say.
pub fn parse_all(
    texts: &[Text<'_>],
    environment: &Environment<'_>,
) -> Result<Snapshot, ConfigErrors> {
    let files: Vec<String> = texts.iter().map(|one| one.file.to_owned()).collect();
    let (document, faults) =
        Document::merged(&texts.iter().map(|one| one.text).collect::<Vec<_>>());
    let faults = faults.into_iter().map(|fault| Finding::of_fault_in(&files, fault)).collect();
    let Some(document) = document else {
        return Err(ConfigErrors { errors: faults, warnings: Vec::new() });
    };
    let report = Report::of_files(files, faults, &document);
    let raw: Given<RawConfig> = read::read(&report, LATER);
    let mut strict = environment.strict;
    let compiled = raw.found().map(|(raw, root)| {
        strict |= raw.strict.get() == Some(&true);
        compile(&Context { report: &report, environment, strict }, texts, raw, root)
    });
    let (mut errors, mut warnings) = report.into_findings();
    let Some(Compiled { snapshot, included }) = compiled else {
        return Err(ConfigErrors { errors, warnings });
    };
    warnings.extend(included.warnings);
    if strict || !errors.is_empty() || snapshot.is_none() {
        errors.extend(included.files.iter().flat_map(|file| &file.errors).cloned());
    }
    match snapshot {
        Some(mut snapshot) if errors.is_empty() => {
            snapshot.hash = hash(texts, &included.in_force);
            snapshot.files.extend(included.files);
            snapshot.tools.extend(included.tools);
            snapshot.exported = exported(&snapshot.tools);
            snapshot.unread = included.unread;
            included
                .redacted
                .into_iter()
                .for_each(|part| redact::join(&mut snapshot.redacted, part));
            Ok(Snapshot { warnings, ..snapshot })
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
    let context = Context { report: &report, environment, strict: false };
    let listeners = &raw.get()?.listeners;
    let bind = listeners::listeners(&context, listeners).admin?.bind;
    let token = &listeners.get()?.admin.get()?.token;
    let token = token.found().and_then(|(token, node)| {
        let source = context.source(node, &token.file, &token.env)?;
        context.secret(node, &source).ok()
    });
    Some((bind, token))
}

/// What came of the main file, and of those that it includes.
struct Compiled {
    /// `None` where there are no rules to compile with.
    snapshot: Option<Snapshot>,
    included: Included,
}

/// Compiles every section, whatever is wrong with the others.
fn compile(context: &Context<'_>, texts: &[Text<'_>], raw: &RawConfig, root: NodeId) -> Compiled {
    if let Some((version, node)) =
        context.required(root, "version", &raw.version, "write `version: 1`")
        && *version != VERSION
    {
        context
            .report
            .error(node, format!("must be {VERSION}, this Sortie reads no other version"));
    }
    let local = context.environment.local;
    let listeners = match local {
        Some(local) => listeners::local(context, local),
        None => listeners::listeners(context, &raw.listeners),
    };
    let admin = raw.listeners.get().map(|raw| &raw.admin).filter(|_| local.is_none());
    let operators = admin.map_or(Operators::Nobody, |admin| listeners::operators(context, admin));
    let own = listeners::own(context, &listeners);
    let dns = runtime::dns(context, &raw.dns);
    let egress = egress::compile(context, &raw.egress, own, &dns);
    let api_tls = raw.listeners.get().and_then(|raw| raw.api.get()).map(|raw| &raw.tls);
    let organisations = organisations::compile(context, &raw.organisations);
    let around = auth::Surroundings {
        listeners: &listeners,
        asks_for_certificates: api_tls.is_some_and(serving::asks_for_certificates),
        rules: egress.rules.as_deref(),
        organisations: &organisations,
    };
    let (authentication, serving) = match local {
        Some(_) => (Authentication::None(Arc::new(Caller::anonymous())), Serving::Plain),
        None => (
            auth::authentication(context, root, &raw.auth, &around),
            serving::compile(context, api_tls, &raw.auth),
        ),
    };
    let logging = runtime::logging(&raw.logging);
    let mut profiles = Profiles::shipped();
    let none = Names::default();
    let profile_names = profiles.add(context, &raw.profiles, &none);
    let storage = keeping::compile(context, &raw.storage);
    let defaults = limits::defaults(context, &raw.defaults, storage.capture);
    let notifications = telling::compile(context, &raw.notifications, &organisations);
    let policies = policies::compile(context, &raw.policies);
    let secrets = included::secrets_folder(context, &raw.secrets);
    let secrets = secrets.as_deref();
    let file = texts.first().map(|one| one.file).unwrap_or_default();
    let home =
        Home { main: file, owner: None, runbook: None, secrets, taken: &none, clash: Clash::Error };
    let (tools, names) =
        tools::compile(context, &raw.tools, &profiles, &egress, &defaults, &policies, &home);
    let has_more = raw.include.get().is_some_and(|list| !list.is_empty());
    let listed = agents::listed(context, &raw.agents, has_more);
    let is_listed = listed.is_some();
    let main = Main {
        context,
        file,
        profiles: &profiles,
        egress: &egress,
        defaults: &defaults,
        policies: &policies,
        secrets,
        lists_agents: is_listed,
    };
    let Listed { agents, ids, offers } = listed.unwrap_or_default();
    let taken = Claims { tools: names, profiles: profile_names, agents: ids };
    let mut included = included::compile(&main, &raw.include, taken);
    let everywhere = tools.values().chain(included.tools.values());
    policies::look_at(context, &policies, everywhere.clone().map(Arc::as_ref));
    if local.is_none() {
        policies::look_at_waits(context, root, &storage, everywhere.map(Arc::as_ref));
    }
    let read: Vec<String> = included.names().map(str::to_owned).collect();
    let mut tool_names = agents::tool_names(context, &raw.tools);
    tool_names.extend(read.iter().map(String::as_str));
    agents::look_at(context, offers, &tool_names, has_more);
    included.look_at_offers(&tool_names);
    let agents = agents.into_iter().chain(std::mem::take(&mut included.agents)).collect();
    let agents = if is_listed { Agents::listed(agents) } else { Agents::default() };
    let metrics = raw.metrics.get();
    let Some(rules) = egress.rules else { return Compiled { snapshot: None, included } };
    let snapshot = Snapshot {
        generation: 1,
        hash: String::new(),
        tools,
        exported: HashMap::new(),
        agents,
        policies: policies.iter().map(|placed| placed.policy.clone()).collect(),
        unread: HashMap::new(),
        files: texts.iter().map(|one| named(file, one.file)).collect(),
        organisations,
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
        rounds: limits::rounds(context, &raw.limits),
        waiting: limits::waiting(context, &raw.limits),
        storage,
        notifications,
        proxy: egress.proxy,
        shutdown: runtime::shutdown(context, &raw.shutdown),
        // A developer reads them at the terminal.
        logging: Logging { json: logging.json && local.is_none(), ..logging },
        local,
        tracing: tracing::compile(context, &raw.tracing),
        metrics_per_tool: metrics.and_then(|raw| raw.per_tool.get().copied()).unwrap_or(true),
        region: raw.region.get().cloned(),
        warnings: Vec::new(),
        egress: rules,
    };
    Compiled { snapshot: Some(snapshot), included }
}

/// The tools that providers know by another name, by that one.
fn exported(tools: &HashMap<ToolName, Arc<Tool>>) -> HashMap<String, ToolName> {
    let renamed = tools.values().filter(|tool| tool.exports.name != tool.name.as_str());
    renamed.map(|tool| (tool.exports.name.clone(), tool.name.clone())).collect()
}

/// A file of the command line: all of them are good, or nothing is.
fn named(main: &str, name: &str) -> File {
    File {
        name: name.to_owned(),
        label: label(main, name),
        standing: Standing::Current,
        errors: Vec::new(),
        good: None,
    }
}

/// Tells two configurations apart: 16 hex digits. For one file they are the first of its SHA-256.
fn hash(texts: &[Text<'_>], included: &[(String, Option<Arc<str>>)]) -> String {
    let mut digest = Sha256::new();
    for (index, one) in texts.iter().enumerate() {
        if index > 0 {
            digest.update("\0");
        }
        digest.update(one.text);
    }
    for (label, text) in included {
        digest.update(format!("\0{label}\0{}\0", text.is_some()));
        digest.update(text.as_deref().unwrap_or_default());
    }
    let mut hash = hex(&digest.finalize());
    hash.truncate(16);
    hash
}

#[cfg(test)]
mod tests;
