//! `sortie diff`: what a change of the configuration makes possible that was not, for whoever reviews it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::exit::{FAILED, OK, fail, print};
use crate::config::change::{Change, Direction};
use crate::config::diff;
use crate::config::snapshot::Snapshot;
use crate::source::{self, LoadError};

/// Something got looser. Contract, section 9.
const LOOSER: u8 = 3;

/// Say what a change of the configuration makes looser or tighter; ends with 3 where anything got looser.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration before
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The configuration after
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// How changes are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// How changes are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One JSON object.
    Json,
    /// A table for a review comment.
    Markdown,
    /// One change a line.
    #[default]
    Text,
}

/// All changes, as one JSON object.
#[derive(Debug, Serialize)]
struct Found {
    looser: usize,
    tighter: usize,
    neutral: usize,
    changes: Vec<Change>,
}

/// Prints the changes: 0 where none is looser, 3 where one is, 1 where a file is not valid.
pub fn run(arguments: &Arguments) -> u8 {
    let (old, new) = (load(&arguments.old), load(&arguments.new));
    let (Some(old), Some(new)) = (old, new) else { return FAILED };
    let found = Found::new(diff::compare(&old, &new));
    let text = match arguments.format {
        Format::Json => found.as_json(),
        Format::Markdown => found.as_markdown(),
        Format::Text => found.as_text(),
    };
    print(&text, if found.looser > 0 { LOOSER } else { OK })
}

/// Reads one file. What is wrong with it goes to stderr, each with its place, so that stdout holds changes alone.
fn load(file: &Path) -> Option<Snapshot> {
    match source::check(&[file.to_owned()], false) {
        Ok(snapshot) => {
            // Of a broken included file nobody knows what it says.
            let mut is_whole = true;
            for error in snapshot.file_errors() {
                fail(&error.to_string());
                is_whole = false;
            }
            is_whole.then_some(snapshot)
        }
        Err(LoadError::Invalid(found)) => {
            for error in &found.errors {
                fail(&error.to_string());
            }
            None
        }
        Err(error @ LoadError::Unreadable { .. }) => {
            fail(&error.to_string());
            None
        }
    }
}

impl Found {
    fn new(changes: Vec<Change>) -> Self {
        let count =
            |direction| changes.iter().filter(|change| change.direction == direction).count();
        Self {
            looser: count(Direction::Looser),
            tighter: count(Direction::Tighter),
            neutral: count(Direction::Neutral),
            changes,
        }
    }

    fn summary(&self) -> String {
        match self {
            Self { looser: 0, tighter: 0, neutral: 0, .. } => "nothing changed".into(),
            Self { looser, tighter, neutral, .. } => {
                format!("{looser} looser, {tighter} tighter, {neutral} neutral")
            }
        }
    }

    fn as_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("texts and numbers");
        json + "\n"
    }

    fn as_text(&self) -> String {
        let mut text = String::new();
        for Change { direction, path, change, old, new } in &self.changes {
            let (path, old, new) = (one_line(path), one_line(old), one_line(new));
            let direction = direction.as_str();
            text.push_str(&format!("{direction:<8} {path}: {old} -> {new} ({change})\n"));
        }
        format!("{text}{}\n", self.summary())
    }

    fn as_markdown(&self) -> String {
        let mut text = format!("**sortie diff**: {}\n", self.summary());
        if !self.changes.is_empty() {
            text.push_str("\n| | where | what | before | after |\n|---|---|---|---|---|\n");
        }
        for Change { direction, path, change, old, new } in &self.changes {
            let direction = match direction {
                Direction::Looser => "**looser**",
                Direction::Neutral | Direction::Tighter => direction.as_str(),
            };
            let (path, old, new) = (cell(path), cell(old), cell(new));
            text.push_str(&format!("| {direction} | {path} | {change} | {old} | {new} |\n"));
        }
        text
    }
}

/// Without line ends and other controls: a value cannot make a line of its own.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// A cell of a table, as code: nothing in it is markup, a link or a mention.
fn cell(text: &str) -> String {
    format!("`{}`", one_line(text).replace('`', "'").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        let change = |direction, old: &str| Change {
            direction,
            path: "tools.a.policy".into(),
            change: "policy",
            old: old.into(),
            new: "allow".into(),
        };
        Found::new(vec![
            change(Direction::Looser, "deny"),
            change(Direction::Neutral, "a|`b`\n@team"),
        ])
    }

    #[test]
    fn a_change_is_one_line_whatever_it_holds() {
        assert_eq!(
            found().as_text(),
            "looser   tools.a.policy: deny -> allow (policy)\n\
             neutral  tools.a.policy: a|`b`\\n@team -> allow (policy)\n\
             1 looser, 0 tighter, 1 neutral\n"
        );
    }

    #[test]
    fn a_table_holds_no_markup_of_values() {
        assert_eq!(
            found().as_markdown(),
            "**sortie diff**: 1 looser, 0 tighter, 1 neutral\n\n\
             | | where | what | before | after |\n|---|---|---|---|---|\n\
             | **looser** | `tools.a.policy` | policy | `deny` | `allow` |\n\
             | neutral | `tools.a.policy` | policy | `a\\|'b'\\n@team` | `allow` |\n"
        );
        assert_eq!(Found::new(Vec::new()).as_markdown(), "**sortie diff**: nothing changed\n");
    }

    #[test]
    fn json_has_counts_and_changes() {
        let json: serde_json::Value = serde_json::from_str(&found().as_json()).expect("JSON");
        assert_eq!(json["looser"], 1);
        let first = serde_json::json!({"direction": "looser", "path": "tools.a.policy",
            "change": "policy", "old": "deny", "new": "allow"});
        assert_eq!(json["changes"][0], first);
    }
}
