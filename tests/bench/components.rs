//! The parts of a call that need no network, one by one.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sortie::config::snapshot::Tool;
use sortie::model::call::ToolCall;
use sortie::model::outcome::{AttemptRecord, CallOutcome, Success, ToolReference};
use sortie::policy::answer::{self, AnswerHead};
use sortie::policy::rules;
use sortie::policy::sign::MessageId;
use sortie::policy::wire::Rendering;
use sortie::serve;
use sortie::serve::calls::parse_call;
use sortie::telemetry::labels::{AttemptResult, Phase};
use sortie::telemetry::log::{CallLine, LineCaller, LogSink};
use sortie::telemetry::metrics::{Metrics, ToolLabels};

use crate::gateway::call_body;
use crate::upstream;

/// Batches of which the quickest counts: it is the one that other processes disturbed least.
const BATCHES: usize = 60;
/// How long a batch takes, about: less than a turn of the scheduler.
const BATCH: Duration = Duration::from_micros(800);
/// 2026-10-30T09:55:02.000Z
const NOW_MS: i64 = 1_793_354_102_000;

/// Names and nanoseconds, on the configuration that the gateway runs with.
pub(crate) fn measure(config: PathBuf) -> Vec<(&'static str, f64)> {
    let snapshot = sortie::source::load(std::slice::from_ref(&config))
        .expect("the gateway runs with it")
        .found;
    let tool = snapshot.tool("scans.get").expect("the tool of the bench");
    let body = call_body();
    let call = parse_call(body.as_bytes()).unwrap_or_else(|error| panic!("{error:?}"));
    let arguments = tool.arguments.check(&call.arguments).expect("they fit");
    let key = call.context.idempotency_key();
    let rendering = Rendering {
        tool: &tool.name,
        call_id: &call.id,
        context: &call.context,
        arguments: &arguments,
        endpoint: &tool.endpoint,
        sent_at_ms: NOW_MS,
        idempotency_key: key.as_ref(),
    };
    let (keys, now) = (tool.signing.at(NOW_MS / 1000), NOW_MS / 1000);
    let scheme = tool.profile.signature().expect("the profile signs");
    let wire = tool.profile.body(&rendering);
    let answer = upstream::answer();
    let outcome = outcome(tool, &call, read(&answer));
    let (sink, _writer) = LogSink::start(true, std::io::sink()).expect("a thread");
    let caller = LineCaller { organisation: "default", key: "bench", region: None, owner: None };
    let metrics = Metrics::new(true);
    metrics.configure(true, [labels(tool)]);
    let series = metrics.tool(tool.name.as_str());
    let literal = |admitted: &sortie::policy::address::Admitted<'_>| {
        admitted.literal().expect("the server's address stands in the URL")
    };
    vec![
        ("read the call's body", time(|| parse_call(body.as_bytes()))),
        ("check the arguments", time(|| tool.arguments.check(&call.arguments))),
        (
            "admit and vet the address",
            time(|| {
                let judged = snapshot.egress.admit(tool.name.as_str(), &tool.endpoint, now);
                let admitted = judged.verdict.expect("an exception opens it");
                snapshot.egress.vet(&admitted, &literal(&admitted)).verdict.expect("it is open")
            }),
        ),
        (
            "the signature header",
            time(|| scheme.header_value(keys, now, MessageId::from(&call.id), &wire)),
        ),
        (
            "headers and body, signature included",
            time(|| {
                let body = tool.profile.body(&rendering);
                tool.profile.headers(&rendering, &[], &body, keys, now)
            }),
        ),
        ("read an answer of 1 KB", time(|| read(&answer))),
        ("the outcome as JSON", time(|| serve::outcome::write(&outcome))),
        ("the log line", time(|| sink.call(&CallLine::new(&outcome, &call.context, caller)))),
        (
            "the metrics",
            time(|| {
                metrics.finished(&series, &outcome);
                metrics.attempt(&series, AttemptResult::Success, outcome.duration);
                metrics.phase(Phase::FirstByte, outcome.duration);
                metrics.phase(Phase::Body, outcome.duration);
                metrics.response(&series, answer.len());
            }),
        ),
    ]
}

fn read(body: &Bytes) -> Success {
    let head =
        AnswerHead { status: 200, content_type: Some(b"application/json"), content_encoding: None };
    let media = answer::judge_head(&head).expect("JSON can be read");
    answer::read(media, body, true, None, 262_144).expect("it is JSON")
}

fn outcome(tool: &Tool, call: &ToolCall, success: Success) -> CallOutcome {
    let duration = Duration::from_micros(180);
    CallOutcome {
        id: call.id.clone(),
        tool: call.tool.clone(),
        reference: Some(ToolReference {
            id: tool.id.clone(),
            version: 1,
            read_only: tool.read_only,
            filler: tool.filler.clone(),
        }),
        decision: Some(rules::decide(&tool.policy, &tool.policies, None, &call.arguments)),
        ended: Ok(success),
        attempts: vec![AttemptRecord {
            at_ms: NOW_MS,
            duration,
            http_status: Some(200),
            error: None,
        }],
        idempotency_key: call.context.idempotency_key(),
        test: false,
        created_at_ms: NOW_MS,
        started_at_ms: Some(NOW_MS),
        finished_at_ms: NOW_MS,
        duration,
    }
}

fn labels(tool: &Tool) -> ToolLabels<'_> {
    ToolLabels::of(tool)
}

/// Nanoseconds of one run, the result's drop included.
fn time<T>(mut work: impl FnMut() -> T) -> f64 {
    let mut batch = |runs: u32| {
        let begun = Instant::now();
        for _ in 0..runs {
            black_box(work());
        }
        begun.elapsed()
    };
    let once = batch(100) / 100;
    let runs = u32::try_from(BATCH.as_nanos() / once.as_nanos().max(1)).unwrap_or(1).max(1);
    let best = (0..BATCHES).map(|_| batch(runs)).min().unwrap_or_default();
    best.as_nanos() as f64 / f64::from(runs)
}
