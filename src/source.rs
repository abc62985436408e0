//! Reads what a configuration is made of: its file, secrets, name servers, interface addresses.

mod glob;
pub mod reading;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::config::context::{Earlier, Environment, Lookup, Source, SourceError};
use crate::config::finding::{ConfigErrors, Finding};
use crate::config::listening::Bind;
use crate::config::local::Local;
use crate::config::parse::{self, Text};
use crate::config::snapshot::{DnsSettings, Snapshot};
use crate::config::variables::Variables;
use crate::config::yaml;
use crate::model::secret::Secret;
use crate::policy::address::EgressRules;
use crate::source::reading::{MAX_SECRET, Reader, Reading, System, read, read_secret, text};

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It was read, and is wrong.
    #[error("the configuration is not valid:\n{0}")]
    Invalid(ConfigErrors),
    /// It could not be read.
    #[error("the configuration file `{file}` cannot be read: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the operating system says.
        error: io::Error,
    },
}

impl LoadError {
    /// The file that could not be read.
    pub fn file(&self) -> Option<&str> {
        match self {
            Self::Invalid(_) => None,
            Self::Unreadable { file, .. } => Some(file),
        }
    }
}

/// One look at a configuration and all that it names.
#[derive(Debug)]
pub struct Load<T> {
    /// What came of it.
    pub found: T,
    /// What was read for it.
    pub reading: Reading,
    /// The secrets among that, as they are; the earlier value of one that could not be read.
    pub secrets: HashMap<Source, Secret>,
}

/// Reads and compiles a configuration; each of its files changes what those before it say.
pub fn load(files: &[PathBuf]) -> Result<Load<Snapshot>, LoadError> {
    compile(files, Terms::default()).valid()
}

/// The same for local development.
pub fn load_local(files: &[PathBuf], local: Local) -> Result<Load<Snapshot>, LoadError> {
    compile(files, Terms { local: Some(local), ..Terms::default() }).valid()
}

/// The same for listeners that took these addresses: with port 0 the file does not know them.
pub fn load_bound(
    files: &[PathBuf],
    bound: &[SocketAddr],
    local: Option<Local>,
) -> Result<Load<Snapshot>, LoadError> {
    compile(files, Terms { bound: Some(bound.to_vec()), local, ..Terms::default() }).valid()
}

/// The same for a gateway that runs: what was read is told also where it is wrong.
pub fn load_again(
    files: &[PathBuf],
    bound: &[SocketAddr],
    earlier: &Earlier,
    local: Option<Local>,
) -> Load<Result<Snapshot, LoadError>> {
    let bound = Some(bound.to_vec());
    compile(files, Terms { bound, earlier: Some(earlier), local, ..Terms::default() })
}

/// Reads and compiles as if the file said `strict: true`, where `strict`.
pub fn check(files: &[PathBuf], strict: bool) -> Result<Snapshot, LoadError> {
    compile(files, Terms { strict, ..Terms::default() }).found
}

/// The rules and the name servers of a configuration that says nothing.
pub fn defaults() -> Result<(Arc<EgressRules>, DnsSettings), LoadError> {
    let environment = environment(&lookup, System::read(), Terms::default());
    let snapshot = parse::parse("defaults", "{version: 1, auth: none}", &environment);
    let snapshot = snapshot.map_err(LoadError::Invalid)?;
    Ok((snapshot.egress, snapshot.dns))
}

/// Where the admin listener of a configuration file is, and its token, whatever is wrong with the rest of the file.
pub fn admin(file: &Path) -> Result<Option<(Bind, Option<Secret>)>, LoadError> {
    let name = file.display().to_string();
    let bytes = read(file, yaml::MAX_BYTES);
    let bytes = bytes.map_err(|error| LoadError::Unreadable { file: name.clone(), error })?;
    let environment = environment(&lookup, System::default(), Terms::default());
    Ok(parse::admin(&name, &String::from_utf8_lossy(&bytes), &environment))
}

/// Compiles a text that is no file, with these secrets and nothing of its own that listens: for commands without a
/// configuration.
pub fn compile_text(name: &str, text: &str, lookup: &Lookup<'_>) -> Result<Snapshot, LoadError> {
    let terms = Terms { strict: true, bound: Some(Vec::new()), ..Terms::default() };
    let environment = environment(lookup, System::read(), terms);
    parse::parse(name, text, &environment).map_err(LoadError::Invalid)
}

/// Reads a secret as it is; nothing of it is ever logged.
pub fn lookup(source: &Source) -> Result<Secret, SourceError> {
    read_secret(source, |path| read(path, MAX_SECRET))
}

