//! Files in which the calls of chunks stand. They only grow, so that each call is written once: SQLite would write it into its
//! log and then into its own file.
//!
//! A file is on the disk before the next one begins. So a loss of power takes the end of the last one at most, and whatever
//! else is missing is damage.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file, about: past this the next one begins.
const BYTES: u64 = 16 << 20;

/// Where calls stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the file.
    pub(super) segment: u64,
    /// The first byte.
    pub(super) offset: u64,
    /// How many there are.
    pub(super) bytes: u64,
}

/// The files of a store, for whoever reads. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Shelf {
    folder: Arc<Path>,
    /// Names of the store's own files begin with it.
    mark: Arc<str>,
}

/// The same for the one who writes.
#[derive(Debug)]
pub(super) struct Segments {
    shelf: Shelf,
    /// The one that grows, once something is in it.
    file: Option<File>,
    end: End,
    /// Where the transaction began.
    kept: End,
    /// Files before this one are gone.
    first: u64,
}

/// Where the next calls go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    segment: u64,
    offset: u64,
}

impl Shelf {
    /// Where that of the store in this file is.
    pub(super) fn folder(store: &Path) -> PathBuf {
        let mut folder = store.as_os_str().to_owned();
        folder.push(".calls");
        folder.into()
    }

    /// The one in this folder, which is made where there is none. `mark` keeps apart two stores that stood in one place
    /// after each other.
    pub(super) fn open(folder: &Path, mark: &str) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Ok(Self { folder: folder.into(), mark: mark.into() })
    }

    /// The calls that stand there; none where their file is gone.
    pub(super) fn read(&self, place: Place) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path(place.segment)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let length = usize::try_from(place.bytes).map_err(io::Error::other)?;
        let mut calls = vec![0; length];
        file.read_exact_at(&mut calls, place.offset)?;
        Ok(Some(calls))
    }

    /// How long each file is.
    pub(super) fn lengths(&self) -> io::Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(&*self.mark));
            let number = number.and_then(|rest| rest.strip_prefix('-')?.parse().ok());
            if let Some(number) = number {
                found.insert(number, entry.metadata()?.len());
            }
        }
        Ok(found)
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{}-{segment:08}", self.mark))
    }

    fn remove(&self, segment: u64) {
        match fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let file = self.path(segment);
                tracing::warn!(%error, file = %file.display(), "A file of forgotten calls stays until the next start.");
            }
            _ => {}
        }
    }
}

impl Segments {
    /// Goes on behind the files that are there. Those that no chunk is in are what an ended process left, and go; `wanted` has the rest.
    pub(super) fn begin(shelf: Shelf, wanted: &[u64]) -> io::Result<Self> {
        let found = shelf.lengths()?;
        if let Some(last) = wanted.last() {
            // It was not full when its process ended.
            File::open(shelf.path(*last))?.sync_data()?;
        }
        found.keys().filter(|one| !wanted.contains(one)).for_each(|one| shelf.remove(*one));
        let next = found.last_key_value().map_or(1, |(last, _)| last + 1);
        let end = End { segment: next, offset: 0 };
        let first = wanted.first().copied().unwrap_or(next);
        Ok(Self { shelf, file: None, end, kept: end, first })
    }

    /// For whoever reads.
    pub(super) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// Puts calls behind those that are there, and says where.
    pub(super) fn append(&mut self, calls: &[u8]) -> io::Result<Place> {
        if self.end.offset >= BYTES {
            self.turn()?;
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => self.make()?,
        };
        let file = self.file.insert(file);
        let End { segment, offset } = self.end;
        if let Err(error) = file.write_all_at(calls, offset) {
            // A full disk has better use for the half of it.
            let _ = file.set_len(offset);
            return Err(error);
        }
        let bytes = calls.len() as u64;
        self.end.offset += bytes;
        Ok(Place { segment, offset, bytes })
    }

    /// What was put here since the transaction began is kept.
    pub(super) fn keep(&mut self) {
        self.kept = self.end;
    }

