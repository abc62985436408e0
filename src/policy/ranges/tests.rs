//! Tests of the ranges, against a second implementation that was written on its own.

use proptest::prelude::*;

use super::*;

fn code(text: &str) -> &'static str {
    classify(text.parse().unwrap(), &[]).code.as_str()
}

/// The first and last address of a range have its code, and the addresses just outside have theirs.
#[track_caller]
fn check(before: &str, first: &str, last: &str, after: &str, expected: [&str; 3]) {
    let [outside_before, inside, outside_after] = expected;
    assert_eq!(code(first), inside, "{first}");
    assert_eq!(code(last), inside, "{last}");
    assert_eq!(code(before), outside_before, "{before}");
    assert_eq!(code(after), outside_after, "{after}");
}

#[test]
fn f023_ipv4_ranges_begin_and_end_where_the_registry_says() {
    let alone = |code| ["ok", code, "ok"];
    assert_eq!((code("0.0.0.0"), code("0.255.255.255")), ("this_network", "this_network"));
    check("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0", alone("private"));
    check("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0", alone("cgnat"));
    check("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0", alone("loopback"));
    check(
        "168.63.129.15",
        "168.63.129.16",
        "168.63.129.16",
        "168.63.129.17",
        alone("cloud_platform"),
    );
    check("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0", alone("link_local"));
    check("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0", alone("private"));
    check("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0", alone("ietf_protocol"));
    check("192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0", alone("documentation"));
    check(
        "192.88.98.255",
        "192.88.99.0",
        "192.88.99.255",
        "192.88.100.0",
        alone("six_to_four_relay"),
    );
    check("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0", alone("private"));
    check("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0", alone("benchmarking"));
    check(
        "198.51.99.255",
        "198.51.100.0",
        "198.51.100.255",
        "198.51.101.0",
        alone("documentation"),
    );
    check("203.0.112.255", "203.0.113.0", "203.0.113.255", "203.0.114.0", alone("documentation"));
    let multicast = ["ok", "multicast", "reserved"];
    check("223.255.255.255", "224.0.0.0", "239.255.255.255", "240.0.0.0", multicast);
    assert_eq!(code("255.255.255.255"), "reserved");
}

