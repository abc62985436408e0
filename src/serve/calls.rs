//! The calls API: `POST /v1/calls` to a parsed call, its outcome to a response (contract, section 3).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use tokio::sync::watch;

use crate::config::tools::MAX_HEADERS;
use crate::gateway::asking::Malformed;
use crate::gateway::{Gateway, LONGEST_DEADLINE};
use crate::model::call::{CallContext, DEFAULT_WAIT, EndUser, ToolCall};
use crate::model::id::{CallId, Token};
use crate::model::json;
use crate::model::secret::Secret;
use crate::model::trace::TraceContext;
use crate::net::epoch::Epoch;
use crate::policy::identity::{Caller, Scope};
use crate::policy::wire::TRACEPARENT;
use crate::serve::auth::Doorkeeper;
use crate::serve::body::{self, Fields};
use crate::serve::http::{ApiCode, ApiError, is_json};
use crate::serve::route::Route;
use crate::serve::{Phase, reached, told};

/// Contract: `wait_ms` is at most a minute.
pub(super) const LONGEST_WAIT_MS: u64 = 60_000;
/// Ids that only pass through.
pub(super) const ID_BYTES: usize = 256;

const CALL_FIELDS: &[&str; 17] = &[
    "tool",
    "arguments",
    "call_id",
    "run_id",
    "step",
    "call_index",
    "round",
    "agent_id",
    "session_id",
    "turn_id",
    "turn_index",
    "end_user",
    "model_call_id",
    "wait_ms",
    "deadline_ms",
    "credentials",
    "resend",
];
const END_USER_FIELDS: &[&str; 2] = &["id", "external_id"];

/// What the routes need.
#[derive(Clone)]
pub struct ApiState {
    /// Runs calls.
    pub gateway: Arc<Gateway>,
    /// Knows who calls.
    pub doorkeeper: Arc<Doorkeeper>,
    /// Says when new calls are no longer taken.
    pub phase: Arc<watch::Receiver<Phase>>,
}

impl ApiState {
    /// Reads a JSON body of so many bytes at most, unless the gateway ends.
    pub async fn read_json(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<Bytes, ApiError> {
        if !is_json(headers) {
            let text = "the body's Content-Type must be application/json";
            return Err(ApiError::new(ApiCode::UnsupportedType, text));
        }
        let bytes = {
            let _place = self.gateway.limits().body().ok_or_else(|| {
                ApiError::new(ApiCode::Overloaded, "too many requests are being read, try again")
            })?;
            // Afterwards nothing more is answered.
            let mut phase = self.phase.as_ref().clone();
            tokio::select! {
                biased;
                read = body::read(body, limit) => read?,
                () = reached(&mut phase, Phase::Closed) => return Err(draining()),
            }
        };
        // The body comes first, so that a client that is still sending it does not miss the answer.
        self.serves()?;
        Ok(bytes)
    }

    /// Whether new work is taken.
    pub fn serves(&self) -> Result<(), ApiError> {
        if *self.phase.borrow() >= Phase::Draining { Err(draining()) } else { Ok(()) }
    }

    /// Waits until no new work is taken.
    pub async fn drains(&self) {
        let mut phase = self.phase.as_ref().clone();
        reached(&mut phase, Phase::Draining).await;
    }
}

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![Route::post("/v1/calls", post_call)]
}

async fn post_call(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let Letter { epoch, caller, trace, bytes } = Letter::read(&state, request).await?;
    let mut call = parse_call(&bytes)?;
    call.stands_in(trace);
    let told = state.gateway.call(epoch, caller, call).await?;
    Ok(told::answer(told))
}

/// A request that asks for calls: who sends it, and its body.
pub(super) struct Letter {
    pub(super) epoch: Arc<Epoch>,
    pub(super) caller: Arc<Caller>,
    /// Where the runtime stands in a trace.
    pub(super) trace: Option<TraceContext>,
    pub(super) bytes: Bytes,
}

impl Letter {
    /// Reads it, unless the gateway ends.
    pub(super) async fn read(state: &ApiState, request: Request) -> Result<Self, ApiError> {
        let gateway = &state.gateway;
        let epoch = gateway.epoch();
        let (parts, body) = request.into_parts();
        let now = gateway.clock().unix_ms().div_euclid(1000);
        let api = &epoch.snapshot.listeners.api;
        let caller = state.doorkeeper.admit(&epoch, &parts, Scope::AgentCall, now).await?;
        let bytes = state.read_json(&parts.headers, body, api.max_body).await?;
        Ok(Self { epoch, caller, trace: traceparent(&parts.headers), bytes })
    }
}

/// The caller's place in a trace. What is no `traceparent` is left out, as two of them are.
fn traceparent(headers: &HeaderMap) -> Option<TraceContext> {
    let mut given = headers.get_all(TRACEPARENT).iter();
    let (header, second) = (given.next()?, given.next());
    TraceContext::read(header.to_str().ok()?).filter(|_| second.is_none())
}

fn draining() -> ApiError {
    ApiError::new(ApiCode::Draining, "the gateway is shutting down, ask another replica")
}

impl From<Malformed> for ApiError {
    fn from(error: Malformed) -> Self {
        malformed(&error, &Place::default())
    }
}

