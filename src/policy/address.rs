//! Which endpoints and IP addresses may be dialled: the only maker of `VettedAddr`.
//!
//! `admit` judges what is known before DNS, `vet` each answer of DNS. Deny beats exception, exception beats the built-in
//! ranges, and the floor beats all.

use std::net::{IpAddr, SocketAddr};

use crate::policy::egress::{EgressSettings, Ipv6, MixedAnswers, Proxying};
use crate::policy::egress_check::{self, Compiled, CompiledException, Strictness};
use crate::policy::egress_code::EgressCode;
use crate::policy::egress_judge::{Inquiry, Verdict};
use crate::policy::egress_problem::RuleError;
use crate::policy::endpoint::{Endpoint, Host};

/// More answers than this refuse a name, and so do more CNAME targets.
pub const MAX_ANSWERS: usize = 64;

/// The rules, compiled.
#[derive(Debug)]
pub struct EgressRules {
    rules: Compiled,
}

impl EgressRules {
    /// Checks and compiles the settings; all errors at once.
    pub fn new(settings: &EgressSettings) -> Result<Self, Vec<RuleError>> {
        Ok(Self { rules: egress_check::compile(settings, Strictness::Full)? })
    }

    /// Compiles settings that the loader would refuse as likely mistakes, for tests that show that the stages hold
    /// without it.
    pub fn without_load_checks(settings: &EgressSettings) -> Result<Self, Vec<RuleError>> {
        Ok(Self { rules: egress_check::compile(settings, Strictness::Syntax)? })
    }

