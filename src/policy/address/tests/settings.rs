//! Tests of the other settings: what is denied, private, own or allowed, and what shadow mode lets pass.

use super::*;

#[test]
fn own_listeners_and_addresses_stay_closed() {
    let all = ["127.0.0.0/8", "10.0.0.0/8", "::1/128"];
    let hosts = ["wms.corp.example.com", "127.0.0.2"];
    let mut settings = with_exceptions(vec![exception(&hosts, &all, &["443", "1024-65535"])]);
    settings.own_listeners = ["127.0.0.1:8477", "0.0.0.0:9477", "10.0.0.7:9477"]
        .map(|text| text.parse().unwrap())
        .to_vec();
    settings.own_addresses = texts(&["93.184.216.34", "::ffff:10.9.9.9"]);
    let url = |port: u16| format!("https://wms.corp.example.com:{port}/");
    for (port, address, code) in [
        (8477, "127.0.0.1", "self"),
        (8478, "127.0.0.1", "ok"),
        (8477, "127.0.0.2", "ok"),
        (9477, "127.0.0.2", "self"),
        (9477, "::1", "self"),
        (9477, "10.0.0.7", "self"),
        (9478, "10.0.0.7", "ok"),
        (9477, "10.0.0.8", "ok"),
        (443, "93.184.216.34", "self"),
        (8443, "93.184.216.34", "self"),
        (8443, "10.9.9.9", "self"),
        (8443, "64:ff9b::93.184.216.34", "self"),
    ] {
        check(&settings, &url(port), &[address], code);
    }
    check(&settings, "https://127.0.0.2:9477/", &[], "self");
    check(
        &EgressSettings { exceptions: Vec::new(), ..settings },
        "https://127.0.0.1:8477/",
        &[],
        "self",
    );
}

#[test]
fn deny_beats_exception() {
    let mut settings = warehouse();
    settings.deny_cidrs = texts(&["10.20.1.0/24"]);
    check(&settings, WMS, &["10.20.1.5"], "denied_cidr");
    check(&settings, WMS, &["10.20.2.5"], "ok");
    settings.deny_hosts = texts(&["*.corp.example.com"]);
    check(&settings, WMS, &["10.20.2.5"], "denied_host");
    check(&settings, "https://a.example.com/", &["93.184.216.34"], "ok");
    check(&settings, "https://a.corp.example.com/", &["93.184.216.34"], "denied_host");
}

#[test]
fn denied_ranges_reach_into_translated_addresses() {
    let nat64_prefixes = texts(&["2a01:4f8::/32", "2a01:4f8:c0:ffab::/96"]);
    let deny_cidrs = texts(&["93.184.216.0/24"]);
    let settings = EgressSettings { nat64_prefixes, deny_cidrs, ..EgressSettings::default() };
    check(&settings, WMS, &["64:ff9b::93.184.216.34"], "denied_cidr");
    check(&settings, WMS, &["2a01:4f8:5db8:d822::"], "denied_cidr");
    check(&settings, WMS, &["2a01:4f8:c0:ffab::93.184.216.34"], "denied_cidr");
    check(&settings, WMS, &["2a01:4f8:c0:ffab::8.8.8.8"], "ok");
}

#[test]
fn private_ranges_are_closed_and_may_be_opened() {
    let mut settings =
        with_exceptions(vec![exception(&["wms.corp.example.com"], &["25.0.0.0/8"], &[])]);
    settings.private_cidrs = texts(&["25.0.0.0/8", "100.64.0.0/16", "127.0.0.0/8", "2a00:1::/32"]);
    let other = "https://other.example.com/";
    check(&settings, other, &["25.1.2.3"], "private");
    check(&settings, other, &["26.1.2.3"], "ok");
    check(&settings, other, &["100.64.1.1"], "private");
    check(&settings, other, &["100.65.1.1"], "cgnat");
    check(&settings, other, &["127.0.0.1"], "loopback");
    check(&settings, other, &["2a00:1::1"], "private");
    check(&settings, other, &["64:ff9b::25.1.2.3"], "nat64_embedded");
    check(&settings, WMS, &["25.1.2.3"], "ok");
}

