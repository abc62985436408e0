//! What every fault test proves of a call: its outcome, what its server received, one count, one line, and quiet after.

mod servers;

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::time::{interval, timeout};

use crate::faults::proof::servers::Servers;
use crate::support::config::SECRET;
use crate::support::fleet::host;
use crate::support::gateway::{Gateway, Outcome};
use crate::support::metrics::Metrics;
use crate::support::receiver::{bearing, sent};
use crate::support::upstream::{Request, Upstream};
use crate::support::wait::{DEADLINE, together};
use crate::support::world::{HOST, World};

/// The run of every call that is made here.
pub(crate) const RUN: &str = "run_fault";

/// One call, and what must come of it. Without a word about its end it succeeds at the first attempt.
pub(crate) struct Fault<'a> {
    tool: String,
    arguments: Value,
    profile: &'static str,
    secret: &'static str,
    server: Option<Server<'a>>,
    end: End,
    http_status: Option<u16>,
    retryable: bool,
    result: Option<Value>,
    /// Results of attempts with their numbers.
    attempts: Option<Vec<(&'static str, usize)>>,
    requests: Option<usize>,
    connections: Option<usize>,
    kept: Option<usize>,
    counts: Vec<Count>,
    /// The call is made by somebody else, who does not wait for its answer.
    unheard: Option<String>,
}

/// The server of the tool: how it is named in a request's head.
struct Server<'a> {
    upstream: &'a Upstream,
    authority: String,
    path: String,
}

/// How the call ends.
struct End {
    status: &'static str,
    code: &'static str,
    detail: Option<&'static str>,
    outcome: Option<&'static str>,
}

/// How far a counter moves.
type Count = (&'static str, Vec<(&'static str, String)>, f64);

