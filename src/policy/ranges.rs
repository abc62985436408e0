//! What kind of address an IP address is.
//!
//! Sources: the IANA special-purpose registries for IPv4 and IPv6 (2025-10-09) and the RFCs at each line.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

use crate::policy::egress_code::EgressCode;

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// `Ok` for a public one.
    pub code: EgressCode,
    /// The IPv4 address that it leads to by NAT64 or ISATAP.
    pub embedded: Option<Embedded>,
}

/// An IPv4 address inside an IPv6 one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedded {
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// The code where the IPv4 address may not be called.
    pub code: EgressCode,
}

/// An operator's NAT64 prefix, of one of the six lengths of RFC 6052.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix(Ipv6Net);

impl Nat64Prefix {
    /// Takes a prefix of 32, 40, 48, 56, 64 or 96 bits, of which bits 64 to 71 are zero.
    pub fn new(prefix: Ipv6Net) -> Option<Self> {
        let fits = matches!(prefix.prefix_len(), 32 | 40 | 48 | 56 | 64 | 96);
        (fits && prefix.network().to_bits() & RESERVED_OCTET == 0).then_some(Self(prefix))
    }

    /// Whether it shares addresses with a form that carries IPv4 addresses in another way. The range for local NAT64 is
    /// where such prefixes belong.
    pub fn takes_a_disguise(self) -> bool {
        let (first, last) = (self.0.network(), self.0.broadcast());
        let mut disguises = SPECIAL_V6.iter().filter(|range| is_disguise(range.code));
        disguises.any(|range| {
            let holds = |address| range.contains(address);
            let is_local = range.code == EgressCode::Nat64Local && holds(first) && holds(last);
            let begins = Ipv6Addr::from_bits(range.first);
            (holds(first) || self.0.contains(&begins)) && !is_local
        })
    }

    /// Its length in bits.
    pub fn length(self) -> u8 {
        self.0.prefix_len()
    }

    /// The IPv4 address inside an address of this prefix. Bits 64 to 71 are skipped (RFC 6052, section 2.2); where they or
    /// what follows the IPv4 address are not zero, as the RFC wants them, translators may read another address.
    fn decode(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        let bits = address.to_bits();
        let (packed, suffix) = match self.length() {
            96 => (bits, 0),
            length => {
                let before_gap = bits >> 64;
                let after_gap = bits << 72 >> 72;
                // 120 bits without the gap; the IPv4 address follows the prefix, and the suffix follows that.
                let suffix = 120 - 32 - u32::from(length);
                let packed = before_gap << 56 | after_gap;
                (packed >> suffix, packed & !(u128::MAX << suffix))
            }
        };
        let is_clean = suffix == 0 && bits & RESERVED_OCTET == 0;
        is_clean.then(|| Ipv4Addr::from_bits(low_word(packed)))
    }
}

/// Bits 64 to 71.
const RESERVED_OCTET: u128 = 0xff << 56;

/// Says what an address is. `nat64` holds the operator's prefixes, the longest first.
pub fn classify(address: IpAddr, nat64: &[Nat64Prefix]) -> Kind {
    match address {
        IpAddr::V4(address) => Kind { code: classify_v4(address), embedded: None },
        IpAddr::V6(address) => classify_v6(address, nat64),
    }
}

impl Kind {
    /// Whether no exception opens it, because it is not the address that would be called: a disguise, or a NAT64 form of
    /// which nobody can tell the IPv4 address.
    pub fn misleads(self) -> bool {
        is_disguise(self.code)
            || (self.code == EgressCode::Nat64Embedded && self.embedded.is_none())
    }
}

/// Whether nothing opens this address: no exception, no shadow mode.
pub fn on_floor(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => FLOOR_V4.iter().any(|range| range.contains(address)),
        IpAddr::V6(address) => FLOOR_V6.iter().any(|range| range.contains(address)),
    }
}

/// Whether addresses of this kind are IPv4 addresses in disguise. An exception opens an address, never a disguise: the
/// kernel or a tunnel would turn it into an address that nobody judged.
pub fn is_disguise(code: EgressCode) -> bool {
    matches!(
        code,
        EgressCode::Ipv4Compatible
            | EgressCode::Ipv4Mapped
            | EgressCode::Ipv4Translated
            | EgressCode::Nat64Local
            | EgressCode::SixToFour
            | EgressCode::Teredo
    )
}

