//! The names in a caller's certificate, and patterns for them.

use std::fmt;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::policy::names::glob_matches;

/// A subject alternative name. Other kinds, and the common name, tell nobody anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerName {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, such as a SPIFFE id.
    Uri(String),
}

impl PeerName {
    /// The names of a certificate; none where it cannot be read.
    pub fn all(certificate: &CertificateDer<'_>) -> Vec<Self> {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
        let dns = certificate.valid_dns_names().map(|name| Self::Dns(name.to_ascii_lowercase()));
        let uris = certificate.valid_uri_names().map(|uri| Self::Uri(uri.to_owned()));
        dns.chain(uris).collect()
    }
}

/// A DNS name or a URI, in which `*` stands for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern(PeerName);

/// A text that is no such pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a DNS name or a URI of 1 to 256 visible ASCII characters, in which `*` stands for any run of characters"
)]
pub struct NamePatternError;

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PeerName::Dns(text) | PeerName::Uri(text) => f.write_str(text),
        }
    }
}

impl NamePattern {
    /// Reads a pattern. One with `://` is for URIs, which keep their letter case.
    pub fn parse(text: &str) -> Result<Self, NamePatternError> {
        let fits = (1..=256).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if !fits {
            return Err(NamePatternError);
        }
        if text.contains("://") {
            return Ok(Self(PeerName::Uri(text.to_owned())));
        }
        let name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'*');
        if text.bytes().all(name) {
            Ok(Self(PeerName::Dns(text.to_ascii_lowercase())))
        } else {
            Err(NamePatternError)
        }
    }

    /// Whether it holds this name.
    pub fn matches(&self, name: &PeerName) -> bool {
        match (&self.0, name) {
            (PeerName::Dns(pattern), PeerName::Dns(name))
            | (PeerName::Uri(pattern), PeerName::Uri(name)) => glob_matches(pattern, name),
            (PeerName::Dns(_), PeerName::Uri(_)) | (PeerName::Uri(_), PeerName::Dns(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    #[track_caller]
    fn check(pattern: &str, name: PeerName, expected: bool) {
        let pattern = NamePattern::parse(pattern).expect("valid");
        assert_eq!(pattern.matches(&name), expected, "{pattern:?} {name:?}");
    }

    fn dns(name: &str) -> PeerName {
        PeerName::Dns(name.into())
    }

    fn uri(name: &str) -> PeerName {
        PeerName::Uri(name.into())
    }

    #[test]
    fn a_pattern_is_for_its_own_kind_of_name() {
        check("Runtime.corp.example", dns("runtime.corp.example"), true);
        check("*.corp.example", dns("runtime.corp.example"), true);
        check("*.corp.example", dns("corp.example"), false);
        check("*", dns("anything.example"), true);
        check("*", uri("spiffe://a.example/x"), false);
        check("spiffe://a.example/ns/*", uri("spiffe://a.example/ns/agents/sa/x"), true);
        check("spiffe://a.example/ns/*", uri("spiffe://A.example/ns/agents"), false);
        check("spiffe://*", dns("spiffe"), false);
    }

    #[test]
    fn what_is_no_name_is_no_pattern() {
        for bad in ["", "a b", "a/b", "a,b", "é.example", "spiffe://a b", "CN=a"] {
            assert_eq!(NamePattern::parse(bad), Err(NamePatternError), "{bad}");
        }
        assert!(NamePattern::parse(&"a".repeat(256)).is_ok());
        assert!(NamePattern::parse(&"a".repeat(257)).is_err());
    }

    #[test]
    fn dns_names_and_uris_are_read_and_nothing_else() {
        let mut params = CertificateParams::new(["Runtime.example.com".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "boss.example.com");
        params.subject_alt_names.extend([
            SanType::URI("spiffe://example.com/runtime".try_into().unwrap()),
            SanType::Rfc822Name("boss@example.com".try_into().unwrap()),
            SanType::IpAddress([192, 0, 2, 1].into()),
        ]);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let found = PeerName::all(certificate.der());
        assert_eq!(found, [dns("runtime.example.com"), uri("spiffe://example.com/runtime")]);
        assert_eq!(PeerName::all(&CertificateDer::from(vec![0x30, 0])), []);
    }
}
