//! Documents of every form, what comes of them, and what is said to be missing.

use serde_json::Map;

use super::*;
use crate::config::json;
use crate::config::profile;
use crate::config::yaml::Document;
use crate::policy::schema::Dialect;
use crate::policy::wire::WireProfile;
use proptest::prelude::*;

fn shipped(signs: bool, dialect: Dialect) -> WireProfile {
    let mut all = profile::builtin();
    let fits = |one: &WireProfile| one.signs() == signs && one.dialect == dialect;
    let at = all.iter().position(fits).expect("one is shipped");
    all.swap_remove(at)
}

fn terms(profile: &WireProfile, place: Place) -> Terms<'_> {
    Terms { profile, place, set: vec![("shop".into(), "a b".into())] }
}

fn notes(imported: &Imported) -> Vec<String> {
    imported.notes.iter().map(ToString::to_string).collect()
}

/// The tools of the written file, read by the reader of configuration files.
fn tools(imported: &Imported) -> Vec<Value> {
    let (document, faults) = Document::parse(&imported.yaml);
    assert!(faults.is_empty(), "{faults:?}\n{}", imported.yaml);
    let document = document.expect("a tree");
    let tools =
        json::value(&document, document.root())["tools"].as_array().expect("a list").clone();
    assert_eq!(tools.len(), imported.count);
    tools
}

#[test]
fn functions_of_both_apis_become_tools() {
    let profile = shipped(false, Dialect::Full);
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false});
    let document = json!([
        {"type": "function", "function": {"name": "getWeather", "description": "Says what the weather is like.", "parameters": schema}},
        {"type": "function", "name": "no_arguments", "description": "Takes nothing at all, for tests."},
        {"type": "web_search"},
        {"type": "function", "function": {"name": "get_weather", "description": "The same name again."}},
        {"type": "function", "function": {"description": "Nameless."}},
    ]);
    let place = Place::Template("https://tools.example.com/{name}/run".into());
    let imported = import(Form::Openai, &document, &terms(&profile, place)).expect("imported");
    let tools = tools(&imported);
    assert_eq!(tools[0]["name"], "get_weather");
    assert_eq!(tools[0]["url"], "https://tools.example.com/get_weather/run");
    assert_eq!(tools[0]["parameters"], schema);
    assert_eq!(tools[1].get("parameters"), None);
    assert_eq!(tools[1].get("secret"), None);
    assert_eq!(
        notes(&imported),
        [
            "/2: left out: a tool of type \"web_search\" is the provider's own",
            "/4: left out: it has no name",
            "/0: its name \"getWeather\" becomes `get_weather`",
            "/3: left out: its name `get_weather` becomes `get_weather`, which another one has",
        ]
    );
}

