//! A signature scheme in words, for whoever has to verify it.

use crate::policy::sign::{DigestText, EntrySlot, KeyEncoding, SignatureScheme, SignedPart};

impl SignatureScheme {
    /// What is computed, of what, and how it is written: one sentence.
    pub fn in_words(&self) -> String {
        let signed: String = self
            .signed
            .iter()
            .map(|part| match part {
                SignedPart::Body => "{body}",
                SignedPart::Id => "{id}",
                SignedPart::Text(text) => text,
                SignedPart::Time => "{t}",
            })
            .collect();
        let key = match self.key {
            KeyEncoding::Base64 => "the base64 of the secret after `whsec_`, decoded",
            KeyEncoding::Text => "the secret's text as it is, `whsec_` included",
        };
        let digest = match self.digest {
            DigestText::Base64 => "base64",
            DigestText::Hex => "lower-case hex",
        };
        let entries: Vec<String> = self
            .entries
            .iter()
            .map(|entry| {
                let slot = match entry.slot {
                    Some(EntrySlot::Digest) => "{digest}",
                    Some(EntrySlot::Time) => "{t}",
                    None => "",
                };
                format!("{}{slot}{}", entry.before, entry.after)
            })
            .collect();
        let value = entries.join(self.separator.as_deref().unwrap_or_default());
        format!("HMAC-SHA256 of `{signed}` in {digest}, written as `{value}`; the key is {key}")
    }
}