/// What a load is told besides the file.
#[derive(Default)]
struct Terms<'a> {
    strict: bool,
    bound: Option<Vec<SocketAddr>>,
    earlier: Option<&'a Earlier>,
    local: Option<Local>,
}

impl Load<Result<Snapshot, LoadError>> {
    fn valid(self) -> Result<Load<Snapshot>, LoadError> {
        let Self { found, reading, secrets } = self;
        Ok(Load { found: found?, reading, secrets })
    }
}

fn compile(files: &[PathBuf], terms: Terms<'_>) -> Load<Result<Snapshot, LoadError>> {
    let earlier = terms.earlier;
    let reader = Reader::new(earlier.is_some());
    let found = compile_with(&reader, files, terms);
    let (reading, secrets) = reader.into_reading(earlier);
    Load { found, reading, secrets }
}

fn compile_with(
    reader: &Reader,
    files: &[PathBuf],
    terms: Terms<'_>,
) -> Result<Snapshot, LoadError> {
    let mut read = Vec::with_capacity(files.len());
    for file in files {
        let name = file.display().to_string();
        match reader.file(file, yaml::MAX_BYTES) {
            Ok(bytes) => read.push((name, bytes)),
            Err(error) => return Err(LoadError::Unreadable { file: name, error }),
        }
    }
    let (mut texts, mut errors) = (Vec::with_capacity(read.len()), Vec::new());
    for (file, bytes) in &read {
        match text(bytes) {
            Ok(text) => texts.push(Text { file, text }),
            Err(fault) => errors.push(Finding::of_fault(file, fault)),
        }
    }
    if !errors.is_empty() {
        return Err(LoadError::Invalid(ConfigErrors { errors, warnings: Vec::new() }));
    }
    let lookup = |source: &Source| reader.secret(source);
    let include = |pattern: &Path| reader.include(pattern, yaml::MAX_BYTES);
    let environment =
        Environment { include: &include, ..environment(&lookup, reader.system.clone(), terms) };
    parse::parse_all(&texts, &environment).map_err(LoadError::Invalid)
}

fn environment<'a>(lookup: &'a Lookup<'a>, system: System, terms: Terms<'a>) -> Environment<'a> {
    Environment {
        lookup,
        include: &|_| Ok(Vec::new()),
        resolv_conf: system.resolv_conf,
        interfaces: system.interfaces,
        unix_seconds: SystemClock.unix_ms().div_euclid(1000),
        strict: terms.strict,
        bound: terms.bound,
        earlier: terms.earlier,
        local: terms.local,
        open_telemetry: Variables::read(|name| self::lookup(&Source::Env(name.to_owned())).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_comes_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        std::fs::write(&path, "line\n").expect("written");
        assert_eq!(lookup(&Source::File(path)), Ok(Secret::new("line\n")));
    }

    #[test]
    fn what_is_not_there_is_missing() {
        let missing = Err(SourceError::Missing);
        assert_eq!(lookup(&Source::File("/nowhere/at/all".into())), missing);
        assert_eq!(lookup(&Source::Env("SORTIE_TEST_IS_NOT_SET".into())), missing);
    }

    #[test]
    fn a_large_secret_is_refused_and_a_folder_is_no_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        std::fs::write(&path, vec![b'x'; MAX_SECRET]).expect("written");
        assert!(lookup(&Source::File(path.clone())).is_ok());
        std::fs::write(&path, vec![b'x'; MAX_SECRET + 1]).expect("written");
        assert_eq!(lookup(&Source::File(path)), Err(SourceError::TooLarge));
        let folder = lookup(&Source::File(folder.path().into()));
        assert!(matches!(folder, Err(SourceError::Unreadable(_))), "{folder:?}");
    }

    #[test]
    fn the_defaults_are_a_configuration() {
        let (_, dns) = defaults().expect("valid");
        assert!(!dns.servers.is_empty());
    }

    #[test]
    fn a_file_that_is_not_utf8_is_a_finding_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sortie.yaml");
        for (bytes, place) in [
            (&b"version: 1\nregion: \xc3\xa9\xff\n"[..], "2:10"),
            (&b"\xff\xfev"[..], "1:1"),
            (&b"a: b\n\xe2\x82"[..], "2:1"),
        ] {
            std::fs::write(&path, bytes).expect("written");
            let error = load(std::slice::from_ref(&path)).expect_err("not text");
            let place = format!("{}:{place}: is not UTF-8", path.display());
            let LoadError::Invalid(found) = error else { panic!("{error}") };
            assert_eq!(found.to_string(), place);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = load(&["/nowhere/sortie.yaml".into()]).expect_err("not there");
        assert!(error.to_string().contains("`/nowhere/sortie.yaml` cannot be read: "), "{error}");
    }
}