#[test]
fn tools_of_an_mcp_server_keep_their_hints() {
    let profile = shipped(true, Dialect::Full);
    let document = json!({"jsonrpc": "2.0", "id": 1, "result": {"nextCursor": "x", "tools": [
        {"name": "tree.walk", "description": "Walks a tree from its root, for tests.",
         "annotations": {"readOnlyHint": true, "idempotentHint": true, "title": "Walk"},
         "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"root": {"$ref": "#/definitions/node"}},
            "definitions": {"node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}}}}}},
        {"name": "outside", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://x.example.com/a.json"}}}},
    ]}});
    let place = Place::Base("https://tools.example.com/mcp/".into());
    let imported = import(Form::Mcp, &document, &terms(&profile, place)).expect("imported");
    let tools = tools(&imported);
    assert_eq!(tools[0]["name"], "tree.walk");
    assert_eq!(tools[0]["url"], "https://tools.example.com/mcp/tree.walk");
    assert_eq!(tools[0]["annotations"], json!({"read_only": true, "idempotent": true}));
    assert_eq!(tools[0]["secret"], json!({"current": {"file": "secrets/tree.walk"}}));
    assert_eq!(tools[0]["parameters"]["properties"]["root"], json!({"$ref": "#/$defs/node"}));
    assert_eq!(
        tools[0]["parameters"]["$defs"]["node"]["properties"]["next"],
        json!({"$ref": "#/$defs/node"})
    );
    let expected = [
        "/nextCursor: there are more tools on further pages",
        "/result/tools/1: has no description, and the model chooses by it: write one",
        "/result/tools/1/inputSchema/properties/a/$ref: `https://x.example.com/a.json` leads out of the document; anything passes there",
    ];
    assert_eq!(notes(&imported), expected);
}

const SHOP: &str = include_str!("fixture.yaml");

#[test]
fn operations_become_tools_and_all_that_is_lost_is_said() {
    let profile = shipped(false, Dialect::Full);
    let (document, faults) = Document::parse(SHOP);
    assert!(faults.is_empty(), "{faults:?}");
    let document = document.expect("a tree");
    let document = json::value(&document, document.root());
    let imported =
        import(Form::Openapi, &document, &terms(&profile, Place::Document)).expect("imported");
    let tools = tools(&imported);
    let places: Vec<(&str, &str)> = tools
        .iter()
        .map(|tool| (tool["name"].as_str().expect("a name"), tool["url"].as_str().expect("a URL")))
        .collect();
    assert_eq!(
        places,
        [
            ("create_order", "https://api.example.com/v1/orders"),
            ("post_shops_shop_close", "https://api.example.com/v1/shops/a%20b/close"),
        ]
    );
    let order = &tools[0]["parameters"];
    assert_eq!(order["$ref"], "#/$defs/Order");
    let defs = &order["$defs"]["Order"]["properties"];
    assert_eq!(defs["note"]["type"], json!(["string", "null"]));
    assert_eq!(defs["total"], json!({"type": "number", "exclusiveMinimum": 0}));
    assert_eq!(
        defs["parent"]["anyOf"],
        json!([{"allOf": [{"$ref": "#/$defs/Order"}]}, {"type": "null"}])
    );
    assert_eq!(defs["code"], json!({"type": "string", "examples": ["A-1"]}));
    let said = notes(&imported);
    for expected in [
        "/paths/~1upload/post: left out: its body is multipart/form-data, not JSON",
        "/paths/~1ping/post: left out: it has no JSON body",
        "/paths/~1shops~1{shop}~1items~1{item}/post: left out: its path needs `item`; give it with --set item=VALUE",
        "/paths/~1list/post: left out: the schema of its arguments must be \"object\": arguments are an object",
        "/paths/~1orders/post: the header parameter `X-Trace` is not carried over",
        "/paths/~1orders/post: the cookie parameter `session` is not carried over",
        "/paths/~1orders/post: its name \"createOrder\" becomes `create_order`",
        "/paths/~1shops~1{shop}~1close/post: has no description, and the model chooses by it: write one",
        "/paths: 1 operations of other methods than POST are left out",
        "/components/securitySchemes/token: how callers are told apart is not carried over: write `authentication: {bearer: {file: …}}` at the tools",
        "/components/schemas/Order/properties/away/$ref: `other.yaml#/Thing` leads out of the document; anything passes there",
    ] {
        assert!(said.iter().any(|note| note == expected), "no {expected:?} in {said:#?}");
    }
    assert!(
        said.iter().any(|note| note.contains("/$defs/Order/properties/code/pattern: ")),
        "{said:#?}"
    );
}

#[test]
fn the_subset_takes_what_it_can() {
    let profile = shipped(true, Dialect::Subset);
    let (document, _) = Document::parse(SHOP);
    let document = document.expect("a tree");
    let document = json::value(&document, document.root());
    let imported =
        import(Form::Openapi, &document, &terms(&profile, Place::Document)).expect("imported");
    let tools = tools(&imported);
    let order = &tools[0]["parameters"];
    assert_eq!(order["properties"]["code"], json!({"type": "string"}), "{order:#}");
    assert!(
        order.get("$defs").is_none() && order["properties"].get("parent").is_none(),
        "{order:#}"
    );
    assert_eq!(tools[0]["secret"], json!({"current": {"file": "secrets/create_order"}}));
    let said = notes(&imported);
    assert!(said.iter().any(|note| note.contains("leads back to itself")), "{said:#?}");
}

#[test]
fn what_is_something_else_is_said_to_be() {
    let profile = shipped(false, Dialect::Full);
    let base = Place::Base("https://a.example.com".into());
    for form in [Form::Mcp, Form::Openai, Form::Openapi] {
        let error = import(form, &json!({"a": 1}), &terms(&profile, base.clone())).err();
        assert!(matches!(error, Some(ImportError::Other { .. })), "{form:?} {error:?}");
    }
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "/api"}], "paths": {"/a": {"post": {
        "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}}}}});
    let error = import(Form::Openapi, &document, &terms(&profile, Place::Document)).err();
    assert_eq!(error, Some(ImportError::NoServer));
    assert!(import(Form::Openapi, &document, &terms(&profile, base)).is_ok());
}

#[test]
fn many_references_to_each_other_end() {
    let profile = shipped(true, Dialect::Subset);
    let mut schemas = Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/components/schemas/s{}", (n + 1) % 40)});
        let all = json!({"type": "object", "properties": {"a": next, "b": next, "c": next}});
        schemas.insert(format!("s{n}"), all);
    }
    let document = json!({"openapi": "3.0.0", "components": {"schemas": schemas}, "paths": {"/a": {"post": {"summary": "Does something for tests.",
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/s0"}}}}}}}});
    let base = Place::Base("https://a.example.com".into());
    let imported = import(Form::Openapi, &document, &terms(&profile, base)).expect("imported");
    assert_eq!(imported.count, 0);
    let last = notes(&imported).pop().expect("a note");
    assert!(last.contains("leads to too many others"), "{last}");
}

#[test]
fn a_path_does_not_move_the_tool_to_another_host() {
    let profile = shipped(false, Dialect::Full);
    let operation = json!({"summary": "Does something for tests.",
        "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}});
    for path in [".evil.example.org/x", "@evil.example.org/x", ":8443/x", ""] {
        let document = json!({"openapi": "3.0.0", "paths": {path: {"post": operation}}});
        let base = Place::Base("https://a.example.com".into());
        let imported = import(Form::Openapi, &document, &terms(&profile, base)).expect("imported");
        assert_eq!(imported.count, 0, "{}", imported.yaml);
        let said = notes(&imported).join("\n");
        assert!(said.ends_with("left out: its path does not begin with `/`"), "{said}");
    }
}

#[test]
fn an_odd_character_costs_no_tool() {
    let profile = shipped(false, Dialect::Full);
    let odd = "Does \u{9b}31m \u{7f} \u{feff} things.";
    let document = json!([{"name": "odd", "description": odd}, {"name": "even", "description": "Does things for tests."}]);
    let base = Place::Base("https://a.example.com".into());
    let imported = import(Form::Openai, &document, &terms(&profile, base)).expect("imported");
    assert_eq!(imported.count, 2, "{:?}", imported.notes);
    assert_eq!(tools(&imported)[0]["description"], odd);
}

#[test]
fn as_many_notes_as_there_are_tools_are_no_burden() {
    let profile = shipped(false, Dialect::Full);
    let tool = |n: usize| json!({"name": format!("t{n}"), "parameters": {"properties": {"a": {"$ref": format!("x{n}")}}}});
    let document: Value = (0..2000).map(tool).collect();
    let base = Place::Base("http://a.example.com".into());
    let imported = import(Form::Openai, &document, &terms(&profile, base)).expect("imported");
    let all: std::collections::HashSet<String> = notes(&imported).into_iter().collect();
    assert_eq!(all.len(), imported.notes.len());
    assert!(all.len() >= 4000, "{}", all.len());
}

fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(|n| json!(n)),
        prop::sample::select(vec![
            "#",
            "#/a",
            "#/components/schemas/a",
            "object",
            "function",
            "3.0.0",
            "/a/{b}",
            "x",
            "post",
            "é",
            "path"
        ])
        .prop_map(|text| json!(text)),
    ];
    let keys = prop::sample::select(vec![
        "tools",
        "result",
        "name",
        "description",
        "function",
        "parameters",
        "inputSchema",
        "openapi",
        "paths",
        "/a/{b}",
        "post",
        "requestBody",
        "content",
        "application/json",
        "schema",
        "$ref",
        "properties",
        "items",
        "allOf",
        "type",
        "required",
        "components",
        "schemas",
        "a",
        "in",
        "servers",
        "url",
        "nullable",
        "enum",
        "minimum",
        "exclusiveMinimum",
        "operationId",
    ]);
    leaf.prop_recursive(9, 80, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::vec((keys.clone(), inner), 0..6).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_document_is_too_odd(
        document in any_document(),
        schema in any_document(),
        subset in any::<bool>(),
    ) {
        let profile = if subset { shipped(true, Dialect::Subset) } else { shipped(false, Dialect::Full) };
        let base = Place::Base("https://a.example.com".into());
        let described = "Does something for the tests.";
        let operation = json!({"summary": described, "requestBody": {"content": {"application/json": {"schema": schema}}}});
        let openapi = json!({"openapi": "3.1.0", "paths": {"/a": {"post": operation}, "/b": document}, "components": {"schemas": {"a": schema}}});
        let tools = json!([{"name": "a", "description": described, "inputSchema": schema, "parameters": schema}, document]);
        for (form, document) in [(Form::Openapi, &openapi), (Form::Mcp, &tools), (Form::Openai, &tools), (Form::Openapi, &document), (Form::Mcp, &document), (Form::Openai, &document)] {
            if let Ok(imported) = import(form, document, &terms(&profile, base.clone())) {
                let (written, faults) = Document::parse(&imported.yaml);
                prop_assert!(written.is_some() && faults.is_empty(), "{}", imported.yaml);
            }
        }
    }
}
