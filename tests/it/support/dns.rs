//! The DNS fixture: a scripted zone over UDP and TCP that counts what it is asked and can change its mind.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::wait::{Log, Signal};

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// One question, as it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// The name, in the letters that were sent, with its final dot.
    pub(crate) name: String,
    pub(crate) kind: RecordType,
    pub(crate) transport: Transport,
}

/// Makes the packets to send from the question: for answers that no honest server gives.
pub(crate) type Forger = Arc<dyn Fn(&Message) -> Vec<Vec<u8>> + Send + Sync>;

/// What the server says to one question.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Records and codes as in the case file: `A 192.0.2.1`, `AAAA ::1`, `CNAME name`, `NXDOMAIN`, `SERVFAIL AAAA`.
    /// No record of the asked type is NODATA.
    Lines { ttl: u32, lines: Vec<String> },
    /// Nothing.
    Drop,
    /// TC=1 and nothing over UDP, the answer over TCP.
    Truncated(Box<Answer>),
    /// The answer, after the signal.
    Held(Signal, Box<Answer>),
    /// Any packets.
    Forged(Forger),
    /// Packets from a port that was not asked, then the answer.
    Strange(Forger, Box<Answer>),
}

impl Answer {
    /// Records and codes with a TTL of 60 seconds.
    pub(crate) fn lines(lines: &[&str]) -> Self {
        Self::with_ttl(60, lines)
    }

    pub(crate) fn with_ttl(ttl: u32, lines: &[&str]) -> Self {
        Self::Lines { ttl, lines: lines.iter().map(ToString::to_string).collect() }
    }

    pub(crate) fn truncated(self) -> Self {
        Self::Truncated(Box::new(self))
    }

    pub(crate) fn held(self, until: &Signal) -> Self {
        Self::Held(until.clone(), Box::new(self))
    }
}

/// The answers of one name: the last one stays.
struct Entry {
    answers: Vec<Answer>,
    asked: HashMap<RecordType, Asked>,
}

/// The questions of one type for one name.
struct Asked {
    count: usize,
    /// The id of the last one, and when it came.
    last: (u16, Instant),
}

/// A client that waits repeats its question under the same id, and not before this time.
const REPEATED_AFTER: Duration = Duration::from_millis(300);

struct Shared {
    zone: Mutex<HashMap<String, Entry>>,
    questions: Log<Question>,
    surprises: Log<String>,
}

/// A DNS server for one test. A question that is repeated, as on a busy machine, is answered again and not counted; one
/// for a name that it does not have fails the test (and is NXDOMAIN).
pub(crate) struct DnsServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: Vec<JoinHandle<()>>,
}

