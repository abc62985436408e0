//! Wall clock and monotonic clock behind one trait: the only file that reads either.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A boxed future, so that ports are object-safe without a macro.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The time of day and the time that passes.
pub trait Clock: Send + Sync {
    /// Wall time in Unix milliseconds; it may jump.
    fn unix_ms(&self) -> i64;

    /// Monotonic time, for deadlines and durations.
    fn now(&self) -> Instant;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn unix_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
    fn now(&self) -> Instant {
        Instant::now()
    }
}
