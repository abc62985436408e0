//! An issuer of tokens: its key, its key set, and what it signs.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Who signs, in `iss`.
pub(crate) const ISSUER: &str = "https://idp.example.com/";
/// Whom a good token is for, in `aud`.
pub(crate) const AUDIENCE: &str = "https://sortie.example.com";

/// The time, as claims have it.
pub(crate) fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("a time of this age")
}

/// Base64url without padding.
pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The two first parts of a token.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64url(header.to_string()), base64url(claims.to_string()))
}

/// The claims of a good token with some changed; null removes one.
pub(crate) fn claims(changes: Value) -> Value {
    let now = unix_seconds();
    let mut claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "runtime-7",
        "iat": now, "exp": now + 600, "scope": "agent:call",
    });
    let fields = claims.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    claims
}

/// One key of an issuer.
pub(crate) struct Signer {
    key: EcdsaKeyPair,
    id: String,
}

impl Signer {
    pub(crate) fn new(id: &str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self { key, id: id.to_owned() }
    }

    /// The public key, for a set.
    pub(crate) fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = (base64url(&point[1..33]), base64url(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": x, "y": y})
    }

    /// A set of this key alone.
    pub(crate) fn set(&self) -> String {
        json!({"keys": [self.jwk()]}).to_string()
    }

    /// Signs any header and claims.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", base64url(signature))
    }

    /// A good token with some claims changed.
    pub(crate) fn token(&self, changes: Value) -> String {
        self.sign(&json!({"alg": "ES256", "typ": "JWT", "kid": self.id}), &claims(changes))
    }
}
