//! A call that is sent once more: what it may not do.

use super::*;
use crate::gateway::tests::{asked, build};
use crate::gateway::told::Verdict;
use crate::model::call::ToolCall;
use crate::model::outcome::Status;
use crate::store::records::ApprovalFilter;

const LONG: Duration = Duration::from_secs(20);

fn named(arguments: &str, resend: bool) -> ToolCall {
    ToolCall { is_named: true, resend, ..asked("call_0001", arguments) }
}

async fn told(gateway: &Arc<Gateway>, call: ToolCall) -> Result<Told, CallError> {
    let caller = Arc::new(Caller::anonymous());
    let told = tokio::time::timeout(LONG, gateway.call(gateway.epoch(), caller, call)).await;
    told.expect("it is answered")
}

#[track_caller]
fn holds(told: &Told, status: Status, part: &str) {
    let text = String::from_utf8_lossy(&told.body);
    assert!(told.phase == Phase::Ended(status) && text.contains(part), "{part}: {text}");
}

#[tokio::test]
async fn a_yes_lets_a_call_run_once_and_not_once_more() {
    let (gateway, _counting) = build("require_approval, annotations: {idempotent: true}").await;
    let caller = Caller::anonymous();
    let waiting = told(&gateway, named(r#"{"a":"unknown"}"#, false)).await.expect("it waits");
    assert_eq!(waiting.phase, Phase::Waiting);
    let filter = ApprovalFilter { most: 1, ..ApprovalFilter::default() };
    let approval = gateway.approvals(&caller, filter).await.expect("approvals").remove(0);
    let verdict = Verdict {
        yes: true,
        arguments_digest: Some(approval.arguments_digest.clone()),
        reason: None,
        name: None,
    };
    let decided = gateway.decide(&caller, &approval.id, verdict).await.expect("decided");
    assert!(decided.decided_by.is_some_and(|by| by.verified));
    let ended = gateway.follow(&caller, &waiting.id, LONG).await.expect("a call");
    holds(&ended, Status::Failed, r#""outcome":"unknown""#);
    let again = told(&gateway, named(r#"{"a":"unknown"}"#, true)).await;
    assert_eq!(again, Err(CallError::YesIsUsed));
}

#[tokio::test]
async fn a_repeat_that_sends_nothing_leaves_what_is_unknown_as_it_was() {
    let (gateway, _counting) = build("allow, annotations: {idempotent: true}").await;
    let first = told(&gateway, named(r#"{"a":"unknown"}"#, false)).await.expect("an outcome");
    holds(&first, Status::Failed, r#""outcome":"unknown""#);
    let refused = told(&gateway, named(r#"{"a":"unknown"}"#, true)).await.expect("an outcome");
    holds(&refused, Status::Refused, "circuit_open");
    let again = told(&gateway, named(r#"{"a":"unknown"}"#, false)).await.expect("an outcome");
    holds(&again, Status::Failed, r#""replayed":true"#);
    let other = told(&gateway, named(r#"{"a":"other"}"#, false)).await;
    assert!(matches!(other, Err(CallError::Conflict(_))), "{other:?}");
}
