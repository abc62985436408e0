//! Spans of calls: recorded while a call runs, and handed to whoever exports them.
//!
//! A call that is not recorded has no [`CallTrace`], and then nothing here costs it anything.

pub mod call;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::snapshot::Tool;
use crate::config::tracing::Tracing;
use crate::model::call::ToolCall;
use crate::model::outcome::CallOutcome;
use crate::model::trace::{TraceContext, TraceId};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::trace::call::{Asked, CallTrace};

/// Calls whose spans wait to be exported ...
const WAITING: usize = 4096;
/// ... and the bytes of all of them: past either, new ones are dropped and counted.
const WAITING_BYTES: usize = 8 << 20;

/// What became of spans: the label `result` of `trace_exports_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exported {
    /// Too many waited, or nobody exports any more.
    Dropped,
    /// The collector did not take them, or the end came before its answer.
    Failed,
    /// The collector has them.
    Sent,
}

impl Exported {
    const ALL: [Self; 3] = [Self::Dropped, Self::Failed, Self::Sent];

    fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Failed => "failed",
            Self::Sent => "sent",
        }
    }
}

/// Records calls. Clones share the queue.
#[derive(Clone)]
pub struct Tracer {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Message>,
}

/// What both ends of the queue know.
struct Shared {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    waiting_bytes: AtomicUsize,
}

impl Shared {
    fn count(&self, result: Exported, spans: usize) {
        let spans = u64::try_from(spans).unwrap_or(u64::MAX);
        self.metrics.vectors.trace_exports.with_label_values(&[result.as_str()]).inc_by(spans);
    }
}

/// What waits to be exported.
enum Message {
    Spans(Spans),
    /// Everything that was sent before is exported, or given up.
    Reached(oneshot::Sender<()>),
}

/// The spans of one call.
struct Spans {
    bytes: Vec<u8>,
    count: usize,
}

/// Spans that are exported together. Those that are dropped unsettled have failed; whoever waits for them learns of it
/// then.
pub struct Batch {
    shared: Arc<Shared>,
    spans: Vec<Spans>,
    reached: Vec<oneshot::Sender<()>>,
    is_counted: bool,
}

/// The other end of the queue.
pub struct Spool {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<Message>,
}

impl Tracer {
    /// A tracer, and the other end of its queue. Where nobody has that, what is recorded is dropped.
    pub fn new(clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> (Self, Spool) {
        let (sender, queue) = mpsc::channel(WAITING);
        for result in Exported::ALL {
            metrics.vectors.trace_exports.with_label_values(&[result.as_str()]);
        }
        let waiting_bytes = AtomicUsize::new(0);
        let shared = Arc::new(Shared { clock, metrics, waiting_bytes });
        (Self { shared: shared.clone(), queue: sender }, Spool { shared, queue })
    }

    /// The place of a call in a trace: the one that it came with, and where spans are made, a new one if it came with none.
    pub fn place(
        &self,
        settings: Option<&Tracing>,
        given: Option<TraceContext>,
    ) -> Option<TraceContext> {
        let Some(settings) = settings else { return given };
        Some(settings.sampling.place(given, fresh_trace()))
    }

    /// Begins to record a call, where it is recorded.
    pub fn begin(
        &self,
        settings: Option<&Tracing>,
        call: &ToolCall,
        began: Instant,
    ) -> Option<CallTrace> {
        let context = call.context.trace.filter(|context| context.is_sampled)?;
        Some(CallTrace::new(settings?, context, began, self.shared.clock.unix_ms()))
    }

    /// The call has ended: its spans wait to be exported.
    pub fn end(
        &self,
        trace: CallTrace,
        call: &ToolCall,
        tool: Option<&Tool>,
        outcome: &CallOutcome,
    ) {
        let asked = Asked {
            context: &call.context,
            arguments: Some(call.arguments.text()),
            credentials: &call.credentials,
        };
        let (bytes, count) = trace.finish(&asked, tool, outcome, self.shared.clock.now());
        self.offer(Spans { bytes, count });
    }

    /// A call has ended that never ran here: it is one span, from its request to its end, where it is recorded.
    pub fn end_unrun(
        &self,
        settings: Option<&Tracing>,
        asked: &Asked<'_>,
        tool: Option<&Tool>,
        outcome: &CallOutcome,
    ) {
        let context = asked.context.trace.filter(|context| context.is_sampled);
        let (Some(settings), Some(context)) = (settings, context) else { return };
        let began = self.shared.clock.now();
        let trace = CallTrace::new(settings, context, began, outcome.created_at_ms);
        let (bytes, count) = trace.finish(asked, tool, outcome, began + outcome.duration);
        self.offer(Spans { bytes, count });
    }

    fn offer(&self, spans: Spans) {
        let (size, count) = (spans.bytes.len(), spans.count);
        let before = self.shared.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let has_room = before + size <= WAITING_BYTES;
        if !has_room || self.queue.try_send(Message::Spans(spans)).is_err() {
            self.shared.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
            self.shared.count(Exported::Dropped, count);
        }
    }

    /// Waits until everything that was recorded before is exported or given up.
    pub async fn exported(&self) {
        let (sender, reached) = oneshot::channel();
        // Without the other end nothing is exported at all.
        if self.queue.send(Message::Reached(sender)).await.is_ok() {
            let _ = reached.await;
        }
    }
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tracer")
    }
}

