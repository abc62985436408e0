//! Cutting text at a limit, and the note that says so.

/// How many bytes are kept of `bytes`: `limit` at most, and never half a UTF-8 character.
pub fn cut(bytes: &[u8], limit: usize) -> usize {
    if bytes.len() <= limit {
        return bytes.len();
    }
    // A character has three continuation bytes at most; more of them are no text, and cut anywhere.
    (limit.saturating_sub(3)..=limit)
        .rev()
        .find(|&end| bytes.get(end).is_some_and(|byte| byte & 0b1100_0000 != 0b1000_0000))
        .unwrap_or(limit)
}

/// The first `limit` bytes of a text, or a little less.
pub fn prefix(text: &str, limit: usize) -> &str {
    text.get(..cut(text.as_bytes(), limit)).unwrap_or_default()
}

/// The text, or its beginning with an ellipsis: `limit` bytes at most.
pub fn shorten(text: String, limit: usize) -> String {
    if text.len() <= limit {
        return text;
    }
    let ellipsis = '…';
    format!("{}{ellipsis}", prefix(&text, limit.saturating_sub(ellipsis.len_utf8())))
}

/// The note that follows a cut text; it begins with a line feed.
pub fn note(kept: usize, total: Option<u64>, limit: usize) -> String {
    match total {
        Some(total) => format!("\n[Cut: the first {kept} of {total} bytes are shown.]"),
        None => format!("\n[Cut: the first {kept} of more than {limit} bytes are shown.]"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(limit: usize, input: &str, kept: &str) {
        assert_eq!(prefix(input, limit), kept);
    }

    #[test]
    fn keeps_what_fits() {
        check(0, "", "");
        check(3, "aé", "aé");
        check(4, "aé", "aé");
    }

    #[test]
    fn cuts_before_a_split_character() {
        check(2, "aé", "a");
        check(1, "é", "");
        check(3, "😀", "");
        check(4, "😀b", "😀");
        check(6, "a😀é", "a😀");
        check(0, "a", "");
    }

    #[test]
    fn what_is_no_text_is_cut_at_the_limit() {
        assert_eq!(cut(&[0x80; 9], 5), 5);
        assert_eq!(cut(&[0xff; 9], 5), 5);
        assert_eq!(cut(&[0x80; 9], 2), 2);
    }

    #[test]
    fn the_note_names_the_size_where_it_is_known() {
        let known = "\n[Cut: the first 262144 of 913402 bytes are shown.]";
        assert_eq!(note(262_144, Some(913_402), 262_144), known);
        let unknown = "\n[Cut: the first 262143 of more than 262144 bytes are shown.]";
        assert_eq!(note(262_143, None, 262_144), unknown);
    }

    #[test]
    fn a_short_text_is_not_shortened() {
        assert_eq!(shorten("abcd".into(), 4), "abcd");
        assert_eq!(shorten("abcdé".into(), 5), "ab…");
        assert_eq!(shorten("ééé".into(), 5), "é…");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_longest_whole_prefix(text in "\\PC{0,40}", limit in 0..200_usize) {
            let kept = prefix(&text, limit);
            prop_assert!(text.starts_with(kept) && kept.len() <= limit);
            let next = text.get(kept.len()..).unwrap().chars().next();
            prop_assert!(next.is_none_or(|c| kept.len() + c.len_utf8() > limit));
            prop_assert!(shorten(text, limit.max(3)).len() <= limit.max(3));
        }

        #[test]
        fn any_bytes_are_cut_within_the_limit(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            limit in 0..50_usize,
        ) {
            let kept = cut(&bytes, limit);
            prop_assert!(kept <= limit && kept <= bytes.len());
        }
    }
}
