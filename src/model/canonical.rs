//! The one form of arguments by which two calls are told to be the same (contract, section 6).

use sha2::{Digest, Sha256};

use crate::model::id::hex;
use crate::model::json_tree::Tree;

/// `sha256:` and hex over the canonical form: compact, keys sorted at each level by their bytes, number text kept.
///
/// The text was read as JSON before; of any other the digest is over the text as it is.
pub fn digest(text: &[u8]) -> String {
    let canonical = std::str::from_utf8(text).ok().and_then(Tree::read).map(|mut tree| {
        sort(&mut tree);
        tree.to_json()
    });
    let bytes = canonical.as_ref().map_or(text, String::as_bytes);
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// Whether two texts are the same arguments.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one == other || digest(one) == digest(other)
}

fn sort(tree: &mut Tree) {
    match tree {
        Tree::List(items) => items.iter_mut().for_each(sort),
        Tree::Map(entries) => {
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            entries.iter_mut().for_each(|(_, value)| sort(value));
        }
        Tree::Text(_) | Tree::Word(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_the_text_of_numbers_does() {
        assert!(same(br#"{"b":[{"d":1,"c":2}],"a":"x"}"#, br#"{"a":"x","b":[{"c":2,"d":1}]}"#));
        assert!(!same(br#"{"a":1}"#, br#"{"a":1.0}"#));
        assert!(!same(br#"{"a":[1,2]}"#, br#"{"a":[2,1]}"#));
    }

    #[test]
    fn the_digest_is_one_that_others_can_make() {
        // printf '{"amount":501,"order":"A-1"}' | sha256sum
        let expected = "sha256:b28f98feca3f73fa030a51d7ba3b3198598e902c5aec745ad527d3de56b96891";
        assert_eq!(digest(br#"{"order":"A-1","amount":501}"#), expected);
    }
}
