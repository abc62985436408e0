//! Metrics, as a scrape shows them.

use super::*;

struct NoConnections;

impl ConnectionCounts for NoConnections {
    fn totals(&self) -> [(&'static str, u64); 4] {
        [("new", 3), ("reused", 2), ("evicted", 1), ("poisoned", 0)]
    }

    fn open(&self) -> u64 {
        2
    }
}

fn labels(name: &str) -> ToolLabels<'_> {
    ToolLabels { name, effect: Effect::Allow, signing_keys: 1 }
}

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.encode(&NoConnections)).expect("text")
}

#[test]
fn configured_tools_start_at_zero() {
    let metrics = Metrics::new(true);
    metrics.configure("abc", [labels("lookup_order")].into_iter());
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
fn the_tool_label_can_be_folded_away() {
    let metrics = Metrics::new(false);
    metrics.configure("abc", [labels("lookup_order")].into_iter());
    assert!(!text(&metrics).contains("lookup_order"));
}

#[test]
fn scrapes_copy_the_pool_s_counts_once() {
    let metrics = Metrics::new(true);
    text(&metrics);
    assert!(text(&metrics).contains(r#"sortie_upstream_connections_total{kind="new"} 3"#));
}
