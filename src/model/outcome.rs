//! What the runtime gets back, and the closed list of failure codes (contract, section 3).

use std::sync::Arc;
use std::time::Duration;

use crate::model::approval::{Approval, ApprovalStatus};
use crate::model::id::{CallId, IdempotencyKey};
use crate::model::json_text::JsonText;
use crate::model::trace::TraceId;

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// It was tried and did not work.
    Failed,
    /// Nothing left the gateway.
    Refused,
    /// 2xx and readable.
    Succeeded,
}

impl Status {
    /// The name on the wire and in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Succeeded => "succeeded",
        }
    }
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has ended.
    Ended(Status),
    /// Its request is out, or goes out now.
    Running,
    /// It waits for a person, or for its turn after their yes.
    Waiting,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ended(Status::Failed),
        Self::Ended(Status::Refused),
        Self::Ended(Status::Succeeded),
        Self::Running,
        Self::Waiting,
    ];

    /// The name on the wire: a call's `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ended(status) => status.as_str(),
            Self::Running => "running",
            Self::Waiting => "waiting_approval",
        }
    }

    /// The phase of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }

    /// Whether nothing more will happen.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// What may have happened at the tool, from the surest to the least sure: a call is as unsure as its least sure attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sent {
    /// No byte of the request was written.
    NotSent,
    /// A whole answer was read, or its head with a status other than 2xx.
    Answered,
    /// Anything between.
    Unknown,
}

impl Sent {
    /// The name on the wire: `error.outcome`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::NotSent => "not_sent",
            Self::Unknown => "unknown",
        }
    }
}

/// Who has to act on a failure (the label `fault`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The runtime or the model.
    Caller,
    /// Whoever runs the gateway.
    Gateway,
    /// Nobody: it worked.
    None,
    /// A rule that somebody wrote.
    Policy,
    /// Whoever runs the tool's server.
    Upstream,
}

impl Fault {
    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Gateway => "gateway",
            Self::None => "none",
            Self::Policy => "policy",
            Self::Upstream => "upstream",
        }
    }
}

macro_rules! failure_codes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $status:ident, $fault:ident;)*) => {
        /// Every way in which a call can end without a result. Stable names; matches on it are exhaustive.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FailureCode { $($(#[$doc])* $variant,)* }

        impl FailureCode {
            /// All of them, for tests and for metrics that start at 0.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name on the wire, in logs and in labels.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Whether the call was tried (`failed`) or stopped before anything left (`refused`).
            pub fn status(self) -> Status {
                match self { $(Self::$variant => Status::$status,)* }
            }

            /// Who has to act.
            pub fn fault(self) -> Fault {
                match self { $(Self::$variant => Fault::$fault,)* }
            }
        }
    };
}

failure_codes! {
    /// Nobody approved it in time.
    ApprovalExpired = "approval_expired", Refused, Policy;
    /// The tool changed while the call waited.
    ApprovalVoid = "approval_void", Refused, Policy;
    /// The answer could not be read.
    BadBody = "bad_body", Failed, Upstream;
    /// The host or its address is not allowed.
    BlockedHost = "blocked_host", Refused, Policy;
    /// The caller went away before a byte was sent.
    Cancelled = "cancelled", Failed, Caller;
    /// The tool has been failing and is not called for a while.
    CircuitOpen = "circuit_open", Refused, Upstream;
    /// A policy says no.
    Denied = "denied", Refused, Policy;
    /// A status that is neither 2xx nor 3xx.
    HttpStatus = "http_status", Failed, Upstream;
    /// Something broke in here.
    Internal = "internal", Failed, Gateway;
    /// The arguments do not fit the schema.
    InvalidArguments = "invalid_arguments", Refused, Caller;
    /// The tool's server could not be reached, or the connection broke.
    NetworkError = "network_error", Failed, Upstream;
    /// The key is bound to other agents or tools.
    NotAllowedForKey = "not_allowed_for_key", Refused, Caller;
    /// The agent is not offered the tool.
    NotOnAgent = "not_on_agent", Refused, Caller;
    /// A secret of the tool is missing.
    NotConfigured = "not_configured", Failed, Gateway;
    /// The round has more calls than run at once, or the reply more rounds.
    NotRun = "not_run", Refused, Caller;
    /// Too many calls run, or this machine has nothing left to call with.
    Overloaded = "overloaded", Refused, Gateway;
    /// A rate limit is reached, or the tool asked for a pause.
    RateLimited = "rate_limited", Refused, Policy;
    /// A 3xx, which is not followed.
    Redirect = "redirect", Failed, Upstream;
    /// A person declined it.
    Rejected = "rejected", Refused, Policy;
    /// The attempt's time ran out.
    Timeout = "timeout", Failed, Upstream;
    /// The tool is turned off.
    ToolDisabled = "tool_disabled", Refused, Caller;
    /// No tool has this name.
    UnknownTool = "unknown_tool", Refused, Caller;
}

