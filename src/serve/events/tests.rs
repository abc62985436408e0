//! One stream: what it writes, its heartbeat, and its ends.

use super::*;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body::Body as _;
use tokio::time::Instant;

use crate::clock::SystemClock;
use crate::gateway::events::{Event, Events};
use crate::model::id::CallId;

/// A stream whose pieces the test reads.
struct Reader {
    events: Arc<Events>,
    pieces: Pieces,
    phase: watch::Sender<Phase>,
    welcome: Arc<AtomicBool>,
}

impl Reader {
    fn open() -> Self {
        let events = Arc::new(Events::new(Arc::new(SystemClock)));
        let audience = Audience { caller: Arc::new(Caller::anonymous()), session_id: None };
        let (subscription, beginning) = events.listen(audience, None, 1).expect("room");
        let (phase, seen) = watch::channel(Phase::Serving);
        let welcome = Arc::new(AtomicBool::new(true));
        let asked = welcome.clone();
        let is_welcome: Welcome = Box::new(move || {
            let answer = asked.load(Ordering::Relaxed);
            Box::pin(async move { answer })
        });
        let pieces = Stream::new(subscription, seen, is_welcome).begin(beginning);
        Self { events, pieces, phase, welcome }
    }

    /// The next piece; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        let frame = poll_fn(|context| Pin::new(&mut self.pieces).poll_frame(context)).await?;
        let bytes = frame.expect("no error").into_data().expect("data");
        Some(String::from_utf8(bytes.to_vec()).expect("UTF-8"))
    }

    fn id(&self, number: u64) -> String {
        self.events.id(number)
    }

    fn tell(&self, what: What) {
        self.events.tell(|| Event {
            organisation: "default".into(),
            session_id: Some("s\n1".into()),
            turn_id: None,
            agent_id: None,
            tool: "lookup".into(),
            call_id: CallId::parse("call_8f2c").expect("an id"),
            what,
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "tokio's paused clock")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(start_paused = true)]
async fn an_event_has_its_name_and_its_fields() {
    let mut reader = Reader::open();
    let begin = format!("retry: 1000\nid: {}\n\n", reader.id(0));
    assert_eq!(reader.next().await, Some(begin));
    reader.tell(What::Start { filler: Some("Wait.".into()) });
    reader.tell(What::Confirm {
        arguments: Bytes::from_static(br#"{"n":1e2,"t":"a\nb"}"#),
        expires_at_ms: 1_793_354_102_007,
    });
    reader.tell(What::End { ok: false, ms: 184 });
    let expected = [
        (
            "tool.start",
            r#"{"type":"tool.start","call_id":"call_8f2c","name":"lookup","filler":"Wait.","session_id":"s\n1","turn_id":null}"#,
        ),
        (
            "tool.confirm",
            r#"{"type":"tool.confirm","call_id":"call_8f2c","name":"lookup","arguments":{"n":1e2,"t":"a\nb"},"expires_at":"2026-10-30T09:55:02.007Z","session_id":"s\n1","turn_id":null}"#,
        ),
        (
            "tool.end",
            r#"{"type":"tool.end","call_id":"call_8f2c","ok":false,"ms":184,"session_id":"s\n1","turn_id":null}"#,
        ),
    ];
    let blocks = expected.iter().zip(1..).map(|((name, data), number)| {
        format!("id: {}\nevent: {name}\ndata: {data}\n\n", reader.id(number))
    });
    let expected: String = blocks.collect();
    assert_eq!(reader.next().await, Some(expected));
}

#[tokio::test(start_paused = true)]
async fn a_stream_on_which_nothing_happens_has_a_heartbeat() {
    let mut reader = Reader::open();
    reader.next().await.expect("the beginning");
    let begun = now();
    for beats in 1..=3 {
        let expected = format!(":\nid: {}\n\n", reader.id(0));
        assert_eq!(reader.next().await, Some(expected));
        assert_eq!((now() - begun).as_secs(), 15 * beats);
    }
    reader.tell(What::End { ok: true, ms: 1 });
    assert!(reader.next().await.expect("the event").contains("tool.end"));
    assert_eq!(reader.next().await, Some(format!(":\nid: {}\n\n", reader.id(1))));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_key_is_no_longer_taken() {
    let mut reader = Reader::open();
    reader.next().await.expect("the beginning");
    reader.next().await.expect("a heartbeat");
    reader.welcome.store(false, Ordering::Relaxed);
    let begun = now();
    // Also where something is always there to be told.
    for _ in 0..20 {
        reader.tell(What::End { ok: true, ms: 1 });
        if reader.next().await.is_none() {
            break;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!((now() - begun).as_secs(), 15);
    assert_eq!(reader.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_gateway_once_all_is_told() {
    let mut reader = Reader::open();
    reader.next().await.expect("the beginning");
    reader.phase.send_replace(Phase::Draining);
    assert!(reader.next().await.expect("calls still run").starts_with(':'));
    reader.tell(What::End { ok: true, ms: 1 });
    reader.phase.send_replace(Phase::Closed);
    assert!(reader.next().await.expect("the last event").contains("tool.end"));
    assert_eq!(reader.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_lags_says_so_and_ends() {
    let mut reader = Reader::open();
    reader.next().await.expect("the beginning");
    for _ in 0..300 {
        reader.tell(What::End { ok: true, ms: 1 });
    }
    let mut text = String::new();
    while let Some(piece) = reader.next().await {
        text.push_str(&piece);
    }
    assert_eq!(text.matches("event: tool.end\n").count(), 256);
    assert!(text.ends_with("event: lagged\ndata: {\"type\":\"lagged\"}\n\n"), "{text}");
}
