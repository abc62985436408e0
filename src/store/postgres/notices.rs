//! What people are to be told, and what was done.

use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;

use crate::store::StoreError;
use crate::store::postgres::calls::{clean, get};
use crate::store::postgres::connection::{Value, execute, rows};
use crate::store::records::{AuditEntry, Claimed, Notice};

/// Keeps notices.
pub(super) async fn notify(
    transaction: &Transaction<'_>,
    notices: &[Notice],
) -> Result<(), StoreError> {
    let insert = "INSERT INTO notices (sink, event, message_id, body, created_at_ms, due_at_ms, \
        tries) VALUES ($1, $2, $3, $4, $5, $5, 0)";
    for one in notices {
        let body = clean(&one.body);
        let values: [Value<'_>; 5] =
            [&one.sink, &one.event, &one.message_id, &body, &one.created_at_ms];
        execute(transaction, insert, &values).await?;
    }
    Ok(())
}

/// Claims those that are due, the oldest first.
pub(super) async fn claim(
    client: &impl GenericClient,
    now_ms: i64,
    until_ms: i64,
    most: usize,
) -> Result<Vec<Claimed>, StoreError> {
    let claim = "UPDATE notices SET due_at_ms = $2, tries = tries + 1 WHERE id IN \
        (SELECT id FROM notices WHERE due_at_ms <= $1 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED) \
        RETURNING id, sink, event, message_id, body, created_at_ms, tries - 1";
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let found = rows(client, claim, &[&now_ms, &until_ms, &most]).await?;
    let mut claimed = found.iter().map(claimed).collect::<Result<Vec<_>, _>>()?;
    claimed.sort_by_key(|one| one.id);
    Ok(claimed)
}

/// Forgets one.
pub(super) async fn drop_notice(client: &impl GenericClient, id: i64) -> Result<(), StoreError> {
    execute(client, "DELETE FROM notices WHERE id = $1", &[&id]).await.map(drop)
}

/// One is due again then.
pub(super) async fn put_off(
    client: &impl GenericClient,
    id: i64,
    due_at_ms: i64,
) -> Result<(), StoreError> {
    let update = "UPDATE notices SET due_at_ms = $2 WHERE id = $1";
    execute(client, update, &[&id, &due_at_ms]).await.map(drop)
}

/// Keeps what was done.
pub(super) async fn audit(
    transaction: &Transaction<'_>,
    entries: &[AuditEntry],
) -> Result<(), StoreError> {
    let insert = "INSERT INTO audit (at_ms, organisation, actor, action, subject, before, after, \
        detail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    for one in entries {
        let (actor, action) = (clean(&one.actor), clean(&one.action));
        let [subject, before, after, detail] = [&one.subject, &one.before, &one.after, &one.detail]
            .map(|text| text.as_deref().map(clean));
        let values: [Value<'_>; 8] =
            [&one.at_ms, &one.organisation, &actor, &action, &subject, &before, &after, &detail];
        execute(transaction, insert, &values).await?;
    }
    Ok(())
}

/// What was done in an organisation, the newest first.
pub(super) async fn audited(
    client: &impl GenericClient,
    organisation: &str,
    since_ms: i64,
    most: usize,
) -> Result<Vec<AuditEntry>, StoreError> {
    let query = "SELECT at_ms, organisation, actor, action, subject, before, after, detail \
        FROM audit WHERE organisation = $1 AND at_ms >= $2 ORDER BY at_ms DESC, n DESC LIMIT $3";
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    rows(client, query, &[&organisation, &since_ms, &most]).await?.iter().map(entry).collect()
}

fn claimed(row: &Row) -> Result<Claimed, StoreError> {
    let tries: i32 = get(row, 6)?;
    let notice = Notice {
        sink: get(row, 1)?,
        event: get(row, 2)?,
        message_id: get(row, 3)?,
        body: get(row, 4)?,
        created_at_ms: get(row, 5)?,
    };
    Ok(Claimed { id: get(row, 0)?, notice, tries: u32::try_from(tries).unwrap_or(0) })
}

fn entry(row: &Row) -> Result<AuditEntry, StoreError> {
    Ok(AuditEntry {
        at_ms: get(row, 0)?,
        organisation: get(row, 1)?,
        actor: get(row, 2)?,
        action: get(row, 3)?,
        subject: get(row, 4)?,
        before: get(row, 5)?,
        after: get(row, 6)?,
        detail: get(row, 7)?,
    })
}
