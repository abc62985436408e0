//! Following calls: one, a conversation's or a run's, and the person's own word on one (contract, section 3).

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;

use crate::gateway::told::{CallError, Told};
use crate::model::id::CallId;
use crate::model::outcome::Phase;
use crate::model::outcome_text::context::with_context;
use crate::policy::identity::Scope;
use crate::serve::body::Fields;
use crate::serve::calls::{ApiState, LONGEST_WAIT_MS};
use crate::serve::http::{ApiError, json_text};
use crate::serve::query::{bad, page_size, parameters, whole};
use crate::serve::route::Route;
use crate::serve::told::answer;
use crate::serve::visit::Visit;
use crate::store::records::{AuditEntry, CallFilter, CallRecord};
use crate::telemetry::audit::OUTCOME_UNKNOWN;

/// Who may read calls: whoever may run them, and whoever may read anything.
const READERS: &[Scope] = &[Scope::AgentCall, Scope::Agent];
/// Bound on a word of the person's.
const MAX_BODY: usize = 1024;
/// Bound on a parameter that is a name or an id.
const NAME_BYTES: usize = 256;

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![
        Route::get("/v1/calls", list),
        Route::get("/v1/calls/{id}", one),
        Route::post("/v1/calls/{id}/cancel", cancel),
        Route::post("/v1/calls/{id}/confirmed", confirmed),
    ]
}

/// The calls that a request asks for.
async fn list(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, READERS).await?;
    let filter = filter(visit.query.as_deref())?;
    let calls = state.gateway.calls(&visit.caller, filter).await?;
    Ok(json_text(StatusCode::OK, written(&calls)))
}

async fn one(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, READERS).await?;
    let [wait] = parameters(visit.query.as_deref(), &["wait_ms"])?;
    let wait = wait.map_or(Ok(Duration::ZERO), |text| patience(&text))?;
    let (id, caller) = (call_id(id)?, &visit.caller);
    let open = state.gateway.asked(caller, &id);
    let told = tokio::select! {
        biased;
        told = state.gateway.follow(caller, &id, wait) => told?,
        // Whoever waits for a call must not hold the gateway's end up.
        () = state.drains() => state.gateway.follow(caller, &id, Duration::ZERO).await?,
    };
    let body = match (state.gateway.kept(caller, &id).await, open) {
        (Ok(kept), _) => with_context(&told.body, kept.arguments.as_deref(), &kept.context),
        (Err(CallError::NotFound), Some((arguments, context))) => {
            with_context(&told.body, Some(&arguments), &context)
        }
        (Err(error), _) => return Err(error.into()),
    };
    Ok(answer(Told { body: body.into(), ..told }))
}

async fn cancel(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, &[Scope::AgentCall]).await?;
    let (gateway, caller, id) = (state.gateway.clone(), visit.caller.clone(), call_id(id)?);
    let told = state.gateway.to_the_end(async move { gateway.cancel(&caller, &id).await });
    Ok(answer(told.await?))
}

async fn confirmed(
    State(state): State<ApiState>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let (visit, body) = Visit::begin_with_body(&state, request, &[Scope::AgentCall]).await?;
    let bytes = state.read_json(&visit.headers, body, MAX_BODY).await?;
    let yes = word(&bytes)?;
    let (gateway, caller, id) = (state.gateway.clone(), visit.caller.clone(), call_id(id)?);
    let told = state.gateway.to_the_end(async move {
        let told = gateway.confirm(&caller, &id, yes).await;
        let detail = match &told {
            Ok(_) => None,
            Err(CallError::Unavailable) => Some(OUTCOME_UNKNOWN.to_owned()),
            Err(_) => return told,
        };
        let audit = gateway.audit();
        let action = if yes { "call.confirmed" } else { "call.declined" };
        let subject = Some(id.as_str().to_owned());
        audit.note(AuditEntry { subject, detail, ..audit.deed_of(&caller, action) });
        told
    });
    Ok(answer(told.await?))
}

fn word(bytes: &[u8]) -> Result<bool, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad("the body is not UTF-8"))?;
    let fields = Fields::read(text, "", &["yes"])?;
    fields.truth("yes")?.ok_or_else(|| fields.missing("yes"))
}