#[test]
fn f023_ipv6_ranges_begin_and_end_where_the_registry_says() {
    const F: &str = "ffff:ffff:ffff:ffff";
    let last = |start: &str| format!("{start}:{F}");
    let outside = "outside_global_unicast";
    let closed = |code| [outside, code, outside];
    let open = |code| ["ok", code, "ok"];
    assert_eq!((code("::"), code("::1")), ("unspecified", "loopback"));
    check("::1", "::2", "::255.255.255.255", "::1:0:0", ["loopback", "ipv4_compatible", outside]);
    check("::fffe:ffff:ffff", "::ffff:0:0", "::ffff:ffff:ffff", "::1:0:0:0", closed("ipv4_mapped"));
    check(
        "::fffe:ffff:ffff:ffff",
        "::ffff:0:0:0",
        "::ffff:0:ffff:ffff",
        "::ffff:1:0:0",
        closed("ipv4_translated"),
    );
    check(
        &last("64:ff9b:0:ffff"),
        "64:ff9b:1::",
        &last("64:ff9b:1:ffff"),
        "64:ff9b:2::",
        closed("nat64_local"),
    );
    let discard = [outside, "discard", "dummy"];
    check(&last("ff:ffff:ffff:ffff"), "100::", &last("100:0:0:0"), "100:0:0:1::", discard);
    let dummy = ["discard", "dummy", outside];
    check(&last("100:0:0:0"), "100:0:0:1::", &last("100:0:0:1"), "100:0:0:2::", dummy);
    let global = [outside, "ok", outside];
    check(&last("1fff:ffff:ffff:ffff"), "2000::", &last("3fff:ffff:ffff:ffff"), "4000::", global);
    let teredo = ["ok", "teredo", "ietf_protocol"];
    check(&last("2000:ffff:ffff:ffff"), "2001::", &last("2001:0:ffff:ffff"), "2001:1::", teredo);
    let amt = ["ietf_protocol", "ok", "ietf_protocol"];
    check(&last("2001:2:ffff:ffff"), "2001:3::", &last("2001:3:ffff:ffff"), "2001:4::", amt);
    check(&last("2001:4:111:ffff"), "2001:4:112::", &last("2001:4:112:ffff"), "2001:4:113::", amt);
    let protocols = ["teredo", "ietf_protocol", "ok"];
    check(
        &last("2001:0:ffff:ffff"),
        "2001:1::",
        &last("2001:1ff:ffff:ffff"),
        "2001:200::",
        protocols,
    );
    check(
        &last("2001:db7:ffff:ffff"),
        "2001:db8::",
        &last("2001:db8:ffff:ffff"),
        "2001:db9::",
        open("documentation"),
    );
    check(
        &last("2001:ffff:ffff:ffff"),
        "2002::",
        &last("2002:ffff:ffff:ffff"),
        "2003::",
        open("six_to_four"),
    );
    check(
        &last("3ffe:ffff:ffff:ffff"),
        "3fff::",
        &last("3fff:fff:ffff:ffff"),
        "3fff:1000::",
        open("documentation"),
    );
    check(
        &last("5eff:ffff:ffff:ffff"),
        "5f00::",
        &last("5f00:ffff:ffff:ffff"),
        "5f01::",
        closed("srv6"),
    );
    check(
        &last("fbff:ffff:ffff:ffff"),
        "fc00::",
        &last("fdff:ffff:ffff:ffff"),
        "fe00::",
        closed("unique_local"),
    );
    let link_local = [outside, "link_local", "site_local"];
    check(
        &last("fe7f:ffff:ffff:ffff"),
        "fe80::",
        &last("febf:ffff:ffff:ffff"),
        "fec0::",
        link_local,
    );
    let site_local = ["link_local", "site_local", "multicast"];
    check(
        &last("febf:ffff:ffff:ffff"),
        "fec0::",
        &last("feff:ffff:ffff:ffff"),
        "ff00::",
        site_local,
    );
    assert_eq!(code(&last("ffff:ffff:ffff:ffff")), "multicast");
}

#[test]
fn the_floor_is_closed_to_its_edges() {
    for (text, expected) in [
        ("0.0.0.0", true),
        ("0.0.0.1", false),
        ("169.253.255.255", false),
        ("169.254.0.0", true),
        ("169.254.169.254", true),
        ("169.254.255.255", true),
        ("169.255.0.0", false),
        ("100.100.100.199", false),
        ("100.100.100.200", true),
        ("100.100.100.201", false),
        ("168.63.129.16", true),
        ("192.0.0.192", true),
        ("192.0.0.193", false),
        ("223.255.255.255", false),
        ("224.0.0.0", true),
        ("239.255.255.255", true),
        ("240.0.0.0", false),
        ("255.255.255.254", false),
        ("255.255.255.255", true),
        ("127.0.0.1", false),
        ("10.0.0.1", false),
        ("::", true),
        ("::1", false),
        ("fd00:ec2::", true),
        ("fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff", true),
        ("fd00:ec3::", false),
        ("fd20:ce::254", true),
        ("fd20:cf::", false),
        ("fe80::1", true),
        ("fec0::", false),
        ("ff02::1", true),
    ] {
        assert_eq!(on_floor(text.parse().unwrap()), expected, "{text}");
    }
}

const PREFIXES: [&str; 6] = [
    "2a01:4f8::/32",
    "2a01:4f9:c000::/40",
    "2a01:4fa:c0::/48",
    "2a01:4fb:c0:ff00::/56",
    "2a01:4fc:c0:ffaa::/64",
    "2a01:4fd:c0:ffab::/96",
];

