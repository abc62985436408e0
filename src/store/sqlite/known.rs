//! The calls of a file by id and identity, in memory: asked for each call, so that a new one costs no I/O.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::model::id::{CallId, IdempotencyKey};
use crate::store::hashed::Hashed;

/// Stands before an id.
const ID: u8 = 0xfe;
/// Stands before an identity.
const IDENTITY: u8 = 0xff;
/// Bytes of a name.
pub(super) const NAME: usize = 16;

/// A name of a call: 128 bits under a key of the file's own, so that nobody outside can make two of them meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name([u8; NAME]);

/// Which rows have which names. Clones share it.
#[derive(Clone)]
pub(super) struct Known(Arc<Shared>);

struct Shared {
    hasher: SipHasher13,
    names: RwLock<Names>,
    /// Calls in chunks that ended before this hold no names any more.
    unbound_before_ms: AtomicI64,
}

#[derive(Default)]
struct Names {
    rows: HashMap<Name, i64, Hashed>,
    ids: usize,
    /// What a name was before, for each change since the transaction began.
    changes: Vec<(Name, Option<i64>, usize)>,
    /// What lost its row since the transaction began: it may get another one, or its old one back.
    leaving: HashSet<Name, Hashed>,
}

impl Names {
    fn add_id(&mut self, name: Name, row: i64) {
        let before = self.rows.insert(name, row);
        self.changes.push((name, before, self.ids));
        self.ids += usize::from(before.is_none());
    }

    fn remove_id(&mut self, name: Name) {
        if let Some(before) = self.rows.remove(&name) {
            self.changes.push((name, Some(before), self.ids));
            self.ids -= 1;
            self.leaving.insert(name);
        }
    }

    fn bind(&mut self, name: Name, row: i64) {
        if let Entry::Vacant(free) = self.rows.entry(name) {
            free.insert(row);
            self.changes.push((name, None, self.ids));
        }
    }

    fn unbind(&mut self, name: Name, row: i64) {
        if self.rows.get(&name) == Some(&row) {
            self.rows.remove(&name);
            self.leaving.insert(name);
            self.changes.push((name, Some(row), self.ids));
        }
    }
}

/// Half of a name is as good a hash as all of it.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (halves, _) = self.0.as_chunks();
        state.write_u64(u64::from_le_bytes(halves[0]));
    }
}

impl Name {
    /// As it is kept.
    pub(super) fn bytes(&self) -> &[u8; NAME] {
        &self.0
    }

    /// As it was kept.
    pub(super) fn of_bytes(bytes: [u8; NAME]) -> Self {
        Self(bytes)
    }
}

