//! The files of a configuration: how each of them stands, and what is known of tools whose file is broken.

use std::path::Path;
use std::sync::Arc;

use crate::config::finding::Finding;

/// One file of a configuration.
#[derive(Debug, Clone)]
pub struct File {
    /// Its path, as findings name it.
    pub name: String,
    /// Its path from the main file's folder on: a label of metrics.
    pub label: String,
    /// Whether its text is in force.
    pub standing: Standing,
    /// Everything that is wrong with its text.
    pub errors: Vec<Finding>,
    /// The last text of an included file that could be used, in force or not.
    pub good: Option<Arc<str>>,
}

impl File {
    /// Whether nothing is wrong with its text.
    pub fn is_ok(&self) -> bool {
        self.standing == Standing::Current
    }
}

/// Whether a file's text is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Current,
    /// It is broken, and the last good text is in force.
    Kept,
    /// It is broken, and its tools are unavailable.
    Unavailable,
}

/// A tool of which only the name could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Who answers for it.
    pub owner: Option<String>,
    /// The label of its file.
    pub file: Arc<str>,
}

impl Unread {
    /// What a model may read.
    pub const SENTENCE: &str = "The tool is not configured: its definition is broken.";
}

/// A file's path from the main file's folder on; the path itself where it is elsewhere.
pub fn label(main: &str, file: &str) -> String {
    let folder = Path::new(main).parent().unwrap_or(Path::new(""));
    let file = Path::new(file);
    file.strip_prefix(folder).unwrap_or(file).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_starts_at_the_main_file_s_folder() {
        for (main, file, expected) in [
            ("/etc/sortie/sortie.yaml", "/etc/sortie/sortie.yaml", "sortie.yaml"),
            ("/etc/sortie/sortie.yaml", "/etc/sortie/tools.d/a.yaml", "tools.d/a.yaml"),
            ("/etc/sortie/sortie.yaml", "/run/a.yaml", "/run/a.yaml"),
            ("sortie.yaml", "tools.d/a.yaml", "tools.d/a.yaml"),
            ("conf/sortie.yaml", "staging.yaml", "staging.yaml"),
        ] {
            assert_eq!(label(main, file), expected);
        }
    }
}
