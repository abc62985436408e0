//! How callers are told apart: by key, by the certificate of their connection, by token, or not at all.

use std::sync::Arc;

use crate::policy::identity::{Caller, Keys};
use crate::policy::issuer::Issuer;
use crate::policy::peer_name::{NamePattern, PeerName};

/// How callers are told apart.
#[derive(Debug, Clone)]
pub enum Authentication {
    /// By what they show.
    Known(Known),
    /// Not at all: loopback and Unix sockets only.
    None(Arc<Caller>),
}

/// Everybody who is known.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// By bearer key.
    pub keys: Keys,
    /// By certificate; of several entries that hold a name the first one counts.
    pub certificates: Vec<KnownCertificate>,
    /// By token.
    pub issuers: Vec<Issuer>,
}

/// One entry of `auth.certs`.
#[derive(Debug, Clone)]
pub struct KnownCertificate {
    /// Which certificates are meant.
    pub name: NamePattern,
    /// Who that is.
    pub caller: Arc<Caller>,
}

impl Known {
    /// Whether there is a way for anybody.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.certificates.is_empty() && self.issuers.is_empty()
    }

    /// Who shows a certificate with these names.
    pub fn by_certificate(&self, names: &[PeerName]) -> Option<&Arc<Caller>> {
        let holds = |known: &&KnownCertificate| names.iter().any(|name| known.name.matches(name));
        self.certificates.iter().find(holds).map(|known| &known.caller)
    }

    /// Whose tokens have this `iss`.
    pub fn issuer(&self, name: &str) -> Option<&Issuer> {
        self.issuers.iter().find(|issuer| issuer.name == name)
    }

    /// What a caller could show, for one who shows nothing that is known.
    pub fn ways(&self) -> &'static str {
        match (self.keys.is_empty(), self.issuers.is_empty(), self.certificates.is_empty()) {
            // Nobody at all is told of the way that there mostly is.
            (false | true, true, true) => "a known key is required: `Authorization: Bearer KEY`",
            (true, false, true) => "a valid token is required: `Authorization: Bearer TOKEN`",
            (true, true, false) => "a client certificate that is known is required",
            (false, false, true) => {
                "a known key or a valid token is required: `Authorization: Bearer KEY`"
            }
            (false, true, false) => {
                "a known key (`Authorization: Bearer KEY`) or a client certificate that is known is required"
            }
            (true, false, false) => {
                "a valid token (`Authorization: Bearer TOKEN`) or a client certificate that is known is required"
            }
            (false, false, false) => {
                "a known key or a valid token (`Authorization: Bearer KEY`), or a client certificate that is known, is required"
            }
        }
    }
}
