//! What changed between two configurations, and whether more is possible than before.
//!
//! Whoever reads the result trusts that what is not said did not change: every struct is taken apart by the names of all
//! its fields, so that a new field does not compile until something here decides about it.

use std::collections::BTreeSet;

use crate::config::change::{Change, Changes, Direction, Kind, Told};
use crate::config::snapshot::{
    DnsSettings, Logging, PoolSettings, Proxy, Roots, Shutdown, Snapshot, TlsSettings, TlsVersion,
};

mod callers;
mod egress;
mod keeping;
mod listeners;
mod policies;
mod references;
mod schema;
mod told;
mod tool;

/// Every difference; what is looser comes first.
pub fn compare(old: &Snapshot, new: &Snapshot) -> Vec<Change> {
    let mut changes = Changes::default();
    let Snapshot {
        // They count and name configurations, and say nothing of their own.
        generation: _,
        hash: _,
        tools,
        // It follows from the names of the tools.
        exported: _,
        // It is no setting of a file.
        local: _,
        // Files that cannot be read whole are compared by nobody.
        unread: _,
        files: _,
        agents,
        policies,
        organisations,
        authentication,
        egress,
        listeners,
        // Its token is a reference, and the rest stands in `listeners`.
        operators: _,
        // What could be read of it differs from machine to machine: `redacted` has what is written.
        serving: _,
        dns,
        tls,
        connect_timeout,
        pool,
        max_calls_in_flight,
        rounds,
        waiting,
        storage,
        notifications,
        proxy,
        shutdown,
        logging,
        tracing,
        metrics_per_tool,
        region,
        redacted,
        // They are findings, not settings.
        warnings: _,
    } = old;
    tool::compare_all(&mut changes, tools, &new.tools);
    policies::compare_agents(&mut changes, agents, &new.agents);
    policies::compare_all(&mut changes, policies, &new.policies);
    callers::compare(&mut changes, authentication, &new.authentication);
    egress::compare(&mut changes, egress, &new.egress);
    listeners::compare(&mut changes, listeners, &new.listeners);
    listeners::compare_written(&mut changes, redacted, &new.redacted);
    references::compare(&mut changes, redacted, &new.redacted);
    compare_dns(&mut changes, dns, &new.dns);
    compare_tls(&mut changes, tls, &new.tls);
    let mut span = |kind, path: &str, old, new| {
        changes.compare(kind, path, &Told::time(old), &Told::time(new))
    };
    span(Kind::Timeout, "egress.connect_timeout", *connect_timeout, new.connect_timeout);
    let Shutdown { accept_for, grace } = shutdown;
    span(Kind::Setting, "shutdown.accept_for", *accept_for, new.shutdown.accept_for);
    span(Kind::Setting, "shutdown.grace", *grace, new.shutdown.grace);
    compare_pool(&mut changes, pool, &new.pool);
    let count = |count: usize| Told::number(count, count);
    let (before, after) = (count(*max_calls_in_flight), count(new.max_calls_in_flight));
    changes.compare(Kind::CallsInFlight, "limits.max_calls_in_flight", &before, &after);
    keeping::compare_rounds(&mut changes, *rounds, new.rounds);
    keeping::compare_waiting(&mut changes, *waiting, new.waiting);
    keeping::compare_storage(&mut changes, storage, &new.storage);
    keeping::compare_written(&mut changes, redacted, &new.redacted);
    told::compare_organisations(&mut changes, organisations, &new.organisations);
    told::compare(&mut changes, notifications, &new.notifications);
    compare_proxy(&mut changes, proxy.as_ref(), new.proxy.as_ref());
    told::compare_tracing(&mut changes, tracing.as_ref(), new.tracing.as_ref());
    let mut setting = |path: &str, old: String, new: String| {
        changes.compare(Kind::Setting, path, &Told::text(old), &Told::text(new));
    };
    let Logging { level, json } = logging;
    setting("logging.level", format!("{level:?}"), format!("{:?}", new.logging.level));
    let form = |json: bool| if json { "json" } else { "text" }.to_owned();
    setting("logging.format", form(*json), form(new.logging.json));
    setting("metrics.per_tool", metrics_per_tool.to_string(), new.metrics_per_tool.to_string());
    let named = |region: &Option<String>| region.clone().unwrap_or_else(|| "none".into());
    setting("region", named(region), named(&new.region));
    changes.into_sorted()
}