impl Known {
    /// Nothing yet, and names under this key.
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self(Arc::new(Shared {
            hasher: SipHasher13::new_with_key(key),
            names: RwLock::default(),
            unbound_before_ms: AtomicI64::default(),
        }))
    }

    /// The name that an id is.
    pub(super) fn of_id(&self, organisation: &str, id: &CallId) -> Name {
        self.name(organisation, ID, id.as_str())
    }

    /// The name that an identity is.
    pub(super) fn of_identity(&self, organisation: &str, identity: &IdempotencyKey) -> Name {
        self.name(organisation, IDENTITY, identity.as_str())
    }

    /// The name that an id is, as it stands in a row.
    pub(super) fn of_id_text(&self, organisation: &str, id: &str) -> Name {
        self.name(organisation, ID, id)
    }

    /// The name that an identity is, as it stands in a row.
    pub(super) fn of_identity_text(&self, organisation: &str, identity: &str) -> Name {
        self.name(organisation, IDENTITY, identity)
    }

    /// The row that has it.
    pub(super) fn row(&self, name: Name) -> Option<i64> {
        self.read().rows.get(&name).copied()
    }

    /// Whether a row may have it now or when the transaction is kept: `false` is sure.
    pub(super) fn may_have(&self, name: Name) -> bool {
        let names = self.read();
        names.rows.contains_key(&name) || names.leaving.contains(&name)
    }

    /// Calls in chunks that ended before this hold no names any more. Unix milliseconds.
    pub(super) fn unbound_before(&self) -> i64 {
        self.0.unbound_before_ms.load(Ordering::Acquire)
    }

    /// Calls in chunks that ended before this hold no names from now on.
    pub(super) fn unbind_before(&self, at_ms: i64) {
        self.0.unbound_before_ms.fetch_max(at_ms, Ordering::AcqRel);
    }

    /// How many calls there are.
    pub(super) fn calls(&self) -> usize {
        self.read().ids
    }

    /// A row has an id from now on.
    pub(super) fn add_id(&self, name: Name, row: i64) {
        self.write().add_id(name, row);
    }

    /// A row is gone.
    pub(super) fn remove_id(&self, name: Name) {
        self.write().remove_id(name);
    }

    /// A row has an identity from now on, unless another one has it.
    pub(super) fn bind(&self, name: Name, row: i64) {
        self.write().bind(name, row);
    }

    /// A row no longer has an identity.
    pub(super) fn unbind(&self, name: Name, row: i64) {
        self.write().unbind(name, row);
    }

    /// A row with all its names.
    pub(super) fn add(&self, id: Name, identities: [Option<Name>; 2], row: i64) {
        let mut names = self.write();
        names.add_id(id, row);
        identities.into_iter().flatten().for_each(|identity| names.bind(identity, row));
    }

    /// A row is gone with all its names; whether it had the id until now.
    pub(super) fn remove(&self, id: Name, identities: [Option<Name>; 2], row: i64) -> bool {
        let mut names = self.write();
        let had = names.rows.get(&id) == Some(&row);
        if had {
            names.remove_id(id);
            identities.into_iter().flatten().for_each(|identity| names.unbind(identity, row));
        }
        had
    }

    /// How many changes are not kept yet.
    pub(super) fn mark(&self) -> usize {
        self.read().changes.len()
    }

    /// The changes since then did not happen.
    pub(super) fn undo(&self, mark: usize) {
        let mut names = self.write();
        while names.changes.len() > mark {
            let Some((name, before, ids)) = names.changes.pop() else { return };
            match before {
                Some(row) => names.rows.insert(name, row),
                None => names.rows.remove(&name),
            };
            names.ids = ids;
        }
        if mark == 0 {
            names.leaving.clear();
        }
    }

    /// All changes are kept.
    pub(super) fn keep(&self) {
        let mut names = self.write();
        names.changes.clear();
        names.changes.shrink_to(4096);
        names.leaving.clear();
        names.leaving.shrink_to(4096);
    }

    fn name(&self, organisation: &str, kind: u8, text: &str) -> Name {
        let mut hasher = self.0.hasher;
        hasher.write(organisation.as_bytes());
        // No text has such a byte: what follows is another part.
        hasher.write_u8(kind);
        hasher.write(text.as_bytes());
        Name(u128::from(hasher.finish128()).to_le_bytes())
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.0.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.0.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_kept_is_as_before() {
        let known = Known::new(&[7; 16]);
        let id = |text: &str| known.of_id_text("default", text);
        let identity = known.of_identity_text("default", "x");
        known.add_id(id("a"), 1);
        known.bind(identity, 1);
        known.keep();
        known.remove_id(id("a"));
        known.unbind(identity, 1);
        known.add_id(id("b"), 2);
        let mark = known.mark();
        known.bind(identity, 2);
        known.undo(mark);
        assert_eq!((known.row(identity), known.row(id("b")), known.calls()), (None, Some(2), 1));
        known.undo(0);
        let rows = [known.row(id("a")), known.row(id("b")), known.row(identity)];
        assert_eq!((rows, known.calls()), ([Some(1), None, Some(1)], 1));
    }

    /// Whoever asks in between must not hear that a call is unknown, and send it again.
    #[test]
    fn a_name_that_moves_is_known_all_the_while() {
        let known = Known::new(&[7; 16]);
        let (id, identity) =
            (known.of_id_text("default", "a"), known.of_identity_text("default", "x"));
        let both = || [known.may_have(id), known.may_have(identity)];
        known.add_id(id, -1);
        known.bind(identity, -1);
        known.keep();
        let leave = |row| {
            known.remove_id(id);
            known.unbind(identity, row);
        };
        leave(-1);
        assert_eq!((both(), known.row(id)), ([true, true], None));
        known.add_id(id, 1);
        known.bind(identity, 1);
        known.keep();
        leave(1);
        known.undo(0);
        assert_eq!((both(), known.row(id)), ([true, true], Some(1)));
        leave(1);
        known.keep();
        assert_eq!(both(), [false, false]);
    }

    #[test]
    fn the_first_holder_of_an_identity_keeps_it() {
        let known = Known::new(&[7; 16]);
        let identity = known.of_identity_text("default", "x");
        known.bind(identity, 1);
        known.bind(identity, 2);
        known.unbind(identity, 2);
        assert_eq!(known.row(identity), Some(1));
        assert_eq!(known.row(known.of_identity_text("other", "x")), None);
        assert_eq!(known.row(known.of_id_text("default", "x")), None);
    }
}
