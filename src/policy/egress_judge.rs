//! One name or one address, judged by the compiled rules.
//!
//! Order for an address: the floor, own addresses, denied ranges, exceptions, stand-ins of a proxy, private ranges, and
//! what kind of address it is.

use std::net::{IpAddr, SocketAddr};

use crate::policy::egress::{Ipv6, Mode};
use crate::policy::egress_check::{Compiled, CompiledException, DAY_SECONDS};
use crate::policy::egress_code::EgressCode;
use crate::policy::endpoint::{Endpoint, Host, Scheme};
use crate::policy::names::{self, HostPattern};
use crate::policy::{ports, ranges};

/// What is asked: may this tool call this endpoint on this day? And what is known so far.
#[derive(Debug, Clone, Copy)]
pub struct Inquiry<'e> {
    endpoint: &'e Endpoint,
    tool: &'e str,
    /// Days of Unix time.
    day: i64,
    /// Closed but for the addresses of an exception: why.
    closed: Option<EgressCode>,
    /// In `deny_hosts`, and shadow mode let it pass.
    denied: bool,
    /// Outside of `allow_hosts` or `ports`: only an exception or shadow mode lets an address pass.
    outside: Option<EgressCode>,
}

impl<'e> Inquiry<'e> {
    /// Asks.
    pub fn new(tool: &'e str, endpoint: &'e Endpoint, unix_seconds: i64) -> Self {
        let day = unix_seconds.div_euclid(DAY_SECONDS);
        Self { endpoint, tool, day, closed: None, denied: false, outside: None }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &'e Endpoint {
        self.endpoint
    }
}

/// `Ok`: it passes, in shadow mode perhaps in spite of the rule inside.
pub type Verdict = Result<Option<EgressCode>, EgressCode>;

impl Compiled {
    /// Scheme, name and port. What an exception may still open is noted in `inquiry` and settled per address.
    pub fn judge_name(&self, inquiry: &mut Inquiry<'_>) -> Verdict {
        let endpoint = inquiry.endpoint;
        let enforce = self.mode == Mode::Enforce;
        let is_named = self.exceptions_for(inquiry).next().is_some();
        if endpoint.scheme() == Scheme::Http {
            if !self.exceptions_for(inquiry).any(|exception| exception.http) {
                return Err(EgressCode::Scheme);
            }
            inquiry.closed = Some(EgressCode::Scheme);
        }
        if let Host::Name(name) = endpoint.host()
            && let Some(code) = names::refused_name(name)
        {
            if !is_named || names::is_localhost(name) {
                return Err(code);
            }
            inquiry.closed = inquiry.closed.or(Some(code));
        }
        let mut shadow = None;
        if matches_host(&self.deny_hosts, endpoint.host()) {
            if enforce {
                return Err(EgressCode::DeniedHost);
            }
            inquiry.denied = true;
            shadow = Some(EgressCode::DeniedHost);
        }
        let allow_hosts = &self.allow_hosts;
        if !allow_hosts.is_empty() && !matches_host(allow_hosts, endpoint.host()) {
            let code = EgressCode::HostNotAllowed;
            if !is_named {
                if enforce {
                    return Err(code);
                }
                shadow = shadow.or(Some(code));
            }
            inquiry.outside = Some(code);
        }
        if !self.is_public_port(endpoint.port()) {
            let code = EgressCode::Port;
            if !self.exceptions_for(inquiry).any(|exception| self.covers(exception, endpoint)) {
                if enforce {
                    return Err(code);
                }
                shadow = shadow.or(Some(code));
            }
            inquiry.outside = inquiry.outside.or(Some(code));
        }
        Ok(shadow)
    }

    /// One name of a CNAME chain. A name on the list passes where an exception names it beside the host, and then for the
    /// exception's addresses only.
    pub fn judge_alias(&self, name: &str, inquiry: &mut Inquiry<'_>) -> Result<(), EgressCode> {
        if let Some(code) = names::refused_name(name) {
            let is_named = self
                .exceptions_for(inquiry)
                .any(|exception| exception.hosts.iter().any(|host| host.matches_name(name)));
            if !is_named || names::is_localhost(name) {
                return Err(code);
            }
            inquiry.closed = inquiry.closed.or(Some(code));
        }
        if self.deny_hosts.iter().any(|host| host.matches_name(name)) {
            if self.mode == Mode::Enforce {
                return Err(EgressCode::DeniedHost);
            }
            inquiry.denied = true;
        }
        Ok(())
    }

