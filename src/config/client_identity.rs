//! A client certificate: PEM texts to a chain and a key that belong together.

use std::fmt;
use std::sync::Arc;

use rustls::Error;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};

use crate::model::id::hex;
use crate::model::secret::Secret;

/// A certificate that Sortie can show, with its key.
pub struct ClientIdentity {
    certified: Arc<CertifiedKey>,
    digest: [u8; 32],
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientIdentity({})", hex(&self.digest))
    }
}

/// Why two texts are no client certificate. Never says what stands in them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The chain cannot be read.
    #[error("is not a list of PEM certificates: {message}")]
    Chain {
        /// What is wrong.
        message: String,
    },
    /// The key is locked with a passphrase.
    #[error("is encrypted; write the key without a passphrase and keep it by the file's mode")]
    Encrypted,
    /// The key cannot be read.
    #[error("is not a PEM private key (PKCS#8, PKCS#1 or SEC1): {message}")]
    Key {
        /// What is wrong.
        message: String,
    },
    /// Each is good alone.
    #[error("is not the key of the first certificate of `chain`")]
    Mismatch,
}

impl ClientIdentity {
    /// Reads both texts and compares the key with the first certificate.
    pub fn read(chain: &Secret, key: &Secret) -> Result<Self, IdentityError> {
        let bad_chain = |message: String| IdentityError::Chain { message };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.expose())
            .collect::<Result<_, _>>()
            .map_err(|error| bad_chain(error.to_string()))?;
        if chain.is_empty() {
            return Err(bad_chain("it holds no certificate".into()));
        }
        let key = PrivateKeyDer::from_pem_slice(key.expose()).map_err(|error| {
            let locked = key.expose().windows(9).any(|window| window == b"ENCRYPTED");
            let message = error.to_string();
            if locked { IdentityError::Encrypted } else { IdentityError::Key { message } }
        })?;
        let mut hash = Sha256::new();
        chain.iter().for_each(|certificate| hash.update(certificate));
        let certified = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider());
        let certified = certified.map_err(|error| match error {
            Error::InconsistentKeys(_) => IdentityError::Mismatch,
            Error::InvalidCertificate(_) => bad_chain("the first certificate is malformed".into()),
            _ => IdentityError::Key { message: "this kind of key is not known".into() },
        })?;
        Ok(Self { certified: Arc::new(certified), digest: hash.finalize().into() })
    }

    /// Chain and key, for a handshake.
    pub fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }

    /// Tells two identities apart: the SHA-256 of the chain, whose first certificate holds the key's public half.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};

    use super::*;

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["client.example".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn read(chain: &str, key: &str) -> Result<ClientIdentity, IdentityError> {
        ClientIdentity::read(&Secret::new(chain), &Secret::new(key))
    }

    #[test]
    fn a_chain_and_its_key_are_an_identity() {
        let (chain, key) = pair();
        let one = read(&chain, &key).unwrap();
        let (other, other_key) = pair();
        assert_ne!(one.digest(), read(&other, &other_key).unwrap().digest());
        let longer = read(&format!("{chain}{other}"), &key).unwrap();
        assert_eq!(longer.certified().cert.len(), 2);
        assert_ne!(one.digest(), longer.digest());
        assert!(!format!("{one:?}").contains("KEY"));
    }

    #[test]
    fn both_may_stand_in_one_text() {
        let (chain, key) = pair();
        let both = format!("{key}{chain}");
        assert!(read(&both, &both).is_ok());
    }

    /// The first value at the beginning of DER, and what follows it.
    fn value(der: &[u8]) -> (&[u8], &[u8]) {
        let (length, rest) = match der[1] {
            short @ ..0x80 => (usize::from(short), &der[2..]),
            long => {
                let (length, rest) = der[2..].split_at(usize::from(long & 0x7f));
                (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
            }
        };
        rest.split_at(length)
    }

    #[test]
    fn the_older_forms_of_a_key_are_read_too() {
        for (algorithm, label) in
            [(&PKCS_ECDSA_P256_SHA256, "EC PRIVATE KEY"), (&PKCS_RSA_SHA256, "RSA PRIVATE KEY")]
        {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let chain = CertificateParams::default().self_signed(&key).unwrap().pem();
            // PKCS#8 is a version, an algorithm, and the older form in an OCTET STRING.
            let der = key.serialize_der();
            let (_, rest) = value(value(&der).0);
            let older = STANDARD.encode(value(value(rest).1).0);
            let pem = format!("-----BEGIN {label}-----\n{older}\n-----END {label}-----\n");
            assert!(read(&chain, &pem).is_ok(), "{label}");
        }
    }

    #[track_caller]
    fn check(chain: &str, key: &str, expected: &str) {
        let error = read(chain, key).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_is_no_identity_says_why() {
        let (chain, key) = pair();
        check("", &key, "no certificate");
        check("text", &key, "no certificate");
        check("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", &key, "not a list");
        check(&chain, "", "not a PEM private key");
        check(&chain, &chain, "not a PEM private key");
        let locked =
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        check(&chain, locked, "is encrypted");
        let odd = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        check(&chain, odd, "this kind of key");
        check(&chain, &pair().1, "not the key of the first certificate");
        check("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "malformed");
    }
}
