//! Configuration files: an answer for any text, and what is taken can be used.

use sortie::config::context::{Environment, Source, SourceError};
use sortie::config::finding::Finding;
use sortie::config::parse::parse;
use sortie::config::snapshot::{Snapshot, Tool};
use sortie::model::json::read_object;
use sortie::model::secret::Secret;
use sortie::policy::endpoint::Endpoint;

use super::{NOW, wire};

/// Every secret but those with `missing` in their name is there.
fn lookup(source: &Source) -> Result<Secret, SourceError> {
    match source.to_string() {
        name if name.contains("missing") => Err(SourceError::Missing),
        name if name.contains(".pem") => Ok(Secret::new("-----BEGIN CERTIFICATE-----\n")),
        _ => Ok(Secret::new(format!("{}\n", wire::SECRET))),
    }
}

/// The text of a configuration file.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let environment = Environment {
        resolv_conf: "nameserver 192.0.2.53\n".into(),
        interfaces: vec![std::net::IpAddr::from([192, 0, 2, 7])],
        ..Environment::bare(&lookup, NOW)
    };
    match parse("conf/sortie.yaml", text, &environment) {
        Err(found) => {
            assert!(!found.errors.is_empty(), "refused without an error");
            let findings = found.errors.iter().chain(&found.warnings);
            findings.for_each(|finding| is_in_the_text(finding, text));
        }
        Ok(snapshot) => {
            snapshot.warnings.iter().for_each(|finding| is_in_the_text(finding, text));
            is_usable(&snapshot);
            let again = parse("conf/sortie.yaml", text, &environment).expect("as before");
            assert_eq!((again.hash, again.warnings), (snapshot.hash, snapshot.warnings));
        }
    }
}

/// A finding has a place in the text and no secret.
pub fn is_in_the_text(finding: &Finding, text: &str) {
    let lines: Vec<&str> = text.split('\n').collect();
    let Finding { line, column, .. } = *finding;
    assert!(line >= 1, "{finding}");
    // A carriage return alone ends a line of YAML, but of nothing that shows lines.
    let odd = text.replace("\r\n", "\n").contains('\r');
    assert!(odd || line <= lines.len() + 1, "line {line}: {finding}");
    let width = lines.get(line - 1).map_or(0, |line| line.chars().count());
    assert!(column >= 1 && (odd || column <= width + 1), "column {column} of {width}: {finding}");
    assert!(!finding.message.is_empty());
    // A fuzzer that watches comparisons writes the secret into the text itself.
    let secret = &wire::SECRET[6..];
    assert!(text.contains(secret) || !finding.to_string().contains(secret), "a secret is printed");
}

fn is_usable(snapshot: &Snapshot) {
    for (name, tool) in &snapshot.tools {
        assert_eq!(
            (name, snapshot.tool(name.as_str()).map(|tool| &tool.id)),
            (&tool.name, Some(&tool.id))
        );
        assert!(tool.profile.accepts_name(name.as_str()), "{name}");
        assert_eq!(Endpoint::parse(&tool.endpoint.to_string()).as_ref(), Ok(&tool.endpoint));
        let bounds = tool.profile.timeout;
        assert!((bounds.min..=bounds.max).contains(&tool.timeout), "{:?}", tool.timeout);
        assert!(tool.headers.len() <= 10);
        let admitted = snapshot.egress.admit(name.as_str(), &tool.endpoint, NOW);
        assert!(!tool.enabled || admitted.verdict.is_ok(), "its host is refused");
        let _ = tool.arguments.check(&read_object("{}").expect("JSON"));
        for now in [0, NOW, i64::MAX] {
            sends(tool, now);
        }
    }
}

/// A tool that can be called sends well-formed requests, and never an unsigned one.
fn sends(tool: &Tool, now: i64) {
    let keys = tool.signing.at(now);
    if tool.profile.signs() && keys.is_empty() {
        assert!(tool.unavailable.is_some(), "{} cannot sign", tool.name);
        return;
    }
    wire::renders(&tool.profile, &tool.endpoint, &tool.headers, keys);
}
