//! Calls that run: counted, outliving their runtime, and never taking a panic along.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use prometheus::IntGauge;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::clock::BoxFuture;
use crate::exec::Presence;

/// How many calls run now.
#[derive(Debug)]
pub struct InFlight(Arc<Count>);

#[derive(Debug)]
struct Count {
    running: AtomicUsize,
    gauge: IntGauge,
    idle: Notify,
}

/// One running call; dropping it ends it.
#[derive(Debug)]
pub struct Ticket(Arc<Count>);

impl InFlight {
    /// Counts into a gauge.
    pub fn new(gauge: IntGauge) -> Self {
        Self(Arc::new(Count { running: AtomicUsize::new(0), gauge, idle: Notify::new() }))
    }

    /// Begins a call.
    pub fn enter(&self) -> Ticket {
        self.0.running.fetch_add(1, Ordering::AcqRel);
        self.0.gauge.inc();
        Ticket(self.0.clone())
    }

    /// Waits until none runs.
    pub async fn idle(&self) {
        loop {
            let changed = self.0.idle.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.0.running.load(Ordering::Acquire) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.gauge.dec();
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// A future that goes on in a task of its own when whoever waited for it drops it.
///
/// A task per call from the start would do the same at the price of a spawn and a wake-up for each.
pub struct Outliving<T: Send + 'static> {
    work: Option<BoxFuture<'static, T>>,
    presence: Presence,
}

impl<T: Send + 'static> Outliving<T> {
    /// Wraps the work; `presence` is told when nobody waits any more.
    pub fn new(work: BoxFuture<'static, T>, presence: Presence) -> Self {
        Self { work: Some(work), presence }
    }
}

impl<T: Send + 'static> Outliving<T> {
    /// Lets the work go on in a task of its own, as if somebody still waited for it.
    pub fn go_on(mut self) {
        if let Some(work) = self.work.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(work);
        }
    }
}

impl<T: Send + 'static> Future for Outliving<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut work = self.work.take().expect("a finished future is not polled again");
        let polled = work.as_mut().poll(context);
        // Work that panicked never comes here: it has ended and cannot go on elsewhere.
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Outliving<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        self.presence.leave();
        // Outside of a runtime the process is ending, and the work ends with it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

/// Does what is not to be left half-done, even where whoever asked for it goes away meanwhile.
pub async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    Outliving::new(Box::pin(work), Presence::default()).await
}

/// Does what takes milliseconds, and lets what else this thread serves go on elsewhere meanwhile.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// A future whose panic is an error and not the end of a task. After one it is not polled again.
pub struct Caught<'a, F>(pub Pin<&'a mut F>);

impl<F: Future> Future for Caught<'_, F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // What the future shares with others is behind locks and atomics, which a panic does not leave half-done.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic_text(&*panic))),
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn dropped_work_goes_on_and_knows_that_it_is_alone() {
        let (started, start) = tokio::sync::oneshot::channel();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let presence = Presence::default();
        let watched = presence.clone();
        let work = async move {
            started.send(()).unwrap();
            watched.gone().await;
            sender.send("finished").unwrap();
        };
        let mut outliving = Outliving::new(Box::pin(work), presence);
        tokio::select! {
            biased;
            () = &mut outliving => panic!("it waits for the presence"),
            started = start => started.unwrap(),
        }
        drop(outliving);
        assert_eq!(receiver.await, Ok("finished"));
    }

    #[tokio::test]
    async fn a_panic_becomes_its_text() {
        let caught = Caught(pin!(async { panic!("at the {}", "disco") })).await;
        assert_eq!(caught, Err::<(), _>("at the disco".to_owned()));
    }

    #[tokio::test]
    async fn idle_waits_for_the_last_ticket() {
        let in_flight = InFlight::new(IntGauge::new("calls", "calls").unwrap());
        let (first, second) = (in_flight.enter(), in_flight.enter());
        let mut idle = Box::pin(in_flight.idle());
        drop(first);
        tokio::select! {
            biased;
            () = &mut idle => panic!("one call runs"),
            () = std::future::ready(()) => {}
        }
        drop(second);
        idle.await;
    }
}
