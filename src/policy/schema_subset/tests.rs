//! Tests of the subset.

use serde_json::json;

use super::*;

#[track_caller]
fn check(schema: Value, expected: &[(&str, &str)]) {
    let found = faults(&schema);
    let found: Vec<_> = found.iter().map(|(p, m)| (p.as_str(), m.as_str())).collect();
    assert_eq!(found, expected, "{schema}");
}

/// A schema whose property `p` is this one.
#[track_caller]
fn check_property(schema: Value, expected: &[(&str, &str)]) {
    let schema = json!({"type": "object", "properties": {"p": schema}});
    check(schema, expected);
}

#[test]
fn one_of_each_type_is_taken() {
    check(json!({"type": "object"}), &[]);
    check(
        json!({
            "type": "object",
            "description": "All of it.",
            "properties": {
                "type": {"type": "string", "enum": ["a", "b"], "description": "A word."},
                "enum": {"type": "number"},
                "c/~": {"type": "integer"},
                "d": {"type": "boolean"},
                "e": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
                "f": {"type": "array"},
                "g": {
                    "type": "object",
                    "properties": {"h": {"type": "object", "properties": {}}},
                    "required": ["h"],
                },
            },
            "required": ["type", "c/~"],
        }),
        &[],
    );
}

#[test]
fn the_top_is_an_object() {
    for top in [json!(true), json!([]), json!(null), json!("object")] {
        check(top, &[("", "must be an object with `type`")]);
    }
    for kind in [json!("array"), json!("string"), json!(["object"]), json!("Object")] {
        let message = "must be \"object\": arguments are an object";
        check(json!({"type": kind}), &[("/type", message)]);
    }
    check(json!({}), &[("", "must have `type`")]);
}

#[test]
fn every_other_keyword_is_refused_by_its_pointer() {
    for keyword in [
        "$ref",
        "$schema",
        "$defs",
        "additionalProperties",
        "allOf",
        "anyOf",
        "const",
        "default",
        "examples",
        "format",
        "maxLength",
        "maximum",
        "minimum",
        "not",
        "nullable",
        "oneOf",
        "pattern",
        "title",
        "x-mine",
        "Type",
        "",
    ] {
        let message = "this profile does not take this keyword";
        let expected = [(&*format!("/properties/p/{keyword}"), message)];
        check_property(json!({"type": "string", keyword: {}}), &expected);
        let expected = [(&*format!("/{keyword}"), message)];
        check(json!({"type": "object", keyword: {}}), &expected);
    }
}

#[test]
fn keywords_belong_to_their_type() {
    let string = "only type string takes this keyword";
    check_property(json!({"type": "integer", "enum": [1]}), &[("/properties/p/enum", string)]);
    let array = "only type array takes this keyword";
    check_property(json!({"type": "string", "items": {}}), &[("/properties/p/items", array)]);
    let object = "only type object takes this keyword";
    let at = [("/properties/p/required", object)];
    check_property(json!({"type": "string", "required": []}), &at);
    check(json!({"type": "object", "enum": ["a"]}), &[("/enum", string)]);
}

#[test]
fn all_faults_are_listed() {
    check(
        json!({
            "type": "object",
            "description": 1,
            "properties": {
                "a": {"type": "null"},
                "b": {},
                "c": true,
                "d": {"type": "string", "enum": []},
                "e": {"type": "string", "enum": ["x", 1]},
                "f": {"type": ["string", "null"]},
                "g~/": {"type": "array", "items": [{"type": "string"}]},
                "h": {"type": "object", "properties": [], "required": "h"},
            },
            "required": ["a", "z", 1, "a"],
        }),
        &[
            ("/description", "must be a string"),
            (
                "/properties/a/type",
                "must be one of array, boolean, integer, number, object, string",
            ),
            ("/properties/b", "must have `type`"),
            ("/properties/c", "must be an object with `type`"),
            ("/properties/d/enum", "must be a list of strings, at least one"),
            ("/properties/e/enum/1", "must be a string"),
            (
                "/properties/f/type",
                "must be one of array, boolean, integer, number, object, string",
            ),
            ("/properties/g~0~1/items", "must be an object with `type`"),
            ("/properties/h/properties", "must be an object of schemas"),
            ("/properties/h/required", "must be a list of property names"),
            ("/required/1", "there is no property `z`"),
            ("/required/2", "must be a string"),
            ("/required/3", "stands twice"),
        ],
    );
}