fn prefixes() -> Vec<Nat64Prefix> {
    PREFIXES.iter().map(|text| Nat64Prefix::new(text.parse().unwrap()).unwrap()).collect()
}

#[test]
fn nat64_prefixes_have_six_lengths() {
    for length in 0..=128 {
        let range = Ipv6Net::new("2a01::".parse().unwrap(), length).unwrap().trunc();
        assert_eq!(Nat64Prefix::new(range).is_some(), [32, 40, 48, 56, 64, 96].contains(&length));
    }
}

#[test]
fn nat64_addresses_are_decoded_as_rfc_6052_draws_them() {
    // RFC 6052, section 2.4, with 192.0.2.33.
    for (prefix, address) in [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
    ] {
        let prefix = Nat64Prefix::new(prefix.parse().unwrap()).unwrap();
        assert_eq!(prefix.decode(address.parse().unwrap()), Some(Ipv4Addr::new(192, 0, 2, 33)));
    }
}

#[test]
fn nat64_addresses_that_are_not_clean_are_refused() {
    let prefixes = prefixes();
    for (address, code) in [
        ("2a01:4f8:808:808::", EgressCode::Ok),
        ("2a01:4f8:808:808:100::", EgressCode::Nat64Embedded),
        ("2a01:4f8:808:808::1", EgressCode::Nat64Embedded),
        ("2a01:4fa:c0:808:8:800::", EgressCode::Ok),
        ("2a01:4fa:c0:808:108:800::", EgressCode::Nat64Embedded),
        ("2a01:4fa:c0:808:8:800:0:1", EgressCode::Nat64Embedded),
        ("2a01:4fa:c0:808:8:801::", EgressCode::Nat64Embedded),
        ("2a01:4fc:c0:ffaa:8:808:800:0", EgressCode::Ok),
        ("2a01:4fc:c0:ffaa:8:808:800:1", EgressCode::Nat64Embedded),
        ("2a01:4fd:c0:ffab::8.8.8.8", EgressCode::Ok),
    ] {
        let kind = classify(address.parse().unwrap(), &prefixes);
        assert_eq!(kind.code, code, "{address}");
        assert_eq!(kind.misleads(), code != EgressCode::Ok, "{address}");
    }
    assert!(Nat64Prefix::new("2a01:4fd:c0:ffab:100::/96".parse().unwrap()).is_none());
}

#[test]
fn no_prefix_reaches_the_floor_or_mapped_addresses() {
    for (prefix, address, code) in [
        ("fd00:ec2::/96", "fd00:ec2::8.8.8.8", EgressCode::UniqueLocal),
        ("fd00:ec3::/96", "fd00:ec3::8.8.8.8", EgressCode::Ok),
        ("fe80::/96", "fe80::8.8.8.8", EgressCode::LinkLocal),
        ("::ffff:0:0/96", "::ffff:8.8.8.8", EgressCode::Ipv4Mapped),
    ] {
        let prefix = Nat64Prefix::new(prefix.parse().unwrap()).unwrap();
        assert_eq!(classify(address.parse().unwrap(), &[prefix]).code, code, "{address}");
    }
}

