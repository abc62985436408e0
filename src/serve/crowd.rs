//! The connections of one listener: never more than its bound, and whoever has waited longest makes room.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet};

use crate::serve::pace::{Pace, Turns};

/// How often it is looked whether somebody has begun to wait, where all are being answered.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Crowd {
    running: JoinSet<()>,
    paces: HashMap<Id, Pace>,
    turns: Turns,
    bound: usize,
}

impl Crowd {
    /// Nobody yet, and never more than `bound`.
    pub(super) fn new(bound: usize) -> Self {
        Self { running: JoinSet::new(), paces: HashMap::new(), turns: Turns::default(), bound }
    }

    /// Serves one more.
    pub(super) fn admit<F>(&mut self, serve: impl FnOnce(Pace) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let pace = Pace::new(self.turns.clone());
        let id = self.running.spawn(serve(pace.clone())).id();
        self.paces.insert(id, pace);
    }

    /// Waits until one has left.
    pub(super) async fn one_leaves(&mut self) {
        match self.running.join_next_with_id().await {
            Some(ended) => self.forget(ended),
            None => pending().await,
        }
    }

    /// Waits until all have left.
    pub(super) async fn all_leave(&mut self) {
        while let Some(ended) = self.running.join_next_with_id().await {
            self.forget(ended);
        }
    }

    /// Waits until there is room for one more. A client that is waited for has to go, the longest first; one that waits
    /// for its answer stays.
    pub(super) async fn room(&mut self) {
        while self.running.len() >= self.bound {
            let waiting = self.paces.values().filter_map(|pace| Some((pace.waits_since()?, pace)));
            if let Some((since, pace)) = waiting.min_by_key(|(since, _)| *since) {
                pace.dismiss(since);
            }
            // Its end is one way on; the other is that it began to be answered just now, or that nobody waits yet.
            let _ = tokio::time::timeout(LOOK, self.one_leaves()).await;
        }
    }

    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => error.id(),
        };
        self.paces.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    const HOUR: Duration = Duration::from_secs(3600);

    /// Admits a client whose name is noted when it has to leave.
    fn admit(crowd: &mut Crowd, name: &'static str, left: &Arc<Mutex<Vec<&'static str>>>) -> Pace {
        let left = left.clone();
        let mut kept = None;
        crowd.admit(|pace| {
            kept = Some(pace.clone());
            async move {
                pace.too_slow(HOUR, HOUR).await;
                left.lock().unwrap().push(name);
            }
        });
        kept.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_longest_makes_room() {
        let left = Arc::default();
        let mut crowd = Crowd::new(3);
        let first = admit(&mut crowd, "first", &left);
        let answered = admit(&mut crowd, "answered", &left);
        admit(&mut crowd, "last", &left);
        answered.answering();
        first.answering();
        first.answered();
        crowd.room().await;
        assert_eq!(*left.lock().unwrap(), ["last"], "the first one was active after it");
        crowd.room().await;
        assert_eq!(left.lock().unwrap().len(), 1, "there is room");
        admit(&mut crowd, "new", &left);
        crowd.room().await;
        assert_eq!(*left.lock().unwrap(), ["last", "first"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_closed_while_it_is_answered() {
        let left = Arc::default();
        let mut crowd = Crowd::new(1);
        let only = admit(&mut crowd, "only", &left);
        only.answering();
        let waited = tokio::time::timeout(HOUR / 2, crowd.room()).await;
        assert!(waited.is_err() && left.lock().unwrap().is_empty());
        only.answered();
        crowd.room().await;
        assert_eq!(*left.lock().unwrap(), ["only"]);
    }
}