impl<'a> Fault<'a> {
    /// A call of a tool whose server is nobody's business.
    pub(crate) fn at(tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            arguments: json!({"n": 1}),
            profile: "envelope-v1",
            secret: SECRET,
            server: None,
            end: End { status: "succeeded", code: "ok", detail: None, outcome: None },
            http_status: None,
            retryable: false,
            result: None,
            attempts: None,
            requests: None,
            connections: None,
            kept: None,
            counts: Vec::new(),
            unheard: None,
        }
    }

    /// A call of the world's tool of this name.
    pub(crate) fn of(world: &'a World, tool: &str) -> Self {
        let authority = format!("{HOST}:{}", world.upstream.port());
        Self::at(tool).served_by(&world.upstream, &authority, &format!("/{tool}"))
    }

    /// A call of a fleet's tool, which has this server.
    pub(crate) fn of_fleet(tool: &str, upstream: &'a Upstream) -> Self {
        let authority = format!("{}:{}", host(tool), upstream.port());
        Self::at(tool).served_by(upstream, &authority, "/")
    }

    /// The server, and how the request's head names it.
    pub(crate) fn served_by(mut self, upstream: &'a Upstream, authority: &str, path: &str) -> Self {
        let (authority, path) = (authority.to_owned(), path.to_owned());
        self.server = Some(Server { upstream, authority, path });
        self
    }

    /// Other arguments than the usual ones.
    pub(crate) fn arguments(mut self, arguments: Value) -> Self {
        self.arguments = arguments;
        self
    }

    /// The tool's profile, for the exact bytes: a shipped one, or `eager` and `eager-key` of the fleet.
    pub(crate) fn profile(mut self, profile: &'static str) -> Self {
        self.profile = profile;
        self
    }

    /// Another secret than the usual one.
    pub(crate) fn secret(mut self, secret: &'static str) -> Self {
        self.secret = secret;
        self
    }

    /// The call fails with nothing sent, until a further word says otherwise.
    pub(crate) fn failed(mut self, code: &'static str) -> Self {
        self.end = End { status: "failed", code, detail: None, outcome: Some("not_sent") };
        self
    }

    /// The call is refused.
    pub(crate) fn refused(mut self, code: &'static str) -> Self {
        self.end = End { status: "refused", code, detail: None, outcome: Some("not_sent") };
        self
    }

    pub(crate) fn detail(mut self, detail: &'static str) -> Self {
        self.end.detail = Some(detail);
        self
    }

    /// Some of the request was sent, and nobody knows what came of it.
    pub(crate) fn unknown(mut self) -> Self {
        self.end.outcome = Some("unknown");
        self
    }

    /// The tool did answer.
    pub(crate) fn answered(mut self) -> Self {
        self.end.outcome = Some("answered");
        self
    }

    /// The status of the answer that failed.
    pub(crate) fn http_status(mut self, status: u16) -> Self {
        self.http_status = Some(status);
        self
    }

    pub(crate) fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// The call succeeds with this result.
    pub(crate) fn result(mut self, result: Value) -> Self {
        self.result = Some(result);
        self
    }

    /// So many attempts with this result (of `attempts_total`), in place of the one that the end implies.
    pub(crate) fn attempts(mut self, result: &'static str, number: usize) -> Self {
        self.attempts.get_or_insert_default().push((result, number));
        self
    }

    /// How many requests the server reads, where it is not one for each attempt that sent something.
    pub(crate) fn requests(mut self, number: usize) -> Self {
        self.requests = Some(number);
        self
    }

    /// How many connections the server takes because of this call.
    pub(crate) fn connections(mut self, number: usize) -> Self {
        self.connections = Some(number);
        self
    }

    /// How many connections are open when all is quiet: one after a success, none after a failure.
    pub(crate) fn kept(mut self, number: usize) -> Self {
        self.kept = Some(number);
        self
    }

    /// The counter moves so far because of this call.
    pub(crate) fn metric(
        mut self,
        name: &'static str,
        labels: &[(&'static str, &str)],
        by: f64,
    ) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.counts.push((name, labels, by));
        self
    }

    /// The call has this id and is made by whatever goes on at the same time, which may not hear of its outcome.
    pub(crate) fn unheard(mut self, call_id: &str) -> Self {
        self.unheard = Some(call_id.to_owned());
        self
    }

    /// Makes the call and proves everything.
    pub(crate) async fn holds(self, gateway: &Gateway) -> Outcome {
        prove(gateway, vec![self]).await.remove(0)
    }

    fn attempted(&self) -> Vec<(&'static str, usize)> {
        let implied = || match (self.end.code, self.end.detail, self.http_status) {
            ("ok", ..) => vec![("2xx", 1)],
            ("network_error", Some(detail), _) => vec![(detail, 1)],
            ("timeout", ..) => vec![("timeout", 1)],
            ("bad_body", ..) => vec![("bad_body", 1)],
            ("redirect", ..) => vec![("3xx", 1)],
            ("http_status", _, Some(300..400)) => vec![("3xx", 1)],
            ("http_status", _, Some(400..500)) => vec![("4xx", 1)],
            ("http_status", ..) => vec![("5xx", 1)],
            _ => Vec::new(),
        };
        self.attempts.clone().unwrap_or_else(implied)
    }

    fn attempt_count(&self) -> usize {
        self.attempted().iter().map(|(_, number)| number).sum()
    }

    fn request_count(&self) -> usize {
        let sent = self.end.outcome != Some("not_sent");
        self.requests.unwrap_or(if sent { self.attempt_count() } else { 0 })
    }

    fn kept_count(&self) -> usize {
        self.kept.unwrap_or(usize::from(self.end.status == "succeeded"))
    }

    /// What the metrics owe to this call: whatever is counted by tool, and what the test names.
    fn owed(&self) -> Vec<Count> {
        let of = |labels: &[(&'static str, &str)]| {
            let tool = [("tool", self.tool.as_str())];
            let labels = tool.iter().chain(labels);
            labels.map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>()
        };
        let End { status, code, .. } = self.end;
        let attempts = self.attempt_count();
        let mut owed = vec![
            ("sortie_calls_total", of(&[("status", status), ("code", code)]), 1.0),
            ("sortie_calls_total", of(&[]), 1.0),
            ("sortie_attempts_total", of(&[]), attempts as f64),
            ("sortie_retries_total", of(&[]), attempts.saturating_sub(1) as f64),
            ("sortie_call_log_entries_total", vec![("result", "written".to_owned())], 1.0),
            ("sortie_call_log_entries_total", Vec::new(), 1.0),
        ];
        for (result, number) in self.attempted() {
            owed.push(("sortie_attempts_total", of(&[("result", result)]), number as f64));
        }
        owed.extend(self.counts.iter().cloned());
        owed
    }

    /// The first assertion.
    fn told(&self, outcome: &Outcome) {
        let End { status, code, detail, outcome: left } = self.end;
        let all = outcome.0.text();
        match status {
            "succeeded" => {
                let result = outcome.succeeded();
                let wanted = self.result.as_ref().unwrap_or(&result);
                assert_eq!(&result, wanted, "{all}");
            }
            "refused" => outcome.refused(code, detail),
            _ => outcome.failed(code, detail, left.expect("what was left behind")),
        }
        assert_eq!(outcome.at("/tool"), json!(self.tool));
        let attempts = outcome.at("/attempts");
        assert_eq!(attempts.as_array().map(Vec::len), Some(self.attempt_count()), "{all}");
        if status == "succeeded" {
            return;
        }
        assert_eq!(outcome.at("/error/retryable"), json!(self.retryable), "{all}");
        assert_eq!(outcome.at("/error/status"), json!(self.http_status), "{all}");
        let (text, message) = (outcome.model_text(), outcome.at("/error/message"));
        assert!(text.starts_with(message.as_str().expect("a message")), "{all}");
        // The model learns no address, and no word of a library.
        for part in ["127.0.0.1", ".example.com", "os error", "hyper", "rustls", "hickory"] {
            assert!(!text.contains(part), "{part} stands in {text}");
        }
    }

    /// The second assertion: so many requests, and each of them exactly as it has to be.
    fn received(&self, call_id: &str, step: &str, since: usize) {
        let Some(server) = &self.server else { return };
        let mut requests = server.upstream.requests().split_off(since);
        requests.retain(|request| bearing(request, call_id, RUN, step));
        assert_eq!(
            requests.len(),
            self.request_count(),
            "requests of {}: {requests:#?}",
            self.tool
        );
        for request in &requests {
            let sent = sent(self.profile, request, &requests[0], self.secret, |slot| match slot {
                "authority" => server.authority.clone(),
                "path" => server.path.clone(),
                "tool" => self.tool.clone(),
                "call_id" => call_id.to_owned(),
                "run_id" => RUN.to_owned(),
                "step" => step.to_owned(),
                "arguments" => self.arguments.to_string(),
                other => panic!("no slot is named {other}"),
            });
            let text = |request: &Request| String::from_utf8_lossy(&request.raw()).into_owned();
            assert_eq!(text(request), sent, "what the server of {} received", self.tool);
        }
    }

    /// The fourth assertion: one line, and in it the same as in the outcome.
    async fn logged(&self, gateway: &Gateway, call_id: &str) {
        let line = gateway.call_line(call_id).await;
        let End { status, code, outcome, .. } = self.end;
        let fields = ["tool", "status", "code", "outcome", "attempts"];
        let attempts = self.attempt_count();
        let expected =
            [json!(self.tool), json!(status), json!(code), json!(outcome), json!(attempts)];
        assert_eq!(fields.map(|field| line[field].clone()), expected, "{line}");
    }
}

/// Makes the calls at the same time and proves everything of each.
pub(crate) async fn prove(gateway: &Gateway, faults: Vec<Fault<'_>>) -> Vec<Outcome> {
    prove_while(gateway, faults, async {}).await
}

/// The same, with something else going on until it ends by itself. Gives the outcomes of the calls that were made here.
pub(crate) async fn prove_while(
    gateway: &Gateway,
    faults: Vec<Fault<'_>>,
    meanwhile: impl Future<Output = ()>,
) -> Vec<Outcome> {
    let before = gateway.metrics().await;
    let mut servers = Servers::new(&faults);
    let steps: Vec<String> = faults
        .iter()
        .map(|fault| fault.unheard.clone().unwrap_or_else(|| gateway.next_step()))
        .collect();
    let calls = faults.iter().zip(&steps).filter(|(fault, _)| fault.unheard.is_none()).map(
        |(fault, step)| {
            gateway.call_with(json!({
                "tool": fault.tool, "arguments": fault.arguments, "run_id": RUN, "step": step,
            }))
        },
    );
    let (outcomes, ()) = tokio::join!(together(calls), meanwhile);
    let mut heard = outcomes.iter();
    for (fault, step) in faults.iter().zip(&steps) {
        let call_id = match &fault.unheard {
            Some(call_id) => call_id.clone(),
            None => {
                let outcome = heard.next().expect("an outcome for each call");
                fault.told(outcome);
                outcome.id()
            }
        };
        fault.logged(gateway, &call_id).await;
        let since = fault.server.as_ref().map_or(0, |server| servers.since(server).requests);
        fault.received(&call_id, step, since);
    }
    servers.expect(&faults);
    until_it_holds(async || {
        let now = gateway.metrics().await;
        counted(&faults, &before, &now)?;
        quiet(&faults, &now)?;
        match gateway.tasks_beyond_the_base().await {
            0 => servers.quiet(),
            more => Err(format!("{more} tasks more than before")),
        }
    })
    .await;
    one_line_each(gateway, &faults);
    outcomes
}

/// Asks again until everything is as it has to be: an idle connection's end is noticed in its own time.
async fn until_it_holds(ask: impl AsyncFn() -> Result<(), String>) {
    let last = RefCell::new(String::new());
    let asking = async {
        let mut tick = interval(std::time::Duration::from_millis(5));
        while let Err(why) = ask().await {
            last.replace(why);
            tick.tick().await;
        }
    };
    assert!(timeout(DEADLINE, asking).await.is_ok(), "after {DEADLINE:?}: {}", last.take());
}

/// The third assertion: each counter moved as far as it has to, in total and under its labels.
fn counted(faults: &[Fault<'_>], before: &Metrics, now: &Metrics) -> Result<(), String> {
    let mut owed = BTreeMap::new();
    for (name, labels, by) in faults.iter().flat_map(Fault::owed) {
        *owed.entry((name, labels)).or_insert(0.0) += by;
    }
    for ((name, labels), by) in owed {
        let pairs: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let moved = now.value(name, &pairs) - before.value(name, &pairs);
        if moved != by {
            return Err(format!("{name}{labels:?} moved by {moved}, not by {by}"));
        }
    }
    Ok(())
}

/// The fifth assertion, as the gateway has it: nothing runs, and no more is open than what is kept.
fn quiet(faults: &[Fault<'_>], now: &Metrics) -> Result<(), String> {
    let value = |name| now.value(name, &[]);
    let kept: usize = faults.iter().map(Fault::kept_count).sum();
    let (running, open) =
        (value("sortie_calls_in_flight"), value("sortie_upstream_connections_open"));
    match running == 0.0 && open <= kept as f64 {
        true => Ok(()),
        false => Err(format!("{running} calls run, {open} connections are open, {kept} are kept")),
    }
}

/// No call stands in the log twice.
fn one_line_each(gateway: &Gateway, faults: &[Fault<'_>]) {
    let mut ids: Vec<String> = gateway
        .log_lines()
        .iter()
        .filter(|line| line["stream"] == "call")
        .map(|line| line["call_id"].to_string())
        .collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert!(ids.len() == all && all >= faults.len(), "{all} lines of {} calls", ids.len());
}
