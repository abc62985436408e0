//! Compiles `auth.keys`: bearer keys, by file, by variable or by digest.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::caller::{RawCaller, caller};
use crate::config::context::{Context, SecretProblem, Source};
use crate::config::given::Given;
use crate::config::leaf::{Day, Verbatim};
use crate::config::raw_auth::{RawKey, RawKeyValue};
use crate::config::snapshot::Organisation;
use crate::config::yaml::NodeId;
use crate::policy::identity::{Key, KeyDigest, Keys, Proof};

/// Shorter keys are a warning.
const KEY_BYTES: usize = 24;

/// Compiles the keys; `names` are those of other callers, and takes theirs.
pub fn compile<'g>(
    context: &Context<'_>,
    list: &'g [Given<RawKey>],
    organisations: &'g [Organisation],
    names: &mut HashSet<&'g str>,
) -> Keys {
    let mut digests = HashSet::new();
    let mut keys = Vec::new();
    for (raw, node) in list.iter().filter_map(Given::found) {
        let key = key(context, raw, node, organisations, names);
        if key.digests.iter().all(|digest| digests.insert(*digest)) {
            keys.push(key);
        } else {
            let message = "has a value that stands before, each is one key's and stands once";
            context.report.error(node, message);
        }
    }
    Keys::new(&keys).unwrap_or_default()
}

fn key<'g>(
    context: &Context<'_>,
    raw: &'g RawKey,
    node: NodeId,
    organisations: &'g [Organisation],
    names: &mut HashSet<&'g str>,
) -> Key {
    let written = RawCaller {
        proof: Proof::Key,
        name: &raw.name,
        organisation: &raw.organisation,
        organisations,
        scopes: &raw.scopes,
        agents: &raw.agents,
        tools: &raw.tools,
    };
    let caller = caller(context, node, &written, names);
    context.required(node, "key", &raw.key, "write {file: PATH}, {env: NAME} or {sha256: HEX}");
    let values = [&raw.key, &raw.previous];
    let mut digests = Vec::new();
    let mut stated = Vec::new();
    for (raw, node) in values.into_iter().filter_map(Given::found) {
        let digest = digest(context, raw, node);
        digests.extend(digest);
        stated.extend(digest.filter(|_| raw.sha256.node().is_some()));
    }
    let ends = raw.expires.found().map(|(Day { ends, .. }, node)| {
        if *ends <= context.environment.unix_seconds {
            context.report.warn(node, "has passed, the key is no longer taken");
        }
        *ends
    });
    Key { caller: Arc::new(caller), digests, stated, ends }
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
