//! Tests of the two stages: how they are run, what DNS may answer, and what refusals say.

use proptest::prelude::*;

use super::*;
use crate::policy::egress::{Exception, Mode};
use crate::policy::ranges;

mod exceptions;
mod settings;

const NOW: i64 = 1_803_772_800; // 2027-02-28, 00:00 UTC.

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn exception(hosts: &[&str], cidrs: &[&str], ports: &[&str]) -> Exception {
    Exception {
        tools: texts(&["wms_*"]),
        hosts: texts(hosts),
        cidrs: texts(cidrs),
        ports: texts(ports),
        ..Exception::default()
    }
}

fn with_exceptions(exceptions: Vec<Exception>) -> EgressSettings {
    EgressSettings { exceptions, ..EgressSettings::default() }
}

/// The usual one: a warehouse on the VPN.
fn warehouse() -> EgressSettings {
    with_exceptions(vec![exception(&["wms.corp.example.com"], &["10.20.0.0/16"], &[])])
}

fn answers(addresses: &[&str]) -> Answers {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Answers { addresses, names: Vec::new() }
}

struct Run<'a> {
    tool: &'a str,
    url: &'a str,
    answers: Answers,
    now: i64,
}

impl<'a> Run<'a> {
    fn new(url: &'a str, addresses: &[&str]) -> Self {
        Self { tool: "wms_scan", url, answers: answers(addresses), now: NOW }
    }

    /// Both stages: what may be dialled, or the refusal; and what shadow mode let pass.
    fn judge(&self, settings: &EgressSettings) -> Judged<Vec<VettedAddr>> {
        let rules = EgressRules::without_load_checks(settings).unwrap();
        let endpoint = Endpoint::parse(self.url).unwrap();
        let admitted = match rules.admit(self.tool, &endpoint, self.now).verdict {
            Ok(admitted) => admitted,
            Err(refusal) => return Judged::refused(refusal),
        };
        let judged = rules.vet(&admitted, &self.answers);
        for vetted in judged.verdict.iter().flatten() {
            assert!(rules.still_allowed(&admitted, vetted), "{vetted:?} is allowed and then not");
        }
        judged
    }

    #[track_caller]
    fn is(&self, settings: &EgressSettings, code: &str) {
        let judged = self.judge(settings);
        let found = judged.verdict.as_ref().map_or_else(|refusal| refusal.code, |_| EgressCode::Ok);
        assert_eq!(found.as_str(), code, "{:?}", judged.verdict);
        assert_eq!(judged.shadow, None);
    }

    #[track_caller]
    fn is_shadowed(&self, settings: &EgressSettings, code: EgressCode) {
        let judged = self.judge(settings);
        assert!(judged.verdict.is_ok(), "{:?}", judged.verdict);
        assert_eq!(judged.shadow, Some(code));
    }
}

#[track_caller]
fn check(settings: &EgressSettings, url: &str, addresses: &[&str], code: &str) {
    Run::new(url, addresses).is(settings, code);
}

const WMS: &str = "https://wms.corp.example.com/";

#[test]
fn names_of_a_chain_are_judged_by_the_name_list() {
    let run = |names: &[&str], address: &str| {
        let mut run = Run::new(WMS, &[address]);
        run.answers.names = texts(names);
        run
    };
    let (public, plain) = ("93.184.216.34", EgressSettings::default());
    run(&["a.example.net."], public).is(&plain, "ok");
    run(&["a.example.net", "Metadata.Google.INTERNAL."], public).is(&plain, "name_denied");
    run(&["intranet"], public).is(&plain, "single_label");
    let denied = EgressSettings { deny_hosts: texts(&["*.example.net"]), ..plain };
    run(&["A.example.net."], public).is(&denied, "denied_host");
    let shadow = EgressSettings { mode: Mode::Shadow, ..denied };
    run(&["a.example.net"], public).is_shadowed(&shadow, EgressCode::DeniedHost);

    let hosts = ["wms.corp.example.com", "wms.prod.svc"];
    let both = with_exceptions(vec![exception(&hosts, &["10.96.0.0/12"], &[])]);
    run(&["wms.prod.svc"], "10.96.1.1").is(&both, "ok");
    run(&["wms.prod.svc"], public).is(&both, "name_denied");
    run(&["other.prod.svc"], "10.96.1.1").is(&both, "name_denied");
    run(&["localhost"], "10.96.1.1").is(&both, "name_denied");
}

