//! `sortie egress` and `sortie check` on the case file.

use serde_json::{Value, json};

use super::cases::{Case, REFUSED_BY_LOADER, cases, groups};
use crate::support::cli::{Finished, run};
use crate::support::config::{ConfigBuilder, Folder, Tool};
use crate::support::dns::{Answer, DnsServer, Transport};

fn folder(case: &Case, config: ConfigBuilder) -> Folder {
    config.set("/egress", case.settings()).write()
}

fn egress(folder: &Folder, tool: &str, options: &[&str], targets: &[&str]) -> Finished {
    let config = folder.config.to_str().expect("UTF-8");
    let first = ["egress", "--json", "--config", config, "--tool", tool];
    run([&first, options, &["--"], targets].concat(), "")
}

fn lines(finished: &Finished) -> Vec<Value> {
    assert_eq!(finished.stderr, "", "{finished:#?}");
    finished.stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// The line that the command owes to a case, but for the addresses.
fn expected(case: &Case) -> Value {
    let verdict = if case.code() == "resolve_failed" { "unresolvable" } else { case.verdict() };
    json!({"input": case.input(), "verdict": verdict, "code": case.code()})
}

/// Takes the addresses off a line.
fn addresses(line: &mut Value) -> Vec<String> {
    let addresses =
        line.as_object_mut().expect("an object").remove("addresses").expect("addresses");
    serde_json::from_value(addresses).expect("a list of texts")
}

#[test]
fn every_url_and_every_address_gets_its_verdict_and_code() {
    let mut wrong = Vec::new();
    let mut judged = 0;
    for kind in ["url", "ip"] {
        for group in groups(kind) {
            let folder = folder(&group[0], ConfigBuilder::new());
            let targets: Vec<&str> = group.iter().map(Case::input).collect();
            let finished = egress(&folder, group[0].tool(), &["--no-dns"], &targets);
            let refused = group.iter().any(|case| case.verdict() == "refuse");
            assert_eq!(finished.code, Some(i32::from(refused)), "{:?}", group[0]);
            let lines = lines(&finished);
            assert_eq!(lines.len(), group.len(), "a line for each target");
            for (case, mut line) in group.iter().zip(lines) {
                let addresses = addresses(&mut line);
                let one = usize::from(kind == "ip");
                if line != expected(case) || addresses.len() < one {
                    wrong.push(format!("{}: {line} {addresses:?}", case.id()));
                }
                judged += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(judged, cases("url").len() + cases("ip").len());
}

#[tokio::test]
async fn every_answer_of_dns_gets_its_verdict_and_code() {
    let dns = DnsServer::start().await;
    let mut wrong = Vec::new();
    let mut by_loader = Vec::new();
    for case in cases("dns") {
        let folder = folder(&case, ConfigBuilder::new().dns(&dns));
        if REFUSED_BY_LOADER.contains(&case.id()) {
            let config = folder.config.to_str().expect("UTF-8");
            assert_eq!(run(["check", config], "").code, Some(1), "{case:?}");
            by_loader.push(case.id().to_owned());
            continue;
        }
        let answers = case.answers("answers");
        dns.chain(case.input(), &answers);
        if !case.answers("answers_2").is_empty() {
            let both = [&answers, &case.answers("answers_2")];
            dns.script(case.input(), both.map(|lines| Answer::with_ttl(0, lines)).into());
        }
        for (name, lines) in case.search_answers() {
            dns.set(name, &lines);
        }
        let before = dns.questions().len();
        let (tool, input) = (case.tool().to_owned(), case.input().to_owned());
        let command = move || egress(&folder, &tool, &[], &[&input]);
        let finished = tokio::task::spawn_blocking(command).await.expect("it ends");

        assert_eq!(finished.code, Some(i32::from(case.verdict() != "allow")), "{finished:?}");
        let [mut line]: [Value; 1] = lines(&finished).try_into().expect("one line");
        let found = addresses(&mut line);
        let mut given = case.addresses();
        // Only what is judged good, or what is bad, is named.
        let named = match case.verdict() {
            "allow" if given.is_empty() => found == [case.input()],
            "allow" => {
                let mut found = found.clone();
                found.sort();
                given.sort();
                found == given
            }
            _ => found.len() <= 1,
        };
        if line != expected(&case) || !named {
            wrong.push(format!("{}: {line} {found:?}", case.id()));
        }
        // Absolute names only, each once for each family; over TCP the same question comes again.
        let mut asked = dns.questions().split_off(before);
        asked.retain(|question| question.transport == Transport::Udp);
        let aliases = answers.iter().filter_map(|line| line.strip_prefix("CNAME "));
        let names: Vec<String> =
            aliases.chain([case.input()]).map(|name| format!("{name}.")).collect();
        for (at, question) in asked.iter().enumerate() {
            let again = asked[..at].contains(question) && case.id() != "dns-cname-loop";
            assert!(names.contains(&question.name) && !again, "{}: {asked:?}", case.id());
        }
        if ["dns-literal-not-asked", "dns-localhost-name"].contains(&case.id()) {
            assert_eq!(asked, [], "{}", case.id());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(by_loader, REFUSED_BY_LOADER);
}

#[test]
fn check_refuses_each_url_that_a_call_would_refuse() {
    let cases = cases("url");
    let config = cases.iter().enumerate().fold(ConfigBuilder::new(), |config, (at, case)| {
        config.tool(Tool::new(&format!("tool_{at}"), case.input()))
    });
    let finished = config.check(&["--format", "json"]);
    assert_eq!(finished.code, Some(1));
    let report: Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let errors = report["errors"].as_array().expect("a list");
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let path = format!("tools[{at}].url");
        let mut found = errors.iter().filter(|error| error["path"] == path.as_str());
        let message = found.next().and_then(|error| error["message"].as_str());
        let holds = match case.verdict() {
            "allow" => message.is_none(),
            _ => message.is_some_and(|text| text.ends_with(&format!("({})", case.code()))),
        };
        if !holds || found.next().is_some() {
            wrong.push(format!("{} {:?}: {message:?}", case.id(), case.input()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let refused = cases.iter().filter(|case| case.verdict() == "refuse").count();
    assert_eq!(errors.len(), refused, "{errors:#?}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_told_from_a_refused_one() {
    let dns = DnsServer::start().await;
    dns.set("gone.example.com", &["NXDOMAIN"]).set("empty.example.com", &["NODATA"]);
    dns.set("broken.example.com", &["SERVFAIL"]).set("inside.example.com", &["A 10.0.0.5"]);
    let folder = ConfigBuilder::new().dns(&dns).write();
    let names = ["gone", "empty", "broken", "inside"].map(|name| format!("{name}.example.com"));
    let command = move || egress(&folder, "lookup", &[], &names.each_ref().map(String::as_str));
    let finished = tokio::task::spawn_blocking(command).await.expect("it ends");
    let told: Vec<_> = lines(&finished)
        .into_iter()
        .map(|line| [line["verdict"].clone(), line["code"].clone(), line["addresses"].clone()])
        .collect();
    let lost = [json!("unresolvable"), json!("resolve_failed"), json!([])];
    let inside = [json!("refuse"), json!("private"), json!(["10.0.0.5"])];
    assert_eq!(told, [lost.clone(), lost.clone(), lost, inside]);
    assert_eq!(finished.code, Some(1));
}

#[test]
fn a_target_may_be_a_host_and_text_goes_to_people() {
    let targets = ["api.example.com", "api.example.com:8443", "::1", "[::1]:8443", "10.0.0.5:443"];
    let finished = run([&["egress", "--no-dns"], &targets[..]].concat(), "");
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(1), ""));
    let codes: Vec<_> = finished
        .stdout
        .lines()
        .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>())
        .collect();
    assert_eq!(
        codes,
        [
            ["allow", "ok", targets[0]],
            ["allow", "ok", targets[1]],
            ["refuse", "loopback", targets[2]],
            ["refuse", "loopback", targets[3]],
            ["refuse", "private", targets[4]],
        ]
    );
    assert_eq!(run(["egress", "--no-dns", "api.example.com"], "").code, Some(0));
    assert_eq!(run(["egress"], "").code, Some(2));
    assert_eq!(run(["egress", "--config", "/nowhere.yaml", "::1"], "").code, Some(1));
}
