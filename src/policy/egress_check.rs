//! The operator's egress settings, checked and compiled: what is wrong with them, and what only looks wrong.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use jiff::civil::Date;

use crate::policy::egress::{EgressSettings, Exception, Ipv6, MixedAnswers, Mode, Proxying};
use crate::policy::egress_problem::{RuleError, RuleProblem};
use crate::policy::names::HostPattern;
use crate::policy::ports::{self, PortRange};
use crate::policy::ranges::{self, Nat64Prefix};

/// Seconds in a day of Unix time.
pub const DAY_SECONDS: i64 = 86_400;

const WARN_DAYS: i64 = 30; // Contract, section 8: check warns from 30 days before.

const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);
const BENCHMARKING: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15);
const UNIQUE_LOCAL: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7);

/// How much of the settings is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// All of it: what the loader does.
    Full,
    /// That the text can be read. The stages hold without the rest, which is there to catch mistakes.
    Syntax,
}

/// The settings, compiled.
#[derive(Debug)]
pub struct Compiled {
    /// `ports`.
    pub ports: Vec<PortRange>,
    /// `ipv6`.
    pub ipv6: Ipv6,
    /// `mixed_answers`.
    pub mixed_answers: MixedAnswers,
    /// `deny_cidrs`.
    pub deny_cidrs: Vec<IpNet>,
    /// `private_cidrs`.
    pub private_cidrs: Vec<IpNet>,
    /// `deny_hosts`.
    pub deny_hosts: Vec<HostPattern>,
    /// `allow_hosts`.
    pub allow_hosts: Vec<HostPattern>,
    /// `nat64_prefixes`, the longest first.
    pub nat64_prefixes: Vec<Nat64Prefix>,
    /// `own_addresses`.
    pub own_addresses: Vec<IpAddr>,
    /// The listeners.
    pub own_listeners: Vec<SocketAddr>,
    /// `fake_ip_cidrs`.
    pub fake_ip_cidrs: Vec<IpNet>,
    /// `proxy`.
    pub proxying: Proxying,
    /// `mode`.
    pub mode: Mode,
    /// `exceptions`.
    pub exceptions: Vec<CompiledException>,
}

/// One exception, compiled.
#[derive(Debug)]
pub struct CompiledException {
    /// Globs of tool names.
    pub tools: Vec<String>,
    /// Hosts.
    pub hosts: Vec<HostPattern>,
    /// Ranges.
    pub cidrs: Vec<IpNet>,
    /// Ports; empty: those of `egress.ports`.
    pub ports: Vec<PortRange>,
    /// Whether plain http may be spoken.
    pub http: bool,
    /// The last day on which it counts, in days of Unix time.
    pub last_day: Option<i64>,
    /// Its reason, owner and end, as written: for the operator.
    pub notes: Vec<(&'static str, String)>,
}

impl fmt::Display for CompiledException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tools, hosts, cidrs, ports, http, notes, last_day: _ } = self;
        write!(f, "{} to {} at {}", tools.join(", "), list(hosts), list(cidrs))?;
        if !ports.is_empty() {
            write!(f, ", ports {}", list(ports))?;
        }
        f.write_str(if *http { ", plain http too" } else { "" })?;
        notes.iter().try_for_each(|(name, text)| write!(f, ", {name} {text:?}"))
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// Checks and compiles the settings; all errors at once.
pub fn compile(
    settings: &EgressSettings,
    strictness: Strictness,
) -> Result<Compiled, Vec<RuleError>> {
    let mut reader = Reader { strictness, errors: Vec::new() };
    let range = |purpose| move |text: &str| read_range(text, purpose, strictness);
    let mut nat64_prefixes = reader
        .list("nat64_prefixes", &settings.nat64_prefixes, |text| read_nat64(text, strictness));
    nat64_prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.length()));
    if settings.ports.is_empty() {
        reader.error("ports", RuleProblem::Empty { what: "port" });
    }
    let compiled = Compiled {
        ports: reader.list("ports", &settings.ports, |text| read_public_port(text, strictness)),
        ipv6: settings.ipv6,
        mixed_answers: settings.mixed_answers,
        deny_cidrs: reader.list("deny_cidrs", &settings.deny_cidrs, range(Purpose::Deny)),
        private_cidrs: reader.list("private_cidrs", &settings.private_cidrs, range(Purpose::Open)),
        deny_hosts: reader
            .list("deny_hosts", &settings.deny_hosts, |text| read_denied_host(text, strictness)),
        allow_hosts: reader.list("allow_hosts", &settings.allow_hosts, read_host),
        nat64_prefixes,
        own_addresses: reader.list("own_addresses", &settings.own_addresses, read_address),
        own_listeners: settings.own_listeners.clone(),
        proxying: settings.proxying,
        fake_ip_cidrs: reader.list(
            "fake_ip_cidrs",
            &settings.fake_ip_cidrs,
            range(Purpose::FakeIp),
        ),
        mode: settings.mode,
        exceptions: settings
            .exceptions
            .iter()
            .enumerate()
            .map(|(index, exception)| reader.exception(&format!("exceptions[{index}]"), exception))
            .collect(),
    };
    if reader.errors.is_empty() { Ok(compiled) } else { Err(reader.errors) }
}

