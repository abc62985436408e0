//! Arguments: what does not fit never leaves, what fits arrives as it was written, and nothing in it becomes a header.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::support::config::{API_KEY, ConfigBuilder, Tool};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::world::World;

fn scan_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "scanId": {"type": "string", "pattern": r"^RX-\d{4,}$"},
            "count": {"type": "integer", "minimum": 1, "maximum": 10},
            "mode": {"enum": ["fast", "full"]},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "minLength": 1}},
            "where": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}},
        },
        "required": ["scanId"],
        "additionalProperties": false,
    })
}

/// A gateway with the tool `scan` of `bare-v1`, which answers.
async fn scanner() -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let tool = world.tool("scan").profile("bare-v1").parameters(scan_schema());
    let gateway = world.gateway(tool).await;
    (world, gateway)
}

#[tokio::test]
async fn a_pattern_decides_what_is_sent() {
    let (world, gateway) = scanner().await;
    let call = |step: &str, scan: &str| json!({"tool": "scan", "arguments": {"scanId": scan}, "run_id": "run_7Hq2xV", "step": step});
    let refused = gateway.call_with(call("3", "RX-447")).await;
    refused.refused("invalid_arguments", None);
    let text = r"The arguments do not fit the tool: /scanId must match ^RX-\d{4,}$.";
    assert_eq!(refused.model_text(), text);
    assert_eq!(refused.at("/error/details/0/pointer"), "/scanId");
    assert!(world.upstream.requests().is_empty());
    // The model may try again in the same run.
    gateway.call_with(call("4", "RX-4471")).await.succeeded();
    assert_eq!(world.upstream.only_request().body, br#"{"scanId":"RX-4471"}"#);
    gateway.finish().await;
}

#[tokio::test]
async fn f125_what_was_validated_is_what_arrives() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let open = json!({"type": "object"});
    let gateway = world
        .config()
        .tool(world.tool("bare").profile("bare-v1").parameters(open.clone()))
        .tool(world.tool("wrapped").parameters(json!({"type": "object", "properties": {}})))
        .start()
        .await;
    for (written, sent) in [
        ("{}", "{}"),
        ("  { \t\r\n } ", "{}"),
        (r#"{"n":1e2}"#, r#"{"n":1e2}"#),
        (r#"{"n": 12345678901234567890 }"#, r#"{"n":12345678901234567890}"#),
        (
            r#"{"n":[1E+2,-0,0.10,1.0,100000000000000000000000.5]}"#,
            r#"{"n":[1E+2,-0,0.10,1.0,100000000000000000000000.5]}"#,
        ),
        (r#"{ "z" : 1 , "a" : [ 1 , { } ] , "m" : null }"#, r#"{"z":1,"a":[1,{}],"m":null}"#),
        (r#"{"t":"a  b\u0041\/\n\ud83d\udce6📦"}"#, r#"{"t":"a  b\u0041\/\n\ud83d\udce6📦"}"#),
        (r#"{"t":" \" { , : } \\"}"#, r#"{"t":" \" { , : } \\"}"#),
        (r#"{"":{"a/b~c":true}}"#, r#"{"":{"a/b~c":true}}"#),
    ] {
        for tool in ["bare", "wrapped"] {
            let step = gateway.next_step();
            let body = format!(
                r#"{{"tool":"{tool}","run_id":"r","step":"{step}","arguments":{written}}}"#
            );
            Outcome(gateway.post(Some(API_KEY), body).await).succeeded();
            let request = world.upstream.requests().pop().expect("a request");
            let arrived = String::from_utf8(request.body).expect("UTF-8");
            match tool {
                "bare" => assert_eq!(arrived, sent),
                _ => assert!(
                    arrived.contains(&format!(r#","arguments":{sent},"agent_id":"#)),
                    "{arrived}"
                ),
            }
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_tool_without_parameters_takes_none() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = world.gateway(world.tool("ping").set("parameters", Value::Null)).await;
    gateway.call("ping", json!({})).await.succeeded();
    let refused = gateway.call("ping", json!({"a": 1})).await;
    refused.refused("invalid_arguments", None);
    assert_eq!(
        refused.model_text(),
        "The arguments do not fit the tool: /a is not a known argument."
    );
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test]
async fn five_problems_are_told_and_no_value() {
    let (world, gateway) = scanner().await;
    let arguments = json!({
        "scanId": "value-1", "count": 99, "mode": "value-2", "tags": ["", 7, "value-3"],
        "where": {"city": 8}, "extra": "value-4",
    });
    let refused = gateway.call("scan", arguments).await;
    refused.refused("invalid_arguments", None);
    let details = refused.at("/error/details");
    let details = details.as_array().expect("a list");
    assert_eq!(details.len(), 5, "{details:?}");
    let text = refused.model_text();
    for detail in details {
        let part = |name: &str| detail[name].as_str().expect("a text").to_owned();
        assert!(text.contains(&format!("{} {}", part("pointer"), part("message"))), "{text}");
        assert!(!part("keyword").is_empty());
    }
    assert!(!refused.0.text().contains("value-"), "{}", refused.0.text());
    assert!(world.upstream.requests().is_empty());
    gateway.finish().await;
}

/// The schema above, read by somebody else.
fn fits(arguments: &Map<String, Value>) -> bool {
    let pattern = Regex::new(r"^RX-[0-9]{4,}$").expect("a pattern");
    let named = |name: &str, fit: &dyn Fn(&Value) -> bool| arguments.get(name).is_none_or(fit);
    let known = ["scanId", "count", "mode", "tags", "where"];
    arguments.keys().all(|name| known.contains(&name.as_str()))
        && arguments.get("scanId").and_then(Value::as_str).is_some_and(|id| pattern.is_match(id))
        && named("count", &|value| value.as_i64().is_some_and(|count| (1..=10).contains(&count)))
        && named("mode", &|value| *value == "fast" || *value == "full")
        && named("tags", &|value| {
            let filled = |tag: &Value| tag.as_str().is_some_and(|tag| !tag.is_empty());
            value.as_array().is_some_and(|tags| tags.len() <= 2 && tags.iter().all(filled))
        })
        && named("where", &|value| value["city"].is_string())
}

/// Any JSON; its numbers are whole or end in .5, so that `1.0` raises no question.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-20_i32..20).prop_map(Value::from),
        any::<i32>().prop_map(|whole| json!(f64::from(whole) + 0.5)),
        ".{0,8}".prop_map(Value::from),
        "RX-[0-9]{0,5}x?".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}|city", inner, 0..3)
                .prop_map(|map| Value::from(Map::from_iter(map))),
        ]
    })
}

/// Arguments near the schema: each name has a good value, any value, or none.
fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    let good = [
        ("scanId", json!("RX-4471")),
        ("count", json!(3)),
        ("mode", json!("fast")),
        ("tags", json!(["a"])),
        ("where", json!({"city": "Ulm"})),
    ];
    let members: Vec<_> = good
        .into_iter()
        .map(|(name, value)| {
            let value = prop_oneof![3 => Just(Some(value)), 1 => anything().prop_map(Some), 1 => Just(None)];
            value.prop_map(move |value| value.map(|value| (name.to_owned(), value)))
        })
        .collect();
    let extra = prop::option::weighted(0.2, ("[a-zA-Z_]{0,6}", anything()));
    (members, extra)
        .prop_map(|(members, extra)| members.into_iter().flatten().chain(extra).collect())
}

#[tokio::test]
async fn no_invalid_arguments_reach_the_tool() {
    let (world, gateway) = scanner().await;
    let mut runner = TestRunner::deterministic();
    let (mut invalid, mut valid) = (0, 0);
    while invalid < 200 {
        let arguments = arguments().new_tree(&mut runner).expect("arguments").current();
        let fits = fits(&arguments);
        if fits && valid == 20 {
            continue;
        }
        let outcome = gateway.call("scan", Value::from(arguments.clone())).await;
        if fits {
            valid += 1;
            outcome.succeeded();
            let sent = world.upstream.requests().pop().expect("a request");
            assert_eq!(sent.json(), Value::from(arguments));
        } else {
            invalid += 1;
            outcome.refused("invalid_arguments", None);
            let text = outcome.model_text();
            assert!(text.starts_with("The arguments do not fit the tool: "), "{text}");
            assert_ne!(outcome.at("/error/details"), json!([]));
        }
    }
    assert_eq!(valid, 20, "the valid ones prove that the check lets something through");
    assert_eq!(world.upstream.requests().len(), valid);
    let counted = [("tool", "scan"), ("code", "invalid_arguments"), ("fault", "caller")];
    assert_eq!(gateway.metrics().await.value("sortie_calls_total", &counted), 200.0);
    gateway.finish().await;
}

#[track_caller]
fn check(profile: &str, schema: Value, errors: &[&str]) {
    let tool = Tool::new("x", "https://tool.example.com/").profile(profile).parameters(schema);
    let dns = "127.0.0.1:5353".parse().expect("an address");
    let finished = ConfigBuilder::new().tool(tool).dns_at(dns).check(&[]);
    let expected = i32::from(!errors.is_empty());
    assert_eq!(finished.code, Some(expected), "{finished:#?}");
    for error in errors {
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains(&format!("tools[0].parameters{error}")), "{error}: {said}");
    }
}

#[test]
fn the_subset_names_what_it_does_not_take() {
    let with = |a: Value| json!({"type": "object", "properties": {"a": a}});
    for (schema, error) in [
        (json!({"type": "string", "pattern": "^RX"}), ".properties.a.pattern: "),
        (json!({"type": "string", "format": "date"}), ".properties.a.format: "),
        (json!({"type": "integer", "minimum": 1}), ".properties.a.minimum: "),
        (json!({"type": ["string", "null"]}), ".properties.a.type: "),
        (json!({"anyOf": [{"type": "string"}]}), ".properties.a"),
        (json!({"$ref": "#/$defs/a"}), ".properties.a"),
        (json!({"type": "integer", "enum": [1]}), ".properties.a.enum: "),
    ] {
        check("envelope-v1", with(schema), &[error]);
    }
    let closed = json!({"type": "object", "properties": {}, "additionalProperties": false});
    check("envelope-v1", closed, &[".additionalProperties: "]);
    check(
        "envelope-v1",
        json!({"type": "object", "properties": {}, "required": ["a"]}),
        &[".required"],
    );
    let all = json!({
        "type": "object",
        "description": "All that there is.",
        "properties": {
            "s": {"type": "string", "enum": ["a"], "description": "A word."},
            "n": {"type": "number"}, "i": {"type": "integer"}, "b": {"type": "boolean"},
            "l": {"type": "array", "items": {"type": "object", "properties": {}}},
        },
        "required": ["s"],
    });
    check("envelope-v1", all, &[]);
}

#[tokio::test]
async fn nothing_in_a_call_becomes_a_header() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = world
        .config()
        .tool(world.tool("bare").profile("bare-v1").parameters(json!({"type": "object"})))
        .tool(world.tool("wrapped"))
        .start()
        .await;
    let evil = "a\r\nX-Evil: 1\r\n\r\nPOST / HTTP/1.1\u{2028}\u{0}\u{7f}";
    let ids = r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##;
    let quoted = r#"x"},"test":true,"arguments":{"#;
    let call = |tool: &str, index: u32| {
        json!({
            "tool": tool, "run_id": ids, "step": ids, "call_index": index,
            "arguments": {"a": evil, evil: [evil]},
            "agent_id": quoted, "session_id": quoted, "turn_id": "é📦\u{2028}",
            "end_user": {"id": quoted, "external_id": quoted}, "model_call_id": quoted,
        })
    };
    gateway.call_with(call("bare", 0)).await.succeeded();
    gateway.call_with(call("wrapped", 1)).await.succeeded();
    let requests = world.upstream.requests();
    assert_eq!(requests.len(), 2);
    let names = |index: usize| -> Vec<_> {
        let headers = requests[index].headers();
        headers.into_iter().map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(
        names(0),
        ["Host", "Content-Type", "CL-Signature", "CL-Run-Id", "Idempotency-Key", "Content-Length"]
    );
    assert_eq!(requests[0].header("CL-Run-Id"), Some(ids));
    assert_eq!(requests[0].json(), json!({"a": evil, evil: [evil]}));
    assert_eq!(
        names(1),
        [
            "Host",
            "Content-Type",
            "User-Agent",
            "X-Tool-Name",
            "X-Tool-Call",
            "X-Tool-Signature",
            "Content-Length"
        ]
    );
    let body = requests[1].json();
    assert_eq!(body.as_object().map(Map::len), Some(9), "{body}");
    assert_eq!((&body["agent_id"], &body["test"]), (&json!(quoted), &json!(false)));
    assert_eq!(body["end_user"], json!({"id": quoted, "external_id": quoted}));
    assert_eq!(body["arguments"], json!({"a": evil, evil: [evil]}));
    gateway.finish().await;
}
