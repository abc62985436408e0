//! The strictest wins, shadows change nothing, and a message belongs to whoever decided.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::json::read_object;
use crate::policy::approval::Candidate;
use crate::policy::condition::Operator;

fn policy(id: &str, effect: Effect) -> Policy {
    Policy {
        id: id.into(),
        mode: Mode::Enforce,
        tools: Vec::new(),
        agents: Vec::new(),
        permission: None,
        when: Vec::new(),
        rule: None,
        effect,
        message: Some(format!("As {id} says.").into()),
        expires: None,
        priority: 0,
    }
}

fn own(effect: Effect) -> ToolPolicy {
    ToolPolicy { effect, ask_first: effect == Effect::AskFirst, candidate: None }
}

fn over(amount: i64) -> Vec<Condition> {
    let made = Condition::new("/amount", Operator::GreaterThan, json!(amount), None);
    vec![made.expect("a condition")]
}

fn arguments(amount: i64) -> Arguments {
    read_object(&json!({ "amount": amount }).to_string()).expect("arguments")
}

fn decided(own: &ToolPolicy, policies: Vec<Policy>) -> Decision {
    let policies: Vec<_> = policies.into_iter().map(Arc::new).collect();
    decide(own, &policies, Some("support"), &arguments(600))
}

#[test]
fn the_tool_decides_where_no_policy_matches() {
    let other = Policy {
        agents: vec![Glob::parse("sales-*").expect("a glob")],
        ..policy("a", Effect::Deny)
    };
    let small = Policy { when: over(1000), ..policy("b", Effect::Deny) };
    let decision = decided(&own(Effect::Allow), vec![other, small]);
    assert_eq!((decision.effect, decision.policy.as_str()), (Effect::Allow, "tool"));
    assert_eq!((decision.message, decision.shadow), (None, Vec::new()));
}

#[test]
fn the_strictest_wins_and_is_named() {
    let rules =
        vec![policy("a", Effect::AskFirst), policy("b", Effect::Deny), policy("c", Effect::Allow)];
    let decision = decided(&own(Effect::RequireApproval), rules);
    assert_eq!((decision.effect, decision.policy.as_str()), (Effect::Deny, "b"));
    assert_eq!(decision.message.as_deref(), Some("As b says."));
}

#[test]
fn no_policy_loosens_a_tool() {
    let decision = decided(
        &own(Effect::Deny),
        vec![policy("a", Effect::Allow), policy("b", Effect::AskFirst)],
    );
    assert_eq!((decision.effect, decision.policy.as_str()), (Effect::Deny, "tool"));
    assert_eq!(decision.message, None, "a message of a rule that did not decide would mislead");
}

#[test]
fn of_two_that_say_the_same_the_priority_gives_the_message() {
    let high = Policy { priority: 5, ..policy("high", Effect::Deny) };
    let decision = decided(
        &own(Effect::Deny),
        vec![policy("first", Effect::Deny), high, policy("last", Effect::Deny)],
    );
    assert_eq!(decision.policy.as_str(), "high");
    let decision = decided(
        &own(Effect::Allow),
        vec![policy("first", Effect::Deny), policy("last", Effect::Deny)],
    );
    assert_eq!(decision.policy.as_str(), "first");
    let loose = Policy { priority: 9, ..policy("loose", Effect::AskFirst) };
    assert_eq!(
        decided(&own(Effect::Allow), vec![loose, policy("strict", Effect::Deny)]).effect,
        Effect::Deny
    );
}

#[test]
fn a_policy_of_every_agent_is_about_calls_without_one_too() {
    let of = |glob: &str, agent| {
        let agents = vec![Glob::parse(glob).expect("a glob")];
        let bound = Arc::new(Policy { agents, ..policy("a", Effect::Deny) });
        decide(&own(Effect::Allow), std::slice::from_ref(&bound), agent, &arguments(1)).effect
    };
    assert_eq!((of("*", Some("any")), of("*", None)), (Effect::Deny, Effect::Deny));
    assert_eq!((of("a*", Some("any")), of("a*", None)), (Effect::Deny, Effect::Allow));
}

#[test]
fn a_policy_is_about_tools_by_name_and_by_what_they_do() {
    let refunds = Policy {
        tools: vec![Glob::parse("refund.*").expect("a glob")],
        permission: Some(Permission::Write),
        ..policy("a", Effect::Deny)
    };
    assert!(refunds.is_about("refund.issue", Permission::Write));
    assert!(!refunds.is_about("refund.issue", Permission::Read));
    assert!(!refunds.is_about("refunds", Permission::Write));
    assert!(policy("a", Effect::Deny).is_about("anything", Permission::Read));
}

#[test]
fn a_shadow_changes_nothing_and_says_whether_it_would() {
    let shadow = |id: &str, effect| Policy { mode: Mode::Shadow, ..policy(id, effect) };
    let rules =
        vec![shadow("a", Effect::Deny), shadow("b", Effect::Allow), policy("c", Effect::AskFirst)];
    let decision = decided(&own(Effect::Allow), rules);
    assert_eq!((decision.effect, decision.policy.as_str()), (Effect::AskFirst, "c"));
    let seen: Vec<_> = decision
        .shadow
        .iter()
        .map(|one| (one.policy.as_str(), one.effect, one.disagrees))
        .collect();
    assert_eq!(seen, [("a", Effect::Deny, true), ("b", Effect::Allow, false)]);
}

