//! What people are to be told, and what was done: two tables that only grow at their end.

use rusqlite::{Connection, Row, params};

use crate::store::StoreError;
use crate::store::records::{AuditEntry, Claimed, Notice};
use crate::store::sqlite::calls::to_i64;
use crate::store::sqlite::writer::{Desk, failed};

impl Desk {
    /// Keeps notices.
    pub(super) fn notify(&mut self, notices: &[Notice]) -> Result<(), StoreError> {
        let insert = "INSERT INTO notices (sink, event, message_id, body, created_at_ms, \
            due_at_ms, tries) VALUES (?1, ?2, ?3, ?4, ?5, ?5, 0)";
        for one in notices {
            let values = params![one.sink, one.event, one.message_id, one.body, one.created_at_ms];
            self.connection.execute(insert, values).map_err(failed)?;
        }
        Ok(())
    }

    /// Claims those that are due, the oldest first.
    pub(super) fn claim(
        &mut self,
        now_ms: i64,
        until_ms: i64,
        most: usize,
    ) -> Result<Vec<Claimed>, StoreError> {
        let claim = "UPDATE notices SET due_at_ms = ?2, tries = tries + 1 WHERE id IN \
            (SELECT id FROM notices WHERE due_at_ms <= ?1 ORDER BY id LIMIT ?3) \
            RETURNING id, sink, event, message_id, body, created_at_ms, tries - 1";
        let mut statement = self.connection.prepare(claim).map_err(failed)?;
        let rows = statement.query_map(params![now_ms, until_ms, to_i64(most)], claimed);
        let rows: rusqlite::Result<Vec<_>> = rows.map_err(failed)?.collect();
        let mut claimed = rows.map_err(failed)?;
        claimed.sort_by_key(|one| one.id);
        Ok(claimed)
    }

    /// Forgets one.
    pub(super) fn drop_notice(&mut self, id: i64) -> Result<(), StoreError> {
        self.connection.execute("DELETE FROM notices WHERE id = ?1", [id]).map_err(failed)?;
        Ok(())
    }

    /// One is due again then.
    pub(super) fn put_off(&mut self, id: i64, due_at_ms: i64) -> Result<(), StoreError> {
        let update = "UPDATE notices SET due_at_ms = ?2 WHERE id = ?1";
        self.connection.execute(update, [id, due_at_ms]).map_err(failed)?;
        Ok(())
    }

    /// Keeps what was done.
    pub(super) fn audit(&mut self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        let insert = "INSERT INTO audit (at_ms, organisation, actor, action, subject, before, \
            after, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        for one in entries {
            let values = params![
                one.at_ms,
                one.organisation,
                one.actor,
                one.action,
                one.subject,
                one.before,
                one.after,
                one.detail,
            ];
            self.connection.execute(insert, values).map_err(failed)?;
        }
        Ok(())
    }
}

/// What was done in an organisation, the newest first.
pub(super) fn audited(
    connection: &Connection,
    organisation: &str,
    since_ms: i64,
    most: usize,
) -> Result<Vec<AuditEntry>, StoreError> {
    let query = "SELECT at_ms, organisation, actor, action, subject, before, after, detail \
        FROM audit WHERE organisation = ?1 AND at_ms >= ?2 ORDER BY at_ms DESC, n DESC LIMIT ?3";
    let mut statement = connection.prepare(query).map_err(failed)?;
    let rows = statement.query_map(params![organisation, since_ms, to_i64(most)], entry);
    let rows: rusqlite::Result<Vec<_>> = rows.map_err(failed)?.collect();
    rows.map_err(failed)
}

fn claimed(row: &Row<'_>) -> rusqlite::Result<Claimed> {
    let tries: i64 = row.get(6)?;
    let notice = Notice {
        sink: row.get(1)?,
        event: row.get(2)?,
        message_id: row.get(3)?,
        body: row.get(4)?,
        created_at_ms: row.get(5)?,
    };
    Ok(Claimed { id: row.get(0)?, notice, tries: u32::try_from(tries).unwrap_or(u32::MAX) })
}

fn entry(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        at_ms: row.get(0)?,
        organisation: row.get(1)?,
        actor: row.get(2)?,
        action: row.get(3)?,
        subject: row.get(4)?,
        before: row.get(5)?,
        after: row.get(6)?,
        detail: row.get(7)?,
    })
}
