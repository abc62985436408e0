//! A call whose executor breaks: it ends, and takes nothing along.

use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::clock::{BoxFuture, SystemClock};
use crate::config::context::Environment;
use crate::config::parse::parse;
use crate::exec::Executed;
use crate::gateway::notify::Outbox;
use crate::gateway::policies::PolicyBook;
use crate::gateway::tally::{Tally, TallyWorker};
use crate::model::call::DEFAULT_WAIT;
use crate::model::id::CallId;
use crate::model::json::read_object;
use crate::model::outcome::{Sent, ToolResult};
use crate::model::secret::Secret;
use crate::policy::breaker::State;
use crate::store::Store;
use crate::store::recorder::Recorder;
use crate::store::sqlite::SqliteStore;
use crate::telemetry::metrics::ToolLabels;
use crate::telemetry::trace::Tracer;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// Panics where the arguments name a bomb; at once, or after it has waited. Does not answer where they are `unknown`.
struct Brittle;

impl Executor for Brittle {
    fn run<'a>(&'a self, job: &'a Job<'a>) -> BoxFuture<'a, Executed> {
        let text = String::from_utf8_lossy(job.arguments.text()).into_owned();
        assert!(!text.contains("at once"), "a bomb that goes off at once");
        Box::pin(async move {
            tokio::task::yield_now().await;
            assert!(!text.contains("later"), "a bomb that goes off later");
            let ended = if text.contains("unknown") {
                let failure = Failure::not_sent(FailureCode::Timeout, "It did not answer.");
                Err(Failure { sent: Sent::Unknown, ..failure })
            } else {
                Ok(Success { result: ToolResult::Null, result_bytes: 0, cut_note: None })
            };
            Executed {
                ended,
                attempts: Vec::new(),
                started_at_ms: None,
                idempotency_key: None,
                reason: None,
                upstream: Duration::ZERO,
            }
        })
    }
}

/// The machine's clock, and how far it is put forward, in milliseconds.
#[derive(Default)]
pub(super) struct Jumping(pub(super) AtomicI64);

impl Clock for Jumping {
    fn unix_ms(&self) -> i64 {
        SystemClock.unix_ms() + self.0.load(Ordering::Relaxed)
    }

    fn now(&self) -> Instant {
        SystemClock.now()
    }
}

/// A tool that needs nobody, as the file has it.
const ALLOW: &str = "allow";

pub(super) fn snapshot() -> crate::config::snapshot::Snapshot {
    snapshot_of(ALLOW)
}

fn snapshot_of(policy: &str) -> crate::config::snapshot::Snapshot {
    let environment = Environment::bare(&|_| Ok(Secret::new(SECRET)), 0);
    let text = format!(
        "version: 1\nauth: none\ndns: {{servers: [\"127.0.0.1:53\"]}}\ntools: [{{name: lookup, description: Looks an order up., \
         policy: {policy}, concurrency: 1, breaker: {{consecutive: 1}}, parameters: {{type: object}}, \
         secret: {{current: {{file: secret}}}}, headers: {{X-Key: {{file: key}}}}, \
         url: \"https://shop.example.com/lookup\"}}]\n"
    );
    parse("f", &text, &environment).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A gateway with one tool of one place, whose circuit one failure opens.
async fn gateway() -> Arc<Gateway> {
    build(ALLOW).await.0
}

/// The same with another policy of the tool, and what writes its counts.
pub(super) async fn build(policy: &str) -> (Arc<Gateway>, TallyWorker) {
    build_at(policy, Arc::new(SystemClock)).await
}

/// The same by another clock.
pub(super) async fn build_at(policy: &str, clock: Arc<dyn Clock>) -> (Arc<Gateway>, TallyWorker) {
    let epoch = Arc::new(Epoch::new(Arc::new(snapshot_of(policy)), None, &clock).unwrap());
    let metrics = Arc::new(Metrics::new(true));
    metrics.configure(true, [ToolLabels::of(&epoch.snapshot.tools["lookup"])]);
    let limits = Arc::new(Limits::new(clock.clone(), metrics.clone()));
    limits.configure(&epoch.snapshot);
    let (log, _writer) = LogSink::start(true, std::io::sink()).unwrap();
    let (_, epochs) = watch::channel(epoch);
    let store: Arc<dyn Store> = Arc::new(SqliteStore::memory().unwrap());
    let policies = Arc::new(PolicyBook::empty(store.clone()));
    policies.refresh().await.unwrap();
    let (tally, counting) = Tally::new(store.clone(), clock.clone());
    let (recorder, _) = Recorder::new(store.clone(), clock.clone(), metrics.clone());
    let (audit, _) = Audit::new(log.clone(), metrics.clone(), clock.clone());
    let instance = "gw_test".into();
    let (outbox, _) = Outbox::new();
    let (tracer, _) = Tracer::new(clock.clone(), metrics.clone());
    let memory = Memory { store, recorder, audit, outbox, instance, policies, tally, tracer };
    let gateway = Gateway::new(epochs, Arc::new(Brittle), limits, clock, metrics, log, memory);
    (Arc::new(gateway), counting)
}

/// A call of the tool.
pub(super) fn asked(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId::parse(id).unwrap(),
        is_named: false,
        tool: "lookup".into(),
        arguments: read_object(arguments).unwrap(),
        context: Arc::default(),
        deadline: None,
        wait: DEFAULT_WAIT,
        resend: false,
        credentials: Vec::new(),
        batch: None,
    }
}

async fn call(gateway: &Arc<Gateway>, arguments: &str) -> CallOutcome {
    let call = asked("call_0000", arguments);
    gateway
        .call_at_desk(gateway.epoch(), Arc::new(Caller::anonymous()), call)
        .await
        .expect("a call")
}

#[tokio::test]
async fn f154_a_panic_is_one_call_s_end_and_takes_nothing_along() {
    let gateway = gateway().await;
    for (count, bomb) in [(1, "at once"), (2, "later"), (3, "later")] {
        let outcome = call(&gateway, &format!(r#"{{"bomb":"{bomb}"}}"#)).await;
        let failure = outcome.ended.expect_err("a failure");
        assert_eq!((failure.code, failure.sent), (FailureCode::Internal, Sent::Unknown));
        assert_eq!(failure.message, "The call failed inside the gateway.");
        assert_eq!(gateway.metrics.panics.get(), count);
        assert_eq!(gateway.metrics.calls_in_flight.get(), 0);
        // Its one place is free, and the circuit that one failure opens is closed.
        let circuits = gateway.limits().circuits();
        assert_eq!(circuits, [("lookup".to_owned(), Some(State::Closed))]);
        assert!(call(&gateway, "{}").await.ended.is_ok());
    }
    gateway.idle().await;
    // One that runs at the same time is not the one that breaks.
    let calls = tokio::join!(call(&gateway, r#"{"bomb":"at once"}"#), call(&gateway, "{}"));
    assert!(calls.0.ended.is_err() && calls.1.ended.is_ok());
}

#[test]
fn f161_nothing_that_is_printed_for_debugging_holds_a_secret() {
    let snapshot = snapshot();
    let text = format!("{snapshot:?}{snapshot:#?}");
    assert!(text.contains("lookup"), "{text}");
    let bytes: Vec<u8> = (0..24).collect();
    for secret in [SECRET, &SECRET[6..], "0001020304050607", &format!("{:?}", &bytes[..8])[1..20]] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