    /// What was put here since the transaction began is not.
    pub(super) fn undo(&mut self) {
        if self.kept.segment == self.end.segment {
            self.end = self.kept;
        } else {
            self.end.offset = 0;
        }
        if let Some(file) = &self.file {
            // What is left behind the end is written over, or goes with the file.
            let _ = file.set_len(self.end.offset);
        }
    }

    /// Files before this one have no calls any more.
    pub(super) fn forget_before(&mut self, segment: u64) {
        let gone = self.first..segment.min(self.end.segment);
        self.first = self.first.max(gone.end);
        gone.for_each(|one| self.shelf.remove(one));
    }

    /// The file that is full is on the disk, the next one begins.
    fn turn(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.sync_data()?;
        }
        self.file = None;
        self.end = End { segment: self.end.segment + 1, offset: 0 };
        Ok(())
    }

    fn make(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let path = self.shelf.path(self.end.segment);
        // Arguments are in it: nobody else reads them.
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
        File::open(&self.shelf.folder)?.sync_all()?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Shelf) {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::open(folder.path(), "ab").expect("it is made");
        (folder, shelf)
    }

    fn read(shelf: &Shelf, place: Place) -> Option<Vec<u8>> {
        shelf.read(place).expect("it can be read")
    }

    #[test]
    fn calls_are_read_where_they_were_put_and_a_full_file_is_followed_by_the_next() {
        let (_folder, shelf) = folder();
        let mut segments = Segments::begin(shelf.clone(), &[]).expect("it begins");
        let large = vec![7; BYTES as usize];
        let put = [&b"first"[..], &large, b"next"];
        let places = put.map(|calls| segments.append(calls).expect("there is room"));
        assert_eq!(places.map(|place| (place.segment, place.offset)), [(1, 0), (1, 5), (2, 0)]);
        for (place, calls) in places.into_iter().zip(put) {
            assert!(read(&shelf, place).as_deref() == Some(calls), "{place:?}");
        }
        segments.keep();
        segments.forget_before(2);
        assert_eq!((read(&shelf, places[0]), shelf.lengths().expect("it works").len()), (None, 1));
        segments.forget_before(u64::MAX);
        assert!(read(&shelf, places[2]).is_some(), "the one that grows stays");
    }

    #[test]
    fn what_was_not_kept_makes_room() {
        let (_folder, shelf) = folder();
        let mut segments = Segments::begin(shelf.clone(), &[]).expect("it begins");
        let lengths = || shelf.lengths().expect("it works").into_values().collect::<Vec<_>>();
        segments.append(b"kept").expect("there is room");
        segments.keep();
        segments.append(b"not kept").expect("there is room");
        segments.undo();
        assert_eq!(lengths(), [4]);
        let large = vec![7; BYTES as usize];
        for calls in [&large[..], b"in the next file"] {
            segments.append(calls).expect("there is room");
        }
        segments.undo();
        let again = segments.append(b"again").expect("there is room");
        assert_eq!(again, Place { segment: 2, offset: 0, bytes: 5 });
        assert_eq!(read(&shelf, again).as_deref(), Some(&b"again"[..]));
    }

    /// Two stores that stood in one place after each other share a folder.
    #[test]
    fn a_start_leaves_what_is_wanted_and_what_is_another_stores() {
        let (folder, shelf) = folder();
        let other = Shelf::open(folder.path(), "cd").expect("it is there");
        for shelf in [&shelf, &other] {
            for number in 1..=3_u64 {
                fs::write(shelf.path(number), number.to_string()).expect("it is written");
            }
        }
        fs::write(shelf.folder.join("ab-notes"), "of the operator").expect("it is written");
        let mut segments = Segments::begin(shelf.clone(), &[2]).expect("it begins");
        let numbers =
            |shelf: &Shelf| shelf.lengths().expect("it works").into_keys().collect::<Vec<_>>();
        assert_eq!((numbers(&shelf), numbers(&other)), (vec![2], vec![1, 2, 3]));
        assert!(shelf.folder.join("ab-notes").exists());
        assert_eq!(segments.append(b"next").expect("there is room").segment, 4);
        segments.keep();
        segments.forget_before(4);
        assert_eq!(numbers(&shelf), [4]);
    }
}
