//! What is counted elsewhere, for a scrape, and what an operator can do, for the admin listener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;

use crate::clock::BoxFuture;
use crate::config::snapshot::LogLevel;
use crate::exec::Flag;
use crate::gateway::Gateway;
use crate::net::pool::Pool;
use crate::policy::breaker::State;
use crate::reload::{ReloadResult, Reloader, Trigger};
use crate::serve::admin::{self, Control, Reloaded};
use crate::telemetry::log::LogSink;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readings::Readings;

/// A tool without a circuit.
const NO_CIRCUIT: &str = "off";

/// The parts of a running gateway.
pub(super) struct Parts {
    pub(super) gateway: Arc<Gateway>,
    pub(super) pool: Arc<Pool>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) reloader: Reloader,
    pub(super) log: LogSink,
    /// Raised where the admin listener asks for the end.
    pub(super) end: Flag,
}

impl Readings for Parts {
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

impl Control for Parts {
    fn reload(&self) -> BoxFuture<'_, Option<Reloaded>> {
        Box::pin(async {
            let ended = self.reloader.reload(Trigger::Admin).await?;
            let result = ended.outcome().as_str();
            let findings = match ended {
                ReloadResult::Applied { warnings, .. } => warnings,
                ReloadResult::Invalid { errors } => errors,
                ReloadResult::NeedsRestart { what } => {
                    what.into_iter().map(|key| format!("{key} differs")).collect()
                }
                ReloadResult::Unchanged => Vec::new(),
            };
            let snapshot = &self.gateway.epoch().snapshot;
            let (hash, generation) = (snapshot.hash.clone(), snapshot.generation);
            Some(Reloaded { result, hash, generation, findings })
        })
    }

    fn drain(&self) {
        self.end.raise();
    }

    fn level(&self) -> LogLevel {
        self.log.logging().level
    }

    fn set_level(&self, level: LogLevel) {
        self.log.set_level(level);
    }

    fn reset_circuit(&self, tool: &str) -> bool {
        self.gateway.limits().reset(tool)
    }

    fn status(&self) -> admin::Status {
        let snapshot = &self.gateway.epoch().snapshot;
        let circuits = self.circuits().into_iter();
        let circuits: BTreeMap<_, _> =
            circuits.map(|(tool, state)| (tool, state.map_or(NO_CIRCUIT, State::as_str))).collect();
        admin::Status {
            version: env!("CARGO_PKG_VERSION"),
            hash: snapshot.hash.clone(),
            generation: snapshot.generation,
            draining: self.metrics.draining.get() != 0,
            calls_in_flight: self.metrics.calls_in_flight.get(),
            upstream_connections_open: self.connections_open(),
            tasks: Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
            circuits,
        }
    }
}
