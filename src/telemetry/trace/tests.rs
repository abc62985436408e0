//! What is recorded of calls, and how it waits.

use super::*;
use crate::clock::SystemClock;
use crate::config::context::{Environment, Source, SourceError};
use crate::config::parse::parse;
use crate::config::snapshot::Snapshot;
use crate::model::call::{CallContext, DEFAULT_WAIT};
use crate::model::id::CallId;
use crate::model::json::read_object;
use crate::model::outcome::{Failure, FailureCode, Success, ToolResult};
use crate::model::secret::Secret;
use crate::model::trace::SpanId;
use crate::telemetry::protobuf::{Field, fields};
use crate::telemetry::trace::call::{AttemptSpan, fresh_span};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const CANARY: &str = "canary-7Hq2xV";

fn snapshot(otlp: &str, tool: &str) -> Snapshot {
    let lookup = |source: &Source| match source {
        Source::Env(name) if name == "TOKEN" => Ok(Secret::new(CANARY)),
        _ => Err(SourceError::Missing),
    };
    let text = format!(
        "version: 1\nauth: none\ntracing: {{otlp: {{endpoint: 'http://127.0.0.1:4318'{otlp}}}}}\ntools:\n  - {{name: lookup, \
         description: Looks an order up by its number., url: 'https://shop.example.com/lookup?key=canary', \
         profile: plain-v1, policy: allow, headers: {{X-Key: {{env: TOKEN}}}}{tool}}}\n"
    );
    parse("f", &text, &Environment::bare(&lookup, 0)).unwrap_or_else(|found| panic!("{found}"))
}

fn call(context: Option<TraceContext>, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::parse("call_0001").expect("an id"),
        is_named: false,
        tool: "lookup".to_owned(),
        arguments: read_object(arguments).expect("an object"),
        context: Arc::new(CallContext { trace: context, ..CallContext::default() }),
        deadline: None,
        wait: DEFAULT_WAIT,
        resend: false,
        credentials: Vec::new(),
        batch: None,
    }
}

fn outcome(call: &ToolCall, answer: &str) -> CallOutcome {
    CallOutcome {
        id: call.id.clone(),
        tool: call.tool.clone(),
        reference: None,
        decision: None,
        approval: None,
        ended: Ok(Success {
            result: ToolResult::Text(answer.to_owned()),
            result_bytes: 1,
            cut_note: None,
        }),
        attempts: Vec::new(),
        idempotency_key: None,
        trace_id: call.context.trace_id(),
        test: false,
        created_at_ms: 0,
        started_at_ms: None,
        finished_at_ms: 0,
        duration: Duration::ZERO,
    }
}

fn tracer() -> (Tracer, Spool) {
    Tracer::new(Arc::new(SystemClock), Arc::new(Metrics::new(true)))
}

fn counted(tracer: &Tracer) -> [u64; 3] {
    let results = ["sent", "failed", "dropped"];
    results.map(|one| tracer.shared.metrics.vectors.trace_exports.with_label_values(&[one]).get())
}

const AT_ONCE: BatchLimits = BatchLimits { spans: 1, bytes: 1, linger: Duration::ZERO };

/// The texts among a message's fields of this number.
fn parts(message: &[u8], number: u32) -> Vec<&[u8]> {
    let found = fields(message).filter_map(|(field, value)| match value {
        Field::Bytes(bytes) if field == number => Some(bytes),
        Field::Bytes(_) | Field::Number(_) => None,
    });
    found.collect()
}

#[test]
fn a_call_that_is_not_sampled_is_not_recorded() {
    let (tracer, _spool) = tracer();
    let snapshot = snapshot(", sample: 0", "");
    let settings = snapshot.tracing.as_ref();
    let now = SystemClock.now();
    let placed = tracer.place(settings, None).expect("it has a trace all the same");
    assert!(!placed.is_sampled && placed.parent.is_none());
    assert!(tracer.begin(settings, &call(Some(placed), "{}"), now).is_none());
    let given = TraceContext::read(PARENT);
    assert_eq!(tracer.place(settings, given), given);
    assert!(tracer.begin(settings, &call(given, "{}"), now).is_some());
    // Where no spans are made, a trace is only told.
    assert_eq!((tracer.place(None, given), tracer.place(None, None)), (given, None));
    assert!(tracer.begin(None, &call(given, "{}"), now).is_none());
}

