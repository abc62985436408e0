//! Compiles `notifications`: by which ways people are told, and of what.

use crate::config::context::{Context, SecretProblem};
use crate::config::given::{Given, List, OneOf};
use crate::config::leaf::Verbatim;
use crate::config::notifications::{MailSink, Notifications, Recipients, WebhookSink};
use crate::config::raw_notify::{RawMailSink, RawNotifications, RawRecipients, RawWebhookSink};
use crate::config::raw_tool::RawReference;
use crate::config::snapshot::Organisation;
use crate::config::yaml::NodeId;
use crate::model::notice::Event;
use crate::model::secret::Secret;
use crate::policy::endpoint::{Endpoint, Host, Scheme};
use crate::policy::mail::{MailAddress, MailServer, MailServerError};
use crate::policy::scheme::SchemeText;
use crate::policy::sign::{DigestText, KeyEncoding, SignatureScheme};

const REFERENCE: &str = "write {file: PATH} or {env: NAME}";
const UNTOLD: &str = "nobody is told this way until it can be read";

/// Compiles the section.
pub fn compile(
    context: &Context<'_>,
    given: &Given<RawNotifications>,
    organisations: &[Organisation],
) -> Notifications {
    let Some(raw) = given.get() else { return Notifications::default() };
    Notifications {
        webhook: raw.webhook.found().and_then(|(raw, node)| webhook(context, raw, node)),
        mail: raw.smtp.found().and_then(|(raw, node)| mail(context, raw, node, organisations)),
    }
}

/// Standard Webhooks, as the profile of that name has it for tools.
fn scheme() -> SignatureScheme {
    let text = SchemeText {
        signed: "{id}.{t}.{body}".into(),
        key: KeyEncoding::Base64,
        digest: DigestText::Base64,
        value: "v1,{digest}".into(),
        separator: None,
    };
    text.compile().expect("the scheme is right")
}

fn webhook(context: &Context<'_>, raw: &RawWebhookSink, node: NodeId) -> Option<WebhookSink> {
    let url = context.required(node, "url", &raw.url, "write where notifications go");
    let endpoint = url.and_then(|(Verbatim(text), node)| {
        let endpoint = Endpoint::parse(text)
            .map_err(|error| context.report.error(node, error.to_string()))
            .ok()?;
        let is_own = matches!(endpoint.host(), Host::Address(address) if address.is_loopback());
        if endpoint.scheme() == Scheme::Http && !is_own {
            let message = "must be https; plain http only to a loopback address such as 127.0.0.1";
            context.report.error(node, message);
        }
        Some(endpoint)
    });
    let scheme = scheme();
    let secret = context.required(node, "secret", &raw.secret, REFERENCE);
    let keys = secret.and_then(|(raw, node)| {
        let key = secret_of(context, raw, node)?;
        let prepared = scheme.accept_key(&key).and_then(|_| scheme.prepare(&[key]));
        prepared.map_err(|error| context.report.error(node, error.to_string())).ok()
    });
    Some(WebhookSink { endpoint: endpoint?, scheme, keys, events: events(context, &raw.events) })
}

fn mail(
    context: &Context<'_>,
    raw: &RawMailSink,
    node: NodeId,
    organisations: &[Organisation],
) -> Option<MailSink> {
    let hint = "write {file: PATH}, or smtp://HOST:587 without a password";
    let url = context.required(node, "url", &raw.url, hint);
    let server = url.and_then(|(raw, node)| server(context, raw, node));
    let from = context.required(node, "from", &raw.from, "write the sender's mail address");
    let from = from.and_then(|(text, node)| address(context, text, node));
    let to = context.required(node, "to", &raw.to, "write `admins` or a list of mail addresses");
    let to = to.map(|(to, node)| match to {
        RawRecipients::Admins(_) => {
            let without = organisations.iter().find(|one| one.admins.is_empty());
            if let Some(Organisation { id, .. }) = without {
                let message =
                    format!("nobody of `{id}` gets mail, it has no `organisations.admins`");
                context.report.warn(node, message);
            }
            Recipients::Admins
        }
        RawRecipients::Listed(list) => {
            if list.is_empty() {
                context.report.error(node, "is empty, write `admins` or a mail address");
            }
            let addresses = list.iter().filter_map(|text| address(context, text, node));
            Recipients::Listed(addresses.collect())
        }
    });
    Some(MailSink { server, from: from?, to: to?, events: events(context, &raw.events) })
}

fn server(
    context: &Context<'_>,
    raw: &OneOf<Verbatim, RawReference>,
    node: NodeId,
) -> Option<MailServer> {
    let wrong = |error: MailServerError| context.report.error(node, error.to_string());
    match raw {
        OneOf::Short(Verbatim(text)) => {
            let server = MailServer::parse(text).map_err(wrong).ok()?;
            if server.credentials.is_some() {
                let message =
                    "holds a password, put the url into a file: {file: PATH} or {env: NAME}";
                context.report.error(node, message);
            }
            Some(server)
        }
        OneOf::Long(raw) => {
            let secret = secret_of(context, raw, node)?;
            let text = std::str::from_utf8(secret.expose()).map_err(|_| MailServerError::Scheme);
            text.and_then(MailServer::parse).map_err(wrong).ok()
        }
    }
}

fn secret_of(context: &Context<'_>, raw: &RawReference, node: NodeId) -> Option<Secret> {
    let source = context.source(node, &raw.file, &raw.env)?;
    match context.secret(node, &source) {
        Ok(secret) => Some(secret),
        Err(SecretProblem::Reported) => None,
        Err(SecretProblem::Lookup(error)) => {
            context.unreadable(node, &source, &error, UNTOLD);
            None
        }
    }
}

fn address(context: &Context<'_>, text: &str, node: NodeId) -> Option<MailAddress> {
    MailAddress::parse(text).map_err(|error| context.report.error(node, error.to_string())).ok()
}

/// What is told: all, where nothing is said.
fn events(context: &Context<'_>, given: &List<Event>) -> Vec<Event> {
    let Some((list, node)) = given.found() else { return Event::ALL.to_vec() };
    if list.is_empty() {
        context.report.error(node, "is empty, name one or leave it out for all");
    }
    let mut events: Vec<Event> = list.iter().filter_map(Given::get).copied().collect();
    events.sort_unstable();
    events.dedup();
    events
}