#[test]
fn allowed_hosts_are_the_only_public_ones() {
    let allow_hosts = texts(&["*.example.net", "8.8.8.8"]);
    let settings = EgressSettings { allow_hosts, ..warehouse() };
    check(&settings, "https://a.example.net/", &["93.184.216.34"], "ok");
    check(&settings, "https://a.example.net/", &["10.0.0.1"], "private");
    check(&settings, "https://example.net/", &["93.184.216.34"], "host_not_allowed");
    check(&settings, "https://8.8.8.8/", &[], "ok");
    check(&settings, "https://8.8.4.4/", &[], "host_not_allowed");
    check(&settings, WMS, &["10.20.1.5"], "ok");
    check(&settings, WMS, &["93.184.216.34"], "host_not_allowed");
}

#[test]
fn shadow_mode_lets_pass_what_the_operators_rules_refuse_on_public_addresses() {
    let (public, a) = (["93.184.216.34"], "https://a.example.com/");
    let shadow = |settings| EgressSettings { mode: Mode::Shadow, ..settings };
    let base = EgressSettings::default;
    let denied_host =
        shadow(EgressSettings { deny_hosts: texts(&["a.example.com", "8.8.8.8"]), ..base() });
    let denied_cidr =
        shadow(EgressSettings { deny_cidrs: texts(&["93.0.0.0/8", "10.0.0.0/8"]), ..base() });
    let others_only = shadow(EgressSettings { allow_hosts: texts(&["b.example.com"]), ..base() });
    Run::new(a, &public).is_shadowed(&denied_host, EgressCode::DeniedHost);
    Run::new("https://8.8.8.8/", &[]).is_shadowed(&denied_host, EgressCode::DeniedHost);
    Run::new(a, &public).is_shadowed(&denied_cidr, EgressCode::DeniedCidr);
    Run::new(a, &public).is_shadowed(&others_only, EgressCode::HostNotAllowed);
    Run::new("https://a.example.com:80/", &public).is_shadowed(&shadow(base()), EgressCode::Port);
    check(&shadow(base()), a, &public, "ok");
    for settings in [&denied_host, &others_only] {
        check(settings, a, &["10.0.0.1"], "private");
        check(settings, "https://a.internal/", &public, "name_denied");
    }
    check(&denied_cidr, a, &["10.0.0.1"], "denied_cidr");
}

#[test]
fn shadow_mode_opens_nothing_private() {
    let shadow = |settings| EgressSettings { mode: Mode::Shadow, ..settings };
    let host = shadow(EgressSettings { deny_hosts: texts(&["*.corp.example.com"]), ..warehouse() });
    check(&host, WMS, &["10.20.1.5"], "denied_host");
    let range = shadow(EgressSettings { deny_cidrs: texts(&["10.20.1.0/24"]), ..warehouse() });
    check(&range, WMS, &["10.20.1.5"], "denied_cidr");
    let allow = shadow(EgressSettings { allow_hosts: texts(&["b.example.com"]), ..warehouse() });
    check(&allow, WMS, &["10.20.1.5"], "ok");
    check(&allow, "https://wms.corp.example.com:80/", &["10.20.1.5"], "private");
}

#[test]
fn shadow_mode_says_so_before_dns_too() {
    let deny_hosts = texts(&["a.example.com"]);
    let settings = EgressSettings { mode: Mode::Shadow, deny_hosts, ..EgressSettings::default() };
    let rules = EgressRules::new(&settings).unwrap();
    let endpoint = Endpoint::parse("https://a.example.com/").unwrap();
    let judged = rules.admit("tool", &endpoint, NOW);
    assert_eq!((judged.verdict.is_ok(), judged.shadow), (true, Some(EgressCode::DeniedHost)));
}

#[test]
fn stand_ins_of_a_proxy_are_opened_for_names_only() {
    let fake_ip_cidrs = texts(&["198.18.0.0/16", "fdfe:dcba:9876::/64"]);
    let settings = EgressSettings { fake_ip_cidrs, ..EgressSettings::default() };
    check(&settings, WMS, &["198.18.0.84", "fdfe:dcba:9876::1"], "ok");
    check(&settings, WMS, &["198.19.0.1"], "benchmarking");
    check(&settings, WMS, &["fdfe::1"], "unique_local");
    check(&settings, "https://198.18.0.84/", &[], "benchmarking");
    check(&settings, "https://a.internal/", &["198.18.0.84"], "name_denied");
    let all = EgressSettings { fake_ip_cidrs: texts(&["0.0.0.0/0", "::/0"]), ..settings };
    check(&all, WMS, &["10.0.0.1"], "private");
    check(&all, WMS, &["127.0.0.1"], "loopback");
    check(&all, WMS, &["100.64.0.1"], "cgnat");
    check(&all, WMS, &["fd00:ec2::254"], "unique_local");
}
