//! A week of decisions under a clock of the test's own.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use super::*;
use crate::gateway::shadow_report::{Days, ShadowReport};
use crate::model::json::read_object;
use crate::model::outcome::Effect;
use crate::policy::approval::{Candidate, ToolPolicy};
use crate::policy::condition::{Condition, Operator};
use crate::policy::rules::decide;
use crate::store::sqlite::SqliteStore;

/// Wall time as the test sets it.
struct Manual(AtomicI64);

impl Clock for Manual {
    fn unix_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    fn now(&self) -> Instant {
        crate::clock::SystemClock.now()
    }
}

/// 2026-11-24, an hour before midnight.
const BEGIN_MS: i64 = 1_795_561_200_000;

struct Bench {
    clock: Arc<Manual>,
    store: Arc<dyn Store>,
    tally: Arc<Tally>,
    worker: TallyWorker,
    tool: ToolName,
    made: u32,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(Manual(AtomicI64::new(BEGIN_MS)));
        let store: Arc<dyn Store> = Arc::new(SqliteStore::memory().expect("a store"));
        let (tally, worker) = Tally::new(store.clone(), clock.clone());
        let tool = ToolName::parse("refund").expect("a name");
        Self { clock, store, tally, worker, tool, made: 0 }
    }

    /// A call that is decided now.
    fn call(&mut self, own: &ToolPolicy, policies: &[Arc<Policy>], amount: u32) -> Decision {
        self.made += 1;
        let arguments = read_object(&json!({ "amount": amount }).to_string()).expect("arguments");
        let decision = decide(own, policies, None, &arguments);
        self.tally.note(&Decided {
            organisation: "default",
            tool: &self.tool,
            has_candidate: own.candidate.is_some(),
            policies,
            call_id: &CallId::parse(&format!("call_{:04}", self.made)).expect("an id"),
            created_at_ms: self.clock.unix_ms(),
            decision: &decision,
        });
        decision
    }

    async fn report(&mut self, policy: &str, days: u64) -> ShadowReport {
        self.worker.flush().await.expect("a store");
        let days = Days::until(self.clock.unix_ms(), days);
        let counted = self.store.shadow("default", policy, [days.from, days.to]).await;
        let (counts, samples) = counted.expect("counts");
        ShadowReport::of(counts, samples)
    }
}

fn over(amount: u32) -> Vec<Condition> {
    let made = Condition::new("/amount", Operator::GreaterThan, json!(amount), None);
    vec![made.expect("a condition")]
}

fn big_refunds() -> Arc<Policy> {
    Arc::new(Policy {
        id: "big-refunds".into(),
        mode: Mode::Shadow,
        tools: Vec::new(),
        agents: Vec::new(),
        permission: None,
        when: over(500),
        rule: None,
        effect: Effect::Deny,
        message: None,
        expires: None,
        priority: 0,
    })
}

/// Requirement S1-048.
#[tokio::test]
async fn a_week_of_shadow_decisions_totals_the_calls_that_were_made() {
    let mut bench = Bench::new();
    let own = ToolPolicy { effect: Effect::Allow, candidate: None, ask_first: false };
    let policies = [big_refunds()];
    let mut made = Vec::new();
    for day in 0..10_u64 {
        // Some at eleven at night and some at one in the morning: each belongs to its own UTC day.
        for hour in [0, 2] {
            let past = i64::try_from(day * 24 + hour).expect("a number") * 3_600_000;
            bench.clock.0.store(BEGIN_MS + past, Ordering::Relaxed);
            let calls = 3 + day + hour;
            for nth in 0..calls {
                let amount = if nth % 3 == 0 { 501 } else { 500 };
                bench.call(&own, &policies, amount);
            }
            made.push((tally_day(&bench), calls, calls.div_ceil(3)));
        }
        bench.worker.flush().await.expect("a store");
    }
    let today = tally_day(&bench);
    for days in [1, 7, 90] {
        let report = bench.report("big-refunds", days).await;
        let since = today - i64::try_from(days).expect("a number");
        let within = || made.iter().filter(|(day, ..)| *day > since);
        let calls: u64 = within().map(|(_, calls, _)| calls).sum();
        let over: u64 = within().map(|(.., over)| over).sum();
        let total = report.total;
        assert_eq!((total.calls, total.matched, total.disagreements), (calls, over, over));
        assert_eq!(report.by_tool["refund"], total);
        assert!(report.samples.len() <= SAMPLES && !report.samples.is_empty());
        assert!(report.samples.iter().all(|sample| sample.day > since));
    }
    let other = bench.report("other", 7).await;
    assert_eq!(other, ShadowReport::default());
}

