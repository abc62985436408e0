//! One policy as the API takes it and the store keeps it: JSON text in, the policy out, by the compiler of the file's.

use std::sync::Arc;

use crate::config::context::{Context, Environment, SourceError};
use crate::config::finding::{Finding, Report};
use crate::config::given::Given;
use crate::config::policies;
use crate::config::raw_policy::RawPolicy;
use crate::config::read;
use crate::config::yaml::Document;
use crate::model::json::pointer_step;
use crate::policy::rules::Policy;

/// What is wrong with a policy: the first thing, in the order of its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct PolicyFault {
    /// JSON pointer to what is wrong.
    pub pointer: String,
    /// What is wrong with it.
    pub message: String,
}

/// Bytes of a policy: every call is decided by all of them.
const MAX_BYTES: usize = 64 * 1024;

/// Compiles a policy. The text is compact JSON as `serde_json` writes it, which YAML reads as the same.
pub fn compile(text: &str) -> Result<Arc<Policy>, PolicyFault> {
    if text.len() > MAX_BYTES {
        let message = format!("must not be larger than {MAX_BYTES} bytes");
        return Err(PolicyFault { pointer: String::new(), message });
    }
    let (document, faults) = Document::parse(text);
    let faults = faults.into_iter().map(|fault| Finding::of_fault("", fault)).collect();
    let Some(document) = document else { return Err(first(faults)) };
    let report = Report::new(String::new(), faults, &document);
    let environment = Environment::bare(&|_| Err(SourceError::Missing), 0);
    let context = Context { report: &report, environment: &environment, strict: false };
    let raw: Given<RawPolicy> = read::read(&report, &[]);
    let policy = raw.found().and_then(|(raw, node)| policies::compile_kept(&context, raw, node));
    let (errors, _) = report.into_findings();
    policy.filter(|_| errors.is_empty()).ok_or_else(|| first(errors))
}

fn first(errors: Vec<Finding>) -> PolicyFault {
    match errors.into_iter().next() {
        Some(error) => PolicyFault { pointer: pointer(&error.path), message: error.message },
        None => PolicyFault { pointer: String::new(), message: "is no policy".into() },
    }
}

/// `match.when[0].operator` as a JSON pointer. A key of other letters stands in brackets and quotes.
fn pointer(path: &str) -> String {
    let (mut pointer, mut rest) = (String::new(), path);
    let mut push = |step: &str| {
        pointer.push('/');
        pointer.push_str(&pointer_step(step));
    };
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (key, after) = quoted.split_once("\"]").unwrap_or((quoted, ""));
            push(key);
            rest = after;
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']').unwrap_or((index, ""));
            push(index);
            rest = after;
        } else {
            let plain = rest.strip_prefix('.').unwrap_or(rest);
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            let (key, after) = plain.split_at(end);
            push(key);
            rest = after;
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::json::read_object;
    use crate::model::outcome::Effect;

    #[track_caller]
    fn refused(policy: Value, pointer: &str, message: &str) {
        let fault = compile(&policy.to_string()).expect_err("it is wrong");
        assert_eq!(fault.pointer, pointer);
        assert!(fault.message.contains(message), "{}", fault.message);
    }

    fn when(condition: Value) -> Value {
        json!({"id": "a", "effect": "deny", "match": {"when": [condition]}})
    }

    #[test]
    fn what_is_wrong_is_named_by_its_pointer() {
        let over = json!({"pointer": "/amount", "operator": "over", "threshold": 5});
        refused(when(over), "/match/when/0/operator", "greater_than");
        let no_pointer = json!({"pointer": "amount", "operator": "equals", "threshold": 5});
        refused(when(no_pointer), "/match/when/0/pointer", "must be a JSON pointer");
        refused(json!({"id": "a", "effect": "forbid"}), "/effect", "deny");
        refused(json!({"id": "a"}), "/effect", "is missing");
        refused(json!({"id": "candidate", "effect": "deny"}), "/id", "meaning of its own");
        refused(json!({"id": "pol_x", "effect": "deny"}), "/id", "meaning of its own");
        let unknown = json!({"id": "a", "effect": "deny", "a.b/c": 1});
        refused(unknown, "/a.b~1c", "is not a known key");
        refused(json!({"id": "a", "effect": "deny", "match": []}), "/match", "must be a mapping");
        refused(json!([]), "", "must be a mapping");
        let tools: Vec<_> = (0..10_000).map(|nth| format!("tool_{nth}")).collect();
        refused(json!({"id": "a", "effect": "deny", "match": {"tools": tools}}), "", "larger");
    }

    #[test]
    fn a_policy_is_what_the_file_would_make_of_it() {
        let text = "Refunds end at 500: \"\u{1F4B8}\" \\ tab\u{e9}, {[*&!% #";
        let policy = json!({
            "id": "pol_0123456789abcdEF", "effect": "require_approval", "message": text,
            "match": {"tools": ["ref*"], "when": [{"pointer": "/amount", "operator": "greater_than", "threshold": 1e21}]},
        });
        let policy = compile(&policy.to_string()).expect("a policy");
        assert_eq!((&*policy.id, policy.effect), ("pol_0123456789abcdEF", Effect::RequireApproval));
        assert_eq!(policy.message.as_deref(), Some(text));
        assert_eq!(policy.rule.as_deref(), Some("/amount greater_than 1e+21"));
    }

    #[test]
    fn a_text_is_compared_as_it_was_written() {
        for between in ["\u{2028}", "\u{85}", "\u{feff}"] {
            let text = format!("a{between}b");
            let is_it = json!({"pointer": "/x", "operator": "equals", "threshold": text});
            let policy = compile(&when(is_it).to_string()).expect("a policy");
            let arguments = read_object(&json!({ "x": text }).to_string()).expect("arguments");
            assert!(policy.matches(None, &arguments), "{text:?}");
        }
    }

    #[test]
    fn an_id_is_made_of_sixteen_letters_and_digits() {
        let id = policies::make_id([0_u8, 61].into_iter().cycle());
        assert!(policies::is_made(&id), "{id}");
        assert!(!policies::is_made("pol_") && !policies::is_made("refunds"));
    }
}
