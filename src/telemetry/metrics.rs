//! Every metric, one field each, one registry (contract, section 10).

mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::config::snapshot::Tool;
use crate::model::outcome::{CallOutcome, Decision, Effect, Failure, FailureCode, Success};
use crate::policy::breaker::State;
use crate::telemetry::config_metrics::ConfigMetrics;
use crate::telemetry::labels::{
    AttemptResult, LimitScope, ListenerName, Phase, ProbeResult, RetryReason,
};
use crate::telemetry::maker::Maker;
use crate::telemetry::readings::Readings;
use crate::telemetry::tool_metrics::{ToolMetrics, call_labels};
use crate::telemetry::vectors::Vectors;
use crate::telemetry::waiting_metrics::WaitingMetrics;

/// The label of calls to a tool that does not exist: no label value ever comes from a request.
pub const UNKNOWN_TOOL: &str = "_unknown";
/// The label of every tool where the label is folded away.
const FOLDED: &str = "";
/// The kind of every tool of this version.
const KIND: &str = "webhook";

const PHASE_SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const OVERHEAD_SECONDS: &[f64] =
    &[0.00005, 0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.05, 0.25, 1.0];

/// What is fixed about a tool, for its series.
#[derive(Debug, Clone)]
pub struct ToolLabels<'a> {
    /// The configured name.
    pub name: &'a str,
    /// What else its definition says, where it could be read.
    pub definition: Option<Definition<'a>>,
}

/// What a tool's definition says, for its series.
#[derive(Debug, Clone)]
pub struct Definition<'a> {
    /// Who answers for it; empty where nobody is named.
    pub owner: &'a str,
    /// Its wire format.
    pub profile: &'a str,
    /// The effect of its own policy.
    pub effect: Effect,
}

impl<'a> ToolLabels<'a> {
    /// Of a tool.
    pub fn of(tool: &'a Tool) -> Self {
        let definition = Definition {
            owner: tool.owner.as_deref().unwrap_or_default(),
            profile: &tool.profile.name,
            effect: tool.policy.effect,
        };
        Self { name: tool.name.as_str(), definition: Some(definition) }
    }

    /// Of a tool of which only the name is known.
    pub fn unread(name: &'a str) -> Self {
        Self { name, definition: None }
    }
}

/// All metrics.
pub struct Metrics {
    registry: Registry,
    named: RwLock<Arc<Named>>,
    phases: [Histogram; Phase::ALL.len()],
    pub(super) vectors: Vectors,
    /// Calls that wait for a person.
    pub(super) waiting: WaitingMetrics,
    /// Calls that run now.
    pub calls_in_flight: IntGauge,
    /// How many may be sent at the same time.
    pub calls_in_flight_limit: IntGauge,
    /// Own time of a call: its duration less upstream and waits.
    pub overhead: Histogram,
    /// Time of a DNS lookup that went to a server.
    pub dns_lookup_duration: Histogram,
    /// 1 while the gateway drains.
    pub draining: IntGauge,
    /// Panics that were caught.
    pub panics: IntCounter,
    /// The configuration in force and its reloads.
    pub config: ConfigMetrics,
    /// How far a tool's `Date` is from our clock, in seconds: the last one seen.
    pub clock_skew: Gauge,
    copied: Mutex<Copied>,
    tool_info: Mutex<ToolInfo>,
}

/// The series of the configured tools.
struct Named {
    per_tool: bool,
    tools: HashMap<String, Arc<ToolMetrics>>,
    unknown: Arc<ToolMetrics>,
}

impl Named {
    fn new(per_tool: bool, vectors: &Vectors) -> Self {
        let unknown = if per_tool { UNKNOWN_TOOL } else { FOLDED };
        let unknown = Arc::new(ToolMetrics::new(vectors, unknown));
        Self { per_tool, tools: HashMap::new(), unknown }
    }

    fn label<'a>(&self, tool: &'a str) -> &'a str {
        if self.per_tool { tool } else { FOLDED }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<ToolMetrics>> {
        self.tools.values().chain([&self.unknown])
    }
}

/// What tools are: one series each.
struct ToolInfo {
    series: GaugeVec,
    shown: HashSet<[String; 5]>,
}

impl ToolInfo {
    fn new(make: &Maker<'_>) -> Self {
        let labels = &["tool", "owner", "profile", "kind", "policy"];
        let series = make.infos("tool_info", "The tools of the configuration in force.", labels);
        Self { series, shown: HashSet::new() }
    }

