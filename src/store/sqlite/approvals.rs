//! Approvals in their table, and the steps of a call that waits for one.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::model::approval::{Approval, ApprovalId, ApprovalStatus};
use crate::model::id::CallId;
use crate::model::outcome::Phase;
use crate::store::records::{ApprovalFilter, CallRecord, Notice, PendingApprovals, within};
use crate::store::row::{ApprovalRow, decider, rest_of_approval};
use crate::store::sqlite::calls::{by_row, head, release, to_i64};
use crate::store::sqlite::writer::{Desk, failed};
use crate::store::{Bound, Decided, Ruling, StoreError};

const COLUMNS: &str = "SELECT a.organisation, a.id, a.call_id, a.kind, a.status, a.tool, \
    a.session_id, a.created_at_ms, a.expires_at_ms, a.decided_at_ms, a.decided_by, a.reason, \
    a.used_at_ms, a.rest, b.arguments FROM approvals a LEFT JOIN bodies b ON b.n = a.call_n";

impl Desk {
    /// See [`crate::store::Store::bind`].
    pub(super) fn bind(&mut self, record: &CallRecord) -> Result<Bound, StoreError> {
        if let Some((n, _)) = self.holder(record)? {
            return self.before(n);
        }
        self.make_room(record)?;
        self.put(record)?;
        Ok(Bound::Now)
    }

    /// See [`crate::store::Store::park`].
    pub(super) fn park(
        &mut self,
        record: &CallRecord,
        approval: &Approval,
        notices: &[Notice],
    ) -> Result<Bound, StoreError> {
        let held = self.holder(record)?;
        let own = self.known.row(self.known.of_id(&record.organisation, &record.id));
        match held {
            None => self.make_room(record)?,
            Some((n, head)) => {
                let waits = Some(n) == own && head.phase == Phase::Waiting;
                if !waits || self.has_pending(n)? {
                    return self.before(n);
                }
            }
        }
        let n = self.put(record)?;
        let used = "UPDATE approvals SET used_at_ms = ?2 \
            WHERE call_n = ?1 AND status = 'approved' AND used_at_ms IS NULL";
        let values = params![n, approval.created_at_ms];
        self.connection.execute(used, values).map_err(failed)?;
        self.insert(approval, n)?;
        self.notify(notices)?;
        Ok(Bound::Now)
    }

    /// See [`crate::store::Store::decide`].
    pub(super) fn decide(
        &mut self,
        ruling: &Ruling,
        record: Option<&CallRecord>,
        notices: &[Notice],
    ) -> Result<Decided, StoreError> {
        let find = || one(&self.connection, &ruling.organisation, &ruling.id);
        let found = find()?.ok_or(StoreError::NotFound)?;
        if !ruling.is_open(&found) {
            return Ok(Decided::Closed(Box::new(found)));
        }
        let update = "UPDATE approvals SET status = ?3, decided_at_ms = ?4, decided_by = ?5, \
            reason = ?6 WHERE organisation = ?1 AND id = ?2";
        let values = params![
            ruling.organisation,
            ruling.id.as_str(),
            ruling.status.as_str(),
            ruling.at_ms,
            ruling.by.as_ref().map(decider),
            ruling.reason,
        ];
        self.connection.execute(update, values).map_err(failed)?;
        let decided = find()?.ok_or(StoreError::NotFound)?;
        if let Some(record) = record {
            self.put(record)?;
        }
        self.notify(notices)?;
        Ok(Decided::Now(Box::new(decided)))
    }

