//! The exchange against scripted peers, in memory and on loopback.

use std::net::Ipv4Addr;

use http::HeaderValue;
use http::header::HeaderName;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::clock::SystemClock;

mod answers;

const LIMITS: ReadLimits =
    ReadLimits { result_limit: 100, error_limit: 10, wants_body: |_, _| true };
const NAMES: [&str; 7] = [
    "Host",
    "Content-Type",
    "CL-Signature",
    "CL-Run-Id",
    "Idempotency-Key",
    "X-Own",
    "Content-Length",
];

fn outbound() -> Outbound {
    request(&NAMES, "{}")
}

fn request(names: &[&str], body: &'static str) -> Outbound {
    let mut headers = HeaderMap::new();
    for name in names {
        let value = if *name == "Content-Length" { body.len().to_string() } else { "v".into() };
        let value = HeaderValue::from_str(&value).unwrap();
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }
    let path_and_query = "/a?b=c".parse().unwrap();
    Outbound { method: Method::POST, path_and_query, headers, body: body.into() }
}

fn deadline(milliseconds: u64) -> Instant {
    SystemClock.now() + Duration::from_millis(milliseconds)
}

async fn exchange(
    http: &mut HttpConnection,
    milliseconds: u64,
) -> Result<RawAnswer, ExchangeError> {
    let case = HeaderCase::capture(&NAMES).unwrap();
    http.exchange(outbound(), &case, LIMITS, deadline(milliseconds), &SystemClock).await
}

/// Reads until the request above is whole.
async fn read_request(peer: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n{}") {
        let count = peer.read_buf(&mut read).await.unwrap();
        assert_ne!(count, 0, "the request broke off: {}", String::from_utf8_lossy(&read));
    }
    String::from_utf8(read).unwrap()
}

async fn pipe() -> (HttpConnection, DuplexStream) {
    let (ours, theirs) = duplex(1 << 20);
    (HttpConnection::open(Box::new(ours), false).await.unwrap(), theirs)
}

/// What the client makes of one scripted answer, and what the connection is good for afterwards. The peer keeps its
/// side open unless `end` is set.
async fn answered(answer: impl AsRef<[u8]>, end: bool) -> (Result<RawAnswer, ExchangeError>, Idle) {
    let (mut http, mut peer) = pipe().await;
    let script = async {
        read_request(&mut peer).await;
        // A peer that is hung up on in the middle is part of some scripts.
        let _ = peer.write_all(answer.as_ref()).await;
        if end {
            peer.shutdown().await.unwrap();
        }
    };
    let (result, ()) = tokio::join!(exchange(&mut http, 2000), script);
    let idle = http.poll_idle(Waker::noop());
    (result, idle)
}

async fn taken(answer: impl AsRef<[u8]>, end: bool) -> (u16, String, bool, Idle) {
    let (result, idle) = answered(answer, end).await;
    let answer = result.unwrap();
    let body = String::from_utf8(answer.body.to_vec()).unwrap();
    (answer.status, body, answer.whole, idle)
}

#[track_caller]
fn assert_refused(name: &str, error: &ExchangeError, kind: ExchangeErrorKind, status: Option<u16>) {
    assert_eq!((error.kind, error.status, error.sent), (kind, status, true), "{name}: {error}");
}

#[tokio::test]
async fn a_clean_answer_leaves_the_connection_usable() {
    let (mut http, mut peer) = pipe().await;
    for round in 0..3 {
        let script = async {
            read_request(&mut peer).await;
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        };
        let (answer, ()) = tokio::join!(exchange(&mut http, 2000), script);
        let answer = answer.unwrap();
        assert_eq!((answer.status, &answer.body[..], answer.whole), (200, &b"ok"[..], true));
        assert_eq!(answer.content_length, Some(2));
        assert_eq!(http.poll_idle(Waker::noop()), Idle::Alive, "round {round}");
    }
}

#[tokio::test]
async fn header_names_go_out_in_their_own_case_and_order() {
    for names in [NAMES.as_slice(), &["webhook-id", "Webhook-Timestamp", "X-ABC", "Content-Length"]]
    {
        let (mut http, mut peer) = pipe().await;
        let case = HeaderCase::capture(names).unwrap();
        let script = async {
            let request = read_request(&mut peer).await;
            peer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            request
        };
        let sent = request(names, "{}");
        let exchange = http.exchange(sent, &case, LIMITS, deadline(2000), &SystemClock);
        let (answer, request) = tokio::join!(exchange, script);
        assert_eq!(answer.unwrap().status, 204);
        let lines: String = names
            .iter()
            .map(|name| {
                format!("{name}: {}\r\n", if *name == "Content-Length" { "2" } else { "v" })
            })
            .collect();
        assert_eq!(request, format!("POST /a?b=c HTTP/1.1\r\n{lines}\r\n{{}}"));
    }
}

