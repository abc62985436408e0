//! By which ways people are told, and of what.

use crate::model::notice::Event;
use crate::policy::endpoint::Endpoint;
use crate::policy::mail::{MailAddress, MailServer};
use crate::policy::sign::{SignatureScheme, SigningKeys};

/// By which ways people are told.
#[derive(Debug, Default)]
pub struct Notifications {
    /// A server.
    pub webhook: Option<WebhookSink>,
    /// Mail.
    pub mail: Option<MailSink>,
}

/// A server that is told.
#[derive(Debug)]
pub struct WebhookSink {
    /// Where it is: the operator's own choice, which the tools' rules do not bound.
    pub endpoint: Endpoint,
    /// How notifications are signed.
    pub scheme: SignatureScheme,
    /// With what; `None`: the secret cannot be read, and notifications wait.
    pub keys: Option<SigningKeys>,
    /// Of what it is told.
    pub events: Vec<Event>,
}

/// People who are told by mail.
#[derive(Debug)]
pub struct MailSink {
    /// By which server; `None`: the secret that says it cannot be read, and notifications wait.
    pub server: Option<MailServer>,
    /// The sender.
    pub from: MailAddress,
    /// Who is told.
    pub to: Recipients,
    /// Of what.
    pub events: Vec<Event>,
}

/// Who gets mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipients {
    /// Those who answer for the organisation that it is about.
    Admins,
    /// These.
    Listed(Vec<MailAddress>),
}