/// One thing that is wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer into the arguments; empty for the whole.
    pub pointer: String,
    /// The schema keyword that failed.
    pub keyword: String,
    /// What would be right, without the pointer: `must match ^RX-\d{4,}$`.
    pub message: String,
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Which failure.
    pub code: FailureCode,
    /// The finer code, from a closed set per `code`.
    pub detail: Option<&'static str>,
    /// The code's sentence; `model.text` begins with it. Never an address, a header or a secret.
    pub message: String,
    /// What may have happened at the tool.
    pub sent: Sent,
    /// The answer's status, where there was one.
    pub http_status: Option<u16>,
    /// Making the same call again is safe and may help.
    pub retryable: bool,
    /// How long to wait before that.
    pub retry_after: Option<Duration>,
    /// What is wrong with the arguments, five at most.
    pub problems: Vec<Problem>,
    /// What the tool's 4xx body said, already bounded; it follows the sentence in `model.text`.
    pub tool_message: Option<String>,
}

impl Failure {
    /// A refusal or an early failure: nothing was sent, and trying again does not help.
    pub fn not_sent(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            detail: None,
            message: message.into(),
            sent: Sent::NotSent,
            http_status: None,
            retryable: false,
            retry_after: None,
            problems: Vec::new(),
            tool_message: None,
        }
    }

    /// No place is free for the call. Places are given back all the time, so the wait is short.
    pub fn overloaded() -> Self {
        let text = "Too many calls are running; try again in 1 s.";
        Self {
            retryable: true,
            retry_after: Some(Duration::from_secs(1)),
            ..Self::not_sent(FailureCode::Overloaded, text)
        }
    }
}

/// One attempt, for the outcome and the log. Times are Unix milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// When it started.
    pub at_ms: i64,
    /// How long it took.
    pub duration: Duration,
    /// The answer's status, where there was one.
    pub http_status: Option<u16>,
    /// Why it failed.
    pub error: Option<(FailureCode, Option<&'static str>)>,
}

/// What a call returned.
#[derive(Debug, Clone)]
pub enum ToolResult {
    /// The JSON value as it came.
    Json(JsonText),
    /// An empty body.
    Null,
    /// A text answer, or a JSON answer that was cut.
    Text(String),
}

/// The result of a call that worked.
#[derive(Debug, Clone)]
pub struct Success {
    /// What the runtime gets.
    pub result: ToolResult,
    /// The size of the whole answer where it is known, else of the part that was read.
    pub result_bytes: u64,
    /// The note that follows the kept part in `model.text`, where the answer was cut.
    pub cut_note: Option<String>,
}

/// Whether a tool's call may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// It runs.
    Allow,
    /// The person is asked first.
    AskFirst,
    /// An operator decides.
    RequireApproval,
    /// It does not run.
    Deny,
}

impl Effect {
    /// From loosest to strictest.
    pub const ALL: [Self; 4] = [Self::Allow, Self::AskFirst, Self::RequireApproval, Self::Deny];

    /// How strict it is: 0 is the loosest.
    pub fn rank(self) -> usize {
        Self::ALL.iter().take_while(|one| **one < self).count()
    }

    /// The effect of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effect| effect.as_str() == text)
    }

    /// The name on the wire and in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AskFirst => "ask_first",
            Self::RequireApproval => "require_approval",
            Self::Deny => "deny",
        }
    }
}

