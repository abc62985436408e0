//! Exit codes, and the line that says why.

/// It worked.
pub const OK: u8 = 0;
/// It did not: invalid, refused, failed.
pub const FAILED: u8 = 1;
/// The command line makes no sense.
pub const USAGE: u8 = 2;

/// Says on stderr what went wrong, and gives the exit code for it.
pub fn fail(message: &str) -> u8 {
    eprintln!("sortie: {message}");
    FAILED
}
