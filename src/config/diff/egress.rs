//! Which hosts and addresses may be called.

use std::fmt;

use crate::config::change::{Changes, Kind, Told};
use crate::model::time::rfc3339;
use crate::policy::address::EgressRules;
use crate::policy::egress::{Ipv6, MixedAnswers, Mode, Proxying};
use crate::policy::egress_check::{Compiled, CompiledException, DAY_SECONDS};
use crate::policy::ports::PortRange;

/// Compares the rules.
pub(super) fn compare(changes: &mut Changes, old: &EgressRules, new: &EgressRules) {
    let (old, new) = (old.compiled(), new.compiled());
    let Compiled {
        ports,
        ipv6,
        mixed_answers,
        deny_cidrs,
        private_cidrs,
        deny_hosts,
        allow_hosts,
        nat64_prefixes,
        own_addresses,
        // The addresses of this machine, and of the listeners, which are compared by themselves.
        own_listeners: _,
        fake_ip_cidrs,
        proxying,
        mode,
        exceptions,
    } = old;
    let mut lists = Lists { changes };
    lists.compare(Kind::Ports, "ports", ports, &new.ports);
    lists.compare(Kind::DeniedRanges, "deny_cidrs", deny_cidrs, &new.deny_cidrs);
    lists.compare(Kind::PrivateRanges, "private_cidrs", private_cidrs, &new.private_cidrs);
    lists.compare(Kind::DeniedHosts, "deny_hosts", deny_hosts, &new.deny_hosts);
    let hosts = |hosts: &[_]| Told::items(hosts, "any public host");
    let (before, after) = (hosts(allow_hosts), hosts(&new.allow_hosts));
    lists.changes.compare(Kind::AllowedHosts, "egress.allow_hosts", &before, &after);
    let prefixes = |list: &[_]| Told::items(list.iter().map(|one| format!("{one:?}")), "none");
    let (before, after) = (prefixes(nat64_prefixes), prefixes(&new.nat64_prefixes));
    lists.changes.compare(Kind::Nat64, "egress.nat64_prefixes", &before, &after);
    lists.compare(Kind::OwnAddresses, "own_addresses", own_addresses, &new.own_addresses);
    lists.compare(Kind::FakeRanges, "fake_ip_cidrs", fake_ip_cidrs, &new.fake_ip_cidrs);
    let changes = lists.changes;
    let word = |ipv6| match ipv6 {
        Ipv6::Off => Told::number(0_u8, "off"),
        Ipv6::On => Told::number(1_u8, "on"),
        Ipv6::Prefer => Told::number(1_u8, "prefer"),
    };
    changes.compare(Kind::Ipv6, "egress.ipv6", &word(*ipv6), &word(new.ipv6));
    let word = |mixed| match mixed {
        MixedAnswers::Refuse => Told::number(0_u8, "refuse"),
        MixedAnswers::Filter => Told::number(1_u8, "filter"),
    };
    let (before, after) = (word(*mixed_answers), word(new.mixed_answers));
    changes.compare(Kind::MixedAnswers, "egress.mixed_answers", &before, &after);
    let word = |mode| match mode {
        Mode::Enforce => Told::number(0_u8, "enforce"),
        Mode::Shadow => Told::number(1_u8, "shadow"),
    };
    changes.compare(Kind::Shadow, "egress.mode", &word(*mode), &word(new.mode));
    let word = |proxying| match proxying {
        Proxying::Off => Told::number(0_u8, "Sortie, without a proxy"),
        Proxying::ConnectIp => Told::number(0_u8, "Sortie, before the proxy (connect_ip)"),
        Proxying::ConnectName => Told::number(1_u8, "the proxy alone (connect_name)"),
    };
    let (before, after) = (word(*proxying), word(new.proxying));
    changes.compare(Kind::ProxyMode, "egress.proxy.mode", &before, &after);
    let exceptions: Vec<&CompiledException> = exceptions.iter().collect();
    for pair in pair(exceptions, &new.exceptions) {
        compare_exception(changes, &pair, ports, &new.ports);
    }
}

struct Lists<'c> {
    changes: &'c mut Changes,
}

