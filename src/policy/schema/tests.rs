//! Tests of compiling a schema and of checking arguments against it.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::json::read_object;

mod limits;

#[track_caller]
fn compiled(schema: &Value) -> ArgumentSchema {
    ArgumentSchema::compile(Some(schema), Dialect::Full).unwrap()
}

#[track_caller]
fn read(arguments: &Value) -> Arguments {
    read_object(&arguments.to_string()).unwrap()
}

fn problems(schema: &Value, arguments: &Value) -> Vec<Problem> {
    compiled(schema).check(&read(arguments)).err().unwrap_or_default()
}

/// Arguments against a schema: what the model reads after the colon, or nothing.
#[track_caller]
fn check(schema: Value, arguments: Value, expected: &str) {
    let sentence = match problems(&schema, &arguments).as_slice() {
        [] => String::new(),
        problems => sentence(problems),
    };
    let said = sentence.strip_prefix("The arguments do not fit the tool: ").unwrap_or(&sentence);
    assert_eq!(said, expected, "{schema} {arguments}");
}

/// The property `p` against its schema.
#[track_caller]
fn check_property(schema: Value, value: Value, expected: &str) {
    check(json!({"type": "object", "properties": {"p": schema}}), json!({ "p": value }), expected);
}

/// The errors of a schema, as pointers and messages.
#[track_caller]
fn check_errors(schema: Value, dialect: Dialect, expected: &[(&str, &str)]) {
    let errors = ArgumentSchema::compile(Some(&schema), dialect).unwrap_err();
    let errors: Vec<_> = errors.iter().map(|e| (e.pointer.as_str(), e.message.as_str())).collect();
    assert_eq!(errors, expected, "{schema}");
}

#[track_caller]
fn check_refused(schema: Value, pointer: &str, message: &str) {
    check_errors(schema, Dialect::Full, &[(pointer, message)]);
}