#[track_caller]
fn check_order(ipv6: Ipv6, addresses: &[&str], expected: &[&str]) {
    let settings = EgressSettings { ipv6, ..EgressSettings::default() };
    let vetted =
        Run::new("https://a.example.com:8443/", addresses).judge(&settings).verdict.unwrap();
    let found: Vec<String> = vetted.iter().map(|vetted| vetted.socket().to_string()).collect();
    assert_eq!(found, expected);
}

#[test]
fn addresses_come_back_in_the_order_of_dialling() {
    let mixed = ["1.1.1.1", "1.1.1.2", "1.1.1.3", "2a00::1", "2a00::2", "1.1.1.1"];
    let in_turn =
        ["[2a00::1]:8443", "1.1.1.1:8443", "[2a00::2]:8443", "1.1.1.2:8443", "1.1.1.3:8443"];
    let v6_first =
        ["[2a00::1]:8443", "[2a00::2]:8443", "1.1.1.1:8443", "1.1.1.2:8443", "1.1.1.3:8443"];
    check_order(Ipv6::On, &mixed, &in_turn);
    check_order(Ipv6::Prefer, &mixed, &v6_first);
    check_order(Ipv6::Off, &mixed, &["1.1.1.1:8443", "1.1.1.2:8443", "1.1.1.3:8443"]);
    check_order(Ipv6::On, &["1.1.1.2", "1.1.1.1"], &["1.1.1.2:8443", "1.1.1.1:8443"]);
}

#[test]
fn without_ipv6_every_answer_is_judged_all_the_same() {
    let off = EgressSettings { ipv6: Ipv6::Off, ..EgressSettings::default() };
    check(&off, WMS, &["2a00::1"], "ipv6_disabled");
    check(&off, WMS, &["1.1.1.1", "::1"], "loopback");
    check(&off, "https://[2a00::1]/", &[], "ipv6_disabled");
    check(&off, "https://[::1]/", &[], "loopback");
    let rules = EgressRules::new(&off).unwrap();
    let verdict = rules.judge_address("2a00::1".parse().unwrap()).verdict;
    assert_eq!(verdict.unwrap_err().code, EgressCode::Ipv6Disabled);
}

#[test]
fn filtered_answers_leave_the_rest() {
    let mixed_answers = MixedAnswers::Filter;
    let settings = EgressSettings { mixed_answers, ..EgressSettings::default() };
    let run = Run::new(WMS, &["10.0.0.1", "1.1.1.1", "169.254.169.254"]);
    let vetted = run.judge(&settings).verdict.unwrap();
    assert_eq!(
        vetted.iter().map(VettedAddr::socket).collect::<Vec<_>>(),
        ["1.1.1.1:443".parse().unwrap()]
    );
    check(&settings, WMS, &["10.0.0.1", "::1"], "private");
    let settings = EgressSettings { ipv6: Ipv6::Off, ..settings };
    check(&settings, WMS, &["10.0.0.1", "2a00::1"], "ipv6_disabled");
}

