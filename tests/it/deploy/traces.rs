//! One call can be followed from the agent to the tool: spans at the operator's collector, and the trace's id everywhere.

mod collector;
mod faults;
mod forwarding;
mod waiting;

use serde_json::{Value, json};

use self::collector::{Collector, Span};
use crate::support::config::{API_KEY, ConfigBuilder};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::{HOST, World};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const COLLECTOR_KEY: &str = "otlp-key-Wq8Rd4NcYx2ZkM7v";

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// Calls a tool and says where the call stands in a trace.
async fn call_within(gateway: &Gateway, lines: &[String], mut body: Value) -> Outcome {
    body["run_id"] = json!("run_traced");
    body["step"] = json!(gateway.next_step());
    let (body, lines) = (body.to_string(), lines.concat());
    let request = format!(
        "POST /v1/calls HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {API_KEY}\r\n{lines}Content-Type: \
         application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    Outcome(gateway.send(request.as_bytes()).await)
}

fn header(value: &str) -> String {
    format!("traceparent: {value}\r\n")
}

/// Sends spans to this place.
fn traced(config: ConfigBuilder, endpoint: &str) -> ConfigBuilder {
    config.set("/tracing/otlp/endpoint", json!(endpoint))
}

#[track_caller]
fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.text("name")).collect()
}

#[tokio::test]
async fn a_call_is_one_span_and_in_it_its_attempt_and_what_led_to_the_tool() {
    let Some(collector) = Collector::plain().await else { return };
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let config = traced(world.config().tool(world.tool("lookup")), &collector.url("127.0.0.1"));
    let gateway = config.start().await;
    let body = json!({"tool": "lookup", "arguments": {"order": "A-1042"}, "agent_id": "support",
        "session_id": "s-7", "model_call_id": "toolu_01"});
    let outcome = call_within(&gateway, &[header(&traceparent("01"))], body).await;
    assert_eq!(outcome.succeeded(), json!(7));

    let spans = collector.trace(TRACE, 5).await;
    assert_eq!(names(&spans), ["execute_tool lookup", "attempt", "dns", "connect", "tls"]);
    let [call, attempt, dns, connect, tls] = &spans[..] else { unreachable!("five spans") };
    assert_eq!(call.text("parent"), PARENT);
    assert_eq!(attempt.text("parent"), call.text("id"));
    for phase in [dns, connect, tls] {
        assert_eq!(phase.text("parent"), attempt.text("id"));
    }
    let ids: std::collections::HashSet<_> = spans.iter().map(|span| span.text("id")).collect();
    assert_eq!(ids.len(), 5, "each span has its own id");
    // Each lies inside of the one around it, and one phase after the other.
    for (inner, outer) in [(attempt, call), (dns, attempt), (connect, attempt), (tls, attempt)] {
        let ([begin, end], [from, to]) = (inner.time(), outer.time());
        assert!(from <= begin && begin <= end && end <= to, "{inner:?} in {outer:?}");
    }
    assert!(dns.time()[1] <= connect.time()[0] && connect.time()[1] <= tls.time()[0], "{spans:#?}");

    let id = outcome.id();
    assert_eq!(call.span["kind"], "SPAN_KIND_INTERNAL");
    assert_eq!(call.span["flags"], json!(0x301), "sampled, and its parent is elsewhere");
    let expected = json!({
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "lookup",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.description": "Answers what its test has scripted; for tests of the gateway.",
        "gen_ai.tool.call.id": "toolu_01",
        "gen_ai.agent.id": "support",
        "gen_ai.conversation.id": "s-7",
        "sortie.call.id": id,
        "sortie.call.status": "succeeded",
        "sortie.call.code": "ok",
        "sortie.call.attempts": 1,
        "sortie.call.truncated": false,
    });
    assert_eq!(call.span["attributes"], expected, "neither arguments nor answer");
    assert_eq!(attempt.span["kind"], "SPAN_KIND_CLIENT");
    assert_eq!(attempt.span["flags"], json!(0x101));
    let expected = json!({
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": HOST,
        "server.port": world.upstream.port(),
        "url.scheme": "https",
    });
    assert_eq!(attempt.span["attributes"], expected);
    assert!(spans.iter().all(|span| span.span["status"] == "STATUS_CODE_UNSET"), "{spans:#?}");
    assert_eq!(call.export["path"], "/v1/traces");
    assert_eq!(call.export["scope"], "sortie");
    assert_eq!(call.export["resource"]["service.name"], "sortie");

    // The id is told wherever the call is, and the tool hears nothing of it.
    assert_eq!(outcome.at("/trace_id"), TRACE);
    assert_eq!(gateway.call_line(&id).await["trace_id"], TRACE);
    let path = format!("/v1/calls/{id}");
    let get = crate::support::http::request("GET", &path, Some(API_KEY), "");
    assert_eq!(gateway.send(get.as_bytes()).await.json()["trace_id"], TRACE);
    assert_eq!(world.upstream.only_request().header("traceparent"), None);
    let sent = poll("the spans to be counted", || async {
        let metrics = gateway.metrics().await;
        let sent = metrics.value("sortie_trace_exports_total", &[("result", "sent")]);
        (sent > 0.0).then_some(sent)
    });
    assert_eq!(sent.await, 5.0);
    gateway.finish().await;
}

