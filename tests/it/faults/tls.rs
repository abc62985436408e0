//! TLS: rows 101, 103 to 106, 110 to 116. Row 109 has no test: Sortie reads no revocation list and asks nobody.

use std::ops::Range;
use std::sync::Arc;

use rcgen::{BasicConstraints, CustomExtension, DnType, GeneralSubtree, IsCa, NameConstraints};
use serde_json::{Value, json};

use crate::faults::proof::{Fault, prove};
use crate::support::certs::{Authority, Leaf, Rotation, valid};
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::dns::DnsServer;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::world::{HOST, World};

/// What a handshake comes to; the text is a part of the operator's reason.
#[derive(Clone, Copy)]
pub(super) enum Ends {
    /// The certificate is refused, which no second try would change.
    Certificate(&'static str),
    /// There is a connection.
    Good,
    /// There is no handshake, which another time may be one.
    Handshake(&'static str),
}

/// A server and what a call of its tool comes to.
pub(super) struct Row {
    pub(super) name: &'static str,
    host: String,
    pub(super) upstream: Upstream,
    ends: Ends,
}

impl Row {
    /// A TLS server; the certificate is made for the name that it gets.
    pub(super) async fn tls(
        name: &'static str,
        leaf: impl FnOnce(&str) -> Leaf,
        ends: Ends,
    ) -> Self {
        let host = format!("{}.example.com", name.replace('_', "-"));
        Self::at(name, &host, &leaf(&host), ends).await
    }

    /// A TLS server under this name.
    async fn at(name: &'static str, host: &str, leaf: &Leaf, ends: Ends) -> Self {
        let upstream = Upstream::tls(leaf).await;
        upstream.default(Script::always(answer(200, "application/json", "1")));
        Self { name, host: host.to_owned(), upstream, ends }
    }

    /// A server that does something else where a handshake is expected.
    pub(super) async fn script(name: &'static str, script: Script, ends: Ends) -> Self {
        let upstream = Upstream::plain().await;
        upstream.default(script);
        Self { name, host: format!("{}.example.com", name.replace('_', "-")), upstream, ends }
    }

    pub(super) fn fault(&self) -> Fault<'_> {
        let authority = format!("{}:{}", self.host, self.upstream.port());
        let fault = Fault::at(self.name).served_by(&self.upstream, &authority, "/").connections(1);
        match self.ends {
            Ends::Good => fault.result(json!(1)),
            Ends::Certificate(_) => fault.failed("network_error").detail("tls"),
            Ends::Handshake(_) => fault.failed("network_error").detail("tls").retryable(),
        }
    }

    /// A call that failed says why to the operator alone, and its server was sent nothing.
    pub(super) fn is_explained(&self, gateway: &Gateway, outcome: &Outcome) {
        let Self { name, upstream, ends, .. } = self;
        let (Ends::Certificate(part) | Ends::Handshake(part)) = ends else { return };
        let is_it = |line: &&Value| line["message"] == "Attempt failed." && line["tool"] == *name;
        let lines = gateway.log_lines();
        let reason = lines.iter().find(is_it).expect("the operator's line")["reason"].to_string();
        assert!(reason.contains(part), "{name}: {reason}");
        assert_eq!(outcome.model_text(), "The tool's server could not be reached.");
        let connection = upstream.connections().remove(0);
        let came = String::from_utf8_lossy(&connection.received).into_owned();
        assert!(!came.contains("POST"), "{name} was sent {came}");
    }
}

/// Calls all of them at once. A request reaches only the good ones, and the operator learns why.
pub(super) async fn check(ca: &str, rows: Vec<Row>) -> Vec<Row> {
    let dns = DnsServer::start().await;
    let gateway = gateway(&dns, ca, &rows, |config| config).await;
    let outcomes = prove(&gateway, rows.iter().map(Row::fault).collect()).await;
    for (row, outcome) in rows.iter().zip(outcomes) {
        row.is_explained(&gateway, &outcome);
    }
    gateway.finish().await;
    rows
}

/// A gateway with a tool for each row.
pub(super) async fn gateway(
    dns: &DnsServer,
    ca: &str,
    rows: &[Row],
    change: impl FnOnce(ConfigBuilder) -> ConfigBuilder,
) -> Gateway {
    let mut config = ConfigBuilder::new().dns(dns).ca(ca);
    // Long enough for the handshakes of a busy machine, short where one stalls.
    config = config.set("/egress/connect_timeout", json!("3s"));
    for Row { name, host, upstream, .. } in rows {
        let url = format!("https://{host}:{}/", upstream.port());
        config = config.reach(upstream, dns, host).tool(Tool::new(name, &url));
    }
    change(config).start().await
}

#[tokio::test]
async fn f101_a_server_that_speaks_http_2_alone_is_no_connection() {
    let authority = Authority::new();
    let row = async |name, alpn: &[&str], ends| {
        let host = format!("{name}.example.com");
        let config = authority.leaf(&[&host]).server_config(alpn);
        let upstream = Upstream::with_tls_config(config).await;
        upstream.default(Script::always(answer(200, "application/json", "1")));
        Row { name, host, upstream, ends }
    };
    let rows = vec![
        row("alone", &["h2"], Ends::Handshake("NoApplicationProtocol")).await,
        row("rather", &["h2", "http/1.1"], Ends::Good).await,
        row("nothing", &[], Ends::Good).await,
    ];
    check(&authority.pem(), rows).await;
}

#[tokio::test]
async fn f103_a_certificate_out_of_its_time_is_refused() {
    let authority = Authority::new();
    let within = |days: Range<i64>| {
        let authority = &authority;
        move |host: &str| authority.sign(&[host], |params| valid(params, days))
    };
    let rows = vec![
        Row::tls("current", within(-2..2), Ends::Good).await,
        Row::tls("expired", within(-9..-2), Ends::Certificate("certificate expired")).await,
        Row::tls("not_yet", within(2..9), Ends::Certificate("not valid yet")).await,
    ];
    check(&authority.pem(), rows).await;
}

#[tokio::test]
async fn f104_a_certificate_of_another_name_is_refused() {
    let authority = Authority::new();
    let leaf = |name: &str| authority.leaf(&[name]);
    let common = |host: &str| {
        authority.sign(&[], |params| params.distinguished_name.push(DnType::CommonName, host))
    };
    let wrong = Ends::Certificate("not valid for");
    let deep = "a.b.example.com";
    let rows = vec![
        Row::tls("right", leaf, Ends::Good).await,
        Row::tls("other", |_| leaf("another.example.com"), wrong).await,
        Row::tls("common_name", common, Ends::Certificate("invalid peer certificate")).await,
        Row::at("far_wildcard", deep, &leaf("*.example.com"), wrong).await,
        Row::at("wildcard", "c.b.example.com", &leaf("*.b.example.com"), Ends::Good).await,
        Row::tls("address", |_| leaf("127.0.0.1"), wrong).await,
        Row::at("literal", "127.0.0.1", &leaf("literal.example.com"), wrong).await,
    ];
    check(&authority.pem(), rows).await;
}

#[tokio::test]
async fn f105_a_certificate_of_nobody_who_is_trusted_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let middle = authority.intermediate("middle", |_| ());
    let below = |host: &str| middle.leaf(&[host]);
    let unknown = Ends::Certificate("UnknownIssuer");
    // The stranger has the authority's name, but not its key.
    let bad = Ends::Certificate("BadSignature");
    let own = |host: &str| Leaf::self_signed(&[host]);
    let rows = vec![
        Row::tls("self_signed", own, Ends::Certificate("invalid peer certificate")).await,
        Row::tls("stranger", |host| stranger.leaf(&[host]), bad).await,
        Row::tls("half_a_chain", below, unknown).await,
        Row::tls("whole_chain", |host| below(host).with_chain([&middle]), Ends::Good).await,
    ];
    check(&authority.pem(), rows).await;
}

