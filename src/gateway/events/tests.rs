//! Who hears what, how much is kept for them, and for how long.

use super::*;
use crate::clock::SystemClock;
use crate::policy::identity::Glob;

fn events() -> Arc<Events> {
    Arc::new(Events::new(Arc::new(SystemClock)))
}

fn event(name: &str) -> Event {
    Event {
        organisation: "default".into(),
        session_id: Some("s1".into()),
        turn_id: None,
        agent_id: Some("support".into()),
        tool: "lookup".into(),
        call_id: CallId::parse(&format!("call_{name}")).expect("an id"),
        what: What::Start { filler: None },
    }
}

fn audience() -> Audience {
    Audience { caller: Arc::new(Caller::anonymous()), session_id: None }
}

fn listen(events: &Arc<Events>, after: Option<&str>) -> (Subscription, Beginning) {
    events.listen(audience(), after, MOST_LISTENERS).expect("room")
}

fn heard(subscription: &Subscription) -> Vec<String> {
    let events = subscription.take(usize::MAX).events;
    events.iter().map(|told| told.event.call_id.as_str().to_owned()).collect()
}

#[test]
fn an_event_is_not_even_made_while_nobody_listens() {
    events().tell(|| panic!("nobody hears it"));
}

#[tokio::test(start_paused = true)]
async fn events_come_in_their_order_with_growing_numbers() {
    let events = events();
    let (subscription, beginning) = listen(&events, None);
    assert_eq!(beginning, Beginning::Now(0));
    events.tell(|| event("0001"));
    events.tell(|| event("0002"));
    subscription.ready().await;
    let taken = subscription.take(usize::MAX);
    let numbers: Vec<_> = taken.events.iter().map(|told| told.number).collect();
    assert_eq!((numbers, taken.lagged), (vec![1, 2], false));
    assert_eq!(subscription.position(), Some(2));
}

#[track_caller]
fn check_hears(audience: Audience, change: impl FnOnce(&mut Event), expected: bool) {
    let events = events();
    let (subscription, _) = events.listen(audience, None, 1).expect("room");
    let mut event = event("0001");
    change(&mut event);
    events.tell(|| event);
    assert_eq!(heard(&subscription).len(), usize::from(expected));
}

#[test]
fn everyone_hears_what_is_within_their_bounds() {
    let bound = |agents: &[&str], tools: &[&str]| {
        let globs =
            |list: &[&str]| list.iter().map(|one| Glob::parse(one).expect("valid")).collect();
        let caller = Caller { agents: globs(agents), tools: globs(tools), ..Caller::anonymous() };
        Audience { caller: Arc::new(caller), session_id: None }
    };
    let of_session = |id: &str| Audience { session_id: Some(id.into()), ..audience() };
    check_hears(audience(), |_| {}, true);
    check_hears(audience(), |event| event.organisation = "other".into(), false);
    check_hears(of_session("s1"), |_| {}, true);
    check_hears(of_session("s2"), |_| {}, false);
    check_hears(of_session("s1"), |event| event.session_id = None, false);
    check_hears(of_session("s1"), |event| event.organisation = "other".into(), false);
    check_hears(bound(&["sup*"], &["look*"]), |_| {}, true);
    check_hears(bound(&[], &["refund"]), |_| {}, false);
    check_hears(bound(&["sales"], &[]), |_| {}, false);
    check_hears(bound(&["sup*"], &[]), |event| event.agent_id = None, false);
}

#[test]
fn who_comes_back_hears_what_was_missed() {
    let events = events();
    let (first, _) = listen(&events, None);
    events.tell(|| event("0001"));
    events.tell(|| event("0002"));
    drop(first);
    events.tell(|| event("0003"));
    let (again, beginning) = listen(&events, Some(&events.id(1)));
    assert_eq!(beginning, Beginning::Resumed);
    assert_eq!(heard(&again), ["call_0002", "call_0003"]);
    let (at_once, beginning) = listen(&events, Some(&events.id(3)));
    assert_eq!((beginning, heard(&at_once).len()), (Beginning::Resumed, 0));
    for foreign in ["", "2", "zzzzzzzz-2", &events.id(4), &format!("{}+", events.id(2))] {
        let (anew, beginning) = listen(&events, Some(foreign));
        assert_eq!((beginning, heard(&anew).len()), (Beginning::Reset(3), 0), "{foreign}");
    }
}

