//! Values for the suite: each field is set, so that one that gets lost is seen.

use std::sync::Arc;
use std::time::Duration;

use sortie::config::storage::Keep;
use sortie::model::approval::{Approval, ApprovalId, ApprovalKind, ApprovalStatus, DecidedBy};
use sortie::model::call::{CallContext, EndUser};
use sortie::model::id::{CallId, IdempotencyKey, Token};
use sortie::model::outcome::{Phase, Status};
use sortie::model::trace::TraceContext;
use sortie::store::batch::Batch;
use sortie::store::records::{CallFilter, CallRecord, Notice};
use sortie::store::{Bound, Decided, Ruling, Store};

/// When everything in the suite happens, in Unix milliseconds.
pub(crate) const NOW: i64 = 1_793_354_102_000;
pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

pub(crate) const DONE: Phase = Phase::Ended(Status::Succeeded);
pub(crate) const REFUSED: Phase = Phase::Ended(Status::Refused);

pub(crate) fn call_id(number: u32) -> CallId {
    CallId::parse(&format!("call_{number:04}")).expect("it works")
}

pub(crate) fn approval_id(number: u32) -> ApprovalId {
    ApprovalId::parse(&format!("ap_{number:016}")).expect("it works")
}

pub(crate) fn identity(number: u32) -> IdempotencyKey {
    let token = |text: String| Token::parse(&text).expect("it works");
    IdempotencyKey::derive(&token(format!("run_{number}")), &token("3".to_owned()), 1)
}

/// A call in an organisation: bound unless it is refused.
pub(crate) fn call(number: u32, phase: Phase) -> CallRecord {
    let token = |text: String| Some(Token::parse(&text).expect("it works"));
    CallRecord {
        organisation: "shop".into(),
        id: call_id(number),
        phase,
        bound: phase != REFUSED,
        identity: Some(identity(number)),
        alias: None,
        tool: "refund".into(),
        key: "support".into(),
        context: Arc::new(CallContext {
            agent_id: Some("agent".to_owned()),
            session_id: Some(format!("se_{number}")),
            turn_id: Some("turn".to_owned()),
            turn_index: Some(4),
            round: Some(2),
            end_user: Some(EndUser { id: None, external_id: Some("cust-77".to_owned()) }),
            run_id: token(format!("run_{number}")),
            step: token("3".to_owned()),
            call_index: 1,
            model_call_id: Some("toolu_\"1\" é".to_owned()),
            test: true,
            trace: TraceContext::read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        }),
        deadline: Some(Duration::from_millis(60_001)),
        code: phase.is_final().then(|| if phase == DONE { "ok" } else { "rate_limited" }.into()),
        created_at_ms: NOW + i64::from(number),
        finished_at_ms: phase.is_final().then_some(NOW + i64::from(number) + 5),
        arguments: Some(format!(r#"{{"amount":{number},"note":"\u0000 é"}}"#).into()),
        arguments_digest: Some("sha256:00ff".into()),
        outcome: format!(r#"{{"id":"call_{number:04}","status":"{}"}}"#, phase.as_str()).into(),
        instance: phase.ne(&Phase::Waiting).then(|| "one".into()),
    }
}

/// The same call, having come so far.
pub(crate) fn then(mut record: CallRecord, phase: Phase) -> CallRecord {
    record.phase = phase;
    if phase.is_final() {
        record.code = Some("ok".into());
        record.finished_at_ms = Some(record.created_at_ms + 9);
    }
    record.outcome = format!(r#"{{"status":"{}"}}"#, phase.as_str()).into();
    record
}

/// A pending approval of a call, of the same number.
pub(crate) fn approval(number: u32, call: &CallRecord) -> Approval {
    Approval {
        id: approval_id(number),
        organisation: call.organisation.clone(),
        call_id: call.id.clone(),
        kind: ApprovalKind::Operator,
        status: ApprovalStatus::Pending,
        tool: call.tool.to_string(),
        tool_id: "tl_0123456789abcdef".to_owned(),
        tool_version: 7,
        arguments: call.arguments.clone(),
        arguments_digest: "sha256:00ff".to_owned(),
        policy: "big-refunds".to_owned(),
        rule: Some("/amount greater_than 500".to_owned()),
        message: Some("Refunds above 500 are approved.".to_owned()),
        binding: "beef".to_owned(),
        agent_id: Some("agent".to_owned()),
        session_id: call.context.session_id.clone(),
        turn_index: Some(4),
        end_user: Some("cust-77".to_owned()),
        created_at_ms: NOW + i64::from(number),
        expires_at_ms: NOW + HOUR,
        decided_at_ms: None,
        decided_by: None,
        reason: None,
        used_at_ms: None,
    }
}

pub(crate) fn notice(number: u32) -> Notice {
    Notice {
        sink: "webhook".to_owned(),
        event: "approval.requested".to_owned(),
        message_id: format!("msg_{number}"),
        body: format!(r#"{{"number":{number}}}"#),
        created_at_ms: NOW + i64::from(number),
    }
}

pub(crate) fn ruling(number: u32, status: ApprovalStatus) -> Ruling {
    Ruling {
        organisation: "shop".to_owned(),
        id: approval_id(number),
        status,
        at_ms: NOW + MINUTE,
        by: Some(DecidedBy { id: "ops".to_owned(), name: Some("Zoë".to_owned()), verified: true }),
        reason: Some("it is fine".to_owned()),
    }
}

/// A call that waits, with an approval of the same number.
pub(crate) async fn parked(store: &dyn Store, number: u32) -> CallRecord {
    let record = call(number, Phase::Waiting);
    let bound = store.park(record.clone(), approval(number, &record), Vec::new()).await;
    assert_eq!(bound, Ok(Bound::Now));
    record
}

/// A call that waits, with an approval of the same number that somebody has given.
pub(crate) async fn approved(store: &dyn Store, number: u32) -> CallRecord {
    let record = parked(store, number).await;
    let ruling = ruling(number, ApprovalStatus::Approved);
    let decided = store.decide(ruling, None, Vec::new()).await.expect("it works");
    assert!(matches!(decided, Decided::Now(_)), "{decided:?}");
    record
}

/// The ids of an organisation's calls, the oldest first.
pub(crate) async fn ids(store: &dyn Store) -> Vec<String> {
    let filter =
        CallFilter { organisation: "shop".to_owned(), most: 1000, ..CallFilter::default() };
    let found = store.calls(&filter).await.expect("it works");
    found.into_iter().map(|record| record.id.as_str().to_owned()).collect()
}

pub(crate) fn keep() -> Keep {
    Keep {
        calls: Duration::from_secs(7 * 86_400),
        replay: Duration::from_secs(86_400),
        audit: Duration::from_secs(400 * 86_400),
        max_calls: 1000,
    }
}

/// As a batch that is written.
pub(crate) fn shared(records: impl IntoIterator<Item = CallRecord>) -> Arc<Batch> {
    Arc::new(Batch::of(&records.into_iter().collect::<Vec<_>>()))
}