impl Lists<'_> {
    fn compare<T: fmt::Display>(&mut self, kind: Kind, key: &str, old: &[T], new: &[T]) {
        let (old, new) = (Told::items(old, "none"), Told::items(new, "none"));
        self.changes.compare(kind, format!("egress.{key}"), &old, &new);
    }
}

/// An exception before and after, and its place: in the new list, or else in the old one.
struct Pair<'a> {
    place: usize,
    old: Option<&'a CompiledException>,
    new: Option<&'a CompiledException>,
}

/// An exception has no name: it is the same one where its tools and hosts are, else where its hosts are, else where its
/// tools are.
fn pair<'a>(old: Vec<&'a CompiledException>, new: &'a [CompiledException]) -> Vec<Pair<'a>> {
    type Sameness = fn(&CompiledException, &CompiledException) -> bool;
    let ways: [Sameness; 3] = [
        |one, other| one.tools == other.tools && one.hosts == other.hosts,
        |one, other| one.hosts == other.hosts,
        |one, other| one.tools == other.tools,
    ];
    let mut left: Vec<(usize, &CompiledException)> = old.into_iter().enumerate().collect();
    let mut found: Vec<Pair<'_>> = new
        .iter()
        .enumerate()
        .map(|(place, new)| Pair { place, old: None, new: Some(new) })
        .collect();
    for is_same in ways {
        for pair in found.iter_mut().filter(|pair| pair.old.is_none()) {
            let same =
                left.iter().position(|(_, old)| pair.new.is_some_and(|new| is_same(old, new)));
            pair.old = same.map(|at| left.remove(at).1);
        }
    }
    found.extend(left.into_iter().map(|(place, old)| Pair { place, old: Some(old), new: None }));
    found
}

fn compare_exception(
    changes: &mut Changes,
    pair: &Pair<'_>,
    old_ports: &[PortRange],
    new_ports: &[PortRange],
) {
    let path = format!("egress.exceptions[{}]", pair.place);
    let (Some(old), Some(new)) = (pair.old, pair.new) else {
        let told = |exception: Option<&CompiledException>| exception.map(ToString::to_string);
        let (old, new) = (told(pair.old), told(pair.new));
        return changes.appears(Kind::Exception, path, old.as_deref(), new.as_deref());
    };
    let CompiledException { tools, hosts, cidrs, ports, http, last_day, notes } = old;
    let mut lists = |kind, key: &str, old: Told, new: Told| {
        changes.compare(kind, format!("{path}.{key}"), &old, &new);
    };
    let texts = |list: &[String]| Told::items(list, "none");
    lists(Kind::ExceptionTools, "tools", texts(tools), texts(&new.tools));
    let (before, after) = (Told::items(hosts, "none"), Told::items(&new.hosts, "none"));
    lists(Kind::ExceptionHosts, "hosts", before, after);
    let (before, after) = (Told::items(cidrs, "none"), Told::items(&new.cidrs, "none"));
    lists(Kind::ExceptionRanges, "cidrs", before, after);
    // Those that say nothing follow `egress.ports`, whose change is told there.
    if !(ports.is_empty() && new.ports.is_empty()) {
        let of = |own: &[PortRange], all: &[PortRange]| {
            Told::items(if own.is_empty() { all } else { own }, "none")
        };
        lists(Kind::ExceptionPorts, "ports", of(ports, old_ports), of(&new.ports, new_ports));
    }
    lists(Kind::ExceptionHttp, "http", Told::truth(*http), Told::truth(new.http));
    let end = |last_day: Option<i64>| match last_day {
        None => Told::number(u128::MAX, "none"),
        Some(day) => {
            let date = rfc3339(day.saturating_mul(DAY_SECONDS).saturating_mul(1000));
            Told::number(day.max(0), date.as_str().get(..10).unwrap_or_default())
        }
    };
    lists(Kind::ExceptionEnd, "expires", end(*last_day), end(new.last_day));
    for name in ["reason", "owner"] {
        let note = |notes: &[(&str, String)]| {
            let found = notes.iter().find(|(known, _)| *known == name);
            Told::text(found.map_or("none", |(_, text)| text))
        };
        lists(Kind::Setting, name, note(notes), note(&new.notes));
    }
}