    /// The stage before DNS: scheme, name, port and literal address, for one tool at one time.
    pub fn admit<'e>(
        &self,
        tool: &'e str,
        endpoint: &'e Endpoint,
        unix_seconds: i64,
    ) -> Judged<Admitted<'e>> {
        let mut inquiry = Inquiry::new(tool, endpoint, unix_seconds);
        let mut shadow = match self.rules.judge_name(&mut inquiry) {
            Ok(shadow) => shadow,
            Err(code) => return Judged::refused(Refusal::of_name(code, endpoint)),
        };
        if let Host::Address(address) = *endpoint.host() {
            match self.judge(address, Some(&inquiry)) {
                Ok(passed) => shadow = shadow.or(passed),
                Err(code) => {
                    return Judged::refused(Refusal::of_address(code, address, endpoint));
                }
            }
        }
        let admitted = Admitted(inquiry);
        if let WayOut::Delegated(_) = self.way_out(&admitted) {
            // No address will be judged here, so nothing is left open for one.
            match self.rules.judge_rest(&inquiry) {
                Ok(passed) => shadow = shadow.or(passed),
                Err(code) => return Judged::refused(Refusal::of_name(code, endpoint)),
            }
        }
        Judged { verdict: Ok(admitted), shadow }
    }

    /// The stage after DNS: every answer is judged, and what may be dialled comes back in the order of dialling.
    ///
    /// `shadow` covers what `admit` let pass, too. The answer for an address in the URL is that address.
    pub fn vet(&self, admitted: &Admitted<'_>, answers: &Answers) -> Judged<Vec<VettedAddr>> {
        let endpoint = admitted.endpoint();
        let literal = admitted.literal();
        let answers = literal.as_ref().unwrap_or(answers);
        let refuse = |code| Judged::refused(Refusal::of_name(code, endpoint));
        if answers.addresses.len() > MAX_ANSWERS || answers.names.len() > MAX_ANSWERS {
            return refuse(EgressCode::TooManyAnswers);
        }
        let mut inquiry = admitted.0;
        for name in &answers.names {
            if let Err(code) = self.rules.judge_alias(name, &mut inquiry) {
                return Judged::refused(Refusal::of_alias(code, name, endpoint));
            }
        }
        let mut shadow = None;
        let mut vetted = Vec::with_capacity(answers.addresses.len());
        let mut first_refusal = None;
        let mut left_out = false;
        for &address in &answers.addresses {
            let passed = match self.rules.judge_address(address, Some(&inquiry)) {
                Ok(passed) => passed,
                Err(code) => {
                    first_refusal = first_refusal
                        .or_else(|| Some(Refusal::of_address(code, address, endpoint)));
                    continue;
                }
            };
            shadow = shadow.or(passed);
            let candidate = VettedAddr(SocketAddr::new(address, endpoint.port()));
            if self.rules.is_left_out(address) {
                left_out = true;
            } else if !vetted.contains(&candidate) {
                vetted.push(candidate);
            }
        }
        match first_refusal {
            Some(refusal) if self.rules.mixed_answers == MixedAnswers::Refuse => {
                Judged::refused(refusal)
            }
            _ if !vetted.is_empty() => Judged { verdict: Ok(self.in_order(vetted)), shadow },
            _ if left_out => refuse(EgressCode::Ipv6Disabled),
            Some(refusal) => Judged::refused(refusal),
            None => refuse(EgressCode::ResolveFailed),
        }
    }

    /// By which way a connection leaves: past the proxy, where there is none or an exception names the target.
    pub fn way_out<'e>(&self, admitted: &Admitted<'e>) -> WayOut<'e> {
        let is_direct = || self.rules.is_excepted(&admitted.0);
        match (self.rules.proxying, admitted.lookup_name()) {
            (Proxying::Off, _) => WayOut::Direct,
            _ if is_direct() => WayOut::Direct,
            (Proxying::ConnectName, Some(name)) => WayOut::Delegated(Delegated(name)),
            (Proxying::ConnectIp | Proxying::ConnectName, _) => WayOut::Proxy,
        }
    }

    /// Whether names are looked up and judged by the proxy.
    pub fn delegates(&self) -> bool {
        self.rules.proxying == Proxying::ConnectName
    }

    /// Whether a kept connection may still be used: it goes the way that a new one would.
    pub fn may_keep(&self, admitted: &Admitted<'_>, peer: &Peer) -> bool {
        match (peer, self.way_out(admitted)) {
            (Peer::Delegated, WayOut::Delegated(_)) => true,
            (Peer::Direct(address), WayOut::Direct) | (Peer::Proxied(address), WayOut::Proxy) => {
                self.still_allowed(admitted, address)
            }
            _ => false,
        }
    }

    /// Whether the address of a kept connection may still be used.
    pub fn still_allowed(&self, admitted: &Admitted<'_>, address: &VettedAddr) -> bool {
        let socket = address.0;
        socket.port() == admitted.endpoint().port()
            && self.judge(socket.ip(), Some(&admitted.0)).is_ok()
    }

    /// Judges an address alone, without a tool and a port: no exception applies.
    pub fn judge_address(&self, address: IpAddr) -> Judged<IpAddr> {
        match self.judge(address, None) {
            Ok(shadow) => Judged { verdict: Ok(address), shadow },
            Err(code) => Judged::refused(Refusal {
                code,
                address: Some(address),
                subject: address.to_string(),
            }),
        }
    }

    /// The rules as they were compiled, for whoever compares them.
    pub fn compiled(&self) -> &Compiled {
        &self.rules
    }

    /// The exceptions in force that name what was admitted.
    pub fn excepting<'a>(&'a self, admitted: &'a Admitted<'_>) -> Vec<&'a CompiledException> {
        self.rules.excepting(&admitted.0).collect()
    }

    /// The exceptions that are in force, each in words.
    pub fn exceptions_in_force(&self, unix_seconds: i64) -> Vec<String> {
        self.rules.exceptions_in_force(unix_seconds).map(ToString::to_string).collect()
    }

    /// One address that is the only one: it passes only if it is dialled, too.
    fn judge(&self, address: IpAddr, inquiry: Option<&Inquiry<'_>>) -> Verdict {
        match self.rules.judge_address(address, inquiry) {
            Ok(_) if self.rules.is_left_out(address) => Err(EgressCode::Ipv6Disabled),
            verdict => verdict,
        }
    }

    /// The families in turn, IPv6 first (RFC 8305), or all of IPv6 before IPv4.
    fn in_order(&self, vetted: Vec<VettedAddr>) -> Vec<VettedAddr> {
        if vetted.iter().all(|vetted| vetted.0.is_ipv4()) {
            return vetted;
        }
        let mut v6 = vetted.iter().copied().filter(|vetted| vetted.0.is_ipv6());
        let mut v4 = vetted.iter().copied().filter(|vetted| vetted.0.is_ipv4());
        let mut ordered = Vec::with_capacity(vetted.len());
        if self.rules.ipv6 == Ipv6::Prefer {
            ordered.extend(v6.by_ref());
        }
        while ordered.len() < vetted.len() {
            ordered.extend(v6.next());
            ordered.extend(v4.next());
        }
        ordered
    }
}

/// A verdict, and what shadow mode let pass.
#[derive(Debug, Clone)]
pub struct Judged<T> {
    /// What is in force.
    pub verdict: Result<T, Refusal>,
    /// In shadow mode: the rule that would have refused what passed.
    pub shadow: Option<EgressCode>,
}

impl<T> Judged<T> {
    fn refused(refusal: Refusal) -> Self {
        Self { verdict: Err(refusal), shadow: None }
    }
}

/// Why something may not be called. Its text is for the operator: it names the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} {}", .code.reason())]
pub struct Refusal {
    /// The code, which the runtime sees too.
    pub code: EgressCode,
    /// The address, where one was judged; the runtime must not see it.
    pub address: Option<IpAddr>,
    subject: String,
}

impl Refusal {
    fn of_name(code: EgressCode, endpoint: &Endpoint) -> Self {
        Self { code, address: None, subject: name_subject(code, endpoint) }
    }

