//! Exports: byte for byte, read by the providers' own packages, and called by the names that they give.

mod sdk;

use std::path::Path;

use serde_json::{Value, json};
use sortie::model::json::read_object;
use sortie::model::json_tree::Tree;
use sortie::policy::schema::{ArgumentSchema, Dialect};

use super::{KEY, get, refused};
use crate::support::config::{ConfigBuilder, SECRET};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::world::{HOST, World};

pub(super) const FORMATS: [&str; 4] = ["anthropic", "gemini", "mcp", "openai"];

/// The ten tools, each with arguments that fit.
const ARGUMENTS: [(&str, &str); 10] = [
    ("any.thing.store", r#"{"key":"a","value":[1],"kind":"a"}"#),
    ("contacts.update", r#"{"phone":null,"age":7,"address":{"street":"x"}}"#),
    ("lookup_order", r#"{"order_number":"A-1042","carrier":"post"}"#),
    ("notes_add", r#"{"pinned":true}"#),
    ("orders.refund", r#"{"order":"A-1042","by":"money","amount":1.5}"#),
    ("orders.search", r#"{"filter":{"all":[{"field":"total"}]}}"#),
    ("prices.convert", r#"{"amount":1e1}"#),
    ("scans.get", r#"{"scanId":"RX-4471"}"#),
    ("scans.list", "{}"),
    ("tags.set", r#"{"tags":["a"]}"#),
];

/// A gateway with the ten tools, all at one server.
async fn ten_tools() -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = with_tools(&world, include_str!("tools.json")).start().await;
    (world, gateway)
}

fn with_tools(world: &World, tools: &str) -> ConfigBuilder {
    let config = world
        .config()
        .key("desk", KEY, json!({"scopes": ["agent", "agent:call"]}))
        .environment("LOOKUP_SECRET", SECRET)
        .watch(SECRET);
    let url = world.upstream.url(HOST, "");
    let text = config.text();
    assert!(text.contains("\"tools\": []"), "{text}");
    let text = text.replace("\"tools\": []", &format!("\"tools\": {tools}"));
    config.raw(&text.replace("\"URL/", &format!("\"{}/", url.trim_end_matches('/'))))
}

/// One entry a line, so that a difference can be seen.
fn indented(tree: &Tree, depth: usize, out: &mut String) {
    let around = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    };
    match tree {
        Tree::List(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                out.push(if index == 0 { '[' } else { ',' });
                around(out, depth + 1);
                indented(item, depth + 1, out);
            }
            around(out, depth);
            out.push(']');
        }
        Tree::Map(entries) if !entries.is_empty() => {
            for (index, (key, value)) in entries.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                around(out, depth + 1);
                out.push_str(&format!("{}: ", json!(key)));
                indented(value, depth + 1, out);
            }
            around(out, depth);
            out.push('}');
        }
        _ => out.push_str(&tree.to_json()),
    }
}

/// The definitions in an export.
fn definitions<'a>(format: &str, export: &'a Value) -> &'a [Value] {
    let list = match format {
        "gemini" => &export["functionDeclarations"],
        "mcp" => &export["tools"],
        _ => export,
    };
    list.as_array().expect("a list")
}

/// Name, description and parameters of a definition.
fn parts<'a>(format: &str, definition: &'a Value) -> (&'a str, &'a str, Option<&'a Value>) {
    let (one, schema) = match format {
        "anthropic" => (definition, "input_schema"),
        "gemini" => (definition, "parameters"),
        "mcp" => (definition, "inputSchema"),
        _ => (&definition["function"], "parameters"),
    };
    let text = |key: &str| one[key].as_str().expect("a text");
    (text("name"), text("description"), one.get(schema))
}

async fn export(gateway: &Gateway, format: &str) -> String {
    let reply = get(gateway, &format!("/v1/tools?format={format}")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text()
}

#[tokio::test]
async fn ten_tools_are_exported_byte_for_byte() {
    let (_world, gateway) = ten_tools().await;
    for format in FORMATS {
        let text = export(&gateway, format).await;
        let tree = Tree::read(&text).expect("JSON");
        assert_eq!(text, tree.to_json(), "nothing but JSON, and no white space");
        let mut shown = String::new();
        indented(&tree, 0, &mut shown);
        shown.push('\n');
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/catalogue/golden");
        let path = folder.join(format!("{format}.json"));
        if std::env::var_os("SORTIE_BLESS").is_some() {
            std::fs::write(&path, &shown).expect("a written file");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(shown, golden, "{format}; SORTIE_BLESS=1 writes the file anew");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn descriptions_and_order_are_the_file_s_and_the_catalogue_s() {
    let (_world, gateway) = ten_tools().await;
    let file: Vec<Value> = serde_json::from_str(include_str!("tools.json")).expect("JSON");
    let mut expected: Vec<(String, &str)> = file
        .iter()
        .map(|tool| {
            let text = |key: &str| tool[key].as_str().expect("a text");
            (text("name").to_owned(), text("description"))
        })
        .collect();
    expected.sort_unstable();
    for (name, _) in &mut expected {
        *name = name.replace('.', "_");
    }
    for format in FORMATS {
        let export: Value = serde_json::from_str(&export(&gateway, format).await).expect("JSON");
        let found = definitions(format, &export).iter().map(|one| parts(format, one));
        let found: Vec<_> = found.map(|(name, text, _)| (name.to_owned(), text)).collect();
        assert_eq!(found, expected, "{format}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn what_a_model_is_shown_lets_it_call() {
    let (_world, gateway) = ten_tools().await;
    for format in ["anthropic", "mcp", "openai"] {
        let text = export(&gateway, format).await;
        let export: Value = serde_json::from_str(&text).expect("JSON");
        for definition in definitions(format, &export) {
            let (name, _, schema) = parts(format, definition);
            let schema = ArgumentSchema::compile(schema, Dialect::Full).expect("a schema");
            let (_, arguments) = ARGUMENTS
                .iter()
                .find(|(tool, _)| tool.replace('.', "_") == name)
                .expect("arguments of each tool");
            let arguments = read_object(arguments).expect("arguments");
            assert!(schema.check(&arguments).is_ok(), "{format} {name}");
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn one_tool_and_an_agent_s_tools_have_the_same_definitions() {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let tools = include_str!("tools.json");
    let config = with_tools(&world, tools);
    let agents = r#""agents": [{"id": "ops", "tools": ["scans.*"]}], "tools": "#;
    let text = config.text().replace("\"tools\": [\n  {", &format!("{agents}[\n  {{"));
    let gateway = config.raw(&text).start().await;
    for format in FORMATS {
        let whole: Value = serde_json::from_str(&export(&gateway, format).await).expect("JSON");
        let whole = definitions(format, &whole);
        let path = format!("/v1/agents/ops/tools?format={format}");
        let of_agent = super::json(&gateway, &path).await;
        assert_eq!(definitions(format, &of_agent), &whole[7..9], "{format}");
        for name in ["scans.get", "scans_get"] {
            let one = super::json(&gateway, &format!("/v1/tools/{name}?format={format}")).await;
            assert_eq!(one, whole[7], "{format}");
        }
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_by_the_exported_name_reaches_the_tool_and_says_its_own() {
    let (world, gateway) = ten_tools().await;
    for (name, arguments) in ARGUMENTS {
        let exported = name.replace('.', "_");
        for called in [name, &exported] {
            let arguments: Value = serde_json::from_str(arguments).expect("JSON");
            let outcome = gateway.call(called, arguments).await;
            outcome.succeeded();
            assert_eq!(outcome.at("/tool"), json!(name));
            let line = gateway.call_line(&outcome.id()).await;
            assert_eq!(line["tool"], json!(name));
            let request = world.upstream.requests().pop().expect("a request");
            assert_eq!(request.line(), format!("POST /{name} HTTP/1.1"));
        }
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_calls_total", &[("tool", "scans.get"), ("code", "ok")]), 2.0);
    gateway.call("scans_get", json!({"scanId": "RX-447"})).await.refused("invalid_arguments", None);
    gateway.call("scans_post", json!({})).await.refused("unknown_tool", None);
    gateway.finish().await;
}

#[tokio::test]
async fn bounds_are_those_of_the_tool_s_own_name() {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let bound = |name: &str| json!({"scopes": ["agent", "agent:call"], "tools": [name]});
    let gateway = world
        .config()
        .tool(world.tool("scans.get").profile("plain-v1").no_secret())
        .tool(world.tool("scans.list").profile("plain-v1").no_secret())
        .key("desk", KEY, bound("scans.get"))
        .key("other", "sk-other-Hd83kQw7Xz2Lm5TpRv", bound("scans_*"))
        .set(
            "/agents",
            json!([{"id": "ops", "tools": ["scans.*"]}, {"id": "off", "tools": ["scans.list"]}]),
        )
        .start()
        .await;
    let call = async |key: &str, tool: &str, agent: &str| {
        let body = json!({"tool": tool, "arguments": {}, "agent_id": agent}).to_string();
        Outcome(gateway.post(Some(key), body).await)
    };
    call(KEY, "scans_get", "ops").await.succeeded();
    call(KEY, "scans_get", "off").await.refused("not_on_agent", None);
    // A key learns of the other name no more than of a name that nobody has.
    let other = call(KEY, "scans_list", "ops").await;
    other.refused("not_allowed_for_key", None);
    assert_eq!(other.at("/tool"), json!("scans_list"));
    let other = call("sk-other-Hd83kQw7Xz2Lm5TpRv", "scans_get", "ops").await;
    other.refused("unknown_tool", None);
    assert_eq!((other.at("/tool"), other.at("/tool_id")), (json!("scans_get"), Value::Null));
    refused(&get(&gateway, "/v1/tools/scans_list").await, 404, "not_found");
    gateway.finish().await;
}

#[tokio::test]
async fn a_tool_that_is_turned_off_is_not_exported_and_one_without_its_secret_is() {
    let world = World::plain().await;
    world.upstream.default(Script::new());
    let gateway = world
        .config()
        .tool(world.tool("off").set("enabled", json!(false)))
        .tool(world.tool("lost"))
        .set("/tools/1/secret", json!({"current": {"file": "secrets/nowhere"}}))
        .key("desk", KEY, json!({"scopes": ["agent"]}))
        .start()
        .await;
    let export: Value = serde_json::from_str(&export(&gateway, "anthropic").await).expect("JSON");
    let names: Vec<_> = definitions("anthropic", &export).iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["lost"]);
    refused(&get(&gateway, "/v1/tools/off?format=openai").await, 404, "not_found");
    assert_eq!(super::json(&gateway, "/v1/tools?format=openai&kind=app").await, json!([]));
    for (query, part) in [
        ("format=OpenAI", "`format` must be one of anthropic, gemini, mcp, openai"),
        ("format=", "`format` must be one of"),
        ("format=mcp&limit=1", "all tools come at once"),
        ("format=mcp&cursor=YQ", "all tools come at once"),
    ] {
        let reply = get(&gateway, &format!("/v1/tools?{query}")).await;
        let message = refused(&reply, 400, "bad_request");
        assert!(message.contains(part), "{query}: {message}");
    }
    gateway.finish().await;
}

#[test]
fn names_that_are_exported_alike_are_refused_at_load() {
    let tool = |name: &str| {
        json!({"name": name, "description": "Looks an order up by its number.", "profile": "plain-v1",
            "url": "https://shop.example.com/x"})
    };
    let config = ConfigBuilder::new()
        .set("/tools", json!([tool("scans.get"), tool("other"), tool("scans_get")]));
    let checked = config.check(&[]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let said = format!("{}{}", checked.stdout, checked.stderr);
    let expected = "tools[2].name: `scans_get` and `scans.get` on line";
    assert!(said.contains(expected) && said.contains("are both exported as `scans_get`"), "{said}");
}
