//! What configurations become, and the errors of those that are wrong.

use std::sync::LazyLock;
use std::time::Duration;

use super::*;
use crate::config::context::{Source, SourceError};
use crate::config::listening::Bind;
use crate::config::snapshot::{Reuse, TlsVersion, Unavailable};
use crate::model::outcome::Effect;
use crate::model::secret::Secret;
use crate::policy::authentication::Authentication;

/// 2026-10-30T09:55:02Z.
const NOW: i64 = 1_793_354_102;
/// Stands in every secret of these tests, and must stand in nothing that is printed.
const CANARY: &str = "canary7f3a";

/// Calls may wait, and nothing is to be warned of.
const STORED: &str = "storage: {url: \"sqlite:a.db\"}\n";

/// A client's certificate and its key.
static CLIENT: LazyLock<rcgen::CertifiedKey<rcgen::KeyPair>> = LazyLock::new(|| {
    rcgen::generate_simple_self_signed(["client.example".to_owned()]).expect("a certificate")
});

/// Secrets by the name of their file or variable.
fn lookup(source: &Source) -> Result<Secret, SourceError> {
    let name = match source {
        Source::Env(name) => name.clone(),
        Source::File(path) | Source::OptionalFile(path) => path.display().to_string(),
    };
    let text = match name.as_str() {
        "/s/good" => format!("whsec_{CANARY}_0123456789012345\n"),
        "/s/old" => format!("whsec_{CANARY}_abcdefghijklmnop\r\n"),
        "GOOD" | "conf/good" => format!("whsec_{CANARY}_ABCDEFGHIJKLMNOP"),
        "/s/short" => CANARY.to_owned(),
        "/s/spaced" => format!(" {CANARY}_{CANARY}_{CANARY}"),
        "/s/two-lines" => format!("{CANARY}_{CANARY}_{CANARY}\n\n"),
        "/s/control" => format!("{CANARY}\u{1}"),
        "/s/empty" => "\n".to_owned(),
        "/s/chain.pem" => CLIENT.cert.pem(),
        "/s/key.pem" => CLIENT.signing_key.serialize_pem(),
        "/s/other-key.pem" => rcgen::KeyPair::generate().expect("a key").serialize_pem(),
        "/s/ca.pem" => "-----BEGIN CERTIFICATE-----\n".to_owned(),
        "/s/large" => return Err(SourceError::TooLarge),
        _ => return Err(SourceError::Missing),
    };
    Ok(Secret::new(text))
}

fn environment() -> Environment<'static> {
    Environment {
        resolv_conf:
            "# made by hand\nsearch corp.example.com\nnameserver 10.0.0.10\nnameserver fd00::1\n"
                .into(),
        interfaces: vec!["192.0.2.7".parse().expect("an address")],
        ..Environment::bare(&lookup, NOW)
    }
}

fn parse_text(text: &str) -> Result<Snapshot, ConfigErrors> {
    parse("f", text, &environment())
}

/// The fragment begins on line 3.
fn with_head(fragment: &str) -> String {
    format!("version: 1\nauth: none\n{fragment}")
}

/// One tool in the default profile; its own fields begin on line 8 and column 5.
fn with_tool(fields: &str) -> String {
    let stands = |key: &str| fields.lines().any(|line| line.starts_with(key));
    let mut text =
        with_head("tools:\n  - name: lookup\n    description: Looks an order up by its number.\n");
    if !stands("url:") && !stands("endpoint:") {
        text.push_str("    url: https://shop.example.com/lookup\n");
    } else {
        text.push_str("    # no url here\n");
    }
    if stands("secret:") || fields.contains("profile: plain-v1") {
        text.push_str("    # no secret here\n");
    } else {
        text.push_str("    secret: {current: {file: /s/good}}\n");
    }
    for line in fields.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    text
}

