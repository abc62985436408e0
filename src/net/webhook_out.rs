//! One notification to the operator's own server, signed.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::clock::Clock;
use crate::config::notifications::WebhookSink;
use crate::net::client::ReadLimits;
use crate::net::epoch::Epoch;
use crate::net::own_server::{self, Letter, OwnServerError};
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
    /// Its id cannot be signed.
    #[error(transparent)]
    MessageId(#[from] MessageIdError),
    /// The secret cannot be read.
    #[error("the secret of `notifications.webhook` cannot be read")]
    NoKeys,
    /// There is no answer.
    #[error(transparent)]
    Server(#[from] OwnServerError),
    /// It was answered with another status than 2xx.
    #[error("it was answered with status {0}")]
    Status(u16),
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
    let limits = ReadLimits {
        result_limit: ANSWER_LIMIT,
        error_limit: ANSWER_LIMIT,
        wants_body: |_, _| false,
    };
    let letter = Letter { headers, spelling: &SPELLING, body, limits };
    let answer = own_server::post(epoch, &sink.endpoint, letter, deadline, clock).await?;
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