impl DnsServer {
    /// Serves UDP and TCP on one free loopback port.
    pub(crate) async fn start() -> Self {
        loop {
            let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            // The same number may be taken for TCP.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("a bound address")).await {
                return Self::serve(udp, Some(tcp));
            }
        }
    }

    /// Serves both at a given address.
    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        let udp = UdpSocket::bind(address).await.expect("a free UDP address");
        Self::serve(udp, Some(TcpListener::bind(address).await.expect("a free TCP address")))
    }

    /// Serves UDP alone: TCP is refused.
    pub(crate) async fn udp_only() -> Self {
        Self::serve(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port"), None)
    }

    fn serve(udp: UdpSocket, tcp: Option<TcpListener>) -> Self {
        let address = udp.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            zone: Mutex::new(HashMap::new()),
            questions: Log::new(),
            surprises: Log::new(),
        });
        let mut running = vec![tokio::spawn(serve_udp(Arc::new(udp), Arc::clone(&shared)))];
        running.extend(tcp.map(|tcp| tokio::spawn(serve_tcp(tcp, Arc::clone(&shared)))));
        Self { address, shared, running }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Goes away: when this returns, nobody listens at the address.
    pub(crate) async fn stop(mut self) {
        for running in self.running.drain(..) {
            running.abort();
            // An error says that it was aborted, which it was.
            let _ = running.await;
        }
    }

    /// From now on the name has these records and codes, with a TTL of 60 seconds.
    pub(crate) fn set(&self, name: &str, lines: &[&str]) -> &Self {
        self.script(name, vec![Answer::lines(lines)])
    }

    /// From now on the questions of each type for the name are answered in turn; the last answer stays.
    pub(crate) fn script(&self, name: &str, answers: Vec<Answer>) -> &Self {
        assert!(!answers.is_empty(), "an answer for {name}");
        let entry = Entry { answers, asked: HashMap::new() };
        self.shared.zone.lock().unwrap_or_else(PoisonError::into_inner).insert(key(name), entry);
        self
    }

    /// From now on the name has these records with a TTL of 0, and the aliases on the way have the rest of them.
    pub(crate) fn chain(&self, name: &str, lines: &[&str]) -> &Self {
        for (at, line) in lines.iter().enumerate() {
            if let Some(alias) = line.strip_prefix("CNAME ").filter(|alias| *alias != name) {
                self.script(alias, vec![Answer::with_ttl(0, &lines[at + 1..])]);
            }
        }
        self.script(name, vec![Answer::with_ttl(0, lines)])
    }

    /// Every question so far.
    pub(crate) fn questions(&self) -> Vec<Question> {
        self.shared.questions.all()
    }

    /// How often this was asked, over both transports.
    pub(crate) fn count(&self, name: &str, kind: RecordType) -> usize {
        let asked = self.questions();
        asked.iter().filter(|one| one.kind == kind && key(&one.name) == key(name)).count()
    }

    pub(crate) async fn wait_for_questions(&self, count: usize) -> Vec<Question> {
        let what = format!("{count} questions");
        self.shared.questions.wait(&what, |all| (all.len() >= count).then(|| all.to_vec())).await
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.running.iter().for_each(JoinHandle::abort);
        if !std::thread::panicking() {
            let surprises = self.shared.surprises.all();
            assert!(
                surprises.is_empty(),
                "the DNS server met something unexpected: {surprises:#?}"
            );
        }
    }
}

