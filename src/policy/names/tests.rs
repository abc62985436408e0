//! Tests of names and globs.

use super::*;

#[track_caller]
fn check_glob(glob: &str, text: &str, matches: bool) {
    assert_eq!(glob_matches(glob, text), matches, "{glob} {text}");
}

#[test]
fn globs_match_the_whole_text() {
    check_glob("wms_scan", "wms_scan", true);
    check_glob("wms_scan", "wms_scan2", false);
    check_glob("wms_scan", "a_wms_scan", false);
    check_glob("", "", true);
    check_glob("", "a", false);
}

#[test]
fn a_star_stands_for_any_run_of_characters() {
    for (glob, text, matches) in [
        ("*", "", true),
        ("*", "a.b_c", true),
        ("wms_*", "wms_", true),
        ("wms_*", "wms_scan", true),
        ("wms_*", "wms", false),
        ("wms_*", "a_wms_scan", false),
        ("orders.*", "orders.read.all", true),
        ("orders.*", "orders", false),
        ("*_read", "orders_read", true),
        ("*_read", "orders_read_all", false),
        ("a*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "acb", false),
        ("a*a", "a", false),
        ("a*b*c", "a_b_b_c", true),
        ("a*b*c", "a_c_b", false),
        ("*ab*ab*", "abab", true),
        ("*ab*ab*", "ab", false),
        ("*b*b", "bb", true),
        ("*b*b", "b", false),
        ("a**b", "ab", true),
        ("**", "", true),
        ("a*ba", "aba", true),
        ("a*ba", "ababa", true),
        ("a*ab", "aab", true),
        ("a*ab", "ab", false),
    ] {
        check_glob(glob, text, matches);
    }
}

#[track_caller]
fn check_refused(name: &str, code: Option<EgressCode>) {
    assert_eq!(refused_name(name), code, "{name}");
}

#[test]
fn special_use_names_are_refused_by_whole_labels() {
    for name in [
        "localhost",
        "a.localhost",
        "LocalHost.",
        "localhost.localdomain",
        "printer.local",
        "metadata.google.internal",
        "internal",
        "kubernetes.default.svc",
        "svc",
        "a.b.cluster.local.",
        "nas.home.arpa",
        "1.0.0.127.in-addr.ARPA",
        "x.onion",
        "x.alt",
        "x.invalid",
    ] {
        check_refused(name, Some(EgressCode::NameDenied));
    }
    for name in [
        "mylocalhost.com",
        "internal.example.com",
        "a.notlocal",
        "svc.example.com",
        "a.test",
        "a.example",
    ] {
        check_refused(name, None);
    }
}

#[test]
fn names_of_one_label_are_refused() {
    for name in ["intranet", "intranet.", "ip6-localhost", ""] {
        check_refused(name, Some(EgressCode::SingleLabel));
    }
}

#[test]
fn only_localhost_and_what_ends_in_it_is_localhost() {
    assert!(is_localhost("localhost") && is_localhost("a.LOCALHOST."));
    assert!(!is_localhost("localhost.localdomain") && !is_localhost("mylocalhost"));
}

#[track_caller]
fn check_name(text: &str, expected: &str) {
    assert_eq!(read_name(text).as_deref(), Ok(expected));
}

#[test]
fn names_come_back_in_lower_case_without_the_dot() {
    check_name("Example.COM.", "example.com");
    check_name("XN--bcher-KVA.example", "xn--bcher-kva.example");
    check_name("123.example.com", "123.example.com");
    check_name("r3---sn-abc.example.com", "r3---sn-abc.example.com");
    let label = "a".repeat(63);
    check_name(&format!("{label}.com"), &format!("{label}.com"));
    let longest = [label.as_str(), &label, &label, &"b".repeat(61)].join(".");
    check_name(&longest, &longest);
}

#[track_caller]
fn check_bad_name(text: &str, code: EgressCode, message: &str) {
    let error = read_name(text).unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), (code, message));
}

