//! Sets of keys that issuers publish: fetched when a token needs them, kept, and fetched again in time.
//!
//! A request never fetches by itself. It orders, and one worker fetches: a client that hangs up stops no fetch, and any
//! number of bad tokens make no more than one fetch in ten seconds.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, HOST};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::net::epoch::Epoch;
use crate::net::fetch::{Fetch, FetchError, fetch};
use crate::net::header_case::HeaderCase;
use crate::policy::endpoint::Endpoint;
use crate::policy::issuer::KEY_SET_ASKER;
use crate::policy::jwk::{self, KeySet, KeySetError};

/// A set is not fetched more often than this for its age, whatever its server says ...
const LEAST_AGE: Duration = Duration::from_secs(5 * 60);
/// ... and it is fetched again after this.
const MOST_AGE: Duration = Duration::from_secs(60 * 60);
/// A set that cannot be fetched again is used for so long.
const LONGEST_USE: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two fetches, also for a key that is not in the set.
const PAUSE: Duration = Duration::from_secs(10);
/// Bound on one fetch.
const FETCH_TIME: Duration = Duration::from_secs(5);
/// Bound on waiting for one, which may have to wait its turn.
const WAIT: Duration = Duration::from_secs(6);
/// Orders that wait.
const ORDERS: usize = 64;
/// Requests that wait for one set: nobody has vouched for them yet. Further ones are answered with what there is.
const WAITING: usize = 64;

/// The sets by URL.
pub struct KeySets {
    shelves: Mutex<HashMap<Endpoint, Arc<Shelf>>>,
    orders: mpsc::Sender<Arc<Shelf>>,
    clock: Arc<dyn Clock>,
}

/// Fetches what is ordered.
pub struct Fetcher {
    orders: mpsc::Receiver<Arc<Shelf>>,
    clock: Arc<dyn Clock>,
}

/// A fetched set, and how long it is fresh.
#[derive(Debug)]
pub struct Fetched {
    /// The keys.
    pub keys: KeySet,
    /// As its server says, within bounds.
    pub age: Duration,
}

/// Why a set could not be fetched, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum KeySetFetchError {
    /// Nothing was answered.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The answer is no set.
    #[error("the answer {0}")]
    KeySet(#[from] KeySetError),
    /// The answer is encoded, or broke off.
    #[error("the answer cannot be read")]
    Unreadable,
    /// The answer has another status than 200; a redirect is not followed.
    #[error("the answer has status {0}")]
    Status(u16),
}

struct Shelf {
    endpoint: Endpoint,
    state: watch::Sender<State>,
    waiting: Semaphore,
}

#[derive(Debug, Clone, Default)]
struct State {
    held: Option<Held>,
    /// A fetch is ordered or under way.
    ordered: bool,
    /// Fetches that have ended.
    ended: u64,
    /// When the last of them ended.
    last: Option<Instant>,
}

#[derive(Debug, Clone)]
struct Held {
    keys: Arc<KeySet>,
    fetched: Instant,
    age: Duration,
}

impl fmt::Debug for KeySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySets")
    }
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetcher")
    }
}

impl KeySets {
    /// No set yet, and the worker that fetches them.
    pub fn new(clock: Arc<dyn Clock>) -> (Self, Fetcher) {
        let (sender, orders) = mpsc::channel(ORDERS);
        let fetcher = Fetcher { orders, clock: clock.clone() };
        (Self { shelves: Mutex::default(), orders: sender, clock }, fetcher)
    }

    /// The set of this URL, fetched where there is none yet; `None` where none can be had.
    pub async fn get(&self, endpoint: &Endpoint) -> Option<Arc<KeySet>> {
        let shelf = self.shelf(endpoint);
        let state = shelf.state.borrow().clone();
        match state.usable(self.clock.now()) {
            Some(held) => {
                if self.clock.now().saturating_duration_since(held.fetched) >= held.age {
                    // Nobody waits for it: what there is is good enough.
                    self.order(&shelf);
                }
                Some(held.keys.clone())
            }
            None => self.ordered(&shelf).await,
        }
    }

    /// A set that was fetched after this one, because no key in it verified; `None` where there is none now.
    pub async fn newer(&self, endpoint: &Endpoint, than: &Arc<KeySet>) -> Option<Arc<KeySet>> {
        let keys = self.ordered(&self.shelf(endpoint)).await;
        keys.filter(|keys| !Arc::ptr_eq(keys, than))
    }

