//! Compiles `tools`: one tool at a time, every fault of each.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::config::client_identity::ClientIdentity;
use crate::config::context::{Context, SecretProblem, Source};
use crate::config::definition;
use crate::config::egress::{self, Egress};
use crate::config::file::label;
use crate::config::given::Given;
use crate::config::leaf::{Size, Span, Verbatim};
use crate::config::limits::{self, Defaults};
use crate::config::names::{Names, Taken};
use crate::config::policies::{self, Placed};
use crate::config::profiles::Profiles;
use crate::config::raw_tool::RawTool;
use crate::config::read::choice;
use crate::config::redact;
use crate::config::snapshot::{Tool, Unavailable};
use crate::config::yaml::NodeId;
use crate::model::id::{DEFAULT_ORGANISATION, ToolName, file_tool_id};
use crate::model::json::pointer_name;
use crate::model::json_tree::Tree;
use crate::model::secret::Secret;
use crate::policy::endpoint::Endpoint;
use crate::policy::export;
use crate::policy::schema::{ArgumentSchema, SchemaError};
use crate::policy::wire::{OwnHeader, TRACEPARENT, WireProfile};

/// Names of built-in tools. Contract, section 5.
pub const RESERVED: &[&str] = &["search_knowledge", "remember_relation", "forget_fact"];
/// Contract: own headers of a tool at most, and names in its `accept_credentials`.
pub const MAX_HEADERS: usize = 10;
/// The longest description, in characters.
pub const MAX_DESCRIPTION: usize = 1000;
const SHORT_DESCRIPTION: usize = 20;
const MAX_FILLER: usize = 200;

/// What the file says that tools stand in, and which names other files have taken.
pub struct Home<'a> {
    /// The main file's name: where labels start.
    pub main: &'a str,
    /// Who answers for a tool that does not say it.
    pub owner: Option<&'a str>,
    /// The page about a tool that names none.
    pub runbook: Option<&'a str>,
    /// Where the signing secrets of tools without `secret` are.
    pub secrets: Option<&'a Path>,
    /// Names of other files' tools.
    pub taken: &'a Names,
    /// What becomes of a tool with such a name.
    pub clash: Clash,
}

/// What becomes of a tool whose name is another file's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// It is an error.
    Error,
    /// It is left out.
    Skip,
}

/// Compiles the tools that have no error; names are unique, and come back.
pub fn compile(
    context: &Context<'_>,
    given: &Given<Vec<Given<RawTool>>>,
    profiles: &Profiles,
    egress: &Egress,
    defaults: &Defaults,
    policies: &[Placed],
    home: &Home<'_>,
) -> (HashMap<ToolName, Arc<Tool>>, Names) {
    let list = given.get().map(Vec::as_slice).unwrap_or_default();
    let mut tools = HashMap::new();
    let mut names = Names::default();
    for (raw, node) in list.iter().filter_map(Given::found) {
        if let Some((name, node)) = raw.name.found() {
            let key = export::name(name);
            let elsewhere = home.taken.taken(context.report, &key, node);
            if elsewhere.is_some() && home.clash == Clash::Skip {
                continue;
            }
            let taken = || names.take(context.report, &key, name, node);
            if let Err(Taken { other, place }) = elsewhere.map_or_else(taken, Err) {
                let message = if other == *name {
                    format!("another tool is named `{name}` too, {place}")
                } else {
                    format!(
                        "`{name}` and `{other}` {place} are both exported as `{key}`, rename one"
                    )
                };
                context.report.error(node, message);
            }
        }
        let mut compiler =
            Compiler { context, raw, node, egress, defaults, policies, home, unavailable: None };
        if let Some(tool) = compiler.tool(profiles) {
            tools.insert(tool.name.clone(), Arc::new(tool));
        }
    }
    (tools, names)
}

struct Compiler<'a> {
    context: &'a Context<'a>,
    raw: &'a RawTool,
    node: NodeId,
    egress: &'a Egress,
    defaults: &'a Defaults,
    policies: &'a [Placed],
    home: &'a Home<'a>,
    unavailable: Option<Unavailable>,
}

