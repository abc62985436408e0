//! Finished calls that nobody waits for: hundreds of them in one row.
//!
//! Such a call is never changed there. Whoever changes it takes it out into a row of its own first; the index in memory
//! then points there, and what is left in the chunk no longer counts.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::ops::Range;

use rusqlite::{Connection, MAIN_DB, OptionalExtension, Row, params};

use crate::store::StoreError;
use crate::store::batch::Batch;
use crate::store::frame::{self, Frame};
use crate::store::records::{CallFilter, CallRecord};
use crate::store::row::CallRow;
use crate::store::sqlite::calls::{Writing, put, to_i64};
use crate::store::sqlite::known::{Known, Name};
use crate::store::sqlite::mark::{Marks, Wanted};
use crate::store::sqlite::names::{self, Names};
use crate::store::sqlite::segments::{Place, Shelf};
use crate::store::sqlite::view::View;
use crate::store::sqlite::writer::{Desk, failed};

/// Calls of a chunk at most.
const CALLS: i64 = 512;
/// Bytes of a chunk, about: past this the next one begins.
const BYTES: usize = 1 << 20;

/// Where a call in a chunk is: below zero, where no row's number is.
fn place(chunk: i64, slot: i64) -> i64 {
    -(chunk * CALLS + slot) - 1
}

/// The chunk and the slot of a place; `None` for a row of its own.
fn chunk_of(place: i64) -> Option<(i64, i64)> {
    (place < 0).then(|| (-(place + 1) / CALLS, -(place + 1) % CALLS))
}

/// Where a walk over rows and chunks meets a row: rows and chunks are numbered together, each number has `CALLS` positions.
pub(super) fn position(row: i64) -> i64 {
    row * CALLS + CALLS - 1
}

/// The row at a position.
pub(super) fn row_at(position: i64) -> i64 {
    position / CALLS
}

/// Rows with a smaller number than this stand below a position.
pub(super) fn row_below(position: i64) -> i64 {
    position.div_euclid(CALLS)
}

/// A chunk that is being filled.
struct Filling {
    n: i64,
    calls: i64,
    /// Where they are in the batch.
    place: Range<usize>,
    oldest_ms: i64,
    newest_ms: i64,
    marks: Marks,
}

impl Desk {
    /// Keeps many: those that are new and final in chunks.
    pub(super) fn put_all(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let mut filling: Option<Filling> = None;
        self.names.clear();
        for call in batch.calls() {
            let (at, call) = call?;
            let id = self.known.of_id_text(call.organisation, call.id);
            let is_known = self.known.row(id).is_some();
            if is_known || !call.is_final() {
                // It may stand in the chunk that is being filled.
                self.store_chunk(batch, filling.take())?;
                self.put(&call.record()?)?;
                continue;
            }
            if filling.as_ref().is_some_and(|chunk| chunk.place.end != at.start) {
                self.store_chunk(batch, filling.take())?;
            }
            let chunk = filling.get_or_insert_with(|| {
                self.next += 1;
                let (oldest_ms, newest_ms) = (i64::MAX, i64::MIN);
                let marks = Marks::default();
                let place = at.start..at.start;
                Filling { n: self.next - 1, calls: 0, place, oldest_ms, newest_ms, marks }
            });
            let ended = call.finished_at_ms.unwrap_or(call.created_at_ms);
            let place = place(chunk.n, chunk.calls);
            chunk.calls += 1;
            chunk.oldest_ms = chunk.oldest_ms.min(ended);
            // A clock may have jumped back while it ran.
            chunk.newest_ms = chunk.newest_ms.max(ended).max(call.created_at_ms);
            chunk.marks.add(&call);
            chunk.place.end = at.end;
            let held = |identity: Option<&str>| {
                let identity = identity.filter(|_| call.bound)?;
                Some(self.known.of_identity_text(call.organisation, identity))
            };
            let identities = [held(call.identity), held(call.alias)];
            let ended_ms = call.finished_at_ms.unwrap_or(i64::MAX);
            names::push(&mut self.names, &Names { id, identities, ended_ms });
            self.known.add(id, identities, place);
            if chunk.calls == CALLS || chunk.place.len() >= BYTES {
                self.store_chunk(batch, filling.take())?;
            }
        }
        self.store_chunk(batch, filling)
    }