    fn of_alias(code: EgressCode, alias: &str, endpoint: &Endpoint) -> Self {
        let subject = format!("`{alias}` (an alias of `{}`)", endpoint.host());
        Self { code, address: None, subject }
    }

    fn of_address(code: EgressCode, address: IpAddr, endpoint: &Endpoint) -> Self {
        let is_about_the_name = matches!(
            code,
            EgressCode::DeniedHost
                | EgressCode::HostNotAllowed
                | EgressCode::NameDenied
                | EgressCode::Port
                | EgressCode::Scheme
                | EgressCode::SingleLabel
        );
        let subject = match endpoint.host() {
            Host::Address(_) if is_about_the_name => name_subject(code, endpoint),
            Host::Address(_) => address.to_string(),
            Host::Name(_) if is_about_the_name => {
                format!("{} (at {address})", name_subject(code, endpoint))
            }
            Host::Name(name) => format!("{address} (an answer for `{name}`)"),
        };
        Self { code, address: Some(address), subject }
    }
}

fn name_subject(code: EgressCode, endpoint: &Endpoint) -> String {
    let host = endpoint.host();
    match code {
        EgressCode::Port => format!("port {} of `{host}`", endpoint.port()),
        EgressCode::Scheme => format!("`{}://{host}`", endpoint.scheme().as_str()),
        _ => format!("`{host}`"),
    }
}

/// What DNS said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// The addresses, in order.
    pub addresses: Vec<IpAddr>,
    /// The targets of the CNAME chain.
    pub names: Vec<String>,
}

/// An endpoint that passed the stage before DNS: only such a one is looked up.
#[derive(Debug, Clone, Copy)]
pub struct Admitted<'e>(Inquiry<'e>);

impl<'e> Admitted<'e> {
    /// The endpoint.
    pub fn endpoint(&self) -> &'e Endpoint {
        self.0.endpoint()
    }

    /// The name to look up, without a trailing dot; `None` for an address, which is never asked for.
    pub fn lookup_name(&self) -> Option<&'e str> {
        match self.endpoint().host() {
            Host::Address(_) => None,
            Host::Name(name) => Some(name),
        }
    }

    /// The answer for an address that stands in the URL itself.
    pub fn literal(&self) -> Option<Answers> {
        match *self.endpoint().host() {
            Host::Address(address) => Some(Answers { addresses: vec![address], names: Vec::new() }),
            Host::Name(_) => None,
        }
    }
}

/// An address that may be dialled. Only `EgressRules::vet` makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VettedAddr(SocketAddr);

impl VettedAddr {
    /// Address and port.
    pub fn socket(&self) -> SocketAddr {
        self.0
    }
}

/// By which way a connection leaves.
#[derive(Debug, Clone, Copy)]
pub enum WayOut<'e> {
    /// Through the proxy, which looks the name up: nothing is asked and judged here.
    Delegated(Delegated<'e>),
    /// Straight to an address that was judged.
    Direct,
    /// Through the proxy, to an address that was judged.
    Proxy,
}

impl<'e> WayOut<'e> {
    /// This way to one of these addresses.
    pub fn to(self, vetted: Vec<VettedAddr>) -> Target<'e> {
        match self {
            Self::Delegated(name) => Target::Delegated(name),
            Self::Direct => Target::Direct(vetted),
            Self::Proxy => Target::Proxied(vetted),
        }
    }
}

/// A name that only the proxy judges. Only `EgressRules::way_out` makes one, and only where the configuration declares
/// the proxy to be the boundary.
#[derive(Debug, Clone, Copy)]
pub struct Delegated<'e>(&'e str);

impl Delegated<'_> {
    /// The name.
    pub fn name(&self) -> &str {
        self.0
    }
}

/// Where a connection may go.
#[derive(Debug, Clone)]
pub enum Target<'e> {
    /// Through the proxy to a name.
    Delegated(Delegated<'e>),
    /// Straight to one of these.
    Direct(Vec<VettedAddr>),
    /// Through the proxy to one of these.
    Proxied(Vec<VettedAddr>),
}

impl Target<'_> {
    /// Whether an open connection goes there, by the same way.
    pub fn holds(&self, peer: &Peer) -> bool {
        match (self, peer) {
            (Self::Delegated(_), Peer::Delegated) => true,
            (Self::Direct(vetted), Peer::Direct(address))
            | (Self::Proxied(vetted), Peer::Proxied(address)) => vetted.contains(address),
            _ => false,
        }
    }
}

/// Where an open connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Through the proxy, to wherever it found the name.
    Delegated,
    /// To this address.
    Direct(VettedAddr),
    /// Through the proxy to this address.
    Proxied(VettedAddr),
}

impl Peer {
    /// The address, where it is known.
    pub fn address(&self) -> Option<VettedAddr> {
        match self {
            Self::Delegated => None,
            Self::Direct(address) | Self::Proxied(address) => Some(*address),
        }
    }
}

#[cfg(test)]
mod cases;
#[cfg(test)]
mod tests;
