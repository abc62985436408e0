//! Places that are taken and given back: a count of what runs, below a bound that may change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many places are taken.
#[derive(Debug, Clone, Default)]
pub struct Slots(Arc<AtomicUsize>);

/// One place; dropping it gives it back.
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Takes a place where fewer than `most` are taken.
    pub fn take(&self, most: usize) -> Option<Slot> {
        let one_more = |taken: usize| (taken < most).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        taken.ok().map(|_| Slot(self.0.clone()))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_given_back_can_be_taken_again() {
        let slots = Slots::default();
        let (first, second) = (slots.take(2), slots.take(2));
        assert!(first.is_some() && second.is_some() && slots.take(2).is_none());
        drop(first);
        assert!(slots.take(2).is_some());
    }

    #[test]
    fn a_lower_bound_holds_for_who_comes_next() {
        let slots = Slots::default();
        let taken: Vec<_> = (0..3).map(|_| slots.take(3)).collect();
        assert!(slots.take(1).is_none());
        drop(taken);
        assert!(slots.take(1).is_some());
    }
}
