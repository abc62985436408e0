//! Tools: which there are, where they are, what they may do, and what bounds them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::config::change::{Changes, Direction, Kind, Told, pairs};
use crate::config::diff::keeping::captured;
use crate::config::diff::{policies, references, schema};
use crate::config::snapshot::{Tool, ToolLimits, Unavailable};
use crate::model::id::ToolName;
use crate::model::outcome::Effect;
use crate::policy::answer::ErrorBody;
use crate::policy::approval::{Candidate, ToolPolicy};
use crate::policy::breaker::{Settings, Trip};
use crate::policy::endpoint::{Endpoint, Scheme};
use crate::policy::quota::{Per, RateLimit};
use crate::policy::retry::RetryPolicy;
use crate::policy::rules::{Mode, Policy};
use crate::policy::wire::WireProfile;
use crate::policy::wire_view::WireView;

type Tools = HashMap<ToolName, Arc<Tool>>;

/// Compares all tools, and once each wire format that tools use before and after.
pub(super) fn compare_all(changes: &mut Changes, old: &Tools, new: &Tools) {
    let mut profiles: BTreeMap<&str, (&WireProfile, &WireProfile)> = BTreeMap::new();
    for (name, old, new) in pairs(by_name(old), by_name(new)) {
        let path = format!("tools.{name}");
        let (Some(old), Some(new)) = (old, new) else {
            let told = |tool: Option<&Tool>| tool.map(in_short);
            let (old, new) = (told(old), told(new));
            changes.appears(Kind::Tool, path, old.as_deref(), new.as_deref());
            continue;
        };
        compare(changes, &path, old, new);
        if old.profile.name == new.profile.name {
            profiles.insert(&old.profile.name, (&old.profile, &new.profile));
        } else {
            let (before, after) = (Told::text(&old.profile.name), Told::text(&new.profile.name));
            changes.compare(Kind::WireFormat, format!("{path}.profile"), &before, &after);
            compare_profile(changes, &path, &old.profile, &new.profile);
        }
    }
    for (name, (old, new)) in profiles {
        compare_profile(changes, &format!("profiles.{name}"), old, new);
    }
}

fn by_name(tools: &Tools) -> impl Iterator<Item = (&str, &Tool)> {
    tools.iter().map(|(name, tool)| (name.as_str(), &**tool))
}

fn in_short(tool: &Tool) -> String {
    let (place, policy) = (address(&tool.endpoint), tool.policy.effect.as_str());
    let turned_off = if tool.enabled { "" } else { ", turned off" };
    format!("{place}, {policy}{turned_off}")
}

