//! Counts what passes through one connection: whether a request left, and how much a head may cost.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::connect::IoStream;
use crate::net::tls::refuses_client;

/// Most bytes that an answer may take before its head is whole, interim answers included.
const HEAD_BUDGET: usize = 64 * 1024;

/// The counters of one connection. Only one task at a time touches them, so that relaxed order is enough.
#[derive(Debug, Default)]
pub struct Meter {
    sent: AtomicBool,
    in_head: AtomicBool,
    read: AtomicUsize,
    heard: AtomicBool,
    refusal: OnceLock<rustls::Error>,
    over_budget: AtomicBool,
}

impl Meter {
    /// An exchange begins: nothing is written yet, and what is read is head.
    pub fn begin(&self) {
        self.sent.store(false, Ordering::Relaxed);
        self.read.store(0, Ordering::Relaxed);
        self.in_head.store(true, Ordering::Relaxed);
    }

    /// The head is whole: the budget no longer counts.
    pub fn head_is_read(&self) {
        self.in_head.store(false, Ordering::Relaxed);
    }

    /// Whether a byte of the request may have been written.
    pub fn sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    /// The server's alert, where the first that it said is that it does not take the client's certificate.
    pub fn refusal(&self) -> Option<&rustls::Error> {
        self.refusal.get()
    }

    /// What is read first decides: later on the handshake has long been over.
    fn listen(&self, read: usize, polled: &Poll<io::Result<()>>) {
        match polled {
            Poll::Ready(Err(error)) if !self.heard.load(Ordering::Relaxed) => {
                let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                if let Some(refusal) = inner.filter(|error| refuses_client(error)) {
                    self.refusal.get_or_init(|| refusal.clone());
                }
            }
            _ if read > 0 => self.heard.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Whether reading was stopped because the head took too much.
    pub fn over_budget(&self) -> bool {
        self.over_budget.load(Ordering::Relaxed)
    }

    /// Judged before each read, so that a body that arrives together with a small head is not counted.
    fn may_read(&self) -> io::Result<()> {
        if self.in_head.load(Ordering::Relaxed) && self.read.load(Ordering::Relaxed) >= HEAD_BUDGET
        {
            self.over_budget.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the answer's head is larger than 64 KiB"));
        }
        Ok(())
    }
}

/// A stream and its meter.
pub struct Metered {
    stream: Box<dyn IoStream>,
    meter: Arc<Meter>,
    /// Under TLS a failed write may have put a part of it on the wire.
    encrypted: bool,
}

impl Metered {
    /// Puts a meter around a stream.
    pub fn new(stream: Box<dyn IoStream>, encrypted: bool) -> (Self, Arc<Meter>) {
        let meter = Arc::new(Meter::default());
        (Self { stream, meter: Arc::clone(&meter), encrypted }, meter)
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let left = match &written {
            Poll::Ready(Ok(count)) => *count > 0,
            Poll::Ready(Err(_)) => self.encrypted,
            Poll::Pending => false,
        };
        if left {
            self.meter.sent.store(true, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.meter.may_read()?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        let read = buf.filled().len() - before;
        if read > 0 {
            this.meter.read.fetch_add(read, Ordering::Relaxed);
        }
        this.meter.listen(read, &polled);
        polled
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.count(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
