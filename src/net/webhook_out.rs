//! One notification to the operator's own server: signed, over a connection of its own, and no redirect is followed.
//!
//! The server is the operator's word, as the proxy is: it is looked up and dialled without the rules for tools.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::config::notifications::WebhookSink;
use crate::net::client::{ExchangeError, HttpConnection, Outbound, ReadLimits};
use crate::net::connect::{ConnectError, ConnectErrorKind, Dialled, IoStream, handshake, tcp};
use crate::net::epoch::Epoch;
use crate::net::header_case::HeaderCase;
use crate::net::resolve::ResolveError;
use crate::policy::endpoint::Scheme;
use crate::policy::sign::{MessageId, MessageIdError};

/// Bound on one delivery, from the lookup to the answer.
const DELIVERY_TIME: Duration = Duration::from_secs(10);
/// Nothing of an answer is needed but its status.
const ANSWER_LIMIT: usize = 1024;
/// In the order in which they are sent.
const SPELLING: [&str; 7] = [
    "Host",
    "Content-Type",
    "User-Agent",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "Content-Length",
];

/// Why a notification was not taken, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The exchange broke.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// Its id cannot be signed.
    #[error(transparent)]
    MessageId(#[from] MessageIdError),
    /// The secret cannot be read.
    #[error("the secret of `notifications.webhook` cannot be read")]
    NoKeys,
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// It was answered with another status than 2xx.
    #[error("it was answered with status {0}")]
    Status(u16),
    /// Its time ran out before there was a connection.
    #[error("no connection in time")]
    TooLate,
}

/// An address of the operator's own server.
#[derive(Clone, Copy)]
struct SinkAddr(SocketAddr);

impl Dialled for SinkAddr {
    fn socket(&self) -> SocketAddr {
        self.0
    }
}

/// Delivers one notification: 2xx is a yes, anything else is none.
pub async fn deliver(
    epoch: &Epoch,
    sink: &WebhookSink,
    message_id: &str,
    body: Bytes,
    clock: &dyn Clock,
) -> Result<(), WebhookError> {
    let deadline = clock.now() + DELIVERY_TIME;
    let headers = headers(sink, message_id, &body, clock)?;
    let stream = dial(epoch, sink, deadline).await?;
    let encrypted = sink.endpoint.scheme() == Scheme::Https;
    let opened = HttpConnection::open(stream, encrypted).await;
    let mut http = opened.map_err(|error| ConnectError::not_http(&error))?;
    let target = sink.endpoint.path_and_query().parse();
    let outbound = Outbound {
        method: Method::POST,
        path_and_query: target.expect("an endpoint's target is a URI"),
        headers,
        body,
    };
    let limits = ReadLimits {
        result_limit: ANSWER_LIMIT,
        error_limit: ANSWER_LIMIT,
        wants_body: |_, _| false,
    };
    let case = HeaderCase::capture(&SPELLING).expect("names that HTTP knows");
    let answer = http.exchange(outbound, &case, limits, deadline, clock).await?;
    match answer.status {
        200..300 => Ok(()),
        status => Err(WebhookError::Status(status)),
    }
}

/// Standard Webhooks: the same id on every delivery, and a fresh time and signature.
fn headers(
    sink: &WebhookSink,
    message_id: &str,
    body: &Bytes,
    clock: &dyn Clock,
) -> Result<HeaderMap, WebhookError> {
    let keys = sink.keys.as_ref().ok_or(WebhookError::NoKeys)?;
    let id = MessageId::parse(message_id)?;
    let seconds = clock.unix_ms().div_euclid(1000);
    let signature = sink.scheme.header_value(keys, seconds, id, body);
    let value = |text: &str| HeaderValue::from_str(text).expect("visible ASCII");
    Ok(HeaderMap::from_iter([
        (HOST, value(sink.endpoint.authority())),
        (CONTENT_TYPE, value("application/json")),
        (USER_AGENT, value(concat!("Sortie/", env!("CARGO_PKG_VERSION")))),
        (HeaderName::from_static("webhook-id"), value(message_id)),
        (HeaderName::from_static("webhook-timestamp"), value(&seconds.to_string())),
        (HeaderName::from_static("webhook-signature"), value(&signature)),
        (CONTENT_LENGTH, value(&body.len().to_string())),
    ]))
}

async fn dial(
    epoch: &Epoch,
    sink: &WebhookSink,
    deadline: Instant,
) -> Result<Box<dyn IoStream>, WebhookError> {
    let endpoint = &sink.endpoint;
    let lookup = epoch.network.resolver.lookup_own(endpoint);
    let answers = timeout_at(deadline, lookup).await.map_err(|_| WebhookError::TooLate)??;
    let socket = |ip: &_| SinkAddr(SocketAddr::new(*ip, endpoint.port()));
    let addresses: Vec<_> = answers.addresses.iter().map(socket).collect();
    let (stream, _) = tcp(&addresses, deadline, ConnectErrorKind::DeadlineInConnect).await?;
    match endpoint.scheme() {
        Scheme::Http => Ok(Box::new(stream)),
        Scheme::Https => {
            let (tls, late) = (&epoch.network.tls().config, ConnectErrorKind::DeadlineInTls);
            Ok(Box::new(handshake(tls, stream, endpoint.host(), deadline, late).await?))
        }
    }
}