#[tokio::test]
async fn every_attempt_is_a_span_and_a_failure_says_why() {
    let Some(collector) = Collector::plain().await else { return };
    let world = World::plain().await;
    let failing = Script::once(answer(503, "text/plain", "later"));
    world.upstream.next(failing).default(Script::always(answer(404, "text/plain", "no")));
    let tool =
        world.tool("lookup").profile("bare-v1").set("annotations", json!({"idempotent": true}));
    let config = traced(world.config().tool(tool), &collector.url("127.0.0.1"));
    let gateway = config.start().await;
    let body = json!({"tool": "lookup", "arguments": {}});
    let outcome = call_within(&gateway, &[header(&traceparent("01"))], body).await;
    assert_eq!(outcome.at("/error/code"), "http_status", "{outcome:?}");

    let spans = collector.trace(TRACE, 6).await;
    let named = |name: &str| -> Vec<&Span> {
        spans.iter().filter(|span| span.text("name") == name).collect()
    };
    let [first, second] = named("attempt")[..] else { panic!("{spans:#?}") };
    for (attempt, status, repeats) in [(first, 503, Value::Null), (second, 404, json!(1))] {
        assert_eq!(attempt.attribute("http.response.status_code"), status);
        assert_eq!(*attempt.attribute("http.request.resend_count"), repeats);
        assert_eq!(attempt.attribute("error.type"), "http_status");
        assert_eq!(attempt.span["status"], "STATUS_CODE_ERROR");
    }
    let [call] = named("execute_tool lookup")[..] else { panic!("{spans:#?}") };
    assert_eq!(call.span["status"], "STATUS_CODE_ERROR");
    assert_eq!(call.attribute("error.type"), "http_status");
    assert_eq!(call.attribute("sortie.call.status"), "failed");
    assert_eq!(call.attribute("sortie.call.outcome"), "answered");
    assert_eq!(call.attribute("sortie.call.attempts"), 2);
    // The name is asked for once, and each attempt has its own connection: the first server closed.
    assert_eq!((named("dns").len(), named("connect").len()), (1, 2), "{spans:#?}");
    assert_eq!(named("dns")[0].text("parent"), first.text("id"));
    assert_eq!(named("connect")[1].text("parent"), second.text("id"));
    gateway.finish().await;
}

#[tokio::test]
async fn a_call_that_is_refused_or_does_not_arrive_is_recorded_too() {
    let Some(collector) = Collector::plain().await else { return };
    let world = World::plain().await;
    let strict =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    world.dns.set("gone.example.com", &["NXDOMAIN"]);
    let gone = crate::support::config::Tool::new("gone", "https://gone.example.com/");
    let config = world.config().tool(world.tool("strict").parameters(strict)).tool(gone);
    let gateway = traced(config, &collector.url("localhost"))
        .set("/tracing/otlp/sample", json!(1))
        .start()
        .await;
    let refused = call_within(&gateway, &[], json!({"tool": "strict", "arguments": {}})).await;
    let lost = call_within(&gateway, &[], json!({"tool": "gone", "arguments": {}})).await;
    let unknown = call_within(&gateway, &[], json!({"tool": "nobody", "arguments": {}})).await;

    let id = |outcome: &Outcome| outcome.at("/trace_id").as_str().expect("a new trace").to_owned();
    let spans = collector.trace(&id(&refused), 1).await;
    assert_eq!(names(&spans), ["execute_tool strict"]);
    assert_eq!(spans[0].text("parent"), "", "it begins the trace");
    assert_eq!(spans[0].attribute("error.type"), "invalid_arguments");
    let spans = collector.trace(&id(&lost), 3).await;
    assert_eq!(names(&spans), ["execute_tool gone", "attempt", "dns"]);
    assert_eq!(spans[0].attribute("error.type"), "network_error/dns");
    assert_eq!(spans[2].attribute("error.type"), "nxdomain");
    let spans = collector.trace(&id(&unknown), 1).await;
    assert_eq!(names(&spans), ["execute_tool"], "a span's name is not the runtime's");
    assert_eq!(spans[0].attribute("gen_ai.tool.name"), "nobody");
    gateway.finish().await;
}

