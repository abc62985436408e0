//! One rate limit and whom it counts: a bounded number of subjects, the others share a bucket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use governor::clock::Clock as _;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;
use governor::{Quota, RateLimiter, clock};

use crate::limits::ticks::Ticks;
use crate::policy::quota::RateLimit;

/// Subjects that one limit counts apart; 16 bytes each.
pub const MOST_SUBJECTS: usize = 100_000;
/// After so many new subjects, those whose bucket is full again are forgotten.
const SWEEP_EVERY: usize = 10_000;

/// One rate limit and the state of each of its subjects.
#[derive(Debug)]
pub struct Bucket {
    limit: RateLimit,
    limiter: RateLimiter<u64, Subjects, Ticks, NoOpMiddleware<Nanos>>,
    subjects: Subjects,
}

impl Bucket {
    /// A limit that has seen nobody yet.
    pub fn new(limit: RateLimit, ticks: Ticks) -> Self {
        let quota = Quota::with_period(limit.period()).expect("a rate limit's period is not zero");
        let subjects = Subjects::default();
        let limiter = RateLimiter::new(quota.allow_burst(limit.burst()), subjects.clone(), ticks);
        Self { limit, limiter, subjects }
    }

    /// The limit.
    pub fn limit(&self) -> &RateLimit {
        &self.limit
    }

    /// Counts one call of a subject, or says how long it has to wait for the next.
    pub fn take(&self, subject: u64) -> Result<(), Duration> {
        let taken = self.limiter.check_key(&subject);
        if self.subjects.due() {
            self.limiter.retain_recent();
        }
        taken.map_err(|until| until.wait_time_from(self.limiter.clock().now()))
    }
}

impl clock::Clock for Ticks {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.elapsed().into()
    }
}

/// When the bucket of each subject will be full again.
#[derive(Debug, Clone, Default)]
struct Subjects(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    full_at: HashMap<u64, Nanos>,
    /// The bucket of those who find no place of their own.
    others: Option<Nanos>,
    new_ones: usize,
}

impl Subjects {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("no panic holds this lock")
    }

    /// Whether it is time to forget some; asked for once.
    fn due(&self) -> bool {
        let mut kept = self.lock();
        let due = kept.new_ones >= SWEEP_EVERY;
        if due {
            kept.new_ones = 0;
        }
        due
    }
}

impl StateStore for Subjects {
    type Key = u64;

    fn measure_and_replace<T, F, E>(&self, subject: &u64, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut kept = self.lock();
        if let Some(full_at) = kept.full_at.get_mut(subject) {
            let (taken, next) = measure(Some(*full_at))?;
            *full_at = next;
            return Ok(taken);
        }
        kept.new_ones += 1;
        if kept.full_at.len() >= MOST_SUBJECTS {
            let (taken, next) = measure(kept.others)?;
            kept.others = Some(next);
            return Ok(taken);
        }
        let (taken, next) = measure(None)?;
        kept.full_at.insert(*subject, next);
        Ok(taken)
    }
}

impl ShrinkableKeyedStateStore<u64> for Subjects {
    fn retain_recent(&self, drop_below: Nanos) {
        self.lock().full_at.retain(|_, full_at| *full_at >= drop_below);
    }

    fn len(&self) -> usize {
        self.lock().full_at.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::clock::SystemClock;
    use crate::policy::quota::{Per, Rate};

    fn bucket(rate: &str, burst: u32) -> Bucket {
        let rate = Rate::parse(rate).unwrap();
        let limit = RateLimit::new(Per::EndUser, rate, Some(burst), NonZeroU32::MIN).unwrap();
        Bucket::new(limit, Ticks::new(Arc::new(SystemClock)))
    }

    fn taken(bucket: &Bucket, subject: u64) -> usize {
        (0..1000).take_while(|_| bucket.take(subject).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_one_call_a_period() {
        let bucket = bucket("60/min", 3);
        assert_eq!((taken(&bucket, 1), taken(&bucket, 2)), (3, 3));
        assert_eq!(bucket.take(1), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert_eq!(bucket.take(1), Err(Duration::from_millis(1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((taken(&bucket, 1), taken(&bucket, 2)), (1, 1));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(&bucket, 1), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn f158_a_million_subjects_do_not_grow_it_and_the_late_ones_share_a_bucket() {
        let bucket = bucket("1/day", 2);
        let passed = (0..1_000_000).filter(|subject| bucket.take(*subject).is_ok()).count();
        assert_eq!(passed, MOST_SUBJECTS + 2);
        assert_eq!(bucket.limiter.len(), MOST_SUBJECTS);
        // Who has a bucket keeps it.
        assert!(bucket.take(7).is_ok() && bucket.take(7).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn f158_subjects_whose_bucket_is_full_again_are_forgotten() {
        let bucket = bucket("60/min", 1);
        for subject in 0..50_000 {
            assert_eq!(bucket.take(subject), Ok(()));
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        for subject in 50_000..60_000 {
            assert_eq!(bucket.take(subject), Ok(()));
        }
        assert_eq!(bucket.limiter.len(), 10_000);
    }
}
