//! Checks X-Tool-Signature (envelope-v1) or CL-Signature (bare-v1) over the raw body, before any JSON parser.
//! While a secret is replaced there are two v1: either is good.
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Takes the seconds since 1970 as `now`, and 300 as `tolerance`.
pub fn verify(secret: &str, header: &str, body: &[u8], now: u64, tolerance: u64) -> bool {
    let values = |of| header.split(',').filter_map(move |part| part.strip_prefix(of));
    let [t] = values("t=").collect::<Vec<_>>()[..] else { return false };
    let digits = (1..=12).contains(&t.len()) && t.bytes().all(|byte| byte.is_ascii_digit());
    let in_time = t.parse::<u64>().is_ok_and(|t| t.abs_diff(now) <= tolerance);
    if secret.is_empty() || !digits || !in_time {
        return false;
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any key is taken");
    mac.update(&[t.as_bytes(), b".", body].concat());
    let expected: String =
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    values("v1=").any(|value| {
        let pairs = value.bytes().zip(expected.bytes());
        value.len() == expected.len() && pairs.fold(0, |all, (a, b)| all | (a ^ b)) == 0
    })
}
