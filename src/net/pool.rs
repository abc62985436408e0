//! The only keeper of connections: one site per tool and snapshot, checked again at every use.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::snapshot::{PoolSettings, Reuse};
use crate::net::client::{
    ExchangeError, ExchangeErrorKind, HttpConnection, Idle, Outbound, RawAnswer, ReadLimits,
};
use crate::net::connect::{Connect, ConnectError, ConnectErrorKind};
use crate::net::header_case::HeaderCase;
use crate::policy::address::{Admitted, EgressRules, Peer, Target};
use crate::policy::endpoint::{Endpoint, Host, Scheme};

/// Most exchanges on one connection.
const MAX_EXCHANGES: u32 = 1000;

/// How long `reuse: auto` gives an endpoint fresh connections after a kept one broke under a written request.
const DISTRUST_FOR: Duration = Duration::from_secs(600);

/// How often idle connections are looked at when none of them rings, and how often at most when many do.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// Counters that telemetry reads; the first four are the kinds of `upstream_connections_total`.
#[derive(Debug, Default)]
pub struct PoolEvents {
    /// Connections opened.
    pub new: AtomicU64,
    /// Exchanges on a kept connection.
    pub reused: AtomicU64,
    /// Kept connections that were closed: age, idleness, number, the peer, a rule, a reload.
    pub evicted: AtomicU64,
    /// Connections closed for what they brought: stray bytes, a second answer, a broken message.
    pub poisoned: AtomicU64,
    /// Connections that are open now, in use or kept.
    pub open: AtomicU64,
}

/// How a tool's server is reached and how its connections are kept, in one configuration.
#[derive(Clone)]
pub struct Way {
    /// Opens connections.
    pub connect: Arc<dyn Connect>,
    /// Keeps them.
    pub settings: PoolSettings,
}

/// Where one tool's connections of one snapshot are kept. Dropping the last handle closes what is idle.
#[derive(Debug, Clone)]
pub struct Route(Arc<Site>);

/// Whether a kept connection will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// A kept one, if there is one.
    Any,
    /// A new one: after `ExchangeErrorKind::Unsent`.
    Fresh,
}

/// The pool.
pub struct Pool {
    clock: Arc<dyn Clock>,
    events: Arc<PoolEvents>,
    registry: Mutex<Registry>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// All sites, and what is remembered of endpoints over reloads.
#[derive(Default)]
struct Registry {
    sites: Vec<Weak<Site>>,
    trust: HashMap<EndpointKey, Weak<Trust>>,
}

/// Tool id, name and port.
type EndpointKey = (String, Host, u16);

/// The key of a connection is where it lies: tool, endpoint and configuration by its site, the address with it.
struct Site {
    endpoint: Endpoint,
    way: Way,
    case: HeaderCase,
    trust: Arc<Trust>,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    retired: bool,
    idle: Vec<Pooled>,
}

/// Until when an endpoint gets fresh connections only.
#[derive(Default)]
struct Trust(Mutex<Option<Instant>>);

struct Pooled {
    http: HttpConnection,
    peer: Peer,
    opened: Instant,
    idle_since: Instant,
    exchanges: u32,
    certificate_expiry: Option<i64>,
    _open: Open,
}

/// Counts a connection as open for as long as it lives.
struct Open(Arc<PoolEvents>);

/// Rung by the runtime when something happens on an idle connection.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl Open {
    fn new(events: &Arc<PoolEvents>) -> Self {
        count(&events.open);
        Self(Arc::clone(events))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Site({})", self.endpoint)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.events).finish()
    }
}

