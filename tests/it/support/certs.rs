//! A throw-away certificate authority and the certificates that it signs.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate authority that exists for one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes a new key and a new self-signed certificate.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "throw-away test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key pair");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate authority"))
    }

    /// The authority's certificate, for `egress.tls.extra_ca`.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server certificate for names and IP addresses.
    pub(crate) fn leaf(&self, names: &[&str]) -> Leaf {
        self.sign(names, |_| ())
    }

    /// A server certificate whose time is over.
    pub(crate) fn expired_leaf(&self, names: &[&str]) -> Leaf {
        self.sign(names, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 2, 1);
        })
    }

    fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).expect("names that a certificate can hold");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key pair");
        let certificate = params.signed_by(&key, &self.0).expect("a signed certificate");
        Leaf { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// A TLS client that trusts this authority alone and offers these protocols.
    pub(crate) fn client_config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A certificate and its key, as PEM text.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Leaf {
    /// A TLS server that shows this certificate and speaks these protocols.
    pub(crate) fn server_config(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        let certificate =
            CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).expect("PEM");
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("PEM");
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("a certificate that fits its key");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
