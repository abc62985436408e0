//! The names of a chunk's calls, in few bytes: what is forgotten, and what a start has to know, is read without the calls.

use crate::store::StoreError;
use crate::store::sqlite::known::{NAME, Name};

/// It holds an identity.
const IDENTITY: u8 = 1;
/// And that of the next turn's request.
const ALIAS: u8 = 2;

/// What one call is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Names {
    /// Its id.
    pub(super) id: Name,
    /// What it holds: none where it is not bound.
    pub(super) identities: [Option<Name>; 2],
    /// Unix milliseconds; the latest where nobody knows.
    pub(super) ended_ms: i64,
}

impl Names {
    /// Whether it holds its identities: not where it ended before then.
    pub(super) fn holds(&self, unbound_before_ms: i64) -> bool {
        self.ended_ms >= unbound_before_ms
    }
}

/// Puts the names of a call behind those of others.
pub(super) fn push(bytes: &mut Vec<u8>, names: &Names) {
    let [identity, alias] = names.identities;
    let flag = |name: Option<Name>, flag| if name.is_some() { flag } else { 0 };
    bytes.push(flag(identity, IDENTITY) | flag(alias, ALIAS));
    bytes.extend_from_slice(&names.ended_ms.to_le_bytes());
    for name in [Some(names.id), identity, alias].into_iter().flatten() {
        bytes.extend_from_slice(name.bytes());
    }
}

/// The names of the calls, in order.
pub(super) fn all(mut bytes: &[u8]) -> impl Iterator<Item = Result<Names, StoreError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let names = take(&mut bytes);
        if names.is_none() {
            bytes = &[];
        }
        let odd = || StoreError::Unavailable("a row of finished calls has odd names".to_owned());
        Some(names.ok_or_else(odd))
    })
}

fn take(bytes: &mut &[u8]) -> Option<Names> {
    let [flags] = part(bytes)?;
    let ended_ms = i64::from_le_bytes(part(bytes)?);
    let id = name(bytes)?;
    let mut held = |flag| if flags & flag != 0 { name(bytes).map(Some) } else { Some(None) };
    let identities = [held(IDENTITY)?, held(ALIAS)?];
    (flags & !(IDENTITY | ALIAS) == 0).then_some(Names { id, identities, ended_ms })
}

fn name(bytes: &mut &[u8]) -> Option<Name> {
    part::<NAME>(bytes).map(Name::of_bytes)
}

fn part<const LENGTH: usize>(bytes: &mut &[u8]) -> Option<[u8; LENGTH]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_anything_else_is_refused() {
        let name = |byte| Name::of_bytes([byte; NAME]);
        let kept = [
            Names { id: name(1), identities: [None, None], ended_ms: 5 },
            Names { id: name(2), identities: [Some(name(3)), None], ended_ms: i64::MAX },
            Names { id: name(4), identities: [Some(name(5)), Some(name(6))], ended_ms: -1 },
        ];
        let mut bytes = Vec::new();
        kept.iter().for_each(|names| push(&mut bytes, names));
        let read: Result<Vec<_>, _> = all(&bytes).collect();
        assert_eq!(read.expect("they are whole"), kept);
        assert!(all(&bytes[..bytes.len() - 1]).any(|names| names.is_err()), "a part is missing");
        assert_eq!(all(&[0xff; 80]).map(|names| names.is_err()).collect::<Vec<_>>(), [true]);
        assert!(kept[0].holds(5) && !kept[0].holds(6));
    }
}
