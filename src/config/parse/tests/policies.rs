//! Policies over many tools, and the conditions of a candidate.

use super::*;
use crate::model::json::read_object;
use crate::policy::rules::{Mode, decide};

const TOOLS: &str = "tools:
  - {name: refund.issue, description: Gives money back to a customer., profile: plain-v1, policy: allow, url: \"https://a.example.com/\",
     parameters: {type: object, properties: {amount: {type: number}, to: {type: object, properties: {\"a/b\": {}}, required: [\"a/b\"]}}, required: [amount, to]}}
  - {name: lookup, description: Looks an order up by its number., profile: plain-v1, policy: allow, url: \"https://a.example.com/\", annotations: {read_only: true}}
";

fn with(policies: &str) -> String {
    with_head(&format!("{TOOLS}policies:\n{policies}{STORED}"))
}

/// What is decided on a call of the tool with these arguments, by an agent `support`.
fn decided(snapshot: &Snapshot, tool: &str, arguments: &str) -> (Effect, String) {
    let tool = snapshot.tool(tool).expect("a tool");
    let arguments = read_object(arguments).expect("arguments");
    let decision = decide(&tool.policy, &tool.policies, Some("support"), &arguments);
    (decision.effect, decision.policy.as_str().to_owned())
}

#[test]
fn a_policy_says_everything() {
    let snapshot = good(&with(
        "  - id: big-refunds
    mode: enforce
    match: {tools: [\"refund.*\"], kinds: [webhook], agents: [\"sup*\"], permission: WRITE,
            when: [{pointer: /amount, operator: greater_than, threshold: 500}, {pointer: /to/a~1b, operator: in, threshold: \"x, y\"}]}
    effect: require_approval
    message: Refunds over 500 need a person.
    expires_minutes: 90
    priority: 7
",
    ));
    assert_eq!(snapshot.warnings, []);
    assert!(snapshot.tool("lookup").expect("a tool").policies.is_empty());
    let policy = &snapshot.tool("refund.issue").expect("a tool").policies[0];
    assert_eq!(
        (policy.mode, policy.effect, policy.priority),
        (Mode::Enforce, Effect::RequireApproval, 7)
    );
    assert_eq!(policy.expires, Some(Duration::from_secs(90 * 60)));
    let rule = "/amount greater_than 500 and /to/a~1b in [\"x\", \"y\"]";
    assert_eq!(policy.rule.as_deref(), Some(rule));
    let of = |arguments| decided(&snapshot, "refund.issue", arguments);
    let asks = (Effect::RequireApproval, "big-refunds".to_owned());
    assert_eq!(of(r#"{"amount":501,"to":{"a/b":"X"}}"#), asks);
    assert_eq!(of(r#"{"to":{"a/b":"X"}}"#), asks, "absent is no way past it");
    assert_eq!(of(r#"{"amount":500,"to":{"a/b":"X"}}"#), (Effect::Allow, "tool".to_owned()));
    assert_eq!(of(r#"{"amount":501,"to":{"a/b":"z"}}"#), (Effect::Allow, "tool".to_owned()));
}

#[test]
fn a_policy_that_says_little_is_about_every_call() {
    let snapshot = good(&with("  - {id: closed, effect: deny}\n"));
    for tool in ["refund.issue", "lookup"] {
        assert_eq!(decided(&snapshot, tool, "{}"), (Effect::Deny, "closed".to_owned()));
    }
}

#[test]
fn read_is_what_is_annotated_so() {
    let snapshot = good(&with("  - {id: reads, match: {permission: READ}, effect: deny}\n"));
    assert_eq!(decided(&snapshot, "lookup", "{}").0, Effect::Deny);
    assert_eq!(decided(&snapshot, "refund.issue", "{}").0, Effect::Allow);
}

#[test]
fn a_candidate_may_have_conditions() {
    let tool = tool(
        "policy: {effect: require_approval, shadow: {effect: allow, when: [{pointer: /n, operator: equals, threshold: 1}]}}\n",
    );
    let candidate = tool.policy.candidate.as_ref().expect("a candidate");
    assert_eq!(candidate.when.len(), 1);
}

#[test]
fn what_is_wrong_with_a_policy_is_said_at_its_place() {
    // The list begins on line 8.
    for (policy, expected) in [
        ("{effect: deny}", "f:8:5: policies[0].id: is missing, it stands in decisions and reports"),
        (
            "{id: a}",
            "f:8:5: policies[0].effect: is missing, write ask_first, require_approval or deny",
        ),
        (
            "{id: a, effect: refuse}",
            "f:8:21: policies[0].effect: must be `allow`, `ask_first`, `deny` or `require_approval`",
        ),
        (
            "{id: Big, effect: deny}",
            "f:8:10: policies[0].id: must be 1 to 64 lower-case letters, digits, `-` and `_`, and begin with a letter",
        ),
        (
            "{id: tool, effect: deny}",
            "f:8:10: policies[0].id: `tool` has a meaning of its own, choose another name",
        ),
        (
            "{id: pol_a, effect: deny}",
            "f:8:10: policies[0].id: `pol_a` has a meaning of its own, choose another name",
        ),
        (
            "{id: a, effect: deny, match: {tools: []}}",
            "f:8:42: policies[0].match.tools: is empty, name one or leave it out for all",
        ),
        (
            "{id: a, effect: deny, match: {when: []}}",
            "f:8:41: policies[0].match.when: must be 1 to 16 conditions, or left out",
        ),
        (
            "{id: a, effect: deny, match: {when: [{pointer: amount, operator: equals, threshold: 1}]}}",
            "f:8:52: policies[0].match.when[0].pointer: must be a JSON pointer such as /amount",
        ),
        (
            "{id: a, effect: deny, match: {when: [{pointer: /amount, operator: matches, threshold: 1}]}}",
            "f:8:71: policies[0].match.when[0].operator: must be `contains`, `equals`, `greater_than`, `greater_than_or_equal`, `in`, `less_than`, `less_than_or_equal`, `not_contains`, `not_equals` or `not_in`",
        ),
        (
            "{id: a, effect: deny, match: {when: [{pointer: /amount, operator: less_than, threshold: much}]}}",
            "f:8:93: policies[0].match.when[0].threshold: must be a number, `less_than` compares by number",
        ),
        (
            "{id: a, effect: deny, message: \" Late.\"}",
            "f:8:36: policies[0].message: must be a sentence of 1 to 200 characters, without line ends, or white space around it",
        ),
        (
            "{id: a, effect: deny, expires_minutes: 0}",
            "f:8:44: policies[0].expires_minutes: must be from 1 to 10080, not 0",
        ),
        (
            "{id: a, effect: deny}\n  - {id: a, effect: deny}",
            "f:9:10: policies[1].id: another policy is named `a` too",
        ),
        (
            "{id: a, effect: deny, match: {tool: [a]}}",
            "f:8:35: policies[0].match.tool: is not a known key, did you mean `tools`?",
        ),
    ] {
        let found = parse_text(&with(&format!("  - {policy}\n"))).expect_err("wrong");
        assert_eq!(found.to_string(), expected, "{policy}");
    }
}

#[test]
fn what_works_and_looks_wrong_is_a_warning() {
    for (policy, expected) in [
        (
            "{id: a, effect: allow}",
            "f:8:21: policies[0].effect: warning: changes nothing, policies only tighten",
        ),
        (
            "{id: a, effect: deny, match: {tools: [\"refunds.*\"]}}",
            "f:8:42: policies[0].match.tools: warning: names no tool of this configuration",
        ),
        (
            "{id: a, effect: deny, match: {when: [{pointer: /amount, operator: greater_than, threshold: 1}]}}",
            "f:8:42: policies[0].match.when[0]: warning: `/amount` is not required by `lookup`: a call without it matches",
        ),
        (
            "{id: a, effect: deny, match: {tools: [\"refund.*\"], when: [{pointer: /to/b, operator: equals, threshold: 1}]}}",
            "f:8:63: policies[0].match.when[0]: warning: `/to/b` is not required by `refund.issue`: a call without it does not match",
        ),
    ] {
        let warnings = good(&with(&format!("  - {policy}\n"))).warnings;
        let texts: Vec<_> = warnings.iter().map(Finding::as_warning).collect();
        assert_eq!(texts, [expected], "{policy}");
    }
}
