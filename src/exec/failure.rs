//! From what went wrong on the wire to what the runtime, the model, the retry decision and the metrics are told.

use std::time::Duration;

use crate::model::outcome::{Failure, FailureCode, Sent};
use crate::net::client::{ExchangeError, ExchangeErrorKind, Phase as ExchangePhase};
use crate::net::connect::{ConnectError, ConnectErrorKind};
use crate::net::dns::ResolveErrorKind;
use crate::net::resolve::ResolveError;
use crate::policy::address::Refusal;
use crate::policy::answer::AnswerError;
use crate::policy::egress_code::EgressCode;
use crate::policy::retry::AttemptEnd;
use crate::telemetry::labels::{AttemptResult, Phase, RetryReason};

const UNREACHABLE: &str = "The tool's server could not be reached.";
const CANCELLED: &str = "The call was cancelled.";
/// Bytes of a redirect's target in the operator's log.
const LOCATION_SHOWN: usize = 200;
const UNREADABLE: &str = "The tool's answer could not be read.";

/// One attempt without a result.
#[derive(Debug, Clone)]
pub struct AttemptFailure {
    /// For the retry decision.
    pub end: AttemptEnd,
    /// For the metric; `None` where nothing was tried: a refusal.
    pub result: Option<AttemptResult>,
    /// For the runtime and the model.
    pub failure: Box<Failure>,
    /// For the operator's log only: it may name addresses and quote libraries.
    pub reason: String,
    /// What the answer asked to be waited.
    pub retry_after: Option<Duration>,
}

impl AttemptFailure {
    fn new(
        end: AttemptEnd,
        result: Option<AttemptResult>,
        failure: Failure,
        reason: String,
    ) -> Self {
        Self { end, result, failure: Box::new(failure), reason, retry_after: None }
    }

    /// The egress rules let nothing through.
    pub fn refused(refusal: &Refusal) -> Self {
        if refusal.code == EgressCode::ResolveFailed {
            Self::no_address(refusal)
        } else {
            Self::blocked(refusal)
        }
    }

    /// The host or its address is not allowed.
    pub fn blocked(refusal: &Refusal) -> Self {
        let failure = Failure {
            detail: Some(refusal.code.as_str()),
            ..Failure::not_sent(FailureCode::BlockedHost, "The tool's address is not allowed.")
        };
        Self::new(AttemptEnd::Blocked, None, failure, refusal.to_string())
    }

    /// The name has no address.
    pub fn resolve(error: &ResolveError) -> Self {
        let end = match error.kind {
            ResolveErrorKind::Exhausted => return Self::overloaded(error.to_string()),
            ResolveErrorKind::NoData | ResolveErrorKind::NxDomain => AttemptEnd::NoSuchName,
            ResolveErrorKind::Other
            | ResolveErrorKind::Refused
            | ResolveErrorKind::ServFail
            | ResolveErrorKind::Timeout => AttemptEnd::Dns,
        };
        Self::network(end, AttemptResult::Dns, Sent::NotSent, error.to_string())
    }

    /// The resolver answered, with nothing that can be dialled.
    pub fn no_address(refusal: &Refusal) -> Self {
        Self::network(
            AttemptEnd::NoSuchName,
            AttemptResult::Dns,
            Sent::NotSent,
            refusal.to_string(),
        )
    }

    /// The attempt's time ran out before anything was sent.
    pub fn too_late(phase: Phase, allowed: Duration) -> Self {
        let end = match phase {
            Phase::Dns => AttemptEnd::Dns,
            Phase::Tls => AttemptEnd::TlsHandshake,
            Phase::Connect | Phase::FirstByte | Phase::Body => AttemptEnd::Connect,
        };
        Self::timeout(end, phase, allowed, Sent::NotSent)
    }