    fn store_chunk(&mut self, batch: &Batch, chunk: Option<Filling>) -> Result<(), StoreError> {
        let Some(chunk) = chunk else { return Ok(()) };
        let insert = "INSERT INTO chunks (n, first, oldest_ms, newest_ms, marks, names, bytes, \
            records, segment, offset, checksum) \
            VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6, zeroblob(?7), ?8, ?9, ?10)";
        let Filling { n, place, oldest_ms, newest_ms, marks, .. } = chunk;
        let records = batch.slice(&place);
        let place = self.segments.as_mut().map(|segments| segments.append(records)).transpose();
        let place = place.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let bytes = to_i64(records.len());
        let within = if place.is_none() { bytes } else { 0 };
        let [segment, offset, checksum] =
            place.map_or([None; 3], |at| [at.segment, at.offset, u64::from(at.checksum)].map(Some));
        let marks = marks.bytes();
        let values = params![
            n, oldest_ms, newest_ms, marks, self.names, bytes, within, segment, offset, checksum
        ];
        let result = self.connection.execute(insert, values);
        self.names.clear();
        result.map_err(failed)?;
        if place.is_some() {
            return Ok(());
        }
        // Into its pages at once: as a value it would be copied twice more.
        let written = || -> rusqlite::Result<()> {
            self.connection.blob_open(MAIN_DB, "chunks", "records", n, false)?.write_at(records, 0)
        };
        written().map_err(failed)
    }

    /// The row of a call; one in a chunk gets one.
    pub(super) fn row(&mut self, name: Name) -> Result<Option<i64>, StoreError> {
        let Some(place) = self.known.row(name) else { return Ok(None) };
        if place >= 0 {
            return Ok(Some(place));
        }
        let record = find(&self.view(), place)?;
        let record = record.ok_or_else(|| lost(place))?.read()?;
        // The index forgets the chunk, so that the call is a new one for `put`.
        let id = self.known.of_id(&record.organisation, &record.id);
        self.known.remove_id(id);
        for identity in [&record.identity, &record.alias].into_iter().flatten() {
            self.known.unbind(self.known.of_identity(&record.organisation, identity), place);
        }
        let mut writing = Writing::prepare(&self.connection)?;
        let row = put(&mut writing, &self.connection, &self.known, &mut self.next, &record)?;
        Ok(Some(row))
    }

    /// What was kept of a call in a chunk makes room for what is known now, where it cannot be read: the call ran.
    pub(super) fn give_up_unreadable(&self, name: Name, record: &CallRecord) {
        let Some(place) = self.known.row(name).filter(|place| *place < 0) else { return };
        let Err(error) = find(&self.view(), place) else { return };
        tracing::warn!(%error, call_id = record.id.as_str(), "What was kept of a call before is given up.");
        self.known.remove_id(name);
        for identity in [&record.identity, &record.alias].into_iter().flatten() {
            self.known.unbind(self.known.of_identity(&record.organisation, identity), place);
        }
    }

