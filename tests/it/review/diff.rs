//! `sortie diff`: what a change opens.

use serde_json::{Value, json};

use crate::support::cli::{Finished, run};
use crate::support::config::{ConfigBuilder, Folder, Tool};

fn exception(cidrs: &[&str]) -> Value {
    json!({"tools": ["wms"], "hosts": ["wms.corp.example.com"], "cidrs": cidrs, "reason": "vpn", "owner": "logistics"})
}

fn config() -> ConfigBuilder {
    ConfigBuilder::new().exception(exception(&["10.20.0.0/16"])).tool(
        Tool::new("lookup_order", "https://shop.example.com/lookup")
            .set("policy", json!("require_approval"))
            .set("rate_limits", json!([{"per": "tool", "rate": "60/min"}])),
    )
}

fn diff(old: &Folder, new: &Folder, format: &str) -> Finished {
    let path = |folder: &Folder| folder.config.to_str().expect("UTF-8").to_owned();
    let finished = run(["diff", &path(old), &path(new), "--format", format], "");
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    for folder in [old, new] {
        folder.canaries.assert_absent("the output of diff", &printed);
    }
    finished
}

#[test]
fn what_a_change_opens_is_named_and_nothing_else() {
    let old = config().write();
    let new = config()
        .set("/egress/exceptions/0/cidrs", json!(["10.20.0.0/16", "10.30.0.0/16"]))
        .set("/tools/0/policy", json!("allow"))
        .set("/tools/0/rate_limits", json!([]))
        .write();
    let text = diff(&old, &new, "text");
    assert_eq!(text.code, Some(3), "{text:?}");
    let expected = "\
looser   egress.exceptions[0].cidrs: 10.20.0.0/16 -> 10.20.0.0/16, 10.30.0.0/16 (private ranges that are opened)
looser   tools.lookup_order.policy: require_approval -> allow (policy)
looser   tools.lookup_order.rate_limits.tool: 60/min (at most 60 at once) -> none (rate limit)
3 looser, 0 tighter, 0 neutral
";
    assert_eq!(text.stdout, expected);
    let json = diff(&old, &new, "json");
    let found: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((json.code, &found["looser"]), (Some(3), &json!(3)));
    let paths: Vec<&str> = found["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| change["path"].as_str().expect("a path"))
        .collect();
    let places = ["exceptions[0].cidrs", "policy", "rate_limits.tool"];
    assert_eq!(paths.len(), places.len());
    assert!(paths.iter().zip(places).all(|(path, end)| path.ends_with(end)), "{paths:?}");
    let markdown = diff(&old, &new, "markdown");
    assert_eq!(markdown.code, Some(3));
    assert_eq!(markdown.stdout.matches("| **looser** |").count(), 3, "{}", markdown.stdout);
    let back = diff(&new, &old, "text");
    assert_eq!(back.code, Some(0), "{back:?}");
    assert_eq!(back.stdout.matches("tighter  ").count(), 3, "{}", back.stdout);
}

#[test]
fn what_is_the_same_is_said_to_be() {
    let (old, new) = (config().write(), config().write());
    let finished = diff(&old, &new, "text");
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), "nothing changed\n"));
}

#[test]
fn findings_of_both_files_are_told_with_their_places() {
    let old = ConfigBuilder::new().raw("version: 2\nauth: none\n").write();
    let new = ConfigBuilder::new().raw("version: 1\nauth: none\nnonsense: 1\n").write();
    let finished = diff(&old, &new, "json");
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""), "{finished:?}");
    for (folder, place) in [(&old, "1:10: version: "), (&new, "3:1: nonsense: ")] {
        let line = format!("{}:{place}", folder.config.display());
        assert!(finished.stderr.contains(&line), "no {line} in {}", finished.stderr);
    }
    let config = new.config.to_str().expect("UTF-8");
    assert_eq!(run(["diff", config], "").code, Some(2));
    assert_eq!(run(["diff", config, "/nowhere/at/all"], "").code, Some(1));
}