struct RangeV4 {
    first: u32,
    mask: u32,
    code: EgressCode,
}

impl RangeV4 {
    fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask == self.first
    }
}

struct RangeV6 {
    first: u128,
    mask: u128,
    code: EgressCode,
}

impl RangeV6 {
    fn contains(&self, address: Ipv6Addr) -> bool {
        address.to_bits() & self.mask == self.first
    }
}

const fn v4(octets: [u8; 4], length: u32, code: EgressCode) -> RangeV4 {
    RangeV4 { first: u32::from_be_bytes(octets), mask: u32::MAX << (32 - length), code }
}

/// A range by its first four groups, which is where all but the shortest begin.
const fn v6(groups: [u16; 4], length: u32, code: EgressCode) -> RangeV6 {
    let [a, b, c, d] = groups;
    v6_whole(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), length, code)
}

const fn v6_whole(first: Ipv6Addr, length: u32, code: EgressCode) -> RangeV6 {
    RangeV6 { first: first.to_bits(), mask: u128::MAX << (128 - length), code }
}

/// No two of these overlap.
const SPECIAL_V4: [RangeV4; 16] = [
    v4([0, 0, 0, 0], 8, EgressCode::ThisNetwork), // RFC 791, 1122
    v4([10, 0, 0, 0], 8, EgressCode::Private),    // RFC 1918
    v4([100, 64, 0, 0], 10, EgressCode::Cgnat),   // RFC 6598
    v4([127, 0, 0, 0], 8, EgressCode::Loopback),  // RFC 1122
    v4([168, 63, 129, 16], 32, EgressCode::CloudPlatform), // Azure, in no registry
    v4([169, 254, 0, 0], 16, EgressCode::LinkLocal), // RFC 3927
    v4([172, 16, 0, 0], 12, EgressCode::Private), // RFC 1918
    v4([192, 0, 0, 0], 24, EgressCode::IetfProtocol), // RFC 6890
    v4([192, 0, 2, 0], 24, EgressCode::Documentation), // RFC 5737
    v4([192, 88, 99, 0], 24, EgressCode::SixToFourRelay), // RFC 7526
    v4([192, 168, 0, 0], 16, EgressCode::Private), // RFC 1918
    v4([198, 18, 0, 0], 15, EgressCode::Benchmarking), // RFC 2544
    v4([198, 51, 100, 0], 24, EgressCode::Documentation), // RFC 5737
    v4([203, 0, 113, 0], 24, EgressCode::Documentation), // RFC 5737
    v4([224, 0, 0, 0], 4, EgressCode::Multicast), // RFC 5771
    v4([240, 0, 0, 0], 4, EgressCode::Reserved),  // RFC 1112, 919
];

/// The first that contains an address counts. What follows them is public inside of 2000::/3 and closed outside.
const SPECIAL_V6: [RangeV6; 20] = [
    v6([0x2001, 3, 0, 0], 32, EgressCode::Ok), // AMT, RFC 7450
    v6([0x2001, 4, 0x112, 0], 48, EgressCode::Ok), // AS112, RFC 7535
    v6([0x2001, 0, 0, 0], 32, EgressCode::Teredo), // RFC 4380
    v6([0x2001, 0, 0, 0], 23, EgressCode::IetfProtocol), // RFC 2928
    v6([0x2001, 0xdb8, 0, 0], 32, EgressCode::Documentation), // RFC 3849
    v6([0x2002, 0, 0, 0], 16, EgressCode::SixToFour), // RFC 3056
    v6([0x3fff, 0, 0, 0], 20, EgressCode::Documentation), // RFC 9637
    v6_whole(Ipv6Addr::UNSPECIFIED, 128, EgressCode::Unspecified), // RFC 4291
    v6_whole(Ipv6Addr::LOCALHOST, 128, EgressCode::Loopback), // RFC 4291
    v6_whole(Ipv6Addr::UNSPECIFIED, 96, EgressCode::Ipv4Compatible), // RFC 4291
    v6_whole(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, EgressCode::Ipv4Mapped), // RFC 4291
    v6_whole(Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, EgressCode::Ipv4Translated), // RFC 2765
    v6([0x64, 0xff9b, 1, 0], 48, EgressCode::Nat64Local), // RFC 8215
    v6([0x100, 0, 0, 0], 64, EgressCode::Discard),        // RFC 6666
    v6([0x100, 0, 0, 1], 64, EgressCode::Dummy),          // RFC 9780
    v6([0x5f00, 0, 0, 0], 16, EgressCode::Srv6),          // RFC 9602
    v6([0xfc00, 0, 0, 0], 7, EgressCode::UniqueLocal),    // RFC 4193
    v6([0xfe80, 0, 0, 0], 10, EgressCode::LinkLocal),     // RFC 4291
    v6([0xfec0, 0, 0, 0], 10, EgressCode::SiteLocal),     // RFC 3879
    v6([0xff00, 0, 0, 0], 8, EgressCode::Multicast),      // RFC 4291
];

