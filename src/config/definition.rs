//! Digests over what is written: whether a tool, or a wire format, is still what it was.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Keys of a tool that say nothing of what a call means or where it goes: whether and how often it may run, whom it
/// concerns, what is said and kept of it. The signing keys are exchanged from time to time, and mean nothing either.
const BESIDE: &[&str] = &[
    "ask_first",
    "breaker",
    "capture",
    "concurrency",
    "enabled",
    "filler",
    "forward_trace",
    "owner",
    "policy",
    "rate_limits",
    "runbook",
    "secret",
];

/// A digest over what a tool is: what is written of it, its wire format, and the URLs that it goes to, since what follows a
/// `?` is left out of what is written.
pub fn of_tool(written: &Value, profile: &[u8; 32], urls: &[String]) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(profile);
    for url in urls {
        feed_text(&mut digest, url);
    }
    let members = written.as_object().into_iter().flatten();
    let kept = members.filter(|(key, value)| !BESIDE.contains(&key.as_str()) && !value.is_null());
    feed_members(&mut digest, kept.collect());
    digest.finalize().into()
}

/// A digest over a whole value, whatever the order of its keys.
pub fn of(value: &Value) -> [u8; 32] {
    let mut digest = Sha256::new();
    feed(&mut digest, value);
    digest.finalize().into()
}

/// Each value begins with its kind and length, so that no two of them are fed alike.
fn feed(digest: &mut Sha256, value: &Value) {
    match value {
        Value::Null => digest.update("n"),
        Value::Bool(truth) => digest.update(if *truth { "t" } else { "f" }),
        Value::Number(number) => {
            digest.update("#");
            feed_text(digest, &number.to_string());
        }
        Value::String(text) => {
            digest.update("s");
            feed_text(digest, text);
        }
        Value::Array(items) => {
            digest.update("l");
            digest.update(items.len().to_be_bytes());
            items.iter().for_each(|item| feed(digest, item));
        }
        Value::Object(members) => feed_members(digest, members.iter().collect()),
    }
}

fn feed_members(digest: &mut Sha256, mut members: Vec<(&String, &Value)>) {
    members.sort_unstable_by_key(|(key, _)| *key);
    digest.update("m");
    digest.update(members.len().to_be_bytes());
    for (key, value) in members {
        feed_text(digest, key);
        feed(digest, value);
    }
}

fn feed_text(digest: &mut Sha256, text: &str) {
    digest.update(text.len().to_be_bytes());
    digest.update(text);
}