#[test]
fn what_fits_keeps_its_text() {
    let schema = compiled(&json!({"properties": {"n": {"type": "integer"}}}));
    let arguments = read_object(r#"{ "z": 1e2, "n": 12345678901234567890 }"#).unwrap();
    let valid = schema.check(&arguments).unwrap();
    assert_eq!(valid.text(), r#"{"z":1e2,"n":12345678901234567890}"#.as_bytes());
}

#[test]
fn a_pattern_is_searched_in_ascii_digits() {
    let scan = json!({"type": "string", "pattern": r"^RX-\d{4,}$"});
    check_property(scan.clone(), json!("RX-4471"), "");
    check_property(scan.clone(), json!("RX-447"), r"/p must match ^RX-\d{4,}$.");
    check_property(scan.clone(), json!("RX-4471\n"), r"/p must match ^RX-\d{4,}$.");
    check_property(scan, json!("RX-٤٤٧١"), r"/p must match ^RX-\d{4,}$.");
    check_property(json!({"pattern": "b"}), json!("abc"), "");
}

#[test]
fn five_problems_are_named() {
    let schema = json!({"required": ["a", "b", "c", "d", "e", "f", "g"]});
    assert_eq!(problems(&schema, &json!({})).len(), 5);
    let unknown = json!({"additionalProperties": false});
    assert_eq!(problems(&unknown, &json!({"a":1,"b":1,"c":1,"d":1,"e":1,"f":1})).len(), 5);
}

#[test]
fn messages_are_short_and_hold_no_value() {
    let secret = "hunter2".repeat(100);
    let schema = json!({
        "properties": {
            "a": {"enum": (0..200).map(|n| format!("choice {n}")).collect::<Vec<_>>()},
            "b": {"pattern": format!("^{}$", "a?".repeat(200))},
            "c": {"anyOf": [{"const": "é".repeat(300)}, {"maxLength": 1}]},
            "d": {"not": {"type": "string"}},
            "e": {"items": {"type": "integer"}},
        },
    });
    let found = problems(
        &schema,
        &json!({"a": secret, "b": secret, "c": secret, "d": secret, "e": [secret]}),
    );
    assert_eq!(found.len(), 5);
    for problem in &found {
        assert!(problem.message.len() <= 200, "{problem:?}");
        assert!(!problem.message.contains("hunter2"), "{problem:?}");
    }
    let found = problems(&json!({"additionalProperties": false}), &json!({"k".repeat(5000): 1}));
    assert!(found.iter().all(|problem| problem.pointer.len() <= 200));
}

#[test]
fn without_a_schema_every_argument_is_refused() {
    let none = ArgumentSchema::compile(None, Dialect::Subset).unwrap();
    assert!(none.check(&read(&json!({}))).is_ok());
    let found = none.check(&read(&json!({"a/": 1, "b": {}}))).unwrap_err();
    assert_eq!(
        sentence(&found),
        "The arguments do not fit the tool: /a~1 is not a known argument; /b is not a known argument."
    );
    assert!(found.iter().all(|problem| problem.keyword == "additionalProperties"));
}

#[test]
fn the_subset_is_enforced_and_lets_undeclared_arguments_pass() {
    let schema = json!({
        "type": "object",
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        },
        "required": ["kind"],
    });
    let schema = ArgumentSchema::compile(Some(&schema), Dialect::Subset).unwrap();
    let ok = |arguments: Value| schema.check(&read(&arguments)).is_ok();
    assert!(ok(json!({"kind": "a", "tags": [], "at": {"x": 1.5, "y": 1}, "more": null})));
    for wrong in [
        json!({}),
        json!({"kind": "c"}),
        json!({"kind": 1}),
        json!({"kind": "a", "tags": [1]}),
        json!({"kind": "a", "tags": "x"}),
        json!({"kind": "a", "at": {}}),
        json!({"kind": "a", "at": {"x": "1"}}),
        json!({"kind": "a", "at": null}),
    ] {
        assert!(!ok(wrong.clone()), "{wrong}");
    }
    let minimum = json!({"type": "object", "properties": {"n": {"type": "number", "minimum": 1}}});
    let message = "this profile does not take this keyword";
    check_errors(minimum, Dialect::Subset, &[("/properties/n/minimum", message)]);
}

#[test]
fn the_top_is_an_object() {
    let message = "must be \"object\": arguments are an object";
    check_refused(json!({"type": "array"}), "/type", message);
    check_refused(json!({"type": ["object", "null"]}), "/type", message);
    check_refused(json!(true), "", "must be a schema of type object");
    check_refused(json!([]), "", "must be a schema of type object");
    compiled(&json!({}));
    compiled(&json!({"type": "object"}));
}

#[test]
fn nothing_outside_the_document_is_read() {
    for target in [
        "https://example.com/x",
        "file:///etc/passwd",
        "x.json",
        "../x#/y",
        "urn:x",
        "https://json-schema.org/draft/2020-12/schema",
        "//host/x",
    ] {
        let message = format!("`{target}` leads out of the schema: copy it in");
        for keyword in ["$ref", "$dynamicRef"] {
            let schema = json!({"properties": {"p": {"items": {keyword: target}}}});
            check_refused(schema, &format!("/properties/p/items/{keyword}"), &message);
        }
    }
}

#[test]
fn references_inside_the_document_work() {
    let string = json!({"type": "string"});
    let wrong = json!({"p": 1});
    for (schema, said) in [
        (
            json!({"$defs": {"s": string}, "properties": {"p": {"$ref": "#/$defs/s"}}}),
            "/p must be a string.",
        ),
        (
            json!({"$defs": {"a b": string}, "properties": {"p": {"$ref": "#/$defs/a%20b"}}}),
            "/p must be a string.",
        ),
        (
            json!({"$defs": {"s": {"$anchor": "s", "type": "string"}}, "properties": {"p": {"$ref": "#s"}}}),
            "/p must be a string.",
        ),
        (
            json!({"$defs": {"s": {"$id": "s", "type": "string"}}, "properties": {"p": {"$ref": "s"}}}),
            "/p must be a string.",
        ),
        (
            json!({"$id": "https://example.com/mine", "$defs": {"s": string}, "properties": {"p": {"$ref": "https://example.com/mine#/$defs/s"}}}),
            "/p must be a string.",
        ),
        (json!({"properties": {"p": {"$ref": "#"}}, "type": "object"}), "/p must be an object."),
    ] {
        check(schema, wrong.clone(), said);
    }
    // Data that looks like a reference.
    check(
        json!({"properties": {"p": {"const": {"$ref": "https://x"}}, "$ref": {"default": {"pattern": "("}}}}),
        json!({}),
        "",
    );
    check_refused(json!({"$ref": "#/$defs/x"}), "/$ref", "there is no `/$defs/x` in the schema");
    check_refused(json!({"not": {"$ref": "#x"}}), "/not/$ref", "there is no `x` in the schema");
}

#[test]
fn only_one_draft_is_read() {
    let message = "only https://json-schema.org/draft/2020-12/schema is read: leave it out";
    check_refused(
        json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
        "/$schema",
        message,
    );
    let nested = json!({"$defs": {"a": {"$id": "a", "$schema": "https://json-schema.org/draft/2019-09/schema"}}});
    check_refused(nested, "/$defs/a/$schema", message);
    compiled(&json!({"$schema": "https://json-schema.org/draft/2020-12/schema"}));
    compiled(&json!({"properties": {"$schema": {"type": "string"}}}));
}

#[test]
fn patterns_match_in_linear_time() {
    let backtracking = "a pattern cannot look around or refer back: it must match in linear time";
    for pattern in ["(?=a)b", "(?!a)", "(?<=a)b", r"(a)\1"] {
        check_refused(
            json!({"properties": {"p": {"pattern": pattern}}}),
            "/properties/p/pattern",
            backtracking,
        );
    }
    let names = json!({"patternProperties": {"(?=a/)": {"pattern": "(?!b)"}}});
    let at = "/patternProperties/(?=a~1)";
    let expected = [(at, backtracking), (&*format!("{at}/pattern"), backtracking)];
    check_errors(names, Dialect::Full, &expected);
    let large = "this pattern is too large once compiled: use smaller repeats";
    check_refused(json!({"not": {"pattern": r"^(\p{L}{1,64} ){1,3}x$"}}), "/not/pattern", large);
    let none = "must be a regular expression, and not a huge one";
    for pattern in ["(", "[", "a{2,1}", "^x?.{0,404600}$"] {
        check_refused(json!({"not": {"pattern": pattern}}), "/not/pattern", none);
    }
    // Classic backtracking bait.
    check_property(
        json!({"pattern": "^(a+)+$"}),
        json!("a".repeat(50_000) + "b"),
        "/p must match ^(a+)+$.",
    );
}

#[test]
fn all_errors_of_a_schema_are_listed() {
    check_errors(
        json!({"properties": {
            "a": {"type": "strin"},
            "b": {"minLength": -1, "required": "a", "pattern": "("},
            "c": 1,
            "d": {"$ref": "x"},
        }}),
        Dialect::Full,
        &[
            (
                "/properties/a/type",
                r#"must be one of "array", "boolean", "integer", "null", "number", "object", "string" or must be an array"#,
            ),
            ("/properties/b/minLength", "must be at least 0"),
            ("/properties/b/required", "must be an array"),
            ("/properties/c", "must be true or false or an object"),
            ("/properties/d/$ref", "`x` leads out of the schema: copy it in"),
            ("/properties/b/pattern", "must be a regular expression, and not a huge one"),
        ],
    );
}

#[test]
fn a_schema_is_bounded() {
    let nest = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({ "not": inner }));
    compiled(&nest(64));
    check_refused(nest(65), "", "is nested deeper than 64 levels");
    check_refused(nest(100_000 / 1000), "", "is nested deeper than 64 levels");
    let long = json!({"description": "x".repeat(65_536)});
    check_refused(long, "", "is 65554 bytes long, 65536 are allowed");
    compiled(&json!({"description": "x".repeat(65_518)}));
}

