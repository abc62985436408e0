//! Compiles `listeners`: where Sortie listens, and which addresses are therefore its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use crate::config::context::Context;
use crate::config::given::Given;
use crate::config::keys;
use crate::config::leaf::{Size, Verbatim};
use crate::config::listening::{
    AdminListener, ApiListener, Bind, Listeners, Operators, TelemetryListener,
};
use crate::config::local::Local;
use crate::config::raw::{
    RawAdminListener, RawApiListener, RawListeners, RawTelemetryListener, RawUnix,
};
use crate::config::yaml::NodeId;

const API_PORT: u16 = 8477;
const TELEMETRY_PORT: u16 = 9477;

/// Compiles `listeners`.
pub fn listeners(context: &Context<'_>, given: &Given<RawListeners>) -> Listeners {
    let default = RawListeners::default();
    let raw = given.get().unwrap_or(&default);
    let api = api(context, &raw.api);
    let telemetry = telemetry(context, &raw.telemetry);
    let admin = raw.admin.found().map(|(raw, node)| admin(context, raw, node));
    let listeners = Listeners { api, telemetry, admin };
    let places = [
        ("api", listeners.api.bind.address(), raw.api.node()),
        ("telemetry", Some(listeners.telemetry.address), raw.telemetry.node()),
        ("admin", admin_address(&listeners), raw.admin.node()),
    ];
    for (at, (name, address, node)) in places.iter().enumerate() {
        for (other, other_address, other_node) in &places[..at] {
            if let (Some(one), Some(two)) = (address, other_address)
                && clash(*one, *two)
                && let Some(node) = node.or(*other_node)
            {
                let message = format!("{other} and {name} would both take port {}", one.port());
                context.report.error(node, message);
            }
        }
    }
    listeners
}

/// Those of local development, in place of the file's: no TLS, no Unix socket, no admin listener.
pub fn local(context: &Context<'_>, local: Local) -> Listeners {
    let listeners = listeners(context, &Given::default());
    Listeners {
        api: ApiListener { bind: Bind::Tcp(local.api()), ..listeners.api },
        telemetry: TelemetryListener { address: local.telemetry(), ..listeners.telemetry },
        admin: None,
    }
}

fn admin_address(listeners: &Listeners) -> Option<SocketAddr> {
    listeners.admin.as_ref().and_then(|admin| admin.bind.address())
}

fn telemetry(context: &Context<'_>, given: &Given<RawTelemetryListener>) -> TelemetryListener {
    let default = RawTelemetryListener::default();
    let raw = given.get().unwrap_or(&default);
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, TELEMETRY_PORT));
    TelemetryListener {
        address: listen_address(context, &raw.address).unwrap_or(everywhere),
        max_connections: max_connections(context, &raw.max_connections, 256),
    }
}

/// Reads the admin listener. It changes what runs, so that it is reached from this machine alone.
fn admin(context: &Context<'_>, raw: &RawAdminListener, node: NodeId) -> AdminListener {
    let max_connections = max_connections(context, &raw.max_connections, 64);
    let bind = match (raw.unix.found(), raw.address.node()) {
        (Some(_), Some(address)) => {
            context.report.error(address, "stands beside `unix`, one of the two is enough");
            None
        }
        (Some((raw, node)), None) => Some(unix(context, raw, node)),
        (None, Some(address_node)) => {
            if raw.token.node().is_none() {
                context.report.missing(node, "token", "is missing, an address needs one");
            }
            let address = listen_address(context, &raw.address);
            if address.is_some_and(|address| !address.ip().is_loopback()) {
                let message = "must be a loopback address such as 127.0.0.1:9478";
                context.report.error(address_node, message);
            }
            address.map(Bind::Tcp)
        }
        (None, None) => {
            if raw.unix.node().is_none() {
                let message = "is missing, write where the socket is to be";
                context.report.missing(node, "unix", message);
            }
            None
        }
    };
    // Without a place there is an error, and nobody listens.
    let nowhere = || Bind::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    AdminListener { bind: bind.unwrap_or_else(nowhere), max_connections }
}

/// Whom the admin listener serves: a token that cannot be read lets nobody in, also on a socket.
pub fn operators(context: &Context<'_>, given: &Given<RawAdminListener>) -> Operators {
    let Some(raw) = given.get() else { return Operators::Nobody };
    if raw.token.node().is_none() {
        return if raw.unix.node().is_some() { Operators::Anybody } else { Operators::Nobody };
    }
    let digest = raw.token.found().and_then(|(token, node)| {
        let source = context.source(node, &token.file, &token.env)?;
        keys::bearer(context, node, &source, "the admin listener serves nobody")
    });
    digest.map_or(Operators::Nobody, Operators::Token)
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
        && raw.tls.node().is_none()
        && let Some(node) = raw.address.node()
    {
        context.report.warn(
            node,
            "serves keys and calls without TLS beyond this machine, give it `tls` or put a TLS proxy before it",
        );
    }
    let max_body = raw.max_body.found().map(|(Size(bytes), node)| (*bytes, node));
    ApiListener {
        bind,
        max_body: context.number(max_body, 1 << 20, 1 << 10..=64 << 20),
        header_timeout: context.duration(
            &raw.header_timeout,
            Duration::from_secs(5),
            Duration::from_millis(100)..=Duration::from_secs(300),
        ),
        idle_timeout: context.duration(
            &raw.idle_timeout,
            Duration::from_secs(60),
            Duration::from_secs(1)..=Duration::from_secs(3600),
        ),
        max_connections: max_connections(context, &raw.max_connections, 10_000),
        tls: raw.tls.node().is_some(),
    }
}

fn max_connections(context: &Context<'_>, given: &Given<u32>, default: u32) -> usize {
    let given = given.found().map(|(count, node)| (*count, node));
    usize::try_from(context.number(given, default, 1..=1_000_000)).unwrap_or(usize::MAX)
}

fn unix(context: &Context<'_>, raw: &RawUnix, node: NodeId) -> Bind {
    let path = context.required(node, "path", &raw.path, "write where the socket is to be");
    let path =
        path.map(|(Verbatim(path), node)| context.folder(node).join(path)).unwrap_or_default();
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
pub fn own(context: &Context<'_>, listeners: &Listeners) -> Vec<SocketAddr> {
    let environment = context.environment;
    let taken = environment.bound.clone().unwrap_or_else(|| listeners.addresses().collect());
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