#[test]
fn only_so_much_is_remembered() {
    let events = events();
    let (_listener, _) = listen(&events, None);
    for _ in 0..=REMEMBERED {
        events.tell(|| event("0001"));
    }
    let since = |number| listen(&events, Some(&events.id(number))).1;
    assert_eq!(since(0), Beginning::Reset(1025));
    assert_eq!(since(1), Beginning::Resumed);
    let arguments = Bytes::from(vec![b'1'; REMEMBERED_BYTES / 2]);
    for _ in 0..3 {
        let what = What::Confirm { arguments: arguments.clone(), expires_at_ms: 0 };
        events.tell(|| Event { what, ..event("0001") });
    }
    assert_eq!(since(1026), Beginning::Reset(1028));
    assert_eq!(since(1027), Beginning::Resumed);
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_nobody_listened_for_long_is_missed() {
    let events = events();
    let (first, _) = listen(&events, None);
    events.tell(|| event("0001"));
    drop(first);
    tokio::time::advance(MEMORY - Duration::from_secs(1)).await;
    let (second, beginning) = listen(&events, Some(&events.id(1)));
    assert_eq!(beginning, Beginning::Resumed);
    drop(second);
    tokio::time::advance(MEMORY).await;
    events.tell(|| event("0002"));
    events.tell(|| panic!("nobody hears it"));
    let (_third, beginning) = listen(&events, Some(&events.id(1)));
    assert!(matches!(beginning, Beginning::Reset(_)), "{beginning:?}");
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_take_its_events_is_told_and_hears_no_more() {
    let events = events();
    let (slow, _) = listen(&events, None);
    let (quick, _) = listen(&events, None);
    for _ in 0..WAITING + 10 {
        events.tell(|| event("0001"));
        assert_eq!(heard(&quick).len(), 1);
    }
    assert_eq!(slow.position(), None);
    let first = slow.take(WAITING - 1);
    assert_eq!((first.events.len(), first.lagged), (WAITING - 1, false));
    let rest = slow.take(WAITING);
    assert_eq!((rest.events.len(), rest.lagged), (1, true));
    events.tell(|| event("0002"));
    assert!(slow.take(WAITING).events.is_empty());
    slow.ready().await;
    // It comes back and goes on where it was.
    let (again, beginning) = listen(&events, Some(&events.id(256)));
    assert_eq!((beginning, heard(&again).len()), (Beginning::Resumed, 11));
}

#[test]
fn a_large_event_waits_alone() {
    let events = events();
    let (slow, _) = listen(&events, None);
    for _ in 0..2 {
        let arguments = Bytes::from(vec![b'1'; 2 * WAITING_BYTES]);
        let what = What::Confirm { arguments, expires_at_ms: 0 };
        events.tell(|| Event { what, ..event("0001") });
    }
    let taken = slow.take(WAITING);
    assert_eq!((taken.events.len(), taken.lagged), (1, true));
}

#[test]
fn so_many_listen_and_no_more() {
    let events = events();
    let listen = || events.listen(audience(), None, 2);
    let (first, second) = (listen().expect("room"), listen().expect("room"));
    assert_eq!(listen().expect_err("no room"), Crowded(2));
    drop(first);
    let of_session = Audience { session_id: Some("s1".into()), ..audience() };
    let third = events.listen(of_session, None, 2).expect("room again");
    assert!(listen().is_err());
    drop((second, third));
    let state = events.lock();
    assert!(state.of_session.is_empty() && state.of_all.is_empty() && state.count == 0);
}
