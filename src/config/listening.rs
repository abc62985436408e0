//! Where Sortie listens, for whom, and with which certificate: compiled.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;

use crate::policy::identity::KeyDigest;
use crate::policy::peer_name::NamePattern;

/// Where Sortie listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    /// Calls.
    pub api: ApiListener,
    /// Metrics and probes.
    pub telemetry: TelemetryListener,
    /// For the operator, where it is on.
    pub admin: Option<AdminListener>,
}

impl Listeners {
    /// The TCP addresses as the file has them, in the order in which they are bound.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let admin = self.admin.as_ref().and_then(|admin| admin.bind.address());
        self.api.bind.address().into_iter().chain([self.telemetry.address]).chain(admin)
    }
}

/// The listener for metrics and probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryListener {
    /// Its address.
    pub address: SocketAddr,
    /// Bound on connections at the same time.
    pub max_connections: usize,
}

/// Whom the admin listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operators {
    /// Whoever reaches it: a socket's mode says who can.
    Anybody,
    /// Nobody: its token cannot be read.
    Nobody,
    /// Whoever shows the token of this digest.
    Token(KeyDigest),
}

/// The listener for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminListener {
    /// A Unix socket, or a loopback address.
    pub bind: Bind,
    /// Bound on connections at the same time.
    pub max_connections: usize,
}

impl Listeners {
    /// The settings that differ: listeners are made once, so each of them needs a restart.
    pub fn changes(&self, other: &Self) -> Vec<&'static str> {
        let (one, two) = (&self.api, &other.api);
        [
            ("listeners.api.address", one.bind != two.bind),
            ("listeners.api.max_body", one.max_body != two.max_body),
            ("listeners.api.header_timeout", one.header_timeout != two.header_timeout),
            ("listeners.api.idle_timeout", one.idle_timeout != two.idle_timeout),
            ("listeners.api.max_connections", one.max_connections != two.max_connections),
            ("listeners.api.tls", one.tls != two.tls),
            ("listeners.telemetry.address", self.telemetry.address != other.telemetry.address),
            (
                "listeners.telemetry.max_connections",
                self.telemetry.max_connections != other.telemetry.max_connections,
            ),
            ("listeners.admin", self.admin != other.admin),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }
}

/// The listener for calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiListener {
    /// TCP address or Unix socket.
    pub bind: Bind,
    /// Bound on a request's body, in bytes.
    pub max_body: usize,
    /// Bound on a request's head.
    pub header_timeout: Duration,
    /// How long a kept connection may be idle.
    pub idle_timeout: Duration,
    /// Bound on connections at the same time.
    pub max_connections: usize,
    /// Whether it speaks TLS. With what stands in `Snapshot::serving`, since that may change while it listens.
    pub tls: bool,
}

/// TLS of the api listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Serving {
    /// It should speak TLS and cannot: what could not be read, for the operator.
    Lacking(String),
    /// It speaks plain HTTP.
    Plain,
    /// It speaks TLS.
    Tls(ServingTls),
}

/// What the api listener speaks TLS with, read and checked.
#[derive(Debug, Clone)]
pub struct ServingTls {
    /// The certificate with its chain, and the key that belongs to it.
    pub identity: Arc<CertifiedKey>,
    /// Where clients are asked for a certificate: which ones are taken.
    pub clients: Option<ClientCertificates>,
    /// SHA-256 over all of it: tells two settings apart.
    pub digest: [u8; 32],
}

impl PartialEq for ServingTls {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ServingTls {}

/// Which client certificates are taken.
#[derive(Debug, Clone)]
pub struct ClientCertificates {
    /// The authorities that sign them.
    pub authorities: Arc<RootCertStore>,
    /// Names that may connect at all; empty: any.
    pub names: Vec<NamePattern>,
    /// Whether a client without one is sent away.
    pub required: bool,
}

/// A place to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bind {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket and its mode.
    Unix {
        /// The socket's path.
        path: PathBuf,
        /// Permission bits, such as 0o600.
        mode: u32,
    },
}

impl Bind {
    /// The TCP address, where it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix { .. } => None,
        }
    }
}