fn lines(findings: &[Finding]) -> String {
    let texts: Vec<_> = findings.iter().map(ToString::to_string).collect();
    let places = texts.iter().map(|text| text.strip_prefix("f:").expect("the file"));
    places.collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check_errors(text: &str, expected: &str) {
    let errors = match parse_text(text) {
        Ok(_) => String::new(),
        Err(found) => lines(&found.errors),
    };
    assert_eq!(errors, expected, "\n{text}");
    assert!(!errors.contains(CANARY), "{errors}");
}

#[track_caller]
fn bad(fragment: &str, expected: &str) {
    check_errors(&with_head(fragment), expected);
}

#[track_caller]
fn bad_tool(fields: &str, expected: &str) {
    check_errors(&with_tool(fields), expected);
}

#[track_caller]
fn good(text: &str) -> Snapshot {
    match parse_text(text) {
        Ok(snapshot) => snapshot,
        Err(found) => panic!("{}\n{text}", lines(&found.errors)),
    }
}

#[track_caller]
fn warnings(text: &str, expected: &str) {
    let warnings = lines(&good(text).warnings);
    assert_eq!(warnings, expected, "\n{text}");
    assert!(!warnings.contains(CANARY), "{warnings}");
}

#[track_caller]
fn tool(fields: &str) -> Arc<crate::config::snapshot::Tool> {
    good(&with_tool(fields)).tool("lookup").expect("the tool").clone()
}

mod agents;
mod authentication;
mod callers;
mod earlier;
mod files;
mod included;
mod limits;
mod mistakes;
mod notifications;
mod policies;
mod sections;
mod storage;
mod tools;

#[test]
fn the_smallest_file_has_the_defaults() {
    let snapshot = good("version: 1\nauth: none\n");
    assert_eq!(
        snapshot.listeners.api.bind,
        Bind::Tcp("127.0.0.1:8477".parse().expect("an address"))
    );
    assert_eq!(snapshot.listeners.telemetry.address.to_string(), "[::]:9477");
    assert_eq!(snapshot.listeners.api.max_body, 1_048_576);
    assert_eq!(snapshot.listeners.api.max_connections, 10_000);
    let servers: Vec<_> = snapshot.dns.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.10:53", "[fd00::1]:53"]);
    assert_eq!((snapshot.dns.timeout, snapshot.dns.attempts), (Duration::from_secs(2), 2));
    assert_eq!(snapshot.shutdown.grace, Duration::from_secs(25));
    assert_eq!(snapshot.connect_timeout, Duration::from_secs(3));
    assert_eq!((snapshot.pool.reuse, snapshot.pool.max_idle_per_host), (Reuse::Auto, 8));
    assert_eq!(snapshot.tls.min_version, TlsVersion::V12);
    assert!(snapshot.logging.json && snapshot.metrics_per_tool);
    assert!(matches!(snapshot.authentication, Authentication::None(_)));
    assert_eq!((snapshot.hash.len(), snapshot.warnings.as_slice()), (16, &[][..]));
}

#[test]
fn two_texts_have_two_hashes() {
    let hash = |text: &str| good(text).hash;
    assert_ne!(hash("version: 1\nauth: none\n"), hash("version: 1\nauth: none\nregion: eu\n"));
}

#[test]
fn what_must_be_there_is_asked_for() {
    check_errors(
        "",
        "1:1: version: is missing, write `version: 1`\n\
         1:1: auth: is missing, write `none` (loopback and Unix sockets only) or {keys: […]}",
    );
    check_errors(
        "version: 2\nauth: none\n",
        "1:10: version: must be 1, this Sortie reads no other version",
    );
    check_errors("version: \"1\"\nauth: none\n", "1:10: version: must be a whole number, not text");
    check_errors("- 1\n", "1:1: must be a mapping, not a list");
}

#[test]
fn unknown_duplicate_and_later_keys_are_told_apart() {
    bad(
        "tool: []\nregion: a\nregion: b\nseal: {}\negress: {port: []}\n",
        "3:1: tool: is not a known key, did you mean `tools`?\n\
         5:1: region: stands twice, first on line 4\n\
         6:1: seal: is not supported by this version\n\
         7:10: egress.port: is not a known key, did you mean `ports`?",
    );
}

#[test]
fn errors_of_all_sections_come_together() {
    let text = "version: 3\nauth: {keys: [{name: a}]}\nlisteners: {api: {address: here}}\n\
                dns: {timeout: 1}\negress: {deny_cidrs: [10.0.0.1/8]}\ntools: [{name: t}, {name: T}]\n";
    let found = parse_text(text).expect_err("is wrong");
    let paths: Vec<_> = found.errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "version",
            "auth.keys[0].scopes",
            "auth.keys[0].key",
            "listeners.api.address",
            "dns.timeout",
            "egress.deny_cidrs[0]",
            "tools[0].description",
            "tools[0].url",
            "tools[0].secret",
            "tools[1].description",
            "tools[1].url",
            "tools[1].secret",
            "tools[1].name",
        ]
    );
}

#[test]
fn a_snapshot_does_not_show_its_secrets() {
    let text = "version: 1\nauth: {keys: [{name: a, scopes: [agent], key: {env: GOOD}}]}\ntools:\n\
                - {name: a, description: Looks an order up by its number., url: \"https://a.example.com\",\n   \
                secret: {current: {file: /s/good}, previous: {file: /s/old}}, headers: {X-A: {file: /s/short, prefix: P}}}\n";
    let printed = format!("{:?}", good(text));
    assert!(printed.contains("a.example.com") && !printed.contains(CANARY), "{printed}");
}

#[test]
fn a_text_that_is_no_yaml_is_one_error() {
    let found = parse_text("version: [1\n").expect_err("is wrong");
    assert_eq!(found.errors.len(), 1);
    assert!(found.to_string().starts_with("f:1:10: is not valid YAML: "), "{found}");
}
