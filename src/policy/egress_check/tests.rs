//! Tests of the settings' errors and warnings.

use super::*;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn exception() -> Exception {
    Exception {
        tools: texts(&["wms_*"]),
        hosts: texts(&["wms.corp.example.com"]),
        cidrs: texts(&["10.20.0.0/16"]),
        reason: Some("warehouse".to_owned()),
        owner: Some("logistics".to_owned()),
        ..Exception::default()
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut EgressSettings), errors: &[&str]) {
    let mut settings =
        EgressSettings { exceptions: vec![exception(), exception()], ..EgressSettings::default() };
    change(&mut settings);
    let found: Vec<String> = match compile(&settings, Strictness::Full) {
        Ok(_) => Vec::new(),
        Err(found) => found.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(found, errors);
}

#[track_caller]
fn check_exception(change: impl FnOnce(&mut Exception), error: &str) {
    let errors: &[&str] = if error.is_empty() { &[] } else { &[error] };
    check(|settings| change(&mut settings.exceptions[1]), errors);
}

#[test]
fn the_defaults_and_a_plain_exception_are_right() {
    check(|_| (), &[]);
}

#[test]
fn all_errors_are_reported_with_their_fields() {
    check(
        |settings| {
            settings.ports = texts(&["443", "https"]);
            settings.deny_cidrs = texts(&["10.0.0.1"]);
            settings.own_addresses = texts(&["localhost"]);
            settings.exceptions[1].cidrs = texts(&["10.20.0.0/16", "10.20.1.5/16"]);
        },
        &[
            "ports[1]: `https` is not a port: write one from 1 to 65535, or a range such as `1024-65535`",
            "deny_cidrs[0]: `10.0.0.1` is not a range of addresses; write one such as `10.20.0.0/16` or `10.20.1.5/32`",
            "own_addresses[0]: `localhost` is not an IP address",
            "exceptions[1].cidrs[1]: `10.20.1.5/16` has bits set behind its prefix; write `10.20.0.0/16`",
        ],
    );
}

#[test]
fn bits_behind_a_prefix_are_refused_everywhere() {
    let error = |field: &str| {
        format!("{field}[0]: `10.0.0.1/8` has bits set behind its prefix; write `10.0.0.0/8`")
    };
    let range = || texts(&["10.0.0.1/8"]);
    check(|settings| settings.deny_cidrs = range(), &[&error("deny_cidrs")]);
    check(|settings| settings.private_cidrs = range(), &[&error("private_cidrs")]);
    check(|settings| settings.fake_ip_cidrs = range(), &[&error("fake_ip_cidrs")]);
    check_exception(|exception| exception.cidrs = range(), &error("exceptions[1].cidrs"));
}

#[test]
fn every_address_may_only_be_denied() {
    check(|settings| settings.deny_cidrs = texts(&["0.0.0.0/0", "::/0"]), &[]);
    for text in ["0.0.0.0/0", "::/0", "10.0.0.0/0"] {
        let error = |field: &str| {
            format!("{field}[0]: `{text}` is every address; only `deny_cidrs` may say that")
        };
        check(|settings| settings.private_cidrs = texts(&[text]), &[&error("private_cidrs")]);
        check(|settings| settings.fake_ip_cidrs = texts(&[text]), &[&error("fake_ip_cidrs")]);
        check_exception(
            |exception| exception.cidrs = texts(&[text]),
            &error("exceptions[1].cidrs"),
        );
    }
}

#[test]
fn mapped_ranges_are_refused_everywhere() {
    let error = |field: &str, text: &str| {
        format!(
            "{field}[0]: `{text}` covers IPv4-mapped addresses, which are never called; write the IPv4 range"
        )
    };
    for text in ["::ffff:0:0/96", "::ffff:10.0.0.0/104", "::ffff:10.20.1.5/128"] {
        check(|settings| settings.deny_cidrs = texts(&[text]), &[&error("deny_cidrs", text)]);
    }
    for text in ["::ffff:0:0/96", "::ffff:10.0.0.0/104", "::/64", "::/1"] {
        check(|settings| settings.private_cidrs = texts(&[text]), &[&error("private_cidrs", text)]);
        check(
            |settings| settings.nat64_prefixes = texts(&[text]),
            &[&error("nat64_prefixes", text)],
        );
        check_exception(
            |exception| exception.cidrs = texts(&[text]),
            &error("exceptions[1].cidrs", text),
        );
    }
}

#[test]
fn addresses_are_denied_as_ranges() {
    check(
        |settings| settings.deny_hosts = texts(&["shop.example.com", "8.8.8.8", "[2001:db8::1]"]),
        &[
            "deny_hosts[1]: is an address, which names lead to as well; write `8.8.8.8/32` into `deny_cidrs`",
            "deny_hosts[2]: is an address, which names lead to as well; write `2001:db8::1/128` into `deny_cidrs`",
        ],
    );
    check(|settings| settings.allow_hosts = texts(&["8.8.8.8"]), &[]);
}

#[test]
fn globs_stand_in_front_and_cover_a_suffix_of_ones_own() {
    for field in ["deny_hosts", "allow_hosts"] {
        let error = format!(
            "{field}[0]: `api.*.example.com`: a `*` may stand only in front, as the whole first label: `*.example.com`"
        );
        check(
            |settings| match field {
                "deny_hosts" => {
                    settings.deny_hosts = texts(&["api.*.example.com", "*.example.com"])
                }
                _ => settings.allow_hosts = texts(&["api.*.example.com", "*.example.com"]),
            },
            &[&error],
        );
    }
    check_exception(
        |exception| {
            exception.hosts = texts(&["*.corp.example.com", "*.internal", "*.svc.cluster.local"])
        },
        "",
    );
    check_exception(
        |exception| {
            exception.hosts = texts(&["*.corp", "*.home", "*.intranet", "*.lan", "*.private"])
        },
        "",
    );
    check_exception(
        |exception| exception.hosts = texts(&["*.com"]),
        "exceptions[1].hosts[0]: `*.com` covers a top-level domain that may be open to anybody; name a suffix of your own",
    );
    check_exception(
        |exception| exception.hosts = texts(&["bücher.example"]),
        "exceptions[1].hosts[0]: host `bücher.example` has characters outside of ASCII: write `xn--bcher-kva.example`",
    );
}

#[test]
fn localhost_is_never_opened() {
    for host in ["localhost", "LOCALHOST.", "db.localhost", "*.localhost"] {
        let name = host.to_ascii_lowercase();
        let name = name.trim_end_matches('.');
        check_exception(
            |exception| exception.hosts = texts(&[host]),
            &format!(
                "exceptions[1].hosts[0]: `{name}` is never opened; write the address: `127.0.0.1`"
            ),
        );
    }
}

#[test]
fn an_exception_names_tool_host_and_range_and_for_loopback_ports() {
    check_exception(
        |exception| exception.tools.clear(),
        "exceptions[1].tools: must name at least one tool",
    );
    check_exception(
        |exception| exception.hosts.clear(),
        "exceptions[1].hosts: must name at least one host",
    );
    check_exception(
        |exception| exception.cidrs.clear(),
        "exceptions[1].cidrs: must name at least one range",
    );
    for range in ["127.0.0.0/8", "127.0.0.1/32", "::1/128"] {
        check_exception(
            |exception| exception.cidrs = texts(&["10.0.0.0/8", range]),
            "exceptions[1].ports: must name ports, because `cidrs` has a loopback range",
        );
        check_exception(
            |exception| {
                exception.cidrs = texts(&[range]);
                exception.ports = texts(&["8443"]);
            },
            "",
        );
    }
    check_exception(
        |exception| exception.tools = texts(&["WMS scan"]),
        "exceptions[1].tools[0]: `WMS scan` is not a glob of tool names: a-z, 0-9, `_`, `.` and `*`",
    );
}

#[test]
fn dates_have_one_spelling() {
    check_exception(|exception| exception.expires = Some("2027-03-01".to_owned()), "");
    for text in ["2027-3-1", "20270301", "2027-02-30", "2027-03-01T10:00", "soon", ""] {
        check_exception(
            |exception| exception.expires = Some(text.to_owned()),
            &format!("exceptions[1].expires: `{text}` is not a date; write it as `2027-03-01`"),
        );
    }
    for (text, day) in
        [("1970-01-01", 0), ("1970-01-02", 1), ("2000-03-01", 11_017), ("1969-12-31", -1)]
    {
        assert_eq!(read_day(text), Ok(day));
    }
}

#[test]
fn ports_of_other_protocols_need_an_exception() {
    let error = "ports[1]: port 6000 belongs to another protocol; name it in an exception's `ports` if a tool needs it";
    check(|settings| settings.ports = texts(&["443", "6000"]), &[error]);
    check(|settings| settings.ports.clear(), &["ports: must name at least one port"]);
    check_exception(|exception| exception.ports = texts(&["6000", "80"]), "");
}

#[test]
fn nat64_prefixes_and_stand_ins_have_their_places() {
    check(|settings| settings.nat64_prefixes = texts(&["64:ff9b:1::/48", "2a01:4f8::/32"]), &[]);
    for text in ["2a01:4f8::/33", "10.0.0.0/8", "2a01::/16"] {
        let error = format!(
            "nat64_prefixes[0]: `{text}` is not a NAT64 prefix: an IPv6 range of 32, 40, 48, 56, 64 or 96 bits, of which 64 to 71 are zero"
        );
        check(|settings| settings.nat64_prefixes = texts(&[text]), &[&error]);
    }
    for text in ["64:ff9b:1::/96", "64:ff9b:1:abcd::/64", "64:ff9b::/96", "fd00:64::/96"] {
        check(|settings| settings.nat64_prefixes = texts(&[text]), &[]);
    }
    for text in ["::/96", "2002::/32", "2002:808:808::/48", "2001::/32", "64:ff9b::/32"] {
        let error = format!(
            "nat64_prefixes[0]: `{text}` has addresses that carry an IPv4 address in another way, or never"
        );
        check(|settings| settings.nat64_prefixes = texts(&[text]), &[&error]);
    }
    check(
        |settings| settings.fake_ip_cidrs = texts(&["198.18.0.0/16", "fdfe:dcba:9876::/64"]),
        &[],
    );
    for text in ["10.0.0.0/8", "198.16.0.0/14", "169.254.0.0/16"] {
        let error = format!(
            "fake_ip_cidrs[0]: `{text}` is outside of 198.18.0.0/15 and fc00::/7, and only those may stand for names"
        );
        check(|settings| settings.fake_ip_cidrs = texts(&[text]), &[&error]);
    }
}

#[track_caller]
fn check_warnings(change: impl FnOnce(&mut Exception), expected: &[&str]) {
    let mut settings =
        EgressSettings { exceptions: vec![exception()], ..EgressSettings::default() };
    change(&mut settings.exceptions[0]);
    let today = read_day("2027-03-01").unwrap() * DAY_SECONDS + 3_600;
    let found: Vec<String> = warnings(&settings, today).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn exceptions_without_reason_or_owner_are_warned_about() {
    check_warnings(|_| (), &[]);
    check_warnings(
        |exception| (exception.reason, exception.owner) = (None, Some(" ".to_owned())),
        &[
            "exceptions[0].reason: should say what this exception is for",
            "exceptions[0].owner: should name who answers for this exception",
        ],
    );
}

#[test]
fn the_end_of_an_exception_is_warned_about_30_days_before() {
    for (text, expected) in [
        ("2027-02-28", Some("ended after 2027-02-28: nothing is opened any more")),
        ("2027-03-01", Some("ends after 2027-03-01, in 0 days")),
        ("2027-03-31", Some("ends after 2027-03-31, in 30 days")),
        ("2027-04-01", None),
    ] {
        let expected: Vec<String> =
            expected.iter().map(|text| format!("exceptions[0].expires: {text}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_warnings(|exception| exception.expires = Some(text.to_owned()), &expected);
    }
}

#[test]
fn ranges_that_are_never_opened_are_warned_about() {
    for text in ["169.254.169.254/32", "fe80::/10", "224.0.0.0/8", "2002::/16", "64:ff9b:1::/48"] {
        let expected =
            format!("exceptions[0].cidrs[0]: `{text}` is never opened, whatever an exception says");
        check_warnings(|exception| exception.cidrs = texts(&[text]), &[&expected]);
    }
    for text in ["10.0.0.0/8", "100.64.0.0/10", "fd00::/8", "224.0.0.0/3"] {
        check_warnings(|exception| exception.cidrs = texts(&[text]), &[]);
    }
}
