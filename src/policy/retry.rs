//! Whether and when an attempt is repeated: a repeat must be wanted by the profile and safe for the tool.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

/// What a profile wants to be repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, the first one included.
    pub attempts: u32,
    /// Failures of name lookup, connection and transport.
    pub on_network: bool,
    /// Answers with these statuses.
    pub statuses: BTreeSet<u16>,
    /// Whether the receiver can tell a repeat, by a header that is the same on every attempt.
    pub repeat_key: bool,
}

/// A word of `retry.on` that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{word}` is not `network`, `5xx` or a status that can be repeated: 408, 409, 425, 429, 500 to 599"
)]
pub struct UnknownCondition {
    /// The word.
    pub word: String,
}

impl RetryPolicy {
    /// Adds one word of `retry.on`: `network`, `5xx` (all but 501 and 505) or a status.
    pub fn want(&mut self, word: &str) -> Result<(), UnknownCondition> {
        let mut statuses = match word {
            "network" => {
                self.on_network = true;
                return Ok(());
            }
            "5xx" => (500..600).filter(|status| !matches!(status, 501 | 505)).collect(),
            _ => match word.parse() {
                Ok(status @ (408 | 409 | 425 | 429 | 500..=599)) => BTreeSet::from([status]),
                _ => return Err(UnknownCondition { word: word.into() }),
            },
        };
        self.statuses.append(&mut statuses);
        Ok(())
    }

    /// Whether the profile asks for another attempt after such an end.
    fn wants(&self, end: AttemptEnd) -> bool {
        match end {
            AttemptEnd::BodyBroken
            | AttemptEnd::Broken
            | AttemptEnd::Connect
            | AttemptEnd::Dns
            | AttemptEnd::TlsHandshake
            | AttemptEnd::Unsent => self.on_network,
            AttemptEnd::Status(status) => self.statuses.contains(&status),
            // Contract: a tool that did not answer in time is not asked again. The others are permanent.
            AttemptEnd::BodyTimeout
            | AttemptEnd::ResponseTimeout
            | AttemptEnd::Blocked
            | AttemptEnd::Certificate
            | AttemptEnd::NoSuchName
            | AttemptEnd::Unreadable => false,
        }
    }
}

/// How an attempt without a result ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptEnd {
    /// The host or the address is not allowed.
    Blocked,
    /// A 2xx head, then the connection broke.
    BodyBroken,
    /// A 2xx head, then the attempt's time ran out.
    BodyTimeout,
    /// Reset, closed or a write error: request bytes may have been read, no head came.
    Broken,
    /// The certificate is not accepted.
    Certificate,
    /// No connection: refused, unreachable or timed out.
    Connect,
    /// The name lookup failed for now: timeout, SERVFAIL, refused.
    Dns,
    /// The name does not exist.
    NoSuchName,
    /// The request was written and no head came in time.
    ResponseTimeout,
    /// A whole head with a status other than 2xx.
    Status(u16),
    /// The TLS handshake broke off or timed out.
    TlsHandshake,
    /// An answer that breaks HTTP or cannot be shown.
    Unreadable,
    /// The connection was lost before a byte of the request was written.
    Unsent,
}

/// What is known about the tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolTraits {
    /// It is sent an Idempotency-Key, or is annotated idempotent.
    pub idempotent: bool,
    /// It is annotated read-only.
    pub read_only: bool,
}

/// What the tool asked to be waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// By the answer to this attempt.
    pub retry_after: Option<Duration>,
    /// By an answer to any call: what is left of the pause.
    pub pause: Duration,
}

/// What happens after an attempt without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another attempt.
    Retry {
        /// How long to wait first.
        after: Duration,
    },
    /// The call fails.
    Stop {
        /// What the tool asked to be waited for, to be passed on.
        retry_after: Option<Duration>,
    },
}

