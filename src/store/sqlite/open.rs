//! A file is opened: whose it is, whether it can be used, and its tables as they are now.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};

use crate::store::sqlite::chunks::{self, Loaded};
use crate::store::sqlite::known::Known;
use crate::store::sqlite::segments::{Segments, Shelf};
use crate::store::sqlite::writer::Desk;

/// The tables, version by version: the first makes version 1.
const MIGRATIONS: &[&str] =
    &[include_str!("migrations/0001_first.sql"), include_str!("migrations/0002_segments.sql")];
/// Says that a file is ours: `srti`.
const APPLICATION: i64 = 0x7372_7469;
/// What a store in memory holds at most, finished calls included; the oldest of these go first.
const MEMORY_BYTES: u64 = 32 << 20;
/// What it can hold at all: past this, nothing more can wait.
const MEMORY_PAGES: u64 = (64 << 20) / 4096;
/// A file up to this size is read through at the start.
const CHECKED_BYTES: u64 = 256 << 20;
/// How long a writer waits for somebody else's transaction: an operator's shell may have one.
const BUSY: Duration = Duration::from_secs(5);
/// Bytes of a page: chunks are large, and each page costs.
const PAGE: i64 = 16_384;
/// Pages that the write-ahead log holds before they go into the file: 16 MiB.
const LOG_PAGES: i64 = 1024;

/// Why a file cannot be the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its folder or the file cannot be written.
    #[error("{} cannot be opened for writing: {error}", path.display())]
    Access {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another process has it.
    #[error(
        "{} is in use by another process: each gateway needs a file of its own, or PostgreSQL",
        path.display()
    )]
    Taken {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error(
        "{0} is damaged ({problem}): put a copy of it and of its folder {0}.calls in their place, or \
         move both away to start anew",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        problem: String,
    },
    /// It belongs to another program.
    #[error("{} is a database of another program", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version of Sortie wrote it.
    #[error(
        "{} was written by a later version of sortie (schema {found}, this one knows {known})",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// Anything else.
    #[error("{} cannot be opened: {error}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        error: rusqlite::Error,
    },
}

/// Opens a file, and makes it where there is none.
pub(super) fn file(path: &Path) -> Result<(Desk, Shelf), OpenError> {
    let access = |error| OpenError::Access { path: path.to_owned(), error };
    let lock = lock(path)?;
    // Arguments are in it: nobody else reads them. SQLite gives its log the same mode.
    let mut options = OpenOptions::new();
    let made = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let bytes = made.and_then(|file| file.metadata()).map_err(access)?.len();
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let begin = || -> rusqlite::Result<()> {
        // Of a new file only: what it has stays.
        connection.pragma_update(None, "page_size", PAGE)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", LOG_PAGES * PAGE)
    };
    begin().map_err(|error| explain(path, error))?;
    if bytes <= CHECKED_BYTES {
        let found: rusqlite::Result<String> =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
        match found.map_err(|error| explain(path, error))? {
            fine if fine == "ok" => {}
            problem => return Err(OpenError::Damaged { path: path.to_owned(), problem }),
        }
    }
    migrate(&connection, path)?;
    let marks = "SELECT shelf, first_segment FROM marks";
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get(1)?));
    let marks = connection.query_row(marks, [], read);
    let (mark, first) = marks.map_err(|error| explain(path, error))?;
    let folder = Shelf::folder(path);
    let access = |error| OpenError::Access { path: folder.clone(), error };
    let shelf = Shelf::new(&folder, &mark);
    let lengths = shelf.lengths().map_err(access)?;
    let (mut desk, Loaded { last, lost, .. }) =
        desk(connection, Some((&shelf, &lengths))).map_err(|error| explain(path, error))?;
    desk.segments = Some(Segments::begin(shelf.clone(), last, first).map_err(access)?);
    give_up(&desk.connection, &lost).map_err(|error| explain(path, error))?;
    desk.lock = Some(lock);
    Ok((desk, shelf))
}

