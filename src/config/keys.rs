//! Compiles `auth`: who may call, and with which bounds.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::context::{Context, SecretProblem, Source};
use crate::config::given::{Given, OneOf};
use crate::config::leaf::{Day, Verbatim};
use crate::config::raw_auth::{RawAuth, RawKey, RawKeyValue, RawNoAuth, RawScope};
use crate::config::snapshot::{Bind, Listeners};
use crate::config::yaml::NodeId;
use crate::model::id::DEFAULT_ORGANISATION;
use crate::policy::identity::{Authentication, Caller, Glob, Key, KeyDigest, Keys, Scope};

/// Shorter keys are a warning.
const KEY_BYTES: usize = 24;

/// Compiles `auth`; `root` is where it should stand.
pub fn authentication(
    context: &Context<'_>,
    root: NodeId,
    given: &Given<OneOf<RawNoAuth, RawAuth>>,
    listeners: &Listeners,
) -> Authentication {
    let hint = "write `none` (loopback and Unix sockets only) or {keys: […]}";
    match context.required(root, "auth", given, hint) {
        Some((OneOf::Short(RawNoAuth::None), node)) => {
            let local = match &listeners.api.bind {
                Bind::Tcp(address) => address.ip().is_loopback(),
                Bind::Unix { .. } => true,
            };
            if !local {
                let message =
                    "`none` needs the api listener on loopback or a Unix socket, write {keys: […]}";
                context.report.error(node, message);
            }
            Authentication::None(Arc::new(Caller::anonymous()))
        }
        Some((OneOf::Long(raw), node)) => Authentication::Keys(keys(context, raw, node)),
        None => Authentication::Keys(Keys::default()),
    }
}

fn keys(context: &Context<'_>, raw: &RawAuth, node: NodeId) -> Keys {
    let hint = "write a list of keys";
    let Some((list, node)) = context.required(node, "keys", &raw.keys, hint) else {
        return Keys::default();
    };
    if list.is_empty() {
        context.report.error(node, "is empty, nobody could call");
    }
    let mut names = HashSet::new();
    let mut digests = HashSet::new();
    let mut keys = Vec::new();
    for (raw, node) in list.iter().filter_map(Given::found) {
        let key = key(context, raw, node);
        if let Some((name, node)) = raw.name.found()
            && !names.insert(name.as_str())
        {
            context.report.error(node, format!("another key is named `{name}` too"));
        }
        if key.digests.iter().all(|digest| digests.insert(*digest)) {
            keys.push(key);
        } else {
            let message = "has a value that stands before, each is one key's and stands once";
            context.report.error(node, message);
        }
    }
    Keys::new(&keys).unwrap_or_default()
}

fn key(context: &Context<'_>, raw: &RawKey, node: NodeId) -> Key {
    let name = context.required(node, "name", &raw.name, "it stands in log lines");
    if let Some((name, node)) = name
        && !(1..=64).contains(&name.chars().count())
    {
        context.report.error(node, "must have 1 to 64 characters");
    }
    if let Some((organisation, node)) = raw.organisation.found()
        && organisation != DEFAULT_ORGANISATION
    {
        context.report.error(node, "must be `default`, this version knows no other organisation");
    }
    let caller = Caller {
        name: name.map(|(name, _)| name.clone()).unwrap_or_default(),
        organisation: DEFAULT_ORGANISATION.into(),
        scopes: scopes(context, raw, node),
        agents: globs(context, &raw.agents),
        tools: globs(context, &raw.tools),
    };
    context.required(node, "key", &raw.key, "write {file: PATH}, {env: NAME} or {sha256: HEX}");
    let values = [&raw.key, &raw.previous];
    let digests = values
        .into_iter()
        .filter_map(Given::found)
        .filter_map(|(raw, node)| digest(context, raw, node));
    let digests = digests.collect();
    let ends = raw.expires.found().map(|(Day { ends, .. }, node)| {
        if *ends <= context.environment.unix_seconds {
            context.report.warn(node, "has passed, the key is no longer taken");
        }
        *ends
    });
    Key { caller: Arc::new(caller), digests, ends }
}

fn scopes(context: &Context<'_>, raw: &RawKey, node: NodeId) -> Vec<Scope> {
    let hint = "write for example [agent, \"agent:call\"]";
    let Some((list, node)) = context.required(node, "scopes", &raw.scopes, hint) else {
        return Vec::new();
    };
    if list.is_empty() {
        context.report.error(node, format!("is empty, {hint}"));
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
fn globs(context: &Context<'_>, given: &Given<Vec<Given<String>>>) -> Vec<Glob> {
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

fn digest(context: &Context<'_>, raw: &RawKeyValue, node: NodeId) -> Option<KeyDigest> {
    if let Some(sha256) = raw.sha256.node() {
        if raw.file.node().or(raw.env.node()).is_some() {
            context.report.error(sha256, "stands beside `file` or `env`, one is enough");
        }
        let (Verbatim(text), node) = raw.sha256.found()?;
        let digest = from_hex(text);
        if digest.is_none() {
            context.report.error(node, "must be the SHA-256 of the key, 64 hex digits");
        }
        return digest.map(KeyDigest);
    }
    let source = context.source(node, &raw.file, &raw.env)?;
    bearer(context, node, &source, "nobody can call with it")
}

/// Reads a bearer key and keeps its digest alone; `consequence` is what its absence means.
pub fn bearer(
    context: &Context<'_>,
    node: NodeId,
    source: &Source,
    consequence: &str,
) -> Option<KeyDigest> {
    match context.secret(node, source) {
        Ok(key) => {
            let bytes = key.expose();
            if !bytes.iter().all(u8::is_ascii_graphic) {
                let message = format!(
                    "{source} has characters that a bearer key cannot have, such as spaces"
                );
                context.report.error(node, message);
                return None;
            }
            if key.len() < KEY_BYTES {
                let message =
                    format!("{source} has {} characters, use at least {KEY_BYTES}", key.len());
                context.report.warn(node, message);
            }
            Some(KeyDigest::of(bytes))
        }
        Err(SecretProblem::Lookup(error)) => {
            context.unreadable(node, source, &error, consequence);
            None
        }
        Err(SecretProblem::Reported) => None,
    }
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}