/// Decides what happens after attempt number `attempt` (1 is the first) ended; `jitter` lies in [0, 1).
pub fn next(
    policy: &RetryPolicy,
    traits: ToolTraits,
    end: AttemptEnd,
    attempt: u32,
    asked: Asked,
    remaining: Duration,
    jitter: f64,
) -> Next {
    let Asked { retry_after, pause } = asked;
    let stop = Next::Stop { retry_after: retry_after.max(Some(pause).filter(|it| !it.is_zero())) };
    let wanted = attempt < policy.attempts && policy.wants(end);
    if !wanted || !safe(end, traits, retry_after.is_some()) {
        return stop;
    }
    let least = match end {
        // Another request with this key is still running.
        AttemptEnd::Status(409) => retry_after.unwrap_or_default().max(CONFLICT_WAIT),
        // Until then the resolver repeats its last failure without asking.
        AttemptEnd::Dns => retry_after.unwrap_or_default().max(DNS_WAIT),
        _ => retry_after.unwrap_or_default(),
    };
    let (fixed, random) = halves(attempt.saturating_sub(1), jitter);
    let after = fixed.max(least).max(pause).saturating_add(random);
    if after.saturating_add(LEAST_ATTEMPT) <= remaining { Next::Retry { after } } else { stop }
}

/// Whether sending the request again can do no harm.
pub fn safe(end: AttemptEnd, traits: ToolTraits, has_retry_after: bool) -> bool {
    match end {
        // No byte of the request went out.
        AttemptEnd::Connect | AttemptEnd::Dns | AttemptEnd::TlsHandshake | AttemptEnd::Unsent => {
            true
        }
        // Nothing went out, and the next attempt would end the same way.
        AttemptEnd::Blocked | AttemptEnd::Certificate | AttemptEnd::NoSuchName => false,
        // The tool may have acted.
        AttemptEnd::Broken | AttemptEnd::ResponseTimeout => traits.idempotent,
        // The tool has acted.
        AttemptEnd::BodyBroken | AttemptEnd::BodyTimeout => traits.read_only,
        AttemptEnd::Unreadable => false,
        // By their meaning the tool did nothing.
        AttemptEnd::Status(408 | 425 | 429) => true,
        AttemptEnd::Status(503) => has_retry_after || traits.idempotent,
        // 501 and 505 stand in a profile only where they are named; 409 says that the key is in use.
        AttemptEnd::Status(409 | 500..=599) => traits.idempotent,
        AttemptEnd::Status(_) => false,
    }
}

/// `error.retryable`: making the same call again is safe and may help.
pub fn retryable(end: AttemptEnd, traits: ToolTraits) -> bool {
    match end {
        AttemptEnd::Blocked | AttemptEnd::Certificate => false,
        AttemptEnd::Connect
        | AttemptEnd::Dns
        | AttemptEnd::NoSuchName
        | AttemptEnd::TlsHandshake
        | AttemptEnd::Unsent => true,
        AttemptEnd::BodyBroken
        | AttemptEnd::BodyTimeout
        | AttemptEnd::Broken
        | AttemptEnd::ResponseTimeout
        | AttemptEnd::Unreadable
        | AttemptEnd::Status(408 | 425 | 429) => traits.idempotent,
        AttemptEnd::Status(300..500) => false,
        AttemptEnd::Status(_) => traits.idempotent,
    }
}

/// The wait before attempt `n + 2`: equal jitter, 500 ms doubled up to 5 s.
pub fn backoff(n: u32, jitter: f64) -> Duration {
    let (fixed, random) = halves(n, jitter);
    fixed.saturating_add(random)
}

/// Reads a `Retry-After` value: seconds in digits, or an HTTP date (past: 0).
pub fn parse_retry_after(text: &[u8], now_unix: i64) -> Option<Duration> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = if text.len() <= MOST_DIGITS { text.parse().ok()? } else { return None };
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let now = Duration::from_secs(u64::try_from(now_unix).unwrap_or_default());
    Some(date.saturating_sub(now))
}

// Contract: d = min(5 s, 500 ms · 2^n), wait = d/2 + random(0, d/2).
const BASE: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(5);

/// An attempt is not worth starting with less time than this.
pub const LEAST_ATTEMPT: Duration = Duration::from_millis(100);

/// The least wait after a failed lookup: as long as the resolver believes a failure.
const DNS_WAIT: Duration = Duration::from_secs(1);
/// The least wait after 409.
const CONFLICT_WAIT: Duration = Duration::from_secs(1);

/// Digits of a wait in seconds; more of them are a mistake, and would overflow a point in time.
const MOST_DIGITS: usize = 10;

/// The certain and the random half of a backoff.
fn halves(n: u32, jitter: f64) -> (Duration, Duration) {
    let half = BASE.saturating_mul(2_u32.saturating_pow(n)).min(CAP) / 2;
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    (half, half.mul_f64(jitter))
}

#[cfg(test)]
mod tests;