/// What the policies said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What is in force.
    pub effect: Effect,
    /// An operator decides, and after the yes the person is asked too.
    pub then_ask: bool,
    /// Who said it.
    pub policy: PolicyName,
    /// The conditions under which it says so, as text.
    pub rule: Option<Arc<str>>,
    /// A sentence of it, for the model.
    pub message: Option<Arc<str>>,
    /// How long a person may take, where whoever said it says that too.
    pub expires: Option<Duration>,
    /// What those would have said that only watch.
    pub shadow: Vec<ShadowRuling>,
}

/// What a policy would have said that only watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowRuling {
    /// Whose it is.
    pub policy: PolicyName,
    /// What it would have said.
    pub effect: Effect,
    /// The conditions under which it says so, as text.
    pub rule: Option<Arc<str>>,
    /// What would have been in force with it.
    pub would: Effect,
    /// Whether the call would have gone another way.
    pub disagrees: bool,
}

impl Decision {
    /// Whether a call that needs a person would have run unasked by the tool's candidate.
    pub fn would_run_unasked(&self) -> bool {
        let needs_a_person = match self.effect {
            Effect::AskFirst | Effect::RequireApproval => true,
            Effect::Allow | Effect::Deny => false,
        };
        let lets_it_run = |ruling: &ShadowRuling| {
            ruling.policy == PolicyName::Candidate && ruling.would == Effect::Allow
        };
        needs_a_person && self.shadow.iter().any(lets_it_run)
    }
}

/// By whom a decision is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyName {
    /// The tool's candidate.
    Candidate,
    /// The policy of this id.
    Named(Arc<str>),
    /// The tool itself, or its profile.
    Tool,
}

impl PolicyName {
    /// The name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Candidate => "candidate",
            Self::Named(id) => id,
            Self::Tool => "tool",
        }
    }
}

/// The tool that a call found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolReference {
    /// `tl_…`.
    pub id: String,
    /// 1 for a tool of the configuration file.
    pub version: u32,
    /// Whether a second call with the same arguments does no harm to know about: it suppresses the "may have taken
    /// effect" sentence.
    pub read_only: bool,
    /// What is said to the person meanwhile.
    pub filler: Option<String>,
}

/// Everything that is known about a finished call.
#[derive(Debug, Clone)]
pub struct CallOutcome {
    /// The call.
    pub id: CallId,
    /// The name that was asked for.
    pub tool: String,
    /// The tool, where there is one of that name.
    pub reference: Option<ToolReference>,
    /// What the policies said, where they were asked.
    pub decision: Option<Decision>,
    /// The decision of a person that it waited for.
    pub approval: Option<Box<Approval>>,
    /// The result, or why there is none.
    pub ended: Result<Success, Failure>,
    /// What was sent.
    pub attempts: Vec<AttemptRecord>,
    /// The key that went out, where the profile sends one.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The trace that it belongs to.
    pub trace_id: Option<TraceId>,
    /// Whether it was a test.
    pub test: bool,
    /// Unix milliseconds: asked for, first attempt begun, ended.
    pub created_at_ms: i64,
    /// First attempt begun.
    pub started_at_ms: Option<i64>,
    /// Ended.
    pub finished_at_ms: i64,
    /// Monotonic time from asked for to ended.
    pub duration: Duration,
}

impl CallOutcome {
    /// The call's final state.
    pub fn status(&self) -> Status {
        let taken_back =
            self.approval.as_ref().is_some_and(|one| one.status == ApprovalStatus::Cancelled);
        match &self.ended {
            Ok(_) => Status::Succeeded,
            // Nothing was tried.
            Err(failure) if failure.code == FailureCode::Cancelled && taken_back => Status::Refused,
            Err(failure) => failure.code.status(),
        }
    }

    /// `ok` or the failure's code.
    pub fn code(&self) -> &'static str {
        match &self.ended {
            Ok(_) => "ok",
            Err(failure) => failure.code.as_str(),
        }
    }

    /// Who has to act.
    pub fn fault(&self) -> Fault {
        match &self.ended {
            Ok(_) => Fault::None,
            Err(failure) => failure.code.fault(),
        }
    }
}
