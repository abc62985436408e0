//! Names to addresses: answers kept by their TTL, one question in flight per name.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::clock::{BoxFuture, Clock};
use crate::config::snapshot::DnsSettings;
use crate::net::dns::{ResolveErrorKind, ResolverError, Servers};
use crate::policy::address::{Admitted, Answers};
use crate::policy::endpoint::{Endpoint, Host};

/// Whatever can turn an admitted name into addresses.
pub trait Resolve: Send + Sync {
    /// Asks for both families; a literal is answered without a query.
    fn lookup<'a>(
        &'a self,
        admitted: &'a Admitted<'_>,
    ) -> BoxFuture<'a, Result<Resolved, ResolveError>>;

    /// Asks for the addresses of a place of the operator's own, the proxy or where notifications go, which no rule judges.
    fn lookup_own<'a>(
        &'a self,
        endpoint: &'a Endpoint,
    ) -> BoxFuture<'a, Result<Arc<Answers>, ResolveError>>;
}

/// What a lookup found.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Every address and every name of the chain.
    pub answers: Arc<Answers>,
    /// Whether it came from the cache.
    pub cached: bool,
    /// How long it took.
    pub duration: Duration,
}

/// A failed lookup, with the operator's sentence.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ResolveError {
    /// What happened.
    pub kind: ResolveErrorKind,
    /// Whether the failure came from the cache.
    pub cached: bool,
    /// How long it took.
    pub duration: Duration,
    message: Arc<str>,
}

impl ResolveError {
    /// A failure and the operator's sentence about it.
    pub fn new(kind: ResolveErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, cached: false, duration: Duration::ZERO, message: message.into() }
    }
}

/// A stub resolver that asks the configured servers and nothing else.
pub struct HickoryResolver {
    servers: Servers,
    clock: Arc<dyn Clock>,
    max_ttl: Duration,
    max_entries: usize,
    book: Mutex<Book>,
}

impl fmt::Debug for HickoryResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HickoryResolver")
    }
}

type Outcome = Result<Arc<Answers>, ResolveError>;

/// What is known and what is being asked, by name.
#[derive(Default)]
struct Book {
    known: HashMap<String, Known>,
    flights: HashMap<String, Arc<OnceCell<Outcome>>>,
}

struct Known {
    outcome: Outcome,
    until: Instant,
}

impl HickoryResolver {
    /// Builds the resolver; it opens no socket yet.
    pub fn new(settings: &DnsSettings, clock: Arc<dyn Clock>) -> Result<Self, ResolverError> {
        Ok(Self {
            servers: Servers::new(settings)?,
            clock,
            max_ttl: settings.max_ttl,
            max_entries: settings.max_entries,
            book: Mutex::default(),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome, and whether it took no question of this caller's own.
    async fn outcome(&self, name: &str) -> (Outcome, bool) {
        let flight = {
            let mut book = self.book();
            if let Some(known) = book.known.get(name)
                && self.clock.now() < known.until
            {
                return (known.outcome.clone(), true);
            }
            match book.flights.get(name) {
                Some(flight) => Arc::clone(flight),
                None => {
                    let flight = Arc::new(OnceCell::new());
                    book.flights.insert(name.to_owned(), Arc::clone(&flight));
                    flight
                }
            }
        };
        // A caller that goes away leaves the question to the next one who waits. Whoever did not ask shares an answer.
        let mut asked = false;
        let ask = || {
            asked = true;
            // Rare and large: in a box of its own, so that an answer that is kept does not carry it along.
            Box::pin(self.ask(name))
        };
        let outcome = flight.get_or_init(ask).await.clone();
        (outcome, !asked)
    }

    async fn ask(&self, name: &str) -> Outcome {
        let (outcome, ttl) = match self.servers.ask(name).await {
            Ok(found) => (Ok(Arc::new(found.answers)), found.ttl.min(self.max_ttl)),
            Err(miss) => {
                let message = format!("lookup of `{name}`: {}", miss.message);
                (Err(ResolveError::new(miss.kind, message)), miss.ttl)
            }
        };
        let now = self.clock.now();
        let mut book = self.book();
        book.flights.remove(name);
        if ttl.is_zero() {
            book.known.remove(name);
        } else {
            let known = Known { outcome: outcome.clone(), until: now + ttl };
            book.keep(name, known, self.max_entries, now);
        }
        outcome
    }
}

impl Book {
    fn keep(&mut self, name: &str, known: Known, max_entries: usize, now: Instant) {
        if self.known.len() >= max_entries && !self.known.contains_key(name) {
            self.known.retain(|_, known| now < known.until);
        }
        while self.known.len() >= max_entries && !self.known.contains_key(name) {
            let soonest = self.known.iter().min_by_key(|(_, known)| known.until);
            let Some(soonest) = soonest.map(|(name, _)| name.clone()) else { return };
            self.known.remove(&soonest);
        }
        self.known.insert(name.to_owned(), known);
    }
}

impl Resolve for HickoryResolver {
    fn lookup<'a>(
        &'a self,
        admitted: &'a Admitted<'_>,
    ) -> BoxFuture<'a, Result<Resolved, ResolveError>> {
        Box::pin(async move {
            let begun = self.clock.now();
            let (outcome, cached) = match (admitted.lookup_name(), admitted.literal()) {
                (Some(name), _) => self.outcome(name).await,
                (None, literal) => (Ok(Arc::new(literal.unwrap_or_default())), false),
            };
            let duration = self.clock.now() - begun;
            match outcome {
                Ok(answers) => Ok(Resolved { answers, cached, duration }),
                Err(error) => Err(ResolveError { cached, duration, ..error }),
            }
        })
    }

    fn lookup_own<'a>(
        &'a self,
        endpoint: &'a Endpoint,
    ) -> BoxFuture<'a, Result<Arc<Answers>, ResolveError>> {
        Box::pin(async move {
            match endpoint.host() {
                Host::Address(address) => {
                    Ok(Arc::new(Answers { addresses: vec![*address], names: Vec::new() }))
                }
                Host::Name(name) => self.outcome(name).await.0,
            }
        })
    }
}

#[cfg(test)]
mod tests;
