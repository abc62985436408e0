//! What one load read: each file once, and enough of it to see later whether anything has changed.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::config::context::{Earlier, FoundFile, Source, SourceError};
use crate::config::yaml::{Fault, Position};
use crate::model::secret::Secret;
use crate::source::glob::{Expansion, expand};

/// Larger secrets are refused.
pub(super) const MAX_SECRET: usize = 64 << 10;
/// Where the system's name servers stand.
pub const RESOLV_CONF: &str = "/etc/resolv.conf";

/// What a configuration was made of, by digests: two of them are equal where everything that was read is the same, also
/// what was not there.
#[derive(Clone, PartialEq, Eq)]
pub struct Reading {
    files: BTreeMap<PathBuf, Seen>,
    /// What patterns named.
    patterns: BTreeMap<PathBuf, Named>,
    system: System,
    unreadable: usize,
}

/// What a pattern names.
type Named = Result<Vec<PathBuf>, io::ErrorKind>;

/// One file as it was found.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    /// No more than this was read of it.
    limit: usize,
    content: Result<[u8; 32], io::ErrorKind>,
}

/// The machine's own settings.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct System {
    pub(super) resolv_conf: String,
    pub(super) interfaces: Vec<IpAddr>,
}

/// Reads for one load. A file that is asked for twice has one content, whatever happens to it in between.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) system: System,
    /// Whether it is not the first load.
    again: bool,
    files: RefCell<BTreeMap<PathBuf, Seen>>,
    patterns: RefCell<BTreeMap<PathBuf, Named>>,
    secrets: RefCell<HashMap<Source, Result<Secret, SourceError>>>,
}

impl Reading {
    /// Whether everything still is as it was read.
    pub fn is_current(&self) -> bool {
        let same = |(path, seen): (&PathBuf, &Seen)| {
            is_pipe(path) || Seen::of(&read(path, seen.limit), seen.limit) == *seen
        };
        let same_names = |(pattern, seen): (&PathBuf, &Named)| named(&expand(pattern)) == *seen;
        self.system == System::read()
            && self.patterns.iter().all(same_names)
            && self.files.iter().all(same)
    }

    /// The folders in which a pattern may name further files.
    pub fn folders(&self) -> impl Iterator<Item = PathBuf> {
        let expanded = self.patterns.keys().filter_map(|pattern| expand(pattern).ok());
        expanded.flat_map(|expansion| expansion.folders)
    }

    /// The files, also those that were not there.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.keys().map(PathBuf::as_path)
    }

    /// How many secrets could not be read.
    pub fn unreadable(&self) -> usize {
        self.unreadable
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A digest of a short secret is nearly the secret.
        f.debug_set().entries(self.files.keys()).finish()
    }
}

impl Seen {
    fn of(read: &io::Result<Zeroizing<Vec<u8>>>, limit: usize) -> Self {
        let content = read.as_ref().map(|bytes| Sha256::digest(bytes.as_slice()).into());
        Self { limit, content: content.map_err(io::Error::kind) }
    }
}

impl System {
    pub(super) fn read() -> Self {
        let found = if_addrs::get_if_addrs().unwrap_or_default();
        let mut interfaces: Vec<_> = found.iter().map(if_addrs::Interface::ip).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        Self { resolv_conf: std::fs::read_to_string(RESOLV_CONF).unwrap_or_default(), interfaces }
    }
}

impl Reader {
    /// `again`: for another load of the same process.
    pub(super) fn new(again: bool) -> Self {
        Self { system: System::read(), again, ..Self::default() }
    }

    /// A file's bytes, at most one past the limit.
    pub(super) fn file(&self, path: &Path, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
        let bytes = if self.again && is_pipe(path) {
            // Opened again it may never give anything, nor end.
            Err(io::Error::other("it is a pipe, which is read once"))
        } else {
            read(path, limit)
        };
        self.files.borrow_mut().insert(path.to_owned(), Seen::of(&bytes, limit));
        bytes
    }

