//! Approvals for the operator, who needs no key: the same as the api listener's, of any organisation.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Serialize;

use crate::gateway::Gateway;
use crate::model::approval::Approval;
use crate::model::id::DEFAULT_ORGANISATION;
use crate::model::outcome_text::ApprovalBody;
use crate::policy::identity::Caller;
use crate::serve::approvals::{Id, MAX_BODY, approval_id, filter, settle, verdict};
use crate::serve::body;
use crate::serve::http::{ApiError, json};
use crate::serve::query::parameters;

/// The routes.
pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/approvals", get(list))
        .route("/approvals/{id}", get(one))
        .route("/approvals/{id}/approve", post(approve))
        .route("/approvals/{id}/reject", post(reject))
}

async fn list(State(gateway): State<Arc<Gateway>>, request: Request) -> Result<Response, ApiError> {
    let known = &["organisation", "status", "tool", "limit"];
    let [organisation, status, tool, limit] = parameters(request.uri().query(), known)?;
    let filter = filter(status.as_deref(), tool, limit.as_deref())?;
    let found = gateway.approvals(&operator(organisation), filter).await?;
    let data = found.iter().map(Shown::from).collect();
    Ok(json(StatusCode::OK, &Page { data }))
}

async fn one(
    State(gateway): State<Arc<Gateway>>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    let [organisation] = parameters(request.uri().query(), &["organisation"])?;
    let approval = gateway.approval(&operator(organisation), &approval_id(id)?).await?;
    Ok(json(StatusCode::OK, &Shown::from(&approval)))
}

async fn approve(
    State(gateway): State<Arc<Gateway>>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    decide(&gateway, id, request, true).await
}

async fn reject(
    State(gateway): State<Arc<Gateway>>,
    id: Id,
    request: Request,
) -> Result<Response, ApiError> {
    decide(&gateway, id, request, false).await
}

async fn decide(
    gateway: &Arc<Gateway>,
    id: Id,
    request: Request,
    yes: bool,
) -> Result<Response, ApiError> {
    let [organisation] = parameters(request.uri().query(), &["organisation"])?;
    let bytes = body::read(request.into_body(), MAX_BODY).await?;
    let (id, verdict) = (approval_id(id)?, verdict(&bytes, yes)?);
    let caller = Arc::new(operator(organisation));
    let approval = settle(gateway.clone(), caller, id, verdict).await?;
    Ok(json(StatusCode::OK, &Shown::from(&approval)))
}

fn operator(organisation: Option<String>) -> Caller {
    Caller::operator(organisation.as_deref().unwrap_or(DEFAULT_ORGANISATION))
}

#[derive(Serialize)]
struct Page<'a> {
    data: Vec<Shown<'a>>,
}

/// An approval with whom it is for: an operator has no other way to ask.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    body: ApprovalBody<'a>,
    agent_id: Option<&'a str>,
    session_id: Option<&'a str>,
    end_user: Option<&'a str>,
}

impl<'a> From<&'a Approval> for Shown<'a> {
    fn from(approval: &'a Approval) -> Self {
        Self {
            body: ApprovalBody::with_arguments(approval),
            agent_id: approval.agent_id.as_deref(),
            session_id: approval.session_id.as_deref(),
            end_user: approval.end_user.as_deref(),
        }
    }
}
