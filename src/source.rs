//! Reads what a configuration is made of: its file, secrets, name servers, interface addresses.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::clock::{Clock, SystemClock};
use crate::config::context::{Environment, Source, SourceError};
use crate::config::finding::{ConfigErrors, Finding};
use crate::config::parse;
use crate::config::snapshot::{DnsSettings, Snapshot};
use crate::config::yaml;
use crate::model::secret::Secret;
use crate::policy::address::EgressRules;

/// Larger secrets are refused.
const MAX_SECRET: usize = 64 << 10;
/// Where the system's name servers stand.
const RESOLV_CONF: &str = "/etc/resolv.conf";

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

/// Reads and compiles a configuration file.
pub fn load(file: &Path) -> Result<Snapshot, LoadError> {
    compile(file, environment())
}

/// The same for listeners that took these addresses: with port 0 the file does not know them.
pub fn load_bound(file: &Path, bound: &[SocketAddr]) -> Result<Snapshot, LoadError> {
    compile(file, Environment { bound: Some(bound.to_vec()), ..environment() })
}

/// The same as if the file said `strict: true`, where `strict`.
pub fn check(file: &Path, strict: bool) -> Result<Snapshot, LoadError> {
    compile(file, Environment { strict, ..environment() })
}

/// The rules and the name servers of a configuration that says nothing.
pub fn defaults() -> Result<(Arc<EgressRules>, DnsSettings), LoadError> {
    let snapshot = parse::parse("defaults", "{version: 1, auth: none}", &environment());
    let snapshot = snapshot.map_err(LoadError::Invalid)?;
    Ok((snapshot.egress, snapshot.dns))
}

fn compile(file: &Path, environment: Environment<'_>) -> Result<Snapshot, LoadError> {
    let name = file.display().to_string();
    let unreadable = |error| LoadError::Unreadable { file: name.clone(), error };
    let bytes = read(file, yaml::MAX_BYTES).map_err(unreadable)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| not_utf8(&name, bytes.get(..error.valid_up_to()).unwrap_or_default()))?;
    parse::parse(&name, text, &environment).map_err(LoadError::Invalid)
}

/// The finding for a file of which only the beginning is text.
fn not_utf8(file: &str, beginning: &[u8]) -> LoadError {
    let text = String::from_utf8_lossy(beginning);
    let last = text.rsplit('\n').next().unwrap_or_default();
    let finding = Finding {
        file: file.to_owned(),
        line: text.split('\n').count(),
        column: last.chars().count() + 1,
        path: String::new(),
        message: "is not UTF-8".into(),
    };
    LoadError::Invalid(ConfigErrors { errors: vec![finding], warnings: Vec::new() })
}

fn environment() -> Environment<'static> {
    Environment {
        lookup: &lookup,
        resolv_conf: std::fs::read_to_string(RESOLV_CONF).unwrap_or_default(),
        interfaces: interfaces(),
        unix_seconds: SystemClock.unix_ms().div_euclid(1000),
        strict: false,
        bound: None,
    }
}

/// Reads a secret as it is; nothing of it is ever logged.
pub fn lookup(source: &Source) -> Result<Secret, SourceError> {
    let bytes = match source {
        Source::Env(name) => {
            Zeroizing::new(std::env::var_os(name).ok_or(SourceError::Missing)?.into_vec())
        }
        Source::File(path) => read(path, MAX_SECRET).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => SourceError::Missing,
            _ => SourceError::Unreadable(error.to_string()),
        })?,
    };
    if bytes.len() > MAX_SECRET {
        return Err(SourceError::TooLarge);
    }
    Ok(Secret::new(bytes.as_slice()))
}

/// Reads a file, at most one byte past the limit. The buffer never moves, so no copy of a secret is left behind.
fn read(path: &Path, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let size = file.metadata()?.len().min(most);
    // Room for a file that grows while it is read, and for those that say they have no size.
    let room = usize::try_from(size).unwrap_or(limit).saturating_add(1).max(MAX_SECRET + 32);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The addresses of this machine; none where the system does not tell.
fn interfaces() -> Vec<IpAddr> {
    let found = if_addrs::get_if_addrs().unwrap_or_default();
    found.iter().map(if_addrs::Interface::ip).collect()
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
            let error = load(&path).expect_err("not text");
            let place = format!("{}:{place}: is not UTF-8", path.display());
            let LoadError::Invalid(found) = error else { panic!("{error}") };
            assert_eq!(found.to_string(), place);
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = load(Path::new("/nowhere/sortie.yaml")).expect_err("not there");
        assert!(error.to_string().contains("`/nowhere/sortie.yaml` cannot be read: "), "{error}");
    }
}