    /// See [`crate::store::Store::start`].
    pub(super) fn start(
        &mut self,
        record: &CallRecord,
        approval: &ApprovalId,
        at_ms: i64,
    ) -> Result<bool, StoreError> {
        let name = self.known.of_id(&record.organisation, &record.id);
        let Some(n) = self.row(name)? else { return Ok(false) };
        let Some(head) = head(&self.connection, n)? else { return Ok(false) };
        // What ended without having been sent runs after all, unless another call has its names now.
        let other = self.holder(record)?.is_some_and(|(other, _)| other != n);
        if head.phase == Phase::Running || other {
            return Ok(false);
        }
        let update = "UPDATE approvals SET used_at_ms = ?4 WHERE organisation = ?1 AND id = ?2 \
            AND call_n = ?3 AND status = 'approved' AND used_at_ms IS NULL AND expires_at_ms > ?4";
        let values = params![&*record.organisation, approval.as_str(), n, at_ms];
        if self.connection.execute(update, values).map_err(failed)? == 0 {
            return Ok(false);
        }
        if head.phase.is_final() {
            let reopen = "UPDATE calls SET phase = ?2 WHERE n = ?1";
            let values = params![n, Phase::Waiting.as_str()];
            self.connection.execute(reopen, values).map_err(failed)?;
        }
        self.put(record)?;
        Ok(true)
    }

    /// See [`crate::store::Store::finish`].
    pub(super) fn finish(
        &mut self,
        record: &CallRecord,
        unused: Option<&ApprovalId>,
        notices: &[Notice],
    ) -> Result<(), StoreError> {
        self.put(record)?;
        if let Some(approval) = unused {
            let update =
                "UPDATE approvals SET used_at_ms = NULL WHERE organisation = ?1 AND id = ?2";
            let values = params![&*record.organisation, approval.as_str()];
            self.connection.execute(update, values).map_err(failed)?;
        }
        self.notify(notices)
    }

    /// See [`crate::store::Store::bury`].
    pub(super) fn bury(&mut self, record: &CallRecord) -> Result<bool, StoreError> {
        let name = self.known.of_id(&record.organisation, &record.id);
        let Some(n) = self.row(name)? else { return Ok(false) };
        let runs = head(&self.connection, n)?.is_some_and(|head| head.phase == Phase::Running);
        if runs {
            self.put(record)?;
        }
        Ok(runs)
    }

    /// See [`crate::store::Store::release`].
    pub(super) fn release(&mut self, organisation: &str, id: &CallId) -> Result<(), StoreError> {
        let name = self.known.of_id(organisation, id);
        let Some(n) = self.row(name)? else { return Ok(()) };
        let Some(head) = head(&self.connection, n)?.filter(|head| head.phase.is_final()) else {
            return Ok(());
        };
        let update = "UPDATE calls SET bound = 0 WHERE n = ?1";
        self.connection.execute(update, [n]).map_err(failed)?;
        release(&self.known, organisation, n, &head);
        Ok(())
    }

    fn before(&self, n: i64) -> Result<Bound, StoreError> {
        let found = by_row(&self.connection, n)?.ok_or(StoreError::NotFound)?;
        Ok(Bound::Before(Box::new(found)))
    }

    fn has_pending(&self, n: i64) -> Result<bool, StoreError> {
        let query = "SELECT 1 FROM approvals WHERE call_n = ?1 AND status = 'pending'";
        let found = self.connection.query_row(query, [n], |_| Ok(())).optional().map_err(failed)?;
        Ok(found.is_some())
    }

    fn insert(&mut self, approval: &Approval, call_n: i64) -> Result<(), StoreError> {
        let insert = "INSERT INTO approvals (organisation, id, call_n, call_id, kind, status, \
            tool, session_id, created_at_ms, expires_at_ms, decided_at_ms, decided_by, reason, \
            used_at_ms, rest) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        let values = params![
            &*approval.organisation,
            approval.id.as_str(),
            call_n,
            approval.call_id.as_str(),
            approval.kind.as_str(),
            approval.status.as_str(),
            approval.tool,
            approval.session_id,
            approval.created_at_ms,
            approval.expires_at_ms,
            approval.decided_at_ms,
            approval.decided_by.as_ref().map(decider),
            approval.reason,
            approval.used_at_ms,
            rest_of_approval(approval),
        ];
        self.connection.execute(insert, values).map_err(failed)?;
        Ok(())
    }
}

