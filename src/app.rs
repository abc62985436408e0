//! The composition root: builds every object once, in one function, and ends them in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::clock::{Clock, SystemClock};
use crate::config::snapshot::{Bind, Snapshot};
use crate::exec::webhook::WebhookExecutor;
use crate::gateway::Gateway;
use crate::limits::Limits;
use crate::net::epoch::{Epoch, NetworkError};
use crate::net::key_sets::{KeySets, fetch_set};
use crate::net::pool::Pool;
use crate::net::tls::warm_up;
use crate::policy::breaker::State;
use crate::reload::{InForce, Means as ReloadMeans, ReloadWorker, Reloader, announce};
use crate::serve::auth::Doorkeeper;
use crate::serve::calls::{self, ApiState};
use crate::serve::telemetry::{self, Readiness, TelemetryState};
use crate::serve::{BindError, ConnectionLimits, Listener, Means, Phase};
use crate::source::{self, Load, LoadError};
use crate::telemetry::labels::ListenerName;
use crate::telemetry::log::LogSink;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readings::Readings;

/// Bounds on the telemetry listener: a scraper and a few probes, which connect anew where they come seldom.
const TELEMETRY_LIMITS: ConnectionLimits = ConnectionLimits {
    header_timeout: Duration::from_secs(5),
    idle_timeout: Duration::from_secs(5),
    max_connections: 256,
};

/// How long clients have to take what is left to say once everything is over.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Why the gateway does not start. Each names its cause for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's place is taken or forbidden.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The configuration is not usable.
    #[error(transparent)]
    Configuration(#[from] LoadError),
    /// What reaches the network cannot be built.
    #[error(transparent)]
    Network(#[from] NetworkError),
}

/// A gateway that serves.
#[derive(Debug)]
pub struct App {
    api: Option<SocketAddr>,
    telemetry: Option<SocketAddr>,
    gateway: Arc<Gateway>,
    pool: Arc<Pool>,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    api_phase: watch::Sender<Phase>,
    telemetry_phase: watch::Sender<Phase>,
    serving_api: JoinHandle<()>,
    serving_telemetry: JoinHandle<()>,
    reaper: JoinHandle<()>,
    key_fetcher: JoinHandle<()>,
    reloader: Reloader,
    reloading: JoinHandle<()>,
}

impl App {
    /// Reads the configuration, builds everything, listens, and is ready when it returns.
    pub async fn start(config: &Path, log: LogSink) -> Result<Self, StartError> {
        let load = source::load(config)?;
        Self::build(load, config, log).await
    }

    /// The same for a configuration that is read already; `config` is read again where a listener's port is 0, since the
    /// egress rules have to know the real one.
    pub async fn build(
        load: Load<Snapshot>,
        config: &Path,
        log: LogSink,
    ) -> Result<Self, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let api_listener = bind_api(&load.found).await?;
        let telemetry_bind = Bind::Tcp(load.found.listeners.telemetry.address);
        let telemetry_listener =
            Listener::bind(ListenerName::Telemetry, &telemetry_bind, TELEMETRY_LIMITS).await?;
        let bound: Vec<SocketAddr> =
            api_listener.address().into_iter().chain(telemetry_listener.address()).collect();
        let load = if bound.iter().eq(configured(&load.found).iter()) {
            load
        } else {
            source::load_bound(config, &bound)?
        };
        let in_force = InForce::new(load.reading, load.secrets, &load.found);
        let epoch = Arc::new(Epoch::new(Arc::new(load.found), None, &clock)?);
        let warming = {
            let config = epoch.network.tls().config.clone();
            tokio::task::spawn_blocking(move || warm_up(&config))
        };
        let metrics = Arc::new(Metrics::new(epoch.snapshot.metrics_per_tool));
        metrics.build(
            env!("CARGO_PKG_VERSION"),
            option_env!("SORTIE_REVISION").unwrap_or("unknown"),
            option_env!("SORTIE_RUSTC").unwrap_or("unknown"),
        );
        let (epochs, in_use) = watch::channel(epoch.clone());
        let pool = Pool::new(clock.clone());
        let webhook = Arc::new(WebhookExecutor::new(
            pool.clone(),
            clock.clone(),
            metrics.clone(),
            rand::random,
            in_use.clone(),
        ));
        let limits = Arc::new(Limits::new(clock.clone(), metrics.clone()));
        limits.configure(&epoch.snapshot);
        let reload = ReloadMeans {
            clock: clock.clone(),
            metrics: metrics.clone(),
            webhook: webhook.clone(),
            limits: limits.clone(),
            log: log.clone(),
        };
        announce(&epoch, None, in_force.unreadable(), &reload);
        metrics.config.succeeded(clock.unix_ms().div_euclid(1000));
        let (reloader, worker) = ReloadWorker::new(config, bound, epochs, in_force, reload);
        let gateway =
            Arc::new(Gateway::new(in_use, webhook, limits, clock.clone(), metrics.clone(), log));

        let readiness = Arc::new(Readiness::default());
        let (key_sets, fetcher) = KeySets::new(clock.clone());
        let means = Means {
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            clock: clock.clone(),
            tls_of: None,
        };
        let (api_phase, phase) = watch::channel(Phase::Serving);
        let api_router = calls::router(ApiState {
            gateway: gateway.clone(),
            doorkeeper: Arc::new(Doorkeeper { key_sets }),
            phase: Arc::new(phase.clone()),
        });
        let telemetry_router = telemetry::router(TelemetryState {
            metrics: metrics.clone(),
            readings: Arc::new(Counts { pool: pool.clone(), gateway: gateway.clone() }),
            readiness: readiness.clone(),
        });
        let (api, telemetry) = (api_listener.address(), telemetry_listener.address());
        for (name, place) in
            [("api", api_listener.place()), ("telemetry", telemetry_listener.place())]
        {
            tracing::info!(listener = name, address = place, "Listening.");
        }
        let (telemetry_phase, phase_of_telemetry) = watch::channel(Phase::Serving);
        let serving_telemetry = tokio::spawn(telemetry_listener.run(
            telemetry_router,
            means.clone(),
            phase_of_telemetry,
        ));
        // A panic while warming up costs the first call some milliseconds and nothing else.
        let _ = warming.await;
        let means = Means { tls_of: Some(gateway.clone()), ..means };
        let serving_api = tokio::spawn(api_listener.run(api_router, means, phase));
        let key_fetcher = {
            let gateway = gateway.clone();
            tokio::spawn(
                fetcher.run(move |endpoint| fetch_set(gateway.epoch(), endpoint, clock.clone())),
            )
        };
        let reaper = tokio::spawn(pool.clone().run_reaper());
        let reloading = tokio::spawn(worker.run());
        readiness.set(true);
        tracing::info!("Ready.");
        Ok(Self {
            api,
            telemetry,
            gateway,
            pool,
            metrics,
            readiness,
            api_phase,
            telemetry_phase,
            serving_api,
            serving_telemetry,
            reaper,
            key_fetcher,
            reloader,
            reloading,
        })
    }

    /// The TCP address that takes calls.
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.api
    }

    /// The TCP address of metrics and probes.
    pub fn telemetry_address(&self) -> Option<SocketAddr> {
        self.telemetry
    }

    /// Asks for other configurations.
    pub fn reloader(&self) -> &Reloader {
        &self.reloader
    }

    /// Ends in order: not ready, no new calls, wait for those that run, cut off what outlasts the grace, close.
    pub async fn shutdown(self) {
        tracing::info!("Draining.");
        // What ends now takes no other configuration any more.
        self.reloading.abort();
        let shutdown = self.gateway.epoch().snapshot.shutdown.clone();
        self.metrics.draining.set(1);
        if !shutdown.accept_for.is_zero() {
            self.readiness.set(false);
            tokio::time::sleep(shutdown.accept_for).await;
        }
        self.api_phase.send_replace(Phase::Draining);
        // Only now, so that whoever saw it is never served by chance.
        self.readiness.set(false);
        let finish = async {
            // Until the last call has ended, who comes is told to go elsewhere.
            self.gateway.idle().await;
            self.api_phase.send_replace(Phase::Closed);
            let _ = self.serving_api.await;
            // A request that came just before the drain may have become a call just after.
            self.gateway.idle().await;
        };
        tokio::pin!(finish);
        let finished = tokio::time::timeout(shutdown.grace, finish.as_mut()).await.is_ok();
        if !finished {
            tracing::warn!("Some calls did not finish in time and are cut off.");
            self.gateway.cut_off();
            // Their outcomes are still told; a runtime that does not read its own must not hold the process.
            let _ = tokio::time::timeout(LAST_ANSWERS, finish).await;
        }
        self.key_fetcher.abort();
        self.reaper.abort();
        self.pool.close_all();
        self.telemetry_phase.send_replace(Phase::Closed);
        // A scraper that keeps its connection busy must not hold the process.
        let _ = tokio::time::timeout(LAST_ANSWERS, self.serving_telemetry).await;
        tracing::info!("Stopped.");
    }
}

