//! Canary secrets: texts that must never come out of the gateway.

use std::collections::BTreeSet;

/// The secrets of one gateway. Each is known by a text that stands nowhere else.
#[derive(Debug, Clone, Default)]
pub(crate) struct Canaries(BTreeSet<String>);

impl Canaries {
    /// Watches for a secret. The part after a known prefix is watched for as well: half a secret is a secret.
    pub(crate) fn watch(&mut self, secret: &str) {
        assert!(
            secret.len() >= 8,
            "a secret that is long enough to stand nowhere else: {secret:?}"
        );
        self.0.insert(secret.to_owned());
        if let Some(rest) = secret.strip_prefix("whsec_").filter(|rest| rest.len() >= 8) {
            self.0.insert(rest.to_owned());
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
