//! Tests of exceptions: what they open, and what nothing opens.

use super::*;

#[test]
fn an_exception_needs_tool_host_range_and_port() {
    let settings = warehouse();
    check(&settings, WMS, &["10.20.1.5"], "ok");
    check(&settings, WMS, &["10.21.0.1"], "private");
    check(&settings, "https://other.corp.example.com/", &["10.20.1.5"], "private");
    check(&settings, "https://wms.corp.example.com:8443/", &["10.20.1.5"], "ok");
    check(&settings, "https://wms.corp.example.com:80/", &["10.20.1.5"], "port");
    Run { tool: "crm_read", ..Run::new(WMS, &["10.20.1.5"]) }.is(&settings, "private");
    check(&settings, WMS, &["10.20.1.5", "10.21.0.1"], "private");
    check(&settings, WMS, &["10.20.1.5", "93.184.216.34"], "ok");
}

#[test]
fn the_ports_of_an_exception_are_for_its_addresses_only() {
    let settings = with_exceptions(vec![exception(
        &["wms.corp.example.com"],
        &["10.20.0.0/16"],
        &["80", "6000"],
    )]);
    check(&settings, "https://wms.corp.example.com:80/", &["10.20.1.5"], "ok");
    check(&settings, "https://wms.corp.example.com:6000/", &["10.20.1.5"], "ok");
    check(&settings, WMS, &["10.20.1.5"], "private");
    check(&settings, WMS, &["93.184.216.34"], "ok");
    check(&settings, "https://wms.corp.example.com:80/", &["93.184.216.34"], "port");
    check(&settings, "https://wms.corp.example.com:81/", &["10.20.1.5"], "port");
}

#[test]
fn an_exception_ends_with_its_last_day() {
    let mut settings = warehouse();
    settings.exceptions[0].expires = Some("2027-02-28".to_owned());
    for (now, code) in [(NOW, "ok"), (NOW + 86_399, "ok"), (NOW + 86_400, "private"), (-1, "ok")] {
        Run { now, ..Run::new(WMS, &["10.20.1.5"]) }.is(&settings, code);
        let in_force = EgressRules::new(&settings).unwrap().exceptions_in_force(now);
        let said = in_force.first().map(String::as_str).unwrap_or_default();
        assert_eq!(said.contains(r#", expires "2027-02-28""#), code == "ok", "{in_force:?}");
    }
}

#[test]
fn an_exception_does_not_open_other_forms_of_its_addresses() {
    let all = ["0.0.0.0/0", "::/0"];
    let settings = with_exceptions(vec![exception(&["wms.corp.example.com"], &all, &["443"])]);
    for (address, code) in [
        ("10.20.1.5", "ok"),
        ("fd12::1", "ok"),
        ("64:ff9b::10.20.1.5", "ok"),
        ("::ffff:10.20.1.5", "ipv4_mapped"),
        ("::10.20.1.5", "ipv4_compatible"),
        ("::ffff:0:10.20.1.5", "ipv4_translated"),
        ("2002:a14:105::1", "six_to_four"),
        ("2001:0:4136:e378:8000:1388:f5eb:fefa", "teredo"),
        ("64:ff9b:1::10.20.1.5", "nat64_local"),
    ] {
        check(&settings, WMS, &[address], code);
    }
    check(&warehouse(), WMS, &["::ffff:10.20.1.5"], "ipv4_mapped");
    check(&warehouse(), WMS, &["64:ff9b::10.20.1.5"], "nat64_embedded");
}

#[test]
fn the_floor_beats_every_exception_and_shadow_mode() {
    let all = ["0.0.0.0/0", "::/0"];
    let mut settings =
        with_exceptions(vec![exception(&["wms.corp.example.com"], &all, &["1-65535"])]);
    settings.fake_ip_cidrs = texts(&all);
    settings.private_cidrs = texts(&all);
    for mode in [Mode::Enforce, Mode::Shadow] {
        settings.mode = mode;
        for address in [
            "169.254.169.254",
            "169.254.0.0",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "0.0.0.0",
            "255.255.255.255",
            "224.0.0.1",
            "fe80::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "::",
            "ff02::1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::168.63.129.16",
            "fd12::5efe:169.254.169.254",
            "2a00:1450:4001::5efe:169.254.169.254",
        ] {
            let rules = EgressRules::without_load_checks(&EgressSettings::default()).unwrap();
            let code = rules.judge_address(address.parse().unwrap()).verdict.unwrap_err().code;
            check(&settings, WMS, &[address], code.as_str());
        }
        check(&settings, WMS, &["10.20.1.5"], "ok");
    }
}

#[test]
fn loopback_opens_with_ports_only() {
    let open =
        exception(&["127.0.0.1", "wms.corp.example.com"], &["127.0.0.0/8", "::1/128"], &["8443"]);
    let settings = with_exceptions(vec![open]);
    check(&settings, "https://127.0.0.1:8443/", &[], "ok");
    check(&settings, "https://127.0.0.1:8444/", &[], "loopback");
    check(&settings, "https://127.0.0.2:8443/", &[], "loopback");
    check(&settings, "https://wms.corp.example.com:8443/", &["127.0.0.1", "::1"], "ok");
    let mut portless = settings;
    portless.exceptions[0].ports.clear();
    check(&portless, "https://127.0.0.1:8443/", &[], "loopback");
    portless.exceptions[0].cidrs = texts(&["64:ff9b::/96"]);
    check(&portless, WMS, &["64:ff9b::127.0.0.1"], "nat64_embedded");
}

#[test]
fn a_named_host_passes_the_name_list_for_its_addresses_only() {
    let hosts = ["orders.prod.svc.cluster.local", "intranet"];
    let settings = with_exceptions(vec![exception(&hosts, &["10.96.0.0/12"], &[])]);
    let settings = EgressSettings { allow_hosts: texts(&["api.example.com"]), ..settings };
    let orders = "https://orders.prod.svc.cluster.local./";
    check(&settings, orders, &["10.96.4.4"], "ok");
    check(&settings, orders, &["93.184.216.34"], "name_denied");
    check(&settings, "https://intranet/", &["10.96.4.4"], "ok");
    check(&settings, "https://intranet/", &["93.184.216.34"], "single_label");
}

#[test]
fn localhost_is_never_opened() {
    let hosts = ["localhost", "*.localhost"];
    let settings = with_exceptions(vec![exception(&hosts, &["10.0.0.0/8"], &[])]);
    for url in ["https://localhost/", "https://a.localhost/"] {
        check(&settings, url, &["10.0.0.1"], "name_denied");
    }
}

#[test]
fn plain_http_needs_an_exception_and_a_private_address() {
    let url = "http://wms.corp.example.com/";
    let mut settings = with_exceptions(vec![exception(
        &["wms.corp.example.com"],
        &["10.20.0.0/16", "25.0.0.0/8"],
        &["80"],
    )]);
    check(&settings, url, &["10.20.1.5"], "scheme");
    settings.exceptions[0].http = true;
    check(&settings, url, &["10.20.1.5"], "ok");
    check(&settings, url, &["10.21.1.5"], "private");
    check(&settings, url, &["93.184.216.34"], "scheme");
    check(&settings, url, &["25.1.1.1"], "scheme");
    check(&settings, "http://wms.corp.example.com:81/", &["10.20.1.5"], "port");
    check(&settings, "http://other.example.com/", &["10.20.1.5"], "scheme");
    settings.mode = Mode::Shadow;
    check(&settings, "http://other.example.com/", &["93.184.216.34"], "scheme");
    check(&settings, url, &["93.184.216.34"], "scheme");
}
