//! Policies of the API and what those said that only watch.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::store::StoreError;
use crate::store::records::{PolicyRecord, ShadowCount, ShadowSample};
use crate::store::sqlite::writer::{Desk, failed};

/// Samples of a day and policy at most.
const SAMPLES: i64 = 20;

impl Desk {
    /// See [`crate::store::Store::put_policy`].
    pub(super) fn put_policy(
        &mut self,
        record: &PolicyRecord,
        expected: Option<u64>,
    ) -> Result<(), StoreError> {
        let query = "SELECT version FROM policies WHERE organisation = ?1 AND id = ?2";
        let version: Option<i64> = self
            .connection
            .query_row(query, [&record.organisation, &record.id], |row| row.get(0))
            .optional()
            .map_err(failed)?;
        match (version, expected.map(signed)) {
            (None, Some(_)) => return Err(StoreError::NotFound),
            (version, expected) if version != expected => return Err(StoreError::Conflict),
            _ => {}
        }
        let insert = "INSERT OR REPLACE INTO policies (organisation, id, version, body, \
            created_at_ms, updated_at_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = params![
            record.organisation,
            record.id,
            signed(record.version),
            record.body,
            record.created_at_ms,
            record.updated_at_ms,
        ];
        self.connection.execute(insert, values).map_err(failed)?;
        self.revise()
    }

    /// See [`crate::store::Store::delete_policy`].
    pub(super) fn delete_policy(&mut self, organisation: &str, id: &str) -> Result<(), StoreError> {
        let delete = "DELETE FROM policies WHERE organisation = ?1 AND id = ?2";
        if self.connection.execute(delete, [organisation, id]).map_err(failed)? == 0 {
            return Err(StoreError::NotFound);
        }
        self.revise()
    }

    /// See [`crate::store::Store::count_shadow`].
    pub(super) fn count_shadow(
        &mut self,
        counts: &[ShadowCount],
        samples: &[ShadowSample],
    ) -> Result<(), StoreError> {
        let add = "INSERT INTO shadow_counts (organisation, policy, day, tool, calls, matched, \
            disagreed, unasked, approved, rejected, expired) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
            ON CONFLICT (organisation, policy, day, tool) DO UPDATE SET calls = calls + ?5, \
            matched = matched + ?6, disagreed = disagreed + ?7, unasked = unasked + ?8, \
            approved = approved + ?9, rejected = rejected + ?10, expired = expired + ?11";
        for one in counts {
            let values = params![
                one.organisation,
                one.policy,
                one.day,
                one.tool,
                signed(one.calls),
                signed(one.matched),
                signed(one.disagreed),
                signed(one.unasked),
                signed(one.approved),
                signed(one.rejected),
                signed(one.expired),
            ];
            self.connection.execute(add, values).map_err(failed)?;
        }
        let sample = "INSERT INTO shadow_samples (organisation, policy, day, call_id, tool) \
            SELECT ?1, ?2, ?3, ?4, ?5 WHERE (SELECT count(*) FROM shadow_samples \
            WHERE organisation = ?1 AND policy = ?2 AND day = ?3) < ?6";
        for one in samples {
            let values =
                params![one.organisation, one.policy, one.day, one.call_id, one.tool, SAMPLES];
            self.connection.execute(sample, values).map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what is there already.
    pub(super) fn touch(&mut self) -> Result<(), StoreError> {
        let update = "UPDATE revision SET revision = revision";
        self.connection.execute(update, []).map_err(failed)?;
        Ok(())
    }

    fn revise(&mut self) -> Result<(), StoreError> {
        let update = "UPDATE revision SET revision = revision + 1";
        self.connection.execute(update, []).map_err(failed)?;
        Ok(())
    }
}

/// Grows with every change of a policy.
pub(super) fn revision(connection: &Connection) -> Result<u64, StoreError> {
    let query = "SELECT revision FROM revision";
    let revision = connection.query_row(query, [], |row| number(row, 0)).map_err(failed)?;
    Ok(revision)
}

/// All policies, by organisation and id.
pub(super) fn policies(connection: &Connection) -> Result<Vec<PolicyRecord>, StoreError> {
    let query = "SELECT organisation, id, version, body, created_at_ms, updated_at_ms \
        FROM policies ORDER BY organisation, id";
    let mut statement = connection.prepare(query).map_err(failed)?;
    let rows = statement.query_map([], |row| {
        Ok(PolicyRecord {
            organisation: row.get(0)?,
            id: row.get(1)?,
            version: number(row, 2)?,
            body: row.get(3)?,
            created_at_ms: row.get(4)?,
            updated_at_ms: row.get(5)?,
        })
    });
    let rows: rusqlite::Result<Vec<_>> = rows.map_err(failed)?.collect();
    rows.map_err(failed)
}

/// The counts and samples of a policy, by day and tool.
pub(super) fn shadow(
    connection: &Connection,
    organisation: &str,
    policy: &str,
    days: [i64; 2],
) -> Result<(Vec<ShadowCount>, Vec<ShadowSample>), StoreError> {
    let query = "SELECT organisation, policy, day, tool, calls, matched, disagreed, unasked, \
        approved, rejected, expired FROM shadow_counts \
        WHERE organisation = ?1 AND policy = ?2 AND day BETWEEN ?3 AND ?4 ORDER BY day, tool";
    let values = params![organisation, policy, days[0], days[1]];
    let mut statement = connection.prepare(query).map_err(failed)?;
    let counts = statement.query_map(values, |row| {
        Ok(ShadowCount {
            organisation: row.get(0)?,
            policy: row.get(1)?,
            day: row.get(2)?,
            tool: row.get(3)?,
            calls: number(row, 4)?,
            matched: number(row, 5)?,
            disagreed: number(row, 6)?,
            unasked: number(row, 7)?,
            approved: number(row, 8)?,
            rejected: number(row, 9)?,
            expired: number(row, 10)?,
        })
    });
    let counts: rusqlite::Result<Vec<_>> = counts.map_err(failed)?.collect();
    let query = "SELECT organisation, policy, day, call_id, tool FROM shadow_samples \
        WHERE organisation = ?1 AND policy = ?2 AND day BETWEEN ?3 AND ?4 ORDER BY day, n";
    let mut statement = connection.prepare(query).map_err(failed)?;
    let samples = statement.query_map(values, |row| {
        Ok(ShadowSample {
            organisation: row.get(0)?,
            policy: row.get(1)?,
            day: row.get(2)?,
            call_id: row.get(3)?,
            tool: row.get(4)?,
        })
    });
    let samples: rusqlite::Result<Vec<_>> = samples.map_err(failed)?.collect();
    Ok((counts.map_err(failed)?, samples.map_err(failed)?))
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(number.unsigned_abs())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