/// The approval of this id.
pub(super) fn one(
    connection: &Connection,
    organisation: &str,
    id: &ApprovalId,
) -> Result<Option<Approval>, StoreError> {
    let query = format!("{COLUMNS} WHERE a.organisation = ?1 AND a.id = ?2");
    Ok(many(connection, &query, [organisation, id.as_str()])?.pop())
}

/// Those of the call in this row, the oldest first.
pub(super) fn of_call(connection: &Connection, n: i64) -> Result<Vec<Approval>, StoreError> {
    many(connection, &format!("{COLUMNS} WHERE a.call_n = ?1 ORDER BY a.n"), [n])
}

/// Approvals, the newest first.
pub(super) fn list(
    connection: &Connection,
    filter: &ApprovalFilter,
) -> Result<Vec<Approval>, StoreError> {
    let mut query = format!("{COLUMNS} WHERE true");
    let mut values = Vec::new();
    let status = filter.status.map(ApprovalStatus::as_str);
    let wanted = [
        ("a.organisation = ?", filter.organisation.clone().map(Value::from)),
        ("a.status = ?", status.map(|status| Value::from(status.to_owned()))),
        ("a.tool = ?", filter.tool.clone().map(Value::from)),
        ("a.session_id = ?", filter.session_id.clone().map(Value::from)),
        ("a.expires_at_ms <= ?", filter.expires_by_ms.map(Value::from)),
    ];
    for (condition, value) in wanted {
        if let Some(value) = value {
            query.push_str(" AND ");
            query.push_str(condition);
            values.push(value);
        }
    }
    if filter.unused_of_waiting {
        query.push_str(
            " AND a.used_at_ms IS NULL AND EXISTS (SELECT 1 FROM calls c WHERE c.n = a.call_n \
             AND c.phase = 'waiting_approval')",
        );
    }
    query.push_str(" ORDER BY a.created_at_ms DESC, a.n DESC LIMIT ?");
    values.push(Value::from(to_i64(filter.most)));
    let mut statement = connection.prepare(&query).map_err(failed)?;
    let values = rusqlite::params_from_iter(values);
    let mut rows = statement.query_map(values, row).map_err(failed)?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while bytes <= filter.most_bytes.unwrap_or(usize::MAX)
        && let Some(next) = rows.next()
    {
        let approval = next.map_err(failed)?.read()?;
        bytes += approval.bytes();
        found.push(approval);
    }
    found.truncate(within(found.iter().map(Approval::bytes), filter.most_bytes));
    Ok(found)
}

/// What is pending, by tool.
pub(super) fn pending(connection: &Connection) -> Result<Vec<PendingApprovals>, StoreError> {
    let query = "SELECT tool, count(*), min(created_at_ms) FROM approvals \
        WHERE status = 'pending' GROUP BY tool";
    let mut statement = connection.prepare(query).map_err(failed)?;
    let read = |row: &Row<'_>| {
        Ok(PendingApprovals { tool: row.get(0)?, count: row.get(1)?, oldest_ms: row.get(2)? })
    };
    let rows = statement.query_map([], read).map_err(failed)?;
    rows.map(|row| row.map_err(failed)).collect()
}

fn many(
    connection: &Connection,
    query: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<Approval>, StoreError> {
    let mut statement = connection.prepare(query).map_err(failed)?;
    let rows = statement.query_map(values, row).map_err(failed)?;
    rows.map(|row| row.map_err(failed)?.read()).collect()
}

fn row(row: &Row<'_>) -> rusqlite::Result<ApprovalRow> {
    Ok(ApprovalRow {
        organisation: row.get(0)?,
        id: row.get(1)?,
        call_id: row.get(2)?,
        kind: row.get(3)?,
        status: row.get(4)?,
        tool: row.get(5)?,
        session_id: row.get(6)?,
        created_at_ms: row.get(7)?,
        expires_at_ms: row.get(8)?,
        decided_at_ms: row.get(9)?,
        decided_by: row.get(10)?,
        reason: row.get(11)?,
        used_at_ms: row.get(12)?,
        rest: row.get(13)?,
        arguments: row.get(14)?,
    })
}