    /// There is no connection.
    pub fn connect(error: &ConnectError, allowed: Duration) -> Self {
        let reason = error.to_string();
        let network = |end, result| Self::network(end, result, Sent::NotSent, reason.clone());
        match error.kind {
            ConnectErrorKind::Certificate => network(AttemptEnd::Certificate, AttemptResult::Tls),
            ConnectErrorKind::Connect | ConnectErrorKind::ConnectTimeout => {
                network(AttemptEnd::Connect, AttemptResult::Connect)
            }
            ConnectErrorKind::DeadlineInConnect => Self::too_late(Phase::Connect, allowed),
            ConnectErrorKind::DeadlineInTls => Self::too_late(Phase::Tls, allowed),
            ConnectErrorKind::Exhausted => Self::overloaded(reason.clone()),
            ConnectErrorKind::PeerMismatch => network(AttemptEnd::Blocked, AttemptResult::Connect),
            ConnectErrorKind::Tls => network(AttemptEnd::TlsHandshake, AttemptResult::Tls),
        }
    }

    /// The exchange broke.
    pub fn exchange(error: &ExchangeError, allowed: Duration) -> Self {
        let sent = if error.sent { Sent::Unknown } else { Sent::NotSent };
        let reason = error.to_string();
        let broken = |result| {
            let end = match (error.sent, error.status) {
                (false, _) => AttemptEnd::Unsent,
                (true, None) => AttemptEnd::Broken,
                (true, Some(_)) => AttemptEnd::BodyBroken,
            };
            Self::network(end, result, sent, reason.clone())
        };
        let unreadable = |detail| {
            let failure = Failure {
                detail: Some(detail),
                sent,
                ..Failure::not_sent(FailureCode::BadBody, UNREADABLE)
            };
            let result = Some(AttemptResult::BadBody);
            Self::new(AttemptEnd::Unreadable, result, failure, reason.clone())
        };
        let mut made = match error.kind {
            // Nobody but the server's TLS saw anything of the request.
            ExchangeErrorKind::ClientCertificate => {
                let (end, reason) = (AttemptEnd::Certificate, error.to_string());
                Self::network(end, AttemptResult::Tls, Sent::NotSent, reason)
            }
            ExchangeErrorKind::Closed | ExchangeErrorKind::Unsent => broken(AttemptResult::Closed),
            ExchangeErrorKind::Framing => unreadable("framing"),
            ExchangeErrorKind::Head => unreadable("head"),
            ExchangeErrorKind::Reset => broken(AttemptResult::Reset),
            ExchangeErrorKind::Timeout(ExchangePhase::FirstByte) => {
                let end = if error.sent { AttemptEnd::ResponseTimeout } else { AttemptEnd::Unsent };
                Self::timeout(end, Phase::FirstByte, allowed, sent)
            }
            ExchangeErrorKind::Timeout(ExchangePhase::Body) => {
                Self::timeout(AttemptEnd::BodyTimeout, Phase::Body, allowed, sent)
            }
        };
        made.failure.http_status = error.status;
        made
    }

    /// There is no token because the exchange with its endpoint broke: the tool was sent nothing.
    pub fn token_exchange(error: &ExchangeError, allowed: Duration) -> Self {
        let result = match error.kind {
            ExchangeErrorKind::Timeout(_) => return Self::too_late(Phase::FirstByte, allowed),
            ExchangeErrorKind::Closed | ExchangeErrorKind::Unsent => AttemptResult::Closed,
            ExchangeErrorKind::ClientCertificate => AttemptResult::Tls,
            ExchangeErrorKind::Reset => AttemptResult::Reset,
            ExchangeErrorKind::Framing | ExchangeErrorKind::Head => AttemptResult::Connect,
        };
        Self::network(AttemptEnd::Connect, result, Sent::NotSent, error.to_string())
    }

    /// The token endpoint answered, and there is no token in it: another time there may be.
    pub fn no_token(reason: String, retry_after: Option<Duration>) -> Self {
        let made =
            Self::network(AttemptEnd::Connect, AttemptResult::Connect, Sent::NotSent, reason);
        Self { retry_after, ..made }
    }

    /// The token endpoint refused the client: the configuration has to change.
    pub fn no_grant(reason: String) -> Self {
        let text = "The tool is not configured: its authorization was refused.";
        let failure = Failure::not_sent(FailureCode::NotConfigured, text);
        Self::new(AttemptEnd::Blocked, None, failure, reason)
    }

    /// Says for the operator what it was about.
    pub fn about(self, what: &str) -> Self {
        Self { reason: format!("{what}: {}", self.reason), ..self }
    }

