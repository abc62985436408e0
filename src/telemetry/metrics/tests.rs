//! Metrics, as a scrape shows them.

use super::*;

use crate::model::outcome::{PolicyName, ShadowRuling};
use crate::telemetry::labels::ReloadOutcome;

struct Fixed;

impl Readings for Fixed {
    fn connections(&self) -> [(&'static str, u64); 4] {
        [("new", 3), ("reused", 2), ("evicted", 1), ("poisoned", 0)]
    }

    fn connections_open(&self) -> u64 {
        2
    }

    fn call_lines(&self) -> [(&'static str, u64); 2] {
        [("written", 7), ("dropped", 1)]
    }

    fn egress_exceptions(&self) -> usize {
        4
    }

    fn circuits(&self) -> Vec<(String, Option<State>)> {
        vec![("lookup_order".into(), Some(State::Open)), ("track_parcel".into(), None)]
    }
}

fn labels(name: &str) -> ToolLabels<'_> {
    let definition = Definition { owner: "shop", profile: "bare", effect: Effect::Allow };
    ToolLabels { name, definition: Some(definition) }
}

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.encode(&Fixed)).expect("text")
}

#[test]
fn a_first_disagreement_and_a_first_wrong_argument_are_steps() {
    let metrics = Metrics::new(true);
    metrics.configure(true, [labels("lookup_order")]);
    let text = text(&metrics);
    for series in [
        r#"policy_shadow_disagreements_total{tool="lookup_order"}"#,
        r#"argument_failures_total{keyword="required",tool="lookup_order"}"#,
        r#"argument_failures_total{keyword="type",tool="lookup_order"}"#,
    ] {
        assert!(text.contains(&format!("sortie_{series} 0\n")), "{series} in {text}");
    }
}

