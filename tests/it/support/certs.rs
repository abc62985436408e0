//! A throw-away certificate authority and the certificates that it signs, good ones and odd ones.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// A certificate authority that exists for one test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Makes a new key and a new self-signed certificate.
    pub(crate) fn new() -> Self {
        let params = authority("throw-away test authority");
        let key = KeyPair::generate().expect("a key pair");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate authority"))
    }

    /// An authority below this one; `change` makes it odd.
    pub(crate) fn intermediate(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut params = authority(name);
        change(&mut params);
        let key = KeyPair::generate().expect("a key pair");
        Self(CertifiedIssuer::signed_by(params, key, &self.0).expect("a certificate authority"))
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
        self.sign(names, expired)
    }

    /// A client certificate for a DNS name or a URI.
    pub(crate) fn client_leaf(&self, name: &str) -> Leaf {
        self.sign(&[], |params| client(params, name))
    }

    /// A client certificate whose time is over.
    pub(crate) fn expired_client_leaf(&self, name: &str) -> Leaf {
        self.sign(&[], |params| {
            client(params, name);
            expired(params);
        })
    }

    /// A server certificate that `change` makes odd.
    pub(crate) fn sign(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = server(names);
        change(&mut params);
        let key = KeyPair::generate().expect("a key pair");
        let certificate = params.signed_by(&key, &self.0).expect("a signed certificate");
        Leaf { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// A TLS client that trusts this authority alone and offers these protocols.
    pub(crate) fn client_config(&self, alpn: &[&str]) -> Arc<ClientConfig> {
        self.client(alpn, None)
    }

    /// The same with a certificate to show.
    pub(crate) fn client_config_with(&self, alpn: &[&str], leaf: &Leaf) -> Arc<ClientConfig> {
        self.client(alpn, Some(leaf))
    }

    fn client(&self, alpn: &[&str], leaf: Option<&Leaf>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a root");
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the default versions")
            .with_root_certificates(roots);
        let mut config = match leaf.map(Leaf::der) {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config
                .with_client_auth_cert(vec![certificate], key)
                .expect("a certificate that fits its key"),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// Makes a certificate valid between these days, counted from now.
pub(crate) fn valid(params: &mut CertificateParams, days: Range<i64>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let moment = |day: i64| {
        let seconds = now.checked_add_signed(day * 24 * 3600).expect("after 1970");
        date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
    };
    (params.not_before, params.not_after) = (moment(days.start), moment(days.end));
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn server(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names that a certificate can hold");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

/// A certificate, what is sent along with it, and its key, as PEM text.
#[derive(Debug, Clone)]
pub(crate) struct Leaf {
    pub(crate) certificate_pem: String,
    pub(crate) key_pem: String,
}

impl Leaf {
    fn der(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let certificate =
            CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).expect("PEM");
        (certificate, PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("PEM"))
    }

    /// One that nobody but itself has signed.
    pub(crate) fn self_signed(names: &[&str]) -> Self {
        let key = KeyPair::generate().expect("a key pair");
        let mut params = server(names);
        params.use_authority_key_identifier_extension = false;
        let certificate = params.self_signed(&key).expect("a signed certificate");
        Self { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() }
    }

    /// Sends these certificates along, the nearest first.
    pub(crate) fn with_chain<'a>(
        mut self,
        authorities: impl IntoIterator<Item = &'a Authority>,
    ) -> Self {
        authorities.into_iter().for_each(|one| self.certificate_pem.push_str(&one.pem()));
        self
    }

    /// A TLS server that shows this certificate, whatever is wrong with it, and speaks these protocols.
    pub(crate) fn server_config(&self, alpn: &[&str]) -> Arc<ServerConfig> {
        serving(Arc::new(SingleCertAndKey::from(self.certified())), alpn).into()
    }

    fn certified(&self) -> CertifiedKey {
        let chain = CertificateDer::pem_slice_iter(self.certificate_pem.as_bytes());
        let chain = chain.map(|one| one.expect("PEM")).collect();
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("PEM");
        let key = provider().key_provider.load_private_key(key).expect("a usable key");
        CertifiedKey::new(chain, key)
    }
}

fn serving(certificate: Arc<dyn ResolvesServerCert>, alpn: &[&str]) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the default versions")
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    config
}

/// The certificate of a server that gets another one while it runs.
#[derive(Debug)]
pub(crate) struct Rotation(Mutex<Arc<CertifiedKey>>);

impl Rotation {
    /// Begins with this one.
    pub(crate) fn new(leaf: &Leaf) -> Arc<Self> {
        Arc::new(Self(Mutex::new(leaf.certified().into())))
    }

    /// Shows this one from now on.
    pub(crate) fn turn_to(&self, leaf: &Leaf) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = leaf.certified().into();
    }

    /// A TLS server that shows whatever the certificate is. It gives no tickets: a session that is resumed shows none.
    pub(crate) fn server_config(self: &Arc<Self>) -> Arc<ServerConfig> {
        let resolver: Arc<Self> = Arc::clone(self);
        let mut config = serving(resolver, &["http/1.1"]);
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Arc::new(config)
    }
}

/// Makes it a client's certificate.
fn client(params: &mut CertificateParams, name: &str) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let name_of_kind = if name.contains("://") {
        SanType::URI(name.try_into().expect("a URI"))
    } else {
        SanType::DnsName(name.try_into().expect("a name"))
    };
    params.subject_alt_names = vec![name_of_kind];
}

fn expired(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 1);
}

impl ResolvesServerCert for Rotation {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