/// What works but looks wrong: an exception without reason or owner, one that opens nothing or ends within 30 days.
pub fn warnings(settings: &EgressSettings, unix_seconds: i64) -> Vec<RuleError> {
    let today = unix_seconds.div_euclid(DAY_SECONDS);
    let mut found = Vec::new();
    for (index, exception) in settings.exceptions.iter().enumerate() {
        let mut warn = |field: &str, problem| {
            found.push(RuleError { field: format!("exceptions[{index}].{field}"), problem });
        };
        let is_blank = |text: &Option<String>| text.as_deref().unwrap_or("").trim().is_empty();
        if is_blank(&exception.reason) {
            warn("reason", RuleProblem::NoReason);
        }
        if is_blank(&exception.owner) {
            warn("owner", RuleProblem::NoOwner);
        }
        for (place, text) in exception.cidrs.iter().enumerate() {
            if text.parse().is_ok_and(|range: IpNet| opens_nothing(range)) {
                warn(&format!("cidrs[{place}]"), RuleProblem::OpensNothing { text: text.clone() });
            }
        }
        let last_day =
            exception.expires.as_ref().and_then(|text| Some((text, read_day(text).ok()?)));
        if let Some((text, last_day)) = last_day {
            let (text, days) = (text.clone(), last_day - today);
            if days < 0 {
                warn("expires", RuleProblem::Ended { text });
            } else if days <= WARN_DAYS {
                warn("expires", RuleProblem::EndsSoon { text, days });
            }
        }
    }
    found
}

/// What a range is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Deny,
    FakeIp,
    Open,
}

struct Reader {
    strictness: Strictness,
    errors: Vec<RuleError>,
}

impl Reader {
    fn error(&mut self, field: &str, problem: RuleProblem) {
        self.errors.push(RuleError { field: field.to_owned(), problem });
    }

    fn list<T>(
        &mut self,
        field: &str,
        texts: &[String],
        read: impl Fn(&str) -> Result<T, RuleProblem>,
    ) -> Vec<T> {
        let mut values = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            match read(text) {
                Ok(value) => values.push(value),
                Err(problem) => self.error(&format!("{field}[{index}]"), problem),
            }
        }
        values
    }

    fn exception(&mut self, field: &str, exception: &Exception) -> CompiledException {
        let strictness = self.strictness;
        let needed = [
            ("tools", "tool", &exception.tools),
            ("hosts", "host", &exception.hosts),
            ("cidrs", "range", &exception.cidrs),
        ];
        for (name, what, texts) in needed {
            if texts.is_empty() {
                self.error(&format!("{field}.{name}"), RuleProblem::Empty { what });
            }
        }
        let cidrs = self.list(&format!("{field}.cidrs"), &exception.cidrs, |text| {
            read_range(text, Purpose::Open, strictness)
        });
        let needs_ports = exception.ports.is_empty() && cidrs.iter().any(is_loopback);
        if needs_ports && strictness == Strictness::Full {
            self.error(&format!("{field}.ports"), RuleProblem::LoopbackPorts);
        }
        let last_day = exception.expires.as_deref().and_then(|text| {
            read_day(text).map_err(|problem| self.error(&format!("{field}.expires"), problem)).ok()
        });
        let notes = [
            ("reason", &exception.reason),
            ("owner", &exception.owner),
            ("expires", &exception.expires),
        ];
        let notes = notes.map(|(name, text)| Some((name, text.clone()?))).into_iter().flatten();
        CompiledException {
            tools: self.list(&format!("{field}.tools"), &exception.tools, read_tool_glob),
            hosts: self.list(&format!("{field}.hosts"), &exception.hosts, |text| {
                read_opened_host(text, strictness)
            }),
            cidrs,
            ports: self.list(&format!("{field}.ports"), &exception.ports, |text| {
                Ok(PortRange::parse(text)?)
            }),
            http: exception.http,
            last_day,
            notes: notes.collect(),
        }
    }
}

