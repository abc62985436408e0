//! The composition root: builds every object once, in one function, and ends them in order.

mod control;
pub mod desk;
mod keeping;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::app::control::Parts;
use crate::app::keeping::KeepingError;
use crate::clock::{Clock, SystemClock};
use crate::config::listening::Bind;
use crate::config::snapshot::Snapshot;
use crate::exec::Flag;
use crate::exec::webhook::WebhookExecutor;
use crate::gateway::Gateway;
use crate::gateway::notify::Notifier;
use crate::limits::Limits;
use crate::model::build;
use crate::net::epoch::{Epoch, NetworkError};
use crate::net::key_sets::{KeySets, fetch_set};
use crate::net::otlp::SpanExporter;
use crate::net::pool::Pool;
use crate::net::tls::warm_up;
use crate::reload::means::Means as ReloadMeans;
use crate::reload::{InForce, ReloadWorker, Reloader};
use crate::serve::admin::{self, AdminState};
use crate::serve::api;
use crate::serve::auth::Doorkeeper;
use crate::serve::calls::ApiState;
use crate::serve::telemetry::{self, Readiness, TelemetryState};
use crate::serve::{BindError, ConnectionLimits, Listener, Means, Phase};
use crate::source::{self, Load, LoadError};
use crate::telemetry::audit::{Audit, SYSTEM};
use crate::telemetry::labels::ListenerName;
use crate::telemetry::log::LogSink;
use crate::telemetry::metrics::Metrics;

/// How long scrapers, probes and operators may take for a head and between two requests: they connect anew where they come
/// seldom.
const SELDOM: Duration = Duration::from_secs(5);

/// How long clients have to take what is left to say once everything is over.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long the last spans have, on a connection of their own.
const LAST_SPANS: Duration = Duration::from_secs(3);

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
    /// Calls and approvals cannot be kept.
    #[error("the storage cannot be used: {0}")]
    Keeping(#[from] KeepingError),
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
    serving_admin: Option<JoinHandle<()>>,
    reaper: JoinHandle<()>,
    /// Looks for policies that other gateways changed.
    watching: JoinHandle<()>,
    counting: JoinHandle<()>,
    /// Raised when no call will be counted any more.
    counted: Flag,
    key_fetcher: JoinHandle<()>,
    recording: JoinHandle<()>,
    auditing: JoinHandle<()>,
    tending: JoinHandle<()>,
    notifying: JoinHandle<()>,
    /// Sends what is recorded of calls to the collector.
    exporting: JoinHandle<()>,
    reloader: Reloader,
    reloading: JoinHandle<()>,
    end: Flag,
}

impl App {
    /// Reads the configuration, builds everything, listens, and is ready when it returns.
    pub async fn start(config: &[PathBuf], log: LogSink) -> Result<Self, StartError> {
        let load = source::load(config)?;
        Self::build(load, config, log).await
    }

    /// The same for a configuration that is read already; `config` is read again where a listener's port is 0, since the
    /// egress rules have to know the real one.
    pub async fn build(
        load: Load<Snapshot>,
        config: &[PathBuf],
        log: LogSink,
    ) -> Result<Self, StartError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let api_listener = bind_api(&load.found).await?;
        let telemetry = &load.found.listeners.telemetry;
        let bind = Bind::Tcp(telemetry.address);
        let telemetry_listener =
            Listener::bind(ListenerName::Telemetry, &bind, seldom(telemetry.max_connections))
                .await?;
        let admin_listener = bind_admin(&load.found).await?;
        let listeners = [Some(&api_listener), Some(&telemetry_listener), admin_listener.as_ref()];
        let bound: Vec<SocketAddr> =
            listeners.into_iter().flatten().filter_map(Listener::address).collect();
        let load = if bound.iter().copied().eq(load.found.listeners.addresses()) {
            load
        } else {
            source::load_bound(config, &bound, load.found.local)?
        };
        let is_local = load.found.local.is_some();
        let in_force = InForce::new(load.reading, load.secrets, &load.found);
        let epoch = Arc::new(Epoch::new(Arc::new(load.found), None, &clock)?);
        let warming = {
            let config = epoch.network.tls().config.clone();
            tokio::task::spawn_blocking(move || warm_up(&config))
        };
        let metrics = Arc::new(Metrics::new(epoch.snapshot.metrics_per_tool));
        let (revision, rustc) = (build::REVISION, build::RUSTC);
        metrics.build(build::VERSION, revision.unwrap_or("unknown"), rustc.unwrap_or("unknown"));
        let (audit, trail) = Audit::new(log.clone(), metrics.clone(), clock.clone());
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
        let (url, tls) = (&epoch.snapshot.storage.url, &epoch.snapshot.tls);
        let (memory, workers) =
            keeping::open(url, tls, clock.clone(), metrics.clone(), &audit).await?;
        let notifier = Notifier::new(
            workers.offered,
            memory.store.clone(),
            in_use.clone(),
            clock.clone(),
            metrics.clone(),
        );
        let exporter = SpanExporter::new(workers.spool, in_use.clone(), clock.clone());
        let reload = ReloadMeans {
            clock: clock.clone(),
            metrics: metrics.clone(),
            webhook: webhook.clone(),
            limits: limits.clone(),
            outbox: memory.outbox.clone(),
            log: log.clone(),
            audit: audit.clone(),
        };
        reload.announce(&epoch, None, in_force.unreadable());
        metrics.config.succeeded(clock.unix_ms().div_euclid(1000));
        let (reloader, worker) = ReloadWorker::new(config, bound, epochs, in_force, reload);
        let auditing = tokio::spawn(trail.run(memory.store.clone()));
        let gateway = Gateway::new(
            in_use,
            webhook,
            limits,
            clock.clone(),
            metrics.clone(),
            log.clone(),
            memory,
        );
        let gateway = Arc::new(gateway);
        // What an earlier process left is ended before anybody can ask for it.
        gateway.recover().await.map_err(KeepingError::Store)?;
        let end = Flag::default();
        let readiness = Arc::new(Readiness::default());
        let parts = Arc::new(Parts {
            gateway: gateway.clone(),
            pool: pool.clone(),
            metrics: metrics.clone(),
            reloader: reloader.clone(),
            readiness: readiness.clone(),
            log,
            end: end.clone(),
        });