/// The second implementation: intervals as text, the narrowest one that holds the address counts.
const INTERVALS: &[(&str, &str, &str)] = &[
    ("0.0.0.0", "0.255.255.255", "this_network"),
    ("10.0.0.0", "10.255.255.255", "private"),
    ("100.64.0.0", "100.127.255.255", "cgnat"),
    ("127.0.0.0", "127.255.255.255", "loopback"),
    ("168.63.129.16", "168.63.129.16", "cloud_platform"),
    ("169.254.0.0", "169.254.255.255", "link_local"),
    ("172.16.0.0", "172.31.255.255", "private"),
    ("192.0.0.0", "192.0.0.255", "ietf_protocol"),
    ("192.0.2.0", "192.0.2.255", "documentation"),
    ("192.88.99.0", "192.88.99.255", "six_to_four_relay"),
    ("192.168.0.0", "192.168.255.255", "private"),
    ("198.18.0.0", "198.19.255.255", "benchmarking"),
    ("198.51.100.0", "198.51.100.255", "documentation"),
    ("203.0.113.0", "203.0.113.255", "documentation"),
    ("224.0.0.0", "239.255.255.255", "multicast"),
    ("240.0.0.0", "255.255.255.255", "reserved"),
    ("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "outside_global_unicast"),
    ("2000::", "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ok"),
    ("::", "::", "unspecified"),
    ("::1", "::1", "loopback"),
    ("::", "::ffff:ffff", "ipv4_compatible"),
    ("::ffff:0:0", "::ffff:ffff:ffff", "ipv4_mapped"),
    ("::ffff:0:0:0", "::ffff:0:ffff:ffff", "ipv4_translated"),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "nat64_local"),
    ("100::", "100::ffff:ffff:ffff:ffff", "discard"),
    ("100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff", "dummy"),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "ietf_protocol"),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "teredo"),
    ("2001:3::", "2001:3:ffff:ffff:ffff:ffff:ffff:ffff", "ok"),
    ("2001:4:112::", "2001:4:112:ffff:ffff:ffff:ffff:ffff", "ok"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "six_to_four"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation"),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "srv6"),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "unique_local"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link_local"),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "site_local"),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast"),
];

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn bounds(interval: &(&str, &str, &str)) -> (IpAddr, IpAddr) {
    (interval.0.parse().unwrap(), interval.1.parse().unwrap())
}

fn second_opinion(address: IpAddr) -> &'static str {
    if let IpAddr::V6(v6) = address {
        let octets = v6.octets();
        let inner = |at: usize| {
            let inner = Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
            second_opinion(inner.into())
        };
        if octets.starts_with(&[0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]) {
            return if inner(12) == "ok" { "ok" } else { "nat64_embedded" };
        }
        let is_isatap = matches!(octets[8..12], [0 | 2, 0, 0x5e, 0xfe]);
        if is_isatap && by_interval(address) == "ok" {
            return if inner(12) == "ok" { "ok" } else { "isatap_embedded" };
        }
    }
    by_interval(address)
}

fn by_interval(address: IpAddr) -> &'static str {
    let mut narrowest = (u128::MAX, "ok");
    for interval in INTERVALS {
        let (first, last) = bounds(interval);
        let width = number(last) - number(first);
        let holds = (number(first)..=number(last)).contains(&number(address));
        if first.is_ipv4() == address.is_ipv4() && holds && width <= narrowest.0 {
            narrowest = (width, interval.2);
        }
    }
    narrowest.1
}

fn v6_from(number: u128) -> IpAddr {
    Ipv6Addr::from(number).into()
}

/// Addresses anywhere, inside of the intervals, and around their ends.
fn any_address() -> impl Strategy<Value = IpAddr> {
    let near = (proptest::sample::select(INTERVALS), any::<u128>(), -2i8..=2, any::<bool>());
    let near = near.prop_map(|(interval, seed, step, at_end)| {
        let (first, last) = bounds(&interval);
        let width = number(last) - number(first);
        let inside =
            number(first).wrapping_add(seed.checked_rem(width.saturating_add(1)).unwrap_or(seed));
        let edge = number(if at_end { last } else { first }).wrapping_add_signed(step.into());
        let number = if step == 0 { inside } else { edge };
        match u32::try_from(number) {
            Ok(number) if first.is_ipv4() => IpAddr::V4(number.into()),
            _ => v6_from(number),
        }
    });
    prop_oneof![
        any::<u32>().prop_map(|number| IpAddr::V4(number.into())),
        any::<u128>().prop_map(v6_from),
        any::<u128>().prop_map(|number| v6_from(number >> 3 | 1 << 125)),
        (any::<u64>(), any::<u32>(), any::<bool>()).prop_map(|(high, low, u)| {
            let marker = if u { 0x0200_5efe } else { 0x5efe };
            v6_from(u128::from(high >> 3 | 1 << 61) << 64 | marker << 32 | u128::from(low))
        }),
        any::<u32>().prop_map(|low| v6_from(0x64_ff9b << 96 | u128::from(low))),
        near,
    ]
}

