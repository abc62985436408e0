//! Compiles `dns`, `shutdown` and `logging`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::raw::{RawDns, RawFormat, RawLevel, RawLogging, RawShutdown};
use crate::config::snapshot::{DnsSettings, LogLevel, Logging, Shutdown};

const DNS_PORT: u16 = 53;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Compiles `dns`.
pub fn dns(context: &Context<'_>, given: &Given<RawDns>) -> DnsSettings {
    let default = RawDns::default();
    let raw = given.get().unwrap_or(&default);
    let mut servers = Vec::new();
    match raw.servers.found() {
        None => servers.extend(system(context)),
        Some((list, node)) => {
            if list.is_empty() {
                context.report.error(node, "must name a server, or be left out for the system's");
            }
            for (text, node) in list.iter().filter_map(Given::found) {
                match (text.as_str(), server(text)) {
                    ("system", _) => servers.extend(system(context)),
                    (_, Some(address)) => servers.push(address),
                    (_, None) => context.report.error(
                        node,
                        "must be `system`, an address such as 10.0.0.10, or one with a port such as 127.0.0.1:5353",
                    ),
                }
            }
        }
    }
    let cache = raw.cache.get();
    let no_span = Given::default();
    let max_ttl = cache.map_or(&no_span, |cache| &cache.max_ttl);
    let attempts = raw.attempts.found().map(|(count, node)| (*count, node));
    let entries =
        cache.and_then(|cache| cache.max_entries.found()).map(|(count, node)| (*count, node));
    let max_entries = context.number(entries, 1024, 1..=1 << 20);
    DnsSettings {
        servers,
        timeout: context.duration(&raw.timeout, seconds(2), millis(100)..=seconds(30)),
        attempts: context.number(attempts, 2, 1..=10),
        // An answer older than a minute would hide a move for too long.
        max_ttl: context.duration(max_ttl, seconds(60), Duration::ZERO..=seconds(60)),
        max_entries: usize::try_from(max_entries).unwrap_or(usize::MAX),
    }
}

/// The name servers of resolv.conf; this machine where it names none, as the C library does.
fn system(context: &Context<'_>) -> Vec<SocketAddr> {
    let lines = context.environment.resolv_conf.lines();
    let servers = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let text = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        let address = text.parse::<IpAddr>().ok();
        if address.is_none() {
            let message = format!(
                "`nameserver {text}` of resolv.conf is skipped, it is no address without a zone"
            );
            let root = context.report.document.root();
            context.report.warn_below(root, &["dns", "servers"], message);
        }
        address
    });
    let servers: Vec<_> = servers.map(|ip| SocketAddr::new(ip, DNS_PORT)).collect();
    if servers.is_empty() {
        vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT))]
    } else {
        servers
    }
}

fn server(text: &str) -> Option<SocketAddr> {
    let alone = text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, DNS_PORT));
    alone
        .or_else(|| text.parse().ok())
        .filter(|address| !address.ip().is_unspecified() && address.port() != 0)
}

/// Compiles `shutdown`.
pub fn shutdown(context: &Context<'_>, given: &Given<RawShutdown>) -> Shutdown {
    let default = RawShutdown::default();
    let raw = given.get().unwrap_or(&default);
    Shutdown {
        accept_for: context.duration(
            &raw.accept_for,
            Duration::ZERO,
            Duration::ZERO..=seconds(600),
        ),
        grace: context.duration(&raw.grace, seconds(25), Duration::ZERO..=seconds(3600)),
    }
}

/// Compiles `logging`.
pub fn logging(given: &Given<RawLogging>) -> Logging {
    let raw = given.get();
    let level = match raw.and_then(|raw| raw.level.get()) {
        Some(RawLevel::Trace) => LogLevel::Trace,
        Some(RawLevel::Debug) => LogLevel::Debug,
        Some(RawLevel::Info) | None => LogLevel::Info,
        Some(RawLevel::Warn) => LogLevel::Warn,
        Some(RawLevel::Error) => LogLevel::Error,
    };
    let json = match raw.and_then(|raw| raw.format.get()) {
        Some(RawFormat::Json) | None => true,
        Some(RawFormat::Text) => false,
    };
    Logging { level, json }
}
