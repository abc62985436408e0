//! URLs, addresses and host patterns.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

use sortie::policy::address::{Answers, EgressRules};
use sortie::policy::egress::{EgressSettings, Exception, Ipv6, MixedAnswers, Mode};
use sortie::policy::egress_code::EgressCode;
use sortie::policy::endpoint::{Endpoint, Host, Scheme};
use sortie::policy::names::{HostPattern, glob_matches, refused_name};
use sortie::policy::ranges;
use url::Url;

use super::NOW;

const TOOL: &str = "lookup_order";
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 215, 14));
const PRIVATE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));

/// The defaults first; the others each turn something.
static RULES: LazyLock<Vec<EgressRules>> = LazyLock::new(|| {
    let texts = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let open = Exception {
        tools: texts(&["*"]),
        hosts: texts(&["*.example.com", "10.0.0.5", "127.0.0.1"]),
        cidrs: texts(&["10.0.0.0/8", "100.64.0.0/10", "fc00::/7", "127.0.0.0/8", "198.18.0.0/15"]),
        ports: texts(&["443", "8080"]),
        http: true,
        reason: Some("fuzzing".into()),
        owner: Some("tests".into()),
        expires: None,
    };
    let strict = EgressSettings {
        ipv6: Ipv6::Off,
        mixed_answers: MixedAnswers::Filter,
        deny_cidrs: texts(&["93.184.0.0/16", "2606:2800::/32"]),
        deny_hosts: texts(&["*.evil.example"]),
        ..EgressSettings::default()
    };
    let shadow = EgressSettings { mode: Mode::Shadow, ipv6: Ipv6::Prefer, ..strict.clone() };
    let opened = EgressSettings {
        exceptions: vec![open],
        nat64_prefixes: texts(&["2001:db8:64::/96", "2606:4700:64::/48"]),
        own_addresses: texts(&["93.184.215.99"]),
        own_listeners: vec![SocketAddr::from(([0, 0, 0, 0], 8080))],
        fake_ip_cidrs: texts(&["198.18.0.0/15"]),
        private_cidrs: texts(&["9.0.0.0/8"]),
        ..EgressSettings::default()
    };
    let all = [EgressSettings::default(), strict, shadow, opened];
    all.iter().map(|settings| EgressRules::new(settings).expect("good rules")).collect()
});

/// URL text: what is accepted has one meaning, and what is refused by its parts stays refused.
pub fn endpoint(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let endpoint = match Endpoint::parse(text) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            assert_ne!(error.code(), EgressCode::Ok);
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    has_one_meaning(text, &endpoint);
    for (index, rules) in RULES.iter().enumerate() {
        is_decided(index, rules, &endpoint);
    }
}

fn has_one_meaning(text: &str, endpoint: &Endpoint) {
    assert!(text.is_ascii() && !text.bytes().any(|b| b.is_ascii_control() || b == b' '), "{text}");
    let second = Url::parse(text).expect("both parsers take it");
    assert_eq!(second.scheme(), endpoint.scheme().as_str());
    assert_eq!((second.username(), second.password()), ("", None));
    assert_eq!(second.port_or_known_default(), Some(endpoint.port()));
    match (second.host(), endpoint.host()) {
        (Some(url::Host::Domain(read)), Host::Name(name)) => {
            assert_eq!(read.strip_suffix('.').unwrap_or(read), name);
            assert!(name.parse::<IpAddr>().is_err(), "{name} is an address");
            assert_eq!(*name, name.to_ascii_lowercase());
        }
        (Some(url::Host::Ipv4(read)), Host::Address(address)) => assert_eq!(read, *address),
        (Some(url::Host::Ipv6(read)), Host::Address(address)) => assert_eq!(read, *address),
        (read, host) => panic!("{read:?} is not {host:?}"),
    }
    let sent: http::uri::PathAndQuery = endpoint.path_and_query().parse().expect("can be sent");
    assert_eq!(sent.as_str(), endpoint.path_and_query());
    http::HeaderValue::from_str(endpoint.authority()).expect("a Host header");
    assert_eq!(Endpoint::parse(&endpoint.to_string()).as_ref(), Ok(endpoint), "printed and read");
}

fn is_decided(index: usize, rules: &EgressRules, endpoint: &Endpoint) {
    let judged = rules.admit(TOOL, endpoint, NOW);
    let Ok(admitted) = judged.verdict else { return };
    let has_exceptions = index == 3;
    assert!(endpoint.scheme() == Scheme::Https || has_exceptions, "plain http was admitted");
    match endpoint.host() {
        Host::Name(name) => {
            assert_eq!(admitted.lookup_name(), Some(name.as_str()));
            assert!(admitted.literal().is_none());
            assert!(refused_name(name).is_none() || has_exceptions, "{name} was admitted");
            let judge = |addresses: &[IpAddr]| {
                let answers = Answers { addresses: addresses.to_vec(), names: Vec::new() };
                rules.vet(&admitted, &answers).verdict
            };
            assert!(judge(&[]).is_err(), "no address, nothing to dial");
            assert!(judge(&[PRIVATE]).is_err() || has_exceptions, "a private answer was vetted");
            for vetted in judge(&[PRIVATE, PUBLIC]).unwrap_or_default() {
                assert_eq!(vetted.socket().port(), endpoint.port());
                assert!(rules.still_allowed(&admitted, &vetted));
            }
        }
        Host::Address(address) => {
            assert_eq!(admitted.lookup_name(), None);
            let answers = admitted.literal().expect("its own answer");
            assert_eq!(answers.addresses, [*address]);
            assert!(rules.judge_address(*address).verdict.is_ok() || has_exceptions);
            let other = Answers { addresses: vec![PUBLIC], names: Vec::new() };
            let vetted = rules.vet(&admitted, &other).verdict.expect("admitted");
            let sockets: Vec<_> = vetted.iter().map(|vetted| vetted.socket()).collect();
            assert_eq!(sockets, [SocketAddr::new(*address, endpoint.port())]);
        }
    }
}

