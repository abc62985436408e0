//! `storage`, what a tool says of it, and `limits` of calls that wait.

use super::*;
use crate::config::storage::{Capture, StoreUrl};

const ASKS: &str = "tools: [{name: a, description: Gives money back to a customer., profile: plain-v1, url: \"https://a.example.com/\"}]\n";

#[track_caller]
fn check(url: &str, expected: StoreUrl) {
    let text = with_head(&format!("storage: {{url: {url}}}\n"));
    let found = parse("conf/f", &text, &environment()).unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(found.storage.url, expected, "{url}");
}

#[track_caller]
fn check_bad(url: &str, message: &str) {
    bad(&format!("storage: {{url: {url}}}\n"), &format!("3:16: storage.url: {message}"));
}

#[test]
fn a_store_is_in_memory_in_a_file_or_a_server() {
    assert_eq!(good("version: 1\nauth: none\n").storage.url, StoreUrl::Memory);
    check("'sqlite::memory:'", StoreUrl::Memory);
    check("sqlite:/var/lib/a.db", StoreUrl::Sqlite("/var/lib/a.db".into()));
    check("sqlite:///var/lib/a.db", StoreUrl::Sqlite("/var/lib/a.db".into()));
    check("sqlite:data/a.db", StoreUrl::Sqlite("conf/data/a.db".into()));
    for url in ["postgres://sortie@db.example.com/a", "postgresql://a,b:5433/c?sslmode=require"] {
        check(&format!("\"{url}\""), StoreUrl::Postgres(Secret::new(url)));
    }
}

#[test]
fn a_url_with_a_password_is_a_reference() {
    let found = |source: &Source| match source {
        Source::Env(_) => Ok(Secret::new("postgres://a:canary7f3a@db.example.com/a\n")),
        _ => Ok(Secret::new("sqlite:data/a.db")),
    };
    let environment = Environment { lookup: &found, ..environment() };
    let url =
        |text: &str| parse("conf/f", &with_head(text), &environment).expect("right").storage.url;
    let whole = Secret::new("postgres://a:canary7f3a@db.example.com/a");
    assert_eq!(url("storage: {url: {env: URL}}\n"), StoreUrl::Postgres(whole));
    let file = StoreUrl::Sqlite("conf/data/a.db".into());
    assert_eq!(url("storage: {url: {file: url}}\n"), file);
    let hint = "holds a password, put the url into a file: {file: PATH} or {env: NAME}";
    check_bad("postgres://a:canary7f3a@db.example.com/a", hint);
    check_bad("\"postgres://db.example.com/a?user=b&password=canary7f3a\"", hint);
    check_bad("\"postgres://db.example.com/a?%70assword=canary7f3a\"", hint);
}

#[test]
fn other_urls_are_told_without_what_they_hold() {
    let scheme = "must be sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE";
    for url in ["canary7f3a.db", "mysql://a:canary7f3a@b/c", "'postgres://'", "\"\""] {
        check_bad(url, scheme);
    }
    let path = "must be sqlite:PATH with one `:` before the path, such as sqlite:/var/lib/sortie/sortie.db";
    for url in ["'sqlite:'", "sqlite://a.db", "sqlite:/var/lib/", "\"sqlite:a.db?mode=ro\""] {
        check_bad(url, path);
    }
    bad(
        "storage: {url: {file: /s/good}}\n",
        &format!("3:16: storage.url: file `/s/good` {scheme}"),
    );
    bad("storage: {url: {file: /s/empty}}\n", "3:16: storage.url: file `/s/empty` is empty");
}

#[test]
fn a_store_that_nobody_knows_is_told_and_does_not_become_another_one() {
    let text = with_head("storage: {url: {file: /s/missing}}\n");
    warnings(
        &text,
        "3:16: storage.url: file `/s/missing` is not there, Sortie does not start without it",
    );
    let lacking = StoreUrl::Lacking("file `/s/missing` is not there".into());
    assert_eq!(good(&text).storage.url, lacking);
}

