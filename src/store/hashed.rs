//! A map whose keys are hashes already: under a key of ours, so that nobody outside can make two of them meet.

use std::hash::{BuildHasherDefault, Hasher};

/// For `HashMap` and `HashSet`.
pub(super) type Hashed = BuildHasherDefault<AsItIs>;

/// The key is its own hash.
#[derive(Default)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
