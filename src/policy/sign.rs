//! Signatures: what is signed, with which key, and how the header value is written and checked.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use schemars::JsonSchema;
use serde::Deserialize;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::model::id::{CallId, hex};
use crate::model::secret::Secret;

/// The mark before the base64 text of a key.
const BASE64_KEY_PREFIX: &[u8] = b"whsec_";

/// Standard Webhooks: a decoded key has 24 to 64 bytes. A text key below this is only warned about.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A tool's new key and the one that it replaces.
const MOST_KEYS: usize = 2;

/// How a secret's text becomes the HMAC key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyEncoding {
    /// Base64; a `whsec_` before it is taken off.
    Base64,
    /// The text is the key, as it is.
    Text,
}

/// How a digest is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DigestText {
    /// Base64 with padding.
    Base64,
    /// Lower-case hex.
    Hex,
}

/// How a profile signs: HMAC-SHA256 over a text that ends with the body. Only a checked `SchemeText` makes one.
#[derive(Debug, Clone)]
pub struct SignatureScheme {
    pub(in crate::policy) signed: Vec<SignedPart>,
    pub(in crate::policy) key: KeyEncoding,
    pub(in crate::policy) digest: DigestText,
    /// The parts of the header value; the one with the digest stands once per key.
    pub(in crate::policy) entries: Vec<Entry>,
    /// What stands between the parts; without it there is one part and one key.
    pub(in crate::policy) separator: Option<String>,
}

/// One part of the signed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::policy) enum SignedPart {
    Body,
    Id,
    Text(String),
    Time,
}

/// One part of the header value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::policy) struct Entry {
    pub(in crate::policy) before: String,
    pub(in crate::policy) slot: Option<EntrySlot>,
    pub(in crate::policy) after: String,
}

/// What a part of the header value holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::policy) enum EntrySlot {
    Digest,
    Time,
}

/// A tool's signing keys in the order in which their signatures are sent, each with its HMAC state prepared.
///
/// Empty where the profile does not sign. `Debug` shows only how many there are, and the states are wiped on drop.
#[derive(Clone, Default)]
pub struct SigningKeys(Vec<Hmac<Sha256>>);

/// A message id that can be signed: letters, digits, `_` and `-`, so that no separator can hide in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageId<'a>(&'a str);

/// What a tool's server received.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The signature header's value.
    pub value: &'a str,
    /// The value of the time's own header, for schemes whose signature does not hold the time.
    pub timestamp: Option<&'a str>,
    /// The message id, for schemes that sign it.
    pub id: Option<&'a str>,
    /// The raw body.
    pub body: &'a [u8],
}

/// Why a secret cannot be a signing key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// White space that somebody did not mean.
    #[error("the secret begins or ends with white space; write it without")]
    EdgeWhiteSpace,
    /// Nothing in it.
    #[error("the secret is empty")]
    Empty,
    /// A decoded key of the wrong size.
    #[error("the decoded secret has {bytes} bytes; it must have 24 to 64")]
    Length {
        /// Its size.
        bytes: usize,
    },
    /// Not base64.
    #[error("the secret must be `whsec_` and standard base64 with padding")]
    NotBase64,
    /// More keys than the header can hold.
    #[error("{given} secrets were given, and this signature holds {most}")]
    TooMany {
        /// How many were given.
        given: usize,
        /// How many fit.
        most: usize,
    },
}

/// A secret that works and is shorter than it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret has {bytes} bytes; use at least 24")]
pub struct KeyWarning {
    /// Its size.
    pub bytes: usize,
}

/// A text that cannot be a message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a message id is 1 to 256 letters, digits, `_` and `-`")]
pub struct MessageIdError;

/// Why a signature does not verify.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The time is no plain number, or stands there twice.
    #[error("the time must stand there once, as plain decimal seconds")]
    BadTime,
    /// The id cannot have been signed.
    #[error(transparent)]
    MessageId(#[from] MessageIdError),
    /// No signature is the right one.
    #[error("no signature matches the body, the time and the secret")]
    Mismatch,
    /// The id is signed and was not given.
    #[error("the message id is missing, and it is signed")]
    NoMessageId,
    /// Nothing to check.
    #[error("the value holds no signature of this scheme")]
    NoSignature,
    /// The time is signed and was not given.
    #[error("the time is missing, and it is signed")]
    NoTime,
    /// The signature is right, and too old or too new.
    #[error(
        "the signature is right, but its time is {off_seconds} s off; at most {tolerance_seconds} s are allowed"
    )]
    Stale {
        /// How far the time is from now.
        off_seconds: u64,
        /// How far it may be.
        tolerance_seconds: u64,
    },
}

