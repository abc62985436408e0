//! The demo's tool server, as an author of tools would write it: it shares no code with what signs.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, LOCATION};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use serde_json::json;
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::clock::{Clock, SystemClock};

/// How old a signature may be, in seconds.
const TOLERANCE: i64 = 300;

/// A request's largest body, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// One request, as it arrived.
#[derive(Debug)]
pub struct Received {
    /// Every byte of it, after TLS.
    pub raw: String,
    /// Whether the signature was right.
    pub signature: Result<(), &'static str>,
}

/// A running tool server on loopback; it ends when it is dropped.
#[derive(Debug)]
pub struct ToolServer {
    port: u16,
    /// What arrived, in order, each before it is answered.
    pub received: mpsc::Receiver<Received>,
    task: JoinHandle<()>,
}

/// What each connection needs.
struct Shop {
    secret: String,
    redirect_to: &'static str,
    received: mpsc::Sender<Received>,
}

impl ToolServer {
    /// Serves `/tools/lookup-order` and `/tools/track-parcel`, which redirects, with TLS on a free port.
    pub async fn start(
        tls: Arc<ServerConfig>,
        secret: &str,
        redirect_to: &'static str,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (sender, received) = mpsc::channel(64);
        let shop = Arc::new(Shop { secret: secret.to_owned(), redirect_to, received: sender });
        let task = tokio::spawn(serve(listener, TlsAcceptor::from(tls), shop));
        Ok(Self { port, received, task })
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, shop: Arc<Shop>) {
    // Owned here, so that all connections end with the server.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shop) = (tls.clone(), Arc::clone(&shop));
        connections.spawn(async move {
            // Without this the second packet of an answer waits for the first one's acknowledgement.
            let _ = stream.set_nodelay(true);
            let Ok(stream) = tls.accept(stream).await else { return };
            let raw = Arc::new(Mutex::new(Vec::new()));
            let stream = Recorded { stream, raw: Arc::clone(&raw) };
            let service = service_fn(|request| answer(request, &raw, &shop));
            // A connection that breaks is the client's to report.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn answer(
    request: Request<Incoming>,
    raw: &Mutex<Vec<u8>>,
    shop: &Shop,
) -> Result<Response<Full<Bytes>>, BoxError> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let header = head.headers.get("x-tool-signature").and_then(|value| value.to_str().ok());
    let signature = verify(&shop.secret, header, &body, SystemClock.unix_ms() / 1000);
    let raw = std::mem::take(&mut *raw.lock().unwrap_or_else(PoisonError::into_inner));
    let received = Received { raw: String::from_utf8_lossy(&raw).into_owned(), signature };
    // Nobody listens any more when the demo ends.
    let _ = shop.received.send(received).await;

    let response = Response::builder().header(CONTENT_TYPE, "application/json");
    let (response, answer) = match (signature, head.uri.path()) {
        (Err(why), _) => (response.status(401), json!({"error": why})),
        (Ok(()), "/tools/lookup-order") => {
            let call: serde_json::Value = serde_json::from_slice(&body)?;
            let order = call.pointer("/arguments/order_number");
            (response, json!({"order_number": order, "status": "shipped", "arrives": "tomorrow"}))
        }
        (Ok(()), "/tools/track-parcel") => {
            (response.status(302).header(LOCATION, shop.redirect_to), json!({"moved": true}))
        }
        (Ok(()), _) => (response.status(404), json!({"error": "no such tool"})),
    };
    Ok(response.body(Full::from(answer.to_string()))?)
}

/// Checks `t=<seconds>,v1=<hex>`: HMAC-SHA256 over `<t>.<raw body>`, the key being the secret's text.
fn verify(secret: &str, header: Option<&str>, body: &[u8], now: i64) -> Result<(), &'static str> {
    let header = header.ok_or("there is no X-Tool-Signature")?;
    let mut time = None;
    let mut signatures = Vec::new();
    for part in header.split(',') {
        match part.split_once('=') {
            Some(("t", value)) => time = Some(value),
            Some(("v1", value)) => signatures.extend(from_hex(value)),
            _ => {}
        }
    }
    let time = time
        .filter(|time| time.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or("t is not a number")?;
    let seconds: i64 = time.parse().map_err(|_| "t is not a number")?;
    if (now - seconds).abs() > TOLERANCE {
        return Err("t is too old, or in the future");
    }
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|_| "the key cannot be used")?;
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    let matches = signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok());
    if matches { Ok(()) } else { Err("no v1 is the signature of this body") }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits?;
    let bytes = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    });
    bytes.collect()
}

/// A stream that keeps a copy of what is read from it.
struct Recorded<S> {
    stream: S,
    raw: Arc<Mutex<Vec<u8>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Recorded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let read = buffer.filled().get(before..).unwrap_or_default();
        self.raw.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(read);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Recorded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";
    const BODY: &[u8] = br#"{"scanId":"RX-4471"}"#;
    const GOOD: &str =
        "t=1760708872,v1=0003f4528fbbf0db485d73ad0bcdf6ffd0e765a914486fc0e4e258dfe0a05f8d";
    const OTHER: &str = "v1=d4d6875816cd611d52f5cde661ec2bdcf1a1dcbf76bb4acc30eb1211aad1c5e2";

    #[track_caller]
    fn check(header: &str, body: &[u8], now: i64, valid: bool) {
        assert_eq!(verify(SECRET, Some(header), body, now).is_ok(), valid, "{header}");
    }

    #[test]
    fn a_published_vector_is_verified() {
        check(GOOD, BODY, 1_760_708_872, true);
        check(&GOOD.replace(",", &format!(",{OTHER},")), BODY, 1_760_708_872 + 300, true);
    }

    #[test]
    fn anything_else_is_not() {
        check(GOOD, br#"{"scanId": "RX-4471"}"#, 1_760_708_872, false);
        check(GOOD, BODY, 1_760_708_872 + 301, false);
        check(GOOD, BODY, 1_760_708_872 - 301, false);
        check(&format!("t=1760708872,{OTHER}"), BODY, 1_760_708_872, false);
        for header in
            ["", "t=", "t=+1760708872,v1=00", "v1=00", "t=1760708872,v1=0", "t=1760708872,v1=zz"]
        {
            check(header, BODY, 1_760_708_872, false);
        }
        assert!(verify(SECRET, None, BODY, 1_760_708_872).is_err());
    }
}
