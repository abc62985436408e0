//! Connections that are not made or that break: rows 29, 30 and 33 to 37.

use serde_json::json;

use crate::faults::proof::{Fault, prove};
use crate::support::config::Tool;
use crate::support::deaf::{Deaf, Vacant};
use crate::support::fleet::{Fleet, eager_profile, host};
use crate::support::script::{Script, answer, head};
use crate::support::upstream::Upstream;
use crate::support::world::World;

fn always() -> Script {
    Script::always(answer(200, "application/json", "1"))
}

/// The head of an answer of nine bytes and the first half of them.
fn half() -> Vec<u8> {
    [head(200, &[("Content-Length", "9")]), b"half".to_vec()].concat()
}

fn again(fault: Fault<'_>) -> Fault<'_> {
    fault.retryable().attempts("reset", 3).connections(3)
}

fn broken<'a>(fault: Fault<'a>, detail: &'static str) -> Fault<'a> {
    fault.failed("network_error").detail(detail)
}

#[tokio::test]
async fn f029_a_refused_connection_is_tried_again_in_its_time() {
    let vacant = Vacant::take();
    let closed = vacant.port();
    let url = format!("http://{}:{closed}/", host("refused"));
    let bare = |tool: Tool| tool.profile("bare-v1");
    let fleet = Fleet::new().await.at("refused", closed, &url, bare);
    let gateway = fleet.config.start().await;
    let fault = broken(Fault::at("refused"), "connect").retryable().attempts("connect", 3);
    let retries = [("tool", "refused"), ("reason", "connect")];
    let outcome = fault.metric("sortie_retries_total", &retries, 2.0).holds(&gateway).await;
    // At least half of 500 ms, then half of 1 s.
    let took = outcome.at("/duration_ms").as_u64().expect("a duration");
    assert!(took >= 750, "{took} ms");
    gateway.finish().await;
}

#[tokio::test]
async fn f030_silence_in_answer_to_a_connection_ends_at_its_own_bound() {
    let deaf = Deaf::listen();
    let url = format!("http://{}:{}/", host("deaf"), deaf.address().port());
    // Far less than the call has, so that there would be time for another attempt.
    let fleet = Fleet::new().await.at("deaf", deaf.address().port(), &url, |tool| tool);
    let fleet = fleet.configure(|config| config.set("/egress/connect_timeout", json!("500ms")));
    let gateway = fleet.config.start().await;
    let outcome = broken(Fault::at("deaf"), "connect").retryable().holds(&gateway).await;
    let took = outcome.at("/duration_ms").as_u64().expect("a duration");
    assert!((500..9000).contains(&took), "{took} ms");
    gateway.finish().await;
}

#[tokio::test]
async fn f033_a_reset_at_once_is_told_by_what_was_sent() {
    let insecure = Upstream::plain().await;
    insecure.default(Script::new().some().reset());
    let url = format!("https://{}:{}/", host("handshake"), insecure.port());
    let fleet = Fleet::new().await.at("handshake", insecure.port(), &url, |tool| tool);
    let (fleet, begun) = fleet.plain("begun", Script::new().some().reset(), |tool| tool).await;
    let (fleet, at_once) = fleet.plain("at_once", Script::new().reset(), |tool| tool).await;
    let gateway = fleet.config.start().await;
    let handshake = Fault::of_fleet("handshake", &insecure).connections(1).retryable();
    let begun = Fault::of_fleet("begun", &begun).connections(1);
    let faults = vec![broken(handshake, "tls"), broken(begun, "reset").unknown().requests(0)];
    prove(&gateway, faults).await;
    // Here it is a race whether the request was written. Whichever comes first, the outcome says so.
    for _ in 0..20 {
        let outcome = gateway.call("at_once", json!({})).await;
        let detail = outcome.at("/error/detail");
        let sent = outcome.at("/error/outcome") == "unknown";
        assert!(["connect", "reset", "closed"].map(|one| json!(one)).contains(&detail), "{detail}");
        outcome.failed("network_error", detail.as_str(), if sent { "unknown" } else { "not_sent" });
        assert_eq!(outcome.at("/error/retryable"), json!(!sent));
    }
    at_once.wait_until_closed(20).await;
    assert_eq!((at_once.connections().len(), at_once.requests().len()), (20, 0));
    gateway.finish().await;
}

#[tokio::test]
async fn f034_a_reset_after_the_request_leaves_the_outcome_open() {
    let reset = || Script::new().request().reset();
    let profiles = json!([eager_profile("eager", false), eager_profile("eager-key", true)]);
    let fleet = Fleet::new().await.configure(|config| config.set("/profiles", profiles));
    let eager = |tool: Tool| tool.no_secret().profile("eager");
    let (fleet, plain) = fleet.plain("plain", reset(), eager).await;
    let (fleet, keyed) =
        fleet.plain("keyed", reset(), |tool| tool.no_secret().profile("eager-key")).await;
    let marked = |tool| eager(tool).set("annotations", json!({"idempotent": true}));
    let (fleet, marked) = fleet.plain("marked", reset(), marked).await;
    let gateway = fleet.config.start().await;
    let open = |tool, upstream| broken(Fault::of_fleet(tool, upstream), "reset").unknown();
    let outcomes = prove(
        &gateway,
        vec![
            open("plain", &plain).profile("eager").connections(1),
            again(open("keyed", &keyed).profile("eager-key")),
            again(open("marked", &marked).profile("eager")),
        ],
    )
    .await;
    for outcome in outcomes {
        let text = outcome.model_text();
        assert!(text.ends_with("It may have taken effect; check before trying again."), "{text}");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn f035_a_reset_in_the_body_leaves_no_result() {
    let world = World::tls().await;
    world.upstream.next(Script::new().request().send(half()).reset()).default(always());
    let gateway = world.gateway(world.tool("x")).await;
    let fault = broken(Fault::of(&world, "x"), "reset").unknown().http_status(200);
    let outcome = fault.connections(1).holds(&gateway).await;
    assert!(!outcome.0.text().contains("half"), "{}", outcome.0.text());
    Fault::of(&world, "x").connections(1).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f036_an_end_in_the_body_leaves_no_result() {
    for world in [World::tls().await, World::plain().await] {
        world.upstream.next(Script::once(half())).default(always());
        let gateway = world.gateway(world.tool("x")).await;
        let fault = broken(Fault::of(&world, "x"), "closed").unknown().http_status(200);
        let outcome = fault.connections(1).holds(&gateway).await;
        assert!(!outcome.0.text().contains("half"), "{}", outcome.0.text());
        Fault::of(&world, "x").connections(1).holds(&gateway).await;
        gateway.finish().await;
    }
}

#[tokio::test]
async fn f037_a_server_that_ends_its_side_and_reads_on_is_left() {
    for world in [World::tls().await, World::plain().await] {
        // Each of them waits for the gateway to close, which the proof waits for in its turn.
        let in_body = Script::new().request().send(half()).bare_fin().stall();
        let before_head = Script::new().request().bare_fin().stall();
        world.upstream.next(in_body).next(before_head).default(always());
        let gateway = world.gateway(world.tool("x")).await;
        let fault = || broken(Fault::of(&world, "x"), "closed").unknown().connections(1);
        fault().http_status(200).holds(&gateway).await;
        fault().holds(&gateway).await;
        Fault::of(&world, "x").connections(1).holds(&gateway).await;
        gateway.finish().await;
    }
}