impl Pool {
    /// An empty pool.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let bell = Arc::new(Bell::default());
        Arc::new(Self {
            clock,
            events: Arc::default(),
            registry: Mutex::default(),
            waker: Waker::from(Arc::clone(&bell)),
            bell,
        })
    }

    /// A route for one tool of one snapshot, made once; `case` is the spelling of its header names.
    pub fn route(&self, tool_id: &str, endpoint: &Endpoint, case: HeaderCase, way: Way) -> Route {
        let mut registry = locked(&self.registry);
        registry.sites.retain(|site| site.strong_count() > 0);
        registry.trust.retain(|_, trust| trust.strong_count() > 0);
        let key = (tool_id.to_owned(), endpoint.host().clone(), endpoint.port());
        let remembered = registry.trust.get(&key).and_then(Weak::upgrade);
        let trust = remembered.unwrap_or_default();
        registry.trust.insert(key, Arc::downgrade(&trust));
        let endpoint = endpoint.clone();
        let site = Arc::new(Site { endpoint, way, case, trust, shelf: Mutex::default() });
        registry.sites.push(Arc::downgrade(&site));
        Route(site)
    }

    /// A kept connection to where it may go that `rules` still allow, else a new one.
    pub async fn checkout(
        self: &Arc<Self>,
        route: &Route,
        admitted: &Admitted<'_>,
        target: &Target<'_>,
        rules: &EgressRules,
        freshness: Freshness,
        deadline: Instant,
    ) -> Result<Lease, ConnectError> {
        let site = &route.0;
        if site.endpoint != *admitted.endpoint() {
            let message = format!("{site:?} is not the place of {}", admitted.endpoint());
            return Err(ConnectError::new(ConnectErrorKind::PeerMismatch, message));
        }
        if freshness == Freshness::Any && self.reuses(site) {
            while let Some(mut pooled) = site.take(target) {
                if self.is_over(site, &pooled) || !rules.may_keep(admitted, &pooled.peer) {
                    count(&self.events.evicted);
                } else if self.survives(pooled.http.poll_idle(Waker::noop())) {
                    count(&self.events.reused);
                    return Ok(self.lease(site, pooled, DialTimings::default(), true));
                }
            }
        }
        // Rare and large: in a box of its own, so that a call on a kept connection does not carry it along.
        Box::pin(self.dial(site, target, deadline)).await
    }

    async fn dial(
        self: &Arc<Self>,
        site: &Arc<Site>,
        target: &Target<'_>,
        deadline: Instant,
    ) -> Result<Lease, ConnectError> {
        let connected = site.way.connect.connect(target, &site.endpoint, deadline).await?;
        let open = Open::new(&self.events);
        count(&self.events.new);
        let timings = DialTimings { connect: connected.connect, tls: connected.tls };
        let encrypted = site.endpoint.scheme() == Scheme::Https;
        let http = HttpConnection::open(connected.stream, encrypted)
            .await
            .map_err(|error| ConnectError::not_http(&error))?;
        let opened = self.clock.now();
        let pooled = Pooled {
            http,
            peer: connected.peer,
            opened,
            idle_since: opened,
            exchanges: 0,
            certificate_expiry: connected.certificate_expiry,
            _open: open,
        };
        Ok(self.lease(site, pooled, timings, false))
    }

    fn lease(
        self: &Arc<Self>,
        site: &Arc<Site>,
        pooled: Pooled,
        timings: DialTimings,
        reused: bool,
    ) -> Lease {
        Lease { pool: Arc::clone(self), site: Arc::clone(site), pooled, timings, reused }
    }

    fn reuses(&self, site: &Site) -> bool {
        match site.way.settings.reuse {
            Reuse::Always => true,
            Reuse::Auto => locked(&site.trust.0).is_none_or(|until| until <= self.clock.now()),
            Reuse::Never => false,
        }
    }

    /// Whether the time of a kept connection is over.
    fn is_over(&self, site: &Site, pooled: &Pooled) -> bool {
        let (now, settings) = (self.clock.now(), &site.way.settings);
        now - pooled.idle_since >= settings.idle_timeout || now - pooled.opened >= settings.max_age
    }

    /// Counts the end of a kept connection that its peer closed or spoiled.
    fn survives(&self, idle: Idle) -> bool {
        match idle {
            Idle::Alive => return true,
            Idle::Closed => count(&self.events.evicted),
            Idle::Poisoned => count(&self.events.poisoned),
        }
        false
    }

    /// Takes a connection back after a whole answer.
    fn give_back(&self, site: &Site, mut pooled: Pooled) {
        let (now, settings) = (self.clock.now(), &site.way.settings);
        if !self.reuses(site)
            || pooled.exchanges >= MAX_EXCHANGES
            || now - pooled.opened >= settings.max_age
        {
            return;
        }
        pooled.idle_since = now;
        match pooled.http.poll_idle(&self.waker) {
            Idle::Alive => {}
            Idle::Closed => return,
            Idle::Poisoned => return count(&self.events.poisoned),
        }
        let mut oldest = None;
        let mut shelf = locked(&site.shelf);
        if shelf.retired || settings.max_idle_per_host == 0 {
            return;
        }
        if shelf.idle.len() >= settings.max_idle_per_host {
            oldest = Some(shelf.idle.remove(0));
        }
        shelf.idle.push(pooled);
        drop(shelf);
        if oldest.is_some() {
            count(&self.events.evicted);
        }
    }

    /// Learns from a failed exchange.
    fn learn(&self, site: &Site, reused: bool, error: &ExchangeError) {
        match error.kind {
            ExchangeErrorKind::Framing | ExchangeErrorKind::Head => count(&self.events.poisoned),
            ExchangeErrorKind::Closed | ExchangeErrorKind::Reset
                if reused && error.sent && error.status.is_none() =>
            {
                *locked(&site.trust.0) = Some(self.clock.now() + DISTRUST_FOR);
            }
            ExchangeErrorKind::ClientCertificate
            | ExchangeErrorKind::Closed
            | ExchangeErrorKind::Reset
            | ExchangeErrorKind::Timeout(_)
            | ExchangeErrorKind::Unsent => {}
        }
    }

    /// Closes what is idle of a route that is no longer used; what is in use is closed when it comes back.
    pub fn retire(&self, route: &Route) {
        self.close(&route.0);
    }

    /// Closes everything that is idle; what is in use is closed when it comes back.
    pub fn close_all(&self) {
        self.sites().iter().for_each(|site| self.close(site));
    }

    fn close(&self, site: &Site) {
        let mut shelf = locked(&site.shelf);
        shelf.retired = true;
        let closed = std::mem::take(&mut shelf.idle);
        drop(shelf);
        closed.iter().for_each(|_| count(&self.events.evicted));
    }

    fn sites(&self) -> Vec<Arc<Site>> {
        locked(&self.registry).sites.iter().filter_map(Weak::upgrade).collect()
    }

    /// The counters.
    pub fn events(&self) -> &PoolEvents {
        &self.events
    }

    /// Closes idle connections when their time or their peer says so; runs until it is dropped.
    pub async fn run_reaper(self: Arc<Self>) {
        loop {
            // Both ways of waking up mean the same.
            let _ = tokio::time::timeout(SWEEP_EVERY, self.bell.0.notified()).await;
            // Without a budget: a look that was cut short would ring the bell again.
            tokio::task::coop::unconstrained(async { self.sweep() }).await;
            tokio::time::sleep(SWEEP_PAUSE).await;
        }
    }

    fn sweep(&self) {
        for site in self.sites() {
            let mut closed = Vec::new();
            let mut shelf = locked(&site.shelf);
            for mut pooled in std::mem::take(&mut shelf.idle) {
                if self.is_over(&site, &pooled) {
                    count(&self.events.evicted);
                    closed.push(pooled);
                } else if self.survives(pooled.http.poll_idle(&self.waker)) {
                    shelf.idle.push(pooled);
                } else {
                    closed.push(pooled);
                }
            }
            // Closing may take a system call each: not under the lock.
            drop(shelf);
            drop(closed);
        }
    }
}

