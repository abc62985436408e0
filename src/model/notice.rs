//! What people are told of: the closed list of events.

use schemars::JsonSchema;
use serde::Deserialize;

/// Something that people are told of. Contract, section 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
pub enum Event {
    /// A person decided on a call, or nobody did in time.
    #[serde(rename = "approval.decided")]
    ApprovalDecided,
    /// A call waits for a person.
    #[serde(rename = "approval.requested")]
    ApprovalRequested,
    /// A call that had waited is over.
    #[serde(rename = "call.finished")]
    CallFinished,
    /// A reload kept the configuration before.
    #[serde(rename = "config.rejected")]
    ConfigRejected,
    /// A tool's previous signing key stops signing within a day.
    #[serde(rename = "secret.overlap_ending")]
    OverlapEnding,
    /// A tool has been failing and is not called for a while.
    #[serde(rename = "tool.failing")]
    ToolFailing,
}

impl Event {
    /// All of them, by name.
    pub const ALL: [Self; 6] = [
        Self::ApprovalDecided,
        Self::ApprovalRequested,
        Self::CallFinished,
        Self::ConfigRejected,
        Self::OverlapEnding,
        Self::ToolFailing,
    ];

    /// The name in the file and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalDecided => "approval.decided",
            Self::ApprovalRequested => "approval.requested",
            Self::CallFinished => "call.finished",
            Self::ConfigRejected => "config.rejected",
            Self::OverlapEnding => "secret.overlap_ending",
            Self::ToolFailing => "tool.failing",
        }
    }
}

/// A way by which people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sink {
    /// `notifications.smtp`.
    Smtp,
    /// `notifications.webhook`.
    Webhook,
}

impl Sink {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Smtp, Self::Webhook];

    /// The name in the outbox and in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Smtp => "smtp",
            Self::Webhook => "webhook",
        }
    }

    /// The one of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }
}

/// What became of a try to tell people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Told {
    /// It is given up.
    Dropped,
    /// It was not taken, and is tried again.
    Failed,
    /// It was taken.
    Sent,
}

impl Told {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dropped, Self::Failed, Self::Sent];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Failed => "failed",
            Self::Sent => "sent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_in_the_file_is_the_name_on_the_wire() {
        for event in Event::ALL {
            let read: Event = serde_json::from_value(event.as_str().into()).expect("an event");
            assert_eq!(read, event);
        }
    }
}
