//! The resolver against a scripted DNS server on loopback.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

use super::*;
use crate::clock::SystemClock;
use crate::policy::address::EgressRules;
use crate::policy::endpoint::Endpoint;

/// What the server says to one question.
#[derive(Debug, Clone)]
enum Reply {
    /// Records as `TYPE data`, with this TTL.
    Records(u32, Vec<String>),
    Code(ResponseCode),
    /// Over UDP: too long. Over TCP: these records.
    Truncated(Vec<String>),
    Silence,
}

fn records(ttl: u32, texts: &[&str]) -> Reply {
    Reply::Records(ttl, texts.iter().map(|text| (*text).to_owned()).collect())
}

type Script = fn(name: &str, family: RecordType, nth: usize) -> Reply;

/// A DNS server on loopback that answers by a script and keeps what it was asked.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    async fn start(script: Script) -> Self {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).await.unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, count) = (Arc::clone(&asked), Arc::new(AtomicUsize::new(0)));
        let over_tcp = (Arc::clone(&asked), Arc::clone(&count));
        let datagrams = tokio::spawn(async move {
            let mut query = [0; 4096];
            loop {
                let (length, from) = udp.recv_from(&mut query).await.unwrap();
                if let Some(answer) = respond(&query[..length], script, &log, &count, "") {
                    udp.send_to(&answer, from).await.unwrap();
                }
            }
        });
        let streams = tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let (log, count) = over_tcp.clone();
                tokio::spawn(async move {
                    while let Ok(length) = stream.read_u16().await {
                        let mut query = vec![0; length.into()];
                        stream.read_exact(&mut query).await.unwrap();
                        if let Some(answer) = respond(&query, script, &log, &count, " tcp") {
                            stream.write_u16(answer.len().try_into().unwrap()).await.unwrap();
                            stream.write_all(&answer).await.unwrap();
                        }
                    }
                });
            }
        });
        Self { address, asked, tasks: vec![datagrams, streams] }
    }

    /// What was asked since the last time, sorted.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn respond(
    query: &[u8],
    script: Script,
    log: &Mutex<Vec<String>>,
    count: &AtomicUsize,
    transport: &str,
) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).unwrap();
    let question = query.queries[0].clone();
    let (name, family) = (question.name().to_lowercase().to_ascii(), question.query_type());
    log.lock().unwrap().push(format!("{family} {name}{transport}"));
    let mut answer = Message::response(query.metadata.id, OpCode::Query);
    answer.add_query(question.clone());
    let texts = match script(&name, family, count.fetch_add(1, Ordering::SeqCst)) {
        Reply::Silence => return None,
        Reply::Code(code) => {
            answer.metadata.response_code = code;
            return Some(answer.to_vec().unwrap());
        }
        Reply::Truncated(_) if transport.is_empty() => {
            answer.metadata.truncation = true;
            return Some(answer.to_vec().unwrap());
        }
        Reply::Truncated(texts) => (60, texts),
        Reply::Records(ttl, texts) => (ttl, texts),
    };
    let mut owner = question.name().clone();
    for text in texts.1 {
        let (kind, data) = text.split_once(' ').unwrap();
        let data = match kind {
            "A" => RData::A(A(data.parse().unwrap())),
            "AAAA" => RData::AAAA(AAAA(data.parse().unwrap())),
            _ => RData::CNAME(CNAME(Name::from_ascii(data).unwrap())),
        };
        let next = if let RData::CNAME(target) = &data { Some(target.0.clone()) } else { None };
        let wanted = next.is_some() || data.record_type() == family;
        if wanted {
            answer.add_answer(Record::from_rdata(owner.clone(), texts.0, data));
        }
        owner = next.unwrap_or(owner);
    }
    Some(answer.to_vec().unwrap())
}

fn resolver(servers: &[SocketAddr]) -> HickoryResolver {
    let settings = DnsSettings {
        servers: servers.to_vec(),
        timeout: Duration::from_millis(250),
        attempts: 2,
        max_ttl: Duration::from_secs(60),
        max_entries: 2,
    };
    HickoryResolver::new(&settings, Arc::new(SystemClock)).unwrap()
}

async fn lookup(resolver: &HickoryResolver, host: &str) -> Result<Resolved, ResolveError> {
    let rules = EgressRules::new(&Default::default()).unwrap();
    let endpoint = Endpoint::parse(&format!("https://{host}/")).unwrap();
    let admitted = rules.admit("tool", &endpoint, 0).verdict.unwrap();
    resolver.lookup(&admitted).await
}