impl SignatureScheme {
    /// Says whether the secret can be a key of this scheme, and whether it is a short one.
    pub fn accept_key(&self, secret: &Secret) -> Result<Option<KeyWarning>, KeyError> {
        let bytes = self.key_bytes(secret)?.len();
        Ok((bytes < *KEY_BYTES.start()).then_some(KeyWarning { bytes }))
    }

    /// Prepares a tool's keys; their signatures are sent in this order.
    pub fn prepare(&self, secrets: &[Secret]) -> Result<SigningKeys, KeyError> {
        let most = if self.separator.is_some() { MOST_KEYS } else { 1 };
        if secrets.len() > most {
            return Err(KeyError::TooMany { given: secrets.len(), most });
        }
        let prepared = secrets.iter().map(|secret| {
            let key = self.key_bytes(secret)?;
            Ok(Hmac::new_from_slice(&key).expect("HMAC takes a key of any length"))
        });
        Ok(SigningKeys(prepared.collect::<Result<_, _>>()?))
    }

    /// The signature header's value at the Unix second `t`.
    pub fn header_value(
        &self,
        keys: &SigningKeys,
        t: i64,
        id: MessageId<'_>,
        body: &[u8],
    ) -> String {
        self.write(keys, &plain_seconds(t), id.0, body)
    }

    /// Checks what was received as a tool's server should: any signature that matches will do, unknown parts are
    /// ignored, the time is a plain number and no more than `tolerance_seconds` from `now` on either side.
    pub fn verify(
        &self,
        keys: &SigningKeys,
        received: &Received<'_>,
        now: i64,
        tolerance_seconds: u64,
    ) -> Result<(), VerifyError> {
        let (value_time, digests) = self.read(received.value)?;
        if digests.is_empty() {
            return Err(VerifyError::NoSignature);
        }
        let time = if !self.signs_time() {
            None
        } else {
            let text = if self.shows_time() { value_time } else { received.timestamp };
            let text = text.ok_or(VerifyError::NoTime)?;
            Some((text, parse_plain_seconds(text).ok_or(VerifyError::BadTime)?))
        };
        let id = match received.id {
            _ if !self.signs_id() => "",
            Some(id) => MessageId::parse(id)?.0,
            None => return Err(VerifyError::NoMessageId),
        };
        let time_text = time.map_or("", |(text, _)| text);
        let matches = keys.0.iter().any(|key| {
            let mac = self.mac(key, time_text, id, received.body);
            digests.iter().any(|digest| mac.clone().verify_slice(digest).is_ok())
        });
        if !matches {
            return Err(VerifyError::Mismatch);
        }
        match time.map(|(_, seconds)| now.abs_diff(seconds)) {
            Some(off_seconds) if off_seconds > tolerance_seconds => {
                Err(VerifyError::Stale { off_seconds, tolerance_seconds })
            }
            _ => Ok(()),
        }
    }

    /// Whether the time is part of what is signed.
    pub fn signs_time(&self) -> bool {
        self.signed.contains(&SignedPart::Time)
    }

    /// Whether the message id is part of what is signed.
    pub fn signs_id(&self) -> bool {
        self.signed.contains(&SignedPart::Id)
    }

    /// Whether the signature header holds the time; where it does not, the time has a header of its own.
    pub fn shows_time(&self) -> bool {
        self.entries.iter().any(|entry| entry.slot == Some(EntrySlot::Time))
    }

    pub(in crate::policy) fn write(
        &self,
        keys: &SigningKeys,
        t: &str,
        id: &str,
        body: &[u8],
    ) -> String {
        let separator = self.separator.as_deref().unwrap_or_default();
        let mut text = String::with_capacity(32 + 72 * keys.0.len());
        let open = |text: &mut String, entry: &Entry| {
            if !text.is_empty() {
                text.push_str(separator);
            }
            text.push_str(&entry.before);
        };
        for entry in &self.entries {
            match entry.slot {
                None => {
                    open(&mut text, entry);
                    text.push_str(&entry.after);
                }
                Some(EntrySlot::Time) => {
                    open(&mut text, entry);
                    text.push_str(t);
                    text.push_str(&entry.after);
                }
                Some(EntrySlot::Digest) => {
                    for key in &keys.0 {
                        open(&mut text, entry);
                        let digest = self.mac(key, t, id, body).finalize().into_bytes();
                        match self.digest {
                            DigestText::Base64 => STANDARD.encode_string(digest, &mut text),
                            DigestText::Hex => text.push_str(&hex(&digest)),
                        }
                        text.push_str(&entry.after);
                    }
                }
            }
        }
        text
    }