#[tokio::test]
async fn attempts_are_in_the_call_and_phases_in_attempts() {
    let (tracer, mut spool) = tracer();
    let snapshot = snapshot("", "");
    let call = call(TraceContext::read(PARENT), "{}");
    let now = SystemClock.now();
    let trace = tracer.begin(snapshot.tracing.as_ref(), &call, now).expect("recorded");
    let tool = &snapshot.tools["lookup"];
    let attempt = fresh_span();
    trace.phase(attempt, "dns", [now, now], Some("timeout"));
    trace.attempt(&AttemptSpan {
        id: attempt,
        time: [now, now],
        number: 1,
        endpoint: &tool.endpoint,
        http_status: Some(200),
        error: None,
    });
    tracer.end(trace, &call, Some(tool), &outcome(&call, "fine"));
    let batch = spool.next(AT_ONCE).await.expect("spans");
    assert_eq!(batch.count(), 3);
    let written = batch.spans().collect::<Vec<_>>().concat();
    let spans = parts(&written, 2);
    let [dns, inner, root] = spans[..] else { panic!("{} spans", spans.len()) };
    let id = |span: &[u8]| parts(span, 2)[0].to_vec();
    let parent = |span: &[u8]| parts(span, 4)[0].to_vec();
    assert_eq!(parts(root, 5), [b"execute_tool lookup"]);
    assert_eq!(parts(inner, 5), [b"attempt"]);
    assert_eq!(parts(dns, 5), [b"dns"]);
    assert_eq!((parent(dns), parent(inner)), (id(inner), id(root)));
    let given = SpanId::new([0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]).expect("one");
    assert_eq!(parent(root), given.bytes());
    let trace_id = call.context.trace_id().expect("a trace");
    assert!(spans.iter().all(|span| parts(span, 1) == [trace_id.bytes()]));
    let text = String::from_utf8_lossy(&written);
    assert!(!text.contains("canary"), "neither the query nor a header is told: {text}");
}

