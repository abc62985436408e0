//! How many attempts of a tool may be repeats, so that an outage is not answered with three times the load.

use std::time::Duration;

use crate::policy::window::{Counts, Window};

/// Contract: repeats are at most a fifth of the first attempts of the last ten seconds,
const WINDOW: Duration = Duration::from_secs(10);
const FIRST_ATTEMPTS_PER_REPEAT: u64 = 5;
/// or ten, whichever is more.
const ALWAYS: u64 = 10;

/// One tool's budget. `now` is the time since the start.
#[derive(Debug)]
pub struct RetryBudget(Window);

impl Default for RetryBudget {
    fn default() -> Self {
        Self(Window::new(WINDOW))
    }
}

impl RetryBudget {
    /// Counts a first attempt.
    pub fn first(&mut self, now: Duration) {
        self.0.add(now, Counts { all: 1, marked: 0 });
    }

    /// Whether one more repeat fits; it is spent with a yes.
    pub fn spend(&mut self, now: Duration) -> bool {
        let Counts { all: firsts, marked: repeats } = self.0.sum(now);
        let fits = repeats < ALWAYS.max(firsts / FIRST_ATTEMPTS_PER_REPEAT);
        if fits {
            self.0.add(now, Counts { all: 0, marked: 1 });
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(budget: &mut RetryBudget, now: Duration) -> usize {
        (0..10_000).take_while(|_| budget.spend(now)).count()
    }

    #[test]
    fn ten_repeats_are_always_there() {
        let mut budget = RetryBudget::default();
        assert_eq!(spent(&mut budget, Duration::ZERO), 10);
        budget.first(Duration::ZERO);
        assert_eq!(spent(&mut budget, Duration::ZERO), 0);
    }

    #[test]
    fn a_fifth_of_the_first_attempts_where_that_is_more() {
        let mut budget = RetryBudget::default();
        for _ in 0..1000 {
            budget.first(Duration::ZERO);
        }
        assert_eq!(spent(&mut budget, Duration::ZERO), 200);
    }

    #[test]
    fn ten_seconds_later_it_is_there_again() {
        let mut budget = RetryBudget::default();
        assert_eq!(spent(&mut budget, Duration::ZERO), 10);
        assert_eq!(spent(&mut budget, Duration::from_millis(9_900)), 0);
        assert_eq!(spent(&mut budget, Duration::from_secs(10)), 10);
    }
}
