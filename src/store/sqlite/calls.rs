//! Calls in their tables.

use rusqlite::types::{ToSql, Value};
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};

use crate::model::id::IdempotencyKey;
use crate::model::outcome::Phase;
use crate::store::StoreError;
use crate::store::records::CallRecord;
use crate::store::row::{CallRow, rest_of_call};
use crate::store::sqlite::known::Known;
use crate::store::sqlite::writer::{Desk, failed};

const COLUMNS: &str = "SELECT organisation, id, phase, bound, identity, alias, tool, session_id, \
    run_id, created_at_ms, finished_at_ms, instance, rest, arguments, outcome \
    FROM calls JOIN bodies USING (n)";
/// Rows that are forgotten at once.
const STEP: usize = 1000;
const OPEN: &str = "phase IN ('running', 'waiting_approval')";

/// The statements of one batch.
pub(super) struct Writing<'a> {
    call: Statement<'a>,
    body: Statement<'a>,
}

/// What is asked first about a call that is there.
pub(super) struct Head {
    /// How far it has come.
    pub(super) phase: Phase,
    /// Whether it holds its names.
    pub(super) bound: bool,
    created_at_ms: i64,
    identity: Option<String>,
    alias: Option<String>,
}

impl<'a> Writing<'a> {
    /// Prepares them.
    pub(super) fn prepare(connection: &'a Connection) -> Result<Self, StoreError> {
        let call = "INSERT OR REPLACE INTO calls (n, organisation, id, phase, bound, identity, \
            alias, tool, session_id, run_id, created_at_ms, finished_at_ms, instance, rest) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
        let body = "INSERT OR REPLACE INTO bodies (n, arguments, outcome) VALUES (?1, ?2, ?3)";
        Ok(Self {
            call: connection.prepare(call).map_err(failed)?,
            body: connection.prepare(body).map_err(failed)?,
        })
    }

    fn row(&mut self, n: i64, record: &CallRecord) -> Result<(), StoreError> {
        let run_id = record.context.run_id.as_ref().map(|run_id| run_id.as_str());
        self.call
            .execute(params![
                n,
                &*record.organisation,
                record.id.as_str(),
                record.phase.as_str(),
                record.bound,
                record.identity.as_ref().map(IdempotencyKey::as_str),
                record.alias.as_ref().map(IdempotencyKey::as_str),
                &*record.tool,
                record.context.session_id,
                run_id,
                record.created_at_ms,
                record.finished_at_ms,
                record.instance.as_deref(),
                rest_of_call(record),
            ])
            .map_err(failed)?;
        let arguments = record.arguments.as_deref();
        self.body.execute(params![n, arguments, &*record.outcome]).map_err(failed)?;
        Ok(())
    }
}

/// Keeps a call in place of what was kept under its id, and says in which row.
pub(super) fn put(
    writing: &mut Writing<'_>,
    connection: &Connection,
    known: &Known,
    next: &mut i64,
    record: &CallRecord,
) -> Result<i64, StoreError> {
    let name = known.of_id(&record.organisation, &record.id);
    let mut row = known.row(name);
    if let Some(n) = row
        && let Some(before) = head(connection, n)?
    {
        let same = before.created_at_ms == record.created_at_ms;
        let looser = !record.phase.is_final() || !same && !record.bound;
        if before.phase.is_final() && looser && (same || before.bound) {
            return Ok(n);
        }
        release(known, &record.organisation, n, &before);
        if !same && !before.bound {
            // It makes room: the new one is younger than all that came between.
            delete(connection, n)?;
            row = None;
        }
    }
    let n = row.unwrap_or_else(|| {
        *next += 1;
        *next - 1
    });
    writing.row(n, record)?;
    if row.is_none() {
        known.add_id(name, n);
    }
    if record.bound {
        for identity in [&record.identity, &record.alias].into_iter().flatten() {
            known.bind(known.of_identity(&record.organisation, identity), n);
        }
    }
    Ok(n)
}

impl Desk {
    /// Keeps one call, and says in which row.
    pub(super) fn put(&mut self, record: &CallRecord) -> Result<i64, StoreError> {
        let name = self.known.of_id(&record.organisation, &record.id);
        self.give_up_unreadable(name, record);
        self.row(name)?;
        let mut writing = Writing::prepare(&self.connection)?;
        put(&mut writing, &self.connection, &self.known, &mut self.next, record)
    }

    /// The call that has the id or an identity of this one already, and what is known about it.
    pub(super) fn holder(
        &mut self,
        record: &CallRecord,
    ) -> Result<Option<(i64, Head)>, StoreError> {
        let mut names = vec![self.known.of_id(&record.organisation, &record.id)];
        for identity in [&record.identity, &record.alias].into_iter().flatten() {
            names.push(self.known.of_identity(&record.organisation, identity));
        }
        for name in names {
            if let Some(n) = self.row(name)?
                && let Some(head) = head(&self.connection, n)?
                && head.bound
            {
                return Ok(Some((n, head)));
            }
        }
        Ok(None)
    }

    /// What is under its id, which is not bound, makes room.
    pub(super) fn make_room(&mut self, record: &CallRecord) -> Result<(), StoreError> {
        let name = self.known.of_id(&record.organisation, &record.id);
        if let Some(n) = self.row(name)? {
            delete(&self.connection, n)?;
            self.known.remove_id(name);
        }
        Ok(())
    }

