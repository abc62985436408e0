//! Answers that say no: the model reads the body of a 4xx where its profile says so.

use serde_json::{Value, json};

use crate::support::config::Tool;
use crate::support::fleet::Fleet;
use crate::support::script::{Script, answer, answer_with_headers};
use crate::support::wait::together;

#[tokio::test]
async fn the_model_reads_the_body_of_a_4xx_where_the_profile_says_so() {
    let told = |sentence: &str, body: &str| json!(format!("{sentence}\n{body}"));
    let alone = |status: u16| format!("The tool answered with status {status}.");
    let long = "é".repeat(1500);
    let hint = r#"{"error":"no such order"}"#;
    let json_of = |status| answer(status, "application/json", hint);
    let rows: [(&str, &str, Vec<u8>, Value); 9] = [
        ("json", "bare-v1", json_of(422), told(&alone(422), hint)),
        ("text", "bare-v1", answer(404, "text/plain", "gone"), told(&alone(404), "gone")),
        ("plain", "plain-v1", json_of(400), told(&alone(400), hint)),
        ("long", "bare-v1", answer(400, "text/plain", &long), told(&alone(400), &long[..2048])),
        ("picture", "bare-v1", answer(400, "image/png", "x"), json!(alone(400))),
        ("garbage", "bare-v1", answer(400, "text/plain", b"\xff\xfe"), json!(alone(400))),
        ("empty", "bare-v1", answer(400, "text/plain", ""), json!(alone(400))),
        ("server_error", "plain-v1", json_of(500), json!(alone(500))),
        ("envelope", "envelope-v1", json_of(422), json!(alone(422))),
    ];
    let mut fleet = Fleet::new().await;
    let mut servers = Vec::new();
    for (name, profile, bytes, _) in &rows {
        let shape = |tool: Tool| {
            let tool = tool.profile(profile);
            if *profile == "plain-v1" { tool.no_secret() } else { tool }
        };
        let (next, server) = fleet.plain(name, Script::once(bytes.clone()), shape).await;
        fleet = next;
        servers.push(server);
    }
    let gateway = fleet.config.start().await;
    let outcomes = together(rows.iter().map(|row| gateway.call(row.0, json!({})))).await;
    for ((name, _, _, text), outcome) in rows.iter().zip(&outcomes) {
        outcome.failed("http_status", None, "answered");
        assert_eq!(&outcome.at("/model/text"), text, "{name}");
        let message = outcome.at("/error/message");
        assert!(!message.as_str().expect("a sentence").contains('\n'), "{name}: {message}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn the_body_of_a_failure_that_never_ends_holds_nothing_up() {
    let endless = answer_with_headers(404, &[("Content-Type", "text/plain")], "");
    let endless = String::from_utf8(endless).expect("ASCII").replace("Content-Length: 0\r\n", "");
    let flood = Script::new().request().send(endless.clone()).flood("no such order. ".repeat(1000));
    let (fleet, flooding) =
        Fleet::new().await.plain("flooding", flood, |tool| tool.profile("bare-v1")).await;
    let silent = Script::new().request().send(endless).stall();
    let late = |tool: Tool| tool.profile("bare-v1").set("timeout", json!("1s"));
    let (fleet, silent_server) = fleet.plain("silent", silent, late).await;
    let gateway = fleet.config.start().await;

    let outcome = gateway.call("flooding", json!({})).await;
    outcome.failed("http_status", None, "answered");
    assert!(outcome.model_text().len() < 2048 + 100, "{}", outcome.model_text().len());
    flooding.wait_until_closed(1).await;

    // The status is known, whatever becomes of the body.
    let outcome = gateway.call("silent", json!({})).await;
    outcome.failed("http_status", None, "answered");
    assert_eq!(outcome.model_text(), "The tool answered with status 404.");
    silent_server.wait_until_closed(1).await;
    gateway.finish().await;
}
