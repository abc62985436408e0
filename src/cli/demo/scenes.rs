//! The four calls of the demo, what should come of each, and how it is shown.

use std::fmt::Write;

use serde_json::Value;

use crate::cli::demo::tool_server::Received;
use crate::cli::page::{indent, unfold};

/// One call and what should come of it.
#[derive(Debug)]
pub struct Scene {
    /// The heading.
    pub title: &'static str,
    /// The request's body.
    pub call: &'static str,
    /// `status`, and the error's `code` and `detail`.
    pub expected: (&'static str, Option<&'static str>, Option<&'static str>),
    /// How many requests the tool's server receives.
    pub requests: usize,
    /// What the newcomer has seen.
    pub moral: &'static str,
}

/// The calls, in order.
pub const SCENES: &[Scene] = &[
    Scene {
        title: "a good call",
        call: r#"{"tool":"lookup_order","arguments":{"order_number":"A-1042"}}"#,
        expected: ("succeeded", None, None),
        requests: 1,
        moral: "The arguments fit, the address is allowed, the request was signed, and the answer came back.",
    },
    Scene {
        title: "bad arguments",
        call: r#"{"tool":"lookup_order","arguments":{"order_number":1042}}"#,
        expected: ("refused", Some("invalid_arguments"), None),
        requests: 0,
        moral: "The order number is not a string. The model is told what is wrong and can correct itself.",
    },
    Scene {
        title: "a host that resolves to a private address",
        call: r#"{"tool":"check_stock","arguments":{}}"#,
        expected: ("refused", Some("blocked_host"), Some("private")),
        requests: 0,
        moral: "stock.example.com has the address 10.0.0.5, so no connection was made. The model does not see the address.",
    },
    Scene {
        title: "a tool that redirects",
        call: r#"{"tool":"track_parcel","arguments":{"order_number":"A-1042"}}"#,
        expected: ("failed", Some("redirect"), None),
        requests: 1,
        moral: "The answer was a 302 to https://elsewhere.example.com/. Nobody looked that name up, let alone called it.",
    },
];

impl Scene {
    /// What differs from what should have come, if anything.
    pub fn surprise(&self, status: u16, answer: &str, received: &[Received]) -> Option<String> {
        let outcome: Value = match serde_json::from_str(answer) {
            Ok(outcome) => outcome,
            Err(error) => return Some(format!("the answer is not JSON: {error}")),
        };
        let text = |pointer| outcome.pointer(pointer).and_then(Value::as_str);
        let found =
            (text("/status").unwrap_or_default(), text("/error/code"), text("/error/detail"));
        if status != 200 || found != self.expected {
            return Some(format!("HTTP {status}, {found:?} instead of {:?}", self.expected));
        }
        if received.len() != self.requests {
            return Some(format!(
                "the tool's server received {} requests, not {}",
                received.len(),
                self.requests
            ));
        }
        let unverified = received.iter().find_map(|one| one.signature.err())?;
        Some(format!("the tool's server refused the signature: {unverified}"))
    }

    /// The call and what came of it, for people.
    pub fn show(&self, number: usize, status: u16, answer: &str, received: &[Received]) -> String {
        let mut page = format!(
            "\n=== {number}. {} ===\n\nThe agent asks for:\n{}",
            self.title,
            indent(self.call)
        );
        page.push_str(&show_received(received));
        let (what, outcome) = match number {
            1 => ("The outcome", unfold(answer)),
            _ => ("What matters of the outcome", main_fields(&unfold(answer))),
        };
        let outcome = indent(&outcome);
        let _ = write!(page, "\n{what} (HTTP {status}):\n{outcome}\n{}\n", self.moral);
        page
    }
}

/// The requests that the tool's server received, and whether their signatures were right.
pub fn show_received(received: &[Received]) -> String {
    if received.is_empty() {
        return "\nThe tool's server received: none, nothing left the gateway.\n".to_owned();
    }
    let mut page = String::new();
    for one in received {
        let _ = write!(page, "\nThe tool's server received:\n{}", indent(&one.raw));
        let verdict = match one.signature {
            Ok(()) => "verified".to_owned(),
            Err(why) => format!("REFUSED, {why}"),
        };
        let _ = writeln!(page, "and checked the signature: {verdict}.");
    }
    page
}

/// The lines of an unfolded outcome that differ from call to call.
fn main_fields(outcome: &str) -> String {
    const MAIN: [&str; 7] =
        ["{", "  \"status\"", "  \"tool\"", "  \"error\"", "  \"model\"", "  \"attempts\"", "}"];
    let lines = outcome.lines().filter(|line| MAIN.iter().any(|main| line.starts_with(main)));
    lines.collect::<Vec<_>>().join("\n").replace(",\n}", "\n}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(signature: Result<(), &'static str>) -> Received {
        Received { raw: "POST / HTTP/1.1\r\nHost: x\r\n\r\n{}".to_owned(), signature }
    }

    #[test]
    fn a_later_outcome_is_shown_in_short() {
        let json = r#"{"id":"a","status":"refused","tool":"x","tool_id":"y","error":{"id":1},"test":false}"#;
        let short =
            "{\n  \"status\": \"refused\",\n  \"tool\": \"x\",\n  \"error\": {\"id\": 1}\n}";
        assert_eq!(main_fields(&unfold(json)), short);
    }

    #[test]
    fn what_was_received_is_shown_as_it_was() {
        let page = show_received(&[received(Ok(()))]);
        assert!(page.contains("    POST / HTTP/1.1\n    Host: x\n\n    {}\n"), "{page}");
        assert!(page.ends_with("signature: verified.\n"), "{page}");
        assert!(show_received(&[received(Err("t is too old"))]).contains("REFUSED, t is too old"));
        assert!(show_received(&[]).contains("nothing left the gateway"));
    }

    #[test]
    fn every_difference_is_a_surprise() {
        let [good, bad_arguments, ..] = SCENES else { panic!("scenes") };
        let answer = r#"{"status":"succeeded","error":null}"#;
        assert_eq!(good.surprise(200, answer, &[received(Ok(()))]), None);
        assert!(good.surprise(202, answer, &[received(Ok(()))]).is_some());
        assert!(good.surprise(200, answer, &[]).is_some());
        assert!(good.surprise(200, answer, &[received(Err("no"))]).is_some());
        assert!(good.surprise(200, "nonsense", &[received(Ok(()))]).is_some());
        let refused = r#"{"status":"refused","error":{"code":"invalid_arguments","detail":null}}"#;
        assert_eq!(bad_arguments.surprise(200, refused, &[]), None);
        assert!(good.surprise(200, refused, &[received(Ok(()))]).is_some());
        assert!(good.show(1, 200, answer, &[]).contains("=== 1. a good call ==="));
    }
}
