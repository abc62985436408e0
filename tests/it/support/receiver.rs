//! What an author of a tool server writes: the check of a signature, from the contract and not from the gateway's code.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::support::upstream::Request;

/// Checks `t=…,v1=…` over `t.body`, and gives the `t`.
#[track_caller]
pub(crate) fn verify(request: &Request, header: &str, secret: &str) -> i64 {
    let value = request.header(header).expect("a signature");
    let (t, digest) = value
        .strip_prefix("t=")
        .and_then(|rest| rest.split_once(",v1="))
        .unwrap_or_else(|| panic!("not a signature: {value}"));
    let signed = [t.as_bytes(), b".", &request.body].concat();
    let right = hex(&hmac(secret.as_bytes(), &signed));
    assert_eq!(digest, right, "the signature of {}", request.head);
    t.parse().expect("seconds")
}

/// HMAC-SHA256.
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any key");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// Lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
