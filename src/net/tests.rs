//! Loopback peers for the tests of this floor, opened by an exception like anybody's.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::clock::{Clock, SystemClock};
use crate::config::snapshot::{Roots, TlsSettings, TlsVersion};
use crate::net::connect::TlsConnect;
use crate::net::tls::client_tls;
use crate::policy::address::{Admitted, Answers, EgressRules, VettedAddr};
use crate::policy::egress::{EgressSettings, Exception};
use crate::policy::endpoint::Endpoint;

/// The name of every peer here, and the tool that calls it.
pub const NAME: &str = "tool.example";
const TOOL: &str = "lookup_order";

/// A loopback address that is not the usual one.
pub fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// A listener on a free port of that address.
pub async fn listen(last: u8) -> (TcpListener, u16) {
    let listener = TcpListener::bind((loopback(last), 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A moment from now.
pub fn soon(milliseconds: u64) -> Instant {
    SystemClock.now() + Duration::from_millis(milliseconds)
}

/// A target on loopback and the rules that open it.
pub struct Target {
    /// The rules.
    pub rules: EgressRules,
    /// The target.
    pub endpoint: Endpoint,
}

impl Target {
    /// The name, or any other host, at a port.
    pub fn new(scheme: &str, host: &str, port: u16) -> Self {
        Self::with(scheme, host, port, EgressSettings::default())
    }

    /// The same, but the rest of the rules is as given.
    pub fn with(scheme: &str, host: &str, port: u16, settings: EgressSettings) -> Self {
        let exception = Exception {
            tools: vec![TOOL.into()],
            hosts: vec![host.into()],
            cidrs: vec!["127.0.0.0/8".into()],
            ports: vec![port.to_string()],
            http: true,
            ..Exception::default()
        };
        let settings = EgressSettings { exceptions: vec![exception], ..settings };
        let endpoint = Endpoint::parse(&format!("{scheme}://{host}:{port}/a")).unwrap();
        Self { rules: EgressRules::new(&settings).unwrap(), endpoint }
    }

    /// The target, through the stage before DNS.
    pub fn admitted(&self) -> Admitted<'_> {
        self.rules.admit(TOOL, &self.endpoint, 1_800_000_000).verdict.unwrap()
    }

    /// What may be dialled when DNS names these loopback addresses.
    pub fn vetted(&self, lasts: &[u8]) -> Vec<VettedAddr> {
        let addresses = lasts.iter().copied().map(loopback).collect();
        let answers = Answers { addresses, names: vec![] };
        self.rules.vet(&self.admitted(), &answers).verdict.unwrap()
    }
}

/// A throw-away certificate authority.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// A new one.
    pub fn found() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A server that shows a certificate for `name`.
    pub fn acceptor(&self, name: &str, edit: impl FnOnce(&mut CertificateParams)) -> TlsAcceptor {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Arc::new(config).into()
    }

    /// A connector that trusts it.
    pub fn connector(&self, connect_timeout: Duration) -> TlsConnect {
        let settings = TlsSettings {
            min_version: TlsVersion::V12,
            roots: Roots::Webpki,
            extra_ca: Some(self.pem.clone()),
        };
        let tls = client_tls(&settings).unwrap();
        TlsConnect::new(tls.config, connect_timeout, Arc::new(SystemClock))
    }
}

/// Reads one request whose body is `{}`; `None` at the end of the stream.
pub async fn read_request(peer: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n{}") {
        if peer.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8(read).unwrap())
}
