//! Fuzz targets: what must hold for any bytes, as ordinary functions over the public interface.
//!
//! The runner and libFuzzer feed them with mutations; the integration tests feed them with the committed corpus.

pub mod answers;
pub mod calls;
pub mod configuration;
pub mod egress;
pub mod tokens;
pub mod wire;

/// A target: it panics when a promise is broken.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("address", egress::address),
    ("answer", answers::answer),
    ("arguments", calls::arguments),
    ("call", calls::call),
    ("config", configuration::config),
    ("endpoint", egress::endpoint),
    ("host_pattern", egress::host_pattern),
    ("json", calls::json),
    ("outcome", answers::outcome),
    ("profile", wire::profile),
    ("retry_after", answers::retry_after),
    ("signature", wire::signature),
    ("token", tokens::token),
];

/// 2026-10-30T09:55:02Z, the time of every target.
const NOW: i64 = 1_793_354_102;

/// Takes the first line off, without its line feed; what is left is the rest.
fn take_line<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (line, after) = rest.split_at(length);
    *rest = after.get(1..).unwrap_or_default();
    line
}

/// The text of a line; what is no UTF-8 is no text.
fn text(line: &[u8]) -> &str {
    std::str::from_utf8(line).unwrap_or_default()
}

/// The number that a line holds, if any.
fn number<N: std::str::FromStr>(line: &[u8]) -> Option<N> {
    text(line).parse().ok()
}