fn refused_v4() -> impl Strategy<Value = Ipv4Addr> {
    any_address().prop_filter_map("a refused IPv4 address", |address| match address {
        IpAddr::V4(address) if second_opinion(address.into()) != "ok" => Some(address),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    })
}

/// The address in every form that carries an IPv4 address, built octet by octet.
fn disguises(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b, c, d] = address.octets();
    let at = |start: &str, place: usize| {
        let mut octets = start.parse::<Ipv6Addr>().unwrap().octets();
        octets[place..place + 4].copy_from_slice(&[a, b, c, d]);
        Ipv6Addr::from(octets)
    };
    let around_gap = |start: &str, place: usize| {
        let mut octets = start.parse::<Ipv6Addr>().unwrap().octets();
        let mut places = (place..16).filter(|place| *place != 8);
        for octet in [a, b, c, d] {
            octets[places.next().unwrap()] = octet;
        }
        Ipv6Addr::from(octets)
    };
    let teredo_client = {
        let mut octets = "2001:0:4136:e378:8000:1388::".parse::<Ipv6Addr>().unwrap().octets();
        octets[12..].copy_from_slice(&[!a, !b, !c, !d]);
        Ipv6Addr::from(octets)
    };
    vec![
        at("::ffff:0:0", 12),
        at("::", 12),
        at("::ffff:0:0:0", 12),
        at("64:ff9b::", 12),
        around_gap("64:ff9b:1::", 6),
        around_gap("2a01:4f8::", 4),
        around_gap("2a01:4f9:c000::", 5),
        around_gap("2a01:4fa:c0::", 6),
        around_gap("2a01:4fb:c0:ff00::", 7),
        around_gap("2a01:4fc:c0:ffaa::", 8),
        at("2a01:4fd:c0:ffab::", 12),
        at("2002::1", 2),
        at("2a00:1450:4001::5efe:0:0", 12),
        at("2a00:1450:4001:0:200:5efe:0:0", 12),
        at("fe80::5efe:0:0", 12),
        at("2001::8000:1388:f7f7:f7f7", 4),
        teredo_client,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn f023_two_implementations_agree(address in any_address()) {
        prop_assert_eq!(classify(address, &[]).code.as_str(), second_opinion(address));
    }

    #[test]
    fn the_floor_is_never_public(address in any_address()) {
        prop_assert!(!on_floor(address) || classify(address, &[]).code != EgressCode::Ok);
    }

    #[test]
    fn f024_no_disguise_opens_a_refused_address(address in refused_v4()) {
        for disguise in disguises(address) {
            let kind = classify(disguise.into(), &prefixes());
            prop_assert!(kind.code != EgressCode::Ok, "{address} as {disguise}");
        }
    }

    #[test]
    fn f024_nat64_of_a_public_address_is_public(number in any::<u32>()) {
        let address = Ipv4Addr::from(number);
        prop_assume!(second_opinion(address.into()) == "ok");
        for (place, disguise) in disguises(address).into_iter().enumerate() {
            let is_nat64 = place == 3 || (5..=10).contains(&place);
            let kind = classify(disguise.into(), &prefixes());
            prop_assert_eq!(kind.embedded.map(|embedded| embedded.address).filter(|_| is_nat64), is_nat64.then_some(address));
            prop_assert!(!is_nat64 || kind.code == EgressCode::Ok);
        }
    }
}
