//! Calls in their table, and who holds an identity.

use std::borrow::Cow;
use std::collections::BTreeMap;

use deadpool_postgres::{GenericClient, Transaction};
use sha2::{Digest, Sha256};
use tokio_postgres::Row;

use crate::model::id::{CallId, IdempotencyKey};
use crate::model::outcome::Phase;
use crate::store::StoreError;
use crate::store::batch::Batch;
use crate::store::frame::Frame;
use crate::store::postgres::connection::{Value, execute, failed, rows};
use crate::store::records::{CallFilter, CallRecord};
use crate::store::row::CallRow;

const COLUMNS: &str = "SELECT c.organisation, c.id, c.phase, c.bound, c.identity, c.alias, c.tool, \
    c.session_id, c.run_id, c.created_at_ms, c.finished_at_ms, c.instance, c.rest, c.arguments, \
    c.outcome FROM calls c";

/// What was not sent makes room for a younger call of the same id.
const MAKE_ROOM: &str = "DELETE FROM calls c USING unnest($1::text[], $2::text[], $3::bigint[]) \
    AS t (organisation, id, made) WHERE c.organisation = t.organisation AND c.id = t.id \
    AND NOT c.bound AND c.created_at_ms <> t.made";

/// Rows in place of what was there, as far as they may take it, and who holds their identities now.
const PUT: &str = "WITH put AS (
    INSERT INTO calls AS c (organisation, id, phase, bound, identity, alias, tool, session_id, run_id,
        created_at_ms, finished_at_ms, instance, rest, arguments, outcome)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::boolean[], $5::text[], $6::text[],
        $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::text[],
        $14::bytea[], $15::bytea[])
    ON CONFLICT (organisation, id) DO UPDATE SET phase = excluded.phase, bound = excluded.bound,
        identity = excluded.identity, alias = excluded.alias, tool = excluded.tool,
        session_id = excluded.session_id, run_id = excluded.run_id,
        created_at_ms = excluded.created_at_ms, finished_at_ms = excluded.finished_at_ms,
        instance = excluded.instance, rest = excluded.rest, arguments = excluded.arguments,
        outcome = excluded.outcome
    WHERE c.phase IN ('running', 'waiting_approval')
        OR excluded.phase NOT IN ('running', 'waiting_approval')
            AND (c.created_at_ms = excluded.created_at_ms OR excluded.bound)
    RETURNING n, organisation, bound, identity, alias
), freed AS (
    DELETE FROM bindings b USING put WHERE b.call_n = put.n AND (NOT put.bound
        OR b.identity IS DISTINCT FROM put.identity AND b.identity IS DISTINCT FROM put.alias)
), held AS (
    INSERT INTO bindings (organisation, identity, call_n)
    SELECT put.organisation, name, put.n FROM put, LATERAL (VALUES (put.identity), (put.alias)) v (name)
    WHERE put.bound AND name IS NOT NULL ON CONFLICT DO NOTHING
) SELECT n FROM put";

/// A call that is there: its row, and how far it has come.
pub(super) struct Head {
    /// Its row.
    pub(super) n: i64,
    /// How far it has come.
    pub(super) phase: Phase,
}

/// Text as PostgreSQL takes it, which has no NUL.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if has_nul(text) { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}

/// Whether nothing here can be named so: what is asked for is compared as it is, and never cleaned first.
pub(super) fn has_nul(text: &str) -> bool {
    text.contains('\0')
}

/// Holds the names of a call until the transaction ends: whoever binds one of them comes before or after.
pub(super) async fn hold(
    transaction: &Transaction<'_>,
    record: &CallRecord,
) -> Result<(), StoreError> {
    let number = |kind: &str, name: &str| {
        let digest = Sha256::digest(format!("{}\n{kind}\n{name}", record.organisation).as_bytes());
        digest.iter().take(8).fold(0_i64, |sum, byte| sum << 8 | i64::from(*byte))
    };
    let identities = [&record.identity, &record.alias].into_iter().flatten();
    let mut names: Vec<i64> =
        identities.map(|identity| number("identity", identity.as_str())).collect();
    names.push(number("id", record.id.as_str()));
    // Everybody takes them in one order, so that nobody waits for somebody who waits for them.
    names.sort_unstable();
    let lock = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS t (k)";
    rows(transaction, lock, &[&names]).await.map(drop)
}

