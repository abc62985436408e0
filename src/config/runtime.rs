//! Compiles `listeners`, `dns`, `shutdown`, `logging` and `metrics`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::leaf::{Size, Verbatim};
use crate::config::raw::{
    RawApiListener, RawDns, RawFormat, RawLevel, RawListeners, RawLogging, RawShutdown, RawUnix,
};
use crate::config::snapshot::{
    ApiListener, Bind, DnsSettings, Listeners, LogLevel, Logging, Shutdown,
};
use crate::config::yaml::NodeId;

const API_PORT: u16 = 8477;
const TELEMETRY_PORT: u16 = 9477;
const DNS_PORT: u16 = 53;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Compiles `listeners`.
pub fn listeners(context: &Context<'_>, given: &Given<RawListeners>) -> Listeners {
    let default = RawListeners::default();
    let raw = given.get().unwrap_or(&default);
    let api = api(context, &raw.api);
    let address = raw.telemetry.get().map(|telemetry| &telemetry.address);
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, TELEMETRY_PORT));
    let telemetry =
        address.and_then(|address| listen_address(context, address)).unwrap_or(everywhere);
    if let Bind::Tcp(address) = &api.bind
        && clash(*address, telemetry)
        && let Some(node) = raw.telemetry.node().or(raw.api.node())
    {
        context.report.error(node, format!("both listeners would take port {}", telemetry.port()));
    }
    Listeners { api, telemetry }
}

fn api(context: &Context<'_>, given: &Given<RawApiListener>) -> ApiListener {
    let default = RawApiListener::default();
    let raw = given.get().unwrap_or(&default);
    if let (Some(_), Some(unix)) = (raw.address.node(), raw.unix.node()) {
        context.report.error(unix, "stands beside `address`, one of the two is enough");
    }
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, API_PORT));
    let bind = match raw.unix.found() {
        Some((raw, node)) => unix(context, raw, node),
        None => Bind::Tcp(listen_address(context, &raw.address).unwrap_or(local)),
    };
    if let Bind::Tcp(address) = &bind
        && !address.ip().is_loopback()
        && let Some(node) = raw.address.node()
    {
        context.report.warn(
            node,
            "serves keys and calls without TLS beyond this machine, put a TLS proxy before it",
        );
    }
    let max_body = raw.max_body.found().map(|(Size(bytes), node)| (*bytes, node));
    let max_connections = raw.max_connections.found().map(|(count, node)| (*count, node));
    let max_connections = context.number(max_connections, 10_000, 1..=1_000_000);
    ApiListener {
        bind,
        max_body: context.number(max_body, 1 << 20, 1 << 10..=64 << 20),
        header_timeout: context.duration(
            &raw.header_timeout,
            seconds(5),
            millis(100)..=seconds(300),
        ),
        idle_timeout: context.duration(&raw.idle_timeout, seconds(60), seconds(1)..=seconds(3600)),
        max_connections: usize::try_from(max_connections).unwrap_or(usize::MAX),
    }
}

fn unix(context: &Context<'_>, raw: &RawUnix, node: NodeId) -> Bind {
    let path = context.required(node, "path", &raw.path, "write where the socket is to be");
    let path = path.map(|(Verbatim(path), _)| context.folder.join(path)).unwrap_or_default();
    let mode = raw.mode.found().and_then(|(text, node)| {
        let octal = text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
        if mode.is_none() {
            context.report.error(node, "must be permission bits in octal, such as \"0600\"");
        }
        mode
    });
    Bind::Unix { path, mode: mode.unwrap_or(0o600) }
}

fn listen_address(context: &Context<'_>, given: &Given<Verbatim>) -> Option<SocketAddr> {
    let (Verbatim(text), node) = given.found()?;
    let everywhere = text.strip_prefix(':').and_then(|port| port.parse().ok());
    let everywhere = everywhere.map(|port: u16| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let address = everywhere.or_else(|| text.parse().ok());
    if address.is_none() {
        let message =
            "must be an address and a port such as 127.0.0.1:8477, or `:8477` for all interfaces";
        context.report.error(node, message);
    }
    address
}

fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let overlap =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && overlap
}

/// The addresses that the listeners take, on every interface where one listens on all: they are never called.
pub fn own_listeners(context: &Context<'_>, listeners: &Listeners) -> Vec<SocketAddr> {
    let environment = context.environment;
    let api = match &listeners.api.bind {
        Bind::Tcp(address) => Some(*address),
        Bind::Unix { .. } => None,
    };
    let written = || api.into_iter().chain([listeners.telemetry]).collect();
    let taken = environment.bound.clone().unwrap_or_else(written);
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let mut own = Vec::new();
    for listener in taken.into_iter().filter(|address| address.port() != 0) {
        own.push(listener);
        if listener.ip().is_unspecified() {
            let all = environment.interfaces.iter().copied().chain(loopback);
            own.extend(all.map(|ip| SocketAddr::new(ip, listener.port())));
        }
    }
    own
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