    /// A whole head with a status other than 2xx.
    pub fn status(
        status: u16,
        tool_message: Option<String>,
        retry_after: Option<Duration>,
        location: Option<&[u8]>,
    ) -> Self {
        let (code, message) = if is_redirect(status) {
            let text = "The tool answered with a redirect, which is not followed.".to_owned();
            (FailureCode::Redirect, text)
        } else {
            (FailureCode::HttpStatus, format!("The tool answered with status {status}."))
        };
        let result = match status {
            300..400 => AttemptResult::Redirection,
            400..500 => AttemptResult::ClientError,
            _ => AttemptResult::ServerError,
        };
        let failure = Failure {
            sent: Sent::Answered,
            http_status: Some(status),
            tool_message,
            ..Failure::not_sent(code, message)
        };
        let reason = match location {
            Some(location) => {
                let shown = &location[..location.len().min(LOCATION_SHOWN)];
                format!("status {status} with location {}", shown.escape_ascii())
            }
            None => format!("status {status}"),
        };
        let made = Self::new(AttemptEnd::Status(status), Some(result), failure, reason);
        Self { retry_after, ..made }
    }

    /// A 2xx answer that cannot be shown. `whole`: its body was read to the end.
    pub fn answer(error: &AnswerError, status: u16, whole: bool) -> Self {
        let failure = Failure {
            detail: Some(error.detail()),
            sent: if whole { Sent::Answered } else { Sent::Unknown },
            http_status: Some(status),
            ..Failure::not_sent(FailureCode::BadBody, error.sentence())
        };
        let result = Some(AttemptResult::BadBody);
        Self::new(AttemptEnd::Unreadable, result, failure, error.to_string())
    }

    /// This machine has no descriptor or port left: not the tool's fault.
    fn overloaded(reason: String) -> Self {
        let failure = Failure::overloaded();
        let retry_after = failure.retry_after;
        Self { retry_after, ..Self::new(AttemptEnd::Connect, None, failure, reason) }
    }

    /// The runtime hung up, or the gateway ended, before anything was sent.
    pub fn cancelled() -> Self {
        let failure = Failure::not_sent(FailureCode::Cancelled, CANCELLED);
        let reason = "the caller went away".to_owned();
        Self::new(AttemptEnd::Unsent, None, failure, reason)
    }

    /// The gateway ended while the tool had the request.
    pub fn cut_off() -> Self {
        let failure =
            Failure { sent: Sent::Unknown, ..Failure::not_sent(FailureCode::Cancelled, CANCELLED) };
        let reason = "the gateway ends".to_owned();
        Self::new(AttemptEnd::ResponseTimeout, Some(AttemptResult::Timeout), failure, reason)
    }

    /// The request could not be written down: nothing was sent.
    pub fn internal(reason: String) -> Self {
        let failure =
            Failure::not_sent(FailureCode::Internal, "The call failed inside the gateway.");
        Self::new(AttemptEnd::Blocked, None, failure, reason)
    }

    fn network(end: AttemptEnd, result: AttemptResult, sent: Sent, reason: String) -> Self {
        let failure = Failure {
            detail: Some(result.as_str()),
            sent,
            ..Failure::not_sent(FailureCode::NetworkError, UNREACHABLE)
        };
        Self::new(end, Some(result), failure, reason)
    }

    fn timeout(end: AttemptEnd, phase: Phase, allowed: Duration, sent: Sent) -> Self {
        let message = format!("The tool did not answer within {}.", seconds(allowed));
        let failure = Failure {
            detail: Some(phase.as_str()),
            sent,
            ..Failure::not_sent(FailureCode::Timeout, message)
        };
        let reason = format!("no time left in phase {}", phase.as_str());
        Self::new(end, Some(AttemptResult::Timeout), failure, reason)
    }

    /// How long the tool asks all its callers to wait.
    pub fn pause(&self) -> Option<Duration> {
        self.retry_after.filter(|_| matches!(self.end, AttemptEnd::Status(429 | 503)))
    }