fn key(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

async fn serve_udp(socket: Arc<UdpSocket>, shared: Arc<Shared>) {
    let mut running = JoinSet::new();
    let mut buffer = [0; 4096];
    loop {
        // An ICMP error of an earlier answer can come up here: the asker is gone.
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else { continue };
        let packet = buffer[..length].to_vec();
        let (socket, shared) = (Arc::clone(&socket), Arc::clone(&shared));
        running.spawn(async move {
            for packet in shared.reply(&packet, Transport::Udp, peer).await {
                let _ = socket.send_to(&packet, peer).await;
            }
        });
        while running.try_join_next().is_some() {}
    }
}

async fn serve_tcp(listener: TcpListener, shared: Arc<Shared>) {
    let mut running = JoinSet::new();
    loop {
        let (mut stream, peer) = listener.accept().await.expect("a connection");
        let shared = Arc::clone(&shared);
        running.spawn(async move { while serve_one(&mut stream, peer, &shared).await.is_ok() {} });
        while running.try_join_next().is_some() {}
    }
}

async fn serve_one(
    stream: &mut TcpStream,
    peer: SocketAddr,
    shared: &Shared,
) -> std::io::Result<()> {
    let length = stream.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await?;
    for packet in shared.reply(&packet, Transport::Tcp, peer).await {
        stream.write_u16(u16::try_from(packet.len()).expect("a packet below 64 KiB")).await?;
        stream.write_all(&packet).await?;
    }
    Ok(())
}

impl Shared {
    /// Notes the question and makes the packets that answer it.
    async fn reply(&self, packet: &[u8], transport: Transport, peer: SocketAddr) -> Vec<Vec<u8>> {
        let request = match Message::from_vec(packet) {
            Ok(request) if request.queries.len() == 1 => request,
            other => {
                self.surprises.push(format!("not one question: {other:?}"));
                return Vec::new();
            }
        };
        let query = &request.queries[0];
        let (name, kind) = (query.name().to_ascii(), query.query_type());
        let id = (transport == Transport::Udp).then_some(request.metadata.id);
        let (mut answer, repeated) = self.next_answer(&name, kind, id);
        if !repeated {
            self.questions.push(Question { name, kind, transport });
        }
        loop {
            match answer {
                Answer::Held(signal, inner) => {
                    signal.fired().await;
                    answer = *inner;
                }
                Answer::Truncated(_) if transport == Transport::Udp => {
                    return vec![truncated(&request)];
                }
                Answer::Truncated(inner) => answer = *inner,
                Answer::Drop => return Vec::new(),
                Answer::Forged(forge) => return forge(&request),
                Answer::Strange(forge, inner) => {
                    let stranger = UdpSocket::bind((peer.ip(), 0)).await.expect("a free port");
                    for packet in forge(&request) {
                        // The kernel of a connected socket may say that it does not want it.
                        let _ = stranger.send_to(&packet, peer).await;
                    }
                    answer = *inner;
                }
                Answer::Lines { ttl, lines } => {
                    let packet = encode(&render(&request, ttl, &lines));
                    let room = usize::from(request.max_payload().max(512));
                    let fits = transport == Transport::Tcp || packet.len() <= room;
                    return vec![if fits { packet } else { truncated(&request) }];
                }
            }
        }
    }

    /// The answer, and whether the question is one that had been asked before.
    fn next_answer(&self, name: &str, kind: RecordType, id: Option<u16>) -> (Answer, bool) {
        let mut zone = self.zone.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = zone.get_mut(&key(name)) else {
            self.surprises.push(format!("{kind} of {name}, which the zone does not have"));
            return (Answer::lines(&["NXDOMAIN"]), false);
        };
        let now = Instant::now();
        let before = entry.asked.get(&kind);
        let repeated = before
            .is_some_and(|asked| Some(asked.last.0) == id && now - asked.last.1 >= REPEATED_AFTER);
        let count = before.map_or(0, |asked| asked.count) + usize::from(!repeated);
        if let (false, Some(id)) = (repeated, id) {
            entry.asked.insert(kind, Asked { count, last: (id, now) });
        } else if let Some(asked) = entry.asked.get_mut(&kind) {
            asked.count = count;
        }
        (entry.answers[count.clamp(1, entry.answers.len()) - 1].clone(), repeated)
    }
}

/// The answer to a question without any record yet: id, question and flags are in place.
pub(crate) fn blank(request: &Message) -> Message {
    let mut answer =
        Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
    answer.metadata.recursion_desired = request.metadata.recursion_desired;
    answer.metadata.recursion_available = true;
    answer.queries = request.queries.clone();
    answer
}

/// The packet of a message.
pub(crate) fn encode(message: &Message) -> Vec<u8> {
    message.to_vec().expect("a message that can be encoded")
}

/// Parses a name and makes it absolute.
pub(crate) fn absolute(name: &str) -> Name {
    let mut name = Name::from_ascii(name).expect("a DNS name");
    name.set_fqdn(true);
    name
}

fn truncated(request: &Message) -> Vec<u8> {
    let mut answer = blank(request);
    answer.metadata.truncation = true;
    encode(&answer)
}

fn render(request: &Message, ttl: u32, lines: &[String]) -> Message {
    let mut answer = blank(request);
    let kind = request.queries[0].query_type();
    let mut owner = request.queries[0].name().clone();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let data = match word {
            "A" => RData::A(A(rest.parse().expect("an IPv4 address"))),
            "AAAA" => RData::AAAA(AAAA(rest.parse().expect("an IPv6 address"))),
            "CNAME" => RData::CNAME(CNAME(absolute(rest))),
            code => {
                if rest.is_empty() || rest == kind.to_string() {
                    answer.metadata.response_code = response_code(code);
                }
                continue;
            }
        };
        if let RData::CNAME(CNAME(target)) = &data {
            let target = target.clone();
            answer.add_answer(Record::from_rdata(owner, ttl, data));
            owner = target;
        } else if data.record_type() == kind {
            answer.add_answer(Record::from_rdata(owner.clone(), ttl, data));
        }
    }
    if answer.metadata.response_code != ResponseCode::NoError {
        answer.answers.clear();
    }
    answer
}

fn response_code(word: &str) -> ResponseCode {
    match word {
        "FORMERR" => ResponseCode::FormErr,
        "NOTIMP" => ResponseCode::NotImp,
        "NXDOMAIN" => ResponseCode::NXDomain,
        "REFUSED" => ResponseCode::Refused,
        "SERVFAIL" => ResponseCode::ServFail,
        _ => panic!("neither a record nor a code: {word}"),
    }
}
