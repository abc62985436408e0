//! What the gateway's process uses over time.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::support::gateway::Gateway;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);
/// Shorter runs are not judged: a process that starts grows.
const LONG: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    at: Duration,
    resident_kib: u64,
    descriptors: u64,
    threads: u64,
}

/// Samples from the start to the end.
#[derive(Debug)]
pub(super) struct Usage(Vec<Sample>);

impl Usage {
    /// Looks until then.
    pub(super) fn watch(gateway: &Gateway, until: Instant) -> JoinHandle<Self> {
        let id = gateway.process();
        tokio::spawn(async move {
            let begun = Instant::now();
            let mut samples = Vec::new();
            let mut tick = tokio::time::interval(EVERY);
            while Instant::now() < until {
                tick.tick().await;
                samples.push(sample(id, begun.elapsed()));
            }
            Self(samples)
        })
    }

    /// The mean of one minute, counted from 1.
    fn minute(&self, minute: u64) -> Option<[f64; 3]> {
        let within = |sample: &&Sample| sample.at.as_secs() / 60 + 1 == minute;
        let samples: Vec<_> = self.0.iter().filter(within).collect();
        let mean = |value: fn(&Sample) -> u64| {
            samples.iter().map(|sample| value(sample) as f64).sum::<f64>() / samples.len() as f64
        };
        (!samples.is_empty()).then(|| {
            [mean(|one| one.resident_kib), mean(|one| one.descriptors), mean(|one| one.threads)]
        })
    }

    fn last_minute(&self) -> u64 {
        // The last minute may be a stub of a second.
        self.0.last().map_or(1, |sample| (sample.at.as_secs() / 60).max(1))
    }

    /// Fails where the last minute used over five percent more than the second one.
    pub(super) fn assert_flat(&self) {
        if self.0.last().is_none_or(|sample| sample.at < LONG) {
            return;
        }
        let (early, late) = (self.minute(2), self.minute(self.last_minute()));
        let (Some(early), Some(late)) = (early, late) else { panic!("no samples: {self}") };
        for (what, (early, late)) in
            ["memory", "descriptors", "threads"].iter().zip(early.iter().zip(late))
        {
            // A few descriptors more or less are the moment's.
            assert!(late <= early * 1.05 + 4.0, "{what} grew: {self}");
        }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KiB, descriptors, threads by minute:")?;
        for minute in 1..=self.last_minute() {
            let Some([memory, descriptors, threads]) = self.minute(minute) else { continue };
            write!(f, " {minute}: {memory:.0} {descriptors:.1} {threads:.1};")?;
        }
        Ok(())
    }
}

fn sample(id: u32, at: Duration) -> Sample {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("a running process");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a field");
        line.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a number")
    };
    let descriptors =
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("a running process").count();
    Sample {
        at,
        resident_kib: field("VmRSS:"),
        descriptors: descriptors as u64,
        threads: field("Threads:"),
    }
}
