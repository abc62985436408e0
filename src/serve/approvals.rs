//! Approvals: what waits for a decision, exactly as it would run, and the decision (contract, section 6).

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::json;

use crate::gateway::Gateway;
use crate::gateway::told::{CallError, Verdict};
use crate::model::approval::{Approval, ApprovalId, ApprovalStatus};
use crate::model::outcome_text::ApprovalBody;
use crate::policy::identity::{Caller, Scope};
use crate::serve::body::Fields;
use crate::serve::calls::ApiState;
use crate::serve::http::{ApiError, json};
use crate::serve::query::{bad, page_size, parameters};
use crate::serve::route::Route;
use crate::serve::visit::Visit;
use crate::store::records::{ApprovalFilter, AuditEntry};
use crate::telemetry::audit::OUTCOME_UNKNOWN;

/// Bound on a decision's body.
pub(super) const MAX_BODY: usize = 8 << 10;
/// Bound on a reason, which the model reads.
const REASON_BYTES: usize = 1000;
/// Bound on the name of whoever decides.
const NAME_BYTES: usize = 128;
/// Bound on a digest, right or wrong.
const DIGEST_BYTES: usize = 128;
const DECISION_FIELDS: &[&str; 3] = &["arguments_digest", "reason", "name"];
const SCOPE: &[Scope] = &[Scope::AgentApprove];

/// The routes.
pub fn routes() -> Vec<Route<ApiState>> {
    vec![
        Route::get("/v1/approvals", list),
        Route::get("/v1/approvals/{id}", one),
        Route::post("/v1/approvals/{id}/approve", approve),
        Route::post("/v1/approvals/{id}/reject", reject),
    ]
}

/// An approval's id as it stands in a path.
pub(super) type Id = Result<Path<String>, PathRejection>;

async fn list(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, SCOPE).await?;
    let [status, tool, limit] = parameters(visit.query.as_deref(), &["status", "tool", "limit"])?;
    let filter = filter(status.as_deref(), tool, limit.as_deref())?;
    let found = state.gateway.approvals(&visit.caller, filter).await?;
    let data = found.iter().map(ApprovalBody::with_arguments).collect();
    Ok(json(StatusCode::OK, &Page { data }))
}

async fn one(
    State(state): State<ApiState>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    let visit = Visit::begin(&state, request, SCOPE).await?;
    let approval = state.gateway.approval(&visit.caller, &approval_id(id)?).await?;
    Ok(json(StatusCode::OK, &ApprovalBody::with_arguments(&approval)))
}

async fn approve(
    State(state): State<ApiState>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    decide(&state, id, request, true).await
}

async fn reject(
    State(state): State<ApiState>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    decide(&state, id, request, false).await
}

async fn decide(
    state: &ApiState,
    id: Id,
    request: Request,
    yes: bool,
) -> Result<Response, ApiError> {
    let (visit, body) = Visit::begin_with_body(state, request, SCOPE).await?;
    let bytes = state.read_json(&visit.headers, body, MAX_BODY).await?;
    let (id, verdict) = (approval_id(id)?, verdict(&bytes, yes)?);
    let approval = settle(state.gateway.clone(), visit.caller.clone(), id, verdict).await?;
    Ok(json(StatusCode::OK, &ApprovalBody::with_arguments(&approval)))
}

/// Decides, and takes down who did, also where whoever decides hangs up.
pub(super) async fn settle(
    gateway: Arc<Gateway>,
    caller: Arc<Caller>,
    id: ApprovalId,
    verdict: Verdict,
) -> Result<Approval, CallError> {
    let own = gateway.clone();
    gateway.to_the_end(async move { settle_now(&own, &caller, &id, verdict).await }).await
}

