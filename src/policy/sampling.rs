//! Which traces are recorded.

use crate::model::trace::{TraceContext, TraceId};

/// How many of the traces are recorded, and who says it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// The share of traces that are recorded, from 0 to 1.
    pub ratio: f64,
    /// Whether the caller's own decision stands, where the caller has made one.
    pub heeds_parent: bool,
}

impl Sampling {
    /// The place of a call that came with `given`; `fresh` is the id of its trace where it came with none.
    pub fn place(&self, given: Option<TraceContext>, fresh: TraceId) -> TraceContext {
        match given {
            Some(context) if self.heeds_parent => context,
            Some(context) => TraceContext { is_sampled: self.takes(&context.id), ..context },
            None => TraceContext { id: fresh, parent: None, is_sampled: self.takes(&fresh) },
        }
    }

    /// By the id alone, so that everybody with the same ratio records the same traces.
    fn takes(&self, id: &TraceId) -> bool {
        const HALF: f64 = (1_u64 << 63) as f64;
        let [.., a, b, c, d, e, f, g, h] = *id.bytes();
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        // What does not fit is all of them, or none.
        self.ratio >= 1.0 || number < (self.ratio * HALF) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(low: u64) -> TraceId {
        TraceId::new((1_u128 << 64 | u128::from(low)).to_be_bytes()).expect("not zero")
    }

    #[track_caller]
    fn check(ratio: f64, low: u64, taken: bool) {
        let sampling = Sampling { ratio, heeds_parent: true };
        assert_eq!(sampling.place(None, id(low)).is_sampled, taken, "{ratio} {low:x}");
    }

    #[test]
    fn a_share_of_the_ids_is_taken() {
        check(1.0, u64::MAX, true);
        check(0.0, 0, false);
        check(0.5, u64::MAX / 2 - 1, true);
        check(0.5, u64::MAX / 2 + 2, false);
        check(0.05, u64::MAX / 20 - 100_000, true);
        check(0.05, u64::MAX / 20 + 100_000, false);
    }

    #[test]
    fn the_callers_decision_stands_unless_it_is_not_heeded() {
        for (is_sampled, ratio) in [(true, 0.0), (false, 1.0)] {
            let given = TraceContext { id: id(7), parent: None, is_sampled };
            let heeding = Sampling { ratio, heeds_parent: true };
            assert_eq!(heeding.place(Some(given), id(8)), given);
            let deaf = Sampling { ratio, heeds_parent: false };
            let placed = deaf.place(Some(given), id(8));
            assert_eq!(placed, TraceContext { is_sampled: !is_sampled, ..given });
        }
    }
}
