//! The client packages: their own tests against a gateway that runs, and a tool that is defined by zod.

mod node;

use std::path::Path;
use std::process::Command;

use serde_json::json;

use self::node::{Package, Server};
use crate::support::config::{API_KEY, ConfigBuilder, SECRET};
use crate::support::gateway::Gateway;
use crate::support::http::{exchange, request};
use crate::support::languages::{fetched, good, kept, runs};
use crate::support::script::{Script, answer};
use crate::support::world::World;

/// A key that reads the catalogue too.
const KEY: &str = "sk-test-Rd4Wq8NcYx2ZkM7vTb9";

/// What the packages' tests say they need.
async fn gateway(world: &World) -> Gateway {
    world.upstream.default(Script::responding(|request| {
        let status = if request.line().contains("/broken ") { 503 } else { 200 };
        answer(status, "application/json", r#"{"status":"shipped"}"#)
    }));
    let order = json!({
        "type": "object",
        "properties": {"order_number": {"type": "string"}},
        "required": ["order_number"],
    });
    world
        .config()
        .key("reader", KEY, json!({"scopes": ["agent", "agent:call"]}))
        .tool(world.tool("lookup_order").parameters(order))
        .tool(world.tool("scans.get").profile("bare-v1").parameters(json!({"type": "object"})))
        .tool(world.tool("broken"))
        .tool(world.tool("cancel_order").set("policy", json!("ask_first")))
        .start()
        .await
}

fn folder(language: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/clients").join(language)
}

/// Python, where it is new enough.
fn python() -> Option<Command> {
    let new = "import sys; sys.exit(sys.version_info < (3, 10))";
    if !runs("python3", &["-c", new]) {
        return None;
    }
    let mut command = Command::new("python3");
    // The sources are left as they are.
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder("python"));
    Some(command)
}

// The packages' tests wait for the fixtures, which need threads of their own.
#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_passes_its_tests_against_a_gateway() {
    let Some(mut python) = python() else { return };
    let world = World::plain().await;
    let gateway = gateway(&world).await;
    python.args(["-m", "unittest", "-v", "tests.test_client", "tests.test_gateway"]);
    python.env("PYTHONPATH", "src:examples").env("SORTIE_KEY", KEY);
    let output = good(python.env("SORTIE_URL", format!("http://{}", gateway.api())));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("test_anthropic_messages") && !said.contains("skipped"), "{said}");
    gateway.finish().await;
}

/// A gateway that speaks TLS under the name localhost, with its authority in `ca.pem`, and one tool.
async fn gateway_with_tls(world: &World) -> Gateway {
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let leaf = world.authority.leaf(&["localhost"]);
    world
        .config()
        .tool(world.tool("lookup"))
        .file("tls.crt", &leaf.certificate_pem)
        .file("tls.key", &leaf.key_pem)
        .set("/listeners/api/tls", json!({"cert": {"file": "tls.crt"}, "key": {"file": "tls.key"}}))
        .start()
        .await
}