    fn show(&mut self, infos: HashSet<[String; 5]>) {
        for info in &infos {
            self.series.with_label_values(info).set(1.0);
        }
        for gone in self.shown.difference(&infos) {
            // An error means that it is gone already.
            let _ = self.series.remove_label_values(&gone.each_ref().map(String::as_str));
        }
        self.shown = infos;
    }
}

/// What a scrape copies from elsewhere: one at a time, so that none of it is copied twice.
struct Copied {
    connections: IntCounterVec,
    connections_open: IntGauge,
    call_lines: IntCounterVec,
    egress_exceptions: IntGauge,
    circuits: IntGaugeVec,
}

impl Copied {
    fn copy(&self, readings: &dyn Readings, named: &Named) {
        let totals = [
            (&self.connections, &readings.connections()[..]),
            (&self.call_lines, &readings.call_lines()[..]),
        ];
        for (counters, totals) in totals {
            for (value, total) in totals {
                let counter = counters.with_label_values(&[value]);
                counter.inc_by(total.saturating_sub(counter.get()));
            }
        }
        let open = readings.connections_open();
        self.connections_open.set(i64::try_from(open).unwrap_or(i64::MAX));
        let exceptions = readings.egress_exceptions();
        self.egress_exceptions.set(i64::try_from(exceptions).unwrap_or(i64::MAX));
        self.circuits.reset();
        for (tool, state) in readings.circuits() {
            let label = named.label(&tool);
            for one in State::ALL {
                let gauge = self.circuits.with_label_values(&[label, one.as_str()]);
                gauge.add(i64::from(state == Some(one)));
            }
        }
    }
}

impl Metrics {
    /// Makes all metrics; `per_tool: false` folds the tool label away.
    pub fn new(per_tool: bool) -> Self {
        let registry = Registry::new();
        let make = Maker(&registry);
        let vectors = Vectors::new(&make);
        let phase_seconds = make.histograms(
            "phase_duration_seconds",
            "Time of the parts of an attempt.",
            PHASE_SECONDS,
            &["phase"],
        );
        for result in
            ["ok", "cached", "nxdomain", "nodata", "servfail", "refused", "timeout", "error"]
        {
            vectors.dns_lookups.with_label_values(&[result]);
        }
        for result in ["written", "dropped"] {
            vectors.audit_entries.with_label_values(&[result]);
        }
        let copied = Copied {
            connections: make.counters(
                "upstream_connections_total",
                "Connections to tools, by kind.",
                &["kind"],
            ),
            connections_open: make.gauge("upstream_connections_open", "Open connections to tools."),
            call_lines: make.counters(
                "call_log_entries_total",
                "Lines of finished calls.",
                &["result"],
            ),
            egress_exceptions: make.gauge("egress_exceptions", "Egress exceptions in force."),
            circuits: make.gauges(
                "circuit_state",
                "1 for the state of a tool's circuit.",
                &["tool", "state"],
            ),
        };
        let metrics = Self {
            waiting: WaitingMetrics::new(&make),
            phases: Phase::ALL.map(|phase| phase_seconds.with_label_values(&[phase.as_str()])),
            named: RwLock::new(Arc::new(Named::new(per_tool, &vectors))),
            calls_in_flight: make.gauge("calls_in_flight", "Calls that run now."),
            calls_in_flight_limit: make
                .gauge("calls_in_flight_limit", "Calls that may be sent at the same time."),
            overhead: make.histogram(
                "overhead_seconds",
                "Own time of a call: its duration less upstream and waits.",
                OVERHEAD_SECONDS,
            ),
            dns_lookup_duration: make.histogram(
                "dns_lookup_duration_seconds",
                "Time of a lookup that asked a server.",
                PHASE_SECONDS,
            ),
            draining: make.gauge("draining", "1 while the gateway drains."),
            panics: make.counter("panics_total", "Panics that were caught."),
            config: ConfigMetrics::new(&make),
            clock_skew: make.keep(Gauge::with_opts(
                Opts::new("clock_skew_seconds", "How far a tool's Date is from our clock.")
                    .namespace("sortie"),
            )),
            copied: Mutex::new(copied),
            tool_info: Mutex::new(ToolInfo::new(&make)),
            vectors,
            registry,
        };
        #[cfg(target_os = "linux")]
        metrics
            .registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect("process metrics are registered once");
        metrics
    }

