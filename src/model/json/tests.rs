//! Tests of the JSON reader.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check_text(raw: &str, text: &str) {
    assert_eq!(read_object(raw).unwrap().text(), text.as_bytes());
}

#[track_caller]
fn check_refused(raw: &str, message: &str) {
    assert_eq!(read_object(raw).unwrap_err().to_string(), message, "{raw}");
    let end = message.strip_prefix("must be a JSON object").is_some();
    assert_eq!(check_unique_keys(raw).is_ok(), end, "{raw}");
}

#[test]
fn white_space_goes_and_nothing_else_changes() {
    check_text("{}", "{}");
    check_text(" {\t} \r\n", "{}");
    check_text(r#"{"a":1}"#, r#"{"a":1}"#);
    check_text(
        "{ \"b\" : [ 1e2 , 12345678901234567890, -0.0 ],\n \"a\" : \"x  y\\\" \\\\\" }",
        r#"{"b":[1e2,12345678901234567890,-0.0],"a":"x  y\" \\"}"#,
    );
    check_text(r#"{"\u0061 ": "\u00e9 é"}"#, r#"{"\u0061 ":"\u00e9 é"}"#);
    check_text(r#"{"a": true , "b":null}"#, r#"{"a":true,"b":null}"#);
}

#[test]
fn duplicate_keys_are_refused_at_every_depth() {
    check_refused(r#"{"a":1,"a":1}"#, "the key at `/a` stands twice");
    check_refused(r#"{"a":1,"\u0061":2}"#, "the key at `/a` stands twice");
    check_refused(r#"{"é":1,"\u00E9":2}"#, "the key at `/é` stands twice");
    check_refused(r#"{"":1,"":2}"#, "the key at `/` stands twice");
    check_refused(
        r#"{"a":[{},{"x/y~":{"b":0,"c":1,"b":2}}]}"#,
        "the key at `/a/1/x~1y~0/b` stands twice",
    );
    check_refused(r#"{"a":{"b":1},"b":{"a":{"a":1,"a":[]}}}"#, "the key at `/b/a/a` stands twice");
}

#[test]
fn the_same_key_in_different_objects_is_fine() {
    check_text(r#"{"a":{"a":[{"a":1},{"a":1}]}}"#, r#"{"a":{"a":[{"a":1},{"a":1}]}}"#);
}

#[test]
fn only_objects_are_arguments() {
    for raw in ["[]", "null", "1", "\"{}\"", " [ { } ] ", "true"] {
        check_refused(raw, "must be a JSON object");
    }
}

#[test]
fn what_is_no_json_is_refused() {
    let not_json =
        ["", " ", "{", "{} {}", "{}x", "{'a':1}", "{\"a\":01}", "{\"a\":1,}", "\u{feff}{}"];
    for raw in
        not_json.into_iter().chain(["{\"a\":NaN}", "{\"a\":\"\u{1}\"}", "{\"a\":\"\\ud800\"}"])
    {
        assert!(matches!(read_object(raw), Err(JsonError::Syntax { .. })), "{raw}");
    }
    check_refused(r#"{"a":1e999}"#, "not valid JSON: number out of range at line 1 column 10");
    // White space inside a literal must not disappear before it was judged.
    assert!(read_object(r#"{"a": tr ue}"#).is_err());
    assert!(read_object(r#"{"a": 1 2}"#).is_err());
}

#[test]
fn an_error_never_shows_a_value() {
    for raw in [r#"{"a":"hunter2"#, r#"{"a":hunter2}"#, r#"{"a":"hunter2","a":"hunter2"}"#] {
        let error = read_object(raw).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let nest =
        |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
    assert!(read_object(&nest(MAX_DEPTH)).is_ok());
    for levels in [MAX_DEPTH + 1, MAX_DEPTH + 2, 100_000] {
        assert_eq!(
            read_object(&nest(levels)).unwrap_err(),
            JsonError::TooDeep { limit: MAX_DEPTH }
        );
    }
    assert_eq!(
        read_value(&"{\"a\":".repeat(100_000)),
        Err(JsonError::TooDeep { limit: MAX_DEPTH })
    );
    assert!(read_object(&format!("{{\"a\":\"{}\"}}", "[".repeat(1000))).is_ok());
    assert!(read_object(&format!("{{\"a\":[{}]}}", "[],".repeat(1000) + "[]")).is_ok());
}

#[test]
fn magic_keys_of_the_parser_are_plain_keys() {
    let raw = r#"{"$serde_json::private::RawValue":"1","$serde_json::private::Number":"2"}"#;
    assert_eq!(
        read_object(raw).unwrap().value(),
        &serde_json::json!({
            "$serde_json::private::RawValue": "1",
            "$serde_json::private::Number": "2",
        })
    );
}

/// Any value, from `branches` levels of arrays and objects.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[ \t\n\"\\\\{}:,]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The compact text of a value with white space at every place that allows it.
fn spaced(value: &Value, spaces: &[&str], turn: &mut usize) -> String {
    let mut space = || {
        *turn += 1;
        spaces[*turn % spaces.len()].to_owned()
    };
    let (before, after) = (space(), space());
    let inner = match value {
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| spaced(item, spaces, turn)).collect();
            format!("[{}]", if items.is_empty() { before.clone() } else { items.join(",") })
        }
        Value::Object(members) => {
            let members: Vec<_> = members
                .iter()
                .map(|(key, value)| {
                    format!("{before}{}{after}:{}", json!(key), spaced(value, spaces, turn))
                })
                .collect();
            format!("{{{}}}", if members.is_empty() { before.clone() } else { members.join(",") })
        }
        scalar => scalar.to_string(),
    };
    format!("{before}{inner}{after}")
}

proptest! {
    #[test]
    fn white_space_changes_nothing(
        value in values(),
        spaces in prop::collection::vec(prop::sample::select(&["", " ", "\n", "\t \r\n"][..]), 1..6),
    ) {
        let value = json!({ "value": value });
        let raw = spaced(&value, &spaces, &mut 0);
        let read = read_object(&raw).unwrap();
        prop_assert_eq!(read.value(), &value);
        let text = std::str::from_utf8(read.text()).unwrap();
        prop_assert_eq!(text, value.to_string());
        let again = read_object(text).unwrap();
        prop_assert_eq!(again.text(), read.text());
        prop_assert_eq!(again.value(), read.value());
    }

    #[test]
    fn a_doubled_key_is_always_found(value in values(), key in any::<String>(), at in 0..3_usize) {
        let spelled = json!(key).to_string();
        let escaped: String = key.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let mut members = vec![format!("{spelled}:{value}"), format!("\"{escaped}\":{value}")];
        members.insert(at.min(2), format!("{}:0", json!(format!("{key}x"))));
        let raw = format!("{{\"outer\":[{{{}}}]}}", members.join(","));
        let error = read_value(&raw).unwrap_err();
        let pointer = format!("/outer/0/{}", pointer_step(&key));
        prop_assert_eq!(error.pointer(), &pointer);
        prop_assert_eq!(error, JsonError::DuplicateKey { pointer });
    }

    #[test]
    fn agrees_with_the_parser_on_any_text(raw in "[\\[\\]{}\":, a1\\\\u0-]{0,24}") {
        let plain = serde_json::from_str::<Value>(&raw);
        match read_value(&raw) {
            Ok(value) => prop_assert_eq!(plain.unwrap(), value),
            Err(JsonError::DuplicateKey { .. }) => prop_assert!(true),
            Err(_) => prop_assert!(plain.is_err()),
        }
    }
}
