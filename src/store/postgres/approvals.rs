//! Approvals in their table, and the steps of a call that waits for one.

use deadpool_postgres::{GenericClient, Transaction};
use tokio_postgres::Row;

use crate::model::approval::{Approval, ApprovalId, ApprovalStatus};
use crate::model::id::CallId;
use crate::model::outcome::Phase;
use crate::store::batch::Batch;
use crate::store::postgres::calls::{
    by_row, clean, get, has_nul, hold, holder, make_room, own, put,
};
use crate::store::postgres::connection::{Value, execute, rows};
use crate::store::postgres::notices::notify;
use crate::store::records::{ApprovalFilter, CallRecord, Notice, PendingApprovals, within};
use crate::store::row::{ApprovalRow, decider, rest_of_approval};
use crate::store::{Bound, Decided, Ruling, StoreError};

const COLUMNS: &str = "SELECT a.organisation, a.id, a.call_id, a.kind, a.status, a.tool, \
    a.session_id, a.created_at_ms, a.expires_at_ms, a.decided_at_ms, a.decided_by, a.reason, \
    a.used_at_ms, a.rest, c.arguments FROM approvals a JOIN calls c ON c.n = a.call_n";

/// See [`crate::store::Store::bind`].
pub(super) async fn bind(
    transaction: &Transaction<'_>,
    record: CallRecord,
) -> Result<Bound, StoreError> {
    hold(transaction, &record).await?;
    if let Some(head) = holder(transaction, &record).await? {
        return before(transaction, head.n).await;
    }
    make_room(transaction, &record).await?;
    put(transaction, &Batch::of([&record])).await?;
    Ok(Bound::Now)
}

