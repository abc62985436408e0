//! A gateway that ends takes no new call.

use serde_json::json;

use crate::api::{CALL, closed_door, error};
use crate::support::config::API_KEY;
use crate::support::http::{RawClient, post};
use crate::support::wait::poll;

#[tokio::test]
async fn a_call_that_comes_too_late_is_sent_elsewhere() {
    let (world, mut gateway) =
        closed_door(|config| config.set("/shutdown/accept_for", json!("200ms"))).await;
    let whole = String::from_utf8(post("/v1/calls", Some(API_KEY), CALL)).expect("UTF-8");
    let (first, second) = whole.split_at(30);
    let mut late = RawClient::connect(gateway.api()).await;
    late.write(first.as_bytes()).await;
    let mut idle = RawClient::connect(gateway.api()).await;
    idle.write(b"GET /nothing HTTP/1.1\r\nHost: gateway\r\n\r\n").await;
    error(&idle.read_reply().await, 404, "not_found", None);

    gateway.terminate();
    poll("/readyz to say no", || async {
        (gateway.probe("/readyz").await.status == 503).then_some(())
    })
    .await;
    // Kept connections are closed once no call is taken any more.
    assert!(idle.read_to_end().await.is_empty());
    late.write(second.as_bytes()).await;
    let reply = late.read_reply().await;

    error(&reply, 503, "draining", None);
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(gateway.ended().await.code, Some(0));
    world.upstream.assert_untouched().await;
}

#[tokio::test]
async fn half_a_head_does_not_hold_the_end() {
    let (world, mut gateway) = closed_door(|config| {
        config
            .set("/listeners/api/header_timeout", json!("300ms"))
            .set("/shutdown/accept_for", json!("100ms"))
            .set("/shutdown/grace", json!("60s"))
    })
    .await;
    let mut slow = RawClient::connect(gateway.api()).await;
    slow.write(b"POST /v1/calls HTTP/1.1\r\nHost: ").await;
    gateway.terminate();
    assert!(slow.read_to_end().await.is_empty());
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    world.upstream.assert_untouched().await;
}
