//! One HTTP/1.1 exchange: a request out, a bounded answer in, and what exactly went wrong.

use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Uri, Version};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::net::connect::IoStream;
use crate::net::header_case::HeaderCase;
use crate::net::meter::{Meter, Metered};

/// Most lines in an answer's head.
const MAX_HEADERS: usize = 64;

/// Most bytes in an answer's head, and the size of hyper's buffers.
const MAX_HEAD: usize = 64 * 1024;

/// What is sent.
pub struct Outbound {
    /// POST to a tool.
    pub method: Method,
    /// The request target, origin form.
    pub path_and_query: Uri,
    /// Every header line, in order, `Host` and `Content-Length` too.
    pub headers: HeaderMap,
    /// The body, as it was signed.
    pub body: Bytes,
}

/// A body is not shown: it may hold a client's secret, or a person's words.
impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbound({}, {} bytes)", self.method, self.body.len())
    }
}

/// How long the body of a failed answer is waited for.
const ERROR_BODY_TIME: Duration = Duration::from_secs(1);

/// How much is read.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    /// Of a 2xx body; reading stops one byte past it.
    pub result_limit: usize,
    /// Of any other body.
    pub error_limit: usize,
    /// Whether a body is read at all, by the status and the head's lines: one that cannot be shown need not end.
    pub wants_body: fn(u16, &HeaderMap) -> bool,
}

/// An answer whose head was in order.
pub struct RawAnswer {
    /// 200 to 599.
    pub status: u16,
    /// The head's lines.
    pub headers: HeaderMap,
    /// At most one byte more than the limit.
    pub body: Bytes,
    /// Whether the body ended within the limit. Without 2xx, a body that broke is only not whole.
    pub whole: bool,
    /// Whether the connection can take another request as it is: hyper answers an HTTP/1.0 server in kind.
    pub reusable: bool,
    /// The length that the head announces.
    pub content_length: Option<u64>,
    /// From the start of the exchange to the whole head.
    pub first_byte: Duration,
    /// From the head to the end of the reading.
    pub body_time: Duration,
}

/// A body is not shown: it may hold a token, or a person's data.
impl fmt::Debug for RawAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawAnswer({}, {} bytes)", self.status, self.body.len())
    }
}

/// Which wait the deadline ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// In the body.
    Body,
    /// Before the head was whole.
    FirstByte,
}

impl Phase {
    /// The `detail` of a `timeout`, and the label of its phase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::FirstByte => "first_byte",
        }
    }
}

/// What broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeErrorKind {
    /// The server does not take our certificate, or the lack of one. With TLS 1.3 it says so after the request left, and
    /// before it looks at it: a request of an unaccepted client reaches nobody.
    ClientCertificate,
    /// The stream ended before the answer did.
    Closed,
    /// The answer's lengths, codings or status do not make one message: `bad_body`, detail `framing`.
    Framing,
    /// The answer's head is too large, has too many lines or is no HTTP: `bad_body`, detail `head`.
    Head,
    /// The stream was reset.
    Reset,
    /// The deadline came.
    Timeout(Phase),
    /// No byte of the request was written; after a kept connection it may go out on a fresh one, free of charge.
    Unsent,
}

/// A failed exchange, with the operator's sentence.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExchangeError {
    /// What broke.
    pub kind: ExchangeErrorKind,
    /// Whether any byte of the request may have been written.
    pub sent: bool,
    /// The status, where a head was read: then it was the body that broke.
    pub status: Option<u16>,
    /// How long until the head was in, or until it broke.
    pub first_byte: Duration,
    message: String,
}

/// What a kept connection is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// It takes another request.
    Alive,
    /// It is closed, or still busy with the last request.
    Closed,
    /// It brought bytes that nobody asked for.
    Poisoned,
}

/// An open HTTP/1.1 connection. It makes progress only while somebody polls it, so that no task has to be owned.
pub struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    meter: Arc<Meter>,
}

enum Driver {
    Ended(Idle),
    Running(Box<Connection<TokioIo<Metered>, Full<Bytes>>>),
}

