//! The closed set of reasons why a URL, a name or an address may not be called.

macro_rules! egress_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $reason:literal;)*) => {
        /// Why something may not be called, or `Ok`. Stable names: metric label and error detail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EgressCode { $($(#[$doc])* $variant,)* }

        impl EgressCode {
            /// All of them, for tests and for metrics that start at 0.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in labels, in logs and in error details.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What an operator reads after the name or the address: what it is, and the cure where there is one.
            pub fn reason(self) -> &'static str {
                match self { $(Self::$variant => $reason,)* }
            }
        }
    };
}

egress_codes! {
    /// 198.18.0.0/15.
    Benchmarking = "benchmarking", "is a benchmarking address; a proxy that answers DNS with such addresses is declared in `egress.fake_ip_cidrs`";
    /// 100.64.0.0/10.
    Cgnat = "cgnat", "is a shared address (100.64.0.0/10); only an entry of `egress.exceptions` opens it";
    /// 168.63.129.16, the platform of Azure.
    CloudPlatform = "cloud_platform", "belongs to the cloud platform and is never called";
    /// `egress.deny_cidrs`.
    DeniedCidr = "denied_cidr", "is in a range of `egress.deny_cidrs`";
    /// `egress.deny_hosts`.
    DeniedHost = "denied_host", "is in `egress.deny_hosts`";
    /// 100::/64.
    Discard = "discard", "is an address that discards everything";
    /// 192.0.2.0/24 and the like.
    Documentation = "documentation", "is an address for examples in documents; write the real one";
    /// 100:0:0:1::/64.
    Dummy = "dummy", "is a dummy address";
    /// Not in `egress.allow_hosts`.
    HostNotAllowed = "host_not_allowed", "is not in `egress.allow_hosts`";
    /// 192.0.0.0/24 and 2001::/23.
    IetfProtocol = "ietf_protocol", "is set aside for protocols, there is nothing to call";
    /// ::/96.
    Ipv4Compatible = "ipv4_compatible", "is an IPv4 address inside an IPv6 one (IPv4-compatible); use the IPv4 address";
    /// ::ffff:0:0/96.
    Ipv4Mapped = "ipv4_mapped", "is an IPv4 address inside an IPv6 one (IPv4-mapped); use the IPv4 address";
    /// ::ffff:0:0:0/96.
    Ipv4Translated = "ipv4_translated", "is an IPv4 address inside an IPv6 one (IPv4-translated); use the IPv4 address";
    /// Only IPv6 answers while `egress.ipv6` is off.
    Ipv6Disabled = "ipv6_disabled", "has IPv6 addresses only, and `egress.ipv6` is off";
    /// ISATAP with a refused IPv4.
    IsatapEmbedded = "isatap_embedded", "tunnels to an IPv4 address that may not be called (ISATAP)";
    /// 169.254.0.0/16 and fe80::/10.
    LinkLocal = "link_local", "is a link-local address, where cloud metadata lives; it is never called";
    /// 127.0.0.0/8 and ::1.
    Loopback = "loopback", "is a loopback address; only an entry of `egress.exceptions` that names its ports opens it";
    /// Not a host.
    MalformedHost = "malformed_host", "is not a host name or an address";
    /// Not a URL.
    MalformedUrl = "malformed_url", "is not a URL";
    /// 224.0.0.0/4 and ff00::/8.
    Multicast = "multicast", "is a multicast address and is never called";
    /// A special-use or cluster name.
    NameDenied = "name_denied", "is a special-use or cluster name; only an entry of `egress.exceptions` opens it, and `localhost` never";
    /// NAT64 with a refused IPv4.
    Nat64Embedded = "nat64_embedded", "leads to an IPv4 address that may not be called (NAT64)";
    /// 64:ff9b:1::/48.
    Nat64Local = "nat64_local", "is a local NAT64 address; declare its prefix in `egress.nat64_prefixes`";
    /// A character outside of ASCII.
    NonAsciiUrl = "non_ascii_url", "has characters outside of ASCII";
    /// Another spelling of an address.
    NonCanonicalHost = "non_canonical_host", "is another spelling of an address";
    /// Nothing is wrong.
    Ok = "ok", "may be called";
    /// IPv6 outside of 2000::/3.
    OutsideGlobalUnicast = "outside_global_unicast", "is outside of the global unicast addresses (2000::/3)";
    /// One of Sortie's own addresses or listeners.
    OwnAddress = "self", "is this gateway itself";
    /// Not in `egress.ports`.
    Port = "port", "is outside of `egress.ports` or belongs to another protocol; an entry of `egress.exceptions` may name it for its own addresses";
    /// 10.0.0.0/8 and the like, and `egress.private_cidrs`.
    Private = "private", "is a private address; only an entry of `egress.exceptions` that names the tool, the host and the range opens it";
    /// 240.0.0.0/4.
    Reserved = "reserved", "is a reserved address";
    /// No usable answer.
    ResolveFailed = "resolve_failed", "has no address; check the name, and that the DNS servers know it";
    /// Not https.
    Scheme = "scheme", "is not https; plain http needs an entry of `egress.exceptions` with `http: true`, and goes to its private addresses only";
    /// A name of one label.
    SingleLabel = "single_label", "is a name of one label; write the full name, or name it in an entry of `egress.exceptions`";
    /// fec0::/10.
    SiteLocal = "site_local", "is a site-local address";
    /// 2002::/16.
    SixToFour = "six_to_four", "is a 6to4 address; use the IPv4 address";
    /// 192.88.99.0/24.
    SixToFourRelay = "six_to_four_relay", "is a 6to4 relay";
    /// 5f00::/16.
    Srv6 = "srv6", "is a segment identifier (SRv6)";
    /// 2001::/32.
    Teredo = "teredo", "is a Teredo address";
    /// 0.0.0.0/8.
    ThisNetwork = "this_network", "is in 0.0.0.0/8, which means this very machine or nothing";
    /// More answers than anybody needs.
    TooManyAnswers = "too_many_answers", "has more than 64 answers";
    /// fc00::/7.
    UniqueLocal = "unique_local", "is a private address (unique local); only an entry of `egress.exceptions` opens it";
    /// ::.
    Unspecified = "unspecified", "is the unspecified address, which means this very machine";
    /// Credentials in the URL.
    Userinfo = "userinfo", "has credentials in front of its host; put them into the tool's headers";
}
