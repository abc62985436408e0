//! How a waiting call ends without having run, and what the store is told of a decision.

use crate::model::approval::{Approval, ApprovalStatus};
use crate::model::outcome::{Failure, FailureCode};
use crate::policy::approval as words;
use crate::store::Ruling;

/// Why a waiting call ends without anybody having said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// The conversation went on without an answer.
    Dropped,
    /// Its time ran out.
    Expired,
    /// The runtime took it back.
    TakenBack,
    /// What it was about is not what it was.
    ToolChanged,
}

impl Closing {
    /// What the approval becomes.
    pub(super) fn status(self) -> ApprovalStatus {
        match self {
            Self::Dropped | Self::ToolChanged => ApprovalStatus::Void,
            Self::Expired => ApprovalStatus::Expired,
            Self::TakenBack => ApprovalStatus::Cancelled,
        }
    }

    /// Why the call has no result.
    pub(super) fn failure(self) -> Failure {
        let (code, text) = match self {
            Self::Dropped | Self::Expired => {
                (FailureCode::ApprovalExpired, "Nobody approved this call in time.")
            }
            Self::TakenBack => (FailureCode::Cancelled, "The call was cancelled."),
            Self::ToolChanged => (FailureCode::ApprovalVoid, words::VOID),
        };
        Failure::not_sent(code, text)
    }
}

/// What a decision is kept as.
pub(super) fn ruling(approval: &Approval, at_ms: i64) -> Ruling {
    Ruling {
        organisation: approval.organisation.to_string(),
        id: approval.id.clone(),
        status: approval.status,
        at_ms,
        by: approval.decided_by.clone(),
        reason: approval.reason.clone(),
    }
}
