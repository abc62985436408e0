//! A gateway that cannot start.

use serde_json::json;

use crate::support::config::ConfigBuilder;
use crate::support::upstream::Upstream;

/// `sortie serve` on this configuration ends by itself with 1, and says this on standard error.
#[track_caller]
fn check_start(config: &ConfigBuilder, expected: &[&str]) {
    let folder = config.write();
    let path = folder.config.to_str().expect("a UTF-8 path");
    let finished = crate::support::cli::run(["serve", "--config", path], "");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    for part in expected {
        assert!(finished.stderr.contains(part), "{part:?} is missing in {finished:#?}");
    }
    assert!(!finished.stderr.contains("panicked"), "{finished:#?}");
}

#[tokio::test]
async fn a_taken_port_is_named_and_ends_the_start() {
    let taken = Upstream::forbidden_at(([127, 0, 0, 1], 0).into()).await;
    let address = taken.address().to_string();
    for listener in ["api", "telemetry"] {
        let place = format!("/listeners/{listener}/address");
        let config = ConfigBuilder::new().set(&place, json!(address));
        check_start(&config, &[&format!("the {listener} listener cannot listen at {address}: ")]);
    }
}

#[test]
fn a_configuration_that_does_not_hold_ends_the_start() {
    check_start(&ConfigBuilder::new().raw("version: [\n"), &["sortie.yaml:"]);
    let twice = "version: 1\nversion: 1\n";
    check_start(&ConfigBuilder::new().raw(twice), &["sortie.yaml:2:1: ", "version"]);
    let unknown = ConfigBuilder::new().set("/listenerz", json!({}));
    check_start(&unknown, &["sortie.yaml:", "listenerz"]);
    let missing = crate::support::cli::run(["serve", "--config", "/nowhere/sortie.yaml"], "");
    assert_eq!(missing.code, Some(1), "{missing:#?}");
    assert!(missing.stderr.contains("/nowhere/sortie.yaml"), "{missing:#?}");
    assert_eq!(crate::support::cli::run(["serve"], "").code, Some(2));
}