async fn addresses(resolver: &HickoryResolver, host: &str) -> Vec<String> {
    let resolved = lookup(resolver, host).await.unwrap();
    resolved.answers.addresses.iter().map(IpAddr::to_string).collect()
}

const BOTH: [&str; 2] = ["A tool.example.", "AAAA tool.example."];

#[tokio::test]
async fn at_ttl_0_each_attempt_asks_each_family_once() {
    let server = Server::start(|_, _, _| records(0, &["A 192.0.2.1", "AAAA 2001:db8::1"])).await;
    let resolver = resolver(&[server.address]);
    for _ in 0..3 {
        assert_eq!(addresses(&resolver, "tool.example").await, ["192.0.2.1", "2001:db8::1"]);
        assert_eq!(server.asked(), BOTH);
    }
}

#[tokio::test]
async fn within_the_ttl_the_answer_is_kept_and_no_longer_than_the_cap() {
    let server = Server::start(|_, _, _| records(2_592_000, &["A 192.0.2.1"])).await;
    let resolver = resolver(&[server.address]);
    for cached in [false, true, true] {
        assert_eq!(lookup(&resolver, "tool.example").await.unwrap().cached, cached);
    }
    assert_eq!(server.asked(), BOTH);
    let until = resolver.book().known["tool.example"].until;
    assert!(until <= SystemClock.now() + Duration::from_secs(60));
}