fn compare_dns(changes: &mut Changes, old: &DnsSettings, new: &DnsSettings) {
    let DnsSettings { servers, timeout, attempts, max_ttl, max_entries } = old;
    let mut setting = |path: &str, old: Told, new: Told| {
        changes.compare(Kind::Setting, format!("dns.{path}"), &old, &new);
    };
    let list = |servers: &[std::net::SocketAddr]| {
        Told::text(servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    };
    setting("servers", list(servers), list(&new.servers));
    setting("timeout", Told::time(*timeout), Told::time(new.timeout));
    setting("attempts", Told::text(attempts), Told::text(new.attempts));
    setting("cache.max_ttl", Told::time(*max_ttl), Told::time(new.max_ttl));
    setting("cache.max_entries", Told::text(max_entries), Told::text(new.max_entries));
}

fn compare_pool(changes: &mut Changes, old: &PoolSettings, new: &PoolSettings) {
    let PoolSettings { reuse, max_idle_per_host, idle_timeout, max_age } = old;
    let mut setting = |path: &str, old: Told, new: Told| {
        changes.compare(Kind::Setting, format!("egress.pool.{path}"), &old, &new);
    };
    let word = |reuse| Told::text(format!("{reuse:?}").to_lowercase());
    setting("reuse", word(*reuse), word(new.reuse));
    let (before, after) = (Told::text(max_idle_per_host), Told::text(new.max_idle_per_host));
    setting("max_idle_per_host", before, after);
    setting("idle_timeout", Told::time(*idle_timeout), Told::time(new.idle_timeout));
    setting("max_age", Told::time(*max_age), Told::time(new.max_age));
}

fn compare_tls(changes: &mut Changes, old: &TlsSettings, new: &TlsSettings) {
    let TlsSettings { min_version, roots, extra_ca } = old;
    let version = |version| match version {
        TlsVersion::V12 => Told::number(12_u8, "1.2"),
        TlsVersion::V13 => Told::number(13_u8, "1.3"),
    };
    let (before, after) = (version(*min_version), version(new.min_version));
    changes.compare(Kind::TlsVersion, "egress.tls.min_version", &before, &after);
    let word = |roots| match roots {
        Roots::System => Told::text("system"),
        Roots::Webpki => Told::text("webpki"),
    };
    changes.compare(Kind::Roots, "egress.tls.roots", &word(*roots), &word(new.roots));
    compare_roots(changes, "egress.tls.extra_ca", extra_ca.as_ref(), new.extra_ca.as_ref());
}

/// Each certificate is an authority: one more opens, one less closes.
fn compare_roots(changes: &mut Changes, path: &str, old: Option<&String>, new: Option<&String>) {
    let certificates = |text: Option<&String>| -> BTreeSet<String> {
        let text = text.map(String::as_str).unwrap_or_default();
        let ends = text.split("-----BEGIN CERTIFICATE-----").skip(1);
        ends.map(|rest| {
            rest.split("-----END").next().unwrap_or_default().split_whitespace().collect()
        })
        .collect()
    };
    let (before, after) = (certificates(old), certificates(new));
    let told = |set: &BTreeSet<String>| {
        Told::hidden(format!("{set:?}"), format!("{} certificates", set.len()))
    };
    let (told_old, told_new) = (told(&before), told(&after));
    if before.is_superset(&after) && before != after {
        changes.note(Kind::Roots, Direction::Tighter, path, &told_old, &told_new);
    } else {
        changes.compare(Kind::Roots, path, &told_old, &told_new);
    }
}

fn compare_proxy(changes: &mut Changes, old: Option<&Proxy>, new: Option<&Proxy>) {
    // Who judges addresses is told among the rules, and its password is a reference.
    match (old, new) {
        (Some(Proxy { endpoint, authorization: _, extra_ca }), Some(new)) => {
            let (before, after) = (Told::text(endpoint), Told::text(&new.endpoint));
            changes.compare(Kind::Proxy, "egress.proxy.url", &before, &after);
            let (before, after) = (extra_ca.as_ref(), new.extra_ca.as_ref());
            compare_roots(changes, "egress.proxy.extra_ca", before, after);
        }
        (old, new) => {
            let told = |proxy: Option<&Proxy>| {
                Told::text(proxy.map_or("none".into(), |proxy| proxy.endpoint.to_string()))
            };
            // One that comes sees every call, one that goes no longer holds any back.
            changes.compare(Kind::Proxy, "egress.proxy.url", &told(old), &told(new));
        }
    }
}

#[cfg(test)]
mod tests;
