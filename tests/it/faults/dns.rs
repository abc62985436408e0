//! Names and their lookup: rows 1 to 9, 14 to 18, and 26.

use std::sync::Arc;
use std::time::Instant;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SOA};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use serde_json::json;

use crate::faults::proof::{Fault, prove, prove_while};
use crate::support::certs::Authority;
use crate::support::dns::{Answer, DnsServer, Transport, absolute, blank, encode};
use crate::support::fleet::Fleet;
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::{Signal, poll};
use crate::support::world::{HOST, World};

const LOOKUPS: &str = "sortie_dns_lookups_total";

fn always() -> Script {
    Script::always(answer(200, "application/json", "1"))
}

/// A gateway whose tool `x` has a good server.
async fn with_tool() -> (World, Gateway) {
    let world = World::plain().await;
    world.upstream.default(always());
    let gateway = world.gateway(world.tool("x")).await;
    (world, gateway)
}

/// The name cannot be looked up, with this result in the metric; nobody is connected to.
fn unnamed<'a>(world: &'a World, result: &str) -> Fault<'a> {
    let fault = Fault::of(world, "x").failed("network_error").detail("dns").retryable();
    fault.connections(0).metric(LOOKUPS, &[("result", result)], 1.0).metric(LOOKUPS, &[], 1.0)
}

/// Waits until a call succeeds. Nobody told the gateway that anything has changed.
async fn recovers(world: &World, gateway: &Gateway) {
    poll("a call that succeeds", || async {
        let outcome = gateway.call("x", json!({})).await;
        (outcome.at("/status") == "succeeded").then_some(())
    })
    .await;
    Fault::of(world, "x").holds(gateway).await;
}

/// "No such name" or "no such record", to be believed for an hour as its zone would have it.
fn negative(code: ResponseCode) -> Answer {
    Answer::Forged(Arc::new(move |request| {
        let mut answer = blank(request);
        answer.metadata.response_code = code;
        let zone = absolute("example.com");
        let soa = SOA::new(zone.clone(), zone.clone(), 1, 3600, 3600, 3600, 3600);
        answer.add_authority(Record::from_rdata(zone, 3600, RData::SOA(soa)));
        vec![encode(&answer)]
    }))
}

