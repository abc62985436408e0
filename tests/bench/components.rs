//! The parts of a call that need no network, one by one.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sortie::config::snapshot::Tool;
use sortie::config::storage::Keep;
use sortie::model::call::ToolCall;
use sortie::model::id::{CallId, IdempotencyKey, Token};
use sortie::model::outcome::{AttemptRecord, CallOutcome, Phase, Status, Success, ToolReference};
use sortie::model::outcome_text;
use sortie::policy::answer::{self, AnswerHead};
use sortie::policy::rules;
use sortie::policy::sign::MessageId;
use sortie::policy::wire::Rendering;
use sortie::serve::calls::parse_call;
use sortie::store::Store;
use sortie::store::batch::Batch;
use sortie::store::records::CallRecord;
use sortie::store::sqlite::SqliteStore;
use sortie::telemetry::labels::{AttemptResult, Phase as CallPhase};
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
    let recorded = recorded(&call, outcome_text::write(&outcome).into());
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
        ("the outcome as JSON", time(|| outcome_text::write(&outcome))),
        ("the log line", time(|| sink.call(&CallLine::new(&outcome, &call.context, caller)))),
        (
            "the metrics",
            time(|| {
                metrics.finished(&series, &outcome);
                metrics.attempt(&series, AttemptResult::Success, outcome.duration);
                metrics.phase(CallPhase::FirstByte, outcome.duration);
                metrics.phase(CallPhase::Body, outcome.duration);
                metrics.response(&series, answer.len());
            }),
        ),
        ("the record, in memory", record(&SqliteStore::memory().expect("memory"), &recorded)),
        ("the record, in a file", {
            let folder = tempfile::tempdir().expect("a folder");
            let store = SqliteStore::open(&folder.path().join("bench.db")).expect("a file");
            record(&store, &recorded)
        }),
    ]
}

/// The record of a call that ended, 1.2 KB with its outcome.
fn recorded(call: &ToolCall, outcome: Bytes) -> CallRecord {
    CallRecord {
        organisation: "default".into(),
        id: call.id.clone(),
        phase: Phase::Ended(Status::Succeeded),
        bound: true,
        identity: call.context.idempotency_key(),
        alias: None,
        tool: call.tool.as_str().into(),
        key: "bench".into(),
        context: call.context.clone(),
        deadline: None,
        code: Some("ok".into()),
        created_at_ms: NOW_MS,
        finished_at_ms: Some(NOW_MS),
        arguments: Some(call.arguments.text().clone()),
        arguments_digest: None,
        outcome,
        instance: Some("bench".into()),
    }
}

/// Nanoseconds of a record: fresh calls, eight of each run and session, as many at once as the recorder takes; the store
/// is as full as it gets.
fn record(store: &SqliteStore, like: &CallRecord) -> f64 {
    const AT_ONCE: u32 = 512;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let keep = Keep {
        calls: Duration::from_secs(7 * 86_400),
        replay: Duration::from_secs(86_400),
        audit: Duration::from_secs(86_400),
        max_calls: 100_000,
    };
    runtime.block_on(store.sweep(&keep, NOW_MS)).expect("it works");
    let mut count = 0_u32;
    let mut batch = || {
        let records = (0..AT_ONCE).map(|_| {
            count += 1;
            let mut record = like.clone();
            let turn = count / 8;
            let run = Token::parse(&format!("run_{:08x}", turn.wrapping_mul(0x9e37_79b9)));
            let (run, step) = (run.expect("valid"), Token::parse("3").expect("valid"));
            record.id = CallId::parse(&format!("call_{count:016}")).expect("valid");
            record.identity = Some(IdempotencyKey::derive(&run, &step, count % 8));
            let context = Arc::make_mut(&mut record.context);
            context.session_id = Some(format!("se_{:08x}", turn.wrapping_mul(0x85eb_ca6b)));
            context.run_id = Some(run);
            record
        });
        let records: Vec<_> = records.collect();
        let begun = Instant::now();
        let batch = Arc::new(Batch::of(&records));
        runtime.block_on(store.write(batch)).expect("it works");
        begun.elapsed()
    };
    // Enough that each batch pushes out an old one.
    for _ in 0..220 {
        batch();
    }
    let mut times: Vec<_> = (0..BATCHES).map(|_| batch()).collect();
    times.sort();
    times[BATCHES / 2].as_nanos() as f64 / f64::from(AT_ONCE)
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
        approval: None,
        ended: Ok(success),
        attempts: vec![AttemptRecord {
            at_ms: NOW_MS,
            duration,
            http_status: Some(200),
            error: None,
        }],
        idempotency_key: call.context.idempotency_key(),
        trace_id: call.context.trace_id(),
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
