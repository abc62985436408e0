//! What is old enough is forgotten, a little at a time.

use std::time::Duration;

use deadpool_postgres::GenericClient;

use crate::config::storage::Keep;
use crate::store::StoreError;
use crate::store::postgres::calls::get;
use crate::store::postgres::connection::{Value, execute, rows};

/// Rows that one statement changes.
const STEP: i64 = 1000;
const DAY_MS: i64 = 86_400_000;

/// One step, and which is next. Gateways that sweep at once take other rows.
pub(super) async fn step(
    client: &impl GenericClient,
    stage: usize,
    keep: &Keep,
    now_ms: i64,
) -> Result<Option<usize>, StoreError> {
    let before =
        |age: Duration| now_ms.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    let done = match stage {
        0 => {
            let forget = "DELETE FROM calls WHERE n IN (SELECT n FROM calls \
                WHERE finished_at_ms < $1 ORDER BY finished_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED)";
            execute(client, forget, &[&before(keep.calls), &STEP]).await?
        }
        1 => {
            let free = "WITH freed AS (UPDATE calls SET bound = false WHERE n IN (SELECT n \
                FROM calls WHERE bound AND finished_at_ms < $1 ORDER BY finished_at_ms LIMIT $2 \
                FOR UPDATE SKIP LOCKED) RETURNING n), names AS (DELETE FROM bindings b USING freed \
                WHERE b.call_n = freed.n) SELECT count(*) FROM freed";
            let found = rows(client, free, &[&before(keep.replay), &STEP]).await?;
            let count: i64 = found.first().map_or(Ok(0), |row| get(row, 0))?;
            count.unsigned_abs()
        }
        2 => {
            let count = "SELECT count(*) FROM calls WHERE finished_at_ms IS NOT NULL";
            let found = rows(client, count, &[]).await?;
            let count: i64 = found.first().map_or(Ok(0), |row| get(row, 0))?;
            let most = i64::try_from(keep.max_calls).unwrap_or(i64::MAX);
            let excess = count.saturating_sub(most).clamp(0, STEP);
            let forget = "DELETE FROM calls WHERE n IN (SELECT n FROM calls WHERE finished_at_ms \
                IS NOT NULL ORDER BY finished_at_ms, n LIMIT $1 FOR UPDATE SKIP LOCKED)";
            execute(client, forget, &[&excess]).await?
        }
        3 => {
            let forget = "DELETE FROM audit WHERE n IN (SELECT n FROM audit WHERE at_ms < $1 \
                ORDER BY at_ms LIMIT $2 FOR UPDATE SKIP LOCKED)";
            execute(client, forget, &[&before(keep.audit), &STEP]).await?
        }
        4 => {
            let day = before(keep.audit).div_euclid(DAY_MS);
            for (table, time, until) in [
                ("shadow_counts", "day", day),
                ("shadow_samples", "day", day),
                ("instances", "at_ms", before(keep.calls)),
            ] {
                let values: [Value<'_>; 1] = [&until];
                execute(client, &format!("DELETE FROM {table} WHERE {time} < $1"), &values).await?;
            }
            0
        }
        _ => return Ok(None),
    };
    Ok(Some(if done < STEP.unsigned_abs() { stage + 1 } else { stage }))
}