impl Spool {
    /// What is exported next: up to so many spans and bytes, which come together until `linger` after the first, or until
    /// somebody waits for them. `None` where nothing will come any more.
    pub async fn next(&mut self, limits: BatchLimits) -> Option<Batch> {
        let mut batch = Batch {
            shared: self.shared.clone(),
            spans: Vec::new(),
            reached: Vec::new(),
            is_counted: false,
        };
        batch.take(self.queue.recv().await?);
        let until = self.shared.clock.now() + limits.linger;
        while !batch.is_full(&limits) {
            match tokio::time::timeout_at(until, self.queue.recv()).await {
                Ok(Some(message)) => batch.take(message),
                Ok(None) | Err(_) => break,
            }
        }
        Some(batch)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.queue.close();
        while let Ok(message) = self.queue.try_recv() {
            if let Message::Spans(spans) = message {
                self.shared.waiting_bytes.fetch_sub(spans.bytes.len(), Ordering::Relaxed);
                self.shared.count(Exported::Dropped, spans.count);
            }
        }
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Spool")
    }
}

/// How much is exported together.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Spans, or a few more.
    pub spans: usize,
    /// Bytes, or a little more.
    pub bytes: usize,
    /// How long the first of them waits for others.
    pub linger: Duration,
}

impl Batch {
    fn take(&mut self, message: Message) {
        match message {
            Message::Spans(spans) => self.spans.push(spans),
            Message::Reached(sender) => self.reached.push(sender),
        }
    }

    fn is_full(&self, limits: &BatchLimits) -> bool {
        !self.reached.is_empty() || self.count() >= limits.spans || self.bytes() >= limits.bytes
    }

    fn bytes(&self) -> usize {
        self.spans.iter().map(|spans| spans.bytes.len()).sum()
    }

    /// How many spans there are.
    pub fn count(&self) -> usize {
        self.spans.iter().map(|spans| spans.count).sum()
    }

    /// The spans as they are written.
    pub fn spans(&self) -> impl Iterator<Item = &[u8]> {
        self.spans.iter().map(|spans| spans.bytes.as_slice())
    }

    /// Whether somebody waits for the end of it.
    pub fn is_awaited(&self) -> bool {
        !self.reached.is_empty()
    }

    /// The collector has them, but for so many that it refused.
    pub fn settle(mut self, refused: usize) {
        let count = self.count();
        let refused = refused.min(count);
        self.shared.count(Exported::Failed, refused);
        self.shared.count(Exported::Sent, count - refused);
        self.is_counted = true;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.is_counted {
            self.shared.count(Exported::Failed, self.count());
        }
        self.shared.waiting_bytes.fetch_sub(self.bytes(), Ordering::Relaxed);
        for sender in self.reached.drain(..) {
            // Whoever waited may have gone.
            let _ = sender.send(());
        }
    }
}

/// The id of a new trace.
fn fresh_trace() -> TraceId {
    loop {
        if let Some(id) = TraceId::new(rand::random()) {
            return id;
        }
    }
}

#[cfg(test)]
mod tests;
