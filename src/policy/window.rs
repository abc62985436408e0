//! Counts of two kinds over the last stretch of time, in ten buckets.

use std::time::Duration;

/// How many buckets a window has: what is older than the window is forgotten a tenth at a time.
const BUCKETS: usize = 10;

/// A sliding window. `now` is the time since the start, and never goes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    width: Duration,
    buckets: [Bucket; BUCKETS],
}

/// What happened in one tenth of the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bucket {
    number: u64,
    counts: Counts,
}

/// How often each of two things happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub all: u64,
    /// Those that are watched.
    pub marked: u64,
}

impl Window {
    /// An empty window of this length.
    pub fn new(length: Duration) -> Self {
        // A bucket without width would have no number.
        let width = (length / 10).max(Duration::from_nanos(1));
        Self { width, buckets: [Bucket::default(); BUCKETS] }
    }

    /// Adds to what happens now.
    pub fn add(&mut self, now: Duration, counts: Counts) {
        let number = self.number(now);
        let bucket = &mut self.buckets[slot(number)];
        if bucket.number != number {
            *bucket = Bucket { number, counts: Counts::default() };
        }
        bucket.counts.all = bucket.counts.all.saturating_add(counts.all);
        bucket.counts.marked = bucket.counts.marked.saturating_add(counts.marked);
    }

    /// What happened within the window that ends now.
    pub fn sum(&self, now: Duration) -> Counts {
        let number = self.number(now);
        let recent = |bucket: &&Bucket| number.saturating_sub(bucket.number) < BUCKETS as u64;
        let recent = self.buckets.iter().filter(recent).map(|bucket| bucket.counts);
        recent.fold(Counts::default(), |sum, counts| Counts {
            all: sum.all.saturating_add(counts.all),
            marked: sum.marked.saturating_add(counts.marked),
        })
    }

    fn number(&self, now: Duration) -> u64 {
        u64::try_from(now.as_nanos() / self.width.as_nanos()).unwrap_or(u64::MAX)
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number % BUCKETS as u64).expect("a remainder of ten is small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten_by_tenths() {
        let mut window = Window::new(at(1000));
        window.add(at(0), Counts { all: 3, marked: 1 });
        window.add(at(150), Counts { all: 1, marked: 1 });
        assert_eq!(window.sum(at(150)), Counts { all: 4, marked: 2 });
        assert_eq!(window.sum(at(999)), Counts { all: 4, marked: 2 });
        assert_eq!(window.sum(at(1000)), Counts { all: 1, marked: 1 });
        assert_eq!(window.sum(at(1100)), Counts::default());
        window.add(at(2010), Counts { all: 1, marked: 0 });
        assert_eq!(window.sum(at(2010)), Counts { all: 1, marked: 0 });
    }

    #[test]
    fn a_window_without_length_forgets_at_once() {
        let mut window = Window::new(Duration::ZERO);
        window.add(at(5), Counts { all: 1, marked: 1 });
        assert_eq!(window.sum(at(6)), Counts::default());
    }
}