    /// The first calls of a chunk go, so many at most; how many went.
    pub(super) fn forget_chunk(&mut self, n: i64, most: usize) -> Result<usize, StoreError> {
        let query = "SELECT first, names FROM chunks WHERE n = ?1";
        let mut statement = self.connection.prepare(query).map_err(failed)?;
        let mut rows = statement.query([n]).map_err(failed)?;
        let Some(row) = rows.next().map_err(failed)? else { return Ok(0) };
        let first: i64 = row.get(0).map_err(failed)?;
        let kept = row.get_ref(1).map_err(failed)?.as_blob().map_err(|_| lost(n))?;
        let (mut gone, mut next, mut is_whole) = (0, first, true);
        for (slot, names) in (0..).zip(names::all(kept)).filter(|(slot, _)| *slot >= first) {
            if gone == most {
                is_whole = false;
                break;
            }
            let names = names?;
            let place = place(n, slot);
            gone += usize::from(self.known.remove(names.id, names.identities, place));
            next = slot + 1;
        }
        let done = if is_whole {
            self.has_gaps = true;
            self.connection.execute("DELETE FROM chunks WHERE n = ?1", [n])
        } else {
            self.connection.execute("UPDATE chunks SET first = ?2 WHERE n = ?1", [n, next])
        };
        done.map_err(failed)?;
        // Even one without a live call makes room.
        Ok(gone.max(usize::from(is_whole)))
    }

    /// After a transaction: the segments that no chunk is in any more go.
    pub(super) fn clear_segments(&mut self) {
        let Some(segments) = self.segments.as_mut().filter(|_| self.has_gaps) else { return };
        let query = "SELECT segment FROM chunks WHERE segment IS NOT NULL ORDER BY n LIMIT 1";
        let first = || self.connection.query_row(query, [], |row| row.get(0)).optional();
        let cleared = first().and_then(|first| {
            let Some(needed) = segments.needed(first) else { return Ok(()) };
            // Nothing brings the chunks back any more: only then the files go.
            let mark =
                format!("PRAGMA synchronous = FULL; UPDATE marks SET first_segment = {needed}");
            self.connection.execute_batch(&mark)?;
            segments.remove_before(needed);
            Ok(())
        });
        // Otherwise the next transaction tries again.
        self.has_gaps = cleared.is_err();
    }

