//! Canary secrets: texts that must never come out of the gateway.

use std::collections::BTreeSet;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The secrets of one gateway. Each is known by a text that stands nowhere else, and by what that becomes in base64, in
/// hex and in a URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Canaries(BTreeSet<String>);

impl Canaries {
    /// Watches for a secret. The part after a known prefix is watched for as well: half a secret is a secret.
    pub(crate) fn watch(&mut self, secret: &str) {
        assert!(
            secret.len() >= 8,
            "a secret that is long enough to stand nowhere else: {secret:?}"
        );
        self.0.extend(forms(secret));
        if let Some(rest) = secret.strip_prefix("whsec_").filter(|rest| rest.len() >= 8) {
            self.0.extend(forms(rest));
        }
    }

    /// The first of them that stands in this text.
    pub(crate) fn find_in(&self, text: &str) -> Option<&str> {
        self.0.iter().map(String::as_str).find(|secret| text.contains(secret))
    }

    /// Fails when one of them stands in this text.
    #[track_caller]
    pub(crate) fn assert_absent(&self, place: &str, text: &str) {
        if let Some(secret) = self.find_in(text) {
            panic!("the secret {secret:?} stands in {place}: {text}");
        }
    }
}

/// The texts in which a secret can hide.
fn forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    forms.extend(hex(secret.as_bytes()));
    let mut escaped = [String::new(), String::new()];
    for byte in secret.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.iter_mut().for_each(|text| text.push(char::from(byte)));
        } else {
            let _ = write!(escaped[0], "%{byte:02X}");
            let _ = write!(escaped[1], "%{byte:02x}");
        }
    }
    forms.extend(escaped);
    // Encoded with something before it, it begins at any of three places in a group of four digits; what its neighbours
    // have a part in is left out.
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend_from_slice(secret.as_bytes());
        let whole = bytes.len() / 3 * 4;
        let first = [0, 4, 4][before];
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.push(text[first..whole].to_owned());
        }
    }
    forms.retain(|form| form.len() >= 8);
    forms
}

/// In capitals and without.
fn hex(bytes: &[u8]) -> [String; 2] {
    let lower: String = bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    [lower.to_uppercase(), lower]
}

#[test]
fn f161_a_canary_is_found_in_every_form() {
    let secret = "sk/test+Vq7RkX2mPz9L";
    let mut canaries = Canaries::default();
    canaries.watch(secret);
    let [upper, lower] = hex(secret.as_bytes());
    for text in [upper.as_str(), &lower, "sk%2Ftest%2BVq7RkX2mPz9L", "sk%2ftest%2bVq7RkX2mPz9L"] {
        assert!(canaries.find_in(&format!("a {text}")).is_some(), "{text}");
    }
    for before in ["", "a", "ab", "user:"] {
        let whole = format!("{before}{secret}{before}");
        for text in [STANDARD_NO_PAD.encode(&whole), URL_SAFE_NO_PAD.encode(&whole)] {
            assert!(canaries.find_in(&text).is_some(), "{whole} as {text}");
        }
    }
    assert!(canaries.find_in(&STANDARD_NO_PAD.encode("something else, long enough")).is_none());
}

#[test]
fn a_canary_is_found_whole_or_without_its_prefix() {
    let mut canaries = Canaries::default();
    canaries.watch("whsec_8sKqT1vN5rYbH2mZ");
    assert!(canaries.find_in("key whsec_8sKqT1vN5rYbH2mZ!").is_some());
    assert!(canaries.find_in("key 8sKqT1vN5rYbH2mZ!").is_some());
    assert!(canaries.find_in("key whsec_").is_none());
    std::panic::catch_unwind(|| canaries.assert_absent("a log line", "8sKqT1vN5rYbH2mZ"))
        .expect_err("a leak");
    canaries.assert_absent("a log line", "nothing");
}