async fn settle_now(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    id: &ApprovalId,
    verdict: Verdict,
) -> Result<Approval, CallError> {
    let (yes, name) = (verdict.yes, verdict.name.clone());
    let decided = gateway.decide(caller, id, verdict).await;
    let (status, detail) = match &decided {
        Ok(approval) => {
            let detail = json!({
                "call_id": approval.call_id.as_str(),
                "tool": approval.tool,
                "arguments_digest": approval.arguments_digest,
                "name": name,
            });
            (approval.status, detail.to_string())
        }
        Err(CallError::Unavailable) => {
            let status = if yes { ApprovalStatus::Approved } else { ApprovalStatus::Rejected };
            (status, OUTCOME_UNKNOWN.to_owned())
        }
        Err(_) => return decided,
    };
    let audit = gateway.audit();
    let status = status.as_str();
    audit.note(AuditEntry {
        subject: Some(id.as_str().to_owned()),
        before: Some(ApprovalStatus::Pending.as_str().to_owned()),
        after: Some(status.to_owned()),
        detail: Some(detail),
        ..audit.deed_of(caller, &format!("approval.{status}"))
    });
    decided
}

/// Which approvals a query asks for.
pub(super) fn filter(
    status: Option<&str>,
    tool: Option<String>,
    limit: Option<&str>,
) -> Result<ApprovalFilter, ApiError> {
    let status = status.map(|text| {
        let known: Vec<&str> = ApprovalStatus::ALL.iter().map(|one| one.as_str()).collect();
        let known = known.join(", ");
        ApprovalStatus::parse(text).ok_or_else(|| bad(&format!("`status` must be one of {known}")))
    });
    let most = page_size(limit)?;
    Ok(ApprovalFilter { status: status.transpose()?, tool, most, ..ApprovalFilter::default() })
}

/// A text that is no id is nobody's.
pub(super) fn approval_id(id: Id) -> Result<ApprovalId, ApiError> {
    let id = id.ok().and_then(|Path(id)| ApprovalId::parse(&id).ok());
    id.ok_or_else(|| CallError::NotFound.into())
}

/// Reads a decision.
pub(super) fn verdict(bytes: &[u8], yes: bool) -> Result<Verdict, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad("the body is not UTF-8"))?;
    let fields = Fields::read(text, "", DECISION_FIELDS)?;
    let arguments_digest = fields.owned("arguments_digest", DIGEST_BYTES)?;
    if arguments_digest.is_none() {
        return Err(CallError::DigestMissing.into());
    }
    let reason = fields.owned("reason", REASON_BYTES)?;
    Ok(Verdict { yes, arguments_digest, reason, name: fields.owned("name", NAME_BYTES)? })
}

#[derive(Serialize)]
struct Page<'a> {
    data: Vec<ApprovalBody<'a>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_names_the_arguments_that_were_seen() {
        let body = r#"{"arguments_digest":"sha256:00","reason":"Not on a Sunday.","name":"Ada"}"#;
        let expected = Verdict {
            yes: false,
            arguments_digest: Some("sha256:00".into()),
            reason: Some("Not on a Sunday.".into()),
            name: Some("Ada".into()),
        };
        assert_eq!(verdict(body.as_bytes(), false), Ok(expected));
    }

    #[test]
    fn a_decision_that_cannot_be_read_says_where() {
        #[track_caller]
        fn check(body: &str, field: &str) {
            let error = verdict(body.as_bytes(), true).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{body}: {}", error.message);
        }
        check("{}", "/arguments_digest");
        check(r#"{"reason":"x"}"#, "/arguments_digest");
        check(r#"{"arguments_digest":null}"#, "/arguments_digest");
        check(r#"{"arguments_digest":7}"#, "/arguments_digest");
        check(r#"{"arguments_digest":"x","reason":[]}"#, "/reason");
        let long = format!(r#"{{"arguments_digest":"x","reason":"{}"}}"#, "x".repeat(1001));
        check(&long, "/reason");
        check(r#"{"arguments_digest":"x","yes":true}"#, "/yes");
        check(r#"{"arguments_digest":"x","arguments_digest":"y"}"#, "/arguments_digest");
        check("[]", "");
        check("yes", "");
    }

    #[test]
    fn a_query_says_which_approvals() {
        let found = filter(Some("pending"), Some("refund".into()), Some("5")).unwrap();
        assert_eq!((found.status, found.most), (Some(ApprovalStatus::Pending), 5));
        let error = filter(Some("open"), None, None).unwrap_err();
        assert!(error.message.contains("approved, cancelled, expired"), "{}", error.message);
    }
}