    /// One step of a sweep over chunks after this one, and where the next begins.
    pub(super) fn old_chunks(
        &mut self,
        after: i64,
        calls_ms: i64,
        replay_ms: i64,
    ) -> Result<Option<i64>, StoreError> {
        let query = "SELECT n, oldest_ms, newest_ms FROM chunks WHERE n > ?1 ORDER BY n LIMIT 8";
        let mut statement = self.connection.prepare(query).map_err(failed)?;
        let found = statement.query_map([after], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let found: rusqlite::Result<Vec<(i64, i64, i64)>> = found.map_err(failed)?.collect();
        let found = found.map_err(failed)?;
        drop(statement);
        let mut last = None;
        for (n, oldest_ms, newest_ms) in found {
            if oldest_ms >= replay_ms && oldest_ms >= calls_ms {
                last = None;
                break;
            }
            if newest_ms < calls_ms {
                self.forget_chunk(n, usize::MAX)?;
            } else if newest_ms >= self.known.unbound_before() {
                self.unbind_old(n, replay_ms)?;
            }
            last = Some(n);
        }
        if last.is_none() {
            let mark = "UPDATE marks SET unbound_before_ms = max(unbound_before_ms, ?1)";
            self.connection.execute(mark, [replay_ms]).map_err(failed)?;
            self.known.unbind_before(replay_ms);
        }
        Ok(last)
    }

    fn unbind_old(&self, n: i64, replay_ms: i64) -> Result<(), StoreError> {
        let query = "SELECT names FROM chunks WHERE n = ?1";
        let kept: Option<Vec<u8>> =
            self.connection.query_row(query, [n], |row| row.get(0)).optional().map_err(failed)?;
        for (slot, names) in (0..).zip(names::all(kept.as_deref().unwrap_or_default())) {
            let names = names?;
            if !names.holds(replay_ms) {
                for identity in names.identities.into_iter().flatten() {
                    self.known.unbind(identity, place(n, slot));
                }
            }
        }
        Ok(())
    }
}

/// The call at this place in a chunk, as columns.
pub(super) fn find(view: &View<'_>, place: i64) -> Result<Option<CallRow>, StoreError> {
    let Some((n, slot)) = chunk_of(place) else { return Ok(None) };
    let Some(records) = records(view, n)? else { return Ok(None) };
    let slot = usize::try_from(slot).map_err(|_| lost(place))?;
    let frame = frame::all(&records).nth(slot).transpose()?;
    Ok(frame.map(|frame| frame.row(frame.holds(view.known.unbound_before()))))
}

/// The newest calls in chunks that a filter wants, below a position, and the position of each.
pub(super) fn list(
    view: &View<'_>,
    filter: &CallFilter,
    below: i64,
) -> Result<Vec<(i64, CallRecord)>, StoreError> {
    let mut found = Vec::new();
    if filter.phase.is_some_and(|phase| !phase.is_final()) || filter.most == 0 {
        return Ok(found);
    }
    let query = "SELECT n, marks FROM chunks WHERE newest_ms >= ?1 AND n <= ?2 \
        ORDER BY n DESC";
    let wanted_marks = Wanted::of(filter);
    let known = view.known;
    let mut statement = view.connection.prepare(query).map_err(failed)?;
    let values = [filter.since_ms.unwrap_or(i64::MIN), row_at(below)];
    let mut rows = statement.query(values).map_err(failed)?;
    let mut chunks: Vec<i64> = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let n = row.get(0).map_err(failed)?;
        let marks = row.get_ref(1).map_err(failed)?.as_blob().map_err(|_| lost(n))?;
        if wanted_marks.may_be_in(marks) {
            chunks.push(n);
        }
    }
    // Each is read as it is by then: while the rows above are open, one that goes would seem to be there.
    drop(rows);
    for n in chunks {
        let Some(records) = records(view, n)? else { continue };
        let mut wanted = Vec::new();
        for (slot, frame) in (0..).zip(frame::all(&records)) {
            let frame = frame?;
            let position = n * CALLS + slot;
            if position < below
                && is_wanted(&frame, filter)
                && known.row(known.of_id_text(frame.organisation, frame.id)) == Some(place(n, slot))
            {
                wanted.push((position, frame));
            }
        }
        for (position, frame) in wanted.into_iter().rev() {
            let record = frame.row(frame.holds(known.unbound_before())).read()?;
            found.push((position, record));
            if found.len() == filter.most {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// What the chunks say at the start.
#[derive(Default)]
pub(super) struct Loaded {
    /// The number that is free after them.
    pub(super) next: i64,
    /// Identities; they come later: a call that was taken out holds them elsewhere.
    pub(super) held: Vec<Held>,
    /// The last segment that one of them is in.
    pub(super) last: Option<u64>,
    /// Those whose calls a loss of power took, before they were on the disk.
    pub(super) lost: Vec<i64>,
}

/// Reads all chunks into the index. Those in segments have to be there as far as their lengths tell; those in the last one,
/// which nobody was told to be on the disk, as far as their bytes do.
pub(super) fn load(
    connection: &Connection,
    known: &Known,
    shelf: Option<(&Shelf, &BTreeMap<u64, u64>)>,
) -> rusqlite::Result<Loaded> {
    let last = "SELECT segment FROM chunks ORDER BY n DESC LIMIT 1";
    let last: Option<u64> = connection.query_row(last, [], |row| row.get(0)).optional()?.flatten();
    let mut loaded = Loaded { next: 1, last, ..Loaded::default() };
    let query = "SELECT n, first, names, segment, offset, bytes, checksum, bytes = length(records) \
        FROM chunks ORDER BY n";
    let mut statement = connection.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (n, first): (i64, i64) = (row.get(0)?, row.get(1)?);
        loaded.next = n + 1;
        match place_of(row, 3)?.zip(shelf) {
            None if row.get(7)? => {}
            None => return Err(damaged(&lost(n))),
            Some((place, (shelf, lengths))) => {
                let length = lengths.get(&place.segment).copied();
                let is_there = |bytes| place.offset.saturating_add(place.bytes) <= bytes;
                let is_whole = match length {
                    Some(bytes) if Some(place.segment) == last => {
                        is_there(bytes) && is_as_it_was(shelf, place)?
                    }
                    _ => true,
                };
                if !is_whole {
                    loaded.lost.push(n);
                    continue;
                }
                if !length.is_some_and(is_there) {
                    let path = shelf.path(place.segment);
                    let what = if length.is_some() { "cut short" } else { "missing" };
                    let text = format!("the finished calls in {} are {what}", path.display());
                    return Err(damaged(&text));
                }
            }
        }
        let kept = (0..).zip(names::all(row.get_ref(2)?.as_blob()?));
        for (slot, names) in kept.filter(|(slot, _)| *slot >= first) {
            let names = names.map_err(|error| damaged(&error))?;
            let (id, place) = (names.id, place(n, slot));
            known.add_id(id, place);
            if names.holds(known.unbound_before()) {
                let identities = names.identities.into_iter().flatten();
                loaded.held.extend(identities.map(|identity| Held { id, place, identity }));
            }
        }
    }
    Ok(loaded)
}

/// Whether what was put there is there. Where it cannot be told, nothing is given up.
fn is_as_it_was(shelf: &Shelf, place: Place) -> rusqlite::Result<bool> {
    match shelf.read(place) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(false),
        Err(error) => {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_READ);
            Err(rusqlite::Error::SqliteFailure(code, Some(error.to_string())))
        }
    }
}

/// An identity of a call in a chunk.
pub(super) struct Held {
    id: Name,
    place: i64,
    identity: Name,
}

impl Held {
    /// It is bound, where the call is still there.
    pub(super) fn bind(&self, known: &Known) {
        if known.row(self.id) == Some(self.place) {
            known.bind(self.identity, self.place);
        }
    }
}

fn is_wanted(frame: &Frame<'_>, filter: &CallFilter) -> bool {
    let same = |wanted: &Option<String>, found: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| Some(wanted) == found)
    };
    frame.organisation == filter.organisation
        && same(&filter.session_id, frame.session_id)
        && same(&filter.run_id, frame.run_id)
        && same(&filter.tool, Some(frame.tool))
        && filter.phase.is_none_or(|phase| phase.as_str() == frame.phase)
        && filter.since_ms.is_none_or(|since| frame.created_at_ms >= since)
}

