//! What whoever asks about a call is told, and how asking can go wrong.

use bytes::Bytes;

use crate::config::snapshot::Tool;
use crate::gateway::asking::Malformed;
use crate::model::call::BatchPlace;
use crate::model::id::CallId;
use crate::model::outcome::{Phase, ToolReference};
use crate::store::StoreError;

/// A call as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// How far it has come.
    pub phase: Phase,
    /// Which call: not always the one that was asked for, since the same call may have been asked for before.
    pub id: CallId,
    /// It as JSON.
    pub body: Bytes,
}

/// A person's decision on a waiting call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may run.
    pub yes: bool,
    /// The digest of the arguments that the person saw.
    pub arguments_digest: Option<String>,
    /// What the model reads of a no.
    pub reason: Option<String>,
    /// Who decided, by the word of the key.
    pub name: Option<String>,
}

/// Why a request about a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was decided before, or can no longer be decided.
    #[error("this approval is {0}: it is decided once")]
    Closed(&'static str),
    /// The identity is another call's.
    #[error("{0}")]
    Conflict(String),
    /// The decision is about other arguments.
    #[error("`arguments_digest` is not that of this call: read the approval again")]
    DigestMismatch,
    /// The decision does not say what it is about.
    #[error("`arguments_digest` is required: the digest of the arguments that were seen")]
    DigestMissing,
    /// The request is no call of its tool.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// There is no such call or approval, or none that this key may see.
    #[error("there is nothing of this id")]
    NotFound,
    /// A second request could have a second effect.
    #[error("the tool is not idempotent: sending the call again could have its effect twice")]
    NotIdempotent,
    /// A call with a person's own credentials would have to wait for a person.
    #[error("a call that waits for a person cannot bring credentials: they are not kept")]
    CredentialsCannotWait,
    /// The decision is the person's own.
    #[error("the person themselves decides on this call: POST /v1/calls/{{id}}/confirmed")]
    Persons,
    /// A call that needs a yes cannot be sent again: the one that it had let it run once.
    #[error("the call needs a person's yes, which lets it run once: make a new call to ask again")]
    YesIsUsed,
    /// The store cannot say or keep it now.
    #[error("the store is not available, try again")]
    Unavailable,
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::NotFound,
            StoreError::Conflict => Self::Closed("changed"),
            StoreError::Unavailable(reason) => {
                tracing::warn!(reason, "The store did not answer a request.");
                Self::Unavailable
            }
        }
    }
}

/// The tool as outcomes tell it.
pub(super) fn reference(tool: &Tool, batch: Option<&BatchPlace>) -> ToolReference {
    ToolReference {
        id: tool.id.clone(),
        version: 1,
        read_only: tool.read_only,
        filler: tool.filler.clone().filter(|_| batch.is_none_or(BatchPlace::says_filler)),
    }
}
