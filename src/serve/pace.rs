//! How long a client may take: a whole head within one bound, the next request within another.
//!
//! hyper's own bound starts when the last answer ends, so it would close kept connections as early as slow heads. Here a
//! connection notes what it waits for, and a timer of its own looks now and then; a request costs two atomic writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Looks per `header_timeout`: a slow head ends at most half a bound late.
const LOOKS: u32 = 2;

/// What a connection waits for: the lowest two bits say which, the others count the changes.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<AtomicU32>);

/// The rest of a head: also at the very beginning, when nothing has come yet.
const HEAD: u32 = 0;
/// The gateway: a request is being answered.
const ANSWER: u32 = 1;
/// The client: its next request.
const NEXT: u32 = 2;
const KIND: u32 = 3;
const ONE_CHANGE: u32 = 4;

impl Pace {
    /// A connection that was just accepted.
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicU32::new(HEAD)))
    }

    /// A head is whole.
    pub(super) fn answering(&self) {
        self.turn(ANSWER);
    }

    /// An answer is on its way.
    pub(super) fn answered(&self) {
        self.turn(NEXT);
    }

    fn turn(&self, kind: u32) {
        // Only the connection's own task writes, so reading and writing need not be one step.
        let changes = self.0.load(Ordering::Relaxed) & !KIND;
        self.0.store(changes.wrapping_add(ONE_CHANGE) | kind, Ordering::Relaxed);
    }

    fn bytes_came(&self) {
        if self.0.load(Ordering::Relaxed) & KIND == NEXT {
            self.turn(HEAD);
        }
    }

    /// Returns when the client has taken too long.
    pub(super) async fn too_slow(&self, header_timeout: Duration, idle_timeout: Duration) {
        let step = (header_timeout / LOOKS).max(Duration::from_millis(1));
        let mut seen = self.0.load(Ordering::Relaxed);
        let mut unchanged = Duration::ZERO;
        loop {
            tokio::time::sleep(step).await;
            let now = self.0.load(Ordering::Relaxed);
            unchanged = if now == seen { unchanged + step } else { Duration::ZERO };
            seen = now;
            let bound = match now & KIND {
                HEAD => header_timeout,
                NEXT => idle_timeout,
                _ => continue,
            };
            if unchanged >= bound {
                return;
            }
        }
    }
}

/// A stream that notes when the next request begins.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    pace: Pace,
}

impl<S> Paced<S> {
    /// Watches the stream.
    pub(super) fn new(stream: S, pace: Pace) -> Self {
        Self { stream, pace }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.pace.bytes_came();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const HEADER: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_secs(60);

    #[expect(clippy::disallowed_methods, reason = "tokio's paused clock")]
    fn now() -> Instant {
        Instant::now()
    }

    async fn seconds_until_too_slow(pace: &Pace) -> u64 {
        let begun = now();
        pace.too_slow(HEADER, IDLE).await;
        (now() - begun).as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_nothing_has_the_time_of_a_head() {
        assert_eq!(seconds_until_too_slow(&Pace::new()).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_may_be_idle_for_longer() {
        let pace = Pace::new();
        pace.answering();
        pace.answered();
        assert_eq!(seconds_until_too_slow(&pace).await, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_head_that_drips_is_too_slow() {
        let pace = Pace::new();
        pace.answering();
        pace.answered();
        pace.bytes_came();
        pace.bytes_came();
        assert_eq!(seconds_until_too_slow(&pace).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_as_long_as_it_takes() {
        let pace = Pace::new();
        pace.answering();
        let waited = tokio::time::timeout(IDLE * 10, pace.too_slow(HEADER, IDLE)).await;
        assert!(waited.is_err(), "no bound of the client's runs while it waits for us");
    }
}
