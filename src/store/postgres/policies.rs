//! Policies of the API and what those said that only watch.

use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;

use crate::store::StoreError;
use crate::store::postgres::calls::{clean, get};
use crate::store::postgres::connection::{Value, execute, rows};
use crate::store::records::{PolicyRecord, ShadowCount, ShadowSample};

/// Samples of a day and policy at most.
const SAMPLES: i64 = 20;

/// See [`crate::store::Store::put_policy`].
pub(super) async fn put(
    transaction: &Transaction<'_>,
    record: &PolicyRecord,
    expected: Option<u64>,
) -> Result<(), StoreError> {
    let version = signed(record.version);
    let body = clean(&record.body);
    let Some(expected) = expected.map(signed) else {
        let insert = "INSERT INTO policies (organisation, id, version, body, created_at_ms, \
            updated_at_ms) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING";
        let values: [Value<'_>; 6] = [
            &record.organisation,
            &record.id,
            &version,
            &body,
            &record.created_at_ms,
            &record.updated_at_ms,
        ];
        if execute(transaction, insert, &values).await? == 0 {
            return Err(StoreError::Conflict);
        }
        return revise(transaction).await;
    };
    let update = "UPDATE policies SET version = $3, body = $4, created_at_ms = $5, \
        updated_at_ms = $6 WHERE organisation = $1 AND id = $2 AND version = $7";
    let values: [Value<'_>; 7] = [
        &record.organisation,
        &record.id,
        &version,
        &body,
        &record.created_at_ms,
        &record.updated_at_ms,
        &expected,
    ];
    if execute(transaction, update, &values).await? == 0 {
        let query = "SELECT version FROM policies WHERE organisation = $1 AND id = $2";
        let found = rows(transaction, query, &[&record.organisation, &record.id]).await?;
        return Err(if found.is_empty() { StoreError::NotFound } else { StoreError::Conflict });
    }
    revise(transaction).await
}

/// See [`crate::store::Store::delete_policy`].
pub(super) async fn delete(
    transaction: &Transaction<'_>,
    organisation: &str,
    id: &str,
) -> Result<(), StoreError> {
    let delete = "DELETE FROM policies WHERE organisation = $1 AND id = $2";
    if execute(transaction, delete, &[&organisation, &id]).await? == 0 {
        return Err(StoreError::NotFound);
    }
    revise(transaction).await
}

/// See [`crate::store::Store::count_shadow`].
pub(super) async fn count(
    transaction: &Transaction<'_>,
    mut counts: Vec<ShadowCount>,
    samples: &[ShadowSample],
) -> Result<(), StoreError> {
    let add = "INSERT INTO shadow_counts AS s (organisation, policy, day, tool, calls, matched, \
        disagreed, unasked, approved, rejected, expired) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
        ON CONFLICT (organisation, policy, day, tool) DO UPDATE SET calls = s.calls + $5, \
        matched = s.matched + $6, disagreed = s.disagreed + $7, unasked = s.unasked + $8, \
        approved = s.approved + $9, rejected = s.rejected + $10, expired = s.expired + $11";
    // In one order everywhere, so that two gateways never wait for each other.
    counts.sort_by(|one, other| {
        let key = |one: &ShadowCount| (one.organisation.clone(), one.policy.clone(), one.day);
        key(one).cmp(&key(other)).then_with(|| one.tool.cmp(&other.tool))
    });
    for one in &counts {
        let tool = clean(&one.tool);
        let numbers = [
            one.calls,
            one.matched,
            one.disagreed,
            one.unasked,
            one.approved,
            one.rejected,
            one.expired,
        ]
        .map(signed);
        let mut values: Vec<Value<'_>> = vec![&one.organisation, &one.policy, &one.day, &tool];
        values.extend(numbers.iter().map(|number| number as Value<'_>));
        execute(transaction, add, &values).await?;
    }
    let sample = "INSERT INTO shadow_samples (organisation, policy, day, call_id, tool) \
        SELECT $1::text, $2::text, $3::bigint, $4::text, $5::text \
        WHERE (SELECT count(*) FROM shadow_samples \
        WHERE organisation = $1 AND policy = $2 AND day = $3) < $6";
    for one in samples {
        let tool = clean(&one.tool);
        let values: [Value<'_>; 6] =
            [&one.organisation, &one.policy, &one.day, &one.call_id, &tool, &SAMPLES];
        execute(transaction, sample, &values).await?;
    }
    Ok(())
}

/// Grows with every change of a policy.
pub(super) async fn revision(client: &impl GenericClient) -> Result<u64, StoreError> {
    let found = rows(client, "SELECT revision FROM revision", &[]).await?;
    found.first().map_or(Ok(0), |row| number(row, 0))
}

/// All policies, by organisation and id.
pub(super) async fn list(client: &impl GenericClient) -> Result<Vec<PolicyRecord>, StoreError> {
    let query = "SELECT organisation, id, version, body, created_at_ms, updated_at_ms \
        FROM policies ORDER BY organisation COLLATE \"C\", id COLLATE \"C\"";
    let read = |row: &Row| {
        Ok(PolicyRecord {
            organisation: get(row, 0)?,
            id: get(row, 1)?,
            version: number(row, 2)?,
            body: get(row, 3)?,
            created_at_ms: get(row, 4)?,
            updated_at_ms: get(row, 5)?,
        })
    };
    rows(client, query, &[]).await?.iter().map(read).collect()
}

/// The counts and samples of a policy, by day and tool.
pub(super) async fn shadow(
    client: &impl GenericClient,
    organisation: &str,
    policy: &str,
    days: [i64; 2],
) -> Result<(Vec<ShadowCount>, Vec<ShadowSample>), StoreError> {
    let values: [Value<'_>; 4] = [&organisation, &policy, &days[0], &days[1]];
    let query = "SELECT organisation, policy, day, tool, calls, matched, disagreed, unasked, \
        approved, rejected, expired FROM shadow_counts WHERE organisation = $1 AND policy = $2 \
        AND day BETWEEN $3 AND $4 ORDER BY day, tool COLLATE \"C\"";
    let read = |row: &Row| {
        Ok(ShadowCount {
            organisation: get(row, 0)?,
            policy: get(row, 1)?,
            day: get(row, 2)?,
            tool: get(row, 3)?,
            calls: number(row, 4)?,
            matched: number(row, 5)?,
            disagreed: number(row, 6)?,
            unasked: number(row, 7)?,
            approved: number(row, 8)?,
            rejected: number(row, 9)?,
            expired: number(row, 10)?,
        })
    };
    let counts: Result<Vec<_>, _> = rows(client, query, &values).await?.iter().map(read).collect();
    let query = "SELECT organisation, policy, day, call_id, tool FROM shadow_samples \
        WHERE organisation = $1 AND policy = $2 AND day BETWEEN $3 AND $4 ORDER BY day, n";
    let read = |row: &Row| {
        Ok(ShadowSample {
            organisation: get(row, 0)?,
            policy: get(row, 1)?,
            day: get(row, 2)?,
            call_id: get(row, 3)?,
            tool: get(row, 4)?,
        })
    };
    let samples: Result<Vec<_>, _> = rows(client, query, &values).await?.iter().map(read).collect();
    Ok((counts?, samples?))
}

async fn revise(transaction: &Transaction<'_>) -> Result<(), StoreError> {
    execute(transaction, "UPDATE revision SET revision = revision + 1", &[]).await.map(drop)
}

fn number(row: &Row, column: usize) -> Result<u64, StoreError> {
    Ok(get::<i64>(row, column)?.unsigned_abs())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
