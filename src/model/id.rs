//! Names and ids that cannot be malformed.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The organisation that everything belongs to while the configuration names no other.
pub const DEFAULT_ORGANISATION: &str = "default";

/// Why a text is not the id or name that it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not an approval's id.
    #[error("an approval's id is `ap_` and 16 letters and digits")]
    ApprovalId,
    /// Not a call id.
    #[error("a call id is `call_` and 4 to 64 letters and digits")]
    CallId,
    /// Not a run id or a step.
    #[error("must be 1 to 128 visible ASCII characters")]
    Token,
    /// Not a tool name in any profile.
    #[error("a tool name is 1 to 64 of a-z, 0-9, `_` and `.`, and starts with a letter")]
    ToolName,
}

/// A tool's name: the union of what the profiles take; a profile's own pattern is checked where a tool is defined.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ToolName(Arc<str>);

impl ToolName {
    /// Takes 1 to 64 of `a-z 0-9 _ .`, starting with a letter.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let starts_well = text.starts_with(|c: char| c.is_ascii_lowercase());
        let all_allowed = text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'.');
        if starts_well && all_allowed && text.len() <= 64 {
            Ok(Self(text.into()))
        } else {
            Err(IdError::ToolName)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A call's id: `call_` and 4 to 64 letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallId(Arc<str>);

impl CallId {
    /// Takes an id that a runtime gave.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let rest = text.strip_prefix("call_").ok_or(IdError::CallId)?;
        let fits =
            (4..=64).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_alphanumeric());
        if fits { Ok(Self(text.into())) } else { Err(IdError::CallId) }
    }

    /// Makes an id of 16 letters and digits (95 bits) from random bytes.
    pub fn from_random(bytes: impl Iterator<Item = u8>) -> Self {
        const PREFIX: &str = "call_";
        let mut text = String::with_capacity(PREFIX.len() + 16);
        text.push_str(PREFIX);
        push_base62(16, bytes, &mut text);
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A run id or a step: 1 to 128 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

impl Token {
    /// Takes 1 to 128 visible ASCII characters (0x21 to 0x7e).
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let fits = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.into())) } else { Err(IdError::Token) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The first 32 hex digits of SHA-256 over `run_id LF step LF call_index` (contract, section 2).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Derives the key, the same on every gateway.
    pub fn derive(run_id: &Token, step: &Token, call_index: u32) -> Self {
        let mut digest = Sha256::new();
        for part in [run_id.as_str(), "\n", step.as_str(), "\n", &call_index.to_string()] {
            digest.update(part);
        }
        Self(hex(&digest.finalize()[..16]).into())
    }

    /// Takes one that was derived before: 32 lower-case hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Random letters and digits. Bytes of 248 and more are skipped, so that each digit is equally likely.
pub fn random_base62(length: usize, bytes: impl Iterator<Item = u8>) -> String {
    let mut text = String::with_capacity(length);
    push_base62(length, bytes, &mut text);
    text
}

fn push_base62(length: usize, bytes: impl Iterator<Item = u8>, text: &mut String) {
    let fair = bytes.filter(|byte| *byte < 248).take(length);
    fair.for_each(|byte| text.push(char::from(BASE62[usize::from(byte % 62)])));
}

/// Lower-case hex of some bytes.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    String::from_utf8(text).expect("digits are ASCII")
}

/// The id of a tool that the configuration file defines: `tl_` and the 16 most significant of the 43 base-62 digits of
/// SHA-256 over `organisation LF name` (contract, section 6).
pub fn file_tool_id(organisation: &str, name: &ToolName) -> String {
    let mut number: [u8; 32] = Sha256::digest(format!("{organisation}\n{name}").as_bytes()).into();
    let mut digits = [0u8; 43]; // 62^43 is the first power above 2^256
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0u32;
        for byte in &mut number {
            let part = remainder << 8 | u32::from(*byte);
            *byte =
                u8::try_from(part / 62).expect("a remainder below 62 gives a quotient below 256");
            remainder = part % 62;
        }
        *digit = BASE62[remainder as usize];
    }
    let leading: String = digits[..16].iter().copied().map(char::from).collect();
    format!("tl_{leading}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_name(text: &str, accepted: bool) {
        assert_eq!(ToolName::parse(text).is_ok(), accepted, "{text:?}");
    }

    #[test]
    fn tool_names_are_short_lower_case_and_start_with_a_letter() {
        check_name("a", true);
        check_name("scans.get", true);
        check_name(&"a".repeat(64), true);
        for bad in ["", "A", "1a", "a-b", "_a", ".a", "é", "a b", &"a".repeat(65)] {
            check_name(bad, false);
        }
    }

    #[test]
    fn call_ids_are_the_prefix_and_letters_and_digits() {
        assert!(CallId::parse("call_8f2c").is_ok());
        for bad in [
            "call_8f2",
            "call_",
            "8f2c",
            "call_8f2c!",
            "call_8f.2c",
            &format!("call_{}", "a".repeat(65)),
        ] {
            assert_eq!(CallId::parse(bad), Err(IdError::CallId), "{bad:?}");
        }
    }

    #[test]
    fn a_made_call_id_is_a_call_id_and_skips_biased_bytes() {
        let id = CallId::from_random([255u8, 248, 0, 61, 62].into_iter().cycle());
        assert_eq!(id.as_str(), "call_0z00z00z00z00z00");
        assert!(CallId::parse(id.as_str()).is_ok());
    }

    #[test]
    fn tokens_are_visible_ascii() {
        assert!(Token::parse("run_7Hq2xV").is_ok());
        for bad in ["", "a b", "a\n", "é", &"x".repeat(129)] {
            assert_eq!(Token::parse(bad), Err(IdError::Token), "{bad:?}");
        }
    }

    #[test]
    fn the_idempotency_key_depends_on_all_three_parts() {
        let token = |text| Token::parse(text).expect("valid");
        let key = IdempotencyKey::derive(&token("run_7Hq2xV"), &token("3"), 0);
        // Computed with: printf 'run_7Hq2xV\n3\n0' | sha256sum | cut -c1-32
        assert_eq!(key.as_str(), "dcecefd7bc74085436b9067e030349d2");
        assert_ne!(key, IdempotencyKey::derive(&token("run_7Hq2xV"), &token("3"), 1));
        assert_ne!(key, IdempotencyKey::derive(&token("run_7Hq2xV"), &token("4"), 0));
        assert_ne!(key, IdempotencyKey::derive(&token("run_7Hq2xW"), &token("3"), 0));
    }

    #[test]
    fn a_file_tool_keeps_its_id_everywhere() {
        let name = ToolName::parse("lookup_order").expect("valid");
        // Computed apart with arbitrary-precision integers.
        assert_eq!(file_tool_id(DEFAULT_ORGANISATION, &name), "tl_ZqZuiPswC7m3UJn2");
    }
}
