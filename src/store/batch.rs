//! Calls on their way into a store: collected as bytes, so that nothing of a call outlives it but these.

use std::ops::Range;

use crate::store::error::StoreError;
use crate::store::frame::{self, Frame};
use crate::store::records::CallRecord;

/// Bytes of calls that were replaced, before room is made.
const SLACK: usize = 1 << 20;
/// Bytes that an emptied batch keeps for the next calls.
const SPARE: usize = 4 << 20;

/// Calls in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
    /// Of all in `places`.
    live: usize,
}

impl Batch {
    /// These calls.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a CallRecord>) -> Self {
        let mut batch = Self::default();
        for record in records {
            batch.push(|bytes| frame::push(bytes, record));
        }
        batch
    }

    /// How many calls there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of the calls.
    pub(super) fn bytes(&self) -> usize {
        self.live
    }

    /// One more; `write` puts it behind what is there.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let place = self.add(write);
        self.places.push(place);
    }

    /// One in the place of another.
    pub(super) fn replace(&mut self, at: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let place = self.add(write);
        self.live -= std::mem::replace(&mut self.places[at], place).len();
        if self.bytes.len() > 2 * self.live + SLACK {
            let old = std::mem::take(self);
            for place in &old.places {
                self.push(|bytes| bytes.extend_from_slice(old.slice(place)));
            }
        }
    }

    /// The call in this place.
    pub(super) fn get(&self, at: usize) -> Result<Frame<'_>, StoreError> {
        frame::one(self.slice(&self.places[at]))
    }

    /// All calls, each with where it is.
    pub(super) fn calls(
        &self,
    ) -> impl Iterator<Item = Result<(Range<usize>, Frame<'_>), StoreError>> {
        let call = |place: &Range<usize>| Ok((place.clone(), frame::one(self.slice(place))?));
        self.places.iter().map(call)
    }

    /// The calls that are there.
    pub(super) fn slice(&self, place: &Range<usize>) -> &[u8] {
        &self.bytes[place.clone()]
    }

    /// None any more; room for the next ones stays.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(SPARE);
        self.places.clear();
        self.live = 0;
    }

    fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let begin = self.bytes.len();
        write(&mut self.bytes);
        let place = begin..self.bytes.len();
        self.live += place.len();
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_does_not_take_room_for_ever() {
        let mut batch = Batch::default();
        let large = vec![7; SLACK / 4];
        batch.push(|bytes| bytes.extend_from_slice(b"first"));
        batch.push(|bytes| bytes.extend_from_slice(&large));
        for _ in 0..100 {
            batch.replace(1, |bytes| bytes.extend_from_slice(&large));
            assert!(batch.bytes.len() <= 2 * batch.live + SLACK + large.len());
        }
        assert_eq!((batch.len(), batch.bytes()), (2, large.len() + 5));
        assert_eq!(batch.slice(&batch.places[0]), b"first");
        assert_eq!(batch.slice(&batch.places[1]), large);
        batch.clear();
        assert!(batch.is_empty() && batch.bytes() == 0 && batch.bytes.capacity() <= SPARE);
    }
}