#[test]
fn a_name_with_a_space_has_no_spelling() {
    let error = HeaderCase::capture(&["Host", "X Own"]).unwrap_err();
    assert_eq!(error.to_string(), "`X Own` cannot be a header name");
}

#[tokio::test]
async fn bytes_on_an_idle_connection_poison_it_and_its_end_closes_it() {
    for (stray, expected) in [(b"x".as_slice(), Idle::Poisoned), (b"", Idle::Closed)] {
        let (mut http, mut peer) = pipe().await;
        let script = async {
            read_request(&mut peer).await;
            peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        };
        let (answer, ()) = tokio::join!(exchange(&mut http, 2000), script);
        answer.unwrap();
        assert_eq!(http.poll_idle(Waker::noop()), Idle::Alive);
        peer.write_all(stray).await.unwrap();
        if stray.is_empty() {
            drop(peer);
        }
        assert_eq!(http.poll_idle(Waker::noop()), expected);
    }
}

#[tokio::test]
async fn a_closing_server_is_believed() {
    let answer = "HTTP/1.1 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 2\r\n\r\nok";
    let (_, text, whole, idle) = taken(answer, false).await;
    assert_eq!((text.as_str(), whole, idle), ("ok", true, Idle::Closed));
}

#[tokio::test]
async fn reading_stops_one_byte_past_the_limit() {
    let limit = LIMITS.result_limit;
    for (size, kept, whole) in
        [(limit, limit, true), (limit + 1, limit + 1, false), (5000, limit + 1, false)]
    {
        let body = "x".repeat(size);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{body}");
        let (result, _) = answered(answer, false).await;
        let answer = result.unwrap();
        assert_eq!((answer.body.len(), answer.whole), (kept, whole), "{size}");
        assert_eq!(answer.content_length, Some(size as u64));
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_and_the_connection_is_closed() {
    let (mut http, mut peer) = pipe().await;
    let script = async {
        read_request(&mut peer).await;
        peer.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        while peer.write_all(b"1\r\nx\r\n").await.is_ok() {}
    };
    let call = async {
        let answer = exchange(&mut http, 2000).await;
        drop(http);
        answer
    };
    let (answer, ()) = tokio::join!(call, script);
    let answer = answer.unwrap();
    assert_eq!((answer.body.len(), answer.whole, answer.content_length), (101, false, None));
}

#[tokio::test]
async fn the_body_of_a_failure_is_short_and_its_troubles_do_not_matter() {
    for (name, answer, end, body, whole) in [
        ("whole", "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", false, "no", true),
        (
            "long",
            "HTTP/1.1 404 No\r\nContent-Length: 20\r\n\r\n01234567890123456789",
            false,
            "01234567890",
            false,
        ),
        ("short", "HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nno", true, "no", false),
        (
            "garbage",
            "HTTP/1.1 400 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\nZZ",
            true,
            "no",
            false,
        ),
        (
            "redirect",
            "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
            false,
            "",
            true,
        ),
    ] {
        let (status, text, ended, _) = taken(answer, end).await;
        assert!(status >= 300, "{name}");
        assert_eq!((text.as_str(), ended), (body, whole), "{name}");
    }
}

#[tokio::test]
async fn the_deadline_ends_every_wait() {
    use ExchangeErrorKind::Timeout;
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok";
    for (name, answer, kind, status) in [
        ("silence", "", Timeout(Phase::FirstByte), None),
        ("half a head", "HTTP/1.1 200 OK\r\n", Timeout(Phase::FirstByte), None),
        ("half a body", ok, Timeout(Phase::Body), Some(200)),
    ] {
        let (mut http, mut peer) = pipe().await;
        let script = async {
            read_request(&mut peer).await;
            peer.write_all(answer.as_bytes()).await.unwrap();
        };
        let (result, ()) = tokio::join!(exchange(&mut http, 60), script);
        assert_refused(name, &result.unwrap_err(), kind, status);
    }
    let (result, _) = {
        let (mut http, mut peer) = pipe().await;
        let script = async {
            read_request(&mut peer).await;
            peer.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\nno").await.unwrap();
        };
        tokio::join!(exchange(&mut http, 60), script)
    };
    let answer = result.unwrap();
    assert_eq!((answer.status, &answer.body[..], answer.whole), (503, &b"no"[..], false));
}

#[tokio::test]
async fn a_dripping_answer_ends_at_the_deadline() {
    for head in ["", "HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n"] {
        let (mut http, mut peer) = pipe().await;
        let script = async {
            read_request(&mut peer).await;
            peer.write_all(head.as_bytes()).await.unwrap();
            let mut pause = tokio::time::interval(Duration::from_millis(5));
            while peer.write_all(b"H").await.is_ok() {
                pause.tick().await;
            }
        };
        let call = async {
            let answer = exchange(&mut http, 60).await;
            drop(http);
            answer
        };
        let (answer, ()) = tokio::join!(call, script);
        assert!(matches!(answer.unwrap_err().kind, ExchangeErrorKind::Timeout(_)));
    }
}

#[tokio::test]
async fn endless_interim_answers_end_within_the_budget() {
    let (mut http, mut peer) = pipe().await;
    let script = async {
        read_request(&mut peer).await;
        let mut written = 0_usize;
        while peer.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.is_ok() {
            written += 28;
        }
        written
    };
    let call = async {
        let answer = exchange(&mut http, 5000).await;
        drop(http);
        answer
    };
    let (answer, written) = tokio::join!(call, script);
    assert_refused("103", &answer.unwrap_err(), ExchangeErrorKind::Head, None);
    // The rest lies in the pipe.
    assert!(written < (1 << 20) + 200_000, "{written}");
}

#[tokio::test]
async fn a_connection_that_closed_before_the_request_sends_nothing() {
    let (mut http, peer) = pipe().await;
    drop(peer);
    let error = exchange(&mut http, 2000).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (ExchangeErrorKind::Unsent, false), "{error}");
}

#[tokio::test]
async fn an_answer_before_the_request_is_no_answer() {
    let (mut http, mut peer) = pipe().await;
    peer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    let error = exchange(&mut http, 2000).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (ExchangeErrorKind::Unsent, false), "{error}");
    assert_ne!(http.poll_idle(Waker::noop()), Idle::Alive);
}

