//! URL text to an endpoint that has one meaning only.
//!
//! Parsers disagree about odd URLs, and what one of them checks another one dials. So the raw text is checked first, it is
//! parsed once by `url`, and both readings must be the same; nobody parses it again.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Position, Url};

use crate::policy::egress_code::EgressCode;
use crate::policy::names::{self, NameError};
use crate::policy::ports;

const MAX_LENGTH: usize = 8192;

/// How a tool's server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain text, by exception only.
    Http,
    /// TLS.
    Https,
}

impl Scheme {
    /// As it stands in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of a URL that names none.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address, written as such.
    Address(IpAddr),
    /// A name: lower case, no trailing dot.
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Where a tool's server is. What was typed is what it means: nothing was decoded, mapped or left out but a fragment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    scheme: Scheme,
    host: Host,
    port: u16,
    authority: String,
    path_and_query: String,
}

impl Endpoint {
    /// Reads a URL. Only its spelling is judged here; whether it may be called is `EgressRules`' business.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        check_characters(text)?;
        let (scheme, rest) = split_scheme(text)?;
        let rest = rest.strip_prefix("//").ok_or(EndpointError::NoSlashes)?;
        let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (host, port) = read_authority(authority)?;
        let port = port.unwrap_or(scheme.default_port());
        let typed = rest.split_once('#').map_or(rest, |(before, _)| before);
        let slash = if typed.starts_with('/') { "" } else { "/" };
        let path_and_query = format!("{slash}{typed}");

        let second = Url::parse(text).map_err(|problem| EndpointError::Unreadable { problem })?;
        let same = second.scheme() == scheme.as_str()
            && is_same_host(second.host(), &host)
            && second.port_or_known_default() == Some(port);
        if !same {
            return Err(EndpointError::Ambiguous { host: host.to_string() });
        }
        if second[Position::BeforePath..Position::AfterQuery] != path_and_query {
            let typed = path_and_query.split('?').next().unwrap_or_default();
            return Err(if second.path() == typed {
                EndpointError::Query
            } else {
                EndpointError::Path { better: second.path().to_owned() }
            });
        }

        let authority =
            if port == scheme.default_port() { host.to_string() } else { format!("{host}:{port}") };
        Ok(Self { scheme, host, port, authority, path_and_query })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, the scheme's default where the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Path and query, at least `/`.
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }

    /// The value of the Host header: the port only when it is not the scheme's default.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.as_str(), self.authority, self.path_and_query)
    }
}

/// Why a text is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The two readings differ.
    #[error("the url can be read in more than one way: `{host}` may not be its host")]
    Ambiguous {
        /// One reading of the host.
        host: String,
    },
    /// Something between the brackets, or around them, that is no IPv6 address.
    #[error("`{host}` is not an IPv6 address; one in brackets has no zone: `[2001:db8::1]`")]
    Brackets {
        /// The host as written.
        host: String,
    },
    /// White space, a control character or a backslash.
    #[error("the url has {character:?} at byte {position}: leave it out or percent-encode it")]
    Character {
        /// Which one.
        character: char,
        /// Where.
        position: usize,
    },
    /// The host is no host.
    #[error(transparent)]
    Host(#[from] NameError),
    /// An IPv6 address without brackets.
    #[error("write the IPv6 address in brackets: `[{address}]`")]
    NoBrackets {
        /// The address.
        address: Ipv6Addr,
    },
    /// Nothing where the host should be.
    #[error("the url has no host: write `https://host/path`")]
    NoHost,
    /// Nothing in front that is a scheme.
    #[error("the url has no scheme: write `https://` in front")]
    NoScheme,
    /// A scheme, but not two slashes.
    #[error("the scheme must be followed by two slashes: `https://host/path`")]
    NoSlashes,
    /// Characters outside of ASCII, elsewhere than in the host.
    #[error(
        "the url has `{character}` at byte {position}: percent-encode what is outside of ASCII"
    )]
    NonAscii {
        /// Which one.
        character: char,
        /// Where.
        position: usize,
    },
    /// Another spelling of the path is the one that would be sent.
    #[error(
        "the path has dot segments or characters that are not sent as they are: write `{better}`"
    )]
    Path {
        /// The path as it would be sent.
        better: String,
    },
    /// What follows the colon is no port. It may be a password.
    #[error("what follows the host's colon is not a port from 1 to 65535")]
    Port,
    /// Port 0.
    #[error("nothing can listen on port 0")]
    PortZero,
    /// Another spelling of the query is the one that would be sent. It is not repeated: a query often holds a key.
    #[error("the query has characters that are not sent as they are: percent-encode them")]
    Query,
    /// Another scheme.
    #[error(
        "the scheme must be https, not `{scheme}`; in front of a host and a port write `https://`"
    )]
    Scheme {
        /// Which one.
        scheme: String,
    },
    /// Longer than any sensible URL.
    #[error("the url has {length} bytes, {MAX_LENGTH} at most are taken")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The `url` crate does not take it.
    #[error("the url cannot be read: {problem}")]
    Unreadable {
        /// What it says.
        problem: url::ParseError,
    },
    /// Credentials.
    #[error(
        "the url has credentials or an `@` in front of its host: put credentials into the tool's headers"
    )]
    Userinfo,
}