impl Compiler<'_> {
    /// The tool. Every part is compiled before a missing one ends it, so that all faults are told.
    fn tool(&mut self, profiles: &Profiles) -> Option<Tool> {
        let profile = self.profile(profiles);
        let name = self.name(profile.as_deref());
        let description = self.description();
        let endpoint = self.endpoint();
        let filler = self.filler();
        let profile = profile?;
        let arguments = self.arguments(&profile);
        let timeout = self.timeout(&profile);
        let authentication = self.authentication();
        let identity = self.identity();
        let mut headers = self.headers(&profile);
        headers.splice(0..0, authentication.header);
        let signing = self.signing(&profile, name.as_ref());
        let policy = self.policy(&profile);
        let limits = limits::of_tool(self.context, self.raw, self.defaults);
        let result_limit = self.result_limit(&profile);
        let accept_credentials = self.accept_credentials(&profile);
        let forward_trace = self.forward_trace(&profile);
        let name = name?;
        let description = description?;
        let endpoint = endpoint?;
        // Only a schema that holds can be shown: one that refers to itself in place has no end.
        let arguments = arguments?;
        let parameters = self.parameters();
        let token = authentication.tokens.as_ref().map(|_| "Authorization");
        let besides: Vec<_> =
            token.into_iter().chain(forward_trace.then_some(TRACEPARENT)).collect();
        let route_digest = self.route_digest(
            &profile,
            &endpoint,
            &headers,
            &accept_credentials,
            identity.as_deref(),
            &besides,
        );
        let exports = self.exports(name.as_str(), &description, parameters.as_ref());
        let written = redact::part(self.context.report.document, self.node);
        let definition_digest = self.definition_digest(&profile, &written, &endpoint);
        let raw = self.raw;
        let annotations = raw.annotations.get();
        let truth =
            |given: Option<&Given<bool>>| given.and_then(Given::get).copied().unwrap_or(false);
        let read_only = truth(annotations.map(|given| &given.read_only));
        Some(Tool {
            id: file_tool_id(DEFAULT_ORGANISATION, &name),
            name,
            description,
            owner: raw.owner.get().cloned().or_else(|| self.home.owner.map(str::to_owned)),
            runbook: raw.runbook.get().cloned().or_else(|| self.home.runbook.map(str::to_owned)),
            file: label(self.home.main, self.context.report.file(self.node)).into(),
            path: self.context.report.document.path(self.node),
            enabled: raw.enabled.get().copied().unwrap_or(true),
            profile,
            endpoint,
            definition_digest,
            route_digest,
            exports,
            parameters: parameters.map(|schema| raw_text(&schema)),
            arguments,
            headers,
            header_names: self.header_names(),
            tokens: authentication.tokens,
            identity,
            forward_trace,
            accept_credentials,
            signing: signing?,
            timeout,
            result_limit,
            policy,
            policies: policies::about(self.policies, raw.name.get()?, read_only),
            ask_first: raw.ask_first.get() == Some(&true),
            capture: raw.capture.get().copied().unwrap_or(self.defaults.capture),
            limits,
            destructive: truth(annotations.map(|given| &given.destructive)),
            idempotent: truth(annotations.map(|given| &given.idempotent)),
            read_only,
            filler,
            written,
            unavailable: self.unavailable.take(),
        })
    }

    /// Over where its connections go and how: the URL, the spelling of the header names, all of `egress`. Values of
    /// headers and signing keys go with each request and are no part of it; `besides` are names of headers that only some
    /// requests have.
    fn route_digest(
        &self,
        profile: &WireProfile,
        endpoint: &Endpoint,
        headers: &[OwnHeader],
        accept_credentials: &[String],
        identity: Option<&ClientIdentity>,
        besides: &[&str],
    ) -> [u8; 32] {
        let own = headers.iter().map(OwnHeader::spelling);
        let names =
            profile.header_spelling(own.chain(accept_credentials.iter().map(String::as_str)));
        let mut digest = Sha256::new();
        digest.update(self.egress.digest);
        digest.update(format!("{endpoint} {names:?} {besides:?}"));
        digest.update(identity.map(ClientIdentity::digest).unwrap_or_default());
        digest.finalize().into()
    }

    /// Over what it is, with the URLs as a whole.
    fn definition_digest(
        &self,
        profile: &WireProfile,
        written: &Value,
        endpoint: &Endpoint,
    ) -> [u8; 32] {
        let oauth2 = self.raw.authentication.get().and_then(|raw| raw.oauth2.get());
        let tokens = oauth2.and_then(|raw| raw.token_url.get());
        let tokens = tokens.map(|Verbatim(text)| text.clone());
        let urls = [Some(endpoint.to_string()), tokens];
        let urls: Vec<String> = urls.into_iter().flatten().collect();
        definition::of_tool(written, &profile.definition, &urls)
    }

    fn error(&self, node: NodeId, message: impl Into<String>) {
        self.context.report.error(node, message);
    }

    fn profile(&self, profiles: &Profiles) -> Option<Arc<WireProfile>> {
        let Some(node) = self.raw.profile.node() else {
            return profiles.by_name.get(&profiles.default).cloned();
        };
        let name = self.raw.profile.get()?;
        let profile = profiles.by_name.get(name);
        if profile.is_none() && !profiles.broken.contains(name) {
            let mut known: Vec<_> = profiles.by_name.keys().map(String::as_str).collect();
            known.sort_unstable();
            self.error(node, choice(name, &known));
        }
        profile.cloned()
    }

    fn name(&self, profile: Option<&WireProfile>) -> Option<ToolName> {
        let hint = "it is what the model calls the tool by";
        let (text, node) = self.context.required(self.node, "name", &self.raw.name, hint)?;
        if RESERVED.contains(&text.as_str()) {
            self.error(node, format!("`{text}` is the name of a built-in tool, choose another"));
            return None;
        }
        let name =
            ToolName::parse(text).map_err(|error| self.error(node, error.to_string())).ok()?;
        if let Some(profile) = profile
            && !profile.accepts_name(text)
        {
            let (pattern, profile) = (profile.name_pattern(), &profile.name);
            self.error(node, format!("must match {pattern} (profile {profile})"));
        }
        Some(name)
    }

    fn description(&self) -> Option<String> {
        let hint = "say what the tool returns and when to use it, the model chooses by it";
        let (text, node) =
            self.context.required(self.node, "description", &self.raw.description, hint)?;
        let length = text.chars().count();
        if !(1..=MAX_DESCRIPTION).contains(&length) {
            self.error(node, format!("must have 1 to {MAX_DESCRIPTION} characters, not {length}"));
        } else if length < SHORT_DESCRIPTION {
            let message =
                "is short: the model chooses by it, say what the tool returns and when to use it";
            self.context.report.warn(node, message);
        }
        Some(text.clone())
    }

    /// Reads and judges the URL; behind an exception that ended the tool is unavailable.
    fn endpoint(&mut self) -> Option<Endpoint> {
        let given = self.one_of([("url", &self.raw.url), ("endpoint", &self.raw.endpoint)]);
        let (Verbatim(text), node) = match given {
            Some(given) => given.found()?,
            None => {
                self.context.report.missing(
                    self.node,
                    "url",
                    "is missing, write the tool's https URL",
                );
                return None;
            }
        };
        self.judged(text, node)
    }

    /// The same for any URL that is asked in the tool's name.
    fn judged(&mut self, text: &str, node: NodeId) -> Option<Endpoint> {
        let rules = self.egress.rules.as_deref();
        let name = self.raw.name.get().map(String::as_str).unwrap_or_default();
        let judged = egress::endpoint(self.context, rules, name, text, node)?;
        if let Some(refusal) = judged.ended {
            let message = format!("{refusal}: its exception ended, the tool is unavailable");
            self.context.lacking(node, message);
            self.unavailable = Some(Unavailable::ExceptionEnded);
        }
        Some(judged.endpoint)
    }

    /// The one of several spellings that is given; a second one is an error.
    fn one_of<'g, T>(&self, spellings: [(&str, &'g Given<T>); 2]) -> Option<&'g Given<T>> {
        let [(first, one), (_, other)] = spellings;
        if let (Some(_), Some(node)) = (one.node(), other.node()) {
            self.error(node, format!("stands beside `{first}`, which says the same"));
        }
        [one, other].into_iter().find(|given| given.node().is_some())
    }

    fn filler(&self) -> Option<String> {
        let (text, node) = self.raw.filler.found()?;
        let length = text.chars().count();
        if length > MAX_FILLER {
            self.error(node, format!("must have {MAX_FILLER} characters at most, not {length}"));
        }
        Some(text.clone())
    }

    fn arguments(&self, profile: &WireProfile) -> Option<ArgumentSchema> {
        let given = self.one_of([("parameters", &self.raw.parameters), ("input", &self.raw.input)]);
        let found = match given {
            Some(given) => Some(given.found()?),
            None => None,
        };
        let compiled = ArgumentSchema::compile(found.map(|(schema, _)| schema), profile.dialect);
        let report = |error: SchemaError| {
            let steps: Vec<_> = error.pointer.split('/').skip(1).map(pointer_name).collect();
            let steps: Vec<_> = steps.iter().map(String::as_str).collect();
            let node = found.map_or(self.node, |(_, node)| node);
            self.context.report.error_below(node, &steps, error.message);
        };
        compiled.map_err(|errors| errors.into_iter().for_each(report)).ok()
    }

    fn timeout(&self, profile: &WireProfile) -> Duration {
        let seconds =
            self.raw.timeout_seconds.found().map(|(n, node)| (Duration::from_secs(*n), node));
        let millis = self.raw.timeout_ms.found().map(|(n, node)| (Duration::from_millis(*n), node));
        let span = self.raw.timeout.found().map(|(Span(timeout), node)| (*timeout, node));
        let given: Vec<_> = [span, millis, seconds].into_iter().flatten().collect();
        for (_, node) in given.iter().skip(1) {
            self.error(*node, "is a second way to say the timeout, one is enough");
        }
        let bounds = profile.timeout.min..=profile.timeout.max;
        let Some((timeout, node)) = given.first() else { return profile.timeout.default };
        if !bounds.contains(timeout) {
            let (from, to) = (Span(profile.timeout.min), Span(profile.timeout.max));
            let found = Span(*timeout);
            self.error(
                *node,
                format!("must be from {from} to {to}, not {found} (profile {})", profile.name),
            );
        }
        *timeout
    }

    /// Reads a secret; without it the tool is unavailable.
    fn secret(
        &mut self,
        node: NodeId,
        file: &Given<Verbatim>,
        env: &Given<Verbatim>,
    ) -> Option<Secret> {
        let source = self.context.source(node, file, env)?;
        self.present(node, &source, self.context.secret(node, &source))
    }

    /// A secret that was looked up; where it cannot be read, the tool is unavailable.
    fn present(
        &mut self,
        node: NodeId,
        source: &Source,
        found: Result<Secret, SecretProblem>,
    ) -> Option<Secret> {
        match found {
            Ok(secret) => Some(secret),
            Err(SecretProblem::Reported) => None,
            Err(SecretProblem::Lookup(error)) => {
                self.context.unreadable(node, source, &error, "the tool is unavailable");
                let reason = || Unavailable::NoSecret(format!("{source} {error}"));
                self.unavailable.get_or_insert_with(reason);
                None
            }
        }
    }

    fn result_limit(&self, profile: &WireProfile) -> usize {
        let given = self.raw.result_max_bytes.found().map(|(Size(bytes), node)| (*bytes, node));
        self.context.number(given, profile.result_limit, 1..=profile.result_limit)
    }
}

/// The tree as text.
fn raw_text(tree: &Tree) -> Arc<RawValue> {
    RawValue::from_string(tree.to_json()).expect("a tree is JSON").into()
}

mod authentication;
mod exports;
mod headers;
mod policy;
mod signing;
