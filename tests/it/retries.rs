//! Which failure is sent again: each kind of failure at tools where a repeat may do harm (N) and where it may not (I).

use serde_json::{Value, json};

use crate::support::certs::Authority;
use crate::support::config::Tool;
use crate::support::deaf::{Deaf, Vacant};
use crate::support::dns::Answer;
use crate::support::fleet::{Fleet, eager_profile, host};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::metrics::Metrics;
use crate::support::script::{Script, answer, answer_with_headers, head};
use crate::support::upstream::Upstream;
use crate::support::wait::together;

/// Each kind of tool, and the profile of its own that it has: all of them want whatever can be wanted.
const KINDS: [(&str, &str, &str); 4] = [
    ("plain", "eager", "{}"),
    ("keyed", "eager-key", "{}"),
    ("annotated", "eager", r#"{"idempotent": true}"#),
    ("reading", "eager", r#"{"read_only": true}"#),
];

/// What stands at the other end.
enum Peer {
    /// A server of plain HTTP with this script on every connection.
    Plain(Script),
    /// No server of TLS: what the script does to a handshake.
    NoTls(Script),
    /// Nobody listens.
    Refusing,
    /// A queue that is full.
    Deaf,
    /// A certificate of an authority that is not trusted.
    Untrusted,
    /// The name server's answer, and nobody behind it.
    Name(Answer),
}

/// One row: attempts and `retryable` are those of N, I and a tool that only reads (and is N).
struct Row {
    name: &'static str,
    peer: Peer,
    timeout: &'static str,
    error: (&'static str, Option<&'static str>, &'static str),
    /// `result` of attempts, `reason` of retries.
    labels: (&'static str, &'static str),
    attempts: [usize; 3],
    retryable: [bool; 3],
    /// How many of the attempts connect, and how many bring a request.
    reaches: (bool, bool),
}

fn row(name: &'static str, peer: Peer) -> Row {
    Row {
        name,
        peer,
        timeout: "10s",
        error: ("network_error", None, "not_sent"),
        labels: ("connect", "connect"),
        attempts: [1; 3],
        retryable: [false; 3],
        reaches: (true, true),
    }
}

/// A row of an answer that the server gives on a connection for each attempt.
fn status_row(name: &'static str, status: u16, retry_after: bool) -> Row {
    let retry_after: &[(&str, &str)] = if retry_after { &[("Retry-After", "0")] } else { &[] };
    let labels = match status {
        300..400 => ("3xx", "status"),
        400..500 => ("4xx", "status"),
        _ => ("5xx", "5xx"),
    };
    let code = if status == 302 { "redirect" } else { "http_status" };
    Row { labels, error: (code, None, "answered"), ..row(name, status_peer(status, retry_after)) }
}

fn status_peer(status: u16, headers: &[(&str, &str)]) -> Peer {
    Peer::Plain(Script::once(answer_with_headers(status, headers, "no")))
}

/// One tool of a row, with its server where it has one.
struct Case<'a> {
    row: &'a Row,
    tool: String,
    upstream: Option<Upstream>,
    attempts: usize,
    retryable: bool,
}

async fn check(settings: &[(&str, Value)], rows: &[Row]) {
    let mut fleet = Fleet::new().await.configure(|config| {
        let profiles = json!([eager_profile("eager", false), eager_profile("eager-key", true)]);
        let config = config.set("/profiles", profiles);
        settings.iter().fold(config, |config, (place, value)| config.set(place, value.clone()))
    });
    let stranger = Authority::new();
    let deaf = Deaf::listen();
    let vacant = Vacant::take();
    let closed = vacant.port();
    let mut cases = Vec::new();
    for row in rows {
        for (kind, profile, annotations) in KINDS {
            let tool = format!("{}_{kind}", row.name);
            let annotations: Value = serde_json::from_str(annotations).expect("JSON");
            let shape = |tool: Tool| {
                let tool = tool.no_secret().profile(profile).set("annotations", annotations);
                tool.set("timeout", json!(row.timeout))
            };
            let secure = |port| format!("https://{}:{port}/", host(&tool));
            let plain = |port| format!("http://{}:{port}/", host(&tool));
            let (next, upstream) = match &row.peer {
                Peer::Plain(script) => {
                    let (fleet, upstream) = fleet.plain(&tool, script.clone(), shape).await;
                    (fleet, Some(upstream))
                }
                Peer::NoTls(script) => {
                    let upstream = Upstream::plain().await;
                    upstream.default(script.clone());
                    let port = upstream.port();
                    (fleet.at(&tool, port, &secure(port), shape), Some(upstream))
                }
                Peer::Refusing => (fleet.at(&tool, closed, &plain(closed), shape), None),
                Peer::Deaf => {
                    let port = deaf.address().port();
                    (fleet.at(&tool, port, &plain(port), shape), None)
                }
                Peer::Untrusted => {
                    let upstream = Upstream::tls(&stranger.leaf(&[&host(&tool)])).await;
                    upstream.default(Script::new());
                    (fleet.reaching(&tool, &upstream, shape), Some(upstream))
                }
                Peer::Name(answer) => {
                    let fleet = fleet.at(&tool, closed, &plain(closed), shape);
                    fleet.dns.script(&host(&tool), vec![answer.clone()]);
                    (fleet, None)
                }
            };
            fleet = next;
            let place = match kind {
                "plain" => 0,
                "reading" => 2,
                _ => 1,
            };
            let (attempts, retryable) = (row.attempts[place], row.retryable[place]);
            cases.push(Case { row, tool, upstream, attempts, retryable });
        }
    }
    let gateway = fleet.config.start().await;
    let outcomes =
        together(cases.iter().map(|case| gateway.call(&case.tool, json!({"n": 1})))).await;
    let metrics = gateway.metrics().await;
    for (case, outcome) in cases.iter().zip(&outcomes) {
        case.holds(&gateway, &metrics, outcome).await;
    }
    gateway.finish().await;
}

impl Case<'_> {
    async fn holds(&self, gateway: &Gateway, metrics: &Metrics, outcome: &Outcome) {
        let Self { row, tool, attempts, .. } = self;
        let (code, detail, left) = row.error;
        assert_eq!(outcome.at("/tool"), json!(tool));
        outcome.failed(code, detail, left);
        assert_eq!(outcome.at("/error/retryable"), json!(self.retryable), "{tool}");
        let recorded = outcome.at("/attempts");
        let recorded = recorded.as_array().expect("attempts");
        assert_eq!(recorded.len(), *attempts, "attempts of {tool}");
        for (index, attempt) in recorded.iter().enumerate() {
            assert_eq!(attempt["n"], json!(index + 1), "{tool}");
            assert_eq!(attempt["error"], json!({"code": code, "detail": detail}), "{tool}");
        }
        self.was_reached();
        self.is_counted(metrics);
        let line = gateway.call_line(&outcome.id()).await;
        let found = ["code", "outcome", "attempts"].map(|field| line[field].clone());
        assert_eq!(found, [json!(code), json!(left), json!(attempts)], "the line of {tool}");
    }

    /// The server saw so many connections and requests, and each request was the same.
    fn was_reached(&self) {
        let Some(upstream) = &self.upstream else { return };
        let (connects, asks) = self.row.reaches;
        let requests = upstream.requests();
        let expected = [connects, asks].map(|reached| if reached { self.attempts } else { 0 });
        let found = [upstream.connections().len(), requests.len()];
        assert_eq!(found, expected, "connections and requests of {}", self.tool);
        for request in &requests {
            assert_eq!(request.raw(), requests[0].raw(), "{}", self.tool);
            let keyed = self.tool.ends_with("_keyed");
            assert_eq!(request.header("idempotency-key").is_some(), keyed, "{}", self.tool);
        }
    }

    fn is_counted(&self, metrics: &Metrics) {
        let tool = self.tool.as_str();
        let (result, reason) = self.row.labels;
        let counted = |name, label, value| metrics.value(name, &[("tool", tool), (label, value)]);
        let all = |name| metrics.value(name, &[("tool", tool)]);
        let attempts = self.attempts as f64;
        assert_eq!(counted("sortie_attempts_total", "result", result), attempts, "{tool}");
        assert_eq!(all("sortie_attempts_total"), attempts, "{tool}");
        assert_eq!(counted("sortie_retries_total", "reason", reason), attempts - 1.0, "{tool}");
        assert_eq!(all("sortie_retries_total"), attempts - 1.0, "{tool}");
        assert_eq!(counted("sortie_calls_total", "code", self.row.error.0), 1.0, "{tool}");
    }
}

/// A failure after which anything may be sent again: nothing left.
fn unsent(row: Row) -> Row {
    Row { attempts: [3; 3], retryable: [true; 3], ..row }
}

/// A failure after which only an idempotent tool is asked again.
fn unclear(row: Row) -> Row {
    Row { attempts: [1, 3, 1], retryable: [false, true, false], ..row }
}

#[tokio::test]
async fn what_never_left_is_sent_again_to_any_tool() {
    let rows = [
        unsent(Row {
            error: ("network_error", Some("dns"), "not_sent"),
            labels: ("dns", "dns"),
            ..row("servfail", Peer::Name(Answer::lines(&["SERVFAIL"])))
        }),
        unsent(Row {
            error: ("network_error", Some("dns"), "not_sent"),
            labels: ("dns", "dns"),
            ..row("silent_dns", Peer::Name(Answer::Drop))
        }),
        unsent(Row {
            error: ("network_error", Some("connect"), "not_sent"),
            ..row("refused", Peer::Refusing)
        }),
        unsent(Row {
            error: ("network_error", Some("connect"), "not_sent"),
            ..row("deaf", Peer::Deaf)
        }),
        unsent(Row {
            error: ("network_error", Some("tls"), "not_sent"),
            labels: ("tls", "tls"),
            reaches: (true, false),
            ..row("stalled_tls", Peer::NoTls(Script::new().stall()))
        }),
        unsent(Row {
            error: ("network_error", Some("tls"), "not_sent"),
            labels: ("tls", "tls"),
            reaches: (true, false),
            ..row("reset_tls", Peer::NoTls(Script::new().some().reset()))
        }),
    ];
    let settings = [
        ("/dns/timeout", json!("500ms")),
        ("/dns/attempts", json!(1)),
        ("/egress/connect_timeout", json!("500ms")),
    ];
    check(&settings, &rows).await;
}

#[tokio::test]
async fn time_that_ran_out_before_anything_left_is_tried_again_too() {
    let rows = [
        unsent(Row {
            error: ("timeout", Some("dns"), "not_sent"),
            labels: ("timeout", "dns"),
            timeout: "1s",
            ..row("late_dns", Peer::Name(Answer::Drop))
        }),
        unsent(Row {
            error: ("timeout", Some("connect"), "not_sent"),
            labels: ("timeout", "connect"),
            timeout: "1s",
            ..row("late_connect", Peer::Deaf)
        }),
        unsent(Row {
            error: ("timeout", Some("tls"), "not_sent"),
            labels: ("timeout", "tls"),
            timeout: "1s",
            reaches: (true, false),
            ..row("late_tls", Peer::NoTls(Script::new().stall()))
        }),
    ];
    let settings = [("/dns/timeout", json!("9s")), ("/egress/connect_timeout", json!("9s"))];
    check(&settings, &rows).await;
}

#[tokio::test]
async fn what_is_permanent_is_not_tried_twice() {
    let rows = [
        Row {
            error: ("network_error", Some("dns"), "not_sent"),
            labels: ("dns", "dns"),
            retryable: [true; 3],
            ..row("nxdomain", Peer::Name(Answer::lines(&["NXDOMAIN"])))
        },
        Row {
            error: ("network_error", Some("dns"), "not_sent"),
            labels: ("dns", "dns"),
            retryable: [true; 3],
            ..row("nodata", Peer::Name(Answer::lines(&[])))
        },
        Row {
            error: ("network_error", Some("tls"), "not_sent"),
            labels: ("tls", "tls"),
            reaches: (true, false),
            ..row("untrusted", Peer::Untrusted)
        },
    ];
    check(&[], &rows).await;
}

#[tokio::test]
async fn what_may_have_arrived_is_sent_again_to_idempotent_tools_alone() {
    let error = |detail| ("network_error", Some(detail), "unknown");
    let late = ("timeout", Some("first_byte"), "unknown");
    let rows = [
        unclear(Row {
            error: error("reset"),
            labels: ("reset", "reset"),
            ..row("reset", Peer::Plain(Script::new().request().reset()))
        }),
        unclear(Row {
            error: error("closed"),
            labels: ("closed", "closed"),
            ..row("closed", Peer::Plain(Script::new().request().fin()))
        }),
        unclear(Row {
            error: error("closed"),
            labels: ("closed", "closed"),
            ..row("half_head", Peer::Plain(Script::once("HTTP/1.1 200 OK\r\nContent-")))
        }),
        // A tool that did not answer in time is asked again by nobody.
        Row {
            error: late,
            labels: ("timeout", "timeout"),
            timeout: "300ms",
            retryable: [false, true, false],
            ..row("late", Peer::Plain(Script::new().request().stall()))
        },
    ];
    check(&[], &rows).await;
}

#[tokio::test]
async fn what_the_tool_has_begun_to_answer_is_sent_again_only_where_it_reads() {
    let cut = || [head(200, &[("Content-Length", "9")]), b"half".to_vec()].concat();
    let late = Script::new().request().send(cut()).stall();
    let huge = Peer::Plain(Script::once(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    ));
    let rows = [
        Row {
            error: ("network_error", Some("closed"), "unknown"),
            labels: ("closed", "closed"),
            attempts: [1, 1, 3],
            retryable: [false, true, false],
            ..row("cut_body", Peer::Plain(Script::once(cut())))
        },
        Row {
            error: ("network_error", Some("reset"), "unknown"),
            labels: ("reset", "reset"),
            attempts: [1, 1, 3],
            retryable: [false, true, false],
            ..row("reset_body", Peer::Plain(Script::new().request().send(cut()).reset()))
        },
        Row {
            error: ("timeout", Some("body"), "unknown"),
            labels: ("timeout", "timeout"),
            timeout: "300ms",
            retryable: [false, true, false],
            ..row("late_body", Peer::Plain(late))
        },
        Row {
            error: ("bad_body", Some("framing"), "unknown"),
            labels: ("bad_body", "bad_body"),
            retryable: [false, true, false],
            ..row("bad_framing", huge)
        },
        Row {
            error: ("bad_body", Some("framing"), "unknown"),
            labels: ("bad_body", "bad_body"),
            retryable: [false, true, false],
            ..row("switching", Peer::Plain(Script::once(head(101, &[]))))
        },
    ];
    check(&[], &rows).await;
}

#[tokio::test]
async fn a_status_says_whether_it_is_sent_again() {
    // The tool says that it did nothing.
    let undone = |name, status| Row {
        attempts: [3; 3],
        retryable: [false, true, false],
        ..status_row(name, status, false)
    };
    let broken = |name, status| unclear(status_row(name, status, false));
    let waiting = Row {
        attempts: [3; 3],
        retryable: [false, true, false],
        ..status_row("s503_after", 503, true)
    };
    let rows = [
        undone("s408", 408),
        undone("s425", 425),
        undone("s429", 429),
        waiting,
        broken("s500", 500),
        broken("s501", 501),
        broken("s502", 502),
        broken("s503", 503),
        broken("s504", 504),
        broken("s505", 505),
        // The key is in use: the call itself is not to be repeated.
        Row { attempts: [1, 3, 1], ..status_row("s409", 409, false) },
        status_row("s400", 400, false),
        status_row("s404", 404, false),
        status_row("s302", 302, false),
    ];
    check(&[], &rows).await;
}

#[tokio::test]
async fn a_refusal_and_a_long_answer_are_no_reason_to_repeat() {
    let mut fleet = Fleet::new()
        .await
        .configure(|config| config.set("/profiles", json!([eager_profile("eager-key", true)])));
    let shape = |tool: Tool| tool.no_secret().profile("eager-key");
    let strict = |tool: Tool| {
        shape(tool).parameters(json!({"type": "object", "properties": {"id": {"type": "integer"}}}))
    };
    let script = || Script::once(answer(200, "text/plain", "x".repeat(1025)));
    let (next, strict_server) = fleet.plain("strict", script(), strict).await;
    let (next, denied_server) =
        next.plain("denied", script(), |tool| shape(tool).set("policy", json!("deny"))).await;
    let (next, blocked_server) = next.plain("blocked", script(), shape).await;
    let (next, long_server) = next.plain("long", script(), shape).await;
    fleet = next;
    fleet.dns.set(&host("blocked"), &["A 10.0.0.5"]);
    let gateway = fleet.config.start().await;

    let check = |outcome: &Outcome, code, detail, attempts: usize| {
        outcome.refused(code, detail);
        assert_eq!(outcome.at("/error/retryable"), json!(false));
        assert_eq!(outcome.at("/attempts").as_array().expect("attempts").len(), attempts);
    };
    check(&gateway.call("strict", json!({"id": "x"})).await, "invalid_arguments", None, 0);
    check(&gateway.call("denied", json!({})).await, "denied", None, 0);
    check(&gateway.call("blocked", json!({})).await, "blocked_host", Some("private"), 0);
    for server in [strict_server, denied_server, blocked_server] {
        server.assert_untouched().await;
    }
    let long = gateway.call("long", json!({})).await;
    long.succeeded();
    assert_eq!(long.at("/truncated"), json!(true));
    assert_eq!((long_server.requests().len(), long_server.connections().len()), (1, 1));
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.value("sortie_attempts_total", &[("tool", "long"), ("result", "2xx")]), 1.0);
    assert_eq!(metrics.value("sortie_retries_total", &[]), 0.0);
    gateway.finish().await;
}