#[test]
fn references_cannot_multiply_without_end() {
    let mut defs = json!({"z": {"type": "null"}});
    for (name, next) in ('a'..='y').zip('b'..='z') {
        let next = json!({"properties": {"x": {"$ref": format!("#/$defs/{next}")}}});
        defs[name.to_string()] = json!({"allOf": [next, next]});
    }
    let message =
        "its references nest too deeply or make too much work: refer to less from each place";
    check_refused(json!({"$defs": defs, "$ref": "#/$defs/a"}), "", message);
    let message = "`#` leads back here without an argument on the way";
    check_refused(json!({"$ref": "#"}), "/$ref", message);
    check_refused(json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}), "/allOf/0/$ref", message);
}

#[test]
fn deep_arguments_for_a_schema_of_itself_are_judged_quickly() {
    let node = json!({"$ref": "#/$defs/node"});
    let schema = compiled(&json!({
        "$defs": {"node": {
            "type": "object",
            "properties": {
                "next": {"anyOf": [node, node, {"type": "null"}]},
                "leaf": {"type": "string"},
            },
        }},
        "$ref": "#/$defs/node",
    }));
    let nest = |leaf: &str, levels: usize| {
        let raw =
            format!("{}{{\"leaf\":{leaf}}}{}", "{\"next\":".repeat(levels), "}".repeat(levels));
        schema.check(&read_object(&raw).unwrap()).map_err(|problems| sentence(&problems))
    };
    assert!(nest("\"x\"", 62).is_ok());
    let near = "The arguments do not fit the tool: /next must fit anyOf.";
    assert_eq!(nest("1", 2).unwrap_err(), near);
    let far = "The arguments do not fit the tool: the arguments must fit the tool's schema; there is \
               too much of them to say where.";
    assert_eq!(nest("1", 62).unwrap_err(), far);
}

