//! What is counted elsewhere, for a scrape, and what an operator can do, for the admin listener.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::clock::BoxFuture;
use crate::config::file::{File, Standing};
use crate::config::snapshot::{LogLevel, Tool, Unavailable};
use crate::exec::Flag;
use crate::gateway::Gateway;
use crate::model::build;
use crate::model::time::rfc3339;
use crate::net::pool::Pool;
use crate::policy::breaker::State;
use crate::policy::quota::RateLimit;
use crate::reload::{Reloader, Trigger};
use crate::serve::admin::status::{BrokenFile, FailureStatus, LastReload, Status, ToolStatus};
use crate::serve::admin::{Control, Reloaded};
use crate::serve::telemetry::Readiness;
use crate::store::records::AuditEntry;
use crate::telemetry::audit::ADMIN;
use crate::telemetry::labels::LimitScope;
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
    pub(super) readiness: Arc<Readiness>,
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
            let (result, findings) = (ended.outcome().as_str(), ended.findings());
            let snapshot = &self.gateway.epoch().snapshot;
            let (hash, generation) = (snapshot.hash.clone(), snapshot.generation);
            Some(Reloaded { result, hash, generation, findings })
        })
    }

    fn drain(&self) {
        self.note("drain", None, [None, None]);
        self.end.raise();
    }

    fn level(&self) -> LogLevel {
        self.log.logging().level
    }

    fn set_level(&self, level: LogLevel) {
        let before = self.log.logging().level;
        self.log.set_level(level);
        let names = [before, level].map(|level| Some(name(level).to_owned()));
        self.note("log_level.changed", None, names);
    }

    fn reset_circuit(&self, tool: &str) -> bool {
        let is_reset = self.gateway.limits().reset(tool);
        if is_reset {
            self.note("circuit.reset", Some(tool.to_owned()), [None, None]);
        }
        is_reset
    }

    fn status(&self) -> Status {
        let snapshot = &self.gateway.epoch().snapshot;
        let circuits = self.circuits().into_iter();
        let circuits: BTreeMap<_, _> = circuits
            .map(|(tool, state)| (tool, state.map_or(NO_CIRCUIT, State::as_str).to_owned()))
            .collect();
        let tools = snapshot.tools.values().map(|tool| {
            let circuit = circuits.get(tool.name.as_str()).cloned();
            (tool.name.to_string(), self.tool(tool, circuit.unwrap_or_default()))
        });
        let unread = snapshot.unread.iter().map(|(name, tool)| {
            let status = ToolStatus {
                enabled: true,
                owner: tool.owner.clone(),
                unavailable: Some(format!("its file {} is broken", tool.file)),
                ..ToolStatus::default()
            };
            (name.to_string(), status)
        });
        let reload = self.reloader.last().map(|last| LastReload {
            result: last.result.outcome().as_str().to_owned(),
            trigger: last.trigger.as_str().to_owned(),
            at: time(last.at_ms),
            findings: last.result.findings(),
        });
        Status {
            version: build::VERSION.to_owned(),
            hash: snapshot.hash.clone(),
            generation: snapshot.generation,
            ready: self.readiness.is_ready(),
            draining: self.metrics.draining.get() != 0,
            calls_in_flight: self.metrics.calls_in_flight.get(),
            calls_in_flight_limit: self.metrics.calls_in_flight_limit.get(),
            upstream_connections_open: self.connections_open(),
            tasks: Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
            reload,
            broken_files: snapshot.files.iter().filter_map(broken).collect(),
            tools: tools.chain(unread).collect(),
            circuits,
        }
    }
}

impl Parts {
    /// Takes down what an operator did.
    fn note(&self, action: &str, subject: Option<String>, [before, after]: [Option<String>; 2]) {
        let audit = self.gateway.audit();
        audit.note(AuditEntry { subject, before, after, ..audit.deed(ADMIN, action) });
    }

    fn tool(&self, tool: &Tool, circuit: String) -> ToolStatus {
        let standing = self.gateway.limits().standing(tool.name.as_str());
        let history = self.gateway.recent().of(tool.name.as_str());
        let failures = history.failures.iter().map(|failure| FailureStatus {
            at: time(failure.at_ms),
            call_id: failure.call_id.as_str().to_owned(),
            code: failure.code.as_str().to_owned(),
            detail: failure.detail.map(str::to_owned),
            status: failure.http_status,
            message: failure.message.clone(),
            reason: failure.reason.clone(),
        });
        ToolStatus {
            enabled: tool.enabled,
            owner: tool.owner.clone(),
            runbook: tool.runbook.clone(),
            profile: tool.profile.name.clone(),
            policy: tool.policy.effect.as_str().to_owned(),
            unavailable: tool.unavailable.as_ref().map(Unavailable::reason),
            circuit,
            circuit_wait_ms: millis(standing.map(|standing| standing.wait)),
            pause_ms: millis(standing.map(|standing| standing.pause)),
            calls_in_flight: standing.map_or(0, |standing| standing.calls),
            concurrency: tool.limits.concurrency,
            rate_limits: tool.limits.rates.iter().map(in_words).collect(),
            succeeded: history.succeeded,
            unsuccessful: history.unsuccessful,
            succeeded_at: history.succeeded_at_ms.map(time),
            failures: failures.collect(),
        }
    }
}

fn name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

fn broken(file: &File) -> Option<BrokenFile> {
    let tools = match file.standing {
        Standing::Current => return None,
        Standing::Kept => "kept",
        Standing::Unavailable => "unavailable",
    };
    let findings = file.errors.iter().map(ToString::to_string).collect();
    Some(BrokenFile { file: file.label.clone(), tools: tools.to_owned(), findings })
}

fn in_words(limit: &RateLimit) -> String {
    format!("{} per {}, burst {}", limit.rate, LimitScope::of(limit.per).as_str(), limit.burst())
}

fn millis(time: Option<Duration>) -> u64 {
    u64::try_from(time.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn time(unix_ms: i64) -> String {
    rfc3339(unix_ms).as_str().to_owned()
}
