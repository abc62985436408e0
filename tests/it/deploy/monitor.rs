//! What operators watch: rules, dashboard and runbooks speak of what the gateway exports, and a real Prometheus answers each
//! of their questions.

mod codes;
mod expressions;
mod names;
mod prometheus;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use self::codes::Run;
use self::expressions::{Selector, alerts, blocks, dashboard};
use self::prometheus::Prometheus;
use super::{shipped, tool, venv};
use crate::support::cli::sortie;
use crate::support::languages::good;

/// The folder of all of it.
const FOLDER: &str = "deploy/monitoring";

fn promtool(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(tool("promtool")?);
    let output = good(command.args(arguments).current_dir(shipped(FOLDER)));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn promtool_takes_the_rules_and_the_local_trial() {
    let Some(said) = promtool(&["check", "rules", "rules.yaml"]) else { return };
    let expected = format!("SUCCESS: {} rules found", expressions::rules().len());
    assert!(said.contains(&expected), "{said}");
    let Some(said) = promtool(&["check", "config", "prometheus.yml"]) else { return };
    assert!(said.contains("SUCCESS: prometheus.yml is valid"), "{said}");
}

#[test]
fn the_rules_pass_their_unit_tests() {
    let Some(said) = promtool(&["test", "rules", "rules_test.yaml"]) else { return };
    assert!(said.contains("SUCCESS") && !said.contains("FAILED"), "{said}");
}

#[test]
fn each_alert_is_tested_to_fire_and_to_stay_silent() {
    let tests: Value = expressions::yaml("rules_test.yaml");
    let cases = tests["tests"].as_array().expect("tests").iter();
    let cases = cases.flat_map(|test| test["alert_rule_test"].as_array().cloned());
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases.flatten() {
        let name = case["alertname"].as_str().expect("a name").to_owned();
        let quiet = case["exp_alerts"].as_array().expect("a list").is_empty();
        let which = if quiet { &mut silent } else { &mut fires };
        which.insert(name);
    }
    let all: BTreeSet<String> = alerts().into_iter().map(|alert| alert.name).collect();
    assert!(all.len() >= 15, "{all:?}");
    assert_eq!((&fires, &silent), (&all, &all));
}

#[test]
fn each_alert_has_a_severity_a_sentence_and_a_heading_among_the_runbooks() {
    let runbooks = std::fs::read_to_string(shipped(FOLDER).join("runbooks.md")).expect("a file");
    let headings: BTreeSet<&str> =
        runbooks.lines().filter_map(|line| line.strip_prefix("## Sortie")).collect();
    let alerts = alerts();
    let named: BTreeSet<&str> = alerts
        .iter()
        .map(|alert| alert.name.strip_prefix("Sortie").expect("the prefix of all of them"))
        .collect();
    assert_eq!(headings, named);
    for alert in &alerts {
        let place = format!("runbooks.md#{}", alert.name.to_lowercase());
        assert_eq!(alert.rule["annotations"]["runbook_url"], json!(place), "{}", alert.name);
        let severity = alert.rule["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["page", "ticket", "security"].contains(&severity), "{}", alert.name);
        let summary = alert.rule["annotations"]["summary"].as_str().unwrap_or_default();
        assert!(summary.ends_with('.') && summary.len() < 140, "{}: {summary}", alert.name);
    }
}

#[test]
fn grafana_s_model_knows_everything_that_the_dashboard_says() {
    let Some(python) = venv(&["grafana-foundation-sdk==1769699998!10.1.0"]) else { return };
    let mut script = python.program("python");
    script.arg(shipped("tests/deploy/dashboard_model.py"));
    let output = good(script.arg(shipped(FOLDER).join("dashboard.json")));
    assert!(output.stdout.ends_with(b"panels and rows read\n"), "{output:?}");
}

/// After one call of each outcome code that is built.
#[tokio::test(flavor = "multi_thread")]
async fn prometheus_has_an_answer_to_every_panel_and_every_rule() {
    let Some(program) = tool("prometheus") else { return };
    let Some(python) = venv(&["matplotlib==3.11.2"]) else { return };
    let run = Run::start().await;
    let prometheus = Prometheus::start(&program, run.gateway.telemetry()).await;
    prometheus.answers("sortie_build_info").await;
    let begun = prometheus.now().await;
    run.calls().await;
    let metrics = run.gateway.metrics().await;
    codes::assert_all_are_counted(&metrics);
    let counted = metrics.value("sortie_calls_total", &[]);
    prometheus.answers(&format!("sum(sortie_calls_total) == {counted}")).await;

    // The rules have been evaluated since, and one of the calls is what an alert is for.
    prometheus.answers("job:sortie_calls_failed:ratio_rate6h > 0").await;
    prometheus
        .answers(r#"ALERTS{alertname="SortieAddressRefused",alertstate="firing",tool="inside"}"#)
        .await;
    for rule in prometheus.rules().await {
        assert_eq!((&rule["health"], &rule["lastError"]), (&json!("ok"), &Value::Null), "{rule}");
    }

    // What is selected is there, up to the last value of a label.
    let expressions = [expressions::rules(), dashboard(), blocks("runbooks.md", "promql")].concat();
    assert!(expressions.len() > 80, "{}", expressions.len());
    for expression in &expressions {
        prometheus.query(&expressions::with_values(expression)).await;
        for selector in Selector::all(expression) {
            selector.assert_selects(&metrics.text);
        }
    }

    // What the gateway counts now and then has been scraped.
    for waiting in ["sortie_approvals_pending > 0", "sortie_approval_oldest_pending_seconds > 0"] {
        prometheus.answers(waiting).await;
    }
    // Each panel of the dashboard has numbers, and is drawn.
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard.png");
    let _ = std::fs::remove_file(&picture);
    let mut script = python.program("python");
    script.arg(shipped("tests/deploy/dashboard.py")).arg(prometheus.url()).arg(begun.to_string());
    script.arg(shipped(FOLDER).join("dashboard.json")).arg(&picture);
    let output = good(&mut script);
    let said = String::from_utf8_lossy(&output.stdout);
    let panels = expressions::panels();
    assert!(said.contains(&format!("{panels} panels, {panels} drawn")), "{said}");
    let drawn = std::fs::read(&picture).expect("a picture");
    assert!(drawn.starts_with(b"\x89PNG") && drawn.len() > 100_000, "{} bytes", drawn.len());
    run_commands_of_the_runbooks(&run);
    run.finish().await;
}

/// Each in the gateway's folder, with its log beside.
#[track_caller]
fn run_commands_of_the_runbooks(run: &Run) {
    let folder = run.gateway.folder().path();
    let log = run.gateway.texts().join("\n") + "\n";
    std::fs::write(folder.join("gateway.log"), log).expect("a written file");
    let sortie = sortie().get_program().to_owned();
    let bin = Path::new(&sortie).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let commands = blocks("runbooks.md", "sh");
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        let mut shell = Command::new("sh");
        shell.args(["-euc", &command]).current_dir(folder);
        let said = good(shell.env("PATH", format!("{}:{path}", bin.display())));
        assert!(!said.stdout.is_empty(), "{command} says nothing");
    }
}