#[test]
fn bad_names_are_refused_with_a_cure() {
    let malformed = EgressCode::MalformedHost;
    check_bad_name("", malformed, "the host name is empty");
    check_bad_name(".", malformed, "the host name is empty");
    check_bad_name("a..b", malformed, "host `a..b` has an empty label");
    check_bad_name("a.b..", malformed, "host `a.b..` has an empty label");
    check_bad_name(
        "a.1.2.3",
        malformed,
        "host `a.1.2.3` ends in a number but is not an IPv4 address",
    );
    check_bad_name("a.0x", malformed, "host `a.0x` ends in a number but is not an IPv4 address");
    check_bad_name(
        "xn--a.com",
        malformed,
        "host `xn--a.com` has an `xn--` label that is not valid punycode",
    );
    check_bad_name(
        "0x7f.1",
        EgressCode::NonCanonicalHost,
        "host `0x7f.1` is another spelling of 127.0.0.1: write the address if that is what is meant",
    );
    check_bad_name(
        "bücher.example",
        EgressCode::NonAsciiUrl,
        "host `bücher.example` has characters outside of ASCII: write `xn--bcher-kva.example`",
    );
    for label in ["-a", "a-", "a_b", "a%2e", "a b", "a*"] {
        check_bad_name(
            &format!("{label}.com"),
            malformed,
            &format!(
                "`{label}` is no label of a host name: letters, digits and hyphens, none of them at an end"
            ),
        );
    }
    let (label, name) = ("a".repeat(64), "a.".repeat(127) + "b");
    check_bad_name(
        &format!("{label}.com"),
        malformed,
        &format!("`{label}` is longer than a label's 63 characters"),
    );
    check_bad_name(&name, malformed, "the host name has 255 characters, 253 at most are a name");
}

#[track_caller]
fn check_pattern(pattern: &str, name: &str, matches: bool) {
    assert_eq!(
        HostPattern::parse(pattern).unwrap().matches_name(name),
        matches,
        "{pattern} {name}"
    );
}

#[test]
fn host_patterns_match_whole_labels() {
    check_pattern("Shop.Example.com.", "shop.example.com", true);
    check_pattern("shop.example.com", "SHOP.example.com.", true);
    check_pattern("shop.example.com", "a.shop.example.com", false);
    check_pattern("*.example.com", "a.example.com", true);
    check_pattern("*.example.com", "a.b.Example.com.", true);
    check_pattern("*.example.com", "example.com", false);
    check_pattern("*.example.com", ".example.com", false);
    check_pattern("*.example.com", "notexample.com", false);
    check_pattern("*.example.com", "éexample.com", false);
    check_pattern("10.0.0.1", "10.0.0.1", false);
}

#[test]
fn an_address_is_a_host_pattern() {
    let address: IpAddr = "2001:db8::1".parse().unwrap();
    for text in ["2001:db8::1", "[2001:db8::1]", "[2001:DB8:0::1]"] {
        assert!(HostPattern::parse(text).unwrap().matches_address(address), "{text}");
    }
    assert!(!HostPattern::parse("example.com").unwrap().matches_address(address));
    assert_eq!(HostPattern::parse("127.0.0.1").unwrap().to_string(), "127.0.0.1");
    assert!(matches!(HostPattern::parse("127.1"), Err(NameError::NonCanonical { .. })));
}

#[test]
fn a_star_inside_a_host_is_refused() {
    for text in
        ["*", "a.*.example.com", "a*.example.com", "*.*.example.com", "*a.example.com", "*."]
    {
        assert!(HostPattern::parse(text).is_err(), "{text}");
    }
    assert_eq!(
        HostPattern::parse("api-*.example.com").unwrap_err().to_string(),
        "`api-*.example.com`: a `*` may stand only in front, as the whole first label: `*.example.com`"
    );
}
