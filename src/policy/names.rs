//! Host names and globs: what is a name, which names are never looked up, which pattern matches.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::policy::egress_code::EgressCode;

/// Last labels of names that DNS either does not know or must not be asked about. `cluster.local` and `home.arpa` are
/// in here by their last label.
const SPECIAL_USE: [&str; 9] =
    ["alt", "arpa", "internal", "invalid", "local", "localdomain", "localhost", "onion", "svc"];

/// Last labels that private networks use and no public registry gives away (RFC 6762, appendix G), and those that are
/// left to test suites.
const PRIVATE_USE: [&str; 7] = ["corp", "example", "home", "intranet", "lan", "private", "test"];

/// Whether a glob matches the whole text: `*` stands for any run of characters, also none.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let Some((head, rest)) = glob.split_once('*') else { return glob == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        // The earliest place leaves the most text for what follows.
        let Some((_, after)) = text.split_once(part) else { return false };
        text = after;
    }
    text.ends_with(tail)
}

/// The code of a name that is refused before any lookup: the list first, then names of one label.
///
/// Takes names from DNS too: any letter case, with or without a trailing dot.
pub fn refused_name(name: &str) -> Option<EgressCode> {
    let (last, single) = last_label(name);
    if SPECIAL_USE.iter().any(|special| special.eq_ignore_ascii_case(last)) {
        Some(EgressCode::NameDenied)
    } else {
        single.then_some(EgressCode::SingleLabel)
    }
}

/// Whether a name is `localhost` or ends in it: no exception opens such a name.
pub fn is_localhost(name: &str) -> bool {
    last_label(name).0.eq_ignore_ascii_case("localhost")
}

/// Reads a host name: the labels are checked, and it comes back in lower case without the trailing dot.
pub fn read_name(text: &str) -> Result<String, NameError> {
    let quoted = || text.to_owned();
    if !text.is_ascii() {
        return Err(NameError::NonAscii { name: quoted(), a_label: a_label(text) });
    }
    let name = without_dot(text).to_ascii_lowercase();
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > 253 {
        return Err(NameError::TooLong { length: name.len() });
    }
    for label in name.split('.') {
        let label_text = || label.to_owned();
        if label.is_empty() {
            return Err(NameError::EmptyLabel { name: quoted() });
        }
        if label.len() > 63 {
            return Err(NameError::LongLabel { label: label_text() });
        }
        let ldh = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !ldh || label.starts_with('-') || label.ends_with('-') {
            return Err(NameError::BadLabel { label: label_text() });
        }
    }
    match url::Host::parse(text) {
        Ok(url::Host::Domain(read)) if without_dot(&read) == name => Ok(name),
        Ok(url::Host::Domain(_)) => Err(NameError::BadALabel { name: quoted() }),
        Ok(url::Host::Ipv4(address)) => {
            Err(NameError::NonCanonical { name: quoted(), address: address.into() })
        }
        Ok(url::Host::Ipv6(address)) => {
            Err(NameError::NonCanonical { name: quoted(), address: address.into() })
        }
        Err(_) if ends_in_number(&name) => Err(NameError::NotAnAddress { name: quoted() }),
        Err(_) => Err(NameError::BadALabel { name: quoted() }),
    }
}

/// The ASCII form of a name, where it has one that is a name.
pub fn a_label(text: &str) -> Option<String> {
    match url::Host::parse(text) {
        Ok(url::Host::Domain(name)) => read_name(&name).ok(),
        Ok(url::Host::Ipv4(_) | url::Host::Ipv6(_)) | Err(_) => None,
    }
}

/// A host in the configuration: a name, everything below a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this address.
    Address(IpAddr),
    /// `*.example.com`: every name below `example.com`, not `example.com` itself.
    Below(String),
    /// Exactly this name.
    Name(String),
}