#[test]
fn answers_are_counted() {
    let many: Vec<String> = (0..65).map(|last| format!("1.1.1.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let settings = EgressSettings::default();
    check(&settings, WMS, &many[..64], "ok");
    check(&settings, WMS, &many, "too_many_answers");
    check(&settings, WMS, &[], "resolve_failed");
}

#[test]
fn an_address_in_the_url_is_its_own_answer() {
    let rules = EgressRules::new(&EgressSettings::default()).unwrap();
    let endpoint = Endpoint::parse("https://8.8.8.8/").unwrap();
    let admitted = rules.admit("tool", &endpoint, NOW).verdict.unwrap();
    assert_eq!((admitted.lookup_name(), admitted.literal()), (None, Some(answers(&["8.8.8.8"]))));
    let vetted = rules.vet(&admitted, &answers(&["1.1.1.1"])).verdict.unwrap();
    assert_eq!(vetted, [VettedAddr("8.8.8.8:443".parse().unwrap())]);
}

#[test]
fn a_kept_connection_is_judged_by_the_rules_of_now() {
    let before = EgressRules::new(&EgressSettings::default()).unwrap();
    let endpoint = Endpoint::parse("https://a.example.com./").unwrap();
    let admitted = before.admit("tool", &endpoint, NOW).verdict.unwrap();
    assert_eq!((admitted.lookup_name(), admitted.literal()), (Some("a.example.com"), None));
    let vetted = before.vet(&admitted, &answers(&["93.184.216.34"])).verdict.unwrap();
    let deny_cidrs = texts(&["93.184.216.0/24"]);
    let after =
        EgressRules::new(&EgressSettings { deny_cidrs, ..EgressSettings::default() }).unwrap();
    assert!(before.still_allowed(&admitted, &vetted[0]));
    assert!(!after.still_allowed(&admitted, &vetted[0]));
    let other_port = Endpoint::parse("https://a.example.com:8443/").unwrap();
    let other_port = before.admit("tool", &other_port, NOW).verdict.unwrap();
    assert!(!before.still_allowed(&other_port, &vetted[0]));
}

#[track_caller]
fn check_message(settings: &EgressSettings, url: &str, addresses: &[&str], message: &str) {
    let refusal = Run::new(url, addresses).judge(settings).verdict.unwrap_err();
    assert_eq!(refusal.to_string(), message);
}

#[test]
fn refusals_tell_the_operator_what_and_why() {
    let mut settings = warehouse();
    check_message(
        &settings,
        WMS,
        &["10.21.0.1"],
        "10.21.0.1 (an answer for `wms.corp.example.com`) is a private address; only an entry of \
         `egress.exceptions` that names the tool, the host and the range opens it",
    );
    check_message(
        &settings,
        "https://a.internal/",
        &[],
        "`a.internal` is a special-use or cluster name; only an entry of `egress.exceptions` opens it, and \
         `localhost` never",
    );
    check_message(
        &settings,
        "https://a.example.com:80/",
        &[],
        "port 80 of `a.example.com` is outside of `egress.ports` or belongs to another protocol; an entry of \
         `egress.exceptions` may name it for its own addresses",
    );
    check_message(
        &settings,
        "http://a.example.com/",
        &[],
        "`http://a.example.com` is not https; plain http needs an entry of `egress.exceptions` with \
         `http: true`, and goes to its private addresses only",
    );
    check_message(
        &settings,
        "https://[::1]/",
        &[],
        "::1 is a loopback address; only an entry of `egress.exceptions` that names its ports opens it",
    );
    settings.exceptions[0].ports = texts(&["80"]);
    check_message(
        &settings,
        "https://wms.corp.example.com:80/",
        &["1.1.1.1"],
        "port 80 of `wms.corp.example.com` (at 1.1.1.1) is outside of `egress.ports` or belongs to another \
         protocol; an entry of `egress.exceptions` may name it for its own addresses",
    );
    let mut run = Run::new(WMS, &["1.1.1.1"]);
    run.answers.names = texts(&["a.internal"]);
    let refusal = run.judge(&settings).verdict.unwrap_err();
    assert!(
        refusal
            .to_string()
            .starts_with("`a.internal` (an alias of `wms.corp.example.com`) is a special")
    );
    assert_eq!(refusal.address, None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn allowed_and_refused_addresses_split_the_space(number in any::<u128>(), shift in 0u32..128) {
        let rules = EgressRules::new(&EgressSettings::default()).unwrap();
        let v4 = IpAddr::V4(u32::try_from(number >> 96).unwrap().into());
        for address in [v4, IpAddr::V6(number.into()), IpAddr::V6((number >> shift).into())] {
            let kind = ranges::classify(address, &[]);
            let judged = rules.judge_address(address);
            prop_assert_eq!(judged.shadow, None);
            match judged.verdict {
                Ok(allowed) => prop_assert_eq!((allowed, EgressCode::Ok), (address, kind.code)),
                Err(refusal) => {
                    prop_assert_eq!((refusal.code, refusal.address), (kind.code, Some(address)));
                    prop_assert!(refusal.code != EgressCode::Ok);
                }
            }
        }
    }
}

#[test]
fn a_proxy_gets_what_no_exception_names_and_a_declared_boundary_the_names() {
    let way = |proxying, url: &str, tool: &str| {
        let settings = EgressSettings {
            proxying,
            exceptions: vec![Exception {
                tools: vec!["wms".into()],
                hosts: vec!["wms.example.com".into()],
                cidrs: vec!["10.20.0.0/16".into()],
                ports: vec!["8443".into()],
                ..Exception::default()
            }],
            ..EgressSettings::default()
        };
        let rules = EgressRules::new(&settings).unwrap();
        let endpoint = Endpoint::parse(url).unwrap();
        let admitted = rules.admit(tool, &endpoint, 0).verdict.unwrap();
        match rules.way_out(&admitted) {
            WayOut::Delegated(delegated) => format!("delegated {}", delegated.name()),
            WayOut::Direct => "direct".to_owned(),
            WayOut::Proxy => "proxy".to_owned(),
        }
    };
    let (named, other) = ("https://wms.example.com:8443/", "https://api.example.com/");
    let literal = "https://93.184.216.34/";
    for (proxying, expected) in [
        (Proxying::Off, ["direct", "direct", "direct", "direct", "direct"]),
        (Proxying::ConnectIp, ["direct", "proxy", "proxy", "proxy", "proxy"]),
        (
            Proxying::ConnectName,
            [
                "direct",
                "delegated wms.example.com",
                "delegated wms.example.com",
                "delegated api.example.com",
                "proxy",
            ],
        ),
    ] {
        let found = [
            way(proxying, named, "wms"),
            way(proxying, named, "another"),
            way(proxying, "https://wms.example.com/", "wms"),
            way(proxying, other, "wms"),
            way(proxying, literal, "wms"),
        ];
        assert_eq!(found, expected, "{proxying:?}");
    }
}

#[test]
fn what_only_an_exception_opens_is_never_left_to_the_proxy() {
    let exception = Exception {
        http: true,
        ..exception(&["wms.example.com", "wms.internal"], &["10.20.0.0/16"], &["8443"])
    };
    let settings = EgressSettings {
        proxying: Proxying::ConnectName,
        allow_hosts: texts(&["*.example.net"]),
        ..with_exceptions(vec![exception])
    };
    let judge = |settings: &EgressSettings, url: &str| {
        let rules = EgressRules::new(settings).unwrap();
        let endpoint = Endpoint::parse(url).unwrap();
        let Judged { verdict, shadow } = rules.admit("wms_scan", &endpoint, NOW);
        (verdict.err().map(|refusal| refusal.code), shadow)
    };
    for (url, code) in [
        ("https://wms.internal:8443/", None),
        ("http://wms.example.com:8443/", None),
        ("https://api.example.net/", None),
        ("https://wms.internal/", Some(EgressCode::NameDenied)),
        ("http://wms.example.com:9000/", Some(EgressCode::Scheme)),
        ("https://wms.example.com/", Some(EgressCode::HostNotAllowed)),
    ] {
        assert_eq!(judge(&settings, url), (code, None), "{url}");
    }
    let shadow = EgressSettings { mode: Mode::Shadow, ..settings };
    let passed = (None, Some(EgressCode::HostNotAllowed));
    assert_eq!(judge(&shadow, "https://wms.example.com/"), passed);
    let refused = (Some(EgressCode::NameDenied), None);
    assert_eq!(judge(&shadow, "https://wms.internal/"), refused);
}
