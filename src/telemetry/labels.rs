//! The closed label values of metrics (contract, section 10).

use crate::policy::quota::Per;

/// How an attempt ended: the label `result` of `attempts_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// A status of 200 to 299, read to its end.
    Success,
    /// 300 to 399.
    Redirection,
    /// 400 to 499.
    ClientError,
    /// 500 to 599.
    ServerError,
    /// Out of time.
    Timeout,
    /// The name could not be looked up.
    Dns,
    /// No connection.
    Connect,
    /// No TLS.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection was closed.
    Closed,
    /// The answer could not be read.
    BadBody,
}

impl AttemptResult {
    /// All of them, in order.
    pub const ALL: [Self; 11] = [
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
        Self::Timeout,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Reset,
        Self::Closed,
        Self::BadBody,
    ];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Timeout => "timeout",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::BadBody => "bad_body",
        }
    }
}

/// What became of a reload: the label `result` of `config_reloads_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// Another configuration is in force.
    Applied,
    /// What was read is wrong; the one before stays.
    Invalid,
    /// What was read is right, but changes a listener; the one before stays.
    NeedsRestart,
    /// It is the one in force.
    Unchanged,
}

impl ReloadOutcome {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Applied, Self::Invalid, Self::NeedsRestart, Self::Unchanged];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Invalid => "invalid",
            Self::NeedsRestart => "needs_restart",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Why an attempt was repeated: the label `reason` of `retries_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryReason {
    /// A status of 500 to 599.
    ServerError,
    /// Another status.
    Status,
    /// The name could not be looked up, or not in time.
    Dns,
    /// No connection, or not in time.
    Connect,
    /// No TLS, or not in time.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection was closed.
    Closed,
}

impl RetryReason {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::ServerError,
        Self::Status,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Reset,
        Self::Closed,
    ];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServerError => "5xx",
            Self::Status => "status",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Reset => "reset",
            Self::Closed => "closed",
        }
    }
}

/// A part of an attempt: the label `phase`, and the detail of a timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking the name up.
    Dns,
    /// TCP.
    Connect,
    /// TLS.
    Tls,
    /// From the request's first byte to the head of the answer.
    FirstByte,
    /// The answer's body.
    Body,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Dns, Self::Connect, Self::Tls, Self::FirstByte, Self::Body];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::FirstByte => "first_byte",
            Self::Body => "body",
        }
    }
}

/// What refused a call as too early: the label `scope` of `rate_limited_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitScope {
    /// A limit for each agent.
    Agent,
    /// A limit for each person.
    EndUser,
    /// A limit for each key.
    Key,
    /// A limit for each organisation.
    Organisation,
    /// The pause that the tool asked for.
    Pause,
    /// A limit for all together.
    Tool,
}

impl LimitScope {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Agent, Self::EndUser, Self::Key, Self::Organisation, Self::Pause, Self::Tool];

    /// That of a rate limit.
    pub fn of(per: Per) -> Self {
        match per {
            Per::Agent => Self::Agent,
            Per::EndUser => Self::EndUser,
            Per::Key => Self::Key,
            Per::Organisation => Self::Organisation,
            Per::Tool => Self::Tool,
        }
    }

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::EndUser => "end_user",
            Self::Key => "key",
            Self::Organisation => "organisation",
            Self::Pause => "pause",
            Self::Tool => "tool",
        }
    }
}

/// What became of a probe: the label `result` of `circuit_probes_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeResult {
    /// It never came to the tool, or was called off.
    Abandoned,
    /// The tool still fails.
    Failure,
    /// The tool lives.
    Success,
}

impl ProbeResult {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Abandoned, Self::Failure, Self::Success];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::Failure => "failure",
            Self::Success => "success",
        }
    }
}

/// A listener: the label `listener`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerName {
    /// Calls.
    Api,
    /// Metrics and probes.
    Telemetry,
    /// The operator.
    Admin,
}

impl ListenerName {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Api, Self::Telemetry, Self::Admin];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Telemetry => "telemetry",
            Self::Admin => "admin",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::breaker::State;

    #[test]
    fn enum_order_matches_the_arrays_of_series() {
        for (index, result) in AttemptResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, index);
        }
        for (index, reason) in RetryReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, index);
        }
        for (index, scope) in LimitScope::ALL.into_iter().enumerate() {
            assert_eq!(scope as usize, index);
        }
        for (index, result) in ProbeResult::ALL.into_iter().enumerate() {
            assert_eq!(result as usize, index);
        }
        for (index, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, index);
        }
        for (index, listener) in ListenerName::ALL.into_iter().enumerate() {
            assert_eq!(listener as usize, index);
        }
    }
}
