//! What a policy would have done over some days: from the counts of the store, or from calls that it is tried on.

use std::collections::BTreeMap;

use crate::gateway::tally::{self, SAMPLES};
use crate::store::records::{ShadowCount, ShadowSample};

/// Contract: seven days where nobody says another number.
pub const DAYS: u64 = 7;
/// Most days of a report.
pub const MAX_DAYS: u64 = 90;

/// Some UTC calendar days, today the last of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days {
    /// The first, counted from 1970-01-01.
    pub from: i64,
    /// The last.
    pub to: i64,
}

/// The report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShadowReport {
    /// All tools together.
    pub total: Counted,
    /// Each tool that was called.
    pub by_tool: BTreeMap<String, Counted>,
    /// Calls that would have gone another way, those of the latest days first.
    pub samples: Vec<ShadowSample>,
}

/// Calls of one tool, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// Calls that the policy was asked about.
    pub calls: u64,
    /// Those that it matched.
    pub matched: u64,
    /// Those that would have gone another way.
    pub disagreements: u64,
    /// Those that needed a person and would have run unasked.
    pub unasked: u64,
    /// Those of these that people approved.
    pub approved: u64,
    /// Those of these that people rejected.
    pub rejected: u64,
    /// Those of these that nobody decided in time.
    pub expired: u64,
}

impl Days {
    /// So many days up to this time, in Unix milliseconds.
    pub fn until(unix_ms: i64, days: u64) -> Self {
        let to = tally::day(unix_ms);
        let before = i64::try_from(days.clamp(1, MAX_DAYS)).unwrap_or(1) - 1;
        Self { from: to - before, to }
    }

    /// When the first of them begins, in Unix milliseconds.
    pub fn begin_ms(self) -> i64 {
        tally::day_begins_ms(self.from)
    }
}

impl ShadowReport {
    /// Of what the store counted.
    pub fn of(counts: Vec<ShadowCount>, mut samples: Vec<ShadowSample>) -> Self {
        let mut report = Self::default();
        for count in counts {
            report.add(
                &count.tool,
                Counted {
                    calls: count.calls,
                    matched: count.matched,
                    disagreements: count.disagreed,
                    unasked: count.unasked,
                    approved: count.approved,
                    rejected: count.rejected,
                    expired: count.expired,
                },
            );
        }
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.day));
        samples.truncate(SAMPLES);
        Self { samples, ..report }
    }

    /// Adds calls of a tool.
    pub fn add(&mut self, tool: &str, counted: Counted) {
        self.total.add(counted);
        match self.by_tool.get_mut(tool) {
            Some(known) => known.add(counted),
            None => {
                self.by_tool.insert(tool.to_owned(), counted);
            }
        }
    }
}

impl Counted {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.matched += other.matched;
        self.disagreements += other.disagreements;
        self.unasked += other.unasked;
        self.approved += other.approved;
        self.rejected += other.rejected;
        self.expired += other.expired;
    }
}
