//! `sortie check`: everything that is wrong with a configuration file, at once.

use std::path::PathBuf;

use serde::Serialize;

use crate::cli::config_files::ConfigFiles;
use crate::cli::exit::{FAILED, OK, fail, print};
use crate::cli::format::Format;
use crate::config::finding::Finding;
use crate::source::{self, LoadError};

/// Check a configuration file: everything that is wrong with it, at once.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    files: ConfigFiles,
    /// A secret that cannot be read is an error, not a warning
    #[arg(long)]
    strict: bool,
    /// How findings are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// All findings, as one JSON object.
#[derive(Debug, Serialize)]
struct Findings {
    ok: bool,
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
}

/// Prints the findings: 0 where none is an error, 1 where one is.
pub fn run(arguments: &Arguments) -> u8 {
    let files = arguments.files.paths();
    let findings = match source::check(&files, arguments.strict) {
        Ok(snapshot) => {
            // The gateway would run without the tools of a broken file; whoever wrote it wants to know before.
            let errors: Vec<Finding> = snapshot.file_errors().cloned().collect();
            Findings { ok: errors.is_empty(), errors, warnings: snapshot.warnings }
        }
        Err(LoadError::Invalid(found)) => {
            Findings { ok: false, errors: found.errors, warnings: found.warnings }
        }
        Err(error @ LoadError::Unreadable { .. }) => return fail(&error.to_string()),
    };
    let text = match arguments.format {
        Format::Json => findings.as_json(),
        Format::Text => findings.as_text(&listed(&files)),
    };
    print(&text, if findings.ok { OK } else { FAILED })
}

fn listed(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" + ")
}

impl Findings {
    fn as_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("texts and numbers");
        json + "\n"
    }

    fn as_text(&self, file: &str) -> String {
        let mut text = String::new();
        for error in &self.errors {
            text.push_str(&format!("{error}\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("{}\n", warning.as_warning()));
        }
        if self.ok {
            text.push_str(&format!("{file}: ok\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, strict: bool, code: u8) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("sortie.yaml");
        std::fs::write(&file, text).expect("written");
        for format in [Format::Json, Format::Text] {
            assert_eq!(
                run(&Arguments { files: file.clone().into(), strict, format }),
                code,
                "{text}"
            );
        }
    }

    #[test]
    fn the_code_tells_good_from_bad() {
        let keys = "version: 1\nauth: {keys: [{name: a, scopes: [agent], key: {file: missing}}]}\n";
        check("version: 1\nauth: none\n", true, OK);
        check("version: 1\n", false, FAILED);
        check(keys, false, OK);
        check(keys, true, FAILED);
    }

    #[test]
    fn a_file_that_is_not_there_fails() {
        let file = PathBuf::from("/nowhere/sortie.yaml");
        assert_eq!(
            run(&Arguments { files: file.into(), strict: false, format: Format::Text }),
            FAILED
        );
    }

    #[test]
    fn findings_are_lines_or_one_object() {
        let finding = |message: &str| Finding {
            file: "f".into(),
            line: 1,
            column: 2,
            path: "a.b".into(),
            message: message.into(),
        };
        let findings = Findings {
            ok: false,
            errors: vec![finding("is wrong")],
            warnings: vec![finding("is odd")],
        };
        assert_eq!(findings.as_text("f"), "f:1:2: a.b: is wrong\nf:1:2: a.b: warning: is odd\n");
        let json: serde_json::Value = serde_json::from_str(&findings.as_json()).expect("JSON");
        let error = serde_json::json!({"file": "f", "line": 1, "column": 2, "path": "a.b", "message": "is wrong"});
        assert_eq!((&json["ok"], &json["errors"][0]), (&false.into(), &error));
    }
}