    fn shelf(&self, endpoint: &Endpoint) -> Arc<Shelf> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shelf) = shelves.get(endpoint) {
            return shelf.clone();
        }
        // A reload may have brought this URL for another one.
        let now = self.clock.now();
        shelves.retain(|_, shelf| {
            let state = shelf.state.borrow();
            state.ordered || state.usable(now).is_some()
        });
        let state = watch::Sender::new(State::default());
        let waiting = Semaphore::new(WAITING);
        let shelf = Arc::new(Shelf { endpoint: endpoint.clone(), state, waiting });
        shelves.insert(endpoint.clone(), shelf.clone());
        shelf
    }

    /// Orders a fetch, unless one is under way or has just ended; whether one is under way.
    fn order(&self, shelf: &Arc<Shelf>) -> bool {
        let now = self.clock.now();
        let mut under_way = false;
        let is_new = shelf.state.send_if_modified(|state| {
            let rests = state.last.is_some_and(|last| now.saturating_duration_since(last) < PAUSE);
            let is_new = !state.ordered && !rests;
            state.ordered |= is_new;
            under_way = state.ordered;
            is_new
        });
        if is_new && self.orders.try_send(shelf.clone()).is_err() {
            // The worker is behind, or gone: the next token asks again.
            shelf.state.send_modify(|state| state.ordered = false);
            return false;
        }
        under_way
    }

    /// The set after a fetch that is under way, or the one that there is.
    async fn ordered(&self, shelf: &Arc<Shelf>) -> Option<Arc<KeySet>> {
        let mut states = shelf.state.subscribe();
        let before = states.borrow().ended;
        if self.order(shelf)
            && let Ok(_place) = shelf.waiting.try_acquire()
        {
            // Whatever comes of it, what there is then is looked at.
            let _ = timeout(WAIT, states.wait_for(|state| state.ended > before)).await;
        }
        let state = states.borrow();
        state.usable(self.clock.now()).map(|held| held.keys.clone())
    }
}

impl State {
    fn usable(&self, now: Instant) -> Option<&Held> {
        let young = |held: &&Held| now.saturating_duration_since(held.fetched) < LONGEST_USE;
        self.held.as_ref().filter(young)
    }
}

impl Fetcher {
    /// Fetches what is ordered, by `fetch`, until nobody can order any more.
    pub async fn run<F, R>(mut self, fetch: F)
    where
        F: Fn(Endpoint) -> R,
        R: Future<Output = Result<Fetched, KeySetFetchError>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        loop {
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(shelf) => {
                        let fetched = fetch(shelf.endpoint.clone());
                        let clock = self.clock.clone();
                        running.spawn(Flight { shelf, clock }.fly(fetched));
                    }
                    None => break,
                },
                Some(_) = running.join_next() => {}
            }
        }
    }
}

/// One fetch. Its end is noted however it ends.
struct Flight {
    shelf: Arc<Shelf>,
    clock: Arc<dyn Clock>,
}

impl Flight {
    async fn fly(self, fetched: impl Future<Output = Result<Fetched, KeySetFetchError>> + Send) {
        match fetched.await {
            Ok(Fetched { keys, age }) => {
                let held = Held { keys: Arc::new(keys), fetched: self.clock.now(), age };
                self.shelf.state.send_modify(|state| state.held = Some(held));
            }
            Err(error) => {
                let url = self.shelf.endpoint.to_string();
                let kept = self.shelf.state.borrow().held.is_some();
                tracing::warn!(url, kept, %error, "The keys of an issuer cannot be fetched.");
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let now = self.clock.now();
        self.shelf.state.send_modify(|state| {
            state.ordered = false;
            state.ended += 1;
            state.last = Some(now);
        });
    }
}

/// Fetches a set by the egress rules in force.
pub async fn fetch_set(
    epoch: Arc<Epoch>,
    endpoint: Endpoint,
    clock: Arc<dyn Clock>,
) -> Result<Fetched, KeySetFetchError> {
    let case = HeaderCase::capture(&["Host", "Accept"]).expect("header names");
    let mut headers = HeaderMap::new();
    let host = HeaderValue::from_str(endpoint.authority()).expect("a host is ASCII");
    headers.insert(HOST, host);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let asked = Fetch {
        asker: KEY_SET_ASKER,
        endpoint: &endpoint,
        method: Method::GET,
        headers,
        case: &case,
        body: Bytes::new(),
        limit: jwk::MAX_BYTES,
        deadline: clock.now() + FETCH_TIME,
    };
    let answer = fetch(&epoch, asked, &*clock).await?;
    if answer.status != StatusCode::OK.as_u16() {
        return Err(KeySetFetchError::Status(answer.status));
    }
    if answer.body.len() > jwk::MAX_BYTES {
        return Err(KeySetError::TooLarge.into());
    }
    if !answer.whole || answer.headers.contains_key(CONTENT_ENCODING) {
        return Err(KeySetFetchError::Unreadable);
    }
    Ok(Fetched { keys: KeySet::parse(&answer.body)?, age: age(&answer.headers) })
}

/// How long an answer is fresh: its `max-age`, within bounds.
fn age(headers: &HeaderMap) -> Duration {
    let values = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives = values.flat_map(|value| value.split(','));
    let seconds = directives.filter_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        let value = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("max-age").then(|| value.parse::<u64>().ok())?
    });
    seconds.min().map_or(LEAST_AGE, Duration::from_secs).clamp(LEAST_AGE, MOST_AGE)
}

#[cfg(test)]
mod tests;