/// Only names below this one.
fn only(name: &str) -> Option<NameConstraints> {
    let permitted_subtrees = vec![GeneralSubtree::DnsName(name.to_owned())];
    Some(NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() })
}

#[tokio::test]
async fn f106_a_chain_that_breaks_its_own_rules_is_refused() {
    let authority = Authority::new();
    let leaf = authority.intermediate("no authority", |params| params.is_ca = IsCa::ExplicitNoCa);
    let narrow =
        authority.intermediate("narrow", |params| params.name_constraints = only("example.org"));
    let fitting =
        authority.intermediate("fitting", |params| params.name_constraints = only("example.com"));
    let last = authority.intermediate("last", |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    });
    let past = last.intermediate("past the last", |_| ());
    let critical = |host: &str| {
        authority.sign(&[host], |params| {
            let mut odd =
                CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
            odd.set_criticality(true);
            params.custom_extensions.push(odd);
        })
    };
    let by = |authorities: [&Authority; 1], host: &str| {
        authorities[0].leaf(&[host]).with_chain(authorities)
    };
    let bad = Ends::Certificate("invalid peer certificate");
    let rows = vec![
        Row::tls("leaf_as_authority", |host| by([&leaf], host), bad).await,
        Row::tls("outside_names", |host| by([&narrow], host), bad).await,
        Row::tls("inside_names", |host| by([&fitting], host), Ends::Good).await,
        Row::tls("at_path_length", |host| by([&last], host), Ends::Good).await,
        Row::tls("past_path_length", |host| past.leaf(&[host]).with_chain([&past, &last]), bad)
            .await,
        Row::tls("critical_extension", critical, bad).await,
    ];
    check(&authority.pem(), rows).await;
}

