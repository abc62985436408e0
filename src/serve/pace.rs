//! How long a client may take: a whole head within one bound, the next request within another.
//!
//! hyper's own bound starts when the last answer ends, so it would close kept connections as early as slow heads. Here a
//! connection notes what it waits for, and a timer of its own looks now and then; a request costs a few atomic writes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Looks per `header_timeout`: a slow head ends at most half a bound late.
const LOOKS: u32 = 2;

/// Numbers the changes of all connections of a listener, so that it is known who has waited longest without a clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<AtomicU64>);

/// What a connection waits for.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<State>);

#[derive(Debug)]
struct State {
    /// The lowest three bits say what it waits for, the others are the number of the last change.
    waits_for: AtomicU64,
    turns: Turns,
    dismissed: Notify,
}

/// The rest of a later head.
const HEAD: u64 = 0;
/// The gateway: a request is being answered.
const ANSWER: u64 = 1;
/// The client: that it takes its answer, and its next request.
const NEXT: u64 = 2;
/// Nothing more: it makes room for another one.
const LEAVING: u64 = 3;
/// The gateway: its answer goes on whenever something happens, and the client has taken all so far.
const TELLING: u64 = 4;
/// The client: that it takes what is ready of such an answer.
const TAKING: u64 = 5;
/// The first head, of which nothing need have come yet.
const FIRST: u64 = 6;
const KIND: u64 = 7;

/// Marks an answer that goes on whenever something happens, and ends with its connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasting;

impl Turns {
    fn next(&self, kind: u64) -> u64 {
        (self.0.fetch_add(1, Ordering::Relaxed) << 3) | kind
    }
}

impl Pace {
    /// A connection that was just accepted.
    pub(super) fn new(turns: Turns) -> Self {
        let waits_for = AtomicU64::new(turns.next(FIRST));
        Self(Arc::new(State { waits_for, turns, dismissed: Notify::new() }))
    }

    /// Whether no request has come yet.
    pub(super) fn is_new(&self) -> bool {
        self.now() & KIND == FIRST
    }

    /// A head is whole.
    pub(super) fn answering(&self) {
        self.turn(ANSWER);
    }

    /// An answer is on its way.
    pub(super) fn answered(&self) {
        self.turn(NEXT);
    }

    /// An answer is on its way that goes on whenever something happens.
    pub(super) fn telling(&self) {
        self.turn(TELLING);
    }

    fn turn(&self, kind: u64) {
        self.0.waits_for.store(self.0.turns.next(kind), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.0.waits_for.load(Ordering::Relaxed)
    }

    fn bytes_came(&self) {
        if self.now() & KIND == NEXT {
            self.turn(HEAD);
        }
    }

    /// A client that takes its answer slowly takes it.
    fn bytes_went(&self) {
        match self.now() & KIND {
            NEXT => self.turn(NEXT),
            TAKING => self.turn(TELLING),
            _ => {}
        }
    }

    /// The client has not taken what was written before, so there is no room for more.
    fn bytes_wait(&self) {
        if self.now() & KIND == TELLING {
            self.turn(TAKING);
        }
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(_)) => self.bytes_went(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.bytes_wait(),
        }
        written
    }

    /// Where the client is waited for: since which change.
    pub(super) fn waits_since(&self) -> Option<u64> {
        Some(self.now()).filter(|now| matches!(now & KIND, FIRST | HEAD | NEXT | TAKING))
    }

    /// Lets `too_slow` return, unless something has changed since: a request that has come is answered.
    pub(super) fn dismiss(&self, since: u64) {
        let leaving = since & !KIND | LEAVING;
        let order = Ordering::Relaxed;
        if self.0.waits_for.compare_exchange(since, leaving, order, order).is_ok() {
            self.0.dismissed.notify_one();
        }
    }