fn compare(changes: &mut Changes, path: &str, old: &Tool, new: &Tool) {
    let Tool {
        // It follows from the name.
        id: _,
        name: _,
        // Where it stands makes no difference.
        file: _,
        path: _,
        description,
        owner,
        runbook,
        enabled,
        // Told once for all tools that use it.
        profile: _,
        endpoint,
        // Everything in it is compared by itself.
        route_digest: _,
        definition_digest: _,
        parameters,
        // Made of `parameters` and `description`.
        arguments: _,
        exports: _,
        // What could be read of these differs from machine to machine: `written` has what is meant.
        headers: _,
        header_names,
        tokens: _,
        identity: _,
        signing: _,
        accept_credentials,
        timeout,
        result_limit,
        policy,
        // It is in `policy`.
        ask_first: _,
        policies,
        forward_trace,
        capture,
        limits,
        destructive,
        idempotent,
        read_only,
        filler,
        written,
        unavailable,
    } = old;
    let mut at = At { changes, path };
    at.compare(Kind::Setting, "description", Told::text(description), Told::text(&new.description));
    let text = |text: &Option<String>| Told::text(text.as_deref().unwrap_or("none"));
    at.compare(Kind::Setting, "owner", text(owner), text(&new.owner));
    at.compare(Kind::Setting, "runbook", text(runbook), text(&new.runbook));
    at.compare(Kind::Setting, "filler", text(filler), text(&new.filler));
    at.compare(Kind::Enabled, "enabled", Told::truth(*enabled), Told::truth(new.enabled));
    compare_endpoint(&mut at, "url", Kind::Target, endpoint, &new.endpoint);
    let names = |names: &[String]| Told::items(names, "none");
    let (before, after) = (names(accept_credentials), names(&new.accept_credentials));
    at.compare(Kind::AcceptedHeaders, "accept_credentials", before, after);
    at.compare(Kind::Timeout, "timeout", Told::time(*timeout), Told::time(new.timeout));
    let bytes = |bytes: usize| Told::number(bytes, format!("{bytes} bytes"));
    let (before, after) = (bytes(*result_limit), bytes(new.result_limit));
    at.compare(Kind::ResultLimit, "result_max_bytes", before, after);
    compare_policy(&mut at, policy, &new.policy);
    let (before, after) = (Told::truth(*forward_trace), Told::truth(new.forward_trace));
    at.compare(Kind::ForwardTrace, "forward_trace", before, after);
    at.compare(Kind::Capture, "capture", captured(*capture), captured(new.capture));
    compare_limits(&mut at, limits, &new.limits);
    let truth = Told::truth;
    let (before, after) = (truth(*idempotent), truth(new.idempotent));
    at.compare(Kind::Idempotent, "annotations.idempotent", before, after);
    let (before, after) = (truth(*destructive), truth(new.destructive));
    at.compare(Kind::Setting, "annotations.destructive", before, after);
    let (before, after) = (truth(*read_only), truth(new.read_only));
    at.compare(Kind::Setting, "annotations.read_only", before, after);
    if *read_only != new.read_only {
        // A policy that is about what writes is not about what reads. Everything else about policies is told once.
        let names = |policies: &[Arc<Policy>]| {
            let in_force = policies.iter().filter(|policy| policy.mode == Mode::Enforce);
            Told::items(in_force.map(|policy| &policy.id), "none")
        };
        let (before, after) = (names(policies), names(&new.policies));
        at.compare(Kind::ToolPolicies, "annotations.read_only", before, after);
    }
    let ended = |reason: &Option<Unavailable>| match reason {
        Some(Unavailable::ExceptionEnded) => Told::text("unavailable: its exception ended"),
        // That is so on this machine.
        Some(Unavailable::NoSecret(_)) | None => Told::text("available"),
    };
    at.compare(Kind::Setting, "", ended(unavailable), ended(&new.unavailable));
    let (before, after) = (names(header_names), names(&new.header_names));
    at.compare(Kind::Headers, "headers", before, after);
    compare_written(&mut at, written, &new.written);
    let read = |text: &Option<Arc<serde_json::value::RawValue>>| {
        text.as_ref().map(|text| serde_json::from_str(text.get()).unwrap_or_default())
    };
    let path = format!("{path}.parameters");
    let (before, after) = (read(parameters), read(&new.parameters));
    schema::compare(changes, &path, before.as_ref(), after.as_ref());
}

/// Changes below one path.
struct At<'c> {
    changes: &'c mut Changes,
    path: &'c str,
}

impl At<'_> {
    fn compare(&mut self, kind: Kind, key: &str, old: Told, new: Told) {
        let dot = if key.is_empty() { "" } else { "." };
        self.changes.compare(kind, format!("{}{dot}{key}", self.path), &old, &new);
    }
}

/// A URL without its query, in which tokens stand.
fn address(endpoint: &Endpoint) -> String {
    let url = endpoint.to_string();
    match url.split_once('?') {
        Some((place, _)) => format!("{place}?***"),
        None => url,
    }
}

/// One line: another server is another matter than another path of the same one.
fn compare_endpoint(at: &mut At<'_>, key: &str, kind: Kind, old: &Endpoint, new: &Endpoint) {
    let told = |endpoint: &Endpoint| Told::hidden(endpoint, address(endpoint));
    let server = |endpoint: &Endpoint| {
        (endpoint.scheme() == Scheme::Http, endpoint.host().clone(), endpoint.port())
    };
    let kind = if server(old) == server(new) { Kind::Setting } else { kind };
    at.compare(kind, key, told(old), told(new));
}

fn compare_policy(at: &mut At<'_>, old: &ToolPolicy, new: &ToolPolicy) {
    let ToolPolicy { effect, ask_first, candidate } = old;
    let strictness = |effect: Effect| Told::number(effect.rank(), effect.as_str());
    at.compare(Kind::Policy, "policy", strictness(*effect), strictness(new.effect));
    // Elsewhere it is the effect, or never comes to it.
    if [*effect, new.effect] == [Effect::RequireApproval; 2] {
        at.compare(
            Kind::AskFirst,
            "ask_first",
            Told::truth(*ask_first),
            Told::truth(new.ask_first),
        );
    }
    let word = |candidate: &Option<Candidate>| match candidate {
        None => Told::text("none"),
        Some(Candidate { effect, when }) if when.is_empty() => Told::text(effect.as_str()),
        Some(Candidate { effect, when }) => Told::text(format!(
            "{} when {}",
            effect.as_str(),
            policies::conditions(when).join(", ")
        )),
    };
    at.compare(Kind::Candidate, "policy.shadow", word(candidate), word(&new.candidate));
}