const GLOBAL_UNICAST: RangeV6 = v6([0x2000, 0, 0, 0], 3, EgressCode::Ok);
const WELL_KNOWN_NAT64: RangeV6 = v6([0x64, 0xff9b, 0, 0], 96, EgressCode::Ok);

/// Metadata services and what else no operator can want to open.
const FLOOR_V4: [RangeV4; 7] = [
    v4([0, 0, 0, 0], 32, EgressCode::ThisNetwork),
    v4([100, 100, 100, 200], 32, EgressCode::Cgnat), // Alibaba Cloud
    v4([168, 63, 129, 16], 32, EgressCode::CloudPlatform), // Azure
    v4([169, 254, 0, 0], 16, EgressCode::LinkLocal),
    v4([192, 0, 0, 192], 32, EgressCode::IetfProtocol), // Oracle Cloud
    v4([224, 0, 0, 0], 4, EgressCode::Multicast),
    v4([255, 255, 255, 255], 32, EgressCode::Reserved),
];

const FLOOR_V6: [RangeV6; 5] = [
    v6_whole(Ipv6Addr::UNSPECIFIED, 128, EgressCode::Unspecified),
    v6([0xfd00, 0xec2, 0, 0], 32, EgressCode::UniqueLocal), // AWS
    v6([0xfd20, 0xce, 0, 0], 32, EgressCode::UniqueLocal),  // Google Cloud
    v6([0xfe80, 0, 0, 0], 10, EgressCode::LinkLocal),
    v6([0xff00, 0, 0, 0], 8, EgressCode::Multicast),
];

fn classify_v4(address: Ipv4Addr) -> EgressCode {
    SPECIAL_V4
        .iter()
        .find(|range| range.contains(address))
        .map_or(EgressCode::Ok, |range| range.code)
}

fn classify_v6(address: Ipv6Addr, nat64: &[Nat64Prefix]) -> Kind {
    if WELL_KNOWN_NAT64.contains(address) {
        let inner = Ipv4Addr::from_bits(low_word(address.to_bits()));
        return embedding(inner, EgressCode::Nat64Embedded);
    }
    // No prefix makes mapped addresses and those on the floor anything else.
    if address.to_ipv4_mapped().is_none()
        && !on_floor(address.into())
        && let Some(prefix) = nat64.iter().find(|prefix| prefix.0.contains(&address))
    {
        let unreadable = Kind { code: EgressCode::Nat64Embedded, embedded: None };
        let inner = prefix.decode(address);
        return inner.map_or(unreadable, |inner| embedding(inner, EgressCode::Nat64Embedded));
    }
    let special = SPECIAL_V6.iter().find(|range| range.contains(address)).map(|range| range.code);
    let code = match special {
        Some(code) => code,
        None if GLOBAL_UNICAST.contains(address) => EgressCode::Ok,
        None => EgressCode::OutsideGlobalUnicast,
    };
    match isatap(address).map(|inner| embedding(inner, EgressCode::IsatapEmbedded)) {
        Some(kind) if code == EgressCode::Ok => kind,
        Some(kind) => Kind { code, ..kind },
        None => Kind { code, embedded: None },
    }
}

fn embedding(address: Ipv4Addr, code: EgressCode) -> Kind {
    let embedded = Some(Embedded { address, code });
    match classify_v4(address) {
        EgressCode::Ok => Kind { code: EgressCode::Ok, embedded },
        _ => Kind { code, embedded },
    }
}

/// The IPv4 address in an interface identifier of RFC 5214.
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., u, marker, _, _] = address.segments();
    let is_isatap = matches!(u, 0 | 0x200) && marker == 0x5efe;
    is_isatap.then(|| Ipv4Addr::from_bits(low_word(address.to_bits())))
}

fn low_word(bits: u128) -> u32 {
    let [.., a, b, c, d] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests;