impl EndpointError {
    /// The code.
    pub fn code(&self) -> EgressCode {
        match self {
            Self::Brackets { .. } | Self::NoBrackets { .. } => EgressCode::MalformedHost,
            Self::Host(error) => error.code(),
            Self::NonAscii { .. } => EgressCode::NonAsciiUrl,
            Self::PortZero => EgressCode::Port,
            Self::Scheme { .. } => EgressCode::Scheme,
            Self::Userinfo => EgressCode::Userinfo,
            Self::Ambiguous { .. }
            | Self::Character { .. }
            | Self::NoHost
            | Self::NoScheme
            | Self::NoSlashes
            | Self::Path { .. }
            | Self::Port
            | Self::Query
            | Self::TooLong { .. }
            | Self::Unreadable { .. } => EgressCode::MalformedUrl,
        }
    }
}

/// What parsers trim, delete or turn into something else must not be there at all.
fn check_characters(text: &str) -> Result<(), EndpointError> {
    if text.len() > MAX_LENGTH {
        return Err(EndpointError::TooLong { length: text.len() });
    }
    let trick = |c: char| c.is_ascii_whitespace() || c.is_ascii_control() || c == '\\';
    if let Some((position, character)) = text.char_indices().find(|(_, c)| trick(*c)) {
        return Err(EndpointError::Character { character, position });
    }
    let Some((position, character)) = text.char_indices().find(|(_, c)| !c.is_ascii()) else {
        return Ok(());
    };
    match raw_host(text).filter(|host| !host.is_ascii()) {
        Some(host) => Err(EndpointError::Host(NameError::NonAscii {
            name: host.to_owned(),
            a_label: names::a_label(host),
        })),
        None => Err(EndpointError::NonAscii { character, position }),
    }
}

/// The host of a URL that is refused anyway, for the error's text.
fn raw_host(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    authority.rsplit('@').next()?.split(':').next()
}

fn split_scheme(text: &str) -> Result<(Scheme, &str), EndpointError> {
    let (scheme, rest) = text.split_once(':').ok_or(EndpointError::NoScheme)?;
    let letters =
        scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    if !letters || !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(EndpointError::NoScheme);
    }
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Ok((Scheme::Https, rest)),
        "http" => Ok((Scheme::Http, rest)),
        other => Err(EndpointError::Scheme { scheme: other.to_owned() }),
    }
}

fn read_authority(authority: &str) -> Result<(Host, Option<u16>), EndpointError> {
    if authority.is_empty() {
        return Err(EndpointError::NoHost);
    }
    if authority.contains('@') {
        return Err(EndpointError::Userinfo);
    }
    if let Some(inside) = authority.strip_prefix('[') {
        let error = || EndpointError::Brackets { host: authority.to_owned() };
        let (address, after) = inside.split_once(']').ok_or_else(error)?;
        let address: Ipv6Addr = address.parse().map_err(|_| error())?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(read_port(port)?),
            None if after.is_empty() => None,
            None => return Err(error()),
        };
        return Ok((Host::Address(address.into()), port));
    }
    if let Ok(address) = authority.parse::<Ipv6Addr>() {
        return Err(EndpointError::NoBrackets { address });
    }
    let (host, port) = match authority.split_once(':') {
        Some(("", _)) => return Err(EndpointError::NoHost),
        Some((host, port)) => (host, Some(read_port(port)?)),
        None => (authority, None),
    };
    match host.parse::<Ipv4Addr>() {
        Ok(address) => Ok((Host::Address(address.into()), port)),
        Err(_) => Ok((Host::Name(names::read_name(host)?), port)),
    }
}

fn read_port(text: &str) -> Result<u16, EndpointError> {
    match ports::read_port(text) {
        Some(0) => Err(EndpointError::PortZero),
        Some(port) => Ok(port),
        None => Err(EndpointError::Port),
    }
}

fn is_same_host(second: Option<url::Host<&str>>, host: &Host) -> bool {
    match (second, host) {
        (Some(url::Host::Domain(read)), Host::Name(name)) => {
            read.strip_suffix('.').unwrap_or(read) == name
        }
        (Some(url::Host::Ipv4(read)), Host::Address(IpAddr::V4(address))) => read == *address,
        (Some(url::Host::Ipv6(read)), Host::Address(IpAddr::V6(address))) => read == *address,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
