//! Who may call, and what.

use crate::config::change::{Changes, Kind, Told, pairs};
use crate::model::time::rfc3339;
use crate::policy::authentication::{Authentication, Known, KnownCertificate};
use crate::policy::identity::{Caller, Glob, Key, KeyDigest, Scope};
use crate::policy::issuer::{Issuer, KeySource, ScopeRule};

/// Compares everybody who is known.
pub(super) fn compare(changes: &mut Changes, old: &Authentication, new: &Authentication) {
    let nobody = Known::default();
    let known = |authentication: &Authentication| match authentication {
        Authentication::Known(known) => known.clone(),
        // What it may do is fixed by the contract.
        Authentication::None(_) => nobody.clone(),
    };
    let open = |authentication: &Authentication| match authentication {
        Authentication::Known(_) => Told::number(0_u8, "callers are known"),
        Authentication::None(_) => Told::number(1_u8, "none"),
    };
    changes.compare(Kind::NoAuthentication, "auth", &open(old), &open(new));
    let (old, new) = (known(old), known(new));
    let Known { keys, certificates, issuers } = &old;
    for (name, old, new) in pairs(
        keys.all().iter().map(|key| (&key.caller.name, key)),
        new.keys.all().iter().map(|key| (&key.caller.name, key)),
    ) {
        compare_key(changes, &format!("auth.keys.{name}"), old, new);
    }
    for (name, old, new) in pairs(
        certificates.iter().map(|known| (&known.caller.name, known)),
        new.certificates.iter().map(|known| (&known.caller.name, known)),
    ) {
        compare_certificate(changes, &format!("auth.certs.{name}"), old, new);
    }
    compare_order(changes, certificates, &new.certificates);
    for (name, old, new) in pairs(
        issuers.iter().map(|issuer| (&issuer.name, issuer)),
        new.issuers.iter().map(|issuer| (&issuer.name, issuer)),
    ) {
        compare_issuer(changes, &format!("auth.jwt.{name}"), old, new);
    }
}

fn compare_key(changes: &mut Changes, path: &str, old: Option<&Key>, new: Option<&Key>) {
    let (Some(old), Some(new)) = (old, new) else {
        let told = |key: Option<&Key>| key.map(|key| in_short(&key.caller));
        let (old, new) = (told(old), told(new));
        return changes.appears(Kind::Caller, path, old.as_deref(), new.as_deref());
    };
    // Values that were read are secrets; those that the file states are seen by their digests.
    let Key { caller, digests: _, stated, ends } = old;
    compare_caller(changes, path, caller, &new.caller);
    let end = |ends: Option<i64>| match ends {
        None => Told::number(u128::MAX, "none"),
        // It is the first second of the day after.
        Some(ends) => {
            let last_day = rfc3339(ends.saturating_sub(1).saturating_mul(1000));
            Told::number(ends.max(0), last_day.as_str().get(..10).unwrap_or_default())
        }
    };
    changes.compare(Kind::CallerEnd, format!("{path}.expires"), &end(*ends), &end(new.ends));
    let values = |stated: &[KeyDigest]| {
        let count = stated.len();
        Told::hidden(format!("{stated:?}"), format!("{count} by sha256"))
    };
    let (before, after) = (values(stated), values(&new.stated));
    changes.compare(Kind::KeyValue, format!("{path}.key"), &before, &after);
}

fn compare_certificate(
    changes: &mut Changes,
    path: &str,
    old: Option<&KnownCertificate>,
    new: Option<&KnownCertificate>,
) {
    let (Some(old), Some(new)) = (old, new) else {
        let told = |known: Option<&KnownCertificate>| known.map(|known| in_short(&known.caller));
        let (old, new) = (told(old), told(new));
        return changes.appears(Kind::Caller, path, old.as_deref(), new.as_deref());
    };
    let KnownCertificate { name, caller } = old;
    let (before, after) = (Told::items([name], "any"), Told::items([&new.name], "any"));
    changes.compare(Kind::CallerNames, format!("{path}.san"), &before, &after);
    compare_caller(changes, path, caller, &new.caller);
}

/// The first entry that holds a name counts: where one goes, moves back or holds fewer names, a later one that may do
/// more gets what it held.
fn compare_order(changes: &mut Changes, old: &[KnownCertificate], new: &[KnownCertificate]) {
    let shadowing = |all: &[KnownCertificate], at: usize| -> Vec<String> {
        let Some((entry, before)) = all.get(..=at).and_then(<[_]>::split_last) else {
            return Vec::new();
        };
        let bounding = before.iter().filter(|other| !may_all(&other.caller, &entry.caller));
        bounding.map(|other| format!("{} ({})", other.caller.name, other.name)).collect()
    };
    for (at, entry) in new.iter().enumerate() {
        let name = &entry.caller.name;
        let Some(was) = old.iter().position(|other| other.caller.name == *name) else { continue };
        let (before, after) = (shadowing(old, was), shadowing(new, at));
        let (before, after) = (Told::items(before, "none"), Told::items(after, "none"));
        changes.compare(Kind::CallersBefore, format!("auth.certs.{name}"), &before, &after);
    }
}