#[tokio::test]
async fn arguments_and_answers_are_told_only_where_both_sides_may_have_them() {
    let (full, none) = (", capture: full", ", capture: none");
    for (otlp, of_tool, told) in
        [("", "", false), (full, "", true), (full, none, false), (none, full, false)]
    {
        let (tracer, mut spool) = tracer();
        let snapshot = snapshot(otlp, of_tool);
        let arguments = format!(r#"{{"order":"A-1042","key":"{CANARY}"}}"#);
        let call = call(TraceContext::read(PARENT), &arguments);
        let trace = tracer.begin(snapshot.tracing.as_ref(), &call, SystemClock.now());
        let answer = outcome(&call, &format!("shipped with {CANARY}"));
        let tool = snapshot.tools["lookup"].as_ref();
        tracer.end(trace.expect("recorded"), &call, Some(tool), &answer);
        let batch = spool.next(AT_ONCE).await.expect("spans");
        let text = batch.spans().map(String::from_utf8_lossy).collect::<String>();
        for part in [
            "gen_ai.tool.call.arguments",
            r#"{"order":"A-1042","key":"***"}"#,
            "gen_ai.tool.call.result",
            "shipped with ***",
        ] {
            assert_eq!(text.contains(part), told, "{otlp} {of_tool}: {part} in {text}");
        }
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn a_call_that_never_ran_is_one_span_from_its_request_to_its_end() {
    let (tracer, mut spool) = tracer();
    let snapshot = snapshot("", "");
    let settings = snapshot.tracing.as_ref();
    let tool = snapshot.tools["lookup"].as_ref();
    for traceparent in [None, Some(PARENT.replace("-01", "-00")), Some(PARENT.to_owned())] {
        let call = call(traceparent.as_deref().and_then(TraceContext::read), "{}");
        let failure = Failure::not_sent(FailureCode::Rejected, "Not on a Sunday.");
        let ended = CallOutcome {
            ended: Err(failure),
            created_at_ms: 5_000,
            duration: Duration::from_secs(60),
            ..outcome(&call, "")
        };
        let asked = Asked { context: &call.context, arguments: None, credentials: &[] };
        tracer.end_unrun(None, &asked, Some(tool), &ended);
        tracer.end_unrun(settings, &asked, Some(tool), &ended);
    }
    let batch = spool.next(AT_ONCE).await.expect("a span");
    let written = batch.spans().collect::<Vec<_>>().concat();
    let spans = parts(&written, 2);
    let [span] = spans[..] else { panic!("{} spans", spans.len()) };
    assert_eq!(parts(span, 5), [b"execute_tool lookup"]);
    let numbers = [7, 8].map(|number| {
        fields(span).find_map(|(field, value)| match value {
            Field::Number(at) if field == number => Some(at),
            Field::Bytes(_) | Field::Number(_) => None,
        })
    });
    assert_eq!(numbers, [Some(5_000_000_000), Some(65_000_000_000)]);
    drop(batch);
    drop(spool);
    assert_eq!(counted(&tracer), [0, 1, 0], "nobody wants the others");
}

#[tokio::test]
async fn what_finds_no_room_is_dropped_and_counted() {
    let (tracer, mut spool) = tracer();
    let spans = |size| Spans { bytes: vec![0; size], count: 2 };
    tracer.offer(spans(WAITING_BYTES - 10));
    tracer.offer(spans(11));
    assert_eq!(counted(&tracer), [0, 0, 2]);
    tracer.offer(spans(10));
    assert_eq!(counted(&tracer), [0, 0, 2]);
    spool.next(AT_ONCE).await.expect("the large one").settle(0);
    tracer.offer(spans(WAITING_BYTES - 10));
    assert_eq!(counted(&tracer), [2, 0, 2], "what was exported makes room");
    for _ in 0..WAITING {
        tracer.offer(spans(0));
    }
    assert_eq!(counted(&tracer), [2, 0, 6], "two messages waited before these");
}

/// The end comes while one batch is on its way, another one comes together, and more waits.
#[tokio::test(start_paused = true)]
async fn what_the_end_cuts_off_is_counted() {
    let (tracer, mut spool) = tracer();
    let offer = |count| tracer.offer(Spans { bytes: vec![0; 1], count });
    (0..4).for_each(|_| offer(2));
    let on_its_way = spool.next(AT_ONCE).await.expect("spans");
    let limits = BatchLimits { spans: 9, bytes: 9, linger: Duration::from_secs(1) };
    let coming = spool.next(limits);
    assert!(tokio::time::timeout(Duration::ZERO, coming).await.is_err(), "it waits for more");
    assert_eq!(counted(&tracer), [0, 6, 0], "what comes together is cut off");
    offer(3);
    drop(on_its_way);
    drop(spool);
    assert_eq!(counted(&tracer), [0, 8, 3]);
    offer(1);
    assert_eq!(counted(&tracer), [0, 8, 4], "nobody will export it");
    assert_eq!(tracer.shared.waiting_bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_batch_comes_together_until_it_is_full_late_or_awaited() {
    let (tracer, mut spool) = tracer();
    let limits = BatchLimits { spans: 4, bytes: 100, linger: Duration::from_secs(1) };
    let offer = |count, size| tracer.offer(Spans { bytes: vec![0; size], count });
    (0..3).for_each(|_| offer(2, 1));
    let batch = spool.next(limits).await.expect("a full one");
    assert_eq!((batch.count(), batch.is_awaited()), (4, false));
    let batch = spool.next(limits).await.expect("a late one");
    assert_eq!(batch.count(), 2);
    offer(1, 100);
    offer(1, 1);
    assert_eq!(spool.next(limits).await.expect("a large one").count(), 1);
    let waiting = tracer.exported();
    tokio::pin!(waiting);
    assert!(futures_pending(&mut waiting).await);
    let batch = spool.next(limits).await.expect("an awaited one");
    assert_eq!((batch.count(), batch.is_awaited()), (1, true));
    assert!(futures_pending(&mut waiting).await, "it is not over yet");
    drop(batch);
    waiting.await;
}

async fn futures_pending(future: &mut (impl Future<Output = ()> + Unpin)) -> bool {
    tokio::time::timeout(Duration::ZERO, future).await.is_err()
}
