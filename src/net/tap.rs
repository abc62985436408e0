//! Keeps what passes through the connections to a tool, for commands that show a call to a person. A gateway that serves
//! has none.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::clock::BoxFuture;
use crate::net::connect::{Connect, ConnectError, Connected, IoStream};
use crate::policy::address::Target;
use crate::policy::endpoint::Endpoint;

/// What is kept of a request: more than the largest that a call makes.
const SENT_KEPT: usize = 4 << 20;
/// What is kept of an answer: enough to see what it is.
const RECEIVED_KEPT: usize = 64 << 10;

/// What passed, in order. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tap(Arc<Mutex<Vec<Exchange>>>);

/// One request as it was written, and what came back, both inside TLS.
#[derive(Clone, Default)]
pub struct Exchange {
    /// The request's bytes.
    pub sent: Vec<u8>,
    /// The answer's first bytes.
    pub received: Vec<u8>,
    /// Further bytes of the answer that are not kept.
    pub left_out: usize,
}

/// Neither side is shown: a request holds its tool's own secrets.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchange({} bytes, {} bytes)", self.sent.len(), self.received.len())
    }
}

impl Tap {
    /// What passed until now.
    pub fn exchanges(&self) -> Vec<Exchange> {
        self.lock().clone()
    }

    /// Connections of this kind, and what passes through them is kept.
    pub fn on(&self, connect: Arc<dyn Connect>) -> Arc<dyn Connect> {
        Arc::new(TappedConnect { connect, tap: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Exchange>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TappedConnect {
    connect: Arc<dyn Connect>,
    tap: Tap,
}

impl Connect for TappedConnect {
    fn connect<'a>(
        &'a self,
        target: &'a Target<'a>,
        endpoint: &'a Endpoint,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Connected, ConnectError>> {
        Box::pin(async move {
            let connected = self.connect.connect(target, endpoint, deadline).await?;
            let Connected { stream, .. } = connected;
            let stream = Tapped { stream, tap: self.tap.clone(), exchange: None, heard: false };
            Ok(Connected { stream: Box::new(stream), ..connected })
        })
    }
}

/// One connection: what is written after something was read is another request.
struct Tapped {
    stream: Box<dyn IoStream>,
    tap: Tap,
    exchange: Option<usize>,
    heard: bool,
}

impl Tapped {
    fn sent(&mut self, bytes: &[u8]) {
        let tap = self.tap.clone();
        let mut all = tap.lock();
        if self.heard || self.exchange.is_none() {
            all.push(Exchange::default());
            (self.exchange, self.heard) = (Some(all.len() - 1), false);
        }
        if let Some(exchange) = self.exchange.and_then(|at| all.get_mut(at)) {
            let room = SENT_KEPT.saturating_sub(exchange.sent.len());
            exchange.sent.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        let tap = self.tap.clone();
        let mut all = tap.lock();
        if let Some(exchange) = self.exchange.and_then(|at| all.get_mut(at)) {
            let room = RECEIVED_KEPT.saturating_sub(exchange.received.len());
            let kept = bytes.get(..room).unwrap_or(bytes);
            exchange.received.extend_from_slice(kept);
            exchange.left_out += bytes.len() - kept.len();
            self.heard |= !bytes.is_empty();
        }
    }
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.received(buffer.filled().get(before..).unwrap_or_default());
        read
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.sent(bytes.get(..*count).unwrap_or(bytes));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_used_twice_carries_two_exchanges() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let tap = Tap::default();
        let stream: Box<dyn IoStream> = Box::new(ours);
        let mut tapped = Tapped { stream, tap: tap.clone(), exchange: None, heard: false };
        for (request, answer) in [("one", "first"), ("two", "second")] {
            let (head, rest) = request.split_at(1);
            tapped.write_all(head.as_bytes()).await.expect("written");
            tapped.write_all(rest.as_bytes()).await.expect("written");
            theirs.write_all(answer.as_bytes()).await.expect("written");
            let mut read = vec![0; answer.len()];
            tapped.read_exact(&mut read).await.expect("read");
        }
        let texts = |exchange: &Exchange| {
            [&exchange.sent, &exchange.received].map(|b| String::from_utf8_lossy(b).into_owned())
        };
        let seen: Vec<_> = tap.exchanges().iter().map(texts).collect();
        assert_eq!(seen, [["one", "first"], ["two", "second"]]);
        theirs.write_all(&vec![b'x'; RECEIVED_KEPT]).await.expect("written");
        tapped.read_exact(&mut vec![0; RECEIVED_KEPT]).await.expect("read");
        let last = tap.exchanges().pop().expect("an exchange");
        assert_eq!((last.received.len(), last.left_out), (RECEIVED_KEPT, "second".len()));
        assert_eq!(format!("{last:?}"), format!("Exchange(3 bytes, {RECEIVED_KEPT} bytes)"));
    }
}