    /// The files that a pattern names, and their texts of at most so many bytes.
    pub(super) fn include(
        &self,
        pattern: &Path,
        limit: usize,
    ) -> Result<Vec<FoundFile>, SourceError> {
        let expansion = expand(pattern);
        self.patterns.borrow_mut().insert(pattern.to_owned(), named(&expansion));
        let files = expansion.map_err(|error| SourceError::Unreadable(error.to_string()))?.files;
        let found = files.into_iter().map(|path| {
            let text = match self.file(&path, limit) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && path == pattern => {
                    return Err(SourceError::Missing);
                }
                Err(error) => Err(Fault::of_file(format!("cannot be read: {error}"))),
                Ok(bytes) => text(&bytes).map(Arc::from),
            };
            Ok(FoundFile { path, text })
        });
        found.collect()
    }

    /// A secret as it is.
    pub(super) fn secret(&self, source: &Source) -> Result<Secret, SourceError> {
        if let Some(known) = self.secrets.borrow().get(source) {
            return known.clone();
        }
        let found = read_secret(source, |path| self.file(path, MAX_SECRET));
        self.secrets.borrow_mut().insert(source.clone(), found.clone());
        found
    }

    /// What was read, and the secrets that were asked for: those that could not be read with their earlier value.
    pub(super) fn into_reading(
        self,
        earlier: Option<&Earlier>,
    ) -> (Reading, HashMap<Source, Secret>) {
        let secrets = self.secrets.into_inner();
        let is_lacking = |(source, found): &(&Source, &Result<Secret, SourceError>)| {
            let may_be_absent = matches!(source, Source::OptionalFile(_));
            found.as_ref().is_err_and(|error| *error != SourceError::Missing || !may_be_absent)
        };
        let unreadable = secrets.iter().filter(is_lacking).count();
        let reading = Reading {
            files: self.files.into_inner(),
            patterns: self.patterns.into_inner(),
            system: self.system,
            unreadable,
        };
        let secrets = secrets.into_iter().filter_map(|(source, found)| {
            let kept = |error| match (&source, error) {
                // It was taken away, and that is what was meant.
                (Source::OptionalFile(_), SourceError::Missing) => None,
                _ => earlier.and_then(|earlier| earlier.secret(&source)).cloned(),
            };
            let secret = found.map_or_else(kept, Some)?;
            Some((source, secret))
        });
        (reading, secrets.collect())
    }
}

/// Reads a secret, a file by the given function; nothing of it is ever logged.
pub(super) fn read_secret(
    source: &Source,
    read: impl FnOnce(&Path) -> io::Result<Zeroizing<Vec<u8>>>,
) -> Result<Secret, SourceError> {
    let bytes = match source {
        Source::Env(name) => {
            Zeroizing::new(std::env::var_os(name).ok_or(SourceError::Missing)?.into_vec())
        }
        Source::File(path) | Source::OptionalFile(path) => {
            read(path).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => SourceError::Missing,
                _ => SourceError::Unreadable(error.to_string()),
            })?
        }
    };
    if bytes.len() > MAX_SECRET {
        return Err(SourceError::TooLarge);
    }
    Ok(Secret::new(bytes.as_slice()))
}

/// The text of a file, or where it stops being one.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| {
        let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let good = String::from_utf8_lossy(good);
        let last = good.rsplit('\n').next().unwrap_or_default();
        let (line, column) = (good.split('\n').count(), last.chars().count() + 1);
        Fault { position: Position { line, column }, ..Fault::of_file("is not UTF-8") }
    })
}

fn named(expansion: &io::Result<Expansion>) -> Named {
    expansion.as_ref().map(|found| found.files.clone()).map_err(io::Error::kind)
}

/// Whether a file gives what it has once: it is not asked again.
fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Reads a file, at most one byte past the limit. The buffer never moves, so no copy of a secret is left behind.
pub(super) fn read(path: &Path, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let size = file.metadata()?.len().min(most);
    // Room for a file that grows while it is read, and for those that say they have no size.
    let room = usize::try_from(size).unwrap_or(limit).saturating_add(1).max(MAX_SECRET + 32);
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    fn read_both(folder: &Path) -> (Reading, HashMap<Source, Secret>) {
        let reader = Reader::new(false);
        reader.file(&folder.join("config"), 1 << 20).expect("a file");
        // Not there is an answer too.
        let _ = reader.secret(&Source::File(folder.join("secret")));
        reader.into_reading(None)
    }

    #[test]
    fn any_change_of_content_is_seen_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        write("config", "one");
        let (missing, secrets) = read_both(folder.path());
        assert!(missing.is_current() && secrets.is_empty());
        assert_eq!((missing.files().count(), missing.unreadable()), (2, 1));
        write("secret", "a");
        assert!(!missing.is_current(), "a secret came");
        let (first, secrets) = read_both(folder.path());
        assert_eq!((secrets.len(), first.unreadable()), (1, 0));
        write("config", "two");
        assert!(!first.is_current(), "the same size, and perhaps the same second");
        write("config", "one");
        assert!(first.is_current(), "as it was");
        assert!(first == read_both(folder.path()).0 && first != missing);
        std::fs::remove_file(folder.path().join("secret")).expect("a file");
        assert!(!first.is_current() && missing.is_current());
    }

    #[test]
    fn a_file_has_one_content_in_one_load() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        std::fs::write(&path, "before").expect("written");
        let (reader, source) = (Reader::new(false), Source::File(path.clone()));
        let first = reader.secret(&source);
        std::fs::write(&path, "after").expect("written");
        assert_eq!((first.clone(), reader.secret(&source)), (Ok(Secret::new("before")), first));
        assert!(!reader.into_reading(None).0.is_current(), "the change is seen by the next look");
    }

    #[test]
    fn a_pipe_is_read_by_the_first_load_alone() {
        let (kept, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"once").expect("written");
        drop(writer);
        let source = Source::File(format!("/proc/self/fd/{}", kept.as_raw_fd()).into());
        let first = Reader::new(false);
        assert_eq!(first.secret(&source), Ok(Secret::new("once")));
        assert!(first.into_reading(None).0.is_current());
        let again = Reader::new(true);
        assert!(matches!(again.secret(&source), Err(SourceError::Unreadable(_))));
    }
}
