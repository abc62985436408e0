//! Schemas as each provider is shown them.

use proptest::prelude::*;

use super::*;
use crate::policy::schema::{ArgumentSchema, Dialect};

fn tree(text: &str) -> Tree {
    Tree::read(text).expect("JSON")
}

/// The parameters in a provider's shape.
fn shown(provider: Provider, schema: &str) -> Option<String> {
    let schema = tree(schema);
    let facts =
        Facts { name: "a.b", description: "x", parameters: Some(&schema), hints: Hints::default() };
    let definition = tree(Exports::new(&facts).text(provider));
    let shown = match provider {
        Provider::Anthropic => definition.get("input_schema"),
        Provider::Gemini => definition.get("parameters"),
        Provider::Mcp => definition.get("inputSchema"),
        Provider::OpenAi => definition.get("function").and_then(|one| one.get("parameters")),
    };
    shown.map(Tree::to_json)
}

#[track_caller]
fn check(provider: Provider, schema: &str, expected: &str) {
    assert_eq!(shown(provider, schema).as_deref(), Some(expected));
}

/// One property, as Gemini is shown it.
#[track_caller]
fn gemini(property: &str, expected: &str) {
    let shown = shown(Provider::Gemini, &format!("{{\"properties\":{{\"p\":{property}}}}}"));
    let around = format!("{{\"type\":\"object\",\"properties\":{{\"p\":{expected}}}}}");
    assert_eq!(shown, Some(around), "{property}");
}

#[test]
fn an_ordinary_object_is_shown_as_it_is() {
    let schema = r#"{"type":"object","properties":{"b":{"type":"number","maximum":1e2},"a":{"type":"string"}},"required":["b"]}"#;
    for provider in Provider::ALL {
        check(provider, schema, schema);
    }
}

#[test]
fn only_dots_become_something_else() {
    assert_eq!(name("scans.get_all.2"), "scans_get_all_2");
    assert_eq!(name("lookup"), "lookup");
}

#[test]
fn what_is_around_several_is_the_provider_s() {
    let list = |provider: Provider| provider.list(["1", "2"]);
    assert_eq!(list(Provider::OpenAi), "[1,2]");
    assert_eq!(list(Provider::Anthropic), "[1,2]");
    assert_eq!(list(Provider::Gemini), "{\"functionDeclarations\":[1,2]}");
    assert_eq!(list(Provider::Mcp), "{\"tools\":[1,2]}");
    assert_eq!(Provider::OpenAi.list([]), "[]");
    assert_eq!(Provider::parse("OpenAI"), None);
}

