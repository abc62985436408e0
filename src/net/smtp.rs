//! One mail to people, by the operator's own mail server.

use std::str::FromStr;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::message::header::ContentType;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::TlsVersion as MailTlsVersion;
use lettre::transport::smtp::client::{Certificate, CertificateStore, Tls, TlsParameters};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use tokio::time::timeout;

use crate::config::snapshot::{Roots, TlsSettings, TlsVersion};
use crate::policy::mail::{MailAddress, MailServer, MailTls};

/// Bound on one delivery, from the lookup of the server to its last word.
const DELIVERY_TIME: Duration = Duration::from_secs(10);

/// One mail.
#[derive(Debug, Clone, Copy)]
pub struct Mail<'a> {
    /// The sender.
    pub from: &'a MailAddress,
    /// Who gets it.
    pub to: &'a [MailAddress],
    /// The same on every delivery, so that mailboxes can tell a repeat.
    pub message_id: &'a str,
    /// One line.
    pub subject: &'a str,
    /// Plain text.
    pub text: &'a str,
}

/// Why a mail was not taken, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// An address that the mail library does not take.
    #[error("an address cannot be used: {0}")]
    Address(String),
    /// A mail that cannot be written.
    #[error("the mail cannot be written: {0}")]
    Message(#[from] lettre::error::Error),
    /// The password is no text.
    #[error("the password of `notifications.smtp` is not UTF-8")]
    Password,
    /// The server, or the way to it.
    #[error("the mail server: {0}")]
    Server(String),
    /// It did not end in time.
    #[error("the mail server did not take it in time")]
    TooLate,
}

/// Hands one mail to the server.
pub async fn send(
    server: &MailServer,
    settings: &TlsSettings,
    mail: Mail<'_>,
) -> Result<(), MailError> {
    let message = written(mail)?;
    let transport = transport(server, settings)?;
    let sent = timeout(DELIVERY_TIME, transport.send(message)).await;
    sent.map_err(|_| MailError::TooLate)?.map_err(server_error)?;
    Ok(())
}

fn server_error(error: lettre::transport::smtp::Error) -> MailError {
    MailError::Server(error.to_string())
}

fn written(mail: Mail<'_>) -> Result<Message, MailError> {
    let mailbox = |address: &MailAddress| {
        let parsed = Address::from_str(address.as_str());
        let parsed = parsed.map_err(|error| MailError::Address(error.to_string()))?;
        Ok::<_, MailError>(Mailbox::new(None, parsed))
    };
    let domain = mail.from.as_str().rsplit('@').next().unwrap_or_default();
    let mut builder = Message::builder()
        .from(mailbox(mail.from)?)
        .message_id(Some(format!("<{}@{domain}>", mail.message_id)))
        .subject(mail.subject)
        .header(ContentType::TEXT_PLAIN);
    for address in mail.to {
        builder = builder.to(mailbox(address)?);
    }
    Ok(builder.body(mail.text.to_owned())?)
}

fn transport(
    server: &MailServer,
    settings: &TlsSettings,
) -> Result<AsyncSmtpTransport<Tokio1Executor>, MailError> {
    let tls = match server.tls {
        MailTls::Plain => Tls::None,
        MailTls::Start => Tls::Required(parameters(server, settings)?),
        MailTls::Whole => Tls::Wrapper(parameters(server, settings)?),
    };
    let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server.host)
        .port(server.port)
        .tls(tls)
        .timeout(Some(DELIVERY_TIME));
    if let Some((user, password)) = &server.credentials {
        let password = std::str::from_utf8(password.expose()).map_err(|_| MailError::Password)?;
        builder = builder.credentials(Credentials::new(user.clone(), password.to_owned()));
    }
    Ok(builder.build())
}

/// The authorities and versions that hold for tools hold for the mail server too.
fn parameters(server: &MailServer, settings: &TlsSettings) -> Result<TlsParameters, MailError> {
    let mut builder = TlsParameters::builder(server.host.clone());
    builder = match settings.min_version {
        TlsVersion::V12 => builder.set_min_tls_version(MailTlsVersion::Tlsv12),
        TlsVersion::V13 => builder.set_min_tls_version(MailTlsVersion::Tlsv13),
    };
    builder = match settings.roots {
        Roots::Webpki => builder.certificate_store(CertificateStore::WebpkiRoots),
        Roots::System => {
            let mut builder = builder.certificate_store(CertificateStore::None);
            for root in rustls_native_certs::load_native_certs().certs {
                // One that cannot be read is told of where tools' roots are.
                if let Ok(root) = Certificate::from_der(root.to_vec()) {
                    builder = builder.add_root_certificate(root);
                }
            }
            builder
        }
    };
    if let Some(pem) = &settings.extra_ca {
        builder = builder
            .add_root_certificate(Certificate::from_pem(pem.as_bytes()).map_err(server_error)?);
    }
    builder.build().map_err(server_error)
}