impl Driver {
    fn drive(&mut self, cx: &mut Context<'_>) {
        if let Self::Running(connection) = self
            && let Poll::Ready(ended) = Pin::new(&mut **connection).poll(cx)
        {
            *self = Self::Ended(match ended {
                Err(error) if io_error(&error).is_none() => Idle::Poisoned,
                Ok(()) | Err(_) => Idle::Closed,
            });
        }
    }
}

impl HttpConnection {
    /// Speaks HTTP/1.1 over a stream; nothing is sent yet.
    pub async fn open(stream: Box<dyn IoStream>, encrypted: bool) -> Result<Self, hyper::Error> {
        let (metered, meter) = Metered::new(stream, encrypted);
        // The case map of a request is written whether or not answers keep theirs, so that they need not.
        let (sender, connection) = Builder::new()
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD)
            .max_buf_size(MAX_HEAD)
            .title_case_headers(false)
            .handshake(TokioIo::new(metered))
            .await?;
        Ok(Self { sender, driver: Driver::Running(Box::new(connection)), meter })
    }

    /// Looks whether the connection can take a request; `waker` learns when it closes.
    pub fn poll_idle(&mut self, waker: &Waker) -> Idle {
        self.driver.drive(&mut Context::from_waker(waker));
        match &self.driver {
            Driver::Ended(idle) => *idle,
            Driver::Running(_) if self.sender.is_ready() => Idle::Alive,
            Driver::Running(_) => Idle::Closed,
        }
    }

    /// Sends the request and reads the answer. Only after a whole answer may the connection be used again.
    pub async fn exchange(
        &mut self,
        outbound: Outbound,
        case: &HeaderCase,
        limits: ReadLimits,
        deadline: Instant,
        clock: &dyn Clock,
    ) -> Result<RawAnswer, ExchangeError> {
        let begun = clock.now();
        self.meter.begin();
        let mut request = Request::new(Full::new(outbound.body));
        *request.method_mut() = outbound.method;
        *request.uri_mut() = outbound.path_and_query;
        *request.headers_mut() = outbound.headers;
        case.apply(request.extensions_mut());

        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        let head = timeout_at(
            deadline,
            poll_fn(|cx| {
                driver.drive(cx);
                answer.as_mut().poll(cx)
            }),
        )
        .await;
        let headed = clock.now();
        self.meter.head_is_read();
        let failed = |kind, status, message| {
            let sent = self.meter.sent();
            ExchangeError { kind, sent, status, first_byte: headed - begun, message }
        };
        let (parts, mut body) = match head {
            Ok(Ok(response)) => response.into_parts(),
            Ok(Err(refused)) => {
                let error = refused.into_error();
                if let Some(alert) = self.meter.refusal() {
                    let message =
                        format!("the server does not take the client certificate: {alert}");
                    return Err(failed(ExchangeErrorKind::ClientCertificate, None, message));
                }
                let kind = if self.meter.sent() {
                    classify(&error, &self.meter)
                } else {
                    ExchangeErrorKind::Unsent
                };
                return Err(failed(kind, None, describe("no answer", &error)));
            }
            Err(_) => {
                let kind = ExchangeErrorKind::Timeout(Phase::FirstByte);
                return Err(failed(kind, None, "no answer before the deadline".into()));
            }
        };
        let status = parts.status.as_u16();
        judge_head(status, &parts.headers)
            .map_err(|message| failed(ExchangeErrorKind::Framing, None, message))?;

        let content_length = body.size_hint().exact();
        let success = parts.status.is_success();
        let limit = if success { limits.result_limit } else { limits.error_limit };
        let mut kept = Kept::default();
        // A failed answer is known by its head: its body may not hold it up for long.
        let deadline = if success { deadline } else { deadline.min(headed + ERROR_BODY_TIME) };
        let end = if (limits.wants_body)(status, &parts.headers) {
            timeout_at(deadline, read_body(driver, &mut body, &mut kept, limit)).await
        } else {
            Ok(Ok(body.is_end_stream()))
        };
        let whole = match end {
            Ok(Ok(whole)) => whole,
            // A head that is no success is the answer, whatever becomes of its body.
            _ if !success => false,
            Ok(Err(error)) => {
                let kind = classify(&error, &self.meter);
                return Err(failed(kind, Some(status), describe("the body broke", &error)));
            }
            Err(_) => {
                let kind = ExchangeErrorKind::Timeout(Phase::Body);
                let message = "the body did not end before the deadline";
                return Err(failed(kind, Some(status), message.into()));
            }
        };
        Ok(RawAnswer {
            status,
            headers: parts.headers,
            body: kept.finish(limit),
            whole,
            reusable: whole && parts.version == Version::HTTP_11,
            content_length,
            first_byte: headed - begun,
            body_time: clock.now() - headed,
        })
    }
}