fn read_range(text: &str, purpose: Purpose, strictness: Strictness) -> Result<IpNet, RuleProblem> {
    let quoted = || text.to_owned();
    let range: IpNet = text.parse().map_err(|_| RuleProblem::Range { text: quoted() })?;
    if strictness == Strictness::Syntax {
        return Ok(range.trunc());
    }
    if range.prefix_len() == 0 && purpose != Purpose::Deny {
        return Err(RuleProblem::Everything { text: quoted() });
    }
    if range.trunc() != range {
        return Err(RuleProblem::HostBits { text: quoted(), better: range.trunc() });
    }
    let mapped = match range {
        IpNet::V4(_) => false,
        IpNet::V6(range) => {
            MAPPED.contains(&range) || (purpose != Purpose::Deny && range.contains(&MAPPED))
        }
    };
    if mapped {
        return Err(RuleProblem::Mapped { text: quoted() });
    }
    let stands_for_names = match range {
        IpNet::V4(range) => BENCHMARKING.contains(&range),
        IpNet::V6(range) => UNIQUE_LOCAL.contains(&range),
    };
    if purpose == Purpose::FakeIp && !stands_for_names {
        return Err(RuleProblem::FakeIp { text: quoted() });
    }
    Ok(range)
}

fn read_nat64(text: &str, strictness: Strictness) -> Result<Nat64Prefix, RuleProblem> {
    let prefix = match read_range(text, Purpose::Open, strictness)? {
        IpNet::V4(_) => None,
        IpNet::V6(range) => Nat64Prefix::new(range),
    };
    let prefix = prefix.ok_or_else(|| RuleProblem::Nat64 { text: text.to_owned() })?;
    if strictness == Strictness::Full && prefix.takes_a_disguise() {
        return Err(RuleProblem::Nat64Disguise { text: text.to_owned() });
    }
    Ok(prefix)
}

fn read_public_port(text: &str, strictness: Strictness) -> Result<PortRange, RuleProblem> {
    let range = PortRange::parse(text)?;
    match range.single().filter(|port| ports::is_bad(*port)) {
        Some(port) if strictness == Strictness::Full => Err(RuleProblem::BadPort { port }),
        _ => Ok(range),
    }
}

fn read_host(text: &str) -> Result<HostPattern, RuleProblem> {
    Ok(HostPattern::parse(text)?)
}

fn read_denied_host(text: &str, strictness: Strictness) -> Result<HostPattern, RuleProblem> {
    match HostPattern::parse(text)? {
        HostPattern::Address(address) if strictness == Strictness::Full => {
            Err(RuleProblem::DeniedAddress { range: address.into() })
        }
        host => Ok(host),
    }
}

fn read_opened_host(text: &str, strictness: Strictness) -> Result<HostPattern, RuleProblem> {
    let host = HostPattern::parse(text)?;
    if strictness == Strictness::Syntax {
        Ok(host)
    } else if host.is_localhost() {
        Err(RuleProblem::Localhost { host })
    } else if host.is_too_wide() {
        Err(RuleProblem::TooWide { host })
    } else {
        Ok(host)
    }
}

fn read_address(text: &str) -> Result<IpAddr, RuleProblem> {
    let address: IpAddr =
        text.parse().map_err(|_| RuleProblem::Address { text: text.to_owned() })?;
    Ok(address.to_canonical())
}

fn read_tool_glob(text: &str) -> Result<String, RuleProblem> {
    let fits =
        |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'*');
    if !text.is_empty() && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err(RuleProblem::ToolGlob { text: text.to_owned() })
    }
}

/// Days of Unix time, from the one spelling of a date that the contract has.
fn read_day(text: &str) -> Result<i64, RuleProblem> {
    let epoch = Date::constant(1970, 1, 1);
    let date = text.parse::<Date>().ok().filter(|date| date.to_string() == text);
    let days = date.and_then(|date| epoch.until(date).ok()).map(|span| i64::from(span.get_days()));
    days.ok_or_else(|| RuleProblem::Date { text: text.to_owned() })
}

fn is_loopback(range: &IpNet) -> bool {
    range.network().is_loopback() && range.broadcast().is_loopback()
}

fn opens_nothing(range: IpNet) -> bool {
    let (first, last) = (range.network(), range.broadcast());
    let code = ranges::classify(first, &[]).code;
    let same_kind = code == ranges::classify(last, &[]).code;
    same_kind && (ranges::is_disguise(code) || (ranges::on_floor(first) && ranges::on_floor(last)))
}

#[cfg(test)]
mod tests;
