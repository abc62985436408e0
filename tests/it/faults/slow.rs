//! Servers that take their time, or what is sent to them not at all: rows 39 to 42.

use std::time::Duration;

use serde_json::json;

use crate::faults::proof::{Fault, prove, prove_while};
use crate::support::config::Tool;
use crate::support::fleet::Fleet;
use crate::support::gateway::Outcome;
use crate::support::script::{Script, head};
use crate::support::wait::{Signal, poll};

/// Little time, and enough for all that comes before the answer.
fn quick(tool: Tool) -> Tool {
    tool.set("timeout", json!("4s"))
}

fn late<'a>(fault: Fault<'a>, phase: &'static str) -> Fault<'a> {
    let fault = fault.failed("timeout").detail(phase).unknown().connections(1);
    if phase == "body" { fault.http_status(200) } else { fault }
}

/// The call lasted as long as it may, and not until the server had done.
fn took_its_time(outcome: &Outcome) {
    let text =
        "The tool did not answer within 4 s. It may have taken effect; check before trying again.";
    assert_eq!(outcome.model_text(), text);
    let took = outcome.at("/duration_ms").as_u64().expect("a duration");
    assert!((4000..15_000).contains(&took), "{took} ms");
}

#[tokio::test]
async fn f039_a_server_that_reads_nothing_holds_a_call_no_longer_than_its_time() {
    // Larger than what the kernels of both sides take from a sender on their own.
    let arguments = json!({"text": "x".repeat(900_000)});
    let shape = |tool: Tool| {
        let text = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        quick(tool).parameters(text)
    };
    // It sees that the gateway has closed only when it begins to read.
    let over = Signal::new();
    let unread = Script::new().wait(&over).stall();
    let (fleet, server) = Fleet::new().await.plain("unread", unread, shape).await;
    let gateway = fleet.config.start().await;
    let ends = async {
        poll("the attempt's end", || async {
            let labels = [("tool", "unread"), ("result", "timeout")];
            let ended = gateway.metrics().await.value("sortie_attempts_total", &labels);
            (ended == 1.0).then_some(())
        })
        .await;
        over.fire();
    };
    // Some of the request is out: nobody knows what was made of it.
    let fault = late(Fault::of_fleet("unread", &server), "first_byte").requests(0);
    let outcomes = prove_while(&gateway, vec![fault.arguments(arguments)], ends).await;
    took_its_time(&outcomes[0]);
    gateway.finish().await;
}

#[tokio::test]
async fn f040_f041_f042_an_answer_that_drips_or_stalls_ends_with_the_call_s_time() {
    // Often enough to keep a timer of silence happy, for far longer than the call may take.
    let period = Duration::from_millis(100);
    let drips = |script: Script, bytes: Vec<u8>| script.drip(bytes, period);
    let request = || Script::new().request();
    let long_head = head(200, &[("X-Long", &"x".repeat(500))]);
    let text = || request().send(head(200, &[("Content-Type", "text/plain")]));
    let chunked = || request().send(head(200, &[("Transfer-Encoding", "chunked")]));
    let begun = head(200, &[("Content-Type", "text/plain"), ("Content-Length", "9")]);
    let fleet = Fleet::new().await;
    let (fleet, first) = fleet.tls("head", drips(request(), long_head), quick).await;
    let hints = drips(request(), head(103, &[]).repeat(50));
    let (fleet, second) = fleet.plain("hints", hints, quick).await;
    let (fleet, third) = fleet.plain("body", drips(text(), vec![b'x'; 500]), quick).await;
    let chunks = drips(chunked(), b"1\r\nx\r\n".repeat(100));
    let (fleet, fourth) = fleet.tls("chunks", chunks, quick).await;
    let (fleet, fifth) = fleet.tls("stall", request().send(begun).stall(), quick).await;
    let gateway = fleet.config.start().await;
    let faults = [
        ("head", &first, "first_byte"),
        ("hints", &second, "first_byte"),
        ("body", &third, "body"),
        ("chunks", &fourth, "body"),
        ("stall", &fifth, "body"),
    ];
    let faults = faults.map(|(tool, server, phase)| late(Fault::of_fleet(tool, server), phase));
    let outcomes = prove(&gateway, faults.into()).await;
    outcomes.iter().for_each(took_its_time);
    gateway.finish().await;
}