/// Calls twice: with the gateway's authority, and without, which must not connect.
async fn speaks_tls(command: &mut Command, world: &World) {
    let gateway = gateway_with_tls(world).await;
    let port = gateway.api().port();
    let command = command.env("SORTIE_URL", format!("https://localhost:{port}"));
    let output = good(command.env("CA", gateway.folder().path().join("ca.pem")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "7 NotConnected\n");
    assert_eq!(world.upstream.requests().len(), 1);
    gateway.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_speaks_tls_to_whom_it_trusts() {
    let Some(mut python) = python() else { return };
    let script = format!(
        "import os, ssl\nfrom sortie_client import Client, NotConnected, model_text\n\
         url, key = os.environ['SORTIE_URL'], '{API_KEY}'\n\
         context = ssl.create_default_context(cafile=os.environ['CA'])\n\
         print(model_text(Client(url, key=key, ssl_context=context).call('lookup', {{}})), end=' ')\n\
         try:\n    Client(url, key=key).call('lookup', {{}})\n\
         except NotConnected as error:\n    print(type(error).__name__)\n"
    );
    python.args(["-c", &script]).env("PYTHONPATH", "src");
    speaks_tls(&mut python, &World::plain().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_client_speaks_tls_to_whom_it_trusts() {
    let Some(package) = Package::build(&folder("typescript")) else { return };
    let script = format!(
        "import {{ readFileSync }} from 'node:fs';\n\
         import {{ Client, modelText }} from './src/index.js';\n\
         const [url, key] = [process.env.SORTIE_URL, '{API_KEY}'];\n\
         const tls = {{ ca: readFileSync(process.env.CA) }};\n\
         const called = await new Client({{ url, key, tls }}).call('lookup', {{}});\n\
         const refused = new Client({{ url, key, connectAttempts: 1 }}).call('lookup', {{}});\n\
         console.log(modelText(called), await refused.catch((error) => error.name));\n"
    );
    speaks_tls(&mut package.script(&script), &World::plain().await).await;
}

#[test]
fn the_python_client_is_typed() {
    const MYPY: &str = "mypy==2.4.1";
    if python().is_none() {
        return;
    }
    let fill = |place: &Path| {
        fetched(Command::new("python3").args(["-m", "venv"]).arg(place))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", MYPY];
        fetched(Command::new(place.join("bin/python")).args(pip))
    };
    let Some(place) = kept(&MYPY.replace("==", "-"), fill) else { return };
    let cache = place.join("cache");
    let mut mypy = Command::new(place.join("bin/python"));
    mypy.args(["-m", "mypy", "--cache-dir"]).arg(cache).current_dir(folder("python"));
    good(&mut mypy);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_typescript_client_passes_its_tests_against_a_gateway() {
    let Some(package) = Package::build(&folder("typescript")) else { return };
    let world = World::plain().await;
    let gateway = gateway(&world).await;
    let said = package.test(&format!("http://{}", gateway.api()), KEY);
    assert!(said.contains("anthropic messages") && said.contains("# skipped 0"), "{said}");
    gateway.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_defined_by_zod_is_called() {
    let Some(package) = Package::build(&folder("typescript")) else { return };
    let server = Server::start(package.node("examples/server.js").env("TOOL_SECRET", SECRET));
    let printed = good(package.node("examples/lookup-order.js").env("TOOL_URL", server.url()));
    let printed = String::from_utf8(printed.stdout).expect("UTF-8");
    let gateway = ConfigBuilder::new()
        .exception(json!({
            "tools": ["lookup_order"], "hosts": ["127.0.0.1"], "cidrs": ["127.0.0.1/32"],
            "ports": [server.address().port().to_string()], "http": true,
            "reason": "the example's server", "owner": "tests",
        }))
        .file("secrets/lookup_order.secret", SECRET)
        .watch(SECRET)
        .file("tools.d/orders.yaml", &printed)
        .set("/include", json!(["tools.d/*.yaml"]))
        .set("/secrets", json!({"dir": "secrets"}))
        .start()
        .await;
    let good = gateway.call("lookup_order", json!({"order_number": "A-1042"})).await;
    assert_eq!(good.succeeded(), json!({"order": "A-1042", "status": "shipped"}));
    assert_eq!(gateway.call_line(&good.id()).await["owner"], "orders");
    // The file's schema is Sortie's, and what no schema can say is the server's.
    let wrong = gateway.call("lookup_order", json!({"order_number": 1042})).await;
    wrong.refused("invalid_arguments", None);
    let strange = gateway.call("lookup_order", json!({"order_number": "B-1"})).await;
    strange.failed("http_status", None, "answered");
    assert_eq!(strange.at("/error/status"), json!(400));
    let unsigned = request("POST", "/tools/lookup-order", None, "{}");
    assert_eq!(exchange(server.address(), unsigned.as_bytes()).await.status, 401);
    gateway.finish().await;
}
