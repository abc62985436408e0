//! `sortie explain`: one tool as it is in force, and the page for the author of its server.

use serde_json::{Value, json};

use crate::support::cli::{Finished, run};
use crate::support::config::{ConfigBuilder, Folder, Tool};

fn config() -> ConfigBuilder {
    let schema = json!({"type": "object", "properties": {
        "order_number": {"type": "string", "pattern": "^A-[0-9]{4}$"},
        "lines": {"type": "integer", "minimum": 1}}, "required": ["order_number"]});
    ConfigBuilder::new()
        .exception(json!({"tools": ["lookup_order"], "hosts": ["shop.corp.example.com"], "cidrs": ["10.20.0.0/16"],
            "reason": "shop on the VPN", "owner": "logistics"}))
        .tool(
            Tool::new("lookup_order", "https://shop.corp.example.com/lookup?token=hidden")
                .profile("bare-v1")
                .parameters(schema)
                .header("Authorization", "Bearer ", "shop-token-XyZ")
                .set("owner", json!("shop-team"))
                .set("runbook", json!("https://wiki.example.com/shop"))
                .set("rate_limits", json!([{"per": "tool", "rate": "60/min"}])),
        )
        .tool(Tool::new("refund", "https://shop.example.com/refund").set("timeout", json!("5s")))
        .watch("token=hidden")
}

fn explain(folder: &Folder, arguments: &[&str]) -> Finished {
    let finished = run([&["explain"], arguments].concat(), "");
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    folder.canaries.assert_absent("the output of explain", &printed);
    finished
}

fn path(folder: &Folder) -> &str {
    folder.config.to_str().expect("UTF-8")
}

#[test]
fn a_tool_is_told_as_it_is_in_force() {
    let folder = config().write();
    let finished = explain(&folder, &[path(&folder), "lookup_order", "--no-dns"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let line = |name: &str| {
        let line = finished.stdout.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {}", finished.stdout));
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(line("owner"), "shop-team");
    assert_eq!(line("runbook"), "https://wiki.example.com/shop");
    assert_eq!(line("url"), "https://shop.corp.example.com/lookup?***");
    assert_eq!(line("may be called"), "allow (ok)");
    assert!(line("exception").contains("shop on the VPN"), "{}", finished.stdout);
    assert_eq!(line("profile"), "bare-v1");
    assert_eq!(
        line("headers"),
        "Host, Content-Type, CL-Signature, CL-Run-Id, Idempotency-Key, Authorization (from the tool), Content-Length"
    );
    assert_eq!(line("policy"), "allow, by the tool");
    assert_eq!(line("capture"), "full");
    assert!(line("attempts").starts_with("3; again after"), "{}", finished.stdout);
    assert_eq!(line("rate limits"), "60/min for each tool, 60 at once");
}

#[test]
fn options_may_stand_anywhere_and_json_says_the_same() {
    let folder = config().write();
    let (file, tool) = (path(&folder), "lookup_order");
    for arguments in
        [["--no-dns", "--format", "json", file, tool], [file, "--no-dns", tool, "--format", "json"]]
    {
        let finished = explain(&folder, &arguments);
        let found: Value = serde_json::from_str(&finished.stdout).expect("JSON");
        assert_eq!(finished.code, Some(0));
        assert_eq!(found["tool"], "lookup_order");
        assert_eq!(
            found["url_verdict"],
            json!({"verdict": "allow", "code": "ok", "addresses": []})
        );
        assert_eq!(found["exception"]["reason"], "shop on the VPN");
        assert_eq!(found["headers"][5], json!({"name": "Authorization", "from": "tool"}));
        assert_eq!(found["policy"]["from"], "the tool");
    }
}

#[test]
fn a_tool_that_is_not_there_names_those_that_are_near() {
    let folder = config().write();
    let finished = explain(&folder, &[path(&folder), "lookup_ordr"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""));
    assert!(finished.stderr.contains("did you mean lookup_order?"), "{}", finished.stderr);
    let finished = explain(&folder, &[path(&folder), "weather"]);
    assert!(finished.stderr.contains("there are lookup_order, refund"), "{}", finished.stderr);
    assert_eq!(explain(&folder, &[path(&folder)]).code, Some(2));
}

#[test]
fn a_secret_that_is_missing_is_said_and_its_header_still_has_its_place() {
    let folder = config().write();
    std::fs::remove_file(folder.path().join("secrets/lookup_order.Authorization"))
        .expect("removed");
    let finished = explain(&folder, &[path(&folder), "lookup_order", "--no-dns"]);
    assert!(finished.stdout.contains("unavailable: file `"), "{}", finished.stdout);
    assert!(finished.stdout.contains("Authorization (from the tool)"), "{}", finished.stdout);
    assert!(finished.stdout.contains("warning "), "{}", finished.stdout);
}

#[test]
fn the_page_for_the_author_has_a_request_that_verifies() {
    let folder = config().write();
    let finished = explain(&folder, &[path(&folder), "lookup_order", "--author"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let request =
        finished.stdout.split("```http\n").nth(1).and_then(|rest| rest.split("\n```").next());
    let (head, body) = request.expect("a request").split_once("\n\n").expect("a body");
    assert_eq!(head.lines().next(), Some("POST /lookup?*** HTTP/1.1"));
    assert_eq!(body, r#"{"lines":1,"order_number":"A-0000"}"#);
    let value = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_else(|| panic!("no {name} in {head}")).to_owned()
    };
    assert_eq!(value("Authorization"), "***");
    assert_eq!(value("Content-Length"), body.len().to_string());
    let secret = folder.path().join("example");
    std::fs::write(&secret, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX").expect("written");
    let (secret, signature) = (secret.to_str().expect("UTF-8"), value("CL-Signature"));
    let now = signature.split(',').next().and_then(|t| t.strip_prefix("t=")).expect("a time");
    let verified = run(
        [
            "verify",
            "--profile",
            "bare-v1",
            "--secret-file",
            secret,
            "--now",
            now,
            "--header",
            &signature,
        ],
        body,
    );
    assert_eq!(verified.code, Some(0), "{verified:?}");
    for promise in ["Within 30s", "2048 bytes", "For authors of tool servers", "Attempts: 3"] {
        assert!(finished.stdout.contains(promise), "no {promise} in {}", finished.stdout);
    }
}

#[test]
fn a_schema_without_an_example_is_said_to_have_none() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^\\p{Lu}$"}}, "required": ["a"]});
    let tool = Tool::new("odd", "https://a.example.com/").profile("bare-v1").parameters(schema);
    let folder = ConfigBuilder::new().tool(tool).write();
    let finished = explain(&folder, &[path(&folder), "odd", "--author"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stdout.contains("No example could be made"), "{}", finished.stdout);
}