/// See [`crate::store::Store::park`].
pub(super) async fn park(
    transaction: &Transaction<'_>,
    record: CallRecord,
    approval: &Approval,
    notices: &[Notice],
) -> Result<Bound, StoreError> {
    hold(transaction, &record).await?;
    let (organisation, id) = (record.organisation.clone(), record.id.clone());
    match holder(transaction, &record).await? {
        None => make_room(transaction, &record).await?,
        Some(head) => {
            let own = own(transaction, &organisation, &id).await?;
            let waits = own.is_some_and(|own| own.n == head.n) && head.phase == Phase::Waiting;
            if !waits || has_pending(transaction, head.n).await? {
                return before(transaction, head.n).await;
            }
        }
    }
    put(transaction, &Batch::of([&record])).await?;
    let used = "UPDATE approvals SET used_at_ms = $3 WHERE organisation = $1 AND call_id = $2 \
        AND status = 'approved' AND used_at_ms IS NULL";
    let values: [Value<'_>; 3] = [&&*organisation, &id.as_str(), &approval.created_at_ms];
    execute(transaction, used, &values).await?;
    insert(transaction, approval).await?;
    notify(transaction, notices).await?;
    Ok(Bound::Now)
}

/// See [`crate::store::Store::decide`].
pub(super) async fn decide(
    transaction: &Transaction<'_>,
    ruling: &Ruling,
    record: Option<CallRecord>,
    notices: &[Notice],
) -> Result<Decided, StoreError> {
    if let Some(record) = &record {
        hold(transaction, record).await?;
    }
    let query = format!("{COLUMNS} WHERE a.organisation = $1 AND a.id = $2");
    let key: [Value<'_>; 2] = [&ruling.organisation, &ruling.id.as_str()];
    let found = many(transaction, &format!("{query} FOR UPDATE OF a"), &key).await?.pop();
    let found = found.ok_or(StoreError::NotFound)?;
    if !ruling.is_open(&found) {
        return Ok(Decided::Closed(Box::new(found)));
    }
    let update = "UPDATE approvals SET status = $3, decided_at_ms = $4, decided_by = $5, \
        reason = $6 WHERE organisation = $1 AND id = $2";
    let by = ruling.by.as_ref().map(decider);
    let reason = ruling.reason.as_deref().map(clean);
    let values: [Value<'_>; 6] = [
        &ruling.organisation,
        &ruling.id.as_str(),
        &ruling.status.as_str(),
        &ruling.at_ms,
        &by,
        &reason,
    ];
    execute(transaction, update, &values).await?;
    let decided = many(transaction, &query, &key).await?.pop().ok_or(StoreError::NotFound)?;
    if let Some(record) = record {
        put(transaction, &Batch::of([&record])).await?;
    }
    notify(transaction, notices).await?;
    Ok(Decided::Now(Box::new(decided)))
}

/// See [`crate::store::Store::start`].
pub(super) async fn start(
    transaction: &Transaction<'_>,
    record: CallRecord,
    approval: &ApprovalId,
    at_ms: i64,
) -> Result<bool, StoreError> {
    hold(transaction, &record).await?;
    let found = own(transaction, &record.organisation, &record.id).await?;
    let Some(head) = found.filter(|head| head.phase != Phase::Running) else {
        return Ok(false);
    };
    // What ended without having been sent runs after all, unless another call has its names now.
    let other = holder(transaction, &record).await?.filter(|other| other.n != head.n);
    if other.is_some() {
        return Ok(false);
    }
    let update = "UPDATE approvals SET used_at_ms = $4 WHERE organisation = $1 AND id = $2 \
        AND call_n = $3 AND status = 'approved' AND used_at_ms IS NULL AND expires_at_ms > $4";
    let values: [Value<'_>; 4] = [&&*record.organisation, &approval.as_str(), &head.n, &at_ms];
    if execute(transaction, update, &values).await? == 0 {
        return Ok(false);
    }
    if head.phase.is_final() {
        let reopen = "UPDATE calls SET phase = $2 WHERE n = $1";
        execute(transaction, reopen, &[&head.n, &Phase::Waiting.as_str()]).await?;
    }
    put(transaction, &Batch::of([&record])).await?;
    Ok(true)
}

/// See [`crate::store::Store::finish`].
pub(super) async fn finish(
    transaction: &Transaction<'_>,
    record: CallRecord,
    unused: Option<&ApprovalId>,
    notices: &[Notice],
) -> Result<(), StoreError> {
    hold(transaction, &record).await?;
    let organisation = record.organisation.clone();
    put(transaction, &Batch::of([&record])).await?;
    if let Some(approval) = unused {
        let update = "UPDATE approvals SET used_at_ms = NULL WHERE organisation = $1 AND id = $2";
        execute(transaction, update, &[&&*organisation, &approval.as_str()]).await?;
    }
    notify(transaction, notices).await
}

/// See [`crate::store::Store::bury`].
pub(super) async fn bury(
    transaction: &Transaction<'_>,
    record: CallRecord,
) -> Result<bool, StoreError> {
    hold(transaction, &record).await?;
    let found = own(transaction, &record.organisation, &record.id).await?;
    let runs = found.is_some_and(|head| head.phase == Phase::Running);
    if runs {
        put(transaction, &Batch::of([&record])).await?;
    }
    Ok(runs)
}

/// See [`crate::store::Store::release`].
pub(super) async fn release(
    transaction: &Transaction<'_>,
    organisation: &str,
    id: &CallId,
) -> Result<(), StoreError> {
    let found = own(transaction, organisation, id).await?;
    if let Some(head) = found.filter(|head| head.phase.is_final()) {
        execute(transaction, "UPDATE calls SET bound = false WHERE n = $1", &[&head.n]).await?;
        execute(transaction, "DELETE FROM bindings WHERE call_n = $1", &[&head.n]).await?;
    }
    Ok(())
}

/// The approval of this id.
pub(super) async fn one(
    client: &impl GenericClient,
    organisation: &str,
    id: &ApprovalId,
) -> Result<Option<Approval>, StoreError> {
    let query = format!("{COLUMNS} WHERE a.organisation = $1 AND a.id = $2");
    Ok(many(client, &query, &[&organisation, &id.as_str()]).await?.pop())
}

/// Those of a call, the oldest first.
pub(super) async fn of_call(
    client: &impl GenericClient,
    organisation: &str,
    call: &str,
) -> Result<Vec<Approval>, StoreError> {
    let query = format!("{COLUMNS} WHERE a.organisation = $1 AND a.call_id = $2 ORDER BY a.n");
    many(client, &query, &[&organisation, &call]).await
}

/// Approvals, the newest first.
pub(super) async fn list(
    client: &impl GenericClient,
    filter: &ApprovalFilter,
) -> Result<Vec<Approval>, StoreError> {
    let status = filter.status.map(ApprovalStatus::as_str);
    let names = [&filter.tool, &filter.session_id].map(Option::as_deref);
    if names.into_iter().flatten().any(has_nul) {
        return Ok(Vec::new());
    }
    let [tool, session] = names;
    let most = i64::try_from(filter.most).unwrap_or(i64::MAX);
    let mut query = format!("{COLUMNS} WHERE true");
    if filter.unused_of_waiting {
        query.push_str(" AND a.used_at_ms IS NULL AND c.phase = 'waiting_approval'");
    }
    let mut values: Vec<Value<'_>> = Vec::new();
    let mut add = |condition: &str, value| {
        values.push(value);
        query.push_str(&format!(" {condition} ${}", values.len()));
    };
    if let Some(organisation) = &filter.organisation {
        add("AND a.organisation =", organisation);
    }
    if let Some(status) = &status {
        add("AND a.status =", status);
    }
    if let Some(tool) = &tool {
        add("AND a.tool =", tool);
    }
    if let Some(session) = &session {
        add("AND a.session_id =", session);
    }
    if let Some(expires) = &filter.expires_by_ms {
        add("AND a.expires_at_ms <=", expires);
    }
    add("ORDER BY a.created_at_ms DESC, a.n DESC LIMIT", &most);
    let mut found = many(client, &query, &values).await?;
    found.truncate(within(found.iter().map(Approval::bytes), filter.most_bytes));
    Ok(found)
}

/// What is pending, by tool.
pub(super) async fn pending(
    client: &impl GenericClient,
) -> Result<Vec<PendingApprovals>, StoreError> {
    let query = "SELECT tool, count(*), min(created_at_ms) FROM approvals \
        WHERE status = 'pending' GROUP BY tool";
    let read = |row: &Row| {
        Ok(PendingApprovals { tool: get(row, 0)?, count: get(row, 1)?, oldest_ms: get(row, 2)? })
    };
    rows(client, query, &[]).await?.iter().map(read).collect()
}

async fn before(transaction: &Transaction<'_>, n: i64) -> Result<Bound, StoreError> {
    let found = by_row(transaction, n).await?.ok_or(StoreError::NotFound)?;
    Ok(Bound::Before(Box::new(found)))
}

async fn has_pending(transaction: &Transaction<'_>, n: i64) -> Result<bool, StoreError> {
    let query = "SELECT 1 FROM approvals WHERE call_n = $1 AND status = 'pending'";
    Ok(!rows(transaction, query, &[&n]).await?.is_empty())
}

async fn insert(transaction: &Transaction<'_>, approval: &Approval) -> Result<(), StoreError> {
    let insert = "INSERT INTO approvals (organisation, id, call_n, call_id, kind, status, tool, \
        session_id, created_at_ms, expires_at_ms, decided_at_ms, decided_by, reason, used_at_ms, \
        rest) SELECT $1, $2, c.n, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 FROM calls c \
        WHERE c.organisation = $1 AND c.id = $3";
    let (tool, session) = (clean(&approval.tool), approval.session_id.as_deref().map(clean));
    let by = approval.decided_by.as_ref().map(decider);
    let reason = approval.reason.as_deref().map(clean);
    let values: [Value<'_>; 14] = [
        &&*approval.organisation,
        &approval.id.as_str(),
        &approval.call_id.as_str(),
        &approval.kind.as_str(),
        &approval.status.as_str(),
        &tool,
        &session,
        &approval.created_at_ms,
        &approval.expires_at_ms,
        &approval.decided_at_ms,
        &by,
        &reason,
        &approval.used_at_ms,
        &rest_of_approval(approval),
    ];
    execute(transaction, insert, &values).await.map(drop)
}

async fn many(
    client: &impl GenericClient,
    query: &str,
    values: &[Value<'_>],
) -> Result<Vec<Approval>, StoreError> {
    rows(client, query, values).await?.iter().map(|row| read(row)?.read()).collect()
}

fn read(row: &Row) -> Result<ApprovalRow, StoreError> {
    Ok(ApprovalRow {
        organisation: get(row, 0)?,
        id: get(row, 1)?,
        call_id: get(row, 2)?,
        kind: get(row, 3)?,
        status: get(row, 4)?,
        tool: get(row, 5)?,
        session_id: get(row, 6)?,
        created_at_ms: get(row, 7)?,
        expires_at_ms: get(row, 8)?,
        decided_at_ms: get(row, 9)?,
        decided_by: get(row, 10)?,
        reason: get(row, 11)?,
        used_at_ms: get(row, 12)?,
        rest: get(row, 13)?,
        arguments: get(row, 14)?,
    })
}