/// Reads until the end or past the limit; says whether the end came.
async fn read_body(
    driver: &mut Driver,
    body: &mut Incoming,
    kept: &mut Kept,
    limit: usize,
) -> Result<bool, hyper::Error> {
    while let Some(frame) = next_frame(driver, body).await {
        // Trailers are left out: they never become headers.
        if let Ok(data) = frame?.into_data() {
            kept.push(data);
        }
        if kept.len() > limit {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn next_frame(
    driver: &mut Driver,
    body: &mut Incoming,
) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    poll_fn(|cx| {
        if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        driver.drive(cx);
        Pin::new(&mut *body).poll_frame(cx)
    })
    .await
}

/// The body so far. A body of one piece is not copied.
#[derive(Default)]
struct Kept {
    first: Bytes,
    more: BytesMut,
}

impl Kept {
    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        if self.more.is_empty() {
            self.more.extend_from_slice(&self.first);
        }
        self.more.extend_from_slice(&data);
    }

    fn len(&self) -> usize {
        self.first.len().max(self.more.len())
    }

    fn finish(mut self, limit: usize) -> Bytes {
        let mut body = if self.more.is_empty() { self.first } else { self.more.split().freeze() };
        body.truncate(limit.saturating_add(1));
        body
    }
}

/// What hyper lets pass although it is not one message (RFC 9112, section 6).
fn judge_head(status: u16, headers: &HeaderMap) -> Result<(), String> {
    if !(200..=599).contains(&status) {
        return Err(format!("status {status} does not end a request"));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(()) };
    if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err("the transfer coding is not exactly `chunked`".into());
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err("the answer has both Content-Length and Transfer-Encoding".into());
    }
    Ok(())
}

/// Which failure an error of hyper is, once a part of the request may have left.
fn classify(error: &hyper::Error, meter: &Meter) -> ExchangeErrorKind {
    if meter.over_budget() {
        return ExchangeErrorKind::Head;
    }
    if error.is_parse() {
        // hyper keeps the finer kinds to itself; only its text tells them apart.
        let text = error.to_string();
        let framing =
            ["content-length", "transfer-encoding"].iter().any(|part| text.contains(part));
        return if framing { ExchangeErrorKind::Framing } else { ExchangeErrorKind::Head };
    }
    match io_error(error) {
        Some(error) if error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
            ExchangeErrorKind::Reset
        }
        Some(error) => match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => ExchangeErrorKind::Framing,
            io::ErrorKind::UnexpectedEof => ExchangeErrorKind::Closed,
            _ => ExchangeErrorKind::Reset,
        },
        None if error.is_incomplete_message() || error.is_canceled() => ExchangeErrorKind::Closed,
        // What is left is an answer before the request.
        None => ExchangeErrorKind::Framing,
    }
}

fn io_error(error: &hyper::Error) -> Option<&io::Error> {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(found) = cause.downcast_ref::<io::Error>() {
            return Some(found);
        }
        source = cause.source();
    }
    None
}

fn describe(what: &str, error: &hyper::Error) -> String {
    match error.source() {
        Some(cause) => format!("{what}: {error}: {cause}"),
        None => format!("{what}: {error}"),
    }
}

#[cfg(test)]
mod tests;