/// Keeps calls, each in place of what was kept under its id, where it may.
pub(super) async fn put(transaction: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
    let batch = last_of_each(batch)?;
    fn column<'a, T>(batch: &[Frame<'a>], value: impl Fn(&Frame<'a>) -> T) -> Vec<T> {
        batch.iter().map(value).collect()
    }
    let organisation = column(&batch, |call| call.organisation);
    let id = column(&batch, |call| call.id);
    let created = column(&batch, |call| call.created_at_ms);
    execute(transaction, MAKE_ROOM, &[&organisation, &id, &created]).await?;
    let phase = column(&batch, |call| call.phase);
    let bound = column(&batch, |call| call.bound);
    let identity = column(&batch, |call| call.identity);
    let alias = column(&batch, |call| call.alias);
    let tool = column(&batch, |call| clean(call.tool));
    let session = column(&batch, |call| call.session_id.map(clean));
    let run = column(&batch, |call| call.run_id);
    let finished = column(&batch, |call| call.finished_at_ms);
    let instance = column(&batch, |call| call.instance);
    let rest = column(&batch, |call| call.rest);
    let arguments = column(&batch, |call| call.arguments);
    let outcome = column(&batch, |call| call.outcome);
    let values: [Value<'_>; 15] = [
        &organisation,
        &id,
        &phase,
        &bound,
        &identity,
        &alias,
        &tool,
        &session,
        &run,
        &created,
        &finished,
        &instance,
        &rest,
        &arguments,
        &outcome,
    ];
    rows(transaction, PUT, &values).await.map(drop)
}

/// Another call that holds a name of this one: its own row first.
pub(super) async fn holder(
    transaction: &Transaction<'_>,
    record: &CallRecord,
) -> Result<Option<Head>, StoreError> {
    let query = "SELECT n, phase FROM calls WHERE organisation = $1 AND id = $2 AND bound \
        UNION ALL SELECT c.n, c.phase FROM bindings b JOIN calls c ON c.n = b.call_n \
        WHERE b.organisation = $1 AND b.identity = ANY ($3) AND c.bound LIMIT 1";
    let identities = [&record.identity, &record.alias].into_iter().flatten();
    let identities: Vec<&str> = identities.map(IdempotencyKey::as_str).collect();
    let values: [Value<'_>; 3] = [&&*record.organisation, &record.id.as_str(), &identities];
    rows(transaction, query, &values).await?.first().map(head).transpose()
}

/// What is under its id, which is not bound, makes room.
pub(super) async fn make_room(
    transaction: &Transaction<'_>,
    record: &CallRecord,
) -> Result<(), StoreError> {
    let delete = "DELETE FROM calls WHERE organisation = $1 AND id = $2 AND NOT bound";
    execute(transaction, delete, &[&&*record.organisation, &record.id.as_str()]).await.map(drop)
}

/// What is asked first about a call; it stays so until the transaction ends.
pub(super) async fn own(
    transaction: &Transaction<'_>,
    organisation: &str,
    id: &CallId,
) -> Result<Option<Head>, StoreError> {
    let query = "SELECT n, phase FROM calls WHERE organisation = $1 AND id = $2 FOR UPDATE";
    rows(transaction, query, &[&organisation, &id.as_str()]).await?.first().map(head).transpose()
}

/// The call of this id.
pub(super) async fn by_id(
    client: &impl GenericClient,
    organisation: &str,
    id: &CallId,
) -> Result<Option<CallRecord>, StoreError> {
    let query = format!("{COLUMNS} WHERE c.organisation = $1 AND c.id = $2");
    Ok(many(client, &query, &[&organisation, &id.as_str()]).await?.pop())
}

/// The call that holds this identity.
pub(super) async fn by_identity(
    client: &impl GenericClient,
    organisation: &str,
    identity: &IdempotencyKey,
) -> Result<Option<CallRecord>, StoreError> {
    let query = format!(
        "{COLUMNS} JOIN bindings b ON b.call_n = c.n WHERE b.organisation = $1 AND b.identity = $2"
    );
    Ok(many(client, &query, &[&organisation, &identity.as_str()]).await?.pop())
}

/// The call in this row.
pub(super) async fn by_row(
    client: &impl GenericClient,
    n: i64,
) -> Result<Option<CallRecord>, StoreError> {
    Ok(many(client, &format!("{COLUMNS} WHERE c.n = $1"), &[&n]).await?.pop())
}

/// Calls, the oldest first.
pub(super) async fn list(
    client: &impl GenericClient,
    filter: &CallFilter,
) -> Result<Vec<CallRecord>, StoreError> {
    let names = [&filter.session_id, &filter.run_id, &filter.tool].map(Option::as_deref);
    if names.into_iter().flatten().any(has_nul) {
        return Ok(Vec::new());
    }
    let [session, run, tool] = names;
    let phase = filter.phase.map(Phase::as_str);
    let most = i64::try_from(filter.most).unwrap_or(i64::MAX);
    let mut query = format!("{COLUMNS} WHERE c.organisation = $1");
    let mut values: Vec<Value<'_>> = vec![&filter.organisation];
    let mut add = |condition: &str, value| {
        values.push(value);
        query.push_str(&format!(" {condition} ${}", values.len()));
    };
    if let Some(session) = &session {
        add("AND c.session_id =", session);
    }
    if let Some(run) = &run {
        add("AND c.run_id =", run);
    }
    if let Some(phase) = &phase {
        add("AND c.phase =", phase);
    }
    if let Some(tool) = &tool {
        add("AND c.tool =", tool);
    }
    if let Some(since) = &filter.since_ms {
        add("AND c.created_at_ms >=", since);
    }
    add("ORDER BY c.created_at_ms DESC, c.n DESC LIMIT", &most);
    let mut found = many(client, &query, &values).await?;
    found.reverse();
    Ok(found)
}

/// Calls made at a time or later, the latest kept first, and where the next page begins.
pub(super) async fn walk(
    client: &impl GenericClient,
    organisation: &str,
    since_ms: i64,
    below: i64,
    most: usize,
) -> Result<(Vec<CallRecord>, Option<i64>), StoreError> {
    let query = "SELECT n FROM calls WHERE organisation = $1 AND created_at_ms >= $2 AND n < $3 \
        ORDER BY n DESC LIMIT $4";
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let found = rows(client, query, &[&organisation, &since_ms, &below, &limit]).await?;
    let places: Result<Vec<i64>, _> = found.iter().map(|row| row.try_get(0)).collect();
    let places = places.map_err(failed)?;
    let next = places.last().copied().filter(|_| places.len() == most);
    let query = format!("{COLUMNS} WHERE c.n = ANY($1) ORDER BY c.n DESC");
    Ok((many(client, &query, &[&places]).await?, next))
}

/// Calls that run, of which no living instance says that it runs them.
pub(super) async fn lost(
    client: &impl GenericClient,
    instance: &str,
    silent_since_ms: i64,
) -> Result<Vec<CallRecord>, StoreError> {
    let query = format!(
        "{COLUMNS} WHERE c.phase = 'running' AND c.instance IS DISTINCT FROM $1 AND NOT EXISTS \
         (SELECT 1 FROM instances i WHERE i.instance = c.instance AND i.at_ms >= $2) ORDER BY c.n"
    );
    many(client, &query, &[&instance, &silent_since_ms]).await
}

/// A column of a row.
pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: usize,
) -> Result<T, StoreError> {
    row.try_get(column).map_err(failed)
}

