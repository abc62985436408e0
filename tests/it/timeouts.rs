//! An attempt's time, phase by phase: what the runtime and the model are told, and what may have happened.

use std::time::Duration;

use serde_json::json;

use crate::support::config::Tool;
use crate::support::deaf::Deaf;
use crate::support::dns::Answer;
use crate::support::fleet::{Fleet, host};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer, head};
use crate::support::upstream::Upstream;
use crate::support::wait::together;

const SENTENCE: &str = "The tool did not answer within 1 s.";
const WARNING: &str = " It may have taken effect; check before trying again.";

/// The least time that the default profile allows.
fn quick(tool: Tool) -> Tool {
    tool.set("timeout", json!("1s"))
}

/// Fails unless the call ran out of time in this phase, after its second and not long after.
async fn check(gateway: &Gateway, outcome: &Outcome, phase: &str, sent: bool) {
    outcome.failed("timeout", Some(phase), if sent { "unknown" } else { "not_sent" });
    assert_eq!(outcome.at("/error/message"), SENTENCE);
    let warning = if sent { WARNING } else { "" };
    assert_eq!(outcome.model_text(), format!("{SENTENCE}{warning}"));
    let error = json!({"code": "timeout", "detail": phase});
    assert_eq!(outcome.at("/attempts/0/error"), error);
    // Nothing left, so that the same call again can do no harm.
    assert_eq!(outcome.at("/error/retryable"), json!(!sent), "{phase}");
    let took = outcome.at("/duration_ms").as_u64().expect("a duration");
    assert!((1000..1300 + 1000).contains(&took), "{phase}: {took} ms");
    let line = gateway.call_line(&outcome.id()).await;
    assert_eq!(line["code"], "timeout", "{line}");
}

#[tokio::test]
async fn each_phase_has_a_name_of_its_own() {
    let deaf = Deaf::listen();
    let stalled_tls = Upstream::plain().await;
    stalled_tls.default(Script::new().stall());
    let stalled_url = |tool: &str, port| format!("https://{}:{port}/", host(tool));
    let mut fleet = Fleet::new().await.configure(|config| {
        config.set("/dns/timeout", json!("5s")).set("/egress/connect_timeout", json!("5s"))
    });
    fleet = fleet.at("dns", 9, &format!("http://{}:9/", host("dns")), quick);
    fleet.dns.script(&host("dns"), vec![Answer::Drop]);
    let port = deaf.address().port();
    fleet = fleet.at("connect", port, &stalled_url("connect", port), quick);
    let port = stalled_tls.port();
    fleet = fleet.at("tls", port, &stalled_url("tls", port), quick);
    let (fleet, silent) = fleet.tls("silent", Script::new().request().stall(), quick).await;
    let half = [head(200, &[("Content-Length", "9")]), b"half".to_vec()].concat();
    let stalling = Script::new().request().send(half).stall();
    let (fleet, stalling) = fleet.tls("stalling", stalling, quick).await;
    let gateway = fleet.config.start().await;

    let names = ["dns", "connect", "tls", "silent", "stalling"];
    let outcomes = together(names.map(|name| gateway.call(name, json!({})))).await;

    let phases =
        [("dns", false), ("connect", false), ("tls", false), ("first_byte", true), ("body", true)];
    for ((outcome, name), (phase, sent)) in outcomes.iter().zip(names).zip(phases) {
        assert_eq!(outcome.at("/tool"), name);
        check(&gateway, outcome, phase, sent).await;
    }
    let metrics = gateway.metrics().await;
    for name in names {
        let labels = [("tool", name), ("result", "timeout")];
        assert_eq!(metrics.value("sortie_attempts_total", &labels), 1.0, "{name}");
    }
    for server in [&stalled_tls, &silent, &stalling] {
        server.wait_until_closed(1).await;
        assert_eq!(server.connections().len(), 1);
    }
    gateway.finish().await;
}

#[tokio::test]
async fn a_slow_answer_that_comes_in_time_is_a_result() {
    let slow = [head(200, &[("Content-Length", "4")]), b"slow".to_vec()].concat();
    let script = Script::new().request().drip(slow, Duration::from_millis(5));
    let (fleet, _server) = Fleet::new().await.tls("slow", script, |tool| tool).await;
    let good = Script::always(answer(200, "text/plain", "quick"));
    let (fleet, _quick) = fleet.tls("quick", good, |tool| tool).await;
    let gateway = fleet.config.start().await;
    // One that is slow holds up no other.
    let (slow, quick) =
        tokio::join!(gateway.call("slow", json!({})), gateway.call("quick", json!({})));
    assert_eq!((slow.succeeded(), quick.succeeded()), (json!("slow"), json!("quick")));
    gateway.finish().await;
}
