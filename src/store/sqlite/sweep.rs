//! What is old enough is forgotten, a little at a time: whoever decides or begins a call comes in between.

use std::time::Duration;

use rusqlite::params;

use crate::config::storage::Keep;
use crate::store::StoreError;
use crate::store::sqlite::calls::{open, to_i64};
use crate::store::sqlite::writer::{Desk, Durability, failed};

/// Rows that one step looks at or forgets.
const STEP: usize = 1000;
/// Rows that go at once where bytes are short.
const FEW: usize = 16;
/// In so many parts of the time that calls are kept, a file of them begins at the latest.
const PARTS: u128 = 8;
const DAY_MS: i64 = 86_400_000;

/// Where a sweep stands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stage {
    /// Chunks after this one are looked at.
    Chunks(i64),
    /// Calls after this row are looked at: their names are free again, or they are too old.
    Calls(i64),
    /// There are too many.
    Count,
    /// The rest.
    Trail,
}

impl Stage {
    /// How sure it has to be: the last step takes along what is not on the disk yet.
    pub(super) fn durability(self) -> Durability {
        match self {
            Self::Trail => Durability::Full,
            Self::Chunks(_) | Self::Calls(_) | Self::Count => Durability::Process,
        }
    }
}

impl Desk {
    /// One step of a sweep, and where the next one begins.
    pub(super) fn sweep(
        &mut self,
        stage: Stage,
        keep: &Keep,
        now_ms: i64,
    ) -> Result<Option<Stage>, StoreError> {
        self.max_calls = Some(keep.max_calls);
        match stage {
            Stage::Chunks(after) => {
                let (calls, replay) = (before(now_ms, keep.calls), before(now_ms, keep.replay));
                let next = self.old_chunks(after, calls, replay)?;
                Ok(Some(next.map_or(Stage::Calls(0), Stage::Chunks)))
            }
            Stage::Calls(after) => {
                Ok(Some(self.old_calls(after, keep, now_ms)?.map_or(Stage::Count, Stage::Calls)))
            }
            Stage::Count => {
                let excess = self.excess(keep.max_calls)?;
                let gone = if excess > 0 { self.forget_oldest(excess, excess)? } else { 0 };
                Ok(Some(if gone > 0 && excess > gone { Stage::Count } else { Stage::Trail }))
            }
            Stage::Trail => {
                self.trail(keep, now_ms)?;
                self.settle(keep, now_ms)?;
                Ok(None)
            }
        }
    }

    /// What is too much goes while it comes, so that a file is no larger between two sweeps.
    pub(super) fn trim(&mut self, batch: usize) -> Result<(), StoreError> {
        if let Some(most) = self.max_calls {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if self.known.calls() > most.saturating_add(most / 8) {
                let mut excess = self.excess(most as u64)?.min(batch.saturating_mul(2));
                while excess > 0 {
                    let gone = self.forget_oldest(excess, usize::MAX)?;
                    excess = if gone == 0 { 0 } else { excess.saturating_sub(gone) };
                }
            }
        }
        if let Some(most) = self.max_bytes {
            while self.bytes()? > most && self.forget_oldest(FEW, usize::MAX)? > 0 {}
        }
        Ok(())
    }

    fn old_calls(
        &mut self,
        after: i64,
        keep: &Keep,
        now_ms: i64,
    ) -> Result<Option<i64>, StoreError> {
        let (replay, calls) = (before(now_ms, keep.replay), before(now_ms, keep.calls));
        let query = "SELECT max(n), min(created_at_ms) FROM \
            (SELECT n, created_at_ms FROM calls WHERE n > ?1 ORDER BY n LIMIT ?2)";
        let (last, oldest): (Option<i64>, Option<i64>) = self
            .connection
            .query_row(query, params![after, to_i64(STEP)], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        let Some((last, oldest)) = last.zip(oldest) else { return Ok(None) };
        // Whatever was made later ended later.
        if oldest > replay.max(calls) {
            return Ok(None);
        }
        let old = "SELECT n FROM calls WHERE n > ?1 AND n <= ?2 AND finished_at_ms < ?3";
        self.forget(old, &[&after, &last, &calls])?;
        let free = "UPDATE calls SET bound = 0 WHERE n > ?1 AND n <= ?2 AND bound \
            AND finished_at_ms < ?3 RETURNING n, organisation, identity, alias";
        let mut statement = self.connection.prepare(free).map_err(failed)?;
        let mut rows = statement.query([after, last, replay]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let n: i64 = row.get(0).map_err(failed)?;
            let organisation: String = row.get(1).map_err(failed)?;
            let names: [Option<String>; 2] =
                [row.get(2).map_err(failed)?, row.get(3).map_err(failed)?];
            for identity in names.iter().flatten() {
                self.known.unbind(self.known.of_identity_text(&organisation, identity), n);
            }
        }
        Ok(Some(last))
    }

    /// What was kept is on the disk when this is, and a file of calls does not outlive them by long.
    fn settle(&mut self, keep: &Keep, now_ms: i64) -> Result<(), StoreError> {
        let Some(segments) = &mut self.segments else { return Ok(()) };
        let age_ms = i64::try_from(keep.calls.as_millis() / PARTS).unwrap_or(i64::MAX);
        let settled = segments.sync().and_then(|()| segments.turn_after(age_ms, now_ms));
        // The one before may have no call any more.
        self.has_gaps |= settled.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        // Only with something of its own does a transaction take those before it along.
        self.touch()
    }

    fn excess(&self, most: u64) -> Result<usize, StoreError> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let finished = self.known.calls().saturating_sub(open(&self.connection)?);
        Ok(finished.saturating_sub(most))
    }

    fn trail(&mut self, keep: &Keep, now_ms: i64) -> Result<(), StoreError> {
        let (calls, audit) = (before(now_ms, keep.calls), before(now_ms, keep.audit));
        let closed = "DELETE FROM approvals WHERE status <> 'pending' AND decided_at_ms < ?1 \
            AND call_n NOT IN (SELECT n FROM calls)";
        self.connection.execute(closed, [calls]).map_err(failed)?;
        let trail = "DELETE FROM audit WHERE n < coalesce(\
            (SELECT n FROM audit WHERE at_ms >= ?1 ORDER BY n LIMIT 1), 9223372036854775807)";
        self.connection.execute(trail, [audit]).map_err(failed)?;
        let day = audit.div_euclid(DAY_MS);
        for table in ["shadow_counts", "shadow_samples"] {
            let delete = format!("DELETE FROM {table} WHERE day < ?1");
            self.connection.execute(&delete, [day]).map_err(failed)?;
        }
        Ok(())
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        let query = "SELECT (page_count - freelist_count) * page_size \
            FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        let bytes: i64 = self.connection.query_row(query, [], |row| row.get(0)).map_err(failed)?;
        Ok(bytes.unsigned_abs())
    }
}

fn before(now_ms: i64, age: Duration) -> i64 {
    now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}