async fn many(
    client: &impl GenericClient,
    query: &str,
    values: &[Value<'_>],
) -> Result<Vec<CallRecord>, StoreError> {
    rows(client, query, values).await?.iter().map(|row| read(row)?.read()).collect()
}

fn read(row: &Row) -> Result<CallRow, StoreError> {
    Ok(CallRow {
        organisation: get(row, 0)?,
        id: get(row, 1)?,
        phase: get(row, 2)?,
        bound: get(row, 3)?,
        identity: get(row, 4)?,
        alias: get(row, 5)?,
        tool: get(row, 6)?,
        session_id: get(row, 7)?,
        run_id: get(row, 8)?,
        created_at_ms: get(row, 9)?,
        finished_at_ms: get(row, 10)?,
        instance: get(row, 11)?,
        rest: get(row, 12)?,
        arguments: get(row, 13)?,
        outcome: get(row, 14)?,
    })
}

fn head(row: &Row) -> Result<Head, StoreError> {
    let phase = Phase::parse(get(row, 1)?);
    let odd = || StoreError::Unavailable("a row of a call cannot be read".to_owned());
    Ok(Head { n: get(row, 0)?, phase: phase.ok_or_else(odd)? })
}

/// A statement takes each row once: of several of one call the last, but none that is open after one that is final. In
/// one order everywhere, so that two batches never wait for each other.
fn last_of_each(batch: &Batch) -> Result<Vec<Frame<'_>>, StoreError> {
    let mut last: BTreeMap<(&str, &str), Frame<'_>> = BTreeMap::new();
    for call in batch.calls() {
        let (_place, call) = call?;
        let kept = last.entry((call.organisation, call.id)).or_insert(call);
        if call.is_final() || !kept.is_final() {
            *kept = call;
        }
    }
    Ok(last.into_values().collect())
}
