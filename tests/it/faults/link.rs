//! The network between gateway and server, in a network namespace: rows 31, 43, 44 and 47.

use std::time::Duration;

use serde_json::json;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::faults::proof::{Fault, prove_while};
use crate::support::link::Link;
use crate::support::namespace::{HOST, Network, PUBLIC, ip, isolated};
use crate::support::script::{Script, answer};
use crate::support::wait::{poll, together};

/// Public addresses to which the kernel knows no way.
const UNREACHABLE: &str = "151.101.200.1";
const PROHIBITED: &str = "151.101.200.2";

fn lookup(network: &Network) -> Fault<'_> {
    Fault::at("lookup").served_by(&network.public, HOST, "/lookup")
}

#[test]
fn f031_an_unreachable_host_is_told_at_once() {
    isolated(async |network| {
        ip(&format!("route add unreachable {UNREACHABLE}\nroute add prohibit {PROHIBITED}\n"));
        let config = network.config().set("/egress/connect_timeout", json!("9s"));
        let gateway = config.tool(network.tool("lookup")).start().await;
        for (address, why) in [(UNREACHABLE, "os error 113"), (PROHIBITED, "os error 13")] {
            network.now(HOST, &[&format!("A {address}")]);
            let fault = lookup(network).failed("network_error").detail("connect").retryable();
            let outcome = fault.connections(0).holds(&gateway).await;
            // Not the end of a wait: the kernel's word.
            let told = gateway.log_lines().into_iter().find(|line| {
                line["message"] == "Attempt failed." && line["call_id"] == outcome.id().as_str()
            });
            let reason = told.expect("a line for the operator")["reason"].to_string();
            assert!(reason.contains(why), "{reason}");
        }
        gateway.finish().await;
    });
}

/// How many segments were sent again in this namespace.
fn resent() -> u64 {
    let text = std::fs::read_to_string("/proc/net/snmp").expect("the kernel's counters");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let names = lines.next().expect("names").split(' ');
    let values = lines.next().expect("values").split(' ');
    let found = names.zip(values).find(|(name, _)| *name == "RetransSegs").expect("a counter");
    found.1.parse().expect("a number")
}

#[test]
fn f043_loss_on_the_way_never_sends_a_call_twice() {
    isolated(async |network| {
        let link = Link::to(PUBLIC);
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        let config = network.config().set("/egress/connect_timeout", json!("9s"));
        let gateway = config.tool(network.tool("lookup")).start().await;
        lookup(network).holds(&gateway).await;
        let (requests, before) = (network.requests(), resent());
        let calls = async { together((0..20).map(|_| gateway.call("lookup", json!({})))).await };
        // Bursts of loss, for each of which whatever is on its way is lost.
        let loses = async {
            for _ in 0..10 {
                link.down();
                sleep(Duration::from_millis(150)).await;
                link.up();
                sleep(Duration::from_millis(150)).await;
            }
        };
        let (outcomes, ()) = tokio::join!(calls, loses);
        assert!(resent() > before, "nothing was lost");
        let arrived = network.public.requests().split_off(requests);
        for outcome in &outcomes {
            let call = outcome.id();
            let seen =
                arrived.iter().filter(|one| one.header("X-Tool-Call") == Some(&call)).count();
            match outcome.at("/error/outcome").as_str() {
                None => assert_eq!(seen, 1, "{}", outcome.0.text()),
                Some("not_sent") => assert_eq!(seen, 0, "{}", outcome.0.text()),
                Some(_) => assert!(seen <= 1, "{}", outcome.0.text()),
            }
            let took = outcome.at("/duration_ms").as_u64().expect("a duration");
            assert!(took < 15_000, "ten seconds are the tool's, not {took} ms");
        }
        lookup(network).kept(8).holds(&gateway).await;
        gateway.finish().await;
    });
}

#[test]
fn f044_a_connection_whose_link_went_down_is_not_used_again() {
    isolated(async |network| {
        let link = Link::to(PUBLIC);
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        let ok = || answer(200, "application/json", "1");
        let stuck = Script::new().request().send(ok()).request().stall();
        network.public.next(stuck);
        let tool = network.tool("lookup").set("timeout", json!("4s"));
        let gateway = network.config().tool(tool).start().await;
        lookup(network).connections(1).holds(&gateway).await;
        let goes_down = async {
            // In the middle of the call, and without a FIN: who waits for an answer is not told.
            network.public.wait_for_requests(2).await;
            link.down();
            poll("the attempt's end", || async {
                let ended = gateway.metrics().await;
                let labels = [("tool", "lookup"), ("result", "timeout")];
                (ended.value("sortie_attempts_total", &labels) == 1.0).then_some(())
            })
            .await;
            link.up();
        };
        let fault = lookup(network).failed("timeout").detail("first_byte").unknown();
        prove_while(&gateway, vec![fault.connections(0)], goes_down).await;
        lookup(network).connections(1).holds(&gateway).await;
        gateway.finish().await;
    });
}

#[test]
fn f047_a_machine_without_ports_is_not_the_tool_s_fault() {
    isolated(async |network| {
        let range = "/proc/sys/net/ipv4/ip_local_port_range";
        std::fs::write(range, "40000 40019").expect("a setting of the namespace");
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        let config = network.config().set("/egress/pool", json!({"reuse": "never"}));
        let gateway = config.tool(network.tool("lookup")).start().await;
        let mut taken = Vec::new();
        let why = loop {
            match TcpStream::connect((PUBLIC, 443)).await {
                Ok(stream) => {
                    // Closed without a wait, in which its port could not be taken again.
                    let linger = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                    linger.expect("a setting of the socket");
                    taken.push(stream);
                }
                Err(error) => break error,
            }
        };
        assert_eq!(why.kind(), std::io::ErrorKind::AddrNotAvailable, "{why}");
        network.public.wait_for_connections(taken.len()).await;
        let shed = lookup(network).refused("overloaded").retryable().connections(0);
        let fault = [("code", "overloaded"), ("fault", "gateway")];
        let shed = shed.metric("sortie_calls_total", &fault, 1.0);
        shed.kept(taken.len()).holds(&gateway).await;
        drop(taken);
        lookup(network).connections(1).kept(0).holds(&gateway).await;
        gateway.finish().await;
    });
}
