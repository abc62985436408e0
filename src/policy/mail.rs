//! Mail addresses, and the URL of a mail server: text to values that have one meaning only.

use std::fmt;
use std::net::IpAddr;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::model::secret::Secret;

/// RFC 5321: the longest address, and the longest part in front of its `@`.
const LONGEST: usize = 254;
const LONGEST_LOCAL: usize = 64;

/// A mail address without quotes or comments, such as `ada@example.com`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MailAddress(String);

/// A text that is no mail address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be a mail address such as ada@example.com")]
pub struct MailAddressError;

impl MailAddress {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, MailAddressError> {
        let is_atom = |part: &str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-".contains(&b);
            !part.is_empty() && part.bytes().all(fits)
        };
        let is_label = |part: &str| {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
            let edges = part.starts_with('-') || part.ends_with('-');
            (1..=63).contains(&part.len()) && part.bytes().all(fits) && !edges
        };
        let (local, domain) = text.rsplit_once('@').ok_or(MailAddressError)?;
        let short = text.len() <= LONGEST && local.len() <= LONGEST_LOCAL;
        let fits = short && local.split('.').all(is_atom) && domain.split('.').all(is_label);
        if fits { Ok(Self(text.to_owned())) } else { Err(MailAddressError) }
    }

    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailTls {
    /// Not at all: the server is this machine.
    Plain,
    /// STARTTLS; without it nothing is sent.
    Start,
    /// TLS from the first byte.
    Whole,
}

/// A mail server, and who Sortie is towards it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    /// Its name, or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: MailTls,
    /// User and password, where it wants them.
    pub credentials: Option<(String, Secret)>,
}

/// Why a text is no URL of a mail server. It may hold a password, so nothing of it is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MailServerError {
    /// A user without a password, or the reverse.
    #[error("must have both a user and a password, or neither")]
    Credentials,
    /// Something after the port.
    #[error("must end after the host and the port")]
    Rest,
    /// Another scheme, or no URL.
    #[error("must be smtps://USER:PASSWORD@HOST:465 or smtp://HOST:587")]
    Scheme,
}

impl MailServer {
    /// Reads `smtps://USER:PASSWORD@HOST:465` or `smtp://HOST:587`; what is odd in a password is percent-encoded.
    pub fn parse(text: &str) -> Result<Self, MailServerError> {
        let url = Url::parse(text).map_err(|_| MailServerError::Scheme)?;
        let (default_port, tls) = match url.scheme() {
            "smtp" => (587, MailTls::Start),
            "smtps" => (465, MailTls::Whole),
            _ => return Err(MailServerError::Scheme),
        };
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(Host::Domain(_)) | None => return Err(MailServerError::Scheme),
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(MailServerError::Rest);
        }
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            ("", Some(_)) | (_, None) => return Err(MailServerError::Credentials),
            (user, Some(password)) => {
                let user = percent_decode_str(user).decode_utf8();
                let user = user.map_err(|_| MailServerError::Credentials)?.into_owned();
                let password: Vec<u8> = percent_decode_str(password).collect();
                Some((user, Secret::new(password)))
            }
        };
        let port = url.port().unwrap_or(default_port);
        // `localhost` is a name that somebody may have pointed elsewhere: only an address is surely this machine.
        let is_own = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let tls = if tls == MailTls::Start && is_own { MailTls::Plain } else { tls };
        Ok(Self { host, port, tls, credentials })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_ones() {
        for good in ["ada@example.com", "a.b+c@x.example", "o'neil@localhost"] {
            assert_eq!(MailAddress::parse(good).map(|one| one.to_string()).as_deref(), Ok(good));
        }
        let long = format!("{}@example.com", "a".repeat(65));
        for bad in [
            "",
            "ada",
            "@example.com",
            "ada@",
            "a b@example.com",
            "Ada <ada@example.com>",
            "ada@example..com",
            ".a@example.com",
            "ada@-x.com",
            "a@b\r\nBcc: c@d",
            "ä@example.com",
            &long,
        ] {
            assert_eq!(MailAddress::parse(bad), Err(MailAddressError), "{bad}");
        }
    }

    /// Host, port, protection, user and password.
    type Parts<'t> = (&'t str, u16, MailTls, Option<(&'t str, &'t str)>);

    #[track_caller]
    fn check(text: &str, expected: Result<Parts<'_>, MailServerError>) {
        let expected = expected.map(|(host, port, tls, who)| MailServer {
            host: host.into(),
            port,
            tls,
            credentials: who.map(|(user, password)| (user.into(), Secret::new(password))),
        });
        assert_eq!(MailServer::parse(text), expected, "{text}");
    }

    #[test]
    fn a_server_is_tls_or_starts_it() {
        check("smtp://mail.example.com", Ok(("mail.example.com", 587, MailTls::Start, None)));
        check("smtps://m.example.com/", Ok(("m.example.com", 465, MailTls::Whole, None)));
        let who = Some(("a@b", "p:w/%"));
        check(
            "smtps://a%40b:p%3Aw%2F%25@m.example.com:2465",
            Ok(("m.example.com", 2465, MailTls::Whole, who)),
        );
    }

    #[test]
    fn only_this_machine_is_spoken_to_in_plain_text() {
        check("smtp://127.0.0.1:2525", Ok(("127.0.0.1", 2525, MailTls::Plain, None)));
        check("smtp://[::1]:2525", Ok(("::1", 2525, MailTls::Plain, None)));
        check("smtp://10.0.0.1:2525", Ok(("10.0.0.1", 2525, MailTls::Start, None)));
        check("smtp://localhost", Ok(("localhost", 587, MailTls::Start, None)));
    }

    #[test]
    fn other_texts_are_told_without_what_they_hold() {
        for bad in ["", "mail.example.com", "https://m.example.com", "smtp:m", "smtp://"] {
            check(bad, Err(MailServerError::Scheme));
        }
        check("smtp://user@m.example.com", Err(MailServerError::Credentials));
        check("smtp://:secret@m.example.com", Err(MailServerError::Credentials));
        check("smtp://m.example.com/a", Err(MailServerError::Rest));
        check("smtp://m.example.com?tls=off", Err(MailServerError::Rest));
    }
}