/// A name without an address is a failure once, and once it has one it is no failure for long.
async fn negative_answers(code: ResponseCode, result: &str) {
    let (world, gateway) = with_tool().await;
    world.dns.script(HOST, vec![negative(code)]);
    unnamed(&world, result).holds(&gateway).await;
    assert_eq!(world.dns.questions().len(), 2, "A and AAAA, each once");
    world.dns.set(HOST, &["A 127.0.0.1"]);
    recovers(&world, &gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f001_a_name_that_does_not_exist_is_believed_for_some_seconds_only() {
    negative_answers(ResponseCode::NXDomain, "nxdomain").await;
}

#[tokio::test]
async fn f002_a_name_without_addresses_is_believed_for_some_seconds_only() {
    negative_answers(ResponseCode::NoError, "nodata").await;
}

/// A server's failure: each server is asked once for each family and not over TCP, the failure is believed for a moment,
/// and a second server that knows better is enough.
async fn failing_servers(code: &str, result: &str) {
    let world = World::plain().await;
    world.upstream.default(always());
    let other = DnsServer::start().await;
    let servers = json!([world.dns.address().to_string(), other.address().to_string()]);
    let config = world.config().set("/dns/servers", servers).tool(world.tool("x"));
    let gateway = config.start().await;
    for dns in [&world.dns, &other] {
        dns.set(HOST, &[code]);
    }
    let begun = Instant::now();
    unnamed(&world, result).holds(&gateway).await;
    let mut asked = [world.dns.questions(), other.questions()].concat();
    assert_eq!(asked.len(), 4, "{asked:?}");
    asked.retain(|question| question.transport == Transport::Tcp);
    assert_eq!(asked, []);
    for _ in 0..20 {
        gateway.call("x", json!({})).await.failed("network_error", Some("dns"), "not_sent");
    }
    // A failure is believed for one second, so there was one lookup for each that has passed, and not 21.
    let lookups = usize::try_from(begun.elapsed().as_secs()).expect("seconds") + 1;
    assert!(world.dns.questions().len() <= 2 * lookups, "{lookups} lookups");
    other.set(HOST, &["A 127.0.0.1"]);
    recovers(&world, &gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f003_a_server_failure_is_asked_elsewhere_once_and_believed_for_a_moment() {
    failing_servers("SERVFAIL", "servfail").await;
}

#[tokio::test]
async fn f004_a_server_that_refuses_is_not_asked_again_over_tcp() {
    failing_servers("REFUSED", "refused").await;
}

#[tokio::test]
async fn f005_silence_ends_with_its_attempts_or_with_the_call_s_time() {
    let settings = json!({"timeout": "500ms", "attempts": 4});
    let mut fleet = Fleet::new().await;
    let servers = json!([fleet.dns.address().to_string()]);
    let upstream = Upstream::plain().await;
    for (tool, timeout) in [("patient", "30s"), ("quick", "1s")] {
        fleet = fleet.reaching(tool, &upstream, |tool| tool.set("timeout", json!(timeout)));
    }
    let fleet = fleet.configure(|config| config.set("/dns", settings).set("/dns/servers", servers));
    for tool in ["patient", "quick"] {
        fleet.dns.script(&format!("{tool}.example.com"), vec![Answer::Drop]);
    }
    let gateway = fleet.config.start().await;
    let unanswered = |tool| {
        let fault = Fault::of_fleet(tool, &upstream).connections(0).retryable();
        fault.metric(LOOKUPS, &[("result", "timeout")], 1.0)
    };
    let patient = unanswered("patient").failed("network_error").detail("dns");
    let quick = unanswered("quick").failed("timeout").detail("dns");
    prove(&gateway, vec![patient, quick]).await;
    for family in [RecordType::A, RecordType::AAAA] {
        assert_eq!(fleet.dns.count("patient.example.com", family), 4, "each attempt asks once");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn f006_a_truncated_answer_is_asked_for_again_over_tcp() {
    let (world, gateway) = with_tool().await;
    world.dns.script(HOST, vec![Answer::lines(&["A 127.0.0.1"]).truncated()]);
    Fault::of(&world, "x").metric(LOOKUPS, &[("result", "ok")], 1.0).holds(&gateway).await;
    let asked =
        |transport| world.dns.questions().iter().filter(|one| one.transport == transport).count();
    assert_eq!((asked(Transport::Udp), asked(Transport::Tcp)), (2, 2));
    gateway.finish().await;
}

#[tokio::test]
async fn f007_half_an_answer_is_not_taken_where_tcp_is_refused() {
    let upstream = Upstream::plain().await;
    let world = World { authority: Authority::new(), upstream, dns: DnsServer::udp_only().await };
    let gateway = world.gateway(world.tool("x")).await;
    // It would be good enough to be called.
    world.dns.script(
        HOST,
        vec![Answer::Forged(Arc::new(|request| {
            let mut answer = address(request, "127.0.0.1");
            answer.metadata.truncation = true;
            vec![encode(&answer)]
        }))],
    );
    unnamed(&world, "error").holds(&gateway).await;
    gateway.finish().await;
}

/// An answer with one address, whatever was asked.
fn address(request: &Message, address: &str) -> Message {
    let mut answer = blank(request);
    let name = request.queries[0].name().clone();
    let address = A(address.parse().expect("an IPv4 address"));
    answer.add_answer(Record::from_rdata(name, 60, RData::A(address)));
    answer
}

#[tokio::test]
async fn f008_a_chain_that_leads_back_to_itself_ends() {
    let (world, gateway) = with_tool().await;
    world.dns.set(HOST, &["CNAME b.example.com"]).set("b.example.com", &[&format!("CNAME {HOST}")]);
    // Nothing was found at the end of the chain: the resolver tells it from no data as little as we do.
    unnamed(&world, "nodata").holds(&gateway).await;
    let asked = world.dns.questions().len();
    assert!(asked <= 2 * 9, "{asked} questions");
    gateway.finish().await;
}

#[tokio::test]
async fn f009_a_chain_of_more_than_eight_names_is_no_address() {
    let (world, gateway) = with_tool().await;
    let link = |at: usize| match at {
        0 => HOST.to_owned(),
        at => format!("c{at}.example.com"),
    };
    let chain = |length: usize| {
        for at in 0..length {
            let next = Answer::with_ttl(0, &[&format!("CNAME {}", link(at + 1))]);
            world.dns.script(&link(at), vec![next]);
        }
        world.dns.script(&link(length), vec![Answer::with_ttl(0, &["A 127.0.0.1"])]);
    };
    chain(7);
    Fault::of(&world, "x").holds(&gateway).await;
    let before = world.dns.questions().len();
    chain(20);
    unnamed(&world, "nodata").kept(1).holds(&gateway).await;
    let asked = world.dns.questions().len() - before;
    assert!(asked <= 2 * 9, "{asked} questions");
    gateway.finish().await;
}

#[tokio::test]
async fn f014_a_kept_connection_is_judged_again_with_each_call() {
    let (world, gateway) = with_tool().await;
    let at = |address: &str| Answer::with_ttl(0, &[&format!("A {address}")]);
    world.dns.script(HOST, vec![at("127.0.0.1"), at("10.0.0.5"), at("127.0.0.1")]);
    Fault::of(&world, "x").connections(1).holds(&gateway).await;
    let refused = Fault::of(&world, "x").refused("blocked_host").detail("private").kept(1);
    refused.connections(0).holds(&gateway).await;
    let reused = [("kind", "reused")];
    let again = Fault::of(&world, "x").connections(0);
    again.metric("sortie_upstream_connections_total", &reused, 1.0).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f015_a_long_time_to_live_is_capped() {
    let world = World::plain().await;
    world.upstream.default(always());
    let config = world.config().set("/dns/cache", json!({"max_ttl": "1s"})).tool(world.tool("x"));
    let gateway = config.start().await;
    let month = |line| Answer::with_ttl(30 * 24 * 3600, &[line]);
    world.dns.script(HOST, vec![month("A 127.0.0.1"), month("A 10.0.0.5")]);
    Fault::of(&world, "x").holds(&gateway).await;
    poll("the name to be asked for again", || async {
        let outcome = gateway.call("x", json!({})).await;
        (outcome.at("/status") == "refused").then_some(())
    })
    .await;
    let moved = Fault::of(&world, "x").refused("blocked_host").detail("private").connections(0);
    moved.kept(1).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f016_calls_at_the_same_time_share_one_lookup() {
    const CALLS: usize = 50;
    let (world, gateway) = with_tool().await;
    let held = Signal::new();
    world.dns.script(HOST, vec![Answer::with_ttl(0, &["A 127.0.0.1"]).held(&held)]);
    let call = |at: usize| {
        // Eight connections are kept.
        let fault = Fault::of(&world, "x").kept(usize::from(at < 8));
        fault.metric(LOOKUPS, &[], 1.0)
    };
    let release = async {
        poll("all calls to run", || async {
            let running = gateway.metrics().await.value("sortie_calls_in_flight", &[]);
            (running == CALLS as f64).then_some(())
        })
        .await;
        let asked = world.dns.wait_for_questions(2).await.len();
        assert_eq!(asked, 2, "one question for each family");
        held.fire();
    };
    prove_while(&gateway, (0..CALLS).map(call).collect(), release).await;
    // Who was slow to start may have come after the answer.
    let asked = world.dns.questions().len();
    assert!(asked < CALLS, "{asked} questions");
    gateway.finish().await;
}

#[tokio::test]
async fn f017_an_answer_of_five_hundred_addresses_refuses_the_name() {
    let (world, gateway) = with_tool().await;
    let many: Vec<String> = (0..500).map(|n| format!("A 127.0.{}.{}", n / 250, n % 250)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    world.dns.set(HOST, &many);
    let decision = [("code", "too_many_answers"), ("verdict", "refuse"), ("mode", "enforce")];
    Fault::of(&world, "x")
        .refused("blocked_host")
        .detail("too_many_answers")
        .connections(0)
        .metric("sortie_address_decisions_total", &decision, 1.0)
        .holds(&gateway)
        .await;
    assert!(world.dns.questions().iter().any(|one| one.transport == Transport::Tcp));
    gateway.finish().await;
}

#[tokio::test]
async fn f018_an_answer_that_was_not_asked_for_is_ignored() {
    let (world, gateway) = with_tool().await;
    // Each of them would lead inside, which would refuse the name.
    let bad = |request: &Message| address(request, "10.0.0.5");
    let good = Answer::Forged(Arc::new(move |request| {
        let mut other_id = bad(request);
        other_id.metadata.id = request.metadata.id.wrapping_add(1);
        let mut other_name = bad(request);
        other_name.queries[0].set_name(absolute("other.example.com"));
        let honest = match request.queries[0].query_type() {
            RecordType::A => address(request, "127.0.0.1"),
            _ => blank(request),
        };
        [other_id, other_name, honest].iter().map(encode).collect()
    }));
    let stranger = Arc::new(move |request: &Message| vec![encode(&bad(request))]);
    world.dns.script(HOST, vec![Answer::Strange(stranger, Box::new(good))]);
    Fault::of(&world, "x").metric(LOOKUPS, &[("result", "ok")], 1.0).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f026_a_name_server_that_restarts_is_used_again() {
    let World { authority, upstream, dns } = World::plain().await;
    upstream.default(always());
    let world = World { authority, upstream, dns };
    // Longer than a call may take: without a word from the machine it would be a timeout.
    let config = world.config().set("/dns/timeout", json!("30s")).tool(world.tool("x"));
    let gateway = config.start().await;
    world.dns.script(HOST, vec![Answer::with_ttl(0, &["A 127.0.0.1"])]);
    Fault::of(&world, "x").holds(&gateway).await;

    let World { authority, upstream, dns } = world;
    let address = dns.address();
    dns.stop().await;
    let world = World { authority, upstream, dns: DnsServer::start().await };
    unnamed(&world, "error").kept(1).holds(&gateway).await;

    let World { authority, upstream, .. } = world;
    let world = World { authority, upstream, dns: DnsServer::start_at(address).await };
    world.dns.set(HOST, &["A 127.0.0.1"]);
    recovers(&world, &gateway).await;
    gateway.finish().await;
}