/// A handshake of TLS 1.2 up to the server's hello, in one record.
fn server_hello() -> Vec<u8> {
    let hello = [&[3, 3][..], &[7; 32], &[0, 0xc0, 0x2b, 0]].concat();
    let length = hello.len() as u8;
    [&[22, 3, 3, 0, length + 4, 2, 0, 0, length], &*hello].concat()
}

#[tokio::test]
async fn f110_a_handshake_that_stalls_ends_in_the_time_of_a_connection() {
    let late = Ends::Handshake("did not end in time");
    let stall = Script::new().some().send(server_hello()).stall();
    let period = std::time::Duration::from_millis(100);
    let drip = Script::new().some().drip(server_hello(), period).stall();
    let rows = vec![
        Row::script("stall", stall, late).await,
        Row::script("drip", drip, late).await,
        Row::script("silent", Script::new().stall(), late).await,
    ];
    check(&Authority::new().pem(), rows).await;
}

#[tokio::test]
async fn f111_a_huge_chain_is_refused() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut chain = vec![authority.intermediate("first", |_| ())];
    while chain.len() < 100 {
        let above = &chain[chain.len() - 1];
        let next = above.intermediate(&format!("number {}", chain.len()), |_| ());
        chain.push(next);
    }
    let through = |count: usize, host: &str| {
        chain[count - 1].leaf(&[host]).with_chain(chain[..count].iter().rev())
    };
    let padded = |host: &str| {
        let mut leaf = authority.leaf(&[host]);
        leaf.certificate_pem.push_str(&other.pem().repeat(3000));
        leaf
    };
    let rows = vec![
        Row::tls("short", |host| through(3, host), Ends::Good).await,
        Row::tls("hundred", |host| through(100, host), Ends::Certificate("invalid peer")).await,
        Row::tls("mebibyte", padded, Ends::Handshake("TLS handshake")).await,
    ];
    check(&authority.pem(), rows).await;
}

