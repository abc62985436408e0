//! Examples fit their schemas, and no schema is too odd.

use super::*;
use crate::model::json::read_object;
use crate::policy::schema::{ArgumentSchema, Dialect};
use proptest::prelude::*;
use serde_json::json;

#[track_caller]
fn check(schema: Value) {
    let schema = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    let compiled = ArgumentSchema::compile(Some(&schema), Dialect::Full).expect("a schema");
    for extent in [Extent::Full, Extent::Required] {
        let made = sample(&schema, extent).expect("a value");
        let arguments = read_object(&made.to_string()).expect("an object");
        assert!(compiled.check(&arguments).is_ok(), "{schema}: {made}");
    }
}

#[test]
fn common_keywords_are_satisfied() {
    check(json!({"type": "string"}));
    check(json!({"type": "string", "minLength": 12}));
    check(json!({"type": "string", "maxLength": 2}));
    check(json!({"type": "string", "format": "date-time"}));
    check(json!({"type": "string", "pattern": r"^RX-\d{4,}$"}));
    check(json!({"enum": ["x", 2]}));
    check(json!({"const": null}));
    check(json!({"type": "integer", "minimum": 5}));
    check(json!({"type": "integer", "exclusiveMinimum": 5, "multipleOf": 4}));
    check(json!({"type": "number", "maximum": -2}));
    check(json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}));
    check(json!({"type": ["null", "boolean"]}));
    check(json!({"type": "array", "items": {"type": "integer"}, "minItems": 3}));
    check(json!({"type": "array", "maxItems": 0}));
    check(
        json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false}),
    );
    check(
        json!({"allOf": [{"type": "object", "properties": {"b": {"type": "string"}}}, {"properties": {"c": {"type": "integer"}}, "required": ["c"]}]}),
    );
    check(json!({"anyOf": [{"type": "string", "minLength": 9}, {"type": "null"}]}));
    check(json!({"oneOf": [{"type": "integer"}, {"type": "string"}]}));
}

#[test]
fn a_schema_that_leads_back_ends() {
    let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}, "required": ["n"]});
    let schema = json!({"$defs": {"node": node}, "$ref": "#/$defs/node"});
    assert!(sample(&schema, Extent::Full).is_some());
    let endless = json!({"$ref": "#"});
    assert_eq!(sample(&endless, Extent::Full), None);
    let endless = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    assert_eq!(sample(&endless, Extent::Full), None);
    let doubled = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
    sample(&doubled, Extent::Full);
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!(null)),
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        "[a-z#/]{0,6}".prop_map(|text| json!(text)),
        Just(json!({"$ref": "#"})),
    ];
    let words = prop::sample::select(vec![
        "type",
        "properties",
        "required",
        "items",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "exclusiveMinimum",
        "maximum",
        "multipleOf",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "const",
        "$ref",
        "pattern",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((words.clone(), inner), 0..5).prop_map(|pairs| pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_is_too_odd(schema in any_schema()) {
        sample(&schema, Extent::Full);
        sample(&schema, Extent::Required);
    }
}