/// Requirement S1-047b.
#[tokio::test]
async fn a_looser_candidate_s_report_says_what_people_decided() {
    let mut bench = Bench::new();
    let candidate = Candidate { effect: Effect::Allow, when: over(0) };
    let own = ToolPolicy {
        effect: Effect::RequireApproval,
        candidate: Some(candidate),
        ask_first: false,
    };
    let decided = [
        vec![ApprovalStatus::Approved; 7],
        vec![ApprovalStatus::Rejected; 2],
        vec![ApprovalStatus::Expired],
    ];
    let created = bench.clock.unix_ms();
    for _ in 0..10 {
        assert!(bench.call(&own, &[], 5).would_run_unasked());
    }
    // One that the candidate is not about, and one that a rule would have held all the same.
    assert!(!bench.call(&own, &[], 0).would_run_unasked());
    let rule = Policy {
        mode: Mode::Enforce,
        when: Vec::new(),
        effect: Effect::AskFirst,
        ..(*big_refunds()).clone()
    };
    assert!(!bench.call(&own, &[Arc::new(rule)], 5).would_run_unasked());
    // People take until the next day.
    bench.clock.0.fetch_add(DAY_MS, Ordering::Relaxed);
    for status in decided.concat() {
        bench.tally.resolved("default", &bench.tool, created, status);
    }
    bench.tally.resolved("default", &bench.tool, created, ApprovalStatus::Void);
    let total = bench.report(&candidate_key("refund"), 2).await.total;
    assert_eq!((total.calls, total.matched, total.disagreements), (12, 11, 11));
    assert_eq!(total.unasked, 10);
    assert_eq!((total.approved, total.rejected, total.expired), (7, 2, 1));
    assert_eq!(bench.report(&candidate_key("refund"), 1).await.total.unasked, 0);
}

#[tokio::test]
async fn what_the_store_does_not_take_waits_for_the_next_time() {
    let mut bench = Bench::new();
    let own = ToolPolicy { effect: Effect::Allow, candidate: None, ask_first: false };
    for _ in 0..50 {
        bench.call(&own, &[big_refunds()], 600);
    }
    let taken = bench.tally.take(tally_day(&bench));
    bench.call(&own, &[big_refunds()], 600);
    bench.tally.put_back(taken);
    let report = bench.report("big-refunds", 1).await;
    assert_eq!((report.total.calls, report.total.disagreements), (51, 51));
    let samples: Vec<_> = report.samples.iter().map(|sample| sample.call_id.as_str()).collect();
    assert_eq!((samples.len(), samples[0], samples[19]), (20, "call_0001", "call_0020"));
}

#[tokio::test]
async fn a_call_that_nobody_watches_costs_no_place() {
    let mut bench = Bench::new();
    let own = ToolPolicy { effect: Effect::Allow, candidate: None, ask_first: false };
    let enforced = Policy { mode: Mode::Enforce, ..(*big_refunds()).clone() };
    bench.call(&own, &[Arc::new(enforced)], 600);
    assert!(bench.tally.lock().counts.is_empty());
}

#[tokio::test]
async fn whoever_asks_waits_until_all_of_it_is_written_and_the_end_writes_the_rest() {
    let mut bench = Bench::new();
    let own = ToolPolicy { effect: Effect::Allow, candidate: None, ask_first: false };
    let end = Flag::default();
    bench.call(&own, &[big_refunds()], 600);
    let (tally, store) = (bench.tally.clone(), bench.store.clone());
    let today = tally_day(&bench);
    let calls = async || {
        let counted = store.shadow("default", "big-refunds", [today, today]).await;
        ShadowReport::of(counted.expect("counts").0, Vec::new()).total.calls
    };
    let policy = [big_refunds()];
    let asking = async {
        tally.flush().await.expect("a store");
        assert_eq!(calls().await, 1);
        let arguments = read_object(r#"{"amount":600}"#).expect("arguments");
        tally.note(&Decided {
            organisation: "default",
            tool: &ToolName::parse("refund").expect("a name"),
            has_candidate: false,
            policies: &policy,
            call_id: &CallId::parse("call_last").expect("an id"),
            created_at_ms: BEGIN_MS,
            decision: &decide(&own, &policy, None, &arguments),
        });
        end.raise();
    };
    tokio::join!(bench.worker.run(end.clone()), asking);
    assert_eq!(calls().await, 2);
}

fn tally_day(bench: &Bench) -> i64 {
    day(bench.clock.unix_ms())
}