/// A text that is no id is nobody's.
fn call_id(id: Result<Path<String>, PathRejection>) -> Result<CallId, ApiError> {
    let id = id.ok().and_then(|Path(id)| CallId::parse(&id).ok());
    id.ok_or_else(|| CallError::NotFound.into())
}

fn patience(text: &str) -> Result<Duration, ApiError> {
    let most = usize::try_from(LONGEST_WAIT_MS).unwrap_or(usize::MAX);
    let wait = whole(text, 0, most).and_then(|wait| u64::try_from(wait).ok());
    let wait =
        wait.ok_or_else(|| bad(&format!("`wait_ms` must be a whole number from 0 to {most}")))?;
    Ok(Duration::from_millis(wait))
}

fn filter(query: Option<&str>) -> Result<CallFilter, ApiError> {
    let known = &["session_id", "run_id", "status", "tool", "since", "limit"];
    let [session_id, run_id, status, tool, since, limit] = parameters(query, known)?;
    for (name, value) in known.iter().zip([&session_id, &run_id, &tool]) {
        if value.as_ref().is_some_and(|value| value.len() > NAME_BYTES) {
            return Err(bad(&format!("`{name}` is longer than {NAME_BYTES} bytes")));
        }
    }
    let phase = status.map(|text| {
        let known = Phase::ALL.map(Phase::as_str).join(", ");
        Phase::parse(&text).ok_or_else(|| bad(&format!("`status` must be one of {known}")))
    });
    let since = since.map(|text| {
        let time = text.parse::<Timestamp>().map(Timestamp::as_millisecond);
        time.map_err(|_| bad("`since` must be a time such as 2026-12-01T08:00:00Z"))
    });
    Ok(CallFilter {
        session_id,
        run_id,
        phase: phase.transpose()?,
        tool,
        since_ms: since.transpose()?,
        most: page_size(limit.as_deref())?,
        ..CallFilter::default()
    })
}

/// The list, each call as it was told last, with what it was asked with.
fn written(calls: &[CallRecord]) -> Vec<u8> {
    let mut out = b"{\"data\":[".to_vec();
    for (at, call) in calls.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let arguments = call.arguments.as_deref();
        out.extend_from_slice(&with_context(&call.outcome, arguments, &call.context));
    }
    out.extend_from_slice(b"]}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::Status;

    #[test]
    fn a_query_says_which_calls() {
        let all = filter(None).unwrap();
        assert_eq!(all, CallFilter { most: 100, ..CallFilter::default() });
        let query =
            "session_id=s%201&run_id=r&status=failed&tool=t&since=1970-01-01T00:00:01Z&limit=7";
        let expected = CallFilter {
            session_id: Some("s 1".into()),
            run_id: Some("r".into()),
            phase: Some(Phase::Ended(Status::Failed)),
            tool: Some("t".into()),
            since_ms: Some(1000),
            most: 7,
            ..CallFilter::default()
        };
        assert_eq!(filter(Some(query)), Ok(expected));
    }

    #[test]
    fn a_query_that_makes_no_sense_says_what_would() {
        #[track_caller]
        fn check(query: &str, expected: &str) {
            let error = filter(Some(query)).unwrap_err();
            assert!(error.message.contains(expected), "{query}: {}", error.message);
        }
        check("status=done", "failed, refused, succeeded, running, waiting_approval");
        check("since=yesterday", "2026-12-01T08:00:00Z");
        check("limit=1001", "from 1 to 1000");
        check("organisation=other", "is not known");
        check("tool=a&tool=b", "stands twice");
        check(&format!("session_id={}", "x".repeat(257)), "`session_id` is longer");
    }

    #[test]
    fn patience_is_a_minute_at_most() {
        assert_eq!(patience("60000"), Ok(Duration::from_secs(60)));
        for bad in ["60001", "-1", "1s", ""] {
            assert!(patience(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_word_is_yes_or_no_and_nothing_else() {
        assert_eq!(word(br#"{"yes": true}"#), Ok(true));
        assert_eq!(word(br#"{"yes":false}"#), Ok(false));
        for bad in [r#"{"yes":"true"}"#, r#"{"yes":1}"#, "{}", "true", "", r#"{"yes":true,"x":1}"#]
        {
            assert!(word(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