/// What is wrong with the call that stands there.
pub(super) fn malformed(error: &Malformed, place: &Place) -> ApiError {
    let (name, pointer) = match error {
        Malformed::Credential { name, .. } | Malformed::UnlistedCredential(name) => {
            ("credentials", format!("/credentials/{}", json::pointer_step(name)))
        }
        Malformed::Missing(name) => (*name, format!("/{name}")),
    };
    let pointer = format!("{}{pointer}", place.at);
    ApiError::field(place.about.or(Some(name)), &pointer, &error.to_string())
}

/// Where a call stands in its request's body.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// The pointer of the call.
    pub(super) at: String,
    /// The field of the body that holds it, where it is not the body itself.
    pub(super) about: Option<&'static str>,
    /// Its `call_index` where it gives none.
    pub(super) index: u32,
}

/// The text of a body.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, ApiError> {
    std::str::from_utf8(bytes)
        .map_err(|_| ApiError::new(ApiCode::BadRequest, "the body is not UTF-8"))
}

/// Reads the body of a call. Every field is checked, also those that have no effect yet.
pub fn parse_call(bytes: &[u8]) -> Result<ToolCall, ApiError> {
    read_call(utf8(bytes)?, &Place::default())
}

/// Reads the call that stands there.
pub(super) fn read_call(text: &str, place: &Place) -> Result<ToolCall, ApiError> {
    let fields = Fields::read_within(text, place.at.clone(), place.about, CALL_FIELDS)?;
    let tool = fields.text("tool", 128)?.ok_or_else(|| fields.missing("tool"))?;
    let arguments = fields.raw("arguments").ok_or_else(|| fields.missing("arguments"))?;
    let arguments = json::read_object(arguments.get()).map_err(|error| {
        let pointer = format!("{}/arguments{}", place.at, error.pointer());
        let about = place.about.or(Some("arguments"));
        ApiError::field(about, &pointer, &format!("`arguments`: {error}"))
    })?;
    let wait = fields.number("wait_ms", 0, LONGEST_WAIT_MS)?.map(Duration::from_millis);
    let round = fields.number("round", 1, u64::from(u32::MAX))?;
    let turn_index = fields.number("turn_index", 0, u64::from(u32::MAX))?;
    let longest = u64::try_from(LONGEST_DEADLINE.as_millis()).unwrap_or(u64::MAX);
    let call_index = fields.number("call_index", 0, u64::from(u32::MAX))?;
    let context = CallContext {
        agent_id: fields.owned("agent_id", ID_BYTES)?,
        session_id: fields.owned("session_id", ID_BYTES)?,
        turn_id: fields.owned("turn_id", ID_BYTES)?,
        turn_index: turn_index.and_then(|index| u32::try_from(index).ok()),
        round: round.and_then(|round| u32::try_from(round).ok()),
        end_user: end_user(&fields, place)?,
        run_id: token(&fields, "run_id")?,
        step: token(&fields, "step")?,
        call_index: call_index.and_then(|at| u32::try_from(at).ok()).unwrap_or(place.index),
        model_call_id: fields.owned("model_call_id", ID_BYTES)?,
        test: false,
        trace: None,
    };
    let given = fields.text("call_id", 69)?;
    let is_named = given.is_some();
    let id = match given {
        None => CallId::from_random(rand::random_iter::<[u8; 32]>().flatten()),
        Some(given) => CallId::parse(&given)
            .map_err(|error| fields.error("call_id", &format!("is wrong: {error}")))?,
    };
    let deadline = fields.number("deadline_ms", 1, longest)?.map(Duration::from_millis);
    let credentials = credentials(&fields)?;
    let tool = tool.into_owned();
    Ok(ToolCall {
        id,
        is_named,
        tool,
        arguments,
        context: Arc::new(context),
        deadline,
        wait: wait.unwrap_or(DEFAULT_WAIT),
        resend: fields.truth("resend")?.unwrap_or(false),
        credentials,
        batch: None,
    })
}

fn token<const N: usize>(
    fields: &Fields<'_, N>,
    name: &'static str,
) -> Result<Option<Token>, ApiError> {
    let Some(text) = fields.text(name, 128)? else { return Ok(None) };
    Token::parse(&text).map(Some).map_err(|error| fields.error(name, &error.to_string()))
}

fn end_user<const N: usize>(
    fields: &Fields<'_, N>,
    place: &Place,
) -> Result<Option<EndUser>, ApiError> {
    let Some(raw) = fields.raw("end_user") else { return Ok(None) };
    let about = place.about.or(Some("end_user"));
    let parts = Fields::read_within(raw.get(), fields.pointer("end_user"), about, END_USER_FIELDS)?;
    let id = parts.owned("id", ID_BYTES)?;
    Ok(Some(EndUser { id, external_id: parts.owned("external_id", ID_BYTES)? }))
}

fn credentials<const N: usize>(fields: &Fields<'_, N>) -> Result<Vec<(String, Secret)>, ApiError> {
    let Some(raw) = fields.raw("credentials") else { return Ok(Vec::new()) };
    let pairs = body::secret_map(raw)
        .ok_or_else(|| fields.error("credentials", "must be an object of header names to texts"))?;
    if pairs.len() > MAX_HEADERS {
        let text = format!("must have {MAX_HEADERS} headers at most, as many as a tool can list");
        return Err(fields.error("credentials", &text));
    }
    for (at, (name, _)) in pairs.iter().enumerate() {
        if pairs.iter().take(at).any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(fields.error("credentials", "names one header twice"));
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests;
