//! A JSON Web Token in the compact form (RFC 7519, RFC 7515): nothing of it is believed before a key has verified it.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::model::json;
use crate::policy::jwk::{Algorithm, KeySet};

/// Longer tokens are not taken.
pub const MAX_BYTES: usize = 16 << 10;

/// A token as it was presented.
#[derive(Debug)]
pub struct Token<'t> {
    algorithm: Algorithm,
    key_id: Option<String>,
    signed: &'t [u8],
    signature: Vec<u8>,
    claims: Value,
}

/// What a token says. Only a token that a key has verified gives it away.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'t>(&'t Value);

/// Why a token is not taken; for whoever presents it, so nothing of the token or of the configuration is repeated but the
/// name of a claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// An algorithm that is not taken here, `none` and the symmetric ones among them.
    #[error("its algorithm is not taken here")]
    Algorithm,
    /// `aud` names others.
    #[error("it is meant for somebody else")]
    Audience,
    /// A claim that is needed is not there, or not of the right kind.
    #[error("its claim `{0}` is missing or cannot be used")]
    Claim(String),
    /// `exp` has passed.
    #[error("it has expired")]
    Expired,
    /// `iss` is nobody's here.
    #[error("its issuer is not known here")]
    Issuer,
    /// No key of the issuer has its `kid`, or none fits its algorithm.
    #[error("the key that signed it is not known")]
    Key,
    /// Its issuer's keys are not there.
    #[error("the keys of its issuer cannot be had now")]
    KeysUnavailable,
    /// Not three parts, not base64url, not JSON, a key twice, too long, or a header that asks for what is not known.
    #[error("it is not a signed token of three parts")]
    Malformed,
    /// Several keys fit, and it names none.
    #[error("it does not name the key that signed it")]
    NoKeyId,
    /// `nbf` is to come.
    #[error("it is not valid yet")]
    NotYet,
    /// The signature is another's.
    #[error("its signature is wrong")]
    Signature,
}

impl<'t> Token<'t> {
    /// Whether a bearer value has the form of a token: three parts.
    pub fn has_its_form(text: &[u8]) -> bool {
        text.iter().filter(|byte| **byte == b'.').count() == 2
    }

    /// Reads a token without believing it.
    pub fn parse(text: &'t [u8]) -> Result<Self, TokenError> {
        if text.len() > MAX_BYTES {
            return Err(TokenError::Malformed);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed);
        };
        let signed = text.get(..header.len() + 1 + claims.len()).ok_or(TokenError::Malformed)?;
        let (header, claims) = (object(header)?, object(claims)?);
        // What the header says is critical must be known, and nothing of it is (RFC 7515, section 4.1.11).
        if header.get("crit").is_some() {
            return Err(TokenError::Malformed);
        }
        let algorithm = header.get("alg").and_then(Value::as_str).ok_or(TokenError::Malformed)?;
        let algorithm = Algorithm::parse(algorithm).ok_or(TokenError::Algorithm)?;
        let key_id = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str().ok_or(TokenError::Malformed)?.to_owned()),
        };
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        Ok(Self { algorithm, key_id, signed, signature, claims })
    }

    /// Whose it claims to be: good for finding the keys, and for nothing else.
    pub fn claimed_issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// What it says, where one of these keys signed it.
    pub fn verify(&self, keys: &KeySet) -> Result<Claims<'_>, TokenError> {
        let mut candidates = keys.candidates(self.key_id.as_deref(), self.algorithm).peekable();
        if candidates.peek().is_none() {
            return Err(TokenError::Key);
        }
        // Without a name only one key may be meant: a token must not make us try all of them.
        if self.key_id.is_none() && keys.candidates(None, self.algorithm).nth(1).is_some() {
            return Err(TokenError::NoKeyId);
        }
        let mut signed =
            candidates.map(|key| key.signed(self.algorithm, self.signed, &self.signature));
        if signed.any(|signed| signed) {
            Ok(Claims(&self.claims))
        } else {
            Err(TokenError::Signature)
        }
    }
}

impl<'t> Claims<'t> {
    /// The claim of that name; a name that begins with `/` is a JSON pointer.
    pub fn find(self, name: &str) -> Option<&'t Value> {
        if name.starts_with('/') { self.0.pointer(name) } else { self.0.get(name) }
    }

    /// A claim that is a text or a list of texts.
    pub fn texts(self, name: &str) -> Option<Vec<&'t str>> {
        match self.find(name)? {
            Value::String(text) => Some(vec![text]),
            Value::Array(list) => list.iter().map(Value::as_str).collect(),
            _ => None,
        }
    }

    /// A claim that is a list of texts, or one text with spaces between its words (as `scope` of RFC 8693 is).
    pub fn words(self, name: &str) -> Vec<&'t str> {
        match self.find(name) {
            Some(Value::String(text)) => text.split_ascii_whitespace().collect(),
            _ => self.texts(name).unwrap_or_default(),
        }
    }

    /// A time in Unix seconds; a part of a second counts as none (RFC 7519, section 2).
    pub fn seconds(self, name: &str) -> Option<i64> {
        let number = self.find(name)?.as_number()?;
        let broken =
            || Duration::try_from_secs_f64(number.as_f64()?).ok()?.as_secs().try_into().ok();
        number.as_i64().or_else(broken)
    }
}

fn object(part: &[u8]) -> Result<Value, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| TokenError::Malformed)?;
    let value = json::read_value(text).map_err(|_| TokenError::Malformed)?;
    if value.is_object() { Ok(value) } else { Err(TokenError::Malformed) }
}

#[cfg(test)]
mod tests;
