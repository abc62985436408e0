//! With which keys a tool's calls are signed, and until when with which.

use std::fmt;

use crate::policy::sign::SigningKeys;

/// A tool's signing keys: two while they overlap, then one.
#[derive(Debug, Default)]
pub struct Signing {
    /// The keys that sign in the end.
    pub keys: SigningKeys,
    /// While both sign.
    pub overlap: Option<Overlap>,
}

/// The time in which a new key and the one before both sign.
#[derive(Debug)]
pub struct Overlap {
    /// Both, in the order of the phase.
    pub keys: SigningKeys,
    /// Which two they are.
    pub pair: KeyPair,
    /// When this pair was first seen, in Unix seconds.
    pub since: i64,
    /// The first Unix second at which the previous one no longer signs.
    pub until: i64,
}

/// Tells one pair of keys from another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPair(pub [u8; 32]);

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What it is made of is secret.
        f.write_str("KeyPair")
    }
}

impl Signing {
    /// The keys that sign at this Unix second, in the order in which they are sent.
    pub fn at(&self, unix_seconds: i64) -> &SigningKeys {
        match &self.overlap {
            Some(overlap) if unix_seconds < overlap.until => &overlap.keys,
            _ => &self.keys,
        }
    }
}
