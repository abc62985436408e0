//! Files in which the calls of chunks stand. They only grow, so that each call is written once: SQLite would write it into its
//! log and then into its own file.
//!
//! A file is on the disk before the next one begins, and its name before a row tells of it. So a loss of power takes the end
//! of the last one at most, and whatever else is missing is damage.

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
    /// CRC-32 of them.
    pub(super) checksum: u32,
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
    /// The one that grows, where it is open.
    file: Option<File>,
    end: End,
    /// It has what is not on the disk yet.
    is_dirty: bool,
    /// When a sweep first saw something in it.
    seen_at_ms: Option<i64>,
    /// Files before this one are gone.
    first: u64,
}

/// Where the next calls go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
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

    /// The one in this folder. `mark` keeps apart two stores that stood in one place after each other.
    pub(super) fn new(folder: &Path, mark: &str) -> Self {
        Self { folder: folder.into(), mark: mark.into() }
    }

    /// The calls that stand there, as they were put there.
    pub(super) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let path = self.path(place.segment);
        let read = || {
            let mut calls = vec![0; usize::try_from(place.bytes).map_err(io::Error::other)?];
            File::open(&path)?.read_exact_at(&mut calls, place.offset)?;
            if crc32fast::hash(&calls) != place.checksum {
                let text =
                    format!("what stands at byte {} is not what was put there", place.offset);
                return Err(io::Error::new(ErrorKind::InvalidData, text));
            }
            Ok(calls)
        };
        read().map_err(|error| at(&path, &error))
    }

    /// How long each file is: none where there is no folder.
    pub(super) fn lengths(&self) -> io::Result<BTreeMap<u64, u64>> {
        let mut found = BTreeMap::new();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
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

    /// The file of this number.
    pub(super) fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(format!("{}-{segment:08}", self.mark))
    }

    fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Ok(()) => sync_folder(self.folder.parent().unwrap_or(&self.folder)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, segment: u64) {
        let path = self.path(segment);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, file = %path.display(), "A file of forgotten calls could not be removed.");
            }
            _ => {}
        }
    }
}

impl Segments {
    /// Goes on behind the files that are there; `last` is the one that the last chunk is in, and those before `first` are
    /// forgotten. The folder is made where there is none.
    pub(super) fn begin(shelf: Shelf, last: Option<u64>, first: u64) -> io::Result<Self> {
        shelf.make()?;
        let found = shelf.lengths()?;
        if let Some(last) = last {
            // It was not full when its process ended.
            File::open(shelf.path(last))?.sync_data()?;
        }
        let next = found.last_key_value().map_or(
            first,
            |(last, bytes)| {
                if *bytes == 0 { *last } else { last + 1 }
            },
        );
        // No number is used twice.
        let segment = next.max(first);
        let end = End { segment, offset: 0 };
        let oldest = found.first_key_value().map_or(segment, |(oldest, _)| *oldest);
        let mut segments =
            Self { shelf, file: None, end, is_dirty: false, seen_at_ms: None, first: oldest };
        segments.remove_before(first);
        // A folder that cannot be written is seen at the start.
        segments.file()?;
        Ok(segments)
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
        let End { segment, offset } = self.end;
        let path = self.shelf.path(segment);
        let file = self.file()?;
        if let Err(error) = file.write_all_at(calls, offset) {
            // A full disk has better use for the half of it.
            let _ = file.set_len(offset);
            return Err(at(&path, &error));
        }
        let bytes = calls.len() as u64;
        self.end.offset += bytes;
        self.is_dirty = true;
        Ok(Place { segment, offset, bytes, checksum: crc32fast::hash(calls) })
    }

    /// What `undo` goes back to.
    pub(super) fn mark(&self) -> End {
        self.end
    }

    /// What was put here since then is not.
    pub(super) fn undo(&mut self, mark: End) {
        if mark == self.end {
            return;
        }
        if mark.segment != self.end.segment {
            (mark.segment + 1..=self.end.segment).for_each(|one| self.shelf.remove(one));
            self.file = None;
        }
        self.end = mark;
        // Where it fails, the next calls are written over what is left.
        let _ = self.file().and_then(|file| file.set_len(mark.offset));
    }

    /// The first of the files that are still needed, where some are not; `wanted` is the first that a chunk is in.
    pub(super) fn needed(&self, wanted: Option<u64>) -> Option<u64> {
        let needed = wanted.unwrap_or(u64::MAX).min(self.end.segment);
        (needed > self.first).then_some(needed)
    }

    /// Files before this one go.
    pub(super) fn remove_before(&mut self, segment: u64) {
        let gone = self.first..segment.min(self.end.segment);
        self.first = self.first.max(gone.end);
        gone.for_each(|one| self.shelf.remove(one));
    }

    /// What is there is on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            let path = self.shelf.path(self.end.segment);
            self.file()?.sync_data().map_err(|error| at(&path, &error))?;
            self.is_dirty = false;
        }
        Ok(())
    }

    /// The next file begins where this one has had calls for so long: a file goes as a whole, with its youngest call.
    /// Whether it did.
    pub(super) fn turn_after(&mut self, age_ms: i64, now_ms: i64) -> io::Result<bool> {
        let seen_at_ms = self.seen_at_ms.filter(|_| self.end.offset > 0);
        let is_old = seen_at_ms.is_some_and(|seen| now_ms.saturating_sub(seen) >= age_ms);
        if is_old {
            self.turn()?;
        } else {
            self.seen_at_ms = seen_at_ms.or((self.end.offset > 0).then_some(now_ms));
        }
        Ok(is_old)
    }

    /// The file that is full is on the disk, the next one begins.
    fn turn(&mut self) -> io::Result<()> {
        self.sync()?;
        self.file = None;
        self.seen_at_ms = None;
        self.end = End { segment: self.end.segment + 1, offset: 0 };
        Ok(())
    }

    /// The one that grows; it is made where nothing is in it yet.
    fn file(&mut self) -> io::Result<&File> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                let path = self.shelf.path(self.end.segment);
                self.open(&path).map_err(|error| at(&path, &error))?
            }
        };
        Ok(self.file.insert(file))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        let is_new = self.end.offset == 0;
        let mut options = OpenOptions::new();
        // Arguments are in it: nobody else reads them.
        let file = options.write(true).create(is_new).truncate(is_new).mode(0o600).open(path)?;
        if is_new {
            sync_folder(&self.shelf.folder)?;
        }
        Ok(file)
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

