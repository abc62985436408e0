//! The case file: every line's verdict and code.

use std::net::IpAddr;

use serde_json::Value;

use super::*;
use crate::policy::egress::Exception;

const CASES: &str = include_str!("../../../tests/it/cases/egress.jsonl");
const NOW: i64 = 1_790_000_000;

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn exception(value: &Value) -> Exception {
    let mut exception = Exception::default();
    for (key, value) in value.as_object().unwrap() {
        match key.as_str() {
            "tool" => exception.tools = vec![value.as_str().unwrap().to_owned()],
            "hosts" => exception.hosts = texts(value),
            "cidrs" => exception.cidrs = texts(value),
            other => panic!("unknown key of an exception: {other}"),
        }
    }
    exception
}

fn rules(case: &Value) -> EgressRules {
    let mut settings = EgressSettings::default();
    for (key, value) in case.get("config").and_then(Value::as_object).into_iter().flatten() {
        match (key.as_str(), value.as_str()) {
            ("ipv6", Some("off")) => settings.ipv6 = Ipv6::Off,
            ("mixed_answers", Some("filter")) => settings.mixed_answers = MixedAnswers::Filter,
            ("deny_cidrs", _) => settings.deny_cidrs = texts(value),
            ("allow_hosts", _) => settings.allow_hosts = texts(value),
            ("nat64_prefixes", _) => settings.nat64_prefixes = texts(value),
            ("own_addresses", _) => settings.own_addresses = texts(value),
            ("fake_ip_cidrs", _) => settings.fake_ip_cidrs = texts(value),
            ("exceptions", _) => {
                settings.exceptions = value.as_array().unwrap().iter().map(exception).collect();
            }
            other => panic!("unknown setting: {other:?}"),
        }
    }
    EgressRules::without_load_checks(&settings).unwrap()
}

/// The tool that calls: the one of the exception.
fn tool(case: &Value) -> &str {
    case.pointer("/config/exceptions/0/tool").and_then(Value::as_str).unwrap_or("tool")
}

fn code<T>(judged: Judged<T>) -> EgressCode {
    assert_eq!(judged.shadow, None, "nothing is let pass in enforce mode");
    judged.verdict.map_or_else(|refusal| refusal.code, |_| EgressCode::Ok)
}

fn judge_url(case: &Value, text: &str) -> EgressCode {
    match Endpoint::parse(text) {
        Ok(endpoint) => code(rules(case).admit(tool(case), &endpoint, NOW)),
        Err(error) => error.code(),
    }
}

fn answers(case: &Value) -> Answers {
    let mut answers = Answers::default();
    for line in texts(case.get("answers").unwrap()) {
        match line.split_once(' ') {
            Some(("A" | "AAAA", address)) => answers.addresses.push(address.parse().unwrap()),
            Some(("CNAME", name)) => answers.names.push(name.to_owned()),
            Some(("SERVFAIL", "A" | "AAAA")) => {} // One family failed: the resolver goes on with the other.
            None if line == "NXDOMAIN" || line == "SERVFAIL" => {}
            _ => panic!("unknown answer: {line}"),
        }
    }
    answers
}

fn judge_dns(case: &Value, name: &str) -> EgressCode {
    let rules = rules(case);
    let endpoint = Endpoint::parse(&format!("https://{name}/")).unwrap();
    match rules.admit(tool(case), &endpoint, NOW).verdict {
        Ok(admitted) => code(rules.vet(&admitted, &answers(case))),
        Err(refusal) => refusal.code,
    }
}

#[test]
fn every_line_of_the_case_file_holds() {
    let mut read = 0;
    let mut wrong = Vec::new();
    for line in CASES.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let field = |name: &str| case.get(name).and_then(Value::as_str).unwrap();
        let input = field("input");
        let code = match field("kind") {
            "ip" => code(rules(&case).judge_address(input.parse::<IpAddr>().unwrap())),
            "url" => judge_url(&case, input),
            "dns" => judge_dns(&case, input),
            other => panic!("unknown kind: {other}"),
        };
        let verdict = if code == EgressCode::Ok { "allow" } else { "refuse" };
        if (verdict, code.as_str()) != (field("verdict"), field("code")) {
            wrong.push(format!(
                "{}: {input} is {}, not {}",
                field("id"),
                code.as_str(),
                field("code")
            ));
        }
        read += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(read, CASES.matches(r#"{"id":"#).count(), "a line was not read");
    assert!(read >= 411, "the case file has lost lines");
}

#[test]
fn every_code_has_a_name_of_its_own_and_a_reason() {
    let mut names: Vec<&str> = EgressCode::ALL.iter().map(|code| code.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), EgressCode::ALL.len());
    for code in EgressCode::ALL {
        assert!(!code.reason().is_empty() && !code.reason().ends_with('.'), "{code:?}");
    }
}
