//! The fields of a call: each wrong one is named by its pointer, and nothing is sent.

use serde_json::{Value, json};

use crate::api::{call_with, closed_door, error, untouched};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::Gateway;

async fn refused(gateway: &Gateway, changes: Value, field: &str, part: &str) {
    let body = call_with(changes);
    let message = error(&gateway.post(Some(API_KEY), &body).await, 400, "bad_request", Some(field));
    assert!(message.contains(part), "{body}: {message}");
}

#[tokio::test]
async fn each_wrong_field_is_named() {
    let (world, gateway) = closed_door(|config| config).await;
    let long = "x".repeat(300);
    for (field, values, part) in [
        ("tool", vec![json!(null)], "`tool` is required"),
        ("tool", vec![json!(7), json!(["lookup"]), json!(""), json!(long)], "a text of 1 to 128"),
        ("tool", vec![json!("look\r\nup"), json!("look\0")], "without control characters"),
        ("arguments", vec![json!(null)], "`arguments` is required"),
        ("arguments", vec![json!([]), json!("{}"), json!(1), json!(true)], "must be a JSON object"),
        (
            "call_id",
            vec![json!("8f2c"), json!("call_1"), json!("call_8f.c")],
            "`call_` and 4 to 64",
        ),
        ("call_id", vec![json!(7), json!(format!("call_{}", "x".repeat(65)))], "`call_id` must be"),
        ("run_id", vec![json!("a b"), json!("é")], "1 to 128 visible ASCII"),
        ("run_id", vec![json!(7), json!(""), json!(long)], "`run_id` must be"),
        ("step", vec![json!("a b"), json!("\u{7f}")], "`step` must be"),
        ("step", vec![json!(3), json!({})], "`step` must be"),
        (
            "call_index",
            vec![json!(-1), json!(1.5), json!("0"), json!(4294967296_u64)],
            "whole number",
        ),
        ("round", vec![json!(0), json!("1"), json!([])], "whole number"),
        ("turn_index", vec![json!(-1), json!(1.0), json!("1")], "whole number"),
        ("wait_ms", vec![json!(60001), json!(-1), json!("1"), json!(1.5)], "from 0 to 60000"),
        ("resend", vec![json!(1), json!("true"), json!([])], "true or false"),
        ("deadline_ms", vec![json!(0), json!(1200001), json!("1"), json!(true)], "1 to 1200000"),
        ("agent_id", vec![json!(1), json!(""), json!("a\nb"), json!(long)], "a text of 1 to 256"),
        ("session_id", vec![json!({}), json!("\u{85}")], "a text of 1 to 256"),
        ("turn_id", vec![json!(false)], "a text of 1 to 256"),
        ("model_call_id", vec![json!([])], "a text of 1 to 256"),
        ("end_user", vec![json!("x"), json!([]), json!(1)], "must be a JSON object"),
        (
            "credentials",
            vec![json!("x"), json!({"A": 1}), json!({"A": null})],
            "header names to texts",
        ),
        ("credentials", vec![json!({"A": "1", "a": "2"})], "twice"),
    ] {
        for value in values {
            refused(&gateway, json!({field: value}), &format!("/{field}"), part).await;
        }
    }
    let user = |user: Value| json!({"end_user": user});
    refused(&gateway, user(json!({"id": 7})), "/end_user/id", "a text").await;
    refused(&gateway, user(json!({"external_id": []})), "/end_user/external_id", "a text").await;
    refused(&gateway, user(json!({"name": "Zoe"})), "/end_user/name", "`name` is not known").await;
    untouched(world, gateway).await;
}

#[tokio::test]
async fn unknown_fields_are_refused_by_name() {
    let (world, gateway) = closed_door(|config| config).await;
    for name in ["extra", "Tool", "runId", "test", "url", "headers", "a/b", ""] {
        let pointer = format!("/{}", name.replace('/', "~1"));
        let part = format!("`{name}` is not known; known are tool, arguments, ");
        refused(&gateway, json!({name: 1}), &pointer, &part).await;
    }
    untouched(world, gateway).await;
}

#[tokio::test]
async fn a_run_and_a_step_are_needed_where_a_key_is_sent() {
    let (world, gateway) =
        closed_door(|config| config.set("/tools/0/profile", json!("bare-v1"))).await;
    for name in ["run_id", "step"] {
        let part = format!("`{name}` is required");
        refused(&gateway, json!({name: null}), &format!("/{name}"), &part).await;
    }
    untouched(world, gateway).await;
}

fn with_credentials(config: ConfigBuilder) -> ConfigBuilder {
    config.set("/tools/0/accept_credentials", json!(["X-User-Token"])).watch("person-Kx83Wq2m")
}

#[tokio::test]
async fn only_listed_credentials_are_taken() {
    let (world, gateway) = closed_door(with_credentials).await;
    let token = "person-Kx83Wq2m";
    for name in ["Authorization", "X-Other", "X-User-Token2", "X-Tool-Call", "Host", "a/b"] {
        let changes = json!({"credentials": {name: token}});
        let pointer = format!("/credentials/{}", name.replace('/', "~1"));
        refused(&gateway, changes, &pointer, "is not among the tool's accept_credentials").await;
    }
    for value in ["", "a\r\nX-Evil: 1", "a\nb", "a\0b", "é", "\u{7f}", &"x".repeat(4097)] {
        let changes = json!({"credentials": {"x-user-token": value}});
        refused(&gateway, changes, "/credentials/x-user-token", "`x-user-token`").await;
    }
    untouched(world, gateway).await;
}
