//! Compiles `auth.jwt`: whose tokens are taken, where their keys are, and what a token may do.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::caller::scopes;
use crate::config::context::{Context, SecretProblem, Source};
use crate::config::egress;
use crate::config::given::{Entries, Given, OneOf};
use crate::config::leaf::Verbatim;
use crate::config::organisations::of_caller;
use crate::config::raw_auth::{RawIssuer, RawKeySet, RawScopeMap};
use crate::config::snapshot::Organisation;
use crate::config::yaml::NodeId;
use crate::policy::address::EgressRules;
use crate::policy::issuer::{Issuer, KEY_SET_ASKER, KeySource, ScopeRule};
use crate::policy::jwk::KeySet;

/// The longest name of an issuer, an audience or a claim.
const MAX_TEXT: usize = 512;

/// Compiles the issuers.
pub fn compile(
    context: &Context<'_>,
    list: &[Given<RawIssuer>],
    rules: Option<&EgressRules>,
    organisations: &[Organisation],
) -> Vec<Issuer> {
    let mut names = HashSet::new();
    let issuers = list.iter().filter_map(Given::found);
    let compiled = issuers.filter_map(|(raw, node)| {
        let organisation = of_caller(context, organisations, node, &raw.organisation);
        issuer(context, raw, node, rules, organisation, &mut names)
    });
    compiled.collect()
}

fn issuer<'g>(
    context: &Context<'_>,
    raw: &'g RawIssuer,
    node: NodeId,
    rules: Option<&EgressRules>,
    organisation: String,
    names: &mut HashSet<&'g str>,
) -> Option<Issuer> {
    let hint = "write what `iss` of its tokens is";
    let name = context.required(node, "issuer", &raw.issuer, hint).map(|(Verbatim(name), node)| {
        bounded(context, name, node);
        if !names.insert(name) {
            context.report.error(node, format!("another entry has the issuer `{name}` too"));
        }
        name.clone()
    });
    let audiences = audiences(context, raw, node);
    let hint = "write {file: PATH} or {url: URL}";
    let keys = context
        .required(node, "jwks", &raw.jwks, hint)
        .and_then(|(raw, node)| key_source(context, raw, node, rules));
    let agent = raw.agent.found().map(|(claim, node)| claim_name(context, claim, node));
    let hint = "write the claim that holds them, or {claim: CLAIM, values: {VALUE: [SCOPE]}}";
    let scopes = context
        .required(node, "scopes", &raw.scopes, hint)
        .and_then(|(raw, node)| scope_rule(context, raw, node));
    Some(Issuer { name: name?, audiences, keys: keys?, organisation, agent, scopes: scopes? })
}

fn audiences(context: &Context<'_>, raw: &RawIssuer, node: NodeId) -> Vec<String> {
    let hint = "write what `aud` of tokens for this gateway is";
    let Some((list, node)) = context.required(node, "audiences", &raw.audiences, hint) else {
        return Vec::new();
    };
    if list.is_empty() {
        context.report.error(node, format!("is empty, {hint}"));
    }
    let audience = |(text, node): (&String, NodeId)| {
        bounded(context, text, node);
        text.clone()
    };
    list.iter().filter_map(Given::found).map(audience).collect()
}

fn bounded(context: &Context<'_>, text: &str, node: NodeId) {
    if !(1..=MAX_TEXT).contains(&text.len()) {
        context.report.error(node, format!("must have 1 to {MAX_TEXT} bytes"));
    }
}

fn claim_name(context: &Context<'_>, claim: &str, node: NodeId) -> String {
    bounded(context, claim, node);
    claim.to_owned()
}

fn key_source(
    context: &Context<'_>,
    raw: &RawKeySet,
    node: NodeId,
    rules: Option<&EgressRules>,
) -> Option<KeySource> {
    match (raw.file.node(), raw.url.node()) {
        (Some(_), Some(other)) => {
            context.report.error(other, "stands beside `file`, one of the two is enough");
            None
        }
        (None, None) => {
            context.report.error(node, "names no key set, write {file: PATH} or {url: URL}");
            None
        }
        (None, Some(_)) => {
            let (Verbatim(url), node) = raw.url.found()?;
            let judged = egress::endpoint(context, rules, KEY_SET_ASKER, url, node)?;
            if let Some(refusal) = judged.ended {
                let message =
                    format!("{refusal}: its exception ended, no token of this issuer is taken");
                context.lacking(node, message);
                return Some(KeySource::Missing);
            }
            Some(KeySource::Url(judged.endpoint))
        }
        (Some(_), None) => {
            let source = context.source(node, &raw.file, &Given::default())?;
            key_set(context, node, &source)
        }
    }
}

fn key_set(context: &Context<'_>, node: NodeId, source: &Source) -> Option<KeySource> {
    match context.secret(node, source) {
        Ok(text) => match KeySet::parse(text.expose()) {
            Ok(set) => Some(KeySource::Set(Arc::new(set))),
            Err(error) => {
                context.report.error(node, format!("{source} {error}"));
                None
            }
        },
        Err(SecretProblem::Lookup(error)) => {
            context.unreadable(node, source, &error, "no token of this issuer is taken");
            Some(KeySource::Missing)
        }
        Err(SecretProblem::Reported) => None,
    }
}

fn scope_rule(
    context: &Context<'_>,
    raw: &OneOf<String, RawScopeMap>,
    node: NodeId,
) -> Option<ScopeRule> {
    match raw {
        OneOf::Short(claim) => Some(ScopeRule::Claim(claim_name(context, claim, node))),
        OneOf::Long(raw) => {
            let claim = context.required(node, "claim", &raw.claim, "write whose values are meant");
            let hint = "write {VALUE: [SCOPE]}";
            let values = context.required(node, "values", &raw.values, hint);
            let (Entries(entries), node) = values?;
            if entries.is_empty() {
                context.report.error(node, format!("is empty, {hint}"));
            }
            let values = entries.iter().filter_map(|(value, given)| {
                let (list, node) = given.found()?;
                Some((value.clone(), scopes(context, list, node)))
            });
            let values = values.collect();
            claim.map(|(claim, node)| ScopeRule::Values {
                claim: claim_name(context, claim, node),
                values,
            })
        }
    }
}
