//! TLS towards callers: the certificate that they see, whose certificates are taken, and who a connection's client is.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::listening::{ClientCertificates, ServingTls};
use crate::net::certificate::not_after;
use crate::policy::peer_name::{NamePattern, PeerName};

/// The settings of one configuration, compiled.
pub struct ServerTls {
    config: Arc<ServerConfig>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// The api listener cannot speak TLS.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// A file of it cannot be read.
    #[error("the api listener cannot speak TLS: {0}")]
    Lacking(String),
    /// The versions do not go with the cryptography.
    #[error("the api listener cannot speak TLS: {0}")]
    Unusable(String),
}

/// The client of a connection, as far as its certificate tells.
#[derive(Debug)]
pub struct Peer {
    /// The names in its certificate; none without one.
    names: Vec<PeerName>,
    chain: Vec<CertificateDer<'static>>,
    ends: Option<i64>,
    tls: Arc<ServerTls>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls")
    }
}

impl ServerTls {
    /// Compiles the settings: TLS 1.2 and 1.3, HTTP/1.1 alone.
    pub fn new(settings: &ServingTls) -> Result<Self, ServingError> {
        let unusable = |error: &dyn fmt::Display| ServingError::Unusable(error.to_string());
        let clients = settings.clients.as_ref().map(verifier).transpose()?;
        let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| unusable(&error))?;
        let config = match &clients {
            Some(clients) => config.with_client_cert_verifier(clients.clone()),
            None => config.with_no_client_auth(),
        };
        let identity = SingleCertAndKey::from(settings.identity.clone());
        let mut config = config.with_cert_resolver(Arc::new(identity));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if clients.is_some() {
            // A resumed session would bring its certificate along without a second look at it.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self { config: Arc::new(config), clients })
    }

    /// Shakes hands; whoever calls bounds the time.
    pub async fn accept<S>(self: Arc<Self>, stream: S) -> io::Result<(TlsStream<S>, Peer)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(self.config.clone()).accept(stream).await?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let chain: Vec<_> = chain.iter().map(|one| one.clone().into_owned()).collect();
        let leaf = chain.first();
        let names = leaf.map(PeerName::all).unwrap_or_default();
        let ends = leaf.and_then(|leaf| not_after(leaf));
        Ok((stream, Peer { names, chain, ends, tls: self }))
    }

    /// Whether a new connection could show this chain now.
    fn takes(&self, chain: &[CertificateDer<'static>], unix_seconds: i64) -> bool {
        let Some((leaf, between)) = chain.split_first() else { return false };
        let Ok(seconds) = u64::try_from(unix_seconds) else { return false };
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let clients = self.clients.as_ref();
        clients.is_some_and(|clients| clients.verify_client_cert(leaf, between, now).is_ok())
    }
}

impl Peer {
    /// The names in the client's certificate, where it would be taken now too: a kept connection outlives neither its
    /// certificate nor the authority that signed it. `serving` is what is in force.
    pub fn names(&self, serving: Option<&Arc<ServerTls>>, unix_seconds: i64) -> &[PeerName] {
        if self.holds(serving, unix_seconds) { &self.names } else { &[] }
    }

    /// Whether anything may be asked over this connection now, also by key or token: where a certificate is required, the
    /// one of the handshake must still be taken.
    pub fn may_ask(&self, serving: Option<&Arc<ServerTls>>, unix_seconds: i64) -> bool {
        let clients = serving.and_then(|serving| serving.clients.as_ref());
        let required = clients.is_some_and(|clients| clients.client_auth_mandatory());
        !required || self.holds(serving, unix_seconds)
    }

    /// Whether a new handshake would find the same: the settings in force are those of the connection, and its
    /// certificate has not ended.
    pub fn is_current(&self, serving: Option<&Arc<ServerTls>>, unix_seconds: i64) -> bool {
        let is_of = serving.is_some_and(|serving| Arc::ptr_eq(serving, &self.tls));
        is_of && !self.has_ended(unix_seconds)
    }

    fn holds(&self, serving: Option<&Arc<ServerTls>>, unix_seconds: i64) -> bool {
        !self.has_ended(unix_seconds)
            && match serving {
                Some(serving) if Arc::ptr_eq(serving, &self.tls) => true,
                Some(serving) => serving.takes(&self.chain, unix_seconds),
                None => false,
            }
    }

    fn has_ended(&self, unix_seconds: i64) -> bool {
        self.ends.is_some_and(|end| unix_seconds > end)
    }
}

fn verifier(settings: &ClientCertificates) -> Result<Arc<dyn ClientCertVerifier>, ServingError> {
    let provider = aws_lc_rs::default_provider().into();
    let builder =
        WebPkiClientVerifier::builder_with_provider(settings.authorities.clone(), provider);
    let builder = if settings.required { builder } else { builder.allow_unauthenticated() };
    let chain = builder.build().map_err(|error| ServingError::Unusable(error.to_string()))?;
    Ok(if settings.names.is_empty() {
        chain
    } else {
        Arc::new(NamedClients { chain, names: settings.names.clone() })
    })
}

/// Takes a certificate only where one of its names is listed.
#[derive(Debug)]
struct NamedClients {
    chain: Arc<dyn ClientCertVerifier>,
    names: Vec<NamePattern>,
}

impl ClientCertVerifier for NamedClients {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        let names = PeerName::all(end_entity);
        if names.iter().any(|name| self.names.iter().any(|pattern| pattern.matches(name))) {
            Ok(verified)
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
