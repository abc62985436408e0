//! The tool server of the soak: it reads honest requests and answers each in a way that it draws.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::script::{answer, answer_with_headers, head};

use super::history::History;

/// How often each fault happens, in percent.
const EACH: usize = 5;
/// Longer than any attempt.
const FOR_EVER: Duration = Duration::from_secs(5);

/// What the server does with a request or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// None: an answer with the call's id.
    Good,
    /// Closed before anything is read.
    CloseAtOnce,
    /// Reset before anything is read.
    ResetAtOnce,
    /// Closed after the request.
    CloseAfter,
    /// Reset after the request.
    ResetAfter,
    /// No answer.
    Stall,
    /// A head, then a byte now and then.
    Drip,
    /// Half of the body that was announced.
    HalfBody,
    /// No HTTP.
    Garbage,
    /// Two lengths that differ.
    TwoLengths,
    /// A body in a coding that nobody asked for.
    Encoded,
    /// A longer answer than is read.
    Long,
    /// A good answer, and bytes after it.
    Stray,
    /// A good answer on a connection that then closes without a word.
    CloseLater,
    /// 302.
    Redirect,
    /// 404 with a text.
    NotFound,
    /// 429 with Retry-After.
    TooMany,
    /// 500.
    Broken,
    /// 503 with Retry-After.
    Busy,
}

impl Fault {
    pub(super) const ALL: [Self; 19] = [
        Self::Good,
        Self::CloseAtOnce,
        Self::ResetAtOnce,
        Self::CloseAfter,
        Self::ResetAfter,
        Self::Stall,
        Self::Drip,
        Self::HalfBody,
        Self::Garbage,
        Self::TwoLengths,
        Self::Encoded,
        Self::Long,
        Self::Stray,
        Self::CloseLater,
        Self::Redirect,
        Self::NotFound,
        Self::TooMany,
        Self::Broken,
        Self::Busy,
    ];

    /// Of a connection, before it brings a request.
    const AT_ONCE: [Self; 2] = [Self::CloseAtOnce, Self::ResetAtOnce];
    /// Of a request.
    const OF_REQUESTS: &[Self] = Self::ALL.split_at(3).1;

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::CloseAtOnce => "close_at_once",
            Self::ResetAtOnce => "reset_at_once",
            Self::CloseAfter => "close_after",
            Self::ResetAfter => "reset_after",
            Self::Stall => "stall",
            Self::Drip => "drip",
            Self::HalfBody => "half_body",
            Self::Garbage => "garbage",
            Self::TwoLengths => "two_lengths",
            Self::Encoded => "encoded",
            Self::Long => "long",
            Self::Stray => "stray",
            Self::CloseLater => "close_later",
            Self::Redirect => "redirect",
            Self::NotFound => "not_found",
            Self::TooMany => "too_many",
            Self::Broken => "broken",
            Self::Busy => "busy",
        }
    }

    /// Whether the call may succeed with it.
    pub(super) fn can_succeed(self) -> bool {
        matches!(self, Self::Good | Self::Long | Self::Stray | Self::CloseLater)
    }

    /// Whether it is a whole answer, or a head with a status other than 2xx.
    pub(super) fn answers(self) -> bool {
        use Fault::{Broken, Busy, Encoded, NotFound, Redirect, TooMany};
        self.can_succeed()
            || matches!(self, Encoded | Redirect | NotFound | TooMany | Broken | Busy)
    }

    /// Whether the status means that the tool did nothing.
    pub(super) fn says_nothing_was_done(self) -> bool {
        matches!(self, Self::TooMany | Self::Busy)
    }

    /// Whether a 2xx began and broke off.
    pub(super) fn breaks_the_body(self) -> bool {
        matches!(self, Self::HalfBody)
    }

    fn draw(among: &[Self], random: &mut StdRng) -> Self {
        let drawn = random.random_range(0..100) / EACH;
        among.get(drawn).copied().unwrap_or(Self::Good)
    }
}

