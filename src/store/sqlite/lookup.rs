//! Calls as they are looked up: wherever they stand, in a row of their own or in a chunk.

use std::cmp::Reverse;

use rusqlite::params;
use rusqlite::types::Value;

use crate::model::id::{CallId, IdempotencyKey};
use crate::store::StoreError;
use crate::store::records::{CallFilter, CallRecord};
use crate::store::row::CallRow;
use crate::store::sqlite::calls::{self, to_i64};
use crate::store::sqlite::chunks;
use crate::store::sqlite::view::View;
use crate::store::sqlite::writer::failed;

/// The call of this id.
pub(super) fn by_id(
    view: &View<'_>,
    organisation: &str,
    id: &CallId,
) -> Result<Option<CallRecord>, StoreError> {
    let Some(n) = view.known.row(view.known.of_id(organisation, id)) else { return Ok(None) };
    let found = at(view, n)?;
    Ok(found.filter(|record| &*record.organisation == organisation && record.id == *id))
}

/// The call that holds this identity.
pub(super) fn by_identity(
    view: &View<'_>,
    organisation: &str,
    identity: &IdempotencyKey,
) -> Result<Option<CallRecord>, StoreError> {
    let Some(n) = view.known.row(view.known.of_identity(organisation, identity)) else {
        return Ok(None);
    };
    let found = at(view, n)?;
    let is_held =
        |record: &CallRecord| [&record.identity, &record.alias].contains(&&Some(identity.clone()));
    Ok(found
        .filter(|record| record.bound && &*record.organisation == organisation && is_held(record)))
}

/// The call at this place: a row of its own, or in a chunk.
fn at(view: &View<'_>, place: i64) -> Result<Option<CallRecord>, StoreError> {
    if place >= 0 {
        return calls::by_row(view.connection, place);
    }
    chunks::find(view, place)?.map(CallRow::read).transpose()
}

/// Calls, the oldest first.
pub(super) fn list(view: &View<'_>, filter: &CallFilter) -> Result<Vec<CallRecord>, StoreError> {
    let mut conditions = "organisation = ?".to_owned();
    let mut values = vec![Value::from(filter.organisation.clone())];
    let phase = filter.phase.map(|phase| phase.as_str().to_owned());
    let wanted = [
        ("session_id = ?", filter.session_id.clone().map(Value::from)),
        ("run_id = ?", filter.run_id.clone().map(Value::from)),
        ("phase = ?", phase.map(Value::from)),
        ("tool = ?", filter.tool.clone().map(Value::from)),
        ("created_at_ms >= ?", filter.since_ms.map(Value::from)),
    ];
    for (condition, value) in wanted {
        if let Some(value) = value {
            conditions.push_str(" AND ");
            conditions.push_str(condition);
            values.push(value);
        }
    }
    values.push(Value::from(to_i64(filter.most)));
    let mut found = calls::newest(view.connection, &conditions, values)?;
    found.reverse();
    let in_chunks = chunks::list(view, filter, i64::MAX)?;
    found.extend(in_chunks.into_iter().rev().map(|(_, record)| record));
    // Both come in the order in which calls ended.
    found.sort_by_key(|record| record.created_at_ms);
    found.drain(..found.len().saturating_sub(filter.most));
    Ok(found)
}

/// Calls by the place where they are kept, the latest first.
pub(super) fn walk(
    view: &View<'_>,
    organisation: &str,
    since_ms: i64,
    below: i64,
    most: usize,
) -> Result<(Vec<CallRecord>, Option<i64>), StoreError> {
    let query = "SELECT n FROM calls WHERE organisation = ?1 AND created_at_ms >= ?2 AND n < ?3 \
        ORDER BY n DESC LIMIT ?4";
    let mut statement = view.connection.prepare(query).map_err(failed)?;
    let values = params![organisation, since_ms, chunks::row_below(below), to_i64(most)];
    let rows = statement.query_map(values, |row| row.get(0)).map_err(failed)?;
    let rows: Vec<i64> = rows.collect::<rusqlite::Result<_>>().map_err(failed)?;
    let mut found: Vec<_> = rows.into_iter().map(|n| (chunks::position(n), None)).collect();
    let wanted = CallFilter {
        organisation: organisation.to_owned(),
        since_ms: Some(since_ms),
        most,
        ..CallFilter::default()
    };
    let in_chunks = chunks::list(view, &wanted, below)?;
    found.extend(in_chunks.into_iter().map(|(position, record)| (position, Some(record))));
    found.sort_by_key(|(position, _)| Reverse(*position));
    found.truncate(most);
    let next = found.last().map(|(position, _)| *position).filter(|_| found.len() == most);
    let mut calls = Vec::new();
    for (position, record) in found {
        match record {
            Some(record) => calls.push(record),
            None => calls.extend(calls::by_row(view.connection, chunks::row_at(position))?),
        }
    }
    Ok((calls, next))
}
