//! Compiles `listeners.api.tls`: the certificate that callers see, and whose certificates it takes.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

use crate::config::context::{Context, SecretProblem, Source};
use crate::config::given::{Given, OneOf};
use crate::config::listening::{ClientCertificates, Serving, ServingTls};
use crate::config::raw::RawServing;
use crate::config::raw_auth::{RawAuth, RawNoAuth};
use crate::config::raw_tool::RawReference;
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;
use crate::policy::peer_name::NamePattern;

/// `auth` as it is written.
type Auth = Given<OneOf<RawNoAuth, RawAuth>>;

/// Whether clients are asked for a certificate.
pub fn asks_for_certificates(given: &Given<RawServing>) -> bool {
    given.get().is_some_and(|raw| raw.client_ca.node().is_some())
}

/// Compiles the section; `auth` says whether there are other ways than a certificate.
pub fn compile(context: &Context<'_>, given: Option<&Given<RawServing>>, auth: &Auth) -> Serving {
    let Some((raw, node)) = given.and_then(Given::found) else { return Serving::Plain };
    let mut reader = Reader { context, lacking: None, hash: Sha256::new() };
    let certificate = reader.required(node, "cert", &raw.cert);
    let chain = certificate.and_then(|file| file.certificates(context));
    let key = reader.required(node, "key", &raw.key);
    let key = key.and_then(|file| Some((file.key(context)?, file)));
    let identity = chain.zip(key).and_then(|(chain, (key, file))| {
        let identity = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let wrong = |error: rustls::Error| {
            let message = match error {
                rustls::Error::InconsistentKeys(_) => "holds the key of another certificate".into(),
                error => format!("cannot be used: {error}"),
            };
            context.report.error(file.node, format!("{} {message}", file.source));
        };
        identity.map_err(wrong).ok()
    });
    let names = client_names(context, raw);
    let others = has_other_ways(auth);
    let authorities = raw.client_ca.found().and_then(|(reference, node)| {
        let file = reader.read(node, reference)?;
        file.authorities(context)
    });
    if let Some(node) = raw.client_ca.node()
        && raw.client_names.node().is_none()
        && others
        && !names_certificates(auth)
    {
        let message =
            "asks for certificates that make nobody a caller, write `client_names` or `auth.certs`";
        context.report.warn(node, message);
    }
    let required = raw.client_names.node().is_some() || !others;
    reader.hash.update(format!("{names:?} {required}"));
    if let Some(reason) = reader.lacking {
        return Serving::Lacking(reason);
    }
    // What is not there is reported, and nothing is served by it.
    let Some(identity) = identity else { return Serving::Plain };
    let clients =
        authorities.map(|authorities| ClientCertificates { authorities, names, required });
    let digest = reader.hash.finalize().into();
    Serving::Tls(ServingTls { identity: Arc::new(identity), clients, digest })
}

fn client_names(context: &Context<'_>, raw: &RawServing) -> Vec<NamePattern> {
    let Some((list, node)) = raw.client_names.found() else { return Vec::new() };
    if raw.client_ca.node().is_none() {
        let message = "needs `client_ca` beside it, no client is asked for a certificate";
        context.report.error(node, message);
    }
    if list.is_empty() {
        context.report.error(node, "is empty, name one or leave it out for all");
    }
    let patterns = list.iter().filter_map(Given::found).filter_map(|(text, node)| {
        let pattern = NamePattern::parse(text);
        pattern.map_err(|error| context.report.error(node, error.to_string())).ok()
    });
    patterns.collect()
}

/// Whether somebody may call without a certificate.
fn has_other_ways(auth: &Auth) -> bool {
    match auth.get() {
        Some(OneOf::Long(raw)) => [raw.keys.node(), raw.jwt.node()].iter().any(Option::is_some),
        Some(OneOf::Short(RawNoAuth::None)) | None => false,
    }
}

fn names_certificates(auth: &Auth) -> bool {
    matches!(auth.get(), Some(OneOf::Long(raw)) if raw.certs.node().is_some())
}

/// Reads the files. One that cannot be read is a warning as every secret is, and the listener does not serve without it.
struct Reader<'c> {
    context: &'c Context<'c>,
    lacking: Option<String>,
    hash: Sha256,
}

/// What a file holds.
struct PemFile {
    node: NodeId,
    source: Source,
    text: Secret,
}

impl Reader<'_> {
    fn required(&mut self, map: NodeId, key: &str, given: &Given<RawReference>) -> Option<PemFile> {
        let (raw, node) = self.context.required(map, key, given, "write {file: PATH}")?;
        self.read(node, raw)
    }

    fn read(&mut self, node: NodeId, raw: &RawReference) -> Option<PemFile> {
        let source = self.context.source(node, &raw.file, &raw.env)?;
        match self.context.secret(node, &source) {
            Ok(text) => {
                self.hash.update(text.len().to_be_bytes());
                self.hash.update(text.expose());
                Some(PemFile { node, source, text })
            }
            Err(SecretProblem::Reported) => None,
            Err(SecretProblem::Lookup(error)) => {
                let consequence = "the api listener does not serve without it";
                self.context.unreadable(node, &source, &error, consequence);
                self.lacking.get_or_insert_with(|| format!("{source} {error}"));
                None
            }
        }
    }
}

impl PemFile {
    fn error(&self, context: &Context<'_>, message: &str) {
        context.report.error(self.node, format!("{} {message}", self.source));
    }

    fn certificates(&self, context: &Context<'_>) -> Option<Vec<CertificateDer<'static>>> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.expose()).collect();
        let chain = read.ok().filter(|chain| !chain.is_empty());
        if chain.is_none() {
            self.error(context, "holds no PEM certificate");
        }
        chain
    }

    fn key(&self, context: &Context<'_>) -> Option<PrivateKeyDer<'static>> {
        let key = PrivateKeyDer::from_pem_slice(self.text.expose()).ok();
        if key.is_none() {
            self.error(context, "holds no private key as PEM (PKCS#8, PKCS#1 or SEC1)");
        }
        key
    }

    fn authorities(&self, context: &Context<'_>) -> Option<Arc<RootCertStore>> {
        let mut store = RootCertStore::empty();
        for certificate in self.certificates(context)? {
            if let Err(error) = store.add(certificate) {
                self.error(context, &format!("holds what is no authority's certificate: {error}"));
                return None;
            }
        }
        Some(Arc::new(store))
    }
}
