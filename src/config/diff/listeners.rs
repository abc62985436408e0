//! Who reaches Sortie: its listeners.

use std::net::IpAddr;

use serde_json::Value;

use crate::config::change::{Changes, Direction, Kind, Told};
use crate::config::listening::{AdminListener, ApiListener, Bind, Listeners, TelemetryListener};

/// Compares the three.
pub(super) fn compare(changes: &mut Changes, old: &Listeners, new: &Listeners) {
    let Listeners { api, telemetry, admin } = old;
    compare_api(changes, api, &new.api);
    let TelemetryListener { address, max_connections } = telemetry;
    let (before, after) = (Bind::Tcp(*address), Bind::Tcp(new.telemetry.address));
    compare_exposure(changes, "listeners.telemetry.address", &before, &after);
    let (before, after) = (count(*max_connections), count(new.telemetry.max_connections));
    changes.compare(Kind::ListenerLimit, "listeners.telemetry.max_connections", &before, &after);
    match (admin, &new.admin) {
        (Some(AdminListener { bind, max_connections }), Some(new)) => {
            compare_bind(changes, "listeners.admin", bind, &new.bind);
            let (before, after) = (count(*max_connections), count(new.max_connections));
            changes.compare(
                Kind::ListenerLimit,
                "listeners.admin.max_connections",
                &before,
                &after,
            );
        }
        (old, new) => {
            let told =
                |admin: &Option<AdminListener>| admin.as_ref().map(|admin| place(&admin.bind));
            let (old, new) = (told(old), told(new));
            changes.appears(Kind::AdminListener, "listeners.admin", old.as_deref(), new.as_deref());
        }
    }
}

fn compare_api(changes: &mut Changes, old: &ApiListener, new: &ApiListener) {
    let ApiListener { bind, max_body, header_timeout, idle_timeout, max_connections, tls } = old;
    compare_bind(changes, "listeners.api", bind, &new.bind);
    let on = |tls: bool| Told::number(u8::from(tls), if tls { "on" } else { "off" });
    changes.compare(Kind::ListenerTls, "listeners.api.tls", &on(*tls), &on(new.tls));
    let mut limit = |key: &str, old: Told, new: Told| {
        changes.compare(Kind::ListenerLimit, format!("listeners.api.{key}"), &old, &new);
    };
    limit("max_body", count(*max_body), count(new.max_body));
    limit("header_timeout", Told::time(*header_timeout), Told::time(new.header_timeout));
    limit("idle_timeout", Told::time(*idle_timeout), Told::time(new.idle_timeout));
    limit("max_connections", count(*max_connections), count(new.max_connections));
}

/// Compares what is told as it is written: the authorities of clients need not be readable here, and where a relative path
/// leads depends on where the file lies.
pub(super) fn compare_written(changes: &mut Changes, old: &Value, new: &Value) {
    for name in ["admin", "api"] {
        let path = |all: &Value| {
            let path = all.pointer(&format!("/listeners/{name}/unix/path"));
            path.and_then(Value::as_str).map(Told::text)
        };
        if let (Some(old), Some(new)) = (path(old), path(new)) {
            changes.compare(Kind::Setting, format!("listeners.{name}.unix.path"), &old, &new);
        }
    }
    compare_clients(changes, old, new);
}

fn compare_clients(changes: &mut Changes, old: &Value, new: &Value) {
    let tls = |all: &'_ Value| all.pointer("/listeners/api/tls").cloned().unwrap_or_default();
    let (old, new) = (tls(old), tls(new));
    if old.is_null() || new.is_null() {
        // Told as TLS that came or went.
        return;
    }
    let asked = |tls: &Value| {
        let asked = !tls["client_ca"].is_null();
        Told::number(u8::from(asked), if asked { "asked for" } else { "not asked for" })
    };
    let path = "listeners.api.tls.client_ca";
    changes.compare(Kind::ClientCertificates, path, &asked(&old), &asked(&new));
    let names = |tls: &Value| {
        let names = tls["client_names"].as_array().cloned().unwrap_or_default();
        let names = names.iter().filter_map(Value::as_str).map(str::to_ascii_lowercase);
        Told::items(names, "any")
    };
    let path = "listeners.api.tls.client_names";
    changes.compare(Kind::ClientNames, path, &names(&old), &names(&new));
}

fn compare_bind(changes: &mut Changes, path: &str, old: &Bind, new: &Bind) {
    if let (Bind::Unix { mode: before, .. }, Bind::Unix { mode: after, .. }) = (old, new) {
        let path = format!("{path}.mode");
        return changes.compare(Kind::SocketMode, path, &bits(*before), &bits(*after));
    }
    compare_exposure(changes, path, old, new);
}

fn place(bind: &Bind) -> String {
    match bind {
        Bind::Tcp(address) => address.to_string(),
        Bind::Unix { path, mode: _ } => format!("unix {}", path.display()),
    }
}

/// Each permission by itself: one more lets somebody in.
fn bits(mode: u32) -> Told {
    let who = [("owner", 6), ("group", 3), ("others", 0)];
    let what = [("read", 4), ("write", 2), ("execute", 1)];
    let all = who.iter().flat_map(|(who, shift)| {
        let may = what.iter().filter(move |(_, bit)| mode & (bit << shift) != 0);
        may.map(move |(what, _)| format!("{who} {what}"))
    });
    Told::items(all, "nobody")
}

/// Compares from whom two places can be reached.
fn compare_exposure(changes: &mut Changes, path: &str, old: &Bind, new: &Bind) {
    let ip = |bind: &Bind| bind.address().map(|address| address.ip().to_canonical());
    let (before, after) = (exposure(ip(old)), exposure(ip(new)));
    let told = |rank: u8, bind: &Bind| Told::number(rank, place(bind));
    let (told_old, told_new) = (told(before, old), told(after, new));
    if before == NETWORK && after == NETWORK && ip(old) != ip(new) {
        // Who is in another network nobody can tell.
        let kind = Kind::ListenAddress;
        return changes.note(kind, Direction::Looser, path, &told_old, &told_new);
    }
    changes.compare(Kind::ListenAddress, path, &told_old, &told_new);
}

/// The rank of an address that one network reaches.
const NETWORK: u8 = 2;

/// By how many an address is reached: by whom a socket's mode lets, by this machine, by one network, by all of them.
fn exposure(ip: Option<IpAddr>) -> u8 {
    match ip {
        None => 0,
        Some(ip) if ip.is_unspecified() => 3,
        Some(ip) if ip.is_loopback() => 1,
        Some(_) => NETWORK,
    }
}

fn count(count: usize) -> Told {
    Told::number(count, count)
}
