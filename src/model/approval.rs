//! One person's decision on one call (contract, section 6).

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::model::id::{CallId, IdError, random_base62};

/// An approval's id: `ap_` and 16 letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApprovalId(Arc<str>);

impl ApprovalId {
    /// Takes an id as it stands in a path.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let rest = text.strip_prefix("ap_").ok_or(IdError::ApprovalId)?;
        let fits = rest.len() == 16 && rest.bytes().all(|b| b.is_ascii_alphanumeric());
        if fits { Ok(Self(text.into())) } else { Err(IdError::ApprovalId) }
    }

    /// Makes one from random bytes.
    pub fn from_random(bytes: impl Iterator<Item = u8>) -> Self {
        Self(format!("ap_{}", random_base62(16, bytes)).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name on the wire, in the store and in labels.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The one of that name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text)
            }
        }
    };
}

words! {
    /// Whose decision it is.
    ApprovalKind {
        /// Somebody who answers for the tool.
        Operator = "operator",
        /// The person on whose behalf the agent acts.
        Person = "person",
    }
}

words! {
    /// How far it has come.
    ApprovalStatus {
        /// Somebody said yes.
        Approved = "approved",
        /// The call was taken back.
        Cancelled = "cancelled",
        /// Nobody decided in time.
        Expired = "expired",
        /// It waits.
        Pending = "pending",
        /// Somebody said no.
        Rejected = "rejected",
        /// What it was about is no longer what it was.
        Void = "void",
    }
}

/// Who decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedBy {
    /// The name of the key or certificate, the token's subject, or the person's id.
    pub id: String,
    /// A name for people, where one was given.
    pub name: Option<String>,
    /// Whether the gateway itself knows that it was them: a name that a key asserts for a person is not.
    pub verified: bool,
}

/// What stands for one decision. It is bound to exactly one call as it would run, and is used once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// The organisation.
    pub organisation: Arc<str>,
    /// The call that waits for it.
    pub call_id: CallId,
    /// Whose decision it is.
    pub kind: ApprovalKind,
    /// How far it has come.
    pub status: ApprovalStatus,
    /// The tool's name.
    pub tool: String,
    /// `tl_…`.
    pub tool_id: String,
    /// The tool's version.
    pub tool_version: u32,
    /// The compact arguments: exactly what will be sent. `None` where they are no longer kept.
    pub arguments: Option<Bytes>,
    /// `sha256:` and hex over the canonical arguments.
    pub arguments_digest: String,
    /// Who asked for it: a policy's name on the wire.
    pub policy: String,
    /// The conditions under which it asks.
    pub rule: Option<String>,
    /// What it says to people and to the model.
    pub message: Option<String>,
    /// Hex of SHA-256 over organisation, tool, version, definition, arguments and policies.
    pub binding: String,
    /// The agent whose call it is.
    pub agent_id: Option<String>,
    /// The conversation.
    pub session_id: Option<String>,
    /// The turn in which it was asked for.
    pub turn_index: Option<u32>,
    /// The person on whose behalf: the operator's own id, else Sortie's.
    pub end_user: Option<String>,
    /// Unix milliseconds.
    pub created_at_ms: i64,
    /// Unix milliseconds: from here on nobody can decide and nothing runs on it.
    pub expires_at_ms: i64,
    /// Unix milliseconds.
    pub decided_at_ms: Option<i64>,
    /// Who decided.
    pub decided_by: Option<DecidedBy>,
    /// What they said about it.
    pub reason: Option<String>,
    /// Unix milliseconds: when the call began to run on it. A run that sent nothing does not use it up.
    pub used_at_ms: Option<i64>,
}

impl Approval {
    /// About how much memory it takes: its arguments, which can be large.
    pub fn bytes(&self) -> usize {
        self.arguments.as_ref().map_or(0, Bytes::len)
    }

    /// Whether the call may run on it at this time, in Unix milliseconds.
    pub fn is_good(&self, now_ms: i64) -> bool {
        let is_unused = self.used_at_ms.is_none();
        self.status == ApprovalStatus::Approved && is_unused && now_ms < self.expires_at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_s_id_is_the_prefix_and_sixteen_letters_and_digits() {
        let id = ApprovalId::from_random([0u8, 61].into_iter().cycle());
        assert_eq!(ApprovalId::parse(id.as_str()), Ok(id));
        for bad in ["", "ap_", "ap_short", "call_0123456789abcdef", "ap_0123456789abcde!"] {
            assert_eq!(ApprovalId::parse(bad), Err(IdError::ApprovalId), "{bad:?}");
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for status in ApprovalStatus::ALL {
            assert_eq!(ApprovalStatus::parse(status.as_str()), Some(*status));
        }
        assert_eq!(ApprovalKind::parse("operator"), Some(ApprovalKind::Operator));
        assert_eq!(ApprovalKind::parse("Operator"), None);
    }
}