#[tokio::test]
async fn f112_what_is_no_tls_is_no_connection_and_not_shown() {
    let said = |bytes: &[u8]| Script::new().some().send(bytes).stall();
    let http = said(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let handshake = |part| Ends::Handshake(part);
    let rows = vec![
        Row::script("http", http, handshake("TLS handshake")).await,
        Row::script("alert", said(&[21, 3, 3, 0, 2, 2, 40]), handshake("HandshakeFailure")).await,
        Row::script("junk", said(&[0x55; 300]), handshake("TLS handshake")).await,
        Row::script("end", Script::new().some().fin(), handshake("TLS handshake")).await,
    ];
    check(&Authority::new().pem(), rows).await;
}

#[tokio::test]
async fn f113_under_tls_only_a_proper_end_is_the_end_of_a_body_without_length() {
    let world = World::tls().await;
    let unframed = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nas far as it goes";
    let sending = |bytes: &[u8]| Script::new().request().send(bytes);
    world
        .upstream
        .next(sending(unframed).fin())
        .next(sending(unframed).bare_fin().stall())
        .next(sending(&answer(200, "text/plain", "whole")).bare_fin().stall());
    let gateway = world.gateway(world.tool("ending")).await;
    let fault = || Fault::of(&world, "ending").connections(1).kept(0);
    fault().result(json!("as far as it goes")).holds(&gateway).await;
    // Somebody on the way may have cut it.
    let cut = fault().failed("network_error").detail("closed").unknown().http_status(200);
    cut.holds(&gateway).await;
    fault().result(json!("whole")).holds(&gateway).await;
    gateway.finish().await;
}

#[tokio::test]
async fn f114_a_new_certificate_counts_for_new_connections() {
    let (authority, stranger, dns) = (Authority::new(), Authority::new(), DnsServer::start().await);
    let until = |days: i64| authority.sign(&[HOST], |params| valid(params, -1..days));
    let rotation = Rotation::new(&until(20));
    let upstream = Upstream::with_tls_config(rotation.server_config()).await;
    let one = || answer(200, "application/json", "1");
    upstream.next(Script::new().request().send(one()).request().send(one()));
    upstream.default(Script::always(one()));
    let config = ConfigBuilder::new().reach(&upstream, &dns, HOST).ca(&authority.pem());
    let gateway = config.tool(Tool::new("x", &upstream.url(HOST, "/x"))).start().await;
    let name = format!("{HOST}:{}", upstream.port());
    let fault = || Fault::at("x").served_by(&upstream, &name, "/x");
    let expires = async || {
        let metrics = gateway.metrics().await;
        metrics.value("sortie_upstream_certificate_expiry_timestamp_seconds", &[("tool", "x")])
    };
    fault().connections(1).holds(&gateway).await;
    let first = expires().await;

    rotation.turn_to(&stranger.leaf(&[HOST]));
    // What stands was checked when it was made. Then its server ends it.
    fault().connections(0).kept(0).holds(&gateway).await;
    fault().failed("network_error").detail("tls").connections(1).holds(&gateway).await;

    rotation.turn_to(&until(30));
    fault().connections(1).holds(&gateway).await;
    let days = (expires().await - first) / f64::from(24 * 3600);
    assert!((9.5..10.5).contains(&days), "{days} days later");
    gateway.finish().await;
}

#[tokio::test]
async fn f115_the_server_is_named_as_in_the_url_and_never_by_its_address() {
    let authority = Authority::new();
    let leaf = authority.leaf(&[HOST, "127.0.0.1"]);
    let rows = [
        Row::at("named", HOST, &leaf, Ends::Good).await,
        Row::at("literal", "127.0.0.1", &leaf, Ends::Good).await,
    ];
    let rows = check(&authority.pem(), rows.into()).await;
    let asked = |row: &Row| row.upstream.connections().remove(0).server_name;
    let asked: Vec<_> = rows.iter().map(asked).collect();
    // That `Host` is the same stands in the exact bytes of the request. An address is no name to ask for.
    assert_eq!(asked, [Some(HOST.to_owned()), None]);
}

#[tokio::test]
async fn f116_nothing_is_sent_early_and_no_session_goes_on_at_another_name() {
    let (authority, dns) = (Authority::new(), DnsServer::start().await);
    let other = "other.example.com";
    let mut tls = authority.leaf(&[HOST, other]).server_config(&["http/1.1"]);
    Arc::get_mut(&mut tls).expect("the only one").max_early_data_size = 16 * 1024;
    let upstream = Upstream::with_tls_config(tls).await;
    upstream.default(Script::once(answer(200, "application/json", "1")));
    let config = ConfigBuilder::new().reach(&upstream, &dns, HOST).reach(&upstream, &dns, other);
    let gateway = config
        .ca(&authority.pem())
        .tool(Tool::new("one", &upstream.url(HOST, "/")))
        .tool(Tool::new("two", &upstream.url(other, "/")))
        .start()
        .await;
    for (tool, host) in [("one", HOST), ("one", HOST), ("two", other), ("two", other)] {
        let name = format!("{host}:{}", upstream.port());
        let fault = Fault::at(tool).served_by(&upstream, &name, "/").connections(1).kept(0);
        fault.holds(&gateway).await;
    }
    let resumed: Vec<bool> = upstream.connections().iter().map(|one| one.resumed).collect();
    assert_eq!(resumed, [false, true, false, true]);
    assert!(upstream.connections().iter().all(|one| !one.early_data));
    gateway.finish().await;
}