#[test]
fn the_outermost_schema_is_one_object() {
    for provider in [Provider::OpenAi, Provider::Anthropic] {
        check(
            provider,
            r##"{"allOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"$ref":"#/$defs/x"}],"$defs":{"x":{"properties":{"b":true},"required":["b"]}}}"##,
            r##"{"type":"object","$defs":{"x":{"properties":{"b":true},"required":["b"]}},"properties":{"a":{"type":"string"},"b":true},"required":["a","b"]}"##,
        );
        check(
            provider,
            r#"{"type":["object","null"],"properties":{"a":{"type":"string"}},"anyOf":[{"properties":{"b":{"const":1}},"required":["a","b"]},{"properties":{"b":{"const":2},"a":false},"required":["b"]}],"enum":[{}],"not":{"required":["c"]}}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"anyOf":[{"const":1},{"const":2}]}},"required":["b"]}"#,
        );
        check(provider, "true", r#"{"type":"object","properties":{}}"#);
        let nothing = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
        check(provider, "false", nothing);
    }
    check(
        Provider::Mcp,
        r#"{"oneOf":[{"required":["a"]}]}"#,
        r#"{"type":"object","oneOf":[{"required":["a"]}]}"#,
    );
    check(Provider::Mcp, "true", r#"{"type":"object"}"#);
}

#[test]
fn openai_is_told_of_items_and_properties() {
    check(
        Provider::OpenAi,
        r#"{"type":"object","properties":{"a":{"type":"array"},"b":{"anyOf":[{"type":["array","null"]}]},"c":{"type":"object"},"enum":{"enum":[{"type":"array"}]}}}"#,
        r#"{"type":"object","properties":{"a":{"type":"array","items":{}},"b":{"anyOf":[{"type":["array","null"],"items":{}}]},"c":{"type":"object","properties":{}},"enum":{"enum":[{"type":"array"}]}}}"#,
    );
}

#[test]
fn anthropic_is_shown_parameters_with_names_that_it_takes() {
    check(
        Provider::Anthropic,
        r#"{"type":"object","properties":{"a-b.c":{"type":"object","properties":{"$x":true}},"$x":true,"é":true},"required":["$x","a-b.c"]}"#,
        r#"{"type":"object","properties":{"a-b.c":{"type":"object","properties":{"$x":true}}},"required":["a-b.c"]}"#,
    );
}

#[test]
fn gemini_has_no_place_for_no_parameters() {
    for schema in ["{}", "true", "false", r#"{"type":"object","additionalProperties":false}"#] {
        assert_eq!(shown(Provider::Gemini, schema), None);
    }
    let facts = Facts { name: "a", description: "x", parameters: None, hints: Hints::default() };
    let text = Exports::new(&facts);
    assert_eq!(text.text(Provider::Gemini), r#"{"name":"a","description":"x"}"#);
}

#[test]
fn gemini_has_one_type_a_value() {
    gemini(
        r#"{"type":["string","null"],"minLength":1}"#,
        r#"{"type":"string","nullable":true,"minLength":1}"#,
    );
    gemini(
        r#"{"type":["string","integer","null"],"pattern":"a","minimum":1,"description":"d"}"#,
        r#"{"anyOf":[{"type":"string","description":"d","pattern":"a","nullable":true},{"type":"integer","description":"d","minimum":1,"nullable":true}]}"#,
    );
    gemini(
        r#"{"anyOf":[{"type":"integer"},{"type":"null"}],"description":"d","default":1}"#,
        r#"{"type":"integer","nullable":true,"description":"d"}"#,
    );
    gemini(
        r#"{"oneOf":[{"type":"string","description":"own"},{"type":"array","items":{"type":"number"}}],"description":"d"}"#,
        r#"{"anyOf":[{"type":"string","description":"own"},{"type":"array","items":{"type":"number"},"description":"d"}]}"#,
    );
    gemini(
        r#"{"type":"string","anyOf":[{"pattern":"a"},{"pattern":"b"}]}"#,
        r#"{"type":"string"}"#,
    );
}

#[test]
fn gemini_is_told_a_type_that_nobody_named() {
    gemini(r#"{"minLength":2}"#, r#"{"type":"string","minLength":2}"#);
    gemini(r#"{"multipleOf":2}"#, r#"{"type":"number"}"#);
    gemini(r#"{"items":{"type":"string"}}"#, r#"{"type":"array","items":{"type":"string"}}"#);
    gemini(
        r#"{"properties":{"a":{"type":"string"}}}"#,
        r#"{"type":"object","properties":{"a":{"type":"string"}}}"#,
    );
    let anything =
        r#"{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"object"}]}"#;
    gemini("true", anything);
    gemini("{}", anything);
    gemini(r#"{"enum":[1,"a"]}"#, anything);
    gemini(r#"{"enum":[1,-2,null]}"#, r#"{"type":"integer","nullable":true}"#);
    gemini(r#"{"enum":[1.5]}"#, r#"{"type":"number"}"#);
    gemini(r#"{"const":true}"#, r#"{"type":"boolean"}"#);
    gemini(r#"{"const":{}}"#, anything);
    gemini(r#"{"type":"null"}"#, r#"{"type":"string","nullable":true}"#);
}

#[test]
fn gemini_is_shown_known_keywords_alone() {
    gemini(
        r#"{"type":"string","format":"uri","minLength":1,"contentEncoding":"base64","$comment":"c","not":{},"title":"t"}"#,
        r#"{"type":"string","title":"t","minLength":1}"#,
    );
    gemini(
        r#"{"type":"string","format":"date-time"}"#,
        r#"{"type":"string","format":"date-time"}"#,
    );
    gemini(
        r#"{"type":"integer","format":"int32","exclusiveMinimum":1,"maximum":1e1}"#,
        r#"{"type":"integer","format":"int32","maximum":1e1}"#,
    );
    gemini(
        r#"{"type":"array","prefixItems":[{"type":"number"},{"type":"string"},{"type":"number"}]}"#,
        r#"{"type":"array","items":{"anyOf":[{"type":"number"},{"type":"string"}]}}"#,
    );
    gemini(r#"{"type":"array"}"#, r#"{"type":"array","items":{"type":"string"}}"#);
    gemini(
        r#"{"type":"object","properties":{"a":false,"b":{"type":"string"}},"required":["a","b","c"],"additionalProperties":false}"#,
        r#"{"type":"object","properties":{"b":{"type":"string"}},"required":["b"]}"#,
    );
}

#[test]
fn gemini_takes_choices_of_texts_alone() {
    gemini(r#"{"enum":["a","b"]}"#, r#"{"type":"string","enum":["a","b"]}"#);
    // Beside `anyOf` nothing else may stand.
    let inner = r#"{"type":"string","nullable":true},{"type":"number","nullable":true},{"type":"boolean","nullable":true},{"type":"object","nullable":true}"#;
    let schema = r#"{"allOf":[{"enum":["a",null]}],"anyOf":[{}]}"#;
    gemini(schema, &format!(r#"{{"anyOf":[{inner}]}}"#));
    gemini(r#"{"enum":["a",null]}"#, r#"{"type":"string","nullable":true,"enum":["a"]}"#);
    gemini(r#"{"const":"a"}"#, r#"{"type":"string","enum":["a"]}"#);
    gemini(r#"{"type":"string","enum":["","a"]}"#, r#"{"type":"string"}"#);
    gemini(r#"{"type":"integer","enum":[1,2]}"#, r#"{"type":"integer"}"#);
}

#[test]
fn gemini_is_shown_what_a_reference_names() {
    check(
        Provider::Gemini,
        r##"{"properties":{"a":{"$ref":"#/$defs/x~1y","description":"own"},"b":{"$ref":"#/properties/a"},"c":{"$ref":"#/$defs/none"}},"$defs":{"x/y":{"type":"string","description":"other","maxLength":3}}}"##,
        r#"{"type":"object","properties":{"a":{"type":"string","description":"own","maxLength":3},"b":{"type":"string","description":"own","maxLength":3},"c":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"boolean"},{"type":"object"}]}}}"#,
    );
    gemini(
        r#"{"allOf":[{"type":"object","properties":{"a":{"type":"string"}}},{"required":["a"]}],"oneOf":[{"properties":{"b":{"type":"string"}}}]}"#,
        r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a"]}"#,
    );
}

#[test]
fn a_schema_that_holds_itself_ends() {
    let shown = shown(
        Provider::Gemini,
        r##"{"properties":{"t":{"$ref":"#/$defs/tree"}},"$defs":{"tree":{"type":"object","properties":{"v":{"type":"string"},"l":{"$ref":"#/$defs/tree"}}}}}"##,
    );
    let inner = r#"{"type":"object"}"#;
    let tree =
        format!(r#"{{"type":"object","properties":{{"v":{{"type":"string"}},"l":{inner}}}}}"#);
    assert_eq!(shown, Some(format!(r#"{{"type":"object","properties":{{"t":{tree}}}}}"#)));
    let through_alternatives = shown_size(
        r##"{"properties":{"t":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"object","oneOf":[{"properties":{"x":{"type":"object","anyOf":[{"$ref":"#/$defs/a"}]}}}]}}}"##,
    );
    assert!(through_alternatives < 10_000, "{through_alternatives}");
    let mut doubled = String::new();
    for level in 0..40 {
        let next = level + 1;
        doubled.push_str(&format!(
            r##""d{level}":{{"properties":{{"a":{{"$ref":"#/$defs/d{next}"}},"b":{{"$ref":"#/$defs/d{next}"}}}}}},"##
        ));
    }
    let doubled = format!(
        r##"{{"properties":{{"a":{{"$ref":"#/$defs/d0"}}}},"$defs":{{{doubled}"d40":{{"type":"string"}}}}}}"##
    );
    assert!(shown_size(&doubled) < 500_000);
}

fn shown_size(schema: &str) -> usize {
    shown(Provider::Gemini, schema).expect("parameters").len()
}

/// Schemas of the keywords that providers differ in, also such as make no sense.
fn any_schema() -> impl Strategy<Value = Tree> {
    let word = |word: &str| Just(Tree::Word(word.into()));
    const KINDS: &[&str] = &["array", "boolean", "integer", "null", "number", "object", "string"];
    let kind = prop::sample::select(KINDS).prop_map(Tree::text);
    const REFERENCES: &[&str] = &["#", "#/$defs/a", "#/properties/a", "#/anyOf/0"];
    let leaf = prop_oneof![
        word("true"),
        word("false"),
        Just(Tree::Map(Vec::new())),
        kind.clone().prop_map(|kind| Tree::map([("type", kind)])),
        prop::collection::vec(kind, 0..3)
            .prop_map(|kinds| Tree::map([("type", Tree::List(kinds))])),
        prop::sample::select(REFERENCES)
            .prop_map(|reference| Tree::map([("$ref", Tree::text(reference))])),
        Just(Tree::map([("enum", Tree::List(vec![Tree::text("a"), Tree::Word("null".into())]))])),
        Just(Tree::map([("pattern", Tree::text("a")), ("maxLength", Tree::Word("1e1".into()))])),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let named = prop::collection::vec(
            (prop::sample::select(&["a", "b", "$c"][..]), inner.clone()),
            0..3,
        );
        let map = named.prop_map(|entries| {
            let mut map = Tree::Map(Vec::new());
            entries.into_iter().for_each(|(key, value)| map.set(key, value));
            map
        });
        let list = prop::collection::vec(inner.clone(), 0..3).prop_map(Tree::List);
        let keyword = prop_oneof![
            (prop::sample::select(&["properties", "$defs", "patternProperties"][..]), map),
            (
                prop::sample::select(&["allOf", "anyOf", "oneOf", "prefixItems", "required"][..]),
                list
            ),
            (prop::sample::select(&["items", "not", "additionalProperties"][..]), inner),
        ];
        prop::collection::vec(keyword, 1..4).prop_map(|keywords| {
            let mut schema = Tree::Map(Vec::new());
            keywords.into_iter().for_each(|(key, value)| schema.set(key, value));
            schema
        })
    })
}

/// Fails where a schema for Gemini has anything but what it takes.
fn check_gemini(schema: &Tree) {
    const TAKEN: &[&str] = &[
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "nullable",
        "pattern",
        "properties",
        "required",
        "title",
        "type",
    ];
    assert!(schema.entries().iter().all(|(key, _)| TAKEN.contains(&key.as_str())), "{schema:?}");
    let alone = schema.get("anyOf").is_some() && schema.entries().len() == 1;
    let kind = schema.get("type").and_then(Tree::as_text);
    assert!(alone || kind.is_some(), "{schema:?}");
    assert_eq!(kind == Some("array"), schema.get("items").is_some(), "{schema:?}");
    schema.get("items").into_iter().for_each(check_gemini);
    schema.get("anyOf").map_or(&[][..], Tree::items).iter().for_each(check_gemini);
    let properties = schema.get("properties").map_or(&[][..], Tree::entries);
    properties.iter().for_each(|(_, property)| check_gemini(property));
    for name in schema.get("required").map_or(&[][..], Tree::items) {
        assert!(properties.iter().any(|(other, _)| Some(other.as_str()) == name.as_text()));
    }
}

proptest! {
    #[test]
    fn every_schema_that_holds_has_its_exports(schema in any_schema()) {
        let text = schema.to_json();
        let value = serde_json::from_str(&text).expect("JSON");
        // Others are never exported.
        if ArgumentSchema::compile(Some(&value), Dialect::Full).is_err() {
            return Ok(());
        }
        for provider in Provider::ALL {
            let shown = shown(provider, &text).map(|text| tree(&text));
            if provider == Provider::Gemini {
                shown.iter().for_each(check_gemini);
            } else {
                let shown = shown.expect("an object");
                prop_assert_eq!(shown.get("type"), Some(&Tree::text("object")));
                let refused = ["allOf", "anyOf", "enum", "not", "oneOf"];
                let as_written = provider == Provider::Mcp;
                prop_assert!(as_written || refused.iter().all(|key| shown.get(key).is_none()));
            }
        }
    }
}