    /// The oldest finished calls go: so many rows at most, or so many calls of the oldest chunk; how many went.
    pub(super) fn forget_oldest(
        &mut self,
        rows: usize,
        of_chunk: usize,
    ) -> Result<usize, StoreError> {
        let chunk = "SELECT coalesce(min(n), 9223372036854775807) FROM chunks";
        let chunk: i64 = self.connection.query_row(chunk, [], |row| row.get(0)).map_err(failed)?;
        let older = format!("SELECT n FROM calls WHERE n < ?2 AND NOT {OPEN} ORDER BY n LIMIT ?1");
        let gone = self.forget(&older, &[&to_i64(rows.min(STEP)), &chunk])?;
        if gone > 0 { Ok(gone) } else { self.forget_chunk(chunk, of_chunk) }
    }

    /// The calls whose rows a query finds go; how many went.
    pub(super) fn forget(
        &mut self,
        query: &str,
        values: &[&dyn ToSql],
    ) -> Result<usize, StoreError> {
        let gone = format!(
            "DELETE FROM calls WHERE n IN ({query}) RETURNING n, organisation, id, identity, alias"
        );
        let connection = &self.connection;
        let mut gone = connection.prepare(&gone).map_err(failed)?;
        let mut body = connection.prepare("DELETE FROM bodies WHERE n = ?1").map_err(failed)?;
        let mut approvals =
            connection.prepare("DELETE FROM approvals WHERE call_n = ?1").map_err(failed)?;
        let mut rows = gone.query(values).map_err(failed)?;
        let mut count = 0;
        while let Some(row) = rows.next().map_err(failed)? {
            let n: i64 = row.get(0).map_err(failed)?;
            let organisation = text(row, 1)?;
            self.known.remove_id(self.known.of_id_text(organisation, text(row, 2)?));
            for column in [3, 4] {
                let value = row.get_ref(column).map_err(failed)?;
                if let Some(identity) = value.as_str_or_null().map_err(|_| odd())? {
                    self.known.unbind(self.known.of_identity_text(organisation, identity), n);
                }
            }
            body.execute([n]).map_err(failed)?;
            approvals.execute([n]).map_err(failed)?;
            count += 1;
        }
        Ok(count)
    }
}

/// What is asked first about a call.
pub(super) fn head(connection: &Connection, n: i64) -> Result<Option<Head>, StoreError> {
    let query = "SELECT phase, bound, created_at_ms, identity, alias FROM calls WHERE n = ?1";
    let mut statement = connection.prepare(query).map_err(failed)?;
    let mut rows = statement.query([n]).map_err(failed)?;
    let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
    Ok(Some(Head {
        phase: Phase::parse(text(row, 0)?).ok_or_else(odd)?,
        bound: row.get(1).map_err(failed)?,
        created_at_ms: row.get(2).map_err(failed)?,
        identity: row.get(3).map_err(failed)?,
        alias: row.get(4).map_err(failed)?,
    }))
}

/// The call in this row.
pub(super) fn by_row(connection: &Connection, n: i64) -> Result<Option<CallRecord>, StoreError> {
    let query = format!("{COLUMNS} WHERE n = ?1");
    let row = connection.query_row(&query, [n], row).optional().map_err(failed)?;
    row.map(CallRow::read).transpose()
}

/// Calls in rows, the newest first, that conditions want.
pub(super) fn newest(
    connection: &Connection,
    conditions: &str,
    values: Vec<Value>,
) -> Result<Vec<CallRecord>, StoreError> {
    let query = format!("{COLUMNS} WHERE {conditions} ORDER BY n DESC LIMIT ?");
    many(connection, &query, rusqlite::params_from_iter(values))
}

/// Calls that run, but not by this instance.
pub(super) fn lost(connection: &Connection, instance: &str) -> Result<Vec<CallRecord>, StoreError> {
    let query = format!("{COLUMNS} WHERE phase = 'running' AND instance IS NOT ?1 ORDER BY n");
    many(connection, &query, [instance])
}

/// How many calls are open.
pub(super) fn open(connection: &Connection) -> Result<usize, StoreError> {
    let query = format!("SELECT count(*) FROM calls WHERE {OPEN}");
    let count: i64 = connection.query_row(&query, [], |row| row.get(0)).map_err(failed)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// A count as SQLite takes it.
pub(super) fn to_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A text column that is borrowed.
pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> Result<&'a str, StoreError> {
    row.get_ref(column).map_err(failed)?.as_str().map_err(|_| odd())
}

fn many(
    connection: &Connection,
    query: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<CallRecord>, StoreError> {
    let mut statement = connection.prepare(query).map_err(failed)?;
    let mut rows = statement.query(values).map_err(failed)?;
    let mut found = Vec::new();
    while let Some(next) = rows.next().map_err(failed)? {
        found.push(row(next).map_err(failed)?.read()?);
    }
    Ok(found)
}

fn row(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        organisation: row.get(0)?,
        id: row.get(1)?,
        phase: row.get(2)?,
        bound: row.get(3)?,
        identity: row.get(4)?,
        alias: row.get(5)?,
        tool: row.get(6)?,
        session_id: row.get(7)?,
        run_id: row.get(8)?,
        created_at_ms: row.get(9)?,
        finished_at_ms: row.get(10)?,
        instance: row.get(11)?,
        rest: row.get(12)?,
        arguments: row.get(13)?,
        outcome: row.get(14)?,
    })
}

pub(super) fn release(known: &Known, organisation: &str, n: i64, head: &Head) {
    for identity in [&head.identity, &head.alias].into_iter().flatten() {
        known.unbind(known.of_identity_text(organisation, identity), n);
    }
}

fn delete(connection: &Connection, n: i64) -> Result<(), StoreError> {
    for table in ["calls WHERE n", "bodies WHERE n", "approvals WHERE call_n"] {
        connection.execute(&format!("DELETE FROM {table} = ?1"), [n]).map_err(failed)?;
    }
    Ok(())
}

fn odd() -> StoreError {
    StoreError::Unavailable("a row of a call cannot be read".to_owned())
}