    /// Makes the series of the configured tools, all at 0, so that a first failure is a step and not a new series. Tools
    /// that stay keep theirs, and those of tools that went go.
    pub fn configure<'a>(&self, per_tool: bool, tools: impl IntoIterator<Item = ToolLabels<'a>>) {
        let (before, mut infos) = (self.named(), HashSet::new());
        let mut after = Named::new(per_tool, &self.vectors);
        for tool in tools {
            let label = after.label(tool.name);
            let known = before.tools.get(tool.name).filter(|known| known.label == label);
            let new = || Arc::new(ToolMetrics::new(&self.vectors, label));
            let metrics = known.map_or_else(new, Arc::clone);
            self.waiting.pending.with_label_values(&[label]);
            if let Some(Definition { owner, profile, effect }) = tool.definition {
                let decisions = &self.vectors.policy_decisions;
                decisions.with_label_values(&[label, effect.as_str(), "enforce"]);
                // Without the label there is nothing that it could be said of.
                if per_tool {
                    infos.insert(
                        [tool.name, owner, profile, KIND, effect.as_str()].map(str::to_owned),
                    );
                }
            }
            after.tools.insert(tool.name.to_owned(), metrics);
        }
        self.tool_info.lock().expect("no panic holds this lock").show(infos);
        let after = Arc::new(after);
        *self.named.write().expect("no panic holds this lock") = after.clone();
        let kept: HashSet<&str> = after.all().map(|tool| tool.label.as_str()).collect();
        let mut gone = HashSet::new();
        for tool in before.all().filter(|tool| !kept.contains(tool.label.as_str())) {
            tool.retire();
            gone.insert(tool.label.as_str());
        }
        if !gone.is_empty() {
            self.vectors.forget(&gone);
            for label in &gone {
                // An error means that it is gone already.
                let _ = self.waiting.pending.remove_label_values(&[*label]);
            }
        }
    }

    /// Shows how many keys sign each tool's calls.
    pub fn signing_keys<'a>(&self, tools: impl IntoIterator<Item = (&'a str, usize)>) {
        let named = self.named();
        let mut totals: HashMap<&str, usize> = HashMap::new();
        for (tool, keys) in tools {
            *totals.entry(named.label(tool)).or_default() += keys;
        }
        for (label, keys) in totals {
            let keys = i64::try_from(keys).unwrap_or(i64::MAX);
            self.vectors.signing_keys.with_label_values(&[label]).set(keys);
        }
    }

    fn named(&self) -> Arc<Named> {
        self.named.read().expect("no panic holds this lock").clone()
    }

    /// States what was built.
    pub fn build(&self, version: &str, revision: &str, rustc: &str) {
        self.vectors.build_info.with_label_values(&[version, revision, rustc]).set(1.0);
    }

    /// The series of a tool; an unknown name has those of `_unknown`.
    pub fn tool(&self, name: &str) -> Arc<ToolMetrics> {
        let named = self.named.read().expect("no panic holds this lock");
        named.tools.get(name).unwrap_or(&named.unknown).clone()
    }

    /// Counts a finished call.
    pub fn finished(&self, tool: &ToolMetrics, outcome: &CallOutcome) {
        tool.duration.observe(outcome.duration.as_secs_f64());
        self.ended(tool, &outcome.ended);
    }

    /// Counts the end of a call whose duration says nothing: it waited for a person, or its gateway is gone.
    pub fn ended(&self, tool: &ToolMetrics, ended: &Result<Success, Failure>) {
        match ended {
            Ok(success) => {
                tool.ok.inc();
                if success.cut_note.is_some() {
                    tool.truncated.inc();
                }
            }
            Err(_) if tool.is_retired() => {}
            Err(failure) => {
                let labels = call_labels(&tool.label, Err(failure.code));
                self.vectors.calls.with_label_values(&labels).inc();
                for problem in &failure.problems {
                    let keyword = problem.keyword.as_str();
                    self.vectors.argument_failures.with_label_values(&[&tool.label, keyword]).inc();
                }
                if failure.code == FailureCode::Redirect {
                    tool.redirects.inc();
                }
            }
        }
    }

    /// Counts an attempt.
    pub fn attempt(&self, tool: &ToolMetrics, result: AttemptResult, duration: Duration) {
        tool.attempts[result as usize].inc();
        tool.attempt_duration.observe(duration.as_secs_f64());
    }

    /// Counts a retry by what it is for.
    pub fn retry(&self, tool: &ToolMetrics, reason: RetryReason) {
        tool.retries[reason as usize].inc();
    }

    /// Counts a call that came too early.
    pub fn rate_limited(&self, tool: &ToolMetrics, scope: LimitScope) {
        tool.rate_limited[scope as usize].inc();
    }

    /// Counts a change of a circuit.
    pub fn circuit_changed(&self, tool: &ToolMetrics, to: State) {
        tool.circuit_transitions[to as usize].inc();
    }

    /// Counts a call that tried a failing tool again.
    pub fn circuit_probe(&self, tool: &ToolMetrics, result: ProbeResult) {
        tool.circuit_probes[result as usize].inc();
    }

    /// Counts the bytes of an answer.
    pub fn response(&self, tool: &ToolMetrics, bytes: usize) {
        tool.response_bytes.observe(bytes as f64);
    }

    /// Times a part of an attempt.
    pub fn phase(&self, phase: Phase, duration: Duration) {
        self.phases[phase as usize].observe(duration.as_secs_f64());
    }

    /// Counts a lookup: `result` is of the contract's set.
    pub fn lookup(&self, result: &str) {
        self.vectors.dns_lookups.with_label_values(&[result]).inc();
    }

    /// Counts entries of the audit trail: written or dropped; how many there are now.
    pub fn audit_entries(&self, result: &'static str, more: usize) -> u64 {
        let counter = self.vectors.audit_entries.with_label_values(&[result]);
        counter.inc_by(u64::try_from(more).unwrap_or(u64::MAX));
        counter.get()
    }

    /// Counts one decision on a host or address.
    pub fn address_decision(&self, tool: &ToolMetrics, verdict: &str, code: &str, mode: &str) {
        if (verdict, code, mode) == ("allow", "ok", "enforce") {
            return tool.address_ok.inc();
        }
        if tool.is_retired() {
            return;
        }
        let labels = [tool.label.as_str(), verdict, code, mode];
        self.vectors.address_decisions.with_label_values(&labels).inc();
    }

    /// Counts a decision, and what those would have said that only watch: a call that any of them would have sent another
    /// way is one disagreement.
    pub fn policy(&self, tool: &ToolMetrics, decision: &Decision) {
        if tool.is_retired() {
            return;
        }
        let decisions = &self.vectors.policy_decisions;
        if decision.effect == Effect::Allow {
            tool.policy_allow.inc();
        } else {
            let effect = decision.effect.as_str();
            decisions.with_label_values(&[tool.label.as_str(), effect, "enforce"]).inc();
        }
        for ruling in &decision.shadow {
            let effect = ruling.effect.as_str();
            decisions.with_label_values(&[tool.label.as_str(), effect, "shadow"]).inc();
        }
        if decision.shadow.iter().any(|ruling| ruling.disagrees) {
            self.vectors.shadow_disagreements.with_label_values(&[&tool.label]).inc();
        }
    }

    /// Notes when the tool's certificate ends. Where the label is folded away, the one that ends first is shown.
    pub fn certificate(&self, tool: &ToolMetrics, expiry: i64) {
        tool.certificate_expiry.store(expiry, Ordering::Relaxed);
        if tool.is_retired() {
            return;
        }
        let named = self.named.read().expect("no panic holds this lock");
        let first = if named.per_tool {
            expiry
        } else {
            let tools = named.tools.values();
            let all = tools.map(|tool| tool.certificate_expiry.load(Ordering::Relaxed));
            all.fold(expiry, i64::min)
        };
        drop(named);
        self.vectors.certificate_expiry.with_label_values(&[&tool.label]).set(first);
    }

    /// Counts a request to one of Sortie's own listeners.
    pub fn http_request(&self, listener: ListenerName, code: u16) {
        let mut digits = [0u8; 3];
        for (digit, divisor) in digits.iter_mut().zip([100, 10, 1]) {
            *digit = b'0' + u8::try_from(code / divisor % 10).unwrap_or(0);
        }
        let code = std::str::from_utf8(&digits).unwrap_or("000");
        self.vectors.http_requests.with_label_values(&[listener.as_str(), code]).inc();
    }

    /// The text exposition. It may take milliseconds with many tools: not for a serving thread.
    pub fn encode(&self, readings: &dyn Readings) -> Vec<u8> {
        let gathered = {
            let copied = self.copied.lock().expect("no panic holds this lock");
            copied.copy(readings, &self.named());
            self.registry.gather()
        };
        let mut text = Vec::new();
        TextEncoder::new().encode(&gathered, &mut text).expect("writing to memory does not fail");
        text
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

#[cfg(test)]
mod tests;