impl HostPattern {
    /// Reads `shop.example.com`, `*.example.com`, `192.0.2.1`, `2001:db8::1` or `[2001:db8::1]`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
            return Ok(Self::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(address.into()));
        }
        let below = text.strip_prefix("*.");
        if below.unwrap_or(text).contains('*') {
            return Err(NameError::GlobInside { glob: text.to_owned() });
        }
        match below {
            Some(suffix) => Ok(Self::Below(read_name(suffix)?)),
            None => Ok(Self::Name(read_name(text)?)),
        }
    }

    /// Whether it covers a name. Takes names from DNS too: any letter case, with or without a trailing dot.
    pub fn matches_name(&self, name: &str) -> bool {
        let name = without_dot(name);
        match self {
            Self::Address(_) => false,
            Self::Name(own) => own.eq_ignore_ascii_case(name),
            Self::Below(suffix) => {
                let Some(at) = name.len().checked_sub(suffix.len()) else { return false };
                name.get(at..).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
                    && name.get(..at).is_some_and(|start| start.len() > 1 && start.ends_with('.'))
            }
        }
    }

    /// Whether it covers an address that stands in a URL.
    pub fn matches_address(&self, address: IpAddr) -> bool {
        matches!(self, Self::Address(own) if *own == address)
    }

    /// Whether it is `localhost` or below it.
    pub fn is_localhost(&self) -> bool {
        match self {
            Self::Address(_) => false,
            Self::Below(name) | Self::Name(name) => is_localhost(name),
        }
    }

    /// Whether it covers everything below a top-level domain that is not known to be private, such as `*.com`.
    pub fn is_too_wide(&self) -> bool {
        match self {
            Self::Below(suffix) => {
                refused_name(suffix) == Some(EgressCode::SingleLabel)
                    && !PRIVATE_USE.contains(&suffix.as_str())
            }
            Self::Address(_) | Self::Name(_) => false,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Below(suffix) => write!(f, "*.{suffix}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// Why a text is no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// An A-label that nothing decodes to, or that decodes to something else.
    #[error("host `{name}` has an `xn--` label that is not valid punycode")]
    BadALabel {
        /// The name.
        name: String,
    },
    /// Something other than letters, digits and inner hyphens.
    #[error(
        "`{label}` is no label of a host name: letters, digits and hyphens, none of them at an end"
    )]
    BadLabel {
        /// The label.
        label: String,
    },
    /// Nothing at all.
    #[error("the host name is empty")]
    Empty,
    /// Two dots side by side, or one in front.
    #[error("host `{name}` has an empty label")]
    EmptyLabel {
        /// The name.
        name: String,
    },
    /// A `*` somewhere else than in front.
    #[error("`{glob}`: a `*` may stand only in front, as the whole first label: `*.example.com`")]
    GlobInside {
        /// The glob.
        glob: String,
    },
    /// A label of more than 63 characters.
    #[error("`{label}` is longer than a label's 63 characters")]
    LongLabel {
        /// The label.
        label: String,
    },
    /// Characters outside of ASCII.
    #[error("host `{name}` has characters outside of ASCII{}", write_instead(.a_label.as_deref()))]
    NonAscii {
        /// The name.
        name: String,
        /// What to write instead.
        a_label: Option<String>,
    },
    /// An address in another spelling.
    #[error(
        "host `{name}` is another spelling of {address}: write the address if that is what is meant"
    )]
    NonCanonical {
        /// The host as written.
        name: String,
        /// What it means.
        address: IpAddr,
    },
    /// It ends in a number, and so must be an address, but is none.
    #[error("host `{name}` ends in a number but is not an IPv4 address")]
    NotAnAddress {
        /// The host as written.
        name: String,
    },
    /// More than 253 characters.
    #[error("the host name has {length} characters, 253 at most are a name")]
    TooLong {
        /// Its length.
        length: usize,
    },
}

impl NameError {
    /// The code for a URL with this host.
    pub fn code(&self) -> EgressCode {
        match self {
            Self::NonAscii { .. } => EgressCode::NonAsciiUrl,
            Self::NonCanonical { .. } => EgressCode::NonCanonicalHost,
            Self::BadALabel { .. }
            | Self::BadLabel { .. }
            | Self::Empty
            | Self::EmptyLabel { .. }
            | Self::GlobInside { .. }
            | Self::LongLabel { .. }
            | Self::NotAnAddress { .. }
            | Self::TooLong { .. } => EgressCode::MalformedHost,
        }
    }
}

fn write_instead(a_label: Option<&str>) -> String {
    a_label.map(|name| format!(": write `{name}`")).unwrap_or_default()
}

fn without_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

fn last_label(name: &str) -> (&str, bool) {
    let name = without_dot(name);
    match name.rsplit_once('.') {
        Some((_, last)) => (last, false),
        None => (name, true),
    }
}

fn ends_in_number(name: &str) -> bool {
    let last = last_label(name).0;
    let hex =
        last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
