//! A secret value: wiped on drop, never printed.

use std::fmt;

use zeroize::Zeroizing;

/// Secret bytes: a signing key, a header value, an API key.
///
/// `Debug` prints `***`, there is no `Display` and no serde. The bytes are wiped when the last owner drops them.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes as they are.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    /// The secret of a mounted file: one line end (LF or CRLF) at the end is not part of it.
    pub fn without_line_end(&self) -> Self {
        let bytes = self.expose();
        let line = bytes.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        Self::new(line.unwrap_or(bytes))
    }

    /// Shows the bytes to the one place that needs them: a signer, a header, a comparison.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Length in bytes, which is no secret.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(text: &str, expected: &str) {
        assert_eq!(Secret::new(text).without_line_end().expose(), expected.as_bytes());
    }

    #[test]
    fn exactly_one_line_end_is_removed() {
        check_line("key", "key");
        check_line("key\n", "key");
        check_line("key\r\n", "key");
        check_line("key\n\n", "key\n");
        check_line("key\r", "key\r");
        check_line("\n", "");
    }

    #[test]
    fn debug_output_hides_the_value() {
        assert_eq!(format!("{:?}", Some(Secret::new("whsec_canary"))), "Some(***)");
    }
}