    /// One address. Without `inquiry` it is judged alone.
    pub fn judge_address(&self, address: IpAddr, inquiry: Option<&Inquiry<'_>>) -> Verdict {
        let kind = ranges::classify(address, &self.nat64_prefixes);
        let inner = kind.embedded.map(|embedded| IpAddr::V4(embedded.address));
        let either = |test: &dyn Fn(IpAddr) -> bool| test(address) || inner.is_some_and(test);
        if either(&ranges::on_floor) {
            return Err(kind.code);
        }
        let port = inquiry.map(|inquiry| inquiry.endpoint.port());
        if either(&|ip| self.is_own(ip, port)) {
            return Err(EgressCode::OwnAddress);
        }
        let is_loopback = either(&|ip| ip.is_loopback());
        let code = self.code_with_private_ranges(address, kind, is_loopback);
        let is_public = code == EgressCode::Ok;
        let enforce = self.mode == Mode::Enforce;
        let is_denied = either(&|ip| contains(&self.deny_cidrs, ip));
        // Shadow mode lets pass what is public only.
        if is_denied && (enforce || !is_public) {
            return Err(EgressCode::DeniedCidr);
        }
        let denied_cidr = is_denied.then_some(EgressCode::DeniedCidr);
        let Some(inquiry) = inquiry else {
            let passes = is_public || self.is_fake_ip(address, code);
            return if passes { Ok(denied_cidr) } else { Err(code) };
        };
        let denied_host = inquiry.denied.then_some(EgressCode::DeniedHost);
        let denied = denied_host.or(denied_cidr);
        // Plain http is for private addresses only, and an exception opens an address but never a disguise.
        let is_public_http = is_public && inquiry.endpoint.scheme() == Scheme::Http;
        let beyond_exceptions = kind.misleads() || is_public_http;
        let opens = |exception: &CompiledException| {
            contains(&exception.cidrs, address)
                && self.covers(exception, inquiry.endpoint)
                && !(is_loopback && exception.ports.is_empty())
        };
        if !beyond_exceptions && self.exceptions_for(inquiry).any(opens) {
            return match denied {
                Some(code) if !is_public => Err(code),
                _ => Ok(denied),
            };
        }
        // A proxy's stand-in for a name; one that stands in the URL itself stands for nothing.
        let is_name = matches!(inquiry.endpoint.host(), Host::Name(_));
        let passes = is_public || (is_name && self.is_fake_ip(address, code));
        if !passes {
            return Err(code);
        }
        self.judge_rest(inquiry).map(|outside| denied.or(outside))
    }

    /// What the name left to an exception's addresses, for a target that no exception opens.
    pub fn judge_rest(&self, inquiry: &Inquiry<'_>) -> Verdict {
        match (inquiry.closed, inquiry.outside) {
            (Some(code), _) => Err(code),
            (None, Some(code)) if self.mode == Mode::Enforce => Err(code),
            (None, outside) => Ok(outside),
        }
    }

    /// Whether an exception in force names the target with its scheme and port.
    pub fn is_excepted(&self, inquiry: &Inquiry<'_>) -> bool {
        self.excepting(inquiry).next().is_some()
    }

    /// The exceptions in force that name the target with its scheme and port.
    pub fn excepting<'r>(
        &'r self,
        inquiry: &'r Inquiry<'_>,
    ) -> impl Iterator<Item = &'r CompiledException> {
        let endpoint = inquiry.endpoint;
        self.exceptions_for(inquiry).filter(move |exception| self.covers(exception, endpoint))
    }

    /// Whether an address that passed is not dialled all the same.
    pub fn is_left_out(&self, address: IpAddr) -> bool {
        self.ipv6 == Ipv6::Off && address.is_ipv6()
    }

    /// The exceptions that are in force.
    pub fn exceptions_in_force(
        &self,
        unix_seconds: i64,
    ) -> impl Iterator<Item = &CompiledException> {
        let day = unix_seconds.div_euclid(DAY_SECONDS);
        self.exceptions.iter().filter(move |exception| is_in_force(exception, day))
    }

    /// `private_cidrs` make an address private, or what leads to one refused. Loopback and disguises stay what they are.
    fn code_with_private_ranges(
        &self,
        address: IpAddr,
        kind: ranges::Kind,
        is_loopback: bool,
    ) -> EgressCode {
        let private = &self.private_cidrs;
        if private.is_empty() || is_loopback || kind.misleads() {
            return kind.code;
        }
        match kind.embedded {
            _ if contains(private, address) => EgressCode::Private,
            Some(embedded)
                if kind.code == EgressCode::Ok && contains(private, embedded.address.into()) =>
            {
                embedded.code
            }
            _ => kind.code,
        }
    }

    fn is_fake_ip(&self, address: IpAddr, code: EgressCode) -> bool {
        matches!(code, EgressCode::Benchmarking | EgressCode::UniqueLocal)
            && contains(&self.fake_ip_cidrs, address)
    }

    fn is_own(&self, address: IpAddr, port: Option<u16>) -> bool {
        let listens = |listener: &SocketAddr| {
            // A listener on all addresses takes the whole loopback range, of which interfaces show one address only.
            let own = listener.ip().to_canonical();
            Some(listener.port()) == port
                && (own == address || (own.is_unspecified() && address.is_loopback()))
        };
        self.own_addresses.contains(&address) || self.own_listeners.iter().any(listens)
    }

    fn is_public_port(&self, port: u16) -> bool {
        self.ports.iter().any(|range| range.contains(port)) && !ports::is_bad(port)
    }

    /// Whether an exception covers the endpoint's scheme and port.
    fn covers(&self, exception: &CompiledException, endpoint: &Endpoint) -> bool {
        let port = endpoint.port();
        let named = match exception.ports.as_slice() {
            [] => self.is_public_port(port),
            ranges => ranges.iter().any(|range| range.contains(port)),
        };
        named && (exception.http || endpoint.scheme() == Scheme::Https)
    }

    /// The exceptions in force that name this tool and this host.
    fn exceptions_for<'r>(
        &'r self,
        inquiry: &'r Inquiry<'_>,
    ) -> impl Iterator<Item = &'r CompiledException> {
        let host = inquiry.endpoint.host();
        self.exceptions.iter().filter(move |exception| {
            is_in_force(exception, inquiry.day)
                && exception.tools.iter().any(|glob| names::glob_matches(glob, inquiry.tool))
                && matches_host(&exception.hosts, host)
        })
    }
}

fn is_in_force(exception: &CompiledException, day: i64) -> bool {
    exception.last_day.is_none_or(|last| day <= last)
}

fn matches_host(patterns: &[HostPattern], host: &Host) -> bool {
    patterns.iter().any(|pattern| match host {
        Host::Address(address) => pattern.matches_address(*address),
        Host::Name(name) => pattern.matches_name(name),
    })
}

fn contains(ranges: &[ipnet::IpNet], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}