/// The error with the file that it is about.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Shelf) {
        let folder = tempfile::tempdir().expect("a folder");
        let shelf = Shelf::new(folder.path(), "ab");
        (folder, shelf)
    }

    fn begin(shelf: &Shelf) -> Segments {
        Segments::begin(shelf.clone(), None, 1).expect("it begins")
    }

    fn lengths(shelf: &Shelf) -> Vec<(u64, u64)> {
        shelf.lengths().expect("it works").into_iter().collect()
    }

    fn put(segments: &mut Segments, calls: &[u8]) -> Place {
        segments.append(calls).expect("there is room")
    }

    #[test]
    fn calls_are_read_where_they_were_put_and_a_full_file_is_followed_by_the_next() {
        let (_folder, shelf) = folder();
        let mut segments = begin(&shelf);
        let large = vec![7; BYTES as usize];
        let calls = [&b"first"[..], &large, b"next"];
        let places = calls.map(|calls| put(&mut segments, calls));
        assert_eq!(places.map(|place| (place.segment, place.offset)), [(1, 0), (1, 5), (2, 0)]);
        for (place, calls) in places.into_iter().zip(calls) {
            assert!(shelf.read(place).expect("it is there") == calls, "{place:?}");
        }
        assert_eq!((segments.needed(Some(1)), segments.needed(None)), (None, Some(2)));
        segments.remove_before(2);
        let gone = shelf.read(places[0]).expect_err("it is gone").to_string();
        assert!(gone.contains("ab-00000001"), "{gone}");
        segments.remove_before(u64::MAX);
        assert_eq!(lengths(&shelf), [(2, 4)], "the one that grows stays");
    }

    #[test]
    fn what_was_not_kept_makes_room_also_where_it_went_into_further_files() {
        let (_folder, shelf) = folder();
        let mut segments = begin(&shelf);
        put(&mut segments, b"kept");
        let mark = segments.mark();
        put(&mut segments, b"not kept");
        segments.undo(mark);
        assert_eq!(lengths(&shelf), [(1, 4)]);
        let large = vec![7; BYTES as usize];
        for calls in [&large[..], &large, b"in the third file"] {
            put(&mut segments, calls);
        }
        segments.undo(mark);
        assert_eq!(lengths(&shelf), [(1, 4)]);
        let again = put(&mut segments, b"again");
        assert_eq!((again.segment, again.offset), (1, 4));
        assert_eq!(shelf.read(again).expect("it is there"), b"again");
    }

    #[test]
    fn what_was_changed_is_not_taken_for_what_was_put_there() {
        let (_folder, shelf) = folder();
        let place = put(&mut begin(&shelf), b"a call");
        fs::write(shelf.path(1), b"a c\0ll").expect("it is written");
        let error = shelf.read(place).expect_err("it is not the same").to_string();
        assert!(error.contains("ab-00000001") && error.contains("byte 0"), "{error}");
    }

    /// Two stores that stood in one place after each other share a folder; an older copy of a store may stand in it again.
    #[test]
    fn a_start_removes_what_is_known_to_be_forgotten_and_nothing_else() {
        let (folder, shelf) = folder();
        let other = Shelf::new(folder.path(), "cd");
        for shelf in [&shelf, &other] {
            for number in 1..=4_u64 {
                fs::write(shelf.path(number), "calls").expect("it is written");
            }
        }
        fs::write(folder.path().join("ab-notes"), "of the operator").expect("it is written");
        let numbers =
            |shelf: &Shelf| lengths(shelf).into_iter().map(|one| one.0).collect::<Vec<_>>();
        let mut segments = Segments::begin(shelf.clone(), Some(3), 3).expect("it begins");
        assert_eq!((numbers(&shelf), numbers(&other)), (vec![3, 4, 5], vec![1, 2, 3, 4]));
        assert!(folder.path().join("ab-notes").exists());
        assert_eq!(put(&mut segments, b"next").segment, 5);
        segments.remove_before(5);
        drop(segments);
        let numbers_again = |first| {
            drop(Segments::begin(shelf.clone(), None, first).expect("it begins"));
            numbers(&shelf)
        };
        assert_eq!((numbers_again(5), numbers_again(5)), (vec![5, 6], vec![5, 6]));
        fs::remove_file(shelf.path(5)).and(fs::remove_file(shelf.path(6))).expect("they are there");
        assert_eq!(numbers_again(9), [9], "no number is used twice");
    }

    #[test]
    fn a_file_that_is_old_is_followed_by_the_next() {
        let (_folder, shelf) = folder();
        let mut segments = begin(&shelf);
        let turns =
            |now_ms, segments: &mut Segments| segments.turn_after(10, now_ms).expect("it works");
        assert!(!turns(0, &mut segments) && !turns(100, &mut segments), "nothing is in it");
        put(&mut segments, b"calls");
        let seen = [200, 209, 210, 300].map(|now_ms| turns(now_ms, &mut segments));
        assert_eq!(seen, [false, false, true, false]);
        assert_eq!(put(&mut segments, b"calls").segment, 2);
    }
}