    fn mac(&self, key: &Hmac<Sha256>, t: &str, id: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = key.clone();
        for part in &self.signed {
            mac.update(match part {
                SignedPart::Body => body,
                SignedPart::Id => id.as_bytes(),
                SignedPart::Text(text) => text.as_bytes(),
                SignedPart::Time => t.as_bytes(),
            });
        }
        mac
    }

    /// The time and the digests of a received value. A part that is not ours, or whose digest is not written as we
    /// write it, is ignored.
    fn read<'a>(&self, value: &'a str) -> Result<(Option<&'a str>, Vec<Vec<u8>>), VerifyError> {
        let parts: Vec<&str> = match &self.separator {
            Some(separator) => value.split(separator.as_str()).collect(),
            None => vec![value],
        };
        let mut time = None;
        let mut digests = Vec::new();
        for part in parts {
            for entry in &self.entries {
                let inner = part
                    .strip_prefix(&*entry.before)
                    .and_then(|rest| rest.strip_suffix(&*entry.after));
                match (entry.slot, inner) {
                    (Some(EntrySlot::Digest), Some(text)) => digests.extend(self.decode(text)),
                    (Some(EntrySlot::Time), Some(text)) => {
                        if time.replace(text).is_some() {
                            return Err(VerifyError::BadTime);
                        }
                    }
                    (None, _) | (_, None) => {}
                }
            }
        }
        Ok((time, digests))
    }

    fn decode(&self, text: &str) -> Option<Vec<u8>> {
        match self.digest {
            DigestText::Base64 => STANDARD.decode(text).ok(),
            DigestText::Hex => decode_lower_hex(text),
        }
    }

    fn key_bytes(&self, secret: &Secret) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let text = secret.expose();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if has_white_edge(text) {
            return Err(KeyError::EdgeWhiteSpace);
        }
        match self.key {
            KeyEncoding::Text => Ok(Zeroizing::new(text.to_vec())),
            KeyEncoding::Base64 => {
                let text = text.strip_prefix(BASE64_KEY_PREFIX).unwrap_or(text);
                let key = Zeroizing::new(STANDARD.decode(text).map_err(|_| KeyError::NotBase64)?);
                if KEY_BYTES.contains(&key.len()) {
                    Ok(key)
                } else {
                    Err(KeyError::Length { bytes: key.len() })
                }
            }
        }
    }
}

impl SigningKeys {
    /// How many keys sign.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKeys({})", self.len())
    }
}

impl<'a> MessageId<'a> {
    /// Takes 1 to 256 letters, digits, `_` and `-`.
    pub fn parse(text: &'a str) -> Result<Self, MessageIdError> {
        let fits = (1..=256).contains(&text.len()) && text.bytes().all(is_id_byte);
        if fits { Ok(Self(text)) } else { Err(MessageIdError) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &'a str {
        self.0
    }
}

impl<'a> From<&'a CallId> for MessageId<'a> {
    fn from(id: &'a CallId) -> Self {
        Self(id.as_str())
    }
}

/// The bytes of a message id and of a time, which the text between two signed slots must not begin with.
pub(in crate::policy) fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Unix seconds as receivers hash them: no sign.
pub(in crate::policy) fn plain_seconds(t: i64) -> String {
    t.max(0).to_string()
}

/// Receivers read the integer and write it again before they hash, so anything but its plain form is refused.
fn parse_plain_seconds(text: &str) -> Option<i64> {
    let plain = text == "0" || (text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn decode_lower_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

/// White space as an editor sees it, where the secret is text.
fn has_white_edge(secret: &[u8]) -> bool {
    match std::str::from_utf8(secret) {
        Ok(text) => text.trim().len() != text.len(),
        Err(_) => secret.trim_ascii().len() != secret.len(),
    }
}

#[cfg(test)]
mod tests;
