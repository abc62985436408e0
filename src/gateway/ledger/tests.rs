//! Who enters first has the names, until it is over.

use super::*;
use crate::exec::Flag;
use crate::model::call::{CallContext, DEFAULT_WAIT};
use crate::model::id::Token;
use crate::model::json::read_object;
use crate::model::outcome::{Phase, Status};

const SECOND: Duration = Duration::from_secs(1);

fn live(organisation: &str, id: &str, step: Option<&str>) -> Arc<Live> {
    let token = |text| Token::parse(text).expect("a token");
    let call = ToolCall {
        id: CallId::parse(id).expect("an id"),
        is_named: true,
        tool: "lookup".into(),
        arguments: read_object("{}").expect("an object"),
        context: Arc::new(CallContext {
            run_id: step.map(|_| token("run")),
            step: step.map(token),
            ..CallContext::default()
        }),
        deadline: None,
        wait: DEFAULT_WAIT,
        resend: false,
        credentials: Vec::new(),
        batch: None,
    };
    let caller = Caller { organisation: organisation.into(), ..Caller::anonymous() };
    Arc::new(Live::new(call, Arc::new(caller), 0, Presence::until(Flag::default())))
}

fn told(id: &str) -> Told {
    let id = CallId::parse(id).expect("an id");
    Told { phase: Phase::Ended(Status::Succeeded), id, body: bytes::Bytes::new() }
}

#[test]
fn a_name_is_one_open_call_s() {
    let ledger = Arc::new(Ledger::default());
    let one = live("default", "call_0001", Some("1"));
    let entry = ledger.enter(&one).expect("nobody has it");
    for other in [live("default", "call_0001", None), live("default", "call_0002", Some("1"))] {
        let holder = ledger.enter(&other).expect_err("it is taken");
        assert_eq!(holder.call.id, one.call.id);
    }
    // Other organisations and other steps are others.
    let others = [
        live("other", "call_0001", Some("1")),
        live("default", "call_0003", Some("2")),
        live("default", "call_0004", None),
    ];
    for other in &others {
        drop(ledger.enter(other).expect("another call"));
    }
    drop(entry);
    assert!(matches!(one.standing(), Standing::Left));
    drop(ledger.enter(&live("default", "call_0002", Some("1"))).expect("it is free again"));
}

#[tokio::test]
async fn who_waits_for_a_call_is_told_its_end() {
    let ledger = Arc::new(Ledger::default());
    let one = live("default", "call_0001", Some("1"));
    let entry = ledger.enter(&one).expect("nobody has it");
    let joined = ledger.enter(&live("default", "call_0002", Some("1"))).expect_err("taken");
    let end = async { entry.end(told("call_0001"), true) };
    let (standing, ()) = tokio::join!(joined.over(SECOND), end);
    let Standing::Ended { told, bound: true } = standing else { panic!("{standing:?}") };
    assert_eq!(told.id.as_str(), "call_0001");
    assert!(ledger.call("default", &one.call.id).is_none());
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_is_told_how_far_it_has_come() {
    let ledger = Arc::new(Ledger::default());
    let one = live("default", "call_0001", None);
    let entry = ledger.enter(&one).expect("nobody has it");
    assert!(matches!(one.over(SECOND).await, Standing::Checked));
    drop(entry);
    assert!(matches!(one.over(SECOND).await, Standing::Left));
}

#[test]
fn a_call_waits_for_its_turn_once_and_is_checked_anew_each_time() {
    let ledger = Arc::new(Ledger::default());
    let (organisation, one) = (Arc::from("default"), live("default", "call_0001", None));
    let turn = ledger.take_turn(&organisation, &one.call.id).expect("nobody waits yet");
    assert!(ledger.takes_turns(&organisation, &one.call.id));
    assert!(ledger.take_turn(&organisation, &one.call.id).is_none());
    for _ in 0..2 {
        let entry = ledger.enter(&one).expect("nobody has it");
        assert!(matches!(one.standing(), Standing::Checked));
        drop(entry);
        assert!(matches!(one.standing(), Standing::Left));
    }
    drop(turn);
    assert!(ledger.take_turn(&organisation, &one.call.id).is_some());
}