    /// The reason of a retry after this attempt: the label of `retries_total`.
    pub fn retry_reason(&self) -> RetryReason {
        match self.end {
            AttemptEnd::Connect => RetryReason::Connect,
            AttemptEnd::Dns | AttemptEnd::NoSuchName => RetryReason::Dns,
            AttemptEnd::Certificate | AttemptEnd::TlsHandshake => RetryReason::Tls,
            AttemptEnd::Status(500..) => RetryReason::ServerError,
            AttemptEnd::Status(_) => RetryReason::Status,
            AttemptEnd::Blocked
            | AttemptEnd::BodyBroken
            | AttemptEnd::BodyTimeout
            | AttemptEnd::Broken
            | AttemptEnd::ResponseTimeout
            | AttemptEnd::Unreadable
            | AttemptEnd::Unsent => match self.result {
                Some(AttemptResult::Reset) => RetryReason::Reset,
                _ => RetryReason::Closed,
            },
        }
    }
}

/// The statuses that name another place. 304 names none and is a failure like any other.
pub fn is_redirect(status: u16) -> bool {
    matches!(status, 300 | 301 | 302 | 303 | 305 | 307 | 308)
}

/// `10 s`, or `1.5 s` where it is no whole number.
fn seconds(duration: Duration) -> String {
    let tenths = (duration.as_millis() + 50) / 100;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} s"),
        (whole, rest) => format!("{whole}.{rest} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_seconds(ms: u64, expected: &str) {
        assert_eq!(seconds(Duration::from_millis(ms)), expected);
    }

    #[test]
    fn seconds_are_whole_where_they_can_be() {
        check_seconds(10_000, "10 s");
        check_seconds(1_500, "1.5 s");
        check_seconds(300_000, "300 s");
        check_seconds(9_999, "10 s");
    }

    #[test]
    fn a_redirect_is_told_from_other_statuses() {
        for (status, code) in [
            (301, FailureCode::Redirect),
            (308, FailureCode::Redirect),
            (304, FailureCode::HttpStatus),
            (404, FailureCode::HttpStatus),
            (503, FailureCode::HttpStatus),
        ] {
            let made = AttemptFailure::status(status, None, None, None);
            assert_eq!(made.failure.code, code, "{status}");
            assert_eq!(made.failure.sent, Sent::Answered);
            assert_eq!(made.failure.http_status, Some(status));
        }
    }

    #[test]
    fn retry_reasons_are_the_contract_s_set() {
        let reason =
            |status| AttemptFailure::status(status, None, None, None).retry_reason().as_str();
        assert_eq!((reason(503), reason(429)), ("5xx", "status"));
        for phase in [Phase::Dns, Phase::Connect, Phase::Tls] {
            let late = AttemptFailure::too_late(phase, Duration::from_secs(1));
            assert_eq!(late.retry_reason().as_str(), phase.as_str());
        }
        let late = AttemptFailure::too_late(Phase::Dns, Duration::from_secs(1));
        assert_eq!(late.failure.message, "The tool did not answer within 1 s.");
        assert_eq!(late.failure.detail, Some("dns"));
        assert_eq!(late.retry_reason(), RetryReason::Dns);
    }

    #[test]
    fn a_machine_that_cannot_ask_is_no_fault_of_the_name() {
        let made = |kind| AttemptFailure::resolve(&ResolveError::new(kind, "the operator's words"));
        let short = made(ResolveErrorKind::Exhausted);
        assert_eq!((short.failure.code, short.failure.detail), (FailureCode::Overloaded, None));
        assert_eq!(short.result, None);
        let broken = made(ResolveErrorKind::Other);
        assert_eq!(
            (broken.failure.code, broken.failure.detail),
            (FailureCode::NetworkError, Some("dns"))
        );
    }

    #[test]
    fn a_redirect_s_target_is_cut_and_escaped_for_the_log() {
        let target = format!("https://10.0.0.5/\n{}", "x".repeat(500));
        let made = AttemptFailure::status(302, None, None, Some(target.as_bytes()));
        assert!(made.reason.starts_with("status 302 with location https://10.0.0.5/\\nxxx"));
        assert!(made.reason.len() < 240, "{}", made.reason);
        assert!(!made.failure.message.contains("10.0.0.5"));
    }
}