/// The server.
pub(super) struct Peer {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Peer {
    /// Listens on a free loopback port.
    pub(super) async fn start(seed: u64, history: &Arc<History>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let open = Arc::new(AtomicUsize::new(0));
        let (history, counted) = (history.clone(), open.clone());
        let accepting = tokio::spawn(async move {
            for connection in 0_u64.. {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let random =
                    StdRng::seed_from_u64(seed ^ connection.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let (history, open) = (history.clone(), Open::new(&counted));
                tokio::spawn(async move {
                    // An error is the other side's going away.
                    let _ = serve(stream, random, &history).await;
                    drop(open);
                });
            }
        });
        Self { address, open, accepting }
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections that are open on this side.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn serve(
    mut stream: TcpStream,
    mut random: StdRng,
    history: &History,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let at_once = Fault::draw(&Fault::AT_ONCE, &mut random);
    if at_once != Fault::Good {
        history.arrived(at_once, None);
        return end(stream, at_once);
    }
    let mut pending = Vec::new();
    while let Some(request) = read(&mut stream, &mut pending).await? {
        let fault = Fault::draw(Fault::OF_REQUESTS, &mut random);
        let call = request.call.clone();
        history.arrived(fault, Some((request.call, request.key)));
        let good = || answer(200, "application/json", format!("{{\"call\":\"{call}\"}}"));
        let bytes = match fault {
            Fault::CloseAtOnce | Fault::ResetAtOnce | Fault::CloseAfter | Fault::ResetAfter => {
                return end(stream, fault);
            }
            Fault::Stall => return gone(&mut stream).await,
            Fault::Drip => {
                stream.write_all(&head(200, &[("Content-Length", "1000")])).await?;
                loop {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    stream.write_all(b"x").await?;
                }
            }
            Fault::HalfBody => {
                stream.write_all(&head(200, &[("Content-Length", "1000")])).await?;
                stream.write_all(&[b'x'; 500]).await?;
                return Ok(());
            }
            Fault::Garbage => b"HELO tool.example.com\r\n\r\n".to_vec(),
            Fault::TwoLengths => head(200, &[("Content-Length", "2"), ("Content-Length", "3")]),
            Fault::Encoded => answer_with_headers(200, &[("Content-Encoding", "gzip")], "{}"),
            Fault::Long => answer(200, "text/plain", format!("{call}{}", "x".repeat(400_000))),
            Fault::Redirect => answer_with_headers(302, &[("Location", "http://10.0.0.5/")], ""),
            Fault::NotFound => answer(404, "text/plain", "There is no such order."),
            Fault::TooMany => answer_with_headers(429, &[("Retry-After", "0")], ""),
            Fault::Broken => answer(500, "text/plain", "broken"),
            Fault::Busy => answer_with_headers(503, &[("Retry-After", "0")], ""),
            Fault::Good | Fault::CloseLater => good(),
            Fault::Stray => [good(), answer(200, "application/json", "\"stray\"")].concat(),
        };
        stream.write_all(&bytes).await?;
        if fault == Fault::CloseLater {
            return Ok(());
        }
    }
    Ok(())
}

fn end(stream: TcpStream, fault: Fault) -> std::io::Result<()> {
    if matches!(fault, Fault::ResetAtOnce | Fault::ResetAfter) {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    }
    drop(stream);
    Ok(())
}

/// Waits until the other side has gone.
async fn gone(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut rest = [0; 64];
    let read = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    let _ = tokio::time::timeout(FOR_EVER, read).await;
    Ok(())
}

struct Request {
    call: String,
    key: Option<String>,
}

/// The next request, whole; `None` where the connection ends before it is.
async fn read(stream: &mut TcpStream, pending: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    loop {
        if let Some(request) = whole(pending) {
            return Ok(Some(request));
        }
        if stream.read_buf(pending).await? == 0 {
            return Ok(None);
        }
    }
}

fn whole(pending: &mut Vec<u8>) -> Option<Request> {
    let end = pending.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&pending[..end]).expect("a head of text");
    let field = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    let length: usize =
        field("content-length").and_then(|text| text.parse().ok()).expect("a length");
    let key = field("idempotency-key");
    let body = pending.get(end..end + length)?;
    let body: Value = serde_json::from_slice(body).expect("a body of JSON");
    // The envelope has the arguments inside; elsewhere they are the body.
    let arguments = body.get("arguments").unwrap_or(&body);
    let call = arguments["call"].as_str().expect("the call's id").to_owned();
    pending.drain(..end + length);
    Some(Request { call, key })
}
