//! A finished call as bytes: many of them are one row, which costs much less than a row each.

use crate::model::id::IdempotencyKey;
use crate::store::StoreError;
use crate::store::records::CallRecord;
use crate::store::row::{CallRow, rest_of_call};

/// Stands for a value that is absent.
const ABSENT: u32 = u32::MAX;

/// A call that is still bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) organisation: &'a str,
    pub(super) id: &'a str,
    pub(super) identity: Option<&'a str>,
    pub(super) alias: Option<&'a str>,
    pub(super) phase: &'a str,
    pub(super) tool: &'a str,
    pub(super) session_id: Option<&'a str>,
    pub(super) run_id: Option<&'a str>,
    pub(super) bound: bool,
    pub(super) created_at_ms: i64,
    pub(super) finished_at_ms: Option<i64>,
    instance: Option<&'a str>,
    rest: &'a str,
    arguments: Option<&'a [u8]>,
    outcome: &'a [u8],
}

/// Puts a call behind others.
pub(super) fn push(bytes: &mut Vec<u8>, record: &CallRecord) {
    let begin = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes.push(u8::from(record.bound));
    bytes.extend_from_slice(&record.created_at_ms.to_le_bytes());
    bytes.extend_from_slice(&record.finished_at_ms.unwrap_or(i64::MIN).to_le_bytes());
    let context = &record.context;
    let identity = record.identity.as_ref().map(IdempotencyKey::as_str);
    let alias = record.alias.as_ref().map(IdempotencyKey::as_str);
    let rest = rest_of_call(record);
    for part in [
        Some(record.organisation.as_bytes()),
        Some(record.id.as_str().as_bytes()),
        identity.map(str::as_bytes),
        alias.map(str::as_bytes),
        Some(record.phase.as_str().as_bytes()),
        Some(record.tool.as_bytes()),
        context.session_id.as_deref().map(str::as_bytes),
        context.run_id.as_ref().map(|run_id| run_id.as_str().as_bytes()),
        record.instance.as_deref().map(str::as_bytes),
        Some(rest.as_bytes()),
        record.arguments.as_deref(),
        Some(&record.outcome),
    ] {
        let length = part.map_or(ABSENT, |part| u32::try_from(part.len()).unwrap_or(ABSENT));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(part.unwrap_or_default());
    }
    let length = u32::try_from(bytes.len() - begin - 4).unwrap_or(ABSENT);
    bytes[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}

/// The calls of a row, in order.
pub(super) fn all(bytes: &[u8]) -> impl Iterator<Item = Result<Frame<'_>, StoreError>> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(move || {
        if reader.0.is_empty() {
            return None;
        }
        let frame = reader.number().and_then(|length| reader.take(length)).and_then(read);
        if frame.is_none() {
            reader.0 = &[];
        }
        Some(frame.ok_or_else(odd))
    })
}

impl Frame<'_> {
    /// The same as columns; it is bound where it still counts so.
    pub(super) fn row(&self, bound: bool) -> CallRow {
        let text = |text: Option<&str>| text.map(str::to_owned);
        CallRow {
            organisation: self.organisation.to_owned(),
            id: self.id.to_owned(),
            phase: self.phase.to_owned(),
            bound,
            identity: text(self.identity),
            alias: text(self.alias),
            tool: self.tool.to_owned(),
            session_id: text(self.session_id),
            run_id: text(self.run_id),
            created_at_ms: self.created_at_ms,
            finished_at_ms: self.finished_at_ms,
            instance: text(self.instance),
            rest: self.rest.to_owned(),
            arguments: self.arguments.map(<[u8]>::to_vec),
            outcome: self.outcome.to_vec(),
        }
    }

    /// Whether it holds its names: not where it ended before then.
    pub(super) fn holds(&self, unbound_before_ms: i64) -> bool {
        self.bound && self.finished_at_ms.is_none_or(|at| at >= unbound_before_ms)
    }
}

fn read(bytes: &[u8]) -> Option<Frame<'_>> {
    let mut reader = Reader(bytes);
    let bound = reader.take(1)? == [1];
    let created_at_ms = reader.time()?;
    let finished_at_ms = Some(reader.time()?).filter(|at| *at != i64::MIN);
    let frame = Frame {
        bound,
        created_at_ms,
        finished_at_ms,
        organisation: reader.text()??,
        id: reader.text()??,
        identity: reader.text()?,
        alias: reader.text()?,
        phase: reader.text()??,
        tool: reader.text()??,
        session_id: reader.text()?,
        run_id: reader.text()?,
        instance: reader.text()?,
        rest: reader.text()??,
        arguments: reader.part()?,
        outcome: reader.part()??,
    };
    Some(frame)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }

    fn time(&mut self) -> Option<i64> {
        Some(i64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn part(&mut self) -> Option<Option<&'a [u8]>> {
        let bytes = self.take(4)?.try_into().ok()?;
        match u32::from_le_bytes(bytes) {
            ABSENT => Some(None),
            length => Some(Some(self.take(usize::try_from(length).ok()?)?)),
        }
    }

    fn text(&mut self) -> Option<Option<&'a str>> {
        match self.part()? {
            None => Some(None),
            Some(bytes) => Some(Some(std::str::from_utf8(bytes).ok()?)),
        }
    }
}

fn odd() -> StoreError {
    StoreError::Unavailable("a row of finished calls cannot be read".to_owned())
}
