//! A set of public keys (RFC 7517): which of them may verify what, and whether one did sign it.

use std::fmt;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::model::json;

/// Larger sets are not read.
pub const MAX_BYTES: usize = 64 << 10;
/// Sets of more keys are not taken.
pub const MAX_KEYS: usize = 64;

/// A signature algorithm (RFC 7518, section 3.1, and RFC 8037). Those that need a shared secret, and `none`, do not exist
/// here, so that no token can choose them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Ed25519.
    EdDsa,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// RSA-PSS with SHA-384.
    Ps384,
    /// RSA-PSS with SHA-512.
    Ps512,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    Rs384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    Rs512,
}

impl Algorithm {
    /// The algorithm of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "EdDSA" | "Ed25519" => Self::EdDsa,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            _ => return None,
        })
    }
}

/// One public key that can verify.
#[derive(Debug, Clone)]
pub struct PublicKey {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Ed25519(Vec<u8>),
    P256(Vec<u8>),
    P384(Vec<u8>),
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ed25519(_) => "Ed25519",
            Self::P256(_) => "P-256",
            Self::P384(_) => "P-384",
            Self::Rsa(_) => "RSA",
        })
    }
}

impl PublicKey {
    /// Whether it may verify by this algorithm: its kind decides, never the token alone.
    pub fn fits(&self, algorithm: Algorithm) -> bool {
        let kind = match (&self.material, algorithm) {
            (Material::Ed25519(_), Algorithm::EdDsa)
            | (Material::P256(_), Algorithm::Es256)
            | (Material::P384(_), Algorithm::Es384) => true,
            (Material::Rsa(_), algorithm) => rsa(algorithm).is_some(),
            (Material::Ed25519(_) | Material::P256(_) | Material::P384(_), _) => false,
        };
        kind && self.algorithm.is_none_or(|own| own == algorithm)
    }

    /// Whether it signed these bytes.
    pub fn signed(&self, algorithm: Algorithm, bytes: &[u8], signature: &[u8]) -> bool {
        let by = |how: &'static dyn VerificationAlgorithm, key: &[u8]| {
            how_verifies(how, key, bytes, signature)
        };
        self.fits(algorithm)
            && match &self.material {
                Material::Ed25519(key) => by(&ED25519, key),
                Material::P256(point) => by(&ECDSA_P256_SHA256_FIXED, point),
                Material::P384(point) => by(&ECDSA_P384_SHA384_FIXED, point),
                Material::Rsa(key) => rsa(algorithm)
                    .is_some_and(|parameters| key.verify(parameters, bytes, signature).is_ok()),
            }
    }
}

fn how_verifies(
    how: &'static dyn VerificationAlgorithm,
    key: &[u8],
    bytes: &[u8],
    signature: &[u8],
) -> bool {
    UnparsedPublicKey::new(how, key).verify(bytes, signature).is_ok()
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        Algorithm::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
        Algorithm::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
        Algorithm::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
        Algorithm::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::EdDsa | Algorithm::Es256 | Algorithm::Es384 => None,
    }
}

/// The keys of one issuer: at least one.
#[derive(Debug, Clone)]
pub struct KeySet(Vec<PublicKey>);

/// A text that is no set of keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// More keys than are taken.
    #[error("holds more than {MAX_KEYS} keys")]
    Many,
    /// No key can verify a token.
    #[error(
        "holds no key that can verify a token (RSA from 2048 bits, P-256, P-384 or Ed25519, with `use` sig or none)"
    )]
    NoKey,
    /// Not the JSON of a set.
    #[error("is not a JSON Web Key Set, an object with the list `keys`")]
    NotASet,
    /// It tells a secret.
    #[error("holds a private key, write the public set")]
    Private,
    /// Longer than it may be.
    #[error("is larger than 64 KiB")]
    TooLarge,
}

impl KeySet {
    /// Reads a set. Keys for something else are left out; a private key spoils all of it.
    pub fn parse(text: &[u8]) -> Result<Self, KeySetError> {
        if text.len() > MAX_BYTES {
            return Err(KeySetError::TooLarge);
        }
        let text = std::str::from_utf8(text).map_err(|_| KeySetError::NotASet)?;
        let set = json::read_value(text).map_err(|_| KeySetError::NotASet)?;
        let keys = set.get("keys").and_then(Value::as_array).ok_or(KeySetError::NotASet)?;
        if keys.len() > MAX_KEYS {
            return Err(KeySetError::Many);
        }
        let secret = |key: &Value| ["d", "k"].iter().any(|part| key.get(part).is_some());
        if keys.iter().any(secret) {
            return Err(KeySetError::Private);
        }
        let keys: Vec<_> = keys.iter().filter_map(public_key).collect();
        if keys.is_empty() { Err(KeySetError::NoKey) } else { Ok(Self(keys)) }
    }

    /// The keys that may have signed by this algorithm under this id; without an id all that fit.
    pub fn candidates<'s>(
        &'s self,
        id: Option<&'s str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &'s PublicKey> {
        let named = move |key: &&PublicKey| id.is_none() || key.id.as_deref() == id;
        self.0.iter().filter(named).filter(move |key| key.fits(algorithm))
    }
}

fn public_key(key: &Value) -> Option<PublicKey> {
    let text = |name: &str| key.get(name).and_then(Value::as_str);
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
    if text("use").is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    if let Some(purposes) = key.get("key_ops").and_then(Value::as_array)
        && !purposes.iter().any(|one| one == "verify")
    {
        return None;
    }
    let algorithm = match text("alg") {
        None => None,
        Some(name) => Some(Algorithm::parse(name)?),
    };
    let point = |size: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        // An uncompressed point (SEC 1, section 2.3.3).
        (x.len() == size && y.len() == size).then(|| [&[4], &*x, &*y].concat())
    };
    let material = match (text("kty")?, text("crv")) {
        ("RSA", _) => {
            let (n, e) = (bytes("n")?, bytes("e")?);
            let n: Vec<u8> = n.into_iter().skip_while(|byte| *byte == 0).collect();
            let large = (256..=1024).contains(&n.len());
            large.then_some(Material::Rsa(RsaPublicKeyComponents { n, e }))?
        }
        ("EC", Some("P-256")) => Material::P256(point(32)?),
        ("EC", Some("P-384")) => Material::P384(point(48)?),
        ("OKP", Some("Ed25519")) => Material::Ed25519(bytes("x").filter(|key| key.len() == 32)?),
        _ => return None,
    };
    Some(PublicKey { id: text("kid").map(str::to_owned), algorithm, material })
}

#[cfg(test)]
mod tests;
