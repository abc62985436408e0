//! TLS towards tools: which roots, versions and protocols a handshake may use.

use std::sync::Arc;

use rustls::client::{ClientConnection, Resumption};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, Error, RootCertStore, SupportedProtocolVersion};

use crate::config::client_identity::ClientIdentity;
use crate::config::snapshot::{Roots, TlsSettings, TlsVersion};

/// How many servers' sessions one identity keeps.
const SESSIONS: usize = 256;

/// The compiled settings and what looked odd while they were read.
#[derive(Debug)]
pub struct ClientTls {
    /// What `TlsConnect` needs.
    pub config: Arc<ClientConfig>,
    /// For the operator: roots that could not be read.
    pub warnings: Vec<String>,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// `extra_ca` holds no usable certificate.
    #[error("extra_ca is not a list of PEM certificates: {message}")]
    ExtraCa {
        /// What is wrong.
        message: String,
    },
    /// There is nothing to trust.
    #[error("the system has no root certificates; use `roots: webpki` or name an `extra_ca`")]
    NoRoots,
    /// The versions do not go with the cryptography.
    #[error("the TLS versions cannot be used: {message}")]
    Versions {
        /// What is wrong.
        message: String,
    },
}

/// Compiles the settings: ALPN offers only HTTP/1.1, and [`with_identity`] adds a certificate of ours.
pub fn client_tls(settings: &TlsSettings) -> Result<ClientTls, TlsError> {
    let mut roots = RootCertStore::empty();
    let mut warnings = Vec::new();
    match settings.roots {
        Roots::System => warnings = add_system_roots(&mut roots),
        Roots::Webpki => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    if let Some(pem) = &settings.extra_ca {
        add_extra_ca(&mut roots, pem)?;
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let versions: &[&SupportedProtocolVersion] = match settings.min_version {
        TlsVersion::V12 => &[&TLS13, &TLS12],
        TlsVersion::V13 => &[&TLS13],
    };
    let mut config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::Versions { message: error.to_string() })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(ClientTls { config: Arc::new(config), warnings })
}

/// The same settings with a certificate of ours to show.
pub fn with_identity(config: &ClientConfig, identity: &ClientIdentity) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity.certified()));
    // A resumed session is the identity that it began with: sessions are never shared.
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Arc::new(config)
}

/// Whether the server says that it does not take the client's certificate, or the lack of one.
pub fn refuses_client(error: &Error) -> bool {
    let Error::AlertReceived(alert) = error else { return false };
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            // Its signature is not that of the authority whose name it bears.
            | AlertDescription::DecryptError
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}

fn add_system_roots(roots: &mut RootCertStore) -> Vec<String> {
    let found = rustls_native_certs::load_native_certs();
    let mut warnings: Vec<String> =
        found.errors.iter().map(|error| format!("a system root is left out: {error}")).collect();
    let (_, ignored) = roots.add_parsable_certificates(found.certs);
    if ignored > 0 {
        warnings.push(format!("{ignored} system roots are left out: they cannot be read"));
    }
    warnings
}

fn add_extra_ca(roots: &mut RootCertStore, pem: &str) -> Result<(), TlsError> {
    let bad = |message: String| TlsError::ExtraCa { message };
    let mut count = 0_usize;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        count += 1;
    }
    if count == 0 { Err(bad("it holds no certificate".into())) } else { Ok(()) }
}

/// Pays the first handshake's cost in memory, before the process says that it is ready: a client's first flight seeds
/// the random numbers and makes the keys.
pub fn warm_up(config: &Arc<ClientConfig>) {
    let Ok(name) = ServerName::try_from("localhost") else { return };
    if let Ok(mut client) = ClientConnection::new(Arc::clone(config), name) {
        // Writing to memory does not fail, and nobody reads it.
        let _ = client.write_tls(&mut Vec::with_capacity(2048));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(roots: Roots, extra_ca: Option<&str>) -> TlsSettings {
        TlsSettings { min_version: TlsVersion::V12, roots, extra_ca: extra_ca.map(String::from) }
    }

    #[test]
    fn offers_http_1_1_alone() {
        let tls = client_tls(&settings(Roots::Webpki, None)).unwrap();
        assert_eq!(tls.config.alpn_protocols, [b"http/1.1".to_vec()]);
        assert!(tls.warnings.is_empty());
    }

    #[test]
    fn an_extra_ca_without_a_certificate_is_refused() {
        for pem in ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = client_tls(&settings(Roots::Webpki, Some(pem))).unwrap_err();
            assert!(matches!(error, TlsError::ExtraCa { .. }), "{error}");
        }
    }

    #[test]
    fn warming_up_leaves_the_settings_usable() {
        let tls = client_tls(&settings(Roots::Webpki, None)).unwrap();
        warm_up(&tls.config);
        warm_up(&tls.config);
    }
}
