//! What the store keeps, each as one value.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::model::approval::ApprovalStatus;
use crate::model::call::CallContext;
use crate::model::id::{CallId, IdempotencyKey};
use crate::model::outcome::Phase;

/// One call as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    /// The organisation.
    pub organisation: Arc<str>,
    /// The call.
    pub id: CallId,
    /// How far it has come.
    pub phase: Phase,
    /// Whether its id and identity are taken by it: it was sent, or waits for a person. Others may use those of a call
    /// that is not bound, and it then makes room.
    pub bound: bool,
    /// `run_id`, `step` and `call_index`, where they were given.
    pub identity: Option<IdempotencyKey>,
    /// The identity of the request of the next turn on which it ran.
    pub alias: Option<IdempotencyKey>,
    /// The name that was asked for.
    pub tool: Arc<str>,
    /// The name of the key that asked.
    pub key: Arc<str>,
    /// Where it comes from.
    pub context: Arc<CallContext>,
    /// `deadline_ms`, as the runtime wants it.
    pub deadline: Option<Duration>,
    /// `ok` or the failure's code; none while it is open.
    pub code: Option<Cow<'static, str>>,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds.
    pub finished_at_ms: Option<i64>,
    /// The compact arguments; none where they are not kept. Those of a call that waits always are.
    pub arguments: Option<Bytes>,
    /// `sha256:` and hex over the canonical arguments, where the call waited or the arguments are not kept.
    pub arguments_digest: Option<Arc<str>>,
    /// The outcome as JSON, as it was last told; without the answer where that is not kept.
    pub outcome: Bytes,
    /// The instance that runs it.
    pub instance: Option<Arc<str>>,
}

impl CallRecord {
    /// About how much memory it takes: its texts, which can be large.
    pub fn bytes(&self) -> usize {
        self.outcome.len() + self.arguments.as_ref().map_or(0, Bytes::len)
    }
}

/// How many of these, the newest first, have so many bytes at most; always one.
pub fn within(sizes: impl Iterator<Item = usize>, most_bytes: Option<usize>) -> usize {
    let (most, mut bytes) = (most_bytes.unwrap_or(usize::MAX), 0_usize);
    let fits = |(at, size): &(usize, usize)| {
        bytes = bytes.saturating_add(*size);
        *at == 0 || bytes <= most
    };
    sizes.enumerate().take_while(fits).count()
}

/// Which calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallFilter {
    /// Of this organisation.
    pub organisation: String,
    /// Of this conversation.
    pub session_id: Option<String>,
    /// Of this run.
    pub run_id: Option<String>,
    /// That have come this far.
    pub phase: Option<Phase>,
    /// Of this tool.
    pub tool: Option<String>,
    /// Made at this time or later, in Unix milliseconds.
    pub since_ms: Option<i64>,
    /// So many of the newest at most.
    pub most: usize,
}

/// Which approvals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalFilter {
    /// Of this organisation; of all where it is not given.
    pub organisation: Option<String>,
    /// In this state.
    pub status: Option<ApprovalStatus>,
    /// Of this tool.
    pub tool: Option<String>,
    /// Of this conversation.
    pub session_id: Option<String>,
    /// That expire at this time or earlier, in Unix milliseconds.
    pub expires_by_ms: Option<i64>,
    /// On which a call has not begun to run, though it still waits.
    pub unused_of_waiting: bool,
    /// So many of the newest at most.
    pub most: usize,
    /// And so many bytes of them, though always one; not bounded where it is not given.
    pub most_bytes: Option<usize>,
}

/// Approvals of a tool that nobody has decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingApprovals {
    /// The tool.
    pub tool: String,
    /// How many, of all organisations.
    pub count: i64,
    /// When the oldest of them was asked for, in Unix milliseconds.
    pub oldest_ms: i64,
}

/// Something that people are told, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// `webhook` or `smtp`.
    pub sink: String,
    /// The event: `approval.requested`.
    pub event: String,
    /// The id that every delivery of it has: `msg_` and letters and digits.
    pub message_id: String,
    /// What is delivered.
    pub body: String,
    /// Unix milliseconds.
    pub created_at_ms: i64,
}

/// A notice that is to be delivered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// The store's own number of it.
    pub id: i64,
    /// The notice.
    pub notice: Notice,
    /// How often it was tried before.
    pub tries: u32,
}

/// What somebody did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Unix milliseconds.
    pub at_ms: i64,
    /// The organisation.
    pub organisation: String,
    /// Who: the name of a key, a certificate or a token; `system` where nobody was.
    pub actor: String,
    /// What: `approval.approved`, `policy.created`, `reload`, `drain`, `key.refused`.
    pub action: String,
    /// To what: an id or a name.
    pub subject: Option<String>,
    /// A digest of what it was.
    pub before: Option<String>,
    /// A digest of what it is.
    pub after: Option<String>,
    /// More, as JSON.
    pub detail: Option<String>,
}

/// A policy that the API keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The organisation.
    pub organisation: String,
    /// Its id in it.
    pub id: String,
    /// 1, and one more with each change.
    pub version: u64,
    /// The policy as JSON, as the API takes it.
    pub body: String,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds.
    pub updated_at_ms: i64,
}

/// How often a policy that only watches said something about a tool's calls on a day.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShadowCount {
    /// The organisation.
    pub organisation: String,
    /// The policy's id, or `candidate:` and the tool's name.
    pub policy: String,
    /// The tool.
    pub tool: String,
    /// Days since 1970-01-01, UTC.
    pub day: i64,
    /// Calls that it was asked about.
    pub calls: u64,
    /// Those that it is about, by their agent and arguments.
    pub matched: u64,
    /// Those of them that would have gone another way.
    pub disagreed: u64,
    /// Those that needed a person and would have run unasked.
    pub unasked: u64,
    /// Those of these that a person approved.
    pub approved: u64,
    /// Those of these that a person rejected.
    pub rejected: u64,
    /// Those of these that nobody decided in time.
    pub expired: u64,
}

/// A call that would have gone another way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShadowSample {
    /// The organisation.
    pub organisation: String,
    /// The policy's id, or `candidate:` and the tool's name.
    pub policy: String,
    /// Days since 1970-01-01, UTC.
    pub day: i64,
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_fit_are_kept_and_always_one() {
        let fit = |sizes: &[usize], most| within(sizes.iter().copied(), most);
        assert_eq!(fit(&[5, 5, 5], Some(10)), 2);
        assert_eq!(fit(&[50, 5], Some(10)), 1);
        assert_eq!(fit(&[usize::MAX, usize::MAX], None), 2);
        assert_eq!(fit(&[], Some(0)), 0);
    }
}