#[test]
fn more_is_kept_in_a_file_than_in_memory() {
    let keep = |text: &str| good(&with_head(text)).storage.keep;
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let memory = keep("");
    assert_eq!((memory.calls, memory.replay), (hours(7 * 24), hours(24)));
    assert_eq!((memory.audit, memory.max_calls), (hours(400 * 24), 10_000));
    assert_eq!(keep("storage: {url: \"sqlite:a.db\"}\n").max_calls, 100_000);
    let own = keep("storage: {keep: {calls: 1h, replay: 1m, audit: 30d, max_calls: 0}}\n");
    assert_eq!((own.calls, own.replay, own.max_calls), (hours(1), Duration::from_secs(60), 0));
}

#[test]
fn a_tool_says_itself_what_is_kept_of_it() {
    let capture = |head: &str, fields: &str| {
        let text = format!("{}{head}", with_tool(fields));
        good(&text).tool("lookup").expect("the tool").capture
    };
    assert_eq!(capture("", ""), Capture::Full);
    assert_eq!(capture("storage: {capture: none}\n", ""), Capture::None);
    assert_eq!(capture("storage: {capture: none}\n", "capture: full"), Capture::Full);
    assert_eq!(capture("", "capture: none"), Capture::None);
}

#[test]
fn waiting_calls_in_memory_are_a_warning() {
    let warning = "storage: waiting calls are lost when the gateway restarts; set `storage`";
    warnings(&with_head(ASKS), &format!("1:1: {warning}"));
    warnings(
        &with_head(&format!("{ASKS}storage: {{capture: none}}\n")),
        &format!("4:10: {warning}"),
    );
    warnings(&with_head(&format!("{ASKS}storage: {{url: \"sqlite:a.db\"}}\n")), "");
    let with = |fields: &str| with_head(&ASKS.replace("plain-v1", &format!("plain-v1, {fields}")));
    warnings(&with("policy: allow"), "");
    warnings(&with("policy: deny"), "");
    warnings(&with("enabled: false"), "");
    let policies = "policies: [{id: a, effect: ask_first}]\n";
    warnings(&format!("{}{policies}", with("policy: allow")), &format!("1:1: {warning}"));
    let watching = policies.replace("id: a,", "id: a, mode: shadow,");
    warnings(&format!("{}{watching}", with("policy: allow")), "");
}

#[test]
fn calls_wait_and_come_in_rounds_as_the_file_says() {
    let none = good("version: 1\nauth: none\n");
    assert_eq!((none.rounds.calls_per_round, none.rounds.max_rounds), (5, 3));
    assert_eq!(none.waiting.confirm_for, Duration::from_secs(600));
    assert_eq!(none.waiting.dispatch_within, Duration::from_secs(300));
    let own = good(&with_head(
        "limits: {calls_per_round: 1, max_rounds: 100, confirm_for: 1s, dispatch_within: 24h}\n",
    ));
    assert_eq!((own.rounds.calls_per_round, own.rounds.max_rounds), (1, 100));
    assert_eq!(own.waiting.confirm_for, Duration::from_secs(1));
    assert_eq!(own.waiting.dispatch_within, Duration::from_secs(86_400));
}

#[test]
fn the_definition_changes_with_what_a_call_means_and_nothing_else() {
    let digest = |fields: &str| tool(fields).definition_digest;
    let base = digest("");
    for beside in [
        "owner: shop",
        "runbook: https://wiki.example.com/a",
        "filler: One moment.",
        "policy: require_approval",
        "ask_first: true",
        "capture: none",
        "concurrency: 3",
        "rate_limits: [{per: tool, rate: 1/s}]",
        "breaker: off",
        "enabled: true",
        "secret: {current: {file: /s/old}}",
        "secret: {current: {file: /s/good}, previous: {file: /s/old}}",
    ] {
        assert_eq!(digest(beside), base, "{beside}");
    }
    let mut seen = vec![base];
    for meant in [
        "url: https://shop.example.com/other",
        "url: https://shop.example.com/lookup?a",
        "url: https://shop.example.com/lookup?b",
        "parameters: {type: object, properties: {n: {type: string}}}",
        "parameters: {type: object, properties: {n: {type: integer}}}",
        "headers: {X-A: {file: /s/good}}",
        "headers: {X-A: {file: /s/old}}",
        "timeout: 5s",
        "profile: bare-v1",
        "annotations: {read_only: true}",
    ] {
        let digest = digest(meant);
        assert!(!seen.contains(&digest), "{meant}");
        seen.push(digest);
    }
}