/// Four or sixteen bytes of an address: every form of it gets the verdict that it must have.
pub fn address(data: &[u8]) {
    let default = &RULES[0];
    let address = match (<[u8; 4]>::try_from(data), <[u8; 16]>::try_from(data)) {
        (Ok(octets), _) => {
            disguises_follow(default, octets.into());
            IpAddr::from(octets)
        }
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return,
    };
    let kind = ranges::classify(address, &[]);
    match default.judge_address(address).verdict {
        Ok(allowed) => {
            assert_eq!((allowed, kind.code), (address, EgressCode::Ok));
            is_public(address);
        }
        Err(refusal) => assert_eq!((refusal.code, refusal.address), (kind.code, Some(address))),
    }
    let text = match address {
        IpAddr::V4(v4) => format!("https://{v4}/"),
        IpAddr::V6(v6) => format!("https://[{v6}]/"),
    };
    let literal = Endpoint::parse(&text).expect("an address is a host");
    assert_eq!(literal.host(), &Host::Address(address));
    let named = Endpoint::parse("https://shop.example.com/").expect("an endpoint");
    let answers = Answers { addresses: vec![address], names: Vec::new() };
    for (index, rules) in RULES.iter().enumerate() {
        let literal = rules.admit(TOOL, &literal, NOW).verdict.is_ok();
        let admitted = rules.admit(TOOL, &named, NOW).verdict.expect("an ordinary name");
        let vetted = rules.vet(&admitted, &answers).verdict;
        let alone = rules.judge_address(address).verdict.is_ok();
        if index < 3 {
            assert_eq!((literal, vetted.is_ok()), (alone, alone), "{index}: {address}");
        }
        if ranges::on_floor(address) || ranges::is_disguise(kind.code) {
            assert!(!literal && !alone && vetted.is_err(), "{index}: {address} was opened");
        }
        for vetted in vetted.unwrap_or_default() {
            assert_eq!(vetted.socket(), SocketAddr::new(address, 443));
            assert!(rules.still_allowed(&admitted, &vetted));
        }
    }
}

/// An IPv4 address inside an IPv6 one is never better off than the address itself.
fn disguises_follow(rules: &EgressRules, v4: Ipv4Addr) {
    let judge = |address: IpAddr| rules.judge_address(address).verdict.map_err(|no| no.code);
    let low = u128::from(v4.to_bits());
    let plain = judge(v4.into());
    let refused = |address: Ipv6Addr| assert!(judge(address.into()).is_err(), "{address}");
    assert_eq!(judge(v4.to_ipv6_mapped().into()), Err(EgressCode::Ipv4Mapped));
    refused(Ipv6Addr::from_bits(low));
    refused(Ipv6Addr::from_bits(0xffff << 48 | low));
    refused(Ipv6Addr::from_bits(0x2002 << 112 | low << 80));
    refused(Ipv6Addr::from_bits(0x2001 << 112 | !low & 0xffff_ffff));
    let nat64 = Ipv6Addr::from_bits(0x64_ff9b << 96 | low);
    let isatap = Ipv6Addr::from_bits(0x2606_4700 << 96 | 0x5efe << 32 | low);
    assert_eq!(judge(nat64.into()).is_ok(), plain.is_ok(), "{nat64}");
    assert_eq!(judge(isatap.into()).is_ok(), plain.is_ok(), "{isatap}");
}

/// What the standard library knows, too.
fn is_public(address: IpAddr) {
    let special = match address {
        IpAddr::V4(v4) => {
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
                || v4.is_documentation()
                || v4.octets()[0] == 0
        }
        IpAddr::V6(v6) => {
            let [first, second, ..] = v6.segments();
            let global = first & 0xe000 == 0x2000 || (first, second) == (0x64, 0xff9b);
            !global || v6.is_multicast() || v6.to_ipv4_mapped().is_some()
        }
    };
    assert!(!special, "{address} is not public");
}

/// A pattern, then host names, one a line: what the pattern says is what it matches.
pub fn host_pattern(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.lines();
    let pattern = lines.next().unwrap_or_default();
    let parsed = HostPattern::parse(pattern);
    for name in lines.take(8) {
        if pattern.len() + name.len() < 200 {
            assert_eq!(glob_matches(pattern, name), slow_glob(pattern.as_bytes(), name.as_bytes()));
        }
        let Ok(parsed) = &parsed else { continue };
        let matches = parsed.matches_name(name);
        assert_eq!(matches, parsed.matches_name(&name.to_ascii_uppercase()), "{pattern} {name}");
        if let Some(suffix) = pattern.strip_prefix("*.") {
            let below = name.len() > suffix.len();
            assert!(!matches || below, "{pattern} matched {name}, which is not below it");
        }
        if let Ok(address) = name.parse() {
            assert!(!matches, "{pattern} matched {name} as a name");
            assert_eq!(parsed.matches_address(address), *parsed == HostPattern::Address(address));
        }
    }
}

/// A glob by its definition.
fn slow_glob(glob: &[u8], text: &[u8]) -> bool {
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    for byte in glob {
        if *byte == b'*' {
            let first = reached.iter().position(|one| *one).unwrap_or(reached.len());
            reached[first..].fill(true);
        } else {
            for at in (0..text.len()).rev() {
                reached[at + 1] = reached[at] && text[at] == *byte;
            }
            reached[0] = false;
        }
    }
    reached[text.len()]
}