/// Opens one in memory.
pub(super) fn memory() -> Result<Desk, OpenError> {
    let path = Path::new(":memory:");
    let explain = |error| explain(path, error);
    let connection = Connection::open_in_memory().map_err(explain)?;
    connection.pragma_update(None, "max_page_count", MEMORY_PAGES as i64).map_err(explain)?;
    migrate(&connection, path)?;
    let (mut desk, _) = desk(connection, None).map_err(explain)?;
    desk.max_bytes = Some(MEMORY_BYTES);
    Ok(desk)
}

/// A connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, OpenError> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn lock(path: &Path) -> Result<File, OpenError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&name);
    let file = file.map_err(|error| OpenError::Access { path: name.into(), error })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Taken { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(OpenError::Access { path: path.to_owned(), error }),
    }
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, OpenError> {
    let open = || {
        let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        Ok(connection)
    };
    open().map_err(|error| explain(path, error))
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let explain = |error| explain(path, error);
    let pragma = |name: &str| {
        connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(explain)
    };
    let (found, known) = (pragma("user_version")?, MIGRATIONS.len() as i64);
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(explain)?;
    if tables > 0 && pragma("application_id")? != APPLICATION {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    if found > known {
        return Err(OpenError::Newer { path: path.to_owned(), found, known });
    }
    for (version, text) in (1_i64..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        let step = format!(
            "BEGIN IMMEDIATE; {text} PRAGMA application_id = {APPLICATION}; \
             PRAGMA user_version = {version}; COMMIT"
        );
        connection.execute_batch(&step).map_err(explain)?;
    }
    Ok(())
}

/// A loss of power took the calls of these chunks.
fn give_up(connection: &Connection, lost: &[i64]) -> rusqlite::Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for n in lost {
        connection.execute("DELETE FROM chunks WHERE n = ?1", [n])?;
    }
    connection.execute_batch("COMMIT")?;
    tracing::warn!(
        batches = lost.len(),
        "The latest finished calls were not on the disk when the machine went down: they are not known any more."
    );
    Ok(())
}

/// A desk in front of tables, and what their chunks say.
fn desk(
    connection: Connection,
    shelf: Option<(&Shelf, &BTreeMap<u64, u64>)>,
) -> rusqlite::Result<(Desk, Loaded)> {
    let marks = "SELECT unbound_before_ms, name_key FROM marks";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (unbound_before_ms, name_key): (i64, [u8; 16]) = connection.query_row(marks, [], read)?;
    let known = Known::new(&name_key);
    known.unbind_before(unbound_before_ms);
    let loaded = chunks::load(&connection, &known, shelf)?;
    let mut next = loaded.next;
    {
        let query = "SELECT n, organisation, id, bound, identity, alias FROM calls ORDER BY n";
        let mut statement = connection.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let n: i64 = row.get(0)?;
            let organisation = row.get_ref(1)?.as_str()?;
            known.add_id(known.of_id_text(organisation, row.get_ref(2)?.as_str()?), n);
            next = next.max(n + 1);
            if row.get(3)? {
                for column in [4, 5] {
                    if let Some(identity) = row.get_ref(column)?.as_str_or_null()? {
                        known.bind(known.of_identity_text(organisation, identity), n);
                    }
                }
            }
        }
    }
    loaded.held.iter().for_each(|one| one.bind(&known));
    known.keep();
    let desk = Desk {
        connection,
        known,
        segments: None,
        has_gaps: false,
        next,
        names: Vec::new(),
        max_calls: None,
        max_bytes: None,
        lock: None,
    };
    Ok((desk, loaded))
}

fn explain(path: &Path, error: rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode as Code;
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => {
            OpenError::Damaged { path, problem: error.to_string() }
        }
        Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => {
            OpenError::Access { path, error: io::Error::other(error) }
        }
        _ => OpenError::Failed { path, error },
    }
}