    /// Returns when the client has taken too long, or is dismissed.
    pub(super) async fn too_slow(&self, header_timeout: Duration, idle_timeout: Duration) {
        let step = (header_timeout / LOOKS).max(Duration::from_millis(1));
        let mut seen = self.now();
        let mut unchanged = Duration::ZERO;
        loop {
            let told = timeout(step, self.0.dismissed.notified()).await.is_ok();
            let now = self.now();
            unchanged = if now == seen && !told { unchanged + step } else { Duration::ZERO };
            seen = now;
            let bound = match now & KIND {
                LEAVING => return,
                FIRST | HEAD => header_timeout,
                NEXT | TAKING => idle_timeout,
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
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.pace.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Under TLS bytes that were taken here may still wait.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_pending() {
            self.pace.bytes_wait();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.pace.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
        assert_eq!(seconds_until_too_slow(&Pace::new(Turns::default())).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_kept_connection_may_be_idle_for_longer() {
        let pace = Pace::new(Turns::default());
        pace.answering();
        pace.answered();
        assert_eq!(seconds_until_too_slow(&pace).await, 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_head_that_drips_is_too_slow() {
        let pace = Pace::new(Turns::default());
        pace.answering();
        pace.answered();
        pace.bytes_came();
        pace.bytes_came();
        assert_eq!(seconds_until_too_slow(&pace).await, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_take_as_long_as_it_takes() {
        let pace = Pace::new(Turns::default());
        pace.answering();
        let waited = tokio::time::timeout(IDLE * 10, pace.too_slow(HEADER, IDLE)).await;
        assert!(waited.is_err(), "no bound of the client's runs while it waits for us");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_taken_slowly_is_taken() {
        let pace = Pace::new(Turns::default());
        pace.answering();
        pace.answered();
        let slow_reader = async {
            for _ in 0..10 {
                let nothing = std::future::pending::<()>();
                assert!(timeout(IDLE / 2, nothing).await.is_err());
                pace.bytes_went();
            }
        };
        let ((), seconds) = tokio::join!(slow_reader, seconds_until_too_slow(&pace));
        assert!(seconds >= 360, "a minute after the last byte: {seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_goes_on_is_not_idle_unless_it_is_not_taken() {
        let pace = Pace::new(Turns::default());
        pace.answering();
        pace.telling();
        assert_eq!(pace.waits_since(), None, "nobody waits for the client");
        let waited = tokio::time::timeout(IDLE * 10, pace.too_slow(HEADER, IDLE)).await;
        assert!(waited.is_err(), "nothing happened, which is no fault of the client");
        let (client, server) = tokio::io::duplex(8);
        let mut stream = Paced::new(server, pace.clone());
        stream.write_all(b"12345678").await.expect("room for it");
        assert_eq!(pace.waits_since(), None);
        let full = tokio::time::timeout(HEADER, stream.write_all(b"9")).await;
        assert!(full.is_err() && pace.waits_since().is_some());
        assert_eq!(seconds_until_too_slow(&pace).await, 60);
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_what_waited_is_not_too_slow_any_more() {
        let pace = Pace::new(Turns::default());
        pace.answering();
        pace.telling();
        let (mut client, server) = tokio::io::duplex(8);
        let mut stream = Paced::new(server, pace.clone());
        let mut taken = [0; 12];
        let (written, read) = tokio::join!(stream.write_all(b"123456789012"), async {
            tokio::task::yield_now().await;
            assert!(pace.waits_since().is_some());
            client.read_exact(&mut taken).await
        });
        written.expect("it was taken");
        read.expect("it came");
        let waited = tokio::time::timeout(IDLE * 10, pace.too_slow(HEADER, IDLE)).await;
        assert!(waited.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dismissed_connection_ends_unless_its_request_has_come() {
        let pace = Pace::new(Turns::default());
        let since = pace.waits_since().unwrap();
        pace.dismiss(since);
        pace.answering();
        let waited = tokio::time::timeout(IDLE, pace.too_slow(HEADER, IDLE)).await;
        assert!(waited.is_err(), "the request came first");
        assert_eq!(pace.waits_since(), None);
        pace.answered();
        pace.dismiss(since);
        assert!(pace.waits_since().is_some(), "that was said of another time");
        pace.dismiss(pace.waits_since().unwrap());
        assert_eq!(seconds_until_too_slow(&pace).await, 0);
    }
}