impl Site {
    /// The kept connection to there that was used last.
    fn take(&self, target: &Target<'_>) -> Option<Pooled> {
        let mut shelf = locked(&self.shelf);
        let at = shelf.idle.iter().rposition(|pooled| target.holds(&pooled.peer))?;
        Some(shelf.idle.remove(at))
    }
}

/// How long the dial took; zero where the connection was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DialTimings {
    /// TCP.
    pub connect: Duration,
    /// TLS.
    pub tls: Duration,
}

/// One connection for one exchange. Dropping it closes the connection.
pub struct Lease {
    pool: Arc<Pool>,
    site: Arc<Site>,
    pooled: Pooled,
    timings: DialTimings,
    reused: bool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?}, reused: {})", self.pooled.peer, self.reused)
    }
}

impl Lease {
    /// Whether it served another exchange before.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// How long the dial took.
    pub fn timings(&self) -> DialTimings {
        self.timings
    }

    /// Where it goes.
    pub fn peer(&self) -> Peer {
        self.pooled.peer
    }

    /// When the server's certificate ends, in Unix seconds.
    pub fn certificate_expiry(&self) -> Option<i64> {
        self.pooled.certificate_expiry
    }

    /// Sends the request and reads the answer; the connection is kept when it is clean.
    pub async fn exchange(
        self,
        outbound: Outbound,
        limits: ReadLimits,
        deadline: Instant,
    ) -> Result<RawAnswer, ExchangeError> {
        let Self { pool, site, mut pooled, reused, .. } = self;
        pooled.exchanges += 1;
        let case = &site.case;
        let answer = pooled.http.exchange(outbound, case, limits, deadline, &*pool.clock).await;
        match &answer {
            Ok(answer) if answer.reusable => pool.give_back(&site, pooled),
            // A body that was cut is never drained, and an HTTP/1.0 server is not asked again.
            Ok(_) => {}
            Err(error) => pool.learn(&site, reused, error),
        }
        answer
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
