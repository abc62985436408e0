//! What the operator says about egress, as written.

use std::net::SocketAddr;

/// `egress` of the configuration, as written. `EgressRules::new` checks all of its text.
#[derive(Debug, Clone)]
pub struct EgressSettings {
    /// Ports and port ranges: `443`, `1024-65535`.
    pub ports: Vec<String>,
    /// Whether IPv6 addresses are dialled.
    pub ipv6: Ipv6,
    /// What happens to a name with allowed and refused addresses.
    pub mixed_answers: MixedAnswers,
    /// Ranges that are never called.
    pub deny_cidrs: Vec<String>,
    /// Ranges that count as private.
    pub private_cidrs: Vec<String>,
    /// Names and `*.` globs that are never called; addresses stand in `deny_cidrs`.
    pub deny_hosts: Vec<String>,
    /// Where not empty: the only names, `*.` globs and addresses that are called.
    pub allow_hosts: Vec<String>,
    /// The operator's own NAT64 prefixes.
    pub nat64_prefixes: Vec<String>,
    /// Addresses of this gateway, closed on every port.
    pub own_addresses: Vec<String>,
    /// Where this gateway listens. A listener on all addresses stands here as itself (`0.0.0.0:9477`: the whole
    /// loopback range) and once for each interface address.
    pub own_listeners: Vec<SocketAddr>,
    /// Ranges that a TUN proxy answers DNS with.
    pub fake_ip_cidrs: Vec<String>,
    /// Whether the operator's own rules refuse or only report.
    pub mode: Mode,
    /// Private targets, each named.
    pub exceptions: Vec<Exception>,
    /// Which part a proxy has.
    pub proxying: Proxying,
}

impl Default for EgressSettings {
    fn default() -> Self {
        Self {
            ports: vec!["443".to_owned(), "1024-65535".to_owned()], // Contract, section 8.
            ipv6: Ipv6::On,
            mixed_answers: MixedAnswers::Refuse,
            deny_cidrs: Vec::new(),
            private_cidrs: Vec::new(),
            deny_hosts: Vec::new(),
            allow_hosts: Vec::new(),
            nat64_prefixes: Vec::new(),
            own_addresses: Vec::new(),
            own_listeners: Vec::new(),
            fake_ip_cidrs: Vec::new(),
            mode: Mode::Enforce,
            exceptions: Vec::new(),
            proxying: Proxying::Off,
        }
    }
}

/// `egress.ipv6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv6 {
    /// Never dialled.
    Off,
    /// Dialled in turn with IPv4, IPv6 first.
    On,
    /// All of them are tried before IPv4.
    Prefer,
}

/// `egress.mixed_answers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixedAnswers {
    /// The refused addresses are left out.
    Filter,
    /// One refused address refuses the name.
    Refuse,
}

/// `egress.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Every rule refuses.
    Enforce,
    /// `deny_hosts`, `deny_cidrs`, `allow_hosts` and `ports` only report, for public addresses.
    Shadow,
}

/// `egress.proxy`, as far as the rules go. What an exception names goes direct in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proxying {
    /// There is a proxy; addresses are looked up and judged here.
    ConnectIp,
    /// The proxy is the boundary: it looks names up and judges what it finds.
    ConnectName,
    /// There is no proxy.
    Off,
}

/// One entry of `egress.exceptions`.
#[derive(Debug, Clone, Default)]
pub struct Exception {
    /// Globs of tool names.
    pub tools: Vec<String>,
    /// Names, `*.` globs or addresses.
    pub hosts: Vec<String>,
    /// The ranges that are opened.
    pub cidrs: Vec<String>,
    /// Ports and port ranges; empty: those of `egress.ports`.
    pub ports: Vec<String>,
    /// Whether plain http may be spoken.
    pub http: bool,
    /// What it is for.
    pub reason: Option<String>,
    /// Who answers for it.
    pub owner: Option<String>,
    /// The last day on which it counts, UTC: `2027-03-01`.
    pub expires: Option<String>,
}