#[tokio::test]
async fn callers_at_the_same_time_share_one_question() {
    let server = Server::start(|_, _, _| records(0, &["A 192.0.2.1"])).await;
    let resolver = Arc::new(resolver(&[server.address]));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let resolver = Arc::clone(&resolver);
        calls.spawn(async move { addresses(&resolver, "tool.example").await });
    }
    assert!(calls.join_all().await.iter().all(|found| found == &["192.0.2.1"]));
    assert_eq!(server.asked(), BOTH);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_question_to_the_others() {
    let server = Server::start(|_, _, nth| match nth {
        0 | 1 => Reply::Silence,
        _ => records(0, &["A 192.0.2.1"]),
    })
    .await;
    let resolver = resolver(&[server.address]);
    tokio::select! {
        biased;
        _ = lookup(&resolver, "tool.example") => panic!("nobody answers"),
        () = async { while server.asked.lock().unwrap().len() < 2 { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(addresses(&resolver, "tool.example").await, ["192.0.2.1"]);
}

#[tokio::test]
async fn a_literal_is_never_asked_for() {
    let server = Server::start(|_, _, _| Reply::Code(ResponseCode::Refused)).await;
    let resolver = resolver(&[server.address]);
    assert_eq!(addresses(&resolver, "8.8.8.8").await, ["8.8.8.8"]);
    assert_eq!(addresses(&resolver, "[2001:4860::1]").await, ["2001:4860::1"]);
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn the_names_of_a_chain_are_told() {
    let server = Server::start(|name, _, _| match name {
        "tool.example." => records(60, &["CNAME A.example.", "CNAME b.internal.", "A 10.0.0.1"]),
        "split.example." => records(0, &["CNAME end.example."]),
        _ => records(60, &["A 192.0.2.7"]),
    })
    .await;
    let resolver = resolver(&[server.address]);
    let whole = lookup(&resolver, "tool.example").await.unwrap();
    assert_eq!(whole.answers.names, ["a.example", "b.internal"]);
    assert_eq!(whole.answers.addresses, [IpAddr::from([10, 0, 0, 1])]);
    let split = lookup(&resolver, "split.example").await.unwrap();
    assert_eq!(split.answers.names, ["end.example"]);
    assert_eq!(split.answers.addresses, [IpAddr::from([192, 0, 2, 7])]);
    assert!(!lookup(&resolver, "split.example").await.unwrap().cached, "the shortest TTL counts");
}

#[tokio::test]
async fn a_loop_and_a_long_chain_end_soon() {
    let server = Server::start(|name, _, _| match name {
        "a.example." => records(60, &["CNAME b.example."]),
        "b.example." => records(60, &["CNAME a.example."]),
        name => {
            let n: u32 = name.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
            records(60, &[&format!("CNAME c{}.example.", n + 1)])
        }
    })
    .await;
    let resolver = resolver(&[server.address]);
    for host in ["a.example", "c1.example"] {
        let error = lookup(&resolver, host).await.unwrap_err();
        assert!(error.to_string().contains("a chain of more than 8 names"), "{error}");
        assert!(server.asked().len() <= 18);
    }
}

#[tokio::test]
async fn one_family_is_enough() {
    let server = Server::start(|name, family, _| match (name, family) {
        ("v4.example.", RecordType::AAAA) => Reply::Code(ResponseCode::ServFail),
        ("v6.example.", RecordType::A) => Reply::Code(ResponseCode::NXDomain),
        _ => records(60, &["A 192.0.2.1", "AAAA 2001:db8::1"]),
    })
    .await;
    let resolver = resolver(&[server.address]);
    assert_eq!(addresses(&resolver, "v4.example").await, ["192.0.2.1"]);
    assert_eq!(addresses(&resolver, "v6.example").await, ["2001:db8::1"]);
}

#[tokio::test]
async fn each_failure_has_its_kind_and_is_kept_for_a_moment() {
    use ResolveErrorKind::{NoData, NxDomain, Other, Refused, ServFail};
    let server = Server::start(|name, family, _| match name {
        "nx.example." => Reply::Code(ResponseCode::NXDomain),
        "fail.example." => Reply::Code(ResponseCode::ServFail),
        "refused.example." => Reply::Code(ResponseCode::Refused),
        "broken.example." => Reply::Code(ResponseCode::NotImp),
        "half.example." if family == RecordType::A => Reply::Code(ResponseCode::ServFail),
        _ => records(60, &[]),
    })
    .await;
    for (host, kind) in [
        ("nx.example", NxDomain),
        ("none.example", NoData),
        ("fail.example", ServFail),
        ("half.example", ServFail),
        ("refused.example", Refused),
        ("broken.example", Other),
    ] {
        let resolver = resolver(&[server.address]);
        for cached in [false, true] {
            let error = lookup(&resolver, host).await.unwrap_err();
            assert_eq!((error.kind, error.cached), (kind, cached), "{error}");
        }
        assert_eq!(server.asked().len(), 2, "{host}: no question is repeated");
    }
}

#[tokio::test]
async fn another_server_is_asked_when_one_fails() {
    let good = Server::start(|_, _, _| records(0, &["A 192.0.2.1"])).await;
    for script in [
        (|_, _, _| Reply::Code(ResponseCode::ServFail)) as Script,
        |_, _, _| Reply::Code(ResponseCode::Refused),
        |_, _, _| Reply::Silence,
    ] {
        let bad = Server::start(script).await;
        let resolver = resolver(&[bad.address, good.address]);
        assert_eq!(addresses(&resolver, "tool.example").await, ["192.0.2.1"]);
        assert!(!bad.asked().is_empty());
        assert_eq!(addresses(&resolver, "tool.example").await, ["192.0.2.1"]);
        assert!(bad.asked().is_empty(), "the one that answers is asked first");
    }
}

#[tokio::test]
async fn silence_is_a_timeout_and_a_closed_port_is_not() {
    let server = Server::start(|_, _, _| Reply::Silence).await;
    let silent = lookup(&resolver(&[server.address]), "tool.example").await.unwrap_err();
    assert_eq!(silent.kind, ResolveErrorKind::Timeout);
    assert!(silent.duration < Duration::from_millis(1500), "{:?}", silent.duration);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let gone = lookup(&resolver(&[address]), "tool.example").await.unwrap_err();
    assert_eq!(gone.kind, ResolveErrorKind::Other, "{gone}");
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_over_tcp_and_too_many_are_cut() {
    let server = Server::start(|_, family, _| match family {
        RecordType::A => {
            Reply::Truncated((0..500).map(|n| format!("A 192.0.{}.{}", n / 256, n % 256)).collect())
        }
        _ => records(0, &[]),
    })
    .await;
    let resolver = resolver(&[server.address]);
    let found = addresses(&resolver, "tool.example").await;
    assert_eq!(found.len(), 65, "one more than the rules take");
    assert!(server.asked().contains(&"A tool.example. tcp".to_owned()));
}

#[tokio::test]
async fn the_book_stays_within_its_bound() {
    let server = Server::start(|_, _, _| records(60, &["A 192.0.2.1"])).await;
    let resolver = resolver(&[server.address]);
    for host in ["a.example", "b.example", "c.example"] {
        addresses(&resolver, host).await;
    }
    assert_eq!(resolver.book().known.len(), 2);
    assert!(resolver.book().flights.is_empty());
    assert!(lookup(&resolver, "c.example").await.unwrap().cached);
}

#[test]
fn without_a_server_there_is_no_resolver() {
    let settings = DnsSettings {
        servers: vec![],
        timeout: Duration::from_secs(2),
        attempts: 2,
        max_ttl: Duration::from_secs(60),
        max_entries: 1024,
    };
    let built = HickoryResolver::new(&settings, Arc::new(SystemClock));
    assert!(matches!(built.err(), Some(ResolverError::NoServers)));
}
