//! Limits of configured tools under a paused clock.

use super::*;
use crate::clock::SystemClock;
use crate::config::context::Environment;
use crate::config::parse::parse;
use crate::model::call::{CallContext, DEFAULT_WAIT, EndUser};
use crate::model::id::CallId;
use crate::model::json::read_object;
use crate::model::outcome::{Sent, Success, ToolResult};
use crate::model::secret::Secret;
use crate::telemetry::metrics::ToolLabels;
use crate::telemetry::readings::Readings;

/// Limits, the configuration that they have, and where their series are.
struct World {
    limits: Arc<Limits>,
    snapshot: Snapshot,
    metrics: Arc<Metrics>,
}

fn snapshot(fragment: &str) -> Snapshot {
    let environment =
        Environment::bare(&|_| Ok(Secret::new("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")), 0);
    let text = format!("version: 1\nauth: none\n{fragment}");
    parse("f", &text, &environment).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A tool named `lookup`, and its own fields.
fn with_tool(fields: &str) -> String {
    format!(
        "tools: [{{name: lookup, description: Looks an order up by its number., policy: allow, \
         profile: plain-v1, url: \"https://shop.example.com/lookup\", {fields}}}]\n"
    )
}

impl World {
    fn new(fragment: &str) -> Self {
        let snapshot = snapshot(fragment);
        let metrics = Arc::new(Metrics::new(true));
        let labels = snapshot.tools.values().map(|tool| ToolLabels::of(tool));
        metrics.configure(true, labels);
        let limits = Arc::new(Limits::new(Arc::new(SystemClock), metrics.clone()));
        limits.configure(&snapshot);
        Self { limits, snapshot, metrics }
    }

    fn reload(&mut self, fragment: &str) {
        self.snapshot = snapshot(fragment);
        self.limits.configure(&self.snapshot);
    }

    fn admit(&self) -> Result<Permit, Failure> {
        self.admit_call(&call(CallContext::default(), None))
    }

    fn admit_call(&self, call: &ToolCall) -> Result<Permit, Failure> {
        let tool = self.snapshot.tool("lookup").expect("the tool is configured");
        self.limits.admit(tool, &Caller::anonymous(), call)
    }

    fn run(&self, ended: &Result<Success, Failure>) {
        self.admit().expect("the call is admitted").settle(ended);
    }

    #[track_caller]
    fn check_refused(&self, code: FailureCode, text: &str) {
        let failure = self.admit().expect_err("the call is refused");
        assert_eq!((failure.code, failure.message.as_str()), (code, text));
        assert!(failure.retryable && failure.detail.is_none());
        let seconds = text.rsplit(' ').nth(1).and_then(|word| word.parse().ok());
        assert_eq!(failure.retry_after.map(|wait| wait.as_secs()), seconds);
    }

    #[track_caller]
    fn check_series(&self, line: &str) {
        let text = String::from_utf8(self.metrics.encode(&Of(&self.limits))).unwrap();
        assert!(text.lines().any(|one| one == format!("sortie_{line}")), "{line}\n{text}");
    }
}

struct Of<'a>(&'a Limits);