#[tokio::test]
async fn arguments_and_answers_are_recorded_where_that_is_asked_for_and_secrets_never() {
    const TOKEN: &str = "tool-token-Kd9Fp3XsQ7mB";
    let Some(collector) = Collector::plain().await else { return };
    let world = World::plain().await;
    // A server that repeats what it was sent.
    world.upstream.default(Script::responding(|request| {
        let echo = json!({"head": request.head, "body": String::from_utf8_lossy(&request.body)});
        answer(200, "application/json", echo.to_string())
    }));
    // The answer repeats it, so it is not watched.
    let reference = json!({"Authorization": {"file": "secrets/token", "prefix": "Bearer "}});
    let told = world.tool("told").set("headers", reference);
    let kept = world.tool("kept").set("capture", json!("none"));
    let config = world.config().file("secrets/token", TOKEN).tool(told).tool(kept);
    let config = traced(config, &collector.url("127.0.0.1"))
        .set("/tracing/otlp/capture", json!("full"))
        .set("/tracing/otlp/sample", json!(1));
    let gateway = config.start().await;
    let arguments = json!({"note": format!("use {TOKEN} for it"), "order": "A-1042"});
    let mut texts = Vec::new();
    for tool in ["told", "kept"] {
        let body = json!({"tool": tool, "arguments": arguments});
        let outcome = call_within(&gateway, &[], body).await;
        let id = outcome.at("/trace_id").as_str().expect("a trace").to_owned();
        let count = if tool == "told" { 4 } else { 3 };
        let spans = collector.trace(&id, count).await;
        let text = |name: &str| spans[0].attribute(name).as_str().map(str::to_owned);
        texts.push(["arguments", "result"].map(|one| text(&format!("gen_ai.tool.call.{one}"))));
    }
    let [[Some(arguments), Some(result)], [None, None]] = &texts[..] else { panic!("{texts:?}") };
    assert_eq!(arguments, r#"{"note":"use *** for it","order":"A-1042"}"#);
    assert!(result.contains("Authorization: ***") && result.contains("A-1042"), "{result}");
    assert!(!collector.text().contains(TOKEN));
    gateway.finish().await;
}

#[tokio::test]
async fn the_environment_says_where_spans_go_and_whose_they_are() {
    let world = World::plain().await;
    let leaf = world.authority.leaf(&["localhost"]);
    let Some(collector) = Collector::tls(&leaf).await else { return };
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let config = world
        .config()
        .tool(world.tool("lookup"))
        .watch(COLLECTOR_KEY)
        .environment("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("{}/", collector.url("localhost")))
        .environment(
            "OTEL_EXPORTER_OTLP_HEADERS",
            &format!("X-Api-Key={COLLECTOR_KEY},x-tenant=a%20b"),
        )
        .environment("OTEL_SERVICE_NAME", "gateway-of-shop")
        .environment("OTEL_RESOURCE_ATTRIBUTES", "k8s.namespace.name=shop,service.name=other")
        .environment("OTEL_TRACES_SAMPLER", "parentbased_always_on");
    let gateway = config.start().await;
    let body = json!({"tool": "lookup", "arguments": {}});
    let outcome = call_within(&gateway, &[], body.clone()).await;
    let id = outcome.at("/trace_id").as_str().expect("a trace").to_owned();
    let export = collector.trace(&id, 4).await.remove(0).export;
    assert_eq!(export["path"], "/v1/traces");
    assert_eq!(export["resource"]["service.name"], "gateway-of-shop");
    assert_eq!(export["resource"]["k8s.namespace.name"], "shop");
    assert_eq!(export["headers"]["x-api-key"], COLLECTOR_KEY);
    assert_eq!(export["headers"]["x-tenant"], "a b");
    // The caller's own decision stands.
    let outcome = call_within(&gateway, &[header(&traceparent("00"))], body.clone()).await;
    assert_eq!(outcome.at("/trace_id"), TRACE);
    // Spans are exported in their order: what comes after it is there.
    let outcome = call_within(&gateway, &[], body).await;
    let id = outcome.at("/trace_id").as_str().expect("a trace").to_owned();
    collector.trace_when(&id, |spans| !spans.is_empty()).await;
    gateway.finish().await;
    assert!(!collector.text().contains(TRACE), "it was not sampled");
}