#[test]
fn many_wrong_values_are_judged_quickly() {
    let schema = json!({"properties": {"list": {"items": {"type": "string"}}}});
    let found = problems(&schema, &json!({"list": vec![1; 500_000]}));
    assert_eq!(found.len(), 1);
    let found = problems(&schema, &json!({"list": vec![1; 5_000]}));
    assert_eq!(found.len(), 5);
}

#[test]
fn an_error_names_its_place() {
    let error = |pointer: &str| fault(pointer, "is wrong").to_string();
    assert_eq!(error("/a"), "/a: is wrong");
    assert_eq!(error(""), "the schema: is wrong");
}

#[test]
fn no_problems_still_make_a_sentence() {
    assert_eq!(sentence(&[]), "The arguments do not fit the tool.");
}

/// Small values, so that schemas and arguments meet.
fn values() -> impl Strategy<Value = Value> {
    let names = || prop::sample::select(&["a", "b", "$ref", "type", ""][..]).prop_map(String::from);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..100_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(
            &["", "a", "é", "object", "string", "#", "#/$defs/a", "^a", "(", "x"][..]
        )
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Schemas of which many compile.
fn schemas() -> impl Strategy<Value = Value> {
    let types =
        prop::sample::select(&["object", "string", "number", "array", "null", "integer"][..]);
    let leaf = prop_oneof![
        types.prop_map(|kind| json!({"type": kind})),
        prop::sample::select(&["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#nope", "a"][..])
            .prop_map(|target| json!({"$ref": target})),
        any::<bool>().prop_map(Value::from),
        prop::sample::select(&["^a", "é+", "(?=x)", "["][..]).prop_map(|p| json!({"pattern": p})),
        (0..4_u64).prop_map(|n| json!({"minLength": n, "maximum": n, "minItems": n})),
        values().prop_map(|value| json!({"const": value})),
        Just(json!({"required": ["a"]})),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            pair.clone().prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}})),
            pair.clone().prop_map(|(a, b)| json!({"anyOf": [a, b]})),
            pair.clone()
                .prop_map(|(a, b)| json!({"oneOf": [a, b], "unevaluatedProperties": false})),
            pair.clone().prop_map(|(a, b)| json!({"allOf": [a], "not": b})),
            pair.clone().prop_map(|(a, b)| json!({"items": a, "contains": b})),
            pair.prop_map(|(a, b)| json!({"$defs": {"a": a, "b": b}, "$ref": "#/$defs/a"})),
            (inner, values()).prop_map(|(a, odd)| json!({"additionalProperties": a, "enum": odd})),
        ]
    })
}

#[test]
fn only_two_hex_digits_are_decoded() {
    assert_eq!(decode_percent("a%20b%c3%A9%25"), "a b\u{e9}%");
    for odd in ["%", "%2", "%+1", "%g0", "%ff", "%2\u{e9}"] {
        assert_eq!(decode_percent(odd), odd);
    }
}

proptest! {
    #[test]
    fn any_schema_and_any_arguments_are_judged(
        schema in prop_oneof![3 => schemas(), 1 => values()],
        value in values(),
        subset in any::<bool>(),
    ) {
        let dialect = if subset { Dialect::Subset } else { Dialect::Full };
        match ArgumentSchema::compile(Some(&schema), dialect) {
            Err(errors) => prop_assert!(!errors.is_empty()),
            Ok(compiled) => {
                for arguments in [json!({ "a": value, "b": value }), json!({})] {
                    let arguments = read(&arguments);
                    match compiled.check(&arguments) {
                        Ok(valid) => prop_assert_eq!(valid.text(), arguments.text()),
                        Err(problems) => {
                            prop_assert!((1..=5).contains(&problems.len()));
                            prop_assert!(problems.iter().all(|p| p.message.len() <= 200));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_reference_leaves_the_document(
        target in "[a-z]{1,5}(:|/|#|\\.)[!-~]{0,12}",
        keyword in prop::sample::select(&["$ref", "$dynamicRef"][..]),
        path in prop::collection::vec(0..5_usize, 0..4),
        subset in any::<bool>(),
    ) {
        let schema = path.into_iter().fold(json!({ keyword: target }), |schema, at| match at {
            0 => json!({"properties": {"a": schema}}),
            1 => json!({"allOf": [{}, schema]}),
            2 => json!({"$defs": {"a": schema}}),
            3 => json!({"items": schema}),
            _ => json!({"not": schema}),
        });
        let dialect = if subset { Dialect::Subset } else { Dialect::Full };
        prop_assert!(ArgumentSchema::compile(Some(&schema), dialect).is_err());
    }

    #[test]
    fn any_text_decodes(text in "[%0-9a-fé]{0,12}") {
        decode_percent(&text);
    }
}