#[test]
fn an_approval_that_waits_has_not_ended() {
    let metrics = Metrics::new(true);
    metrics.configure(true, [labels("lookup_order")]);
    let ended = |result: &str| {
        let line = format!(r#"sortie_approvals_total{{result="{result}",tool="lookup_order"}} 0"#);
        text(&metrics).contains(&line)
    };
    assert!(["approved", "cancelled", "expired", "rejected", "void"].into_iter().all(ended));
    assert!(!ended("pending"));
}

#[test]
fn configured_tools_start_at_zero() {
    let metrics = Metrics::new(true);
    metrics.configure(true, [labels("lookup_order")]);
    metrics.config.in_force("abc");
    let text = text(&metrics);
    let line = r#"sortie_calls_total{code="timeout",fault="upstream",status="failed",tool="lookup_order"} 0"#;
    assert!(text.contains(line), "{text}");
    assert!(text.contains(r#"sortie_config_info{hash="abc"} 1"#));
}

#[test]
fn an_unknown_tool_never_makes_a_series_of_its_own() {
    let metrics = Metrics::new(true);
    metrics.attempt(&metrics.tool("made-up"), AttemptResult::Dns, Duration::ZERO);
    let text = text(&metrics);
    assert!(text.contains(r#"sortie_attempts_total{result="dns",tool="_unknown"} 1"#));
    assert!(!text.contains("made-up"));
}

#[test]
fn a_tool_that_goes_takes_its_series_along_and_one_that_stays_goes_on() {
    let metrics = Metrics::new(true);
    metrics.configure(true, [labels("goes"), labels("stays")]);
    metrics.signing_keys([("goes", 1), ("stays", 1)]);
    let goes = metrics.tool("goes");
    let watching = ShadowRuling {
        policy: PolicyName::Candidate,
        effect: Effect::Allow,
        rule: None,
        would: Effect::Allow,
        disagrees: true,
    };
    let decision = Decision {
        effect: Effect::Deny,
        then_ask: false,
        policy: PolicyName::Tool,
        rule: None,
        message: None,
        expires: None,
        shadow: vec![watching],
    };
    metrics.address_decision(&goes, "refuse", "private", "enforce");
    metrics.policy(&goes, &decision);
    metrics.certificate(&goes, 100);
    metrics.attempt(&metrics.tool("stays"), AttemptResult::Dns, Duration::ZERO);
    assert!(text(&metrics).contains(r#"tool="goes""#));
    metrics.configure(true, [labels("stays")]);
    // A call that began before still counts somewhere, but not in a series of its own.
    metrics.address_decision(&goes, "refuse", "private", "enforce");
    metrics.policy(&goes, &decision);
    metrics.certificate(&goes, 100);
    metrics.attempt(&goes, AttemptResult::Dns, Duration::ZERO);
    let text = text(&metrics);
    assert!(!text.contains(r#"tool="goes""#), "{text}");
    assert!(text.contains(r#"sortie_attempts_total{result="dns",tool="stays"} 1"#), "{text}");
    assert!(text.contains(r#"sortie_attempts_total{result="dns",tool="_unknown"} 0"#), "{text}");
}

#[test]
fn one_configuration_is_in_force() {
    let metrics = Metrics::new(true);
    for hash in ["one", "two", "two"] {
        metrics.config.in_force(hash);
    }
    metrics.config.reloaded(ReloadOutcome::Applied, 7);
    metrics.config.reloaded(ReloadOutcome::Invalid, 8);
    let text = text(&metrics);
    for line in [
        r#"sortie_config_info{hash="two"} 1"#,
        r#"sortie_config_reloads_total{result="applied"} 1"#,
        r#"sortie_config_reloads_total{result="invalid"} 1"#,
        r#"sortie_config_reloads_total{result="needs_restart"} 0"#,
        "sortie_config_last_reload_successful 0",
        "sortie_config_last_reload_success_timestamp_seconds 7",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains(r#"hash="one""#), "{text}");
}

#[test]
fn the_tool_label_can_be_folded_away() {
    let metrics = Metrics::new(false);
    let tools = [labels("lookup_order"), labels("track_parcel")];
    metrics.configure(false, tools);
    metrics.signing_keys([("lookup_order", 1), ("track_parcel", 1)]);
    metrics.attempt(&metrics.tool("made-up"), AttemptResult::Dns, Duration::ZERO);
    let text = text(&metrics);
    assert!(!text.contains("lookup_order") && !text.contains(UNKNOWN_TOOL), "{text}");
    assert!(text.contains(r#"sortie_attempts_total{result="dns",tool=""} 1"#), "{text}");
    // One circuit is open, and the other tool has none.
    assert!(text.contains(r#"sortie_circuit_state{state="open",tool=""} 1"#), "{text}");
    assert!(text.contains(r#"sortie_circuit_state{state="closed",tool=""} 0"#), "{text}");
    assert!(text.contains(r#"sortie_signing_keys_active{tool=""} 2"#), "{text}");
}

#[test]
fn the_certificate_that_ends_first_is_the_one_of_a_folded_label() {
    #[track_caller]
    fn check(metrics: &Metrics, line: &str) {
        let line = format!("sortie_upstream_certificate_expiry_timestamp_seconds{line}\n");
        let text = text(metrics);
        assert!(text.contains(&line), "{line}: {text}");
    }
    for (per_tool, lines) in [
        (false, [r#"{tool=""} 100"#, r#"{tool=""} 100"#, r#"{tool=""} 200"#]),
        (true, [r#"{tool="a"} 100"#, r#"{tool="b"} 200"#, r#"{tool="a"} 300"#]),
    ] {
        let metrics = Metrics::new(per_tool);
        metrics.configure(per_tool, [labels("a"), labels("b")]);
        for ((tool, expiry), line) in [("a", 100), ("b", 200), ("a", 300)].into_iter().zip(lines) {
            metrics.certificate(&metrics.tool(tool), expiry);
            check(&metrics, line);
        }
    }
}

#[test]
fn scrapes_copy_the_counts_of_others_once() {
    let metrics = Metrics::new(true);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20).for_each(|_| drop(text(&metrics))));
        }
    });
    let text = text(&metrics);
    for line in [
        r#"sortie_upstream_connections_total{kind="new"} 3"#,
        "sortie_upstream_connections_open 2",
        r#"sortie_call_log_entries_total{result="written"} 7"#,
        r#"sortie_call_log_entries_total{result="dropped"} 1"#,
        "sortie_egress_exceptions 4",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn circuits_of_tools_that_are_gone_are_not_shown() {
    struct Gone;

    impl Readings for Gone {
        fn connections(&self) -> [(&'static str, u64); 4] {
            Fixed.connections()
        }

        fn connections_open(&self) -> u64 {
            0
        }

        fn call_lines(&self) -> [(&'static str, u64); 2] {
            Fixed.call_lines()
        }

        fn egress_exceptions(&self) -> usize {
            0
        }

        fn circuits(&self) -> Vec<(String, Option<State>)> {
            Vec::new()
        }
    }

    let metrics = Metrics::new(true);
    let before = text(&metrics);
    for line in [
        r#"sortie_circuit_state{state="open",tool="lookup_order"} 1"#,
        r#"sortie_circuit_state{state="closed",tool="lookup_order"} 0"#,
        r#"sortie_circuit_state{state="open",tool="track_parcel"} 0"#,
    ] {
        assert!(before.contains(line), "{before}");
    }
    let after = String::from_utf8(metrics.encode(&Gone)).expect("text");
    assert!(!after.contains("sortie_circuit_state{"), "{after}");
}
