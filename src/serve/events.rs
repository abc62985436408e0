//! `GET /v1/events`: what happens to calls, as server-sent events (contract, section 7).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};

use crate::clock::BoxFuture;
use crate::gateway::events::{
    Audience, Beginning, Crowded, MOST_LISTENERS, Subscription, Told, What,
};
use crate::model::time::{TimeText, rfc3339};
use crate::policy::identity::{Caller, Scope};
use crate::serve::calls::{ApiState, ID_BYTES};
use crate::serve::http::{ApiCode, ApiError};
use crate::serve::pace::Lasting;
use crate::serve::query::{bad, parameters};
use crate::serve::route::Route;
use crate::serve::{Phase, reached};

/// Contract: how often something is written where nothing happens, so that nothing between takes the stream for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client waits before it comes back, in milliseconds.
const RETRY_MS: u32 = 1000;
/// Events that are written at once.
const PIECE: usize = 32;
/// Of the listener's connections one in so many may be a stream: calls have room beside them.
const SHARE: usize = 2;
/// Who may listen: who may read what became of calls, and who runs them.
const SCOPES: [Scope; 2] = [Scope::Agent, Scope::AgentCall];

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![Route::get("/v1/events", listen)]
}

async fn listen(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let (parts, _) = request.into_parts();
    let caller = admitted(&state, &parts).await?;
    let [session_id] = parameters(parts.uri.query(), &["session_id"])?;
    if session_id.as_ref().is_some_and(|id| !is_session_id(id)) {
        let text = "must be a text of 1 to 256 bytes without control characters";
        return Err(bad(&format!("`session_id` {text}")));
    }
    state.serves()?;
    let after = last_event_id(&parts.headers);
    let audience = Audience { caller: caller.clone(), session_id };
    let connections = state.gateway.epoch().snapshot.listeners.api.max_connections;
    let most = MOST_LISTENERS.min(connections / SHARE).max(1);
    let (subscription, beginning) = state.gateway.events().listen(audience, after, most)?;
    let phase = state.phase.as_ref().clone();
    let parts = Arc::new(parts);
    let is_welcome = move || -> BoxFuture<'static, bool> {
        let (state, parts, caller) = (state.clone(), parts.clone(), caller.clone());
        Box::pin(async move {
            let now = admitted(&state, &parts).await;
            now.is_ok_and(|now| has_the_same_bounds(&now, &caller))
        })
    };
    let stream = Stream::new(subscription, phase, Box::new(is_welcome));
    Ok(response(stream.begin(beginning)))
}

/// Who asks, by the configuration in force.
async fn admitted(state: &ApiState, parts: &Parts) -> Result<Arc<Caller>, ApiError> {
    let now = state.gateway.clock().unix_ms().div_euclid(1000);
    let epoch = state.gateway.epoch();
    state.doorkeeper.admit_by(&epoch, parts, &SCOPES, now).await
}

/// A caller with other bounds hears other events: the stream ends, and the next one has them.
fn has_the_same_bounds(one: &Caller, other: &Caller) -> bool {
    (&one.organisation, &one.agents, &one.tools)
        == (&other.organisation, &other.agents, &other.tools)
}

fn is_session_id(text: &str) -> bool {
    (1..=ID_BYTES).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// The event after which a client that comes back wants to go on; one that cannot be read is none that was told.
fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default())
}