impl Readings for Of<'_> {
    fn connections(&self) -> [(&'static str, u64); 4] {
        [("new", 0), ("reused", 0), ("evicted", 0), ("poisoned", 0)]
    }

    fn connections_open(&self) -> u64 {
        0
    }

    fn call_lines(&self) -> [(&'static str, u64); 2] {
        [("written", 0), ("dropped", 0)]
    }

    fn egress_exceptions(&self) -> usize {
        0
    }

    fn circuits(&self) -> Vec<(String, Option<State>)> {
        self.0.circuits()
    }
}

fn call(context: CallContext, deadline: Option<Duration>) -> ToolCall {
    ToolCall {
        id: CallId::parse("call_0000").unwrap(),
        is_named: false,
        tool: "lookup".into(),
        arguments: read_object("{}").unwrap(),
        context: context.into(),
        deadline,
        wait: DEFAULT_WAIT,
        resend: false,
        credentials: Vec::new(),
        batch: None,
    }
}

fn worked() -> Result<Success, Failure> {
    Ok(Success { result: ToolResult::Null, result_bytes: 0, cut_note: None })
}

fn failed(code: FailureCode) -> Result<Success, Failure> {
    Err(Failure { sent: Sent::Answered, ..Failure::not_sent(code, "It failed.") })
}

fn status(status: u16) -> Result<Success, Failure> {
    let failure = Failure::not_sent(FailureCode::HttpStatus, "The tool answered.");
    Err(Failure { http_status: Some(status), ..failure })
}

const ONE_FAILURE: &str = "breaker: {consecutive: 1}";

/// Whether a call that ended so opens a circuit that one failure opens.
fn opens(ended: &Result<Success, Failure>) -> bool {
    let world = World::new(&with_tool(ONE_FAILURE));
    world.run(ended);
    world.admit().is_err()
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_names_itself_and_the_wait() {
    let world = World::new(&with_tool("rate_limits: [{per: tool, rate: 60/min, burst: 2}]"));
    world.run(&worked());
    world.run(&worked());
    let text = "The tool's limit of 60 calls a minute is reached; try again in 1 s.";
    world.check_refused(FailureCode::RateLimited, text);
    world.check_series(r#"rate_limited_total{scope="tool",tool="lookup"} 1"#);
    world.check_series(r#"rate_limited_total{scope="agent",tool="lookup"} 0"#);
    tokio::time::advance(Duration::from_secs(1)).await;
    world.run(&worked());
}

#[tokio::test(start_paused = true)]
async fn each_person_has_a_bucket_and_those_without_a_name_share_one() {
    let world = World::new(&with_tool("rate_limits: [{per: end_user, rate: 1/h}]"));
    let of = |id: Option<&str>, external: Option<&str>| {
        let end_user =
            EndUser { id: id.map(str::to_owned), external_id: external.map(str::to_owned) };
        call(CallContext { end_user: Some(end_user), ..CallContext::default() }, None)
    };
    for call in [of(Some("7"), None), of(Some("8"), None), of(None, Some("7"))] {
        assert!(world.admit_call(&call).is_ok());
        assert!(world.admit_call(&call).is_err());
    }
    assert!(world.admit_call(&of(None, None)).is_ok());
    let text = "The tool's limit of 1 call an hour is reached; try again in 3600 s.";
    world.check_refused(FailureCode::RateLimited, text);
}

#[tokio::test(start_paused = true)]
async fn places_are_given_back_by_a_settled_and_by_a_dropped_call() {
    let world = World::new(&with_tool("concurrency: 2"));
    let (first, second) = (world.admit(), world.admit());
    let text = "Too many calls are running; try again in 1 s.";
    world.check_refused(FailureCode::Overloaded, text);
    first.unwrap().settle(&worked());
    drop(second);
    assert!(world.admit().is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_gateway_s_own_bound_holds_for_all_tools() {
    let world = World::new(&format!("limits: {{max_calls_in_flight: 1}}\n{}", with_tool("")));
    let running = world.admit();
    let text = "Too many calls are running; try again in 1 s.";
    world.check_refused(FailureCode::Overloaded, text);
    drop(running);
    assert!(world.admit().is_ok());
    world.check_series("calls_in_flight_limit 1");
    let body = world.limits.body();
    assert!(body.is_some() && world.limits.body().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_the_tool_failed_at_opens_its_circuit_and_nothing_else_does() {
    for code in [FailureCode::NetworkError, FailureCode::Timeout] {
        assert!(opens(&failed(code)), "{code:?}");
    }
    for number in [500, 503, 599] {
        assert!(opens(&status(number)), "{number}");
    }
    for number in [400, 404, 408, 429] {
        assert!(!opens(&status(number)), "{number}");
    }
    for detail in ["framing", "head", "media", "encoding", "utf8"] {
        let failure = Failure::not_sent(FailureCode::BadBody, "It cannot be read.");
        let failure = Failure { detail: Some(detail), ..failure };
        assert_eq!(opens(&Err(failure)), ["framing", "head"].contains(&detail), "{detail}");
    }
    for code in [
        FailureCode::BlockedHost,
        FailureCode::Cancelled,
        FailureCode::Internal,
        FailureCode::NotConfigured,
        FailureCode::Overloaded,
        FailureCode::Redirect,
    ] {
        assert!(!opens(&failed(code)), "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_s_own_impatience_is_no_failure_of_the_tool() {
    let world = World::new(&with_tool(&format!("timeout: 10s, {ONE_FAILURE}")));
    let within = |seconds| call(CallContext::default(), Some(Duration::from_secs(seconds)));
    world.admit_call(&within(9)).unwrap().settle(&failed(FailureCode::Timeout));
    world.admit_call(&within(10)).unwrap().settle(&failed(FailureCode::Timeout));
    assert!(world.admit().is_err());
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_says_how_long_and_one_probe_closes_it() {
    let world = World::new(&with_tool(ONE_FAILURE));
    world.check_series(r#"circuit_state{state="closed",tool="lookup"} 1"#);
    world.run(&status(500));
    let text = "The tool has been failing and is paused; try again in 30 s.";
    world.check_refused(FailureCode::CircuitOpen, text);
    world.check_series(r#"circuit_state{state="open",tool="lookup"} 1"#);
    tokio::time::advance(Duration::from_secs(30)).await;
    let probe = world.admit().unwrap();
    assert!(!probe.may_retry());
    let text = "The tool has been failing and is paused; try again in 1 s.";
    world.check_refused(FailureCode::CircuitOpen, text);
    world.check_series(r#"circuit_state{state="half_open",tool="lookup"} 1"#);
    drop(probe);
    world.check_series(r#"circuit_probes_total{result="abandoned",tool="lookup"} 1"#);
    world.run(&status(404));
    world.check_series(r#"circuit_probes_total{result="success",tool="lookup"} 1"#);
    for to in ["open", "half_open", "closed"] {
        world.check_series(&format!(r#"circuit_transitions_total{{to="{to}",tool="lookup"}} 1"#));
    }
    assert!(world.admit().unwrap().may_retry());
}

#[tokio::test(start_paused = true)]
async fn a_profile_s_own_statuses_open_it_for_as_long_as_the_profile_says() {
    let tool = with_tool("secret: {current: {env: S}}").replace("plain-v1", "standard-webhooks");
    let world = World::new(&tool);
    world.run(&status(410));
    let text = "The tool has been failing and is paused; try again in 3600 s.";
    world.check_refused(FailureCode::CircuitOpen, text);
    world.check_series(r#"circuit_transitions_total{to="open",tool="lookup"} 1"#);
    tokio::time::advance(Duration::from_secs(3600)).await;
    world.run(&status(410));
    world.check_refused(FailureCode::CircuitOpen, text);
    world.check_series(r#"circuit_probes_total{result="failure",tool="lookup"} 1"#);
    let off = World::new(&tool.replace("policy:", "breaker: off, policy:"));
    off.run(&status(410));
    assert!(off.admit().is_ok());
    off.check_series(r#"circuit_state{state="closed",tool="lookup"} 0"#);
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_every_call_and_for_an_hour_at_most() {
    let world = World::new(&with_tool(""));
    let permit = world.admit().unwrap();
    permit.pause(Duration::from_secs(12));
    permit.pause(Duration::from_secs(5));
    assert_eq!(permit.pause_left(), Duration::from_secs(12));
    let text = "The tool asked for a pause; try again in 12 s.";
    world.check_refused(FailureCode::RateLimited, text);
    world.check_series(r#"rate_limited_total{scope="pause",tool="lookup"} 1"#);
    permit.pause(Duration::from_secs(86_400));
    assert_eq!(permit.pause_left(), Duration::from_secs(3600));
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert!(world.admit().is_ok());
}

#[tokio::test(start_paused = true)]
async fn repeats_are_bounded_and_end_when_the_circuit_opens() {
    let world = World::new(&with_tool(ONE_FAILURE));
    let permit = world.admit().unwrap();
    assert_eq!((0..100).filter(|_| permit.may_retry()).count(), 10);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(permit.may_retry());
    world.run(&status(500));
    assert!(!permit.may_retry());
}

#[tokio::test(start_paused = true)]
async fn a_reload_keeps_what_did_not_change() {
    const RATES: &str = "rate_limits: [{per: tool, rate: 1/h}, {per: key, rate: 100/h}]";
    let tool = with_tool(&format!("{RATES}, {ONE_FAILURE}"));
    let limited = FailureCode::RateLimited;
    let mut world = World::new(&tool);
    let running = world.admit();
    world.reload(&tool);
    assert_eq!(world.admit().unwrap_err().code, limited);
    // Another rate has a bucket of its own; the circuit is that of before.
    running.unwrap().settle(&status(500));
    world.reload(&tool.replace("1/h", "2/h"));
    assert_eq!(world.admit().unwrap_err().code, FailureCode::CircuitOpen);
    world.reload(&tool.replace("1/h", "2/h").replace("consecutive: 1", "consecutive: 2"));
    let running = world.admit().unwrap();
    assert_eq!(world.admit().unwrap_err().code, limited);
    running.pause(Duration::from_secs(5));
    // Another URL is another server.
    world.reload(&tool.replace("com/lookup", "com/look"));
    let moved = world.admit().unwrap();
    assert_eq!(moved.pause_left(), Duration::ZERO);
    // A call that began before a tool was removed still ends.
    world.limits.configure(&snapshot(""));
    assert_eq!(world.limits.circuits(), []);
    moved.settle(&worked());
    assert!(world.admit().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_reload_counts_the_calls_that_run() {
    let mut world = World::new(&with_tool("concurrency: 2"));
    let running = world.admit();
    world.reload(&with_tool("concurrency: 1"));
    assert_eq!(world.admit().unwrap_err().code, FailureCode::Overloaded);
    drop(running);
    assert!(world.admit().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_stands_twice_counts_each_call_once_after_a_reload_too() {
    let tool = with_tool("rate_limits: [{per: tool, rate: 4/h}, {per: tool, rate: 4/h}]");
    let mut world = World::new(&tool);
    world.reload(&tool);
    assert_eq!((0..10).filter(|_| world.admit().is_ok()).count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_to_the_server_of_before_says_nothing_about_the_one_of_now() {
    let before = with_tool(ONE_FAILURE);
    let mut world = World::new(&before);
    let old =
        std::mem::replace(&mut world.snapshot, snapshot(&before.replace("com/lookup", "com/look")));
    world.limits.configure(&world.snapshot);
    let new = std::mem::replace(&mut world.snapshot, old);
    // It came before the reload, and its body was read until after it.
    let late = world.admit().unwrap();
    late.pause(Duration::from_secs(5));
    late.settle(&status(500));
    world.snapshot = new;
    assert!(world.admit().is_ok());
}
