//! Waiting for something that happens elsewhere, always with a deadline.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// How long a test waits before it says that something never happened: long, because it is only spent by a failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for a future, or fails with the name of what did not happen.
#[track_caller]
pub(crate) fn within<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        match timeout(DEADLINE, future).await {
            Ok(value) => value,
            Err(_) => panic!("{caller}: waited {DEADLINE:?} in vain: {what}"),
        }
    }
}

/// Asks again until there is an answer; for what can only be polled.
pub(crate) async fn poll<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    within(what, async {
        let mut tick = interval(Duration::from_millis(5));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if let Some(value) = ask().await {
                return value;
            }
        }
    })
    .await
}

/// Runs futures at the same time and gives their results in order.
pub(crate) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> =
        futures.into_iter().map(|future| (Box::pin(future), None::<F::Output>)).collect();
    poll_fn(|context| {
        for (future, result) in running.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *result = Some(ready);
            }
        }
        match running.iter().all(|(_, result)| result.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    running.into_iter().map(|(_, result)| result.expect("all are ready")).collect()
}

/// The same for many of them, each in a task of its own: polling them all again and again would take too long.
pub(crate) async fn spawned<T: Send + 'static>(
    futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let running: Vec<_> = futures.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::with_capacity(running.len());
    for task in running {
        results.push(task.await.expect("a task that does not panic"));
    }
    results
}

/// Something that happens once and that any number of tasks can wait for.
#[derive(Debug, Clone)]
pub(crate) struct Signal(Arc<watch::Sender<bool>>);

impl Signal {
    /// One that has not happened yet.
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Lets it happen.
    pub(crate) fn fire(&self) {
        self.0.send_replace(true);
    }

    /// Waits, without a deadline: a fixture ends with its test.
    pub(crate) async fn fired(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives in `self`, so the channel cannot close.
        let _ = receiver.wait_for(|fired| *fired).await;
    }
}

/// A growing list that tests read and wait on.
#[derive(Debug)]
pub(crate) struct Log<T> {
    items: Mutex<Vec<T>>,
    changes: watch::Sender<u64>,
}

impl<T: Clone + Debug> Log<T> {
    pub(crate) fn new() -> Self {
        Self { items: Mutex::new(Vec::new()), changes: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an item and says at which place it stands.
    pub(crate) fn push(&self, item: T) -> usize {
        self.change(|items| {
            items.push(item);
            items.len() - 1
        })
    }

    /// Changes the list in place.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let result = change(&mut self.lock());
        self.changes.send_modify(|version| *version += 1);
        result
    }

    /// Everything so far.
    pub(crate) fn all(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// Waits until the list answers the question; on failure the whole list is printed.
    pub(crate) async fn wait<R>(&self, what: &str, ask: impl Fn(&[T]) -> Option<R>) -> R {
        let mut changes = self.changes.subscribe();
        let search = async {
            loop {
                changes.borrow_and_update();
                if let Some(found) = ask(&self.lock()) {
                    return found;
                }
                changes.changed().await.expect("the sender lives in `self`");
            }
        };
        match timeout(DEADLINE, search).await {
            Ok(found) => found,
            Err(_) => panic!("waited {DEADLINE:?} in vain: {what}; there is {:#?}", self.all()),
        }
    }
}
