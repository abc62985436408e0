//! An approval as the command reads it.

use serde::Deserialize;
use serde_json::value::RawValue;

/// An approval as a listener shows it; another version may show more.
#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    pub(super) id: String,
    pub(super) call_id: String,
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) tool: String,
    pub(super) tool_version: u32,
    pub(super) arguments: Option<Box<RawValue>>,
    pub(super) arguments_digest: String,
    pub(super) policy: String,
    pub(super) rule: Option<String>,
    pub(super) message: Option<String>,
    pub(super) created_at: String,
    pub(super) expires_at: String,
    pub(super) decided_at: Option<String>,
    pub(super) decided_by: Option<By>,
    pub(super) reason: Option<String>,
    pub(super) agent_id: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) end_user: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct By {
    pub(super) id: String,
    pub(super) name: Option<String>,
}
