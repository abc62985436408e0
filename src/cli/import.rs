//! `sortie import`: tools that are described elsewhere, as a file for `tools.d/`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::exit::{FAILED, OK, USAGE, fail, print, tell};
use crate::config::draft::{Form, ImportError, Place, Terms};
use crate::config::finding::Finding;
use crate::config::import::{Imported, import};
use crate::config::json;
use crate::config::profile;
use crate::config::yaml::Document;
use crate::model::id::random_base62;
use crate::policy::wire::WireProfile;

/// Larger documents are refused.
const LARGEST: u64 = 64 << 20;
/// Letters and digits that tell the file beside from one that was left there.
const BESIDE_LENGTH: usize = 8;

/// Write tools that are described elsewhere as a file for `tools.d/`; what cannot be carried over is said on stderr.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// What is read: an OpenAI `tools` array, an MCP `tools/list` answer or an OpenAPI 3 document
    #[arg(value_enum, value_name = "FORM")]
    form: Word,
    /// The document, JSON or YAML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the tools are: NAME (openai, mcp) or the path (openapi, instead of its servers) follows
    #[arg(long, value_name = "URL", conflicts_with = "url_template")]
    base_url: Option<String>,
    /// The URL of each tool, in which {name} stands for its name (openai, mcp)
    #[arg(long, value_name = "URL")]
    url_template: Option<String>,
    /// The wire format of the tools; by default the one that is not signed
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// A value for a parameter of a path or a query (openapi); may stand several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// Where the file is written; by default to stdout. One that is there already is left alone
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Word {
    /// The answer to `tools/list`.
    Mcp,
    /// A `tools` array.
    Openai,
    /// An OpenAPI 3 document.
    Openapi,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Writes the tools: 0 where there is at least one, 1 where there is none.
pub fn run(arguments: &Arguments) -> u8 {
    let form = match arguments.form {
        Word::Mcp => Form::Mcp,
        Word::Openai => Form::Openai,
        Word::Openapi => Form::Openapi,
    };
    let place = match (&arguments.base_url, &arguments.url_template, form) {
        (Some(base), _, _) => Place::Base(base.clone()),
        (None, Some(_), Form::Openapi) => {
            return usage("--url-template is for openai and mcp: operations of openapi have paths");
        }
        (None, Some(template), _) if !template.contains("{name}") => {
            return usage("--url-template must hold {name}: each tool has a URL of its own");
        }
        (None, Some(template), _) => Place::Template(template.clone()),
        (None, None, Form::Openapi) => Place::Document,
        (None, None, _) => {
            return usage(
                "the document does not say where its tools are: give --url-template or --base-url",
            );
        }
    };
    let profile = match shipped(arguments.profile.as_deref()) {
        Ok(profile) => profile,
        Err(message) => return usage(&message),
    };
    let document = match read(&arguments.file) {
        Ok(document) => document,
        Err(message) => return fail(&message),
    };
    let terms = Terms { profile: &profile, place, set: arguments.set.clone() };
    let file = arguments.file.display();
    let Imported { yaml, count, notes } = match import(form, &document, &terms) {
        Ok(imported) => imported,
        Err(error @ ImportError::NoServer) => return usage(&error.to_string()),
        Err(error) => return fail(&format!("{file}: {error}")),
    };
    for note in &notes {
        tell(&format!("{file}: {}", one_line(&note.to_string())));
    }
    if count == 0 {
        return fail(&format!("{file}: no tool could be carried over"));
    }
    tell(&format!("{file}: {count} tools, {} notes", notes.len()));
    match &arguments.out {
        None => print(&yaml, OK),
        Some(out) => write(out, &yaml),
    }
}

/// The shipped format of this name, or the first that does not sign.
fn shipped(name: Option<&str>) -> Result<WireProfile, String> {
    let mut all = profile::builtin();
    let at = all.iter().position(|one| match name {
        Some(name) => one.name == name,
        None => !one.signs(),
    });
    let Some(at) = at else {
        let known: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        let name = name.unwrap_or_default();
        return Err(format!("no profile `{name}`; shipped are {}", known.join(", ")));
    };
    Ok(all.swap_remove(at))
}

fn read(file: &Path) -> Result<Value, String> {
    let name = file.display();
    let unreadable = |error: std::io::Error| format!("`{name}` cannot be read: {error}");
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("`{name}` is larger than {LARGEST} bytes"));
    }
    if let Ok(document) = serde_json::from_slice(&bytes) {
        return Ok(document);
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("`{name}` is not UTF-8"))?;
    let (document, faults) = Document::parse(&text);
    match document {
        Some(document) if faults.is_empty() => Ok(json::value(&document, document.root())),
        _ => {
            let file = name.to_string();
            let findings =
                faults.into_iter().map(|fault| Finding::of_fault(&file, fault).to_string());
            Err(findings.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn write(out: &Path, yaml: &str) -> u8 {
    let name = out.display();
    match write_whole(out, yaml.as_bytes()) {
        Ok(()) => OK,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            fail(&format!("`{name}` is there already; remove it or choose another file"));
            FAILED
        }
        Err(error) => fail(&format!("`{name}` cannot be written: {error}")),
    }
}

/// A new file with all of this, or none: it is written beside, and has its name when it is whole. The name beside begins
/// with a dot, so that no `include` finds it.
fn write_whole(out: &Path, bytes: &[u8]) -> io::Result<()> {
    let Some(name) = out.file_name() else { return Err(ErrorKind::InvalidInput.into()) };
    // A link is there too, wherever it leads.
    if out.symlink_metadata().is_ok() {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let mut beside = OsString::from(".");
    beside.push(name);
    // Not the process's number: in a container it is often the same, and a file may be left of one that was killed.
    let random = random_base62(BESIDE_LENGTH, rand::random_iter::<[u8; 32]>().flatten());
    beside.push(format!(".{random}"));
    let beside = out.with_file_name(beside);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    // A link is never made in place of what somebody else wrote meanwhile; some file systems have none.
    let named = written.and_then(|()| match fs::hard_link(&beside, out) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => fs::rename(&beside, out),
        linked => linked,
    });
    // Renamed, it is gone already.
    let _ = fs::remove_file(&beside);
    named
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn usage(message: &str) -> u8 {
    fail(message);
    USAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("tools.yaml");
        let left = || fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(write(&out, "one"), OK);
        assert_eq!(write(&out, "two"), FAILED);
        assert_eq!((fs::read_to_string(&out).expect("a file").as_str(), left()), ("one", 1));
        std::os::unix::fs::symlink(folder.path().join("nowhere"), folder.path().join("link"))
            .expect("a link");
        assert_eq!(write(&folder.path().join("link"), "two"), FAILED);
        assert_eq!(write(&folder.path().join("no/tools.yaml"), "two"), FAILED);
        assert_eq!(write(Path::new("/"), "two"), FAILED);
        assert_eq!(left(), 2);
    }

    /// In a container the next process often has the same number.
    #[test]
    fn what_a_killed_import_left_is_in_nobody_s_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = folder.path().join(format!(".tools.yaml.{}", std::process::id()));
        fs::write(&left, "o").expect("a file");
        let out = folder.path().join("tools.yaml");
        assert_eq!(write(&out, "one"), OK);
        assert_eq!(fs::read_to_string(&out).expect("a file"), "one");
    }
}
