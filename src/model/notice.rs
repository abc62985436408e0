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
