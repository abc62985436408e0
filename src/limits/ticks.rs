//! Time as limits count it: how long it is since they were made.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;

/// A clock and the moment from which it counts.
#[derive(Debug, Clone)]
pub struct Ticks {
    clock: Arc<dyn Clock>,
    began: Instant,
}

impl Ticks {
    /// Counts from now.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { began: clock.now(), clock }
    }

    /// The time since then.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.began)
    }
}