/// The calls of a chunk; none where it is gone, or goes just now.
fn records(view: &View<'_>, n: i64) -> Result<Option<Vec<u8>>, StoreError> {
    let query = "SELECT segment, offset, bytes, checksum, records FROM chunks WHERE n = ?1";
    let read = |row: &Row<'_>| Ok((place_of(row, 0)?, row.get(4)?));
    let found = view.connection.query_row(query, [n], read).optional().map_err(failed)?;
    match found {
        Some((Some(place), _)) => {
            let shelf = view.shelf.ok_or_else(|| lost(n))?;
            match shelf.read(place) {
                Ok(records) => Ok(Some(records)),
                // Its row went first.
                Err(_) if !has_chunk(view.connection, n)? => Ok(None),
                Err(error) => Err(StoreError::Unavailable(error.to_string())),
            }
        }
        Some((None, records)) => Ok(Some(records)),
        None => Ok(None),
    }
}

fn has_chunk(connection: &Connection, n: i64) -> Result<bool, StoreError> {
    let query = "SELECT count(*) FROM chunks WHERE n = ?1";
    connection.query_row(query, [n], |row| row.get(0)).map_err(failed)
}

/// Where the calls of a chunk stand: none where they are in its row. Of four columns: segment, offset, bytes, checksum.
fn place_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Place>> {
    let Some(segment) = row.get(column)? else { return Ok(None) };
    let (offset, bytes) = (row.get(column + 1)?, row.get(column + 2)?);
    Ok(Some(Place { segment, offset, bytes, checksum: row.get(column + 3)? }))
}

fn lost(place: i64) -> StoreError {
    StoreError::Unavailable(format!("the finished call at {place} cannot be read"))
}

fn damaged(error: &impl Display) -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(code, Some(error.to_string()))
}