fn compare_limits(at: &mut At<'_>, old: &ToolLimits, new: &ToolLimits) {
    let ToolLimits { concurrency, rates, breaker } = old;
    let count = |count: usize| Told::number(count, count);
    at.compare(Kind::CallsInFlight, "concurrency", count(*concurrency), count(new.concurrency));
    compare_rates(at, rates, &new.rates);
    let (Some(old), Some(new)) = (breaker, &new.breaker) else {
        let on = |breaker: &Option<Settings>| {
            let on = breaker.is_some();
            Told::number(u8::from(on), if on { "on" } else { "off" })
        };
        return at.compare(Kind::Breaker, "breaker", on(breaker), on(&new.breaker));
    };
    let Settings { consecutive, failure_ratio, min_calls, window, open_for, max_open_for } = old;
    let number = |number: u32| Told::number(number, number);
    let kind = Kind::BreakerThreshold;
    at.compare(kind, "breaker.consecutive", number(*consecutive), number(new.consecutive));
    let (before, after) = (Told::ratio(*failure_ratio), Told::ratio(new.failure_ratio));
    at.compare(kind, "breaker.failure_ratio", before, after);
    at.compare(kind, "breaker.min_calls", number(*min_calls), number(new.min_calls));
    // In a longer time there are more failures, and more calls that work.
    at.compare(Kind::Setting, "breaker.window", Told::time(*window), Told::time(new.window));
    let kind = Kind::BreakerPause;
    at.compare(kind, "breaker.open_for", Told::time(*open_for), Told::time(new.open_for));
    at.compare(
        kind,
        "breaker.max_open_for",
        Told::time(*max_open_for),
        Told::time(new.max_open_for),
    );
}

/// A limit has no name: it goes by whom it counts for, and where there are several of these by its unit of time.
fn compare_rates(at: &mut At<'_>, old: &[RateLimit], new: &[RateLimit]) {
    fn named(limits: &[RateLimit]) -> Vec<(String, &RateLimit)> {
        let mut named: Vec<(String, &RateLimit)> = Vec::new();
        for limit in limits {
            let per = word(limit.per);
            let alone = limits.iter().filter(|other| other.per == limit.per).count() == 1;
            let rate = limit.rate.to_string();
            let unit = rate.split_once('/').map_or("", |(_, unit)| unit);
            let base = if alone { per.to_owned() } else { format!("{per}.{unit}") };
            let same = named.iter().filter(|(name, _)| name.starts_with(&base)).count();
            named.push((if same == 0 { base } else { format!("{base}.{same}") }, limit));
        }
        named
    }
    let (old, new) = (named(old), named(new));
    let each = |list: &'_ [(String, &RateLimit)]| -> Vec<(String, RateLimit)> {
        list.iter().map(|(name, limit)| (name.clone(), **limit)).collect()
    };
    let (old, new) = (each(&old), each(&new));
    for (name, old, new) in pairs(
        old.iter().map(|(name, limit)| (name, limit)),
        new.iter().map(|(name, limit)| (name, limit)),
    ) {
        let key = format!("rate_limits.{name}");
        let (Some(old), Some(new)) = (old, new) else {
            let told = |limit: Option<&RateLimit>| {
                let text = limit.map_or("none".into(), |limit| {
                    format!("{} (at most {} at once)", limit.rate, limit.burst())
                });
                Told::number(u8::from(limit.is_some()), text)
            };
            at.compare(Kind::RateLimit, &key, told(old), told(new));
            continue;
        };
        let period = |limit: &RateLimit| Told::number(limit.period().as_nanos(), limit.rate);
        at.compare(Kind::RatePeriod, &key, period(old), period(new));
        let burst = |limit: &RateLimit| Told::number(limit.burst().get(), limit.burst());
        at.compare(Kind::RateBurst, &format!("{key}.burst"), burst(old), burst(new));
    }
}

fn word(per: Per) -> &'static str {
    match per {
        Per::Agent => "agent",
        Per::EndUser => "end_user",
        Per::Key => "key",
        Per::Organisation => "organisation",
        Per::Tool => "tool",
    }
}

