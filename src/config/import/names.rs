//! Names of tools: those of a document, as a wire format takes them, each once.

use std::collections::HashSet;

use crate::config::carry::{Note, Notes};
use crate::config::tools::RESERVED;
use crate::model::id::ToolName;
use crate::policy::wire::WireProfile;

/// The longest name of any wire format.
const LONGEST: usize = 64;

/// The names that are taken.
pub(super) struct Names<'p> {
    profile: &'p WireProfile,
    taken: HashSet<String>,
}

impl<'p> Names<'p> {
    pub(super) fn new(profile: &'p WireProfile) -> Self {
        Self { profile, taken: HashSet::new() }
    }

    /// A name that the wire format takes; one that is taken already is an error.
    pub(super) fn take(
        &mut self,
        given: &str,
        pointer: &str,
        notes: &mut Notes,
    ) -> Result<String, String> {
        let name = if self.fits(given) { given.to_owned() } else { mapped(given) };
        if !self.fits(&name) {
            return Err(format!("no name can be made of {given:?}"));
        }
        if !self.taken.insert(name.clone()) {
            return Err(format!("its name `{given}` becomes `{name}`, which another one has"));
        }
        if name != given {
            notes.push(Note::new(pointer, format!("its name {given:?} becomes `{name}`")));
        }
        Ok(name)
    }

    fn fits(&self, name: &str) -> bool {
        ToolName::parse(name).is_ok()
            && self.profile.accepts_name(name)
            && !RESERVED.contains(&name)
    }
}

/// Lower-case words with `_` between them, beginning with a letter.
fn mapped(given: &str) -> String {
    let mut name = String::new();
    let mut before = '_';
    for character in given.chars() {
        let is_word = character.is_ascii_alphanumeric();
        let begins = character.is_ascii_uppercase()
            && (before.is_ascii_lowercase() || before.is_ascii_digit());
        if (begins || !is_word) && !name.ends_with('_') && !name.is_empty() {
            name.push('_');
        }
        if is_word {
            name.push(character.to_ascii_lowercase());
        }
        before = character;
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || RESERVED.contains(&name.as_str()) {
        name.insert_str(0, "t_");
    }
    name.truncate(LONGEST);
    name.trim_end_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_with_lines_between_them() {
        for (given, expected) in [
            ("createOrder", "create_order"),
            ("gists/create", "gists_create"),
            ("HTTPServer2Go", "httpserver2_go"),
            ("9lives", "t_9lives"),
            ("__x__", "x"),
            ("größe", "gr_e"),
            ("search_knowledge", "t_search_knowledge"),
            ("", "t"),
        ] {
            assert_eq!(mapped(given), expected, "{given}");
        }
        assert_eq!(mapped(&"a".repeat(100)).len(), LONGEST);
    }
}
