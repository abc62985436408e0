//! A call as bytes: many behind each other are collected, and kept as one row, for much less than each as values.

use crate::model::id::IdempotencyKey;
use crate::model::outcome::Phase;
use crate::store::error::StoreError;
use crate::store::records::CallRecord;
use crate::store::row::{CallRow, push_rest_of_call};

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
    pub(super) instance: Option<&'a str>,
    pub(super) rest: &'a str,
    pub(super) arguments: Option<&'a [u8]>,
    pub(super) outcome: &'a [u8],
}

/// What is asked about a call before it is looked at as a whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outline<'a> {
    pub(super) organisation: &'a str,
    pub(super) id: &'a str,
    /// Its own, and that of the next turn's request.
    pub(super) identities: [Option<&'a str>; 2],
    pub(super) bound: bool,
    pub(super) created_at_ms: i64,
    pub(super) is_final: bool,
}

impl<'a> Outline<'a> {
    /// That of a call which is not bytes yet.
    pub(super) fn of(record: &'a CallRecord) -> Self {
        let identities =
            [&record.identity, &record.alias].map(|key| key.as_ref().map(IdempotencyKey::as_str));
        Self {
            organisation: &record.organisation,
            id: record.id.as_str(),
            identities,
            bound: record.bound,
            created_at_ms: record.created_at_ms,
            is_final: record.phase.is_final(),
        }
    }
}

/// Puts a call behind others, as bytes.
pub(super) fn push(bytes: &mut Vec<u8>, record: &CallRecord) {
    let whole = begin(bytes);
    bytes.push(u8::from(record.bound));
    bytes.extend_from_slice(&record.created_at_ms.to_le_bytes());
    bytes.extend_from_slice(&record.finished_at_ms.unwrap_or(i64::MIN).to_le_bytes());
    let context = &record.context;
    let identity = record.identity.as_ref().map(IdempotencyKey::as_str);
    let alias = record.alias.as_ref().map(IdempotencyKey::as_str);
    for text in [
        Some(&*record.organisation),
        Some(record.id.as_str()),
        identity,
        alias,
        Some(record.phase.as_str()),
        Some(&*record.tool),
        context.session_id.as_deref(),
        context.run_id.as_ref().map(|run_id| run_id.as_str()),
        record.instance.as_deref(),
    ] {
        push_part(bytes, text.map(str::as_bytes));
    }
    let rest = begin(bytes);
    push_rest_of_call(bytes, record);
    end(bytes, rest);
    push_part(bytes, record.arguments.as_deref());
    push_part(bytes, Some(&record.outcome));
    end(bytes, whole);
}

fn push_part(bytes: &mut Vec<u8>, part: Option<&[u8]>) {
    let length = part.map_or(ABSENT, |part| u32::try_from(part.len()).unwrap_or(ABSENT));
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part.unwrap_or_default());
}

/// Leaves room for the length of what follows.
fn begin(bytes: &mut Vec<u8>) -> usize {
    bytes.extend_from_slice(&[0; 4]);
    bytes.len()
}

fn end(bytes: &mut [u8], begin: usize) {
    let length = u32::try_from(bytes.len() - begin).unwrap_or(ABSENT);
    bytes[begin - 4..begin].copy_from_slice(&length.to_le_bytes());
}

/// The call that these bytes are.
pub(super) fn one(bytes: &[u8]) -> Result<Frame<'_>, StoreError> {
    all(bytes).next().unwrap_or_else(|| Err(odd()))
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

impl<'a> Frame<'a> {
    /// What is asked first.
    pub(super) fn outline(&self) -> Outline<'a> {
        Outline {
            organisation: self.organisation,
            id: self.id,
            identities: [self.identity, self.alias],
            bound: self.bound,
            created_at_ms: self.created_at_ms,
            is_final: self.is_final(),
        }
    }

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

    /// Whether it is over.
    pub(super) fn is_final(&self) -> bool {
        Phase::parse(self.phase).is_some_and(Phase::is_final)
    }

    /// The call itself.
    pub(super) fn record(&self) -> Result<CallRecord, StoreError> {
        self.row(self.bound).read()
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