#[test]
fn a_candidate_stands_for_the_tool_s_own_policy() {
    let with = |when| ToolPolicy {
        ask_first: false,
        effect: Effect::RequireApproval,
        candidate: Some(Candidate { effect: Effect::Allow, when }),
    };
    let looser = decided(&with(Vec::new()), Vec::new());
    assert_eq!(looser.effect, Effect::RequireApproval);
    assert_eq!(looser.shadow[0].policy.as_str(), "candidate");
    assert!(looser.shadow[0].disagrees && looser.would_run_unasked());
    let asked = decided(&with(Vec::new()), vec![policy("a", Effect::AskFirst)]);
    assert!(asked.shadow[0].disagrees && !asked.would_run_unasked(), "the person is asked still");
    let held = decided(&with(Vec::new()), vec![policy("a", Effect::RequireApproval)]);
    assert!(!held.shadow[0].disagrees, "the policy would have asked all the same");
    assert_eq!(decided(&with(over(1000)), Vec::new()).shadow, []);
}

#[test]
fn an_operator_decides_first_and_then_the_person() {
    let asks = |own: &ToolPolicy, rules| {
        let decision = decided(own, rules);
        (decision.effect, decision.then_ask)
    };
    let (needs, person) = (Effect::RequireApproval, Effect::AskFirst);
    assert_eq!(asks(&own(person), vec![policy("a", needs)]), (needs, true));
    assert_eq!(asks(&own(needs), vec![policy("a", person)]), (needs, true));
    assert_eq!(asks(&ToolPolicy { ask_first: true, ..own(needs) }, vec![]), (needs, true));
    let both = vec![policy("a", needs), policy("b", person)];
    assert_eq!(asks(&own(Effect::Allow), both), (needs, true));
    assert_eq!(asks(&own(needs), vec![]), (needs, false));
    assert_eq!(asks(&own(person), vec![]), (person, false), "nobody comes before the person");
    assert_eq!(asks(&own(person), vec![policy("a", Effect::Deny)]), (Effect::Deny, false));
    let watching = Policy { mode: Mode::Shadow, ..policy("a", person) };
    assert_eq!(asks(&own(needs), vec![watching]), (needs, false));
}

#[test]
fn who_decided_says_how_long_a_person_may_take() {
    let minutes = |minutes: u64| Some(Duration::from_secs(minutes * 60));
    let rule = |id, effect, time| Policy { expires: minutes(time), ..policy(id, effect) };
    let rules = || vec![rule("a", Effect::RequireApproval, 5), rule("b", Effect::AskFirst, 7)];
    assert_eq!(decided(&own(Effect::Allow), rules()).expires, minutes(5));
    assert_eq!(decided(&own(Effect::Deny), rules()).expires, None);
}

#[test]
fn the_version_is_that_of_what_is_in_force() {
    let seen = |own: &ToolPolicy, rules: Vec<Policy>| {
        version(own, &rules.into_iter().map(Arc::new).collect::<Vec<_>>())
    };
    let (base, tool) = (policy("a", Effect::RequireApproval), own(Effect::Allow));
    let before = seen(&tool, vec![base.clone()]);
    let glob = || vec![Glob::parse("x").expect("a glob")];
    for changed in [
        Policy { id: "b".into(), ..base.clone() },
        Policy { effect: Effect::Deny, ..base.clone() },
        Policy { tools: glob(), ..base.clone() },
        Policy { agents: glob(), ..base.clone() },
        Policy { permission: Some(Permission::Read), ..base.clone() },
        Policy { permission: Some(Permission::Write), ..base.clone() },
        Policy { when: over(500), ..base.clone() },
        Policy { when: over(501), ..base.clone() },
        Policy { expires: Some(Duration::from_secs(60)), ..base.clone() },
        Policy { mode: Mode::Shadow, ..base.clone() },
    ] {
        assert_ne!(seen(&tool, vec![changed.clone()]), before, "{changed:?}");
    }
    assert_ne!(seen(&own(Effect::AskFirst), vec![base.clone()]), before);
    assert_ne!(
        seen(&ToolPolicy { ask_first: true, ..own(Effect::Allow) }, vec![base.clone()]),
        before
    );
    let shadow = Policy { mode: Mode::Shadow, ..policy("z", Effect::Deny) };
    assert_eq!(seen(&tool, vec![base.clone(), shadow]), before);
    let candidate = Some(Candidate { effect: Effect::Deny, when: Vec::new() });
    assert_eq!(seen(&ToolPolicy { candidate, ..own(Effect::Allow) }, vec![base.clone()]), before);
    let (message, priority) = (Some("Another one.".into()), 3);
    assert_eq!(seen(&tool, vec![Policy { message, priority, ..base.clone() }]), before);
    let other = policy("b", Effect::Deny);
    let one_way = seen(&tool, vec![base.clone(), other.clone()]);
    assert_eq!(seen(&tool, vec![other, base]), one_way, "the order of the file says nothing");
}

proptest! {
    #[test]
    fn the_effect_is_the_strictest_of_all_that_match(
        tool in 0_usize..4,
        rules in prop::collection::vec((0_usize..4, any::<bool>(), any::<bool>(), -2_i64..3), 0..6),
    ) {
        let made = rules.iter().enumerate().map(|(index, (effect, is_shadow, is_matching, priority))| Policy {
            mode: if *is_shadow { Mode::Shadow } else { Mode::Enforce },
            when: over(if *is_matching { 500 } else { 700 }),
            priority: *priority,
            ..policy(&index.to_string(), Effect::ALL[*effect])
        });
        let decision = decided(&own(Effect::ALL[tool]), made.collect());
        let in_force = rules.iter().filter(|(_, is_shadow, is_matching, _)| !is_shadow && *is_matching);
        let strictest = in_force.map(|(effect, ..)| *effect).chain([tool]).max();
        prop_assert_eq!(Some(decision.effect), strictest.map(|effect| Effect::ALL[effect]));
        let watching = rules.iter().filter(|(_, is_shadow, is_matching, _)| *is_shadow && *is_matching);
        prop_assert_eq!(decision.shadow.len(), watching.count());
    }
}