/// What stands in the file about secrets: names and places.
fn compare_written(at: &mut At<'_>, old: &Value, new: &Value) {
    let (old_own, new_own) = (&old["authentication"], &new["authentication"]);
    let way = |own: &Value| {
        let ways = own.as_object().cloned().unwrap_or_default();
        Told::text(ways.keys().next().map_or("none", String::as_str))
    };
    at.compare(Kind::Authentication, "authentication", way(old_own), way(new_own));
    let (before, after) = (&old_own["oauth2"], &new_own["oauth2"]);
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    if before.is_object() != after.is_object() {
        // The secret is sent to one more server, or to none.
        let looser = after.is_object();
        let direction = if looser { Direction::Looser } else { Direction::Tighter };
        let told = |own: &Value| {
            let url = Endpoint::parse(&text(&own["token_url"])).ok();
            Told::text(url.map_or("none".into(), |url| address(&url)))
        };
        let path = format!("{}.authentication.oauth2.token_url", at.path);
        at.changes.note(Kind::TokenTarget, direction, path, &told(before), &told(after));
    }
    if before.is_object() && after.is_object() {
        let key = |key: &str| format!("authentication.oauth2.{key}");
        let urls = [before, after].map(|own| Endpoint::parse(&text(&own["token_url"])).ok());
        if let [Some(before), Some(after)] = &urls {
            compare_endpoint(at, &key("token_url"), Kind::TokenTarget, before, after);
        }
        let scopes = |own: &Value| {
            let scopes = own["scope"].as_str().unwrap_or_default();
            Told::items(scopes.split_whitespace(), "none")
        };
        at.compare(Kind::TokenScope, &key("scope"), scopes(before), scopes(after));
        for name in ["client_id", "audience", "method"] {
            let (before, after) = (Told::text(text(&before[name])), Told::text(text(&after[name])));
            at.compare(Kind::Setting, &key(name), before, after);
        }
    }
    let user = |own: &Value| Told::text(own["basic"]["user"].as_str().unwrap_or("none"));
    at.compare(Kind::Setting, "authentication.basic.user", user(old_own), user(new_own));
    for key in ["last", "previous_until"] {
        let text = |own: &Value| Told::text(own["secret"][key].as_str().unwrap_or("none"));
        at.compare(Kind::Setting, &format!("secret.{key}"), text(old), text(new));
    }
    references::compare_tool(at.changes, at.path, old, new);
}

fn compare_profile(changes: &mut Changes, path: &str, old: &WireProfile, new: &WireProfile) {
    let (old, new) = (old.view(), new.view());
    let WireView { name: _, dialect, retry, circuit, error_body, signs, format } = &old;
    let mut at = At { changes, path };
    let word = |dialect| Told::text(format!("{dialect:?}").to_lowercase());
    at.compare(Kind::WireFormat, "dialect", word(*dialect), word(new.dialect));
    let RetryPolicy { attempts, on_network, statuses, repeat_key } = retry;
    let number = |number: u32| Told::number(number, number);
    at.compare(Kind::Attempts, "retry.attempts", number(*attempts), number(new.retry.attempts));
    let network = |on: bool| Told::items(on.then_some("network"), "none");
    let (before, after) = (network(*on_network), network(new.retry.on_network));
    at.compare(Kind::RetriedFailures, "retry.on", before, after);
    let list = |statuses: &std::collections::BTreeSet<u16>| Told::items(statuses, "none");
    let (before, after) = (list(statuses), list(&new.retry.statuses));
    at.compare(Kind::RetriedStatuses, "retry.statuses", before, after);
    // A receiver that can tell a repeat lets more be repeated.
    let (before, after) = (Told::truth(*repeat_key), Told::truth(new.retry.repeat_key));
    at.compare(Kind::Idempotent, "retry.repeat_key", before, after);
    match (circuit, new.circuit) {
        (Some(Trip { statuses, lasts }), Some(new)) => {
            let (before, after) = (list(statuses), list(&new.statuses));
            at.compare(Kind::TripStatuses, "circuit.statuses", before, after);
            at.compare(Kind::TripPause, "circuit.lasts", Told::time(*lasts), Told::time(new.lasts));
        }
        (old, new) => {
            let on = |on: bool| Told::number(u8::from(on), if on { "on" } else { "off" });
            at.compare(Kind::Breaker, "circuit", on(old.is_some()), on(new.is_some()));
        }
    }
    let read = |body: ErrorBody| match body {
        ErrorBody::Never => Told::number(0_u8, "never"),
        ErrorBody::ClientErrors => Told::number(1_u8, "4xx"),
    };
    at.compare(Kind::ErrorBody, "error_body", read(*error_body), read(new.error_body));
    let signed =
        |signs: bool| Told::number(u8::from(signs), if signs { "signed" } else { "unsigned" });
    at.compare(Kind::Signature, "signature", signed(*signs), signed(new.signs));
    let told = |format: &str| Told::hidden(format, "headers, body and signature");
    if path.starts_with("profiles.") {
        at.compare(Kind::WireFormat, "format", told(format), told(&new.format));
    }
}