/// What a scrape reads elsewhere.
struct Counts {
    pool: Arc<Pool>,
    gateway: Arc<Gateway>,
}

impl Readings for Counts {
    fn connections(&self) -> [(&'static str, u64); 4] {
        let events = self.pool.events();
        [
            ("new", &events.new),
            ("reused", &events.reused),
            ("evicted", &events.evicted),
            ("poisoned", &events.poisoned),
        ]
        .map(|(kind, counter)| (kind, counter.load(Ordering::Relaxed)))
    }

    fn connections_open(&self) -> u64 {
        self.pool.events().open.load(Ordering::Relaxed)
    }

    fn call_lines(&self) -> [(&'static str, u64); 2] {
        self.gateway.call_lines()
    }

    fn egress_exceptions(&self) -> usize {
        let now = self.gateway.clock().unix_ms().div_euclid(1000);
        self.gateway.epoch().snapshot.egress.exceptions_in_force(now).len()
    }

    fn circuits(&self) -> Vec<(String, Option<State>)> {
        self.gateway.limits().circuits()
    }
}

async fn bind_api(snapshot: &Snapshot) -> Result<Listener, BindError> {
    let api = &snapshot.listeners.api;
    let limits = ConnectionLimits {
        header_timeout: api.header_timeout,
        idle_timeout: api.idle_timeout,
        max_connections: api.max_connections,
    };
    Listener::bind(ListenerName::Api, &api.bind, limits).await
}

/// The TCP addresses as the file has them.
fn configured(snapshot: &Snapshot) -> Vec<SocketAddr> {
    snapshot.listeners.addresses().collect()
}