async fn sockets() -> (HttpConnection, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let dial = TcpSocket::new_v4().unwrap().connect(listener.local_addr().unwrap());
    let (ours, theirs) = tokio::join!(dial, listener.accept());
    (HttpConnection::open(Box::new(ours.unwrap()), false).await.unwrap(), theirs.unwrap().0)
}

fn reset(peer: TcpStream) {
    SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
}

#[tokio::test]
async fn a_reset_is_told_from_an_end() {
    for (name, answer, status) in [
        ("after the request", "", None),
        ("in the body", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Some(200)),
    ] {
        let (mut http, mut peer) = sockets().await;
        let (read, told) = tokio::sync::oneshot::channel();
        let script = async {
            read_request(&mut peer).await;
            peer.write_all(answer.as_bytes()).await.unwrap();
            if status.is_some() {
                // A reset throws away what was not read yet.
                let _ = told.await;
            }
            reset(peer);
        };
        let call = async {
            let case = HeaderCase::capture(&NAMES).unwrap();
            let mut call =
                pin!(http.exchange(outbound(), &case, LIMITS, deadline(2000), &SystemClock));
            let early = tokio::time::timeout(Duration::from_millis(100), &mut call).await;
            let _ = read.send(());
            match early {
                Ok(answer) => answer,
                Err(_) => call.await,
            }
        };
        let (result, ()) = tokio::join!(call, script);
        assert_refused(name, &result.unwrap_err(), ExchangeErrorKind::Reset, status);
    }
}

#[tokio::test]
async fn a_peer_that_never_reads_meets_the_deadline() {
    let (mut http, peer) = sockets().await;
    let body: Bytes = vec![b'x'; 16 << 20].into();
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, body.len().into())]);
    let path_and_query = "/".parse().unwrap();
    let sent = Outbound { method: Method::POST, path_and_query, headers, body };
    let case = HeaderCase::capture(&["Content-Length"]).unwrap();
    let error = http.exchange(sent, &case, LIMITS, deadline(100), &SystemClock).await.unwrap_err();
    assert_refused("stuck", &error, ExchangeErrorKind::Timeout(Phase::FirstByte), None);
    drop(peer);
}

#[tokio::test]
async fn an_answer_to_half_a_request_is_taken_but_the_connection_is_not() {
    let (mut http, mut peer) = sockets().await;
    let body: Bytes = vec![b'x'; 16 << 20].into();
    let headers = HeaderMap::from_iter([(CONTENT_LENGTH, body.len().into())]);
    let path_and_query = "/".parse().unwrap();
    let sent = Outbound { method: Method::POST, path_and_query, headers, body };
    let case = HeaderCase::capture(&["Content-Length"]).unwrap();
    let script = async {
        let mut some = [0; 512];
        peer.read_exact(&mut some).await.unwrap();
        peer.write_all(b"HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    };
    let (answer, ()) =
        tokio::join!(http.exchange(sent, &case, LIMITS, deadline(2000), &SystemClock), script);
    assert_eq!(answer.unwrap().status, 413);
    assert_eq!(http.poll_idle(Waker::noop()), Idle::Closed);
}

#[test]
fn debug_output_shows_no_body() {
    let (path_and_query, body) = ("/".parse().unwrap(), Bytes::from("client_secret=s3cret"));
    let outbound =
        Outbound { method: Method::POST, path_and_query, headers: HeaderMap::new(), body };
    assert_eq!(format!("{outbound:?}"), "Outbound(POST, 20 bytes)");
}
