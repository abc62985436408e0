//! `notifications` and `organisations` exactly as they are written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, List, OneOf};
use crate::config::leaf::Verbatim;
use crate::config::raw_tool::RawReference;
use crate::model::notice::Event;

/// One organisation.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id"]))]
pub struct RawOrganisation {
    /// Its name, unique: a letter, then letters, digits, `-` and `_`, all lower case.
    pub id: Given<String>,
    /// The mail addresses of those who answer for it.
    pub admins: List<String>,
}

/// `notifications`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawNotifications {
    /// A server that is told, signed as Standard Webhooks has it; left out or null: none.
    pub webhook: Given<RawWebhookSink>,
    /// A mail server by which people are told; left out or null: none.
    pub smtp: Given<RawMailSink>,
}

/// `notifications.webhook`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url", "secret"]))]
pub struct RawWebhookSink {
    /// Where notifications go: https, or plain http to a loopback address. It is the operator's own server: `egress`,
    /// which is about tools, does not bound it.
    pub url: Given<Verbatim>,
    /// What they are signed with: `whsec_` and base64.
    pub secret: Given<RawReference>,
    /// What is told; default all.
    pub events: List<Event>,
}

/// `notifications.smtp`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url", "from", "to"]))]
pub struct RawMailSink {
    /// `smtps://USER:PASSWORD@HOST:465`, or `smtp://HOST:587` (STARTTLS, but for a loopback address); with a password it is
    /// a reference: {file: PATH} or {env: NAME}.
    pub url: Given<OneOf<Verbatim, RawReference>>,
    /// The sender's mail address.
    pub from: Given<String>,
    /// `admins` (those of the organisation that it is about), or a list of mail addresses.
    pub to: Given<RawRecipients>,
    /// What is told; default all.
    pub events: List<Event>,
}

/// Who gets mail.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be `admins` or a list of mail addresses")]
pub enum RawRecipients {
    /// `admins`.
    Admins(RawAdmins),
    /// These.
    Listed(Vec<String>),
}

/// `admins`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawAdmins {
    /// Those of the organisation.
    Admins,
}