fn response(pieces: Pieces) -> Response {
    let mut response = Response::new(Body::new(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    // Proxies of one kind would keep events until they have many.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.extensions_mut().insert(Lasting);
    response
}

impl From<Crowded> for ApiError {
    fn from(crowded: Crowded) -> Self {
        Self::new(ApiCode::Overloaded, format!("{crowded}, try again or ask another replica"))
    }
}

/// Asks whether the one who listens would be let in now.
type Welcome = Box<dyn Fn() -> BoxFuture<'static, bool> + Send>;

/// One stream of events.
struct Stream {
    subscription: Subscription,
    phase: watch::Receiver<Phase>,
    is_welcome: Welcome,
    beat: Pin<Box<Sleep>>,
    has_ended: bool,
}

enum Turn {
    Beat,
    Closed,
    Ready,
}

impl Stream {
    fn new(subscription: Subscription, phase: watch::Receiver<Phase>, is_welcome: Welcome) -> Self {
        let beat = Box::pin(sleep(HEARTBEAT));
        Self { subscription, phase, is_welcome, beat, has_ended: false }
    }

    /// The stream, which begins with where it stands.
    fn begin(self, beginning: Beginning) -> Pieces {
        let id = |number| format!("id: {}\n", self.subscription.id(number));
        let first = match beginning {
            Beginning::Now(last) => id(last),
            Beginning::Reset(last) => {
                format!("{}event: reset\ndata: {{\"type\":\"reset\"}}\n", id(last))
            }
            Beginning::Resumed => String::new(),
        };
        let first = Bytes::from(format!("retry: {RETRY_MS}\n{first}\n"));
        Pieces(Some(Box::pin(async move { Some((self, first)) })))
    }

    /// What is written next; `None` at the end.
    async fn next(mut self) -> Option<(Self, Bytes)> {
        while !self.has_ended {
            let turn = tokio::select! {
                biased;
                // First, or a stream that always has something would never be looked at.
                () = &mut self.beat => Turn::Beat,
                () = self.subscription.ready() => Turn::Ready,
                // What still ran has ended by now.
                () = reached(&mut self.phase, Phase::Closed) => Turn::Closed,
            };
            if let Turn::Beat = turn {
                self.beat = Box::pin(sleep(HEARTBEAT));
                if !(self.is_welcome)().await {
                    return None;
                }
                let beat = self.heartbeat();
                return Some((self, beat));
            }
            let taken = self.subscription.take(PIECE);
            self.has_ended =
                taken.lagged || (matches!(turn, Turn::Closed) && taken.events.is_empty());
            let mut text = Vec::new();
            for told in &taken.events {
                let id = self.subscription.id(told.number);
                write(&id, told, &mut text);
            }
            if taken.lagged {
                text.extend_from_slice(b"event: lagged\ndata: {\"type\":\"lagged\"}\n\n");
            }
            if !text.is_empty() {
                return Some((self, text.into()));
            }
        }
        None
    }

    /// A comment; and where nothing waits, how far the client has come: what it was not meant to hear it has not missed.
    fn heartbeat(&self) -> Bytes {
        let position = self.subscription.position();
        let id = position.map(|number| format!("id: {}\n", self.subscription.id(number)));
        format!(":\n{}\n", id.unwrap_or_default()).into()
    }
}

/// A body in pieces, each made when the one before was taken.
struct Pieces(Option<BoxFuture<'static, Option<(Stream, Bytes)>>>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(next) = &mut self.0 else { return Poll::Ready(None) };
        let piece = ready!(next.as_mut().poll(context));
        let (rest, piece) = piece.map(|(stream, bytes)| (stream.next(), bytes)).unzip();
        self.0 = rest.map(|next| Box::pin(next) as BoxFuture<'static, _>);
        Poll::Ready(piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[derive(Serialize)]
struct StartShape<'a> {
    r#type: &'static str,
    call_id: &'a str,
    name: &'a str,
    filler: Option<&'a str>,
    session_id: Option<&'a str>,
    turn_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ConfirmShape<'a> {
    r#type: &'static str,
    call_id: &'a str,
    name: &'a str,
    arguments: &'a RawValue,
    expires_at: TimeText,
    session_id: Option<&'a str>,
    turn_id: Option<&'a str>,
}

#[derive(Serialize)]
struct EndShape<'a> {
    r#type: &'static str,
    call_id: &'a str,
    ok: bool,
    ms: u128,
    session_id: Option<&'a str>,
    turn_id: Option<&'a str>,
}

/// Appends one event.
fn write(id: &str, told: &Told, out: &mut Vec<u8>) {
    let event = &told.event;
    let (call_id, name) = (event.call_id.as_str(), event.tool.as_str());
    let (session_id, turn_id) = (event.session_id.as_deref(), event.turn_id.as_deref());
    match &event.what {
        What::Confirm { arguments, expires_at_ms } => {
            let r#type = "tool.confirm";
            let arguments = serde_json::from_slice(arguments).expect("arguments are JSON");
            let expires_at = rfc3339(*expires_at_ms);
            let shape =
                ConfirmShape { r#type, call_id, name, arguments, expires_at, session_id, turn_id };
            write_block(id, r#type, &shape, out);
        }
        What::End { ok, ms } => {
            let r#type = "tool.end";
            let shape = EndShape { r#type, call_id, ok: *ok, ms: *ms, session_id, turn_id };
            write_block(id, r#type, &shape, out);
        }
        What::Start { filler } => {
            let r#type = "tool.start";
            let filler = filler.as_deref();
            let shape = StartShape { r#type, call_id, name, filler, session_id, turn_id };
            write_block(id, r#type, &shape, out);
        }
    }
}

/// Compact JSON has no line ends of its own: those of texts are escaped.
fn write_block(id: &str, name: &str, data: &impl Serialize, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("id: {id}\nevent: {name}\ndata: ").as_bytes());
    serde_json::to_writer(&mut *out, data).expect("the API's own shapes are JSON");
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests;
