//! Tests of what the validator's errors say.

use serde_json::json;

use super::*;

#[track_caller]
fn problems(schema: &Value, arguments: &Value) -> Vec<Problem> {
    let validator = jsonschema::draft202012::new(schema).unwrap();
    validator.iter_errors(arguments).flat_map(|error| problems_of(&error, arguments)).collect()
}

/// Arguments against a schema: pointers and messages.
#[track_caller]
fn check(schema: Value, arguments: Value, expected: &str) {
    let found = problems(&schema, &arguments);
    let found: Vec<_> = found.iter().map(|p| format!("{} {}", p.pointer, p.message)).collect();
    assert_eq!(found.join("; "), expected, "{schema} {arguments}");
}

/// The property `p` against its schema.
#[track_caller]
fn check_property(schema: Value, value: Value, expected: &str) {
    check(json!({"type": "object", "properties": {"p": schema}}), json!({ "p": value }), expected);
}

#[test]
fn each_keyword_says_what_would_be_right() {
    check_property(json!({"type": "string"}), json!(1), "/p must be a string");
    check_property(json!({"type": "integer"}), json!(1.5), "/p must be an integer");
    check_property(json!({"type": "integer"}), json!(2.0), "");
    check_property(json!({"type": "array"}), json!({}), "/p must be an array");
    check_property(json!({"type": "boolean"}), json!("true"), "/p must be true or false");
    check_property(json!({"type": ["object", "null"]}), json!(1), "/p must be null or an object");
    check_property(json!({"enum": ["a", "b"]}), json!("c"), r#"/p must be one of "a", "b""#);
    check_property(json!({"enum": ["a"]}), json!("c"), r#"/p must be "a""#);
    check_property(json!({"const": 1}), json!("c"), "/p must be 1");
    check_property(json!({"maximum": 10}), json!(11), "/p must be at most 10");
    check_property(json!({"minimum": 1.5}), json!(1), "/p must be at least 1.5");
    check_property(json!({"exclusiveMaximum": 10}), json!(10), "/p must be less than 10");
    check_property(json!({"exclusiveMinimum": 10}), json!(10), "/p must be more than 10");
    check_property(json!({"multipleOf": 0.1}), json!(0.15), "/p must be a multiple of 0.1");
    check_property(json!({"maxLength": 1}), json!("ab"), "/p must be at most 1 characters long");
    check_property(json!({"minLength": 2}), json!("é"), "/p must be at least 2 characters long");
    check_property(json!({"maxItems": 1}), json!([1, 2]), "/p must have at most 1 items");
    check_property(json!({"minItems": 1}), json!([]), "/p must have at least 1 items");
    check_property(
        json!({"uniqueItems": true}),
        json!([1, 1]),
        "/p must not have the same item twice",
    );
    check_property(json!({"contains": {"const": 1}}), json!([2]), "/p must fit contains");
    check_property(
        json!({"not": {"type": "null"}}),
        json!(null),
        "/p must not fit the schema under not",
    );
    check_property(
        json!({"maxProperties": 0}),
        json!({"a": 1}),
        "/p must have at most 0 properties",
    );
    check_property(json!(false), json!(1), "/p must not be given");
    check_property(
        json!({"propertyNames": {"pattern": "^[a-z]$"}}),
        json!({"A": 1}),
        "/p must have fitting property names: each must match ^[a-z]$",
    );
}

#[test]
fn alternatives_are_joined_where_they_are_simple() {
    let nullable = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
    check_property(nullable, json!(1), "/p must be a string or must be null");
    let required = json!({"oneOf": [{"required": ["x"]}, {"type": "null"}]});
    check_property(required, json!({}), r#"/p must have "x" or must be null"#);
    let deep = json!({"anyOf": [{"properties": {"x": {"type": "null"}}}, {"type": "null"}]});
    check_property(deep, json!({"x": 1}), "/p must fit anyOf");
    let both = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    check_property(both, json!(1), "/p must fit only one schema of oneOf");
}

#[test]
fn the_pointer_leads_to_the_argument() {
    let schema = json!({
        "additionalProperties": false,
        "required": ["a/b", "list"],
        "properties": {"a/b": {}, "list": {"items": {"type": "string"}}},
    });
    check(
        schema,
        json!({"list": ["x", 1], "~": 1, "z": 2}),
        "/a~1b is required; /list/1 must be a string; /z is not a known argument; /~0 is not a known \
         argument",
    );
    check(json!({"minProperties": 2}), json!({"a": 1}), " must have at least 2 properties");
    let unevaluated = json!({"unevaluatedProperties": false, "allOf": [{"properties": {"a": {}}}]});
    check(unevaluated, json!({"a": 1, "b": 1}), "/b is not a known argument");
    for closed in [
        json!({"additionalProperties": false}),
        json!({"additionalProperties": false, "properties": {}}),
    ] {
        check(
            closed.clone(),
            json!({"a": {}, "b": 1}),
            "/a is not a known argument; /b is not a known argument",
        );
        check_property(closed, json!({"a/": 1}), "/p/a~1 is not a known argument");
    }
    check_property(
        json!({"properties": {"additionalProperties": false}}),
        json!({"additionalProperties": {}}),
        "/p/additionalProperties must not be given",
    );
    let found = problems(&json!({"required": ["a"]}), &json!({}));
    let expected =
        Problem { pointer: "/a".into(), keyword: "required".into(), message: "is required".into() };
    assert_eq!(found, [expected]);
}