        let (key_sets, fetcher) = KeySets::new(clock.clone());
        let means = Means {
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            clock: clock.clone(),
            tls_of: None,
        };
        let (api_phase, phase) = watch::channel(Phase::Serving);
        let api_router = api::router(ApiState {
            gateway: gateway.clone(),
            doorkeeper: Arc::new(Doorkeeper { key_sets, audit }),
            phase: Arc::new(phase.clone()),
        });
        let telemetry_router = telemetry::router(TelemetryState {
            metrics: metrics.clone(),
            readings: parts.clone(),
            readiness: readiness.clone(),
            is_local,
        });
        let (api, telemetry) = (api_listener.address(), telemetry_listener.address());
        for listener in listeners.into_iter().flatten() {
            let (name, place) = (listener.name().as_str(), listener.place());
            tracing::info!(listener = name, address = place, "Listening.");
        }
        let (telemetry_phase, phase_of_telemetry) = watch::channel(Phase::Serving);
        let serving_telemetry = tokio::spawn(telemetry_listener.run(
            telemetry_router,
            means.clone(),
            phase_of_telemetry.clone(),
        ));
        let serving_admin = admin_listener.map(|listener| {
            let state = AdminState {
                control: parts,
                gateway: gateway.clone(),
                is_remote: listener.address().is_some(),
            };
            // It answers until the end, so that a drain can be watched.
            tokio::spawn(listener.run(admin::router(state), means.clone(), phase_of_telemetry))
        });
        // A panic while warming up costs the first call some milliseconds and nothing else.
        let _ = warming.await;
        let means = Means { tls_of: Some(gateway.clone()), ..means };
        let serving_api = tokio::spawn(api_listener.run(api_router, means, phase));
        let watching = tokio::spawn(gateway.policies().clone().watch(clock.clone()));
        let counted = Flag::default();
        let counting = tokio::spawn(workers.counting.run(counted.clone()));
        let key_fetcher = {
            let gateway = gateway.clone();
            tokio::spawn(
                fetcher.run(move |endpoint| fetch_set(gateway.epoch(), endpoint, clock.clone())),
            )
        };
        let reaper = tokio::spawn(pool.clone().run_reaper());
        let recording = tokio::spawn(workers.writer.run());
        let notifying = tokio::spawn(notifier.run());
        let exporting = tokio::spawn(exporter.run());
        let tending = tokio::spawn(gateway.clone().tend());
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
            serving_admin,
            reaper,
            watching,
            counting,
            counted,
            key_fetcher,
            recording,
            auditing,
            tending,
            notifying,
            exporting,
            reloader,
            reloading,
            end,
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

    /// Waits until the admin listener asks for the end.
    pub async fn asked_to_end(&self) {
        self.end.raised().await;
    }

    /// Ends in order: not ready, no new calls, wait for those that run, cut off what outlasts the grace, close.
    pub async fn shutdown(self) {
        tracing::info!("Draining.");
        if !self.end.is_up() {
            // What the admin listener asks for is taken down there.
            let audit = self.gateway.audit();
            audit.note(audit.deed(SYSTEM, "drain"));
        }
        // What ends now takes no other configuration any more.
        self.reloading.abort();
        self.tending.abort();
        self.gateway.begin_nothing_more();
        let shutdown = self.gateway.epoch().snapshot.shutdown.clone();
        self.metrics.draining.set(1);
        if !shutdown.accept_for.is_zero() {
            self.api_phase.send_replace(Phase::Retiring);
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
        self.gateway.memory().recorder.flush().await;
        let memory = self.gateway.memory();
        let kept = tokio::time::timeout(LAST_ANSWERS, memory.audit.kept());
        let exported = tokio::time::timeout(LAST_SPANS, memory.tracer.exported());
        let _ = tokio::join!(kept, exported);
        self.auditing.abort();
        self.exporting.abort();
        // What it leaves behind is counted before the last look at the metrics.
        let _ = self.exporting.await;
        self.recording.abort();
        self.counted.raise();
        let _ = tokio::time::timeout(LAST_ANSWERS, self.counting).await;
        self.watching.abort();
        // What is still to be told stays in the outbox.
        self.notifying.abort();
        self.key_fetcher.abort();
        self.reaper.abort();
        self.pool.close_all();
        self.telemetry_phase.send_replace(Phase::Closed);
        // A scraper that keeps its connection busy must not hold the process.
        let last = async {
            let _ = self.serving_telemetry.await;
            if let Some(serving) = self.serving_admin {
                let _ = serving.await;
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS, last).await;
        tracing::info!("Stopped.");
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

async fn bind_admin(snapshot: &Snapshot) -> Result<Option<Listener>, BindError> {
    let Some(admin) = &snapshot.listeners.admin else { return Ok(None) };
    let limits = seldom(admin.max_connections);
    Listener::bind(ListenerName::Admin, &admin.bind, limits).await.map(Some)
}

fn seldom(max_connections: usize) -> ConnectionLimits {
    ConnectionLimits { header_timeout: SELDOM, idle_timeout: SELDOM, max_connections }
}
