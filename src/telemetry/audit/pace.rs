//! How often a refusal of one key is taken down, so that nobody can flood the trail.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Of one key and reason one is taken down in this time.
const APART: Duration = Duration::from_secs(1);
/// Keys that are told apart: a token's subject can be anything. Past this they share one pace.
const TOLD_APART: usize = 1024;

/// When the last refusal of each key was taken down, and how many were not since.
#[derive(Debug, Default)]
pub(super) struct Pace(HashMap<(&'static str, Option<Whose>), Last>);

/// The organisation and the name of a key.
type Whose = (String, String);

#[derive(Debug)]
struct Last {
    at: Instant,
    left_out: u64,
}

impl Pace {
    /// Whether this one is taken down: then with how many that were left out before it.
    pub(super) fn next(
        &mut self,
        reason: &'static str,
        whose: Option<(&str, &str)>,
        now: Instant,
    ) -> Option<u64> {
        let is_over = |last: &Last| now.saturating_duration_since(last.at) >= APART;
        let mut key = (reason, whose.map(|(one, two)| (one.to_owned(), two.to_owned())));
        if self.0.len() >= TOLD_APART && !self.0.contains_key(&key) {
            self.0.retain(|_, last| !is_over(last));
            if self.0.len() >= TOLD_APART {
                key.1 = None;
            }
        }
        match self.0.get_mut(&key) {
            None => {
                self.0.insert(key, Last { at: now, left_out: 0 });
                Some(0)
            }
            Some(last) if is_over(last) => {
                last.at = now;
                Some(std::mem::take(&mut last.left_out))
            }
            Some(last) => {
                last.left_out += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};

    #[test]
    fn one_a_second_is_taken_down_and_the_others_are_counted() {
        let (mut pace, reason) = (Pace::default(), "unknown_key");
        let begin = SystemClock.now();
        assert_eq!(pace.next(reason, None, begin), Some(0));
        for _ in 0..5 {
            assert_eq!(pace.next(reason, None, begin + APART / 2), None);
        }
        assert_eq!(pace.next(reason, Some(("a", "b")), begin), Some(0), "another key");
        assert_eq!(pace.next("missing_scope", None, begin), Some(0), "another reason");
        assert_eq!(pace.next(reason, None, begin + APART), Some(5));
        assert_eq!(pace.next(reason, None, begin + 2 * APART), Some(0));
    }

    #[test]
    fn many_names_take_no_more_room_than_there_is() {
        let (mut pace, reason) = (Pace::default(), "missing_scope");
        let begin = SystemClock.now();
        let names: Vec<String> = (0..3 * TOLD_APART).map(|name| name.to_string()).collect();
        let taken =
            names.iter().filter(|name| pace.next(reason, Some(("a", name)), begin).is_some());
        assert_eq!(taken.count(), TOLD_APART + 1);
        assert_eq!(pace.0.len(), TOLD_APART + 1);
        assert_eq!(
            pace.next(reason, Some(("b", "c")), begin + APART),
            Some(0),
            "there is room again"
        );
        assert_eq!(pace.0.len(), 1);
    }
}