/// Whether one caller may do all that another may.
fn may_all(one: &Caller, other: &Caller) -> bool {
    fn hold(wide: &[Glob], narrow: &[Glob]) -> bool {
        let held = |narrow: &Glob| wide.iter().any(|wide| wide.matches(narrow.as_str()));
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(held))
    }
    one.organisation == other.organisation
        && other.scopes.iter().all(|scope| one.has(*scope))
        && hold(&one.agents, &other.agents)
        && hold(&one.tools, &other.tools)
}

fn compare_issuer(changes: &mut Changes, path: &str, old: Option<&Issuer>, new: Option<&Issuer>) {
    let (Some(old), Some(new)) = (old, new) else {
        let told = |issuer: Option<&Issuer>| {
            issuer.map(|issuer| format!("tokens for {}", issuer.audiences.join(", ")))
        };
        let (old, new) = (told(old), told(new));
        return changes.appears(Kind::Caller, path, old.as_deref(), new.as_deref());
    };
    let Issuer { name: _, audiences, keys, organisation, agent, scopes } = old;
    let list = |audiences: &[String]| Told::items(audiences, "none");
    let (before, after) = (list(audiences), list(&new.audiences));
    changes.compare(Kind::Audiences, format!("{path}.audiences"), &before, &after);
    let source = |keys: &KeySource| match keys {
        // Which file that is stands among the references.
        KeySource::Missing | KeySource::Set(_) => Told::text("a file"),
        KeySource::Url(endpoint) => Told::text(endpoint),
    };
    changes.compare(Kind::KeySet, format!("{path}.jwks"), &source(keys), &source(&new.keys));
    let (before, after) = (Told::text(organisation), Told::text(&new.organisation));
    changes.compare(Kind::Organisation, format!("{path}.organisation"), &before, &after);
    let claim = |agent: &Option<String>| Told::items(agent, "none");
    let (before, after) = (claim(agent), claim(&new.agent));
    changes.compare(Kind::AgentClaim, format!("{path}.agent"), &before, &after);
    let (before, after) = (scope_rule(scopes), scope_rule(&new.scopes));
    changes.compare(Kind::ScopeRule, format!("{path}.scopes"), &before, &after);
}

fn scope_rule(rule: &ScopeRule) -> Told {
    match rule {
        ScopeRule::Claim(claim) => Told::items([format!("those of `{claim}`")], "none"),
        ScopeRule::Values { claim, values } => {
            let each = values.iter().flat_map(|(value, scopes)| {
                scopes.iter().map(move |scope| format!("`{claim}` {value}: {}", scope.as_str()))
            });
            Told::items(each, "none")
        }
    }
}

fn compare_caller(changes: &mut Changes, path: &str, old: &Caller, new: &Caller) {
    // The name and the proof are how the two were found.
    let Caller { name: _, proof: _, organisation, scopes, agents, tools } = old;
    let (before, after) = (Told::text(organisation), Told::text(&new.organisation));
    changes.compare(Kind::Organisation, format!("{path}.organisation"), &before, &after);
    let words = |scopes: &[Scope]| Told::items(scopes.iter().map(|scope| scope.as_str()), "none");
    let (before, after) = (words(scopes), words(&new.scopes));
    changes.compare(Kind::Scopes, format!("{path}.scopes"), &before, &after);
    let bounds = |globs: &[Glob]| Told::items(globs.iter().map(Glob::as_str), "any");
    let (before, after) = (bounds(agents), bounds(&new.agents));
    changes.compare(Kind::CallerAgents, format!("{path}.agents"), &before, &after);
    let (before, after) = (bounds(tools), bounds(&new.tools));
    changes.compare(Kind::CallerTools, format!("{path}.tools"), &before, &after);
}

fn in_short(caller: &Caller) -> String {
    let scopes: Vec<&str> = caller.scopes.iter().map(|scope| scope.as_str()).collect();
    let bound = |globs: &[Glob]| match globs {
        [] => "any".to_owned(),
        globs => globs.iter().map(Glob::as_str).collect::<Vec<_>>().join(", "),
    };
    let (agents, tools) = (bound(&caller.agents), bound(&caller.tools));
    format!("{}; agents: {agents}; tools: {tools}", scopes.join(", "))
}
