//! The admin listener: reload, drain, the configuration in force, the log's level, circuits, approvals (contract,
//! section 1).

mod approvals;
pub mod status;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::BoxFuture;
use crate::config::listening::Operators;
use crate::config::snapshot::LogLevel;
use crate::gateway::Gateway;
use crate::policy::identity::KeyDigest;
use crate::serve::admin::status::Status;
use crate::serve::auth::{bearer, require_local_host};
use crate::serve::body;
use crate::serve::http::{ApiCode, ApiError, json, method_not_allowed, not_found};
use crate::telemetry::audit::KeyRefusal;

/// Bound on a request's body: a level.
const MAX_BODY: usize = 1024;

/// What an operator can do to the running gateway; whoever put it together does it.
pub trait Control: Send + Sync {
    /// Reads the configuration again; `None` where the gateway ends.
    fn reload(&self) -> BoxFuture<'_, Option<Reloaded>>;

    /// Begins the end: the same as SIGTERM.
    fn drain(&self);

    /// The least severe level that is logged.
    fn level(&self) -> LogLevel;

    /// Sets it, until the configuration's own changes or the process ends.
    fn set_level(&self, level: LogLevel);

    /// Closes the circuit of a tool and ends its pause; `false` where there is no such tool.
    fn reset_circuit(&self, tool: &str) -> bool;

    /// How it stands.
    fn status(&self) -> Status;
}

/// What became of a reload.
#[derive(Debug, Clone, Serialize)]
pub struct Reloaded {
    /// applied, unchanged, invalid or needs_restart: the label of `config_reloads_total`.
    pub result: &'static str,
    /// The configuration that is now in force.
    pub hash: String,
    /// Counts the configurations of this process.
    pub generation: u64,
    /// Why nothing was changed, or what looks wrong: as the log has it.
    pub findings: Vec<String>,
}

/// What the routes need.
#[derive(Clone)]
pub struct AdminState {
    /// Does it.
    pub control: Arc<dyn Control>,
    /// Knows the configuration in force.
    pub gateway: Arc<Gateway>,
    /// Whether it is reached over the network: then a token is needed.
    pub is_remote: bool,
}

/// The routes, each behind the same door.
pub fn router(state: AdminState) -> Router {
    Router::new()
        .route("/status", get(status))
        .route("/config", get(config))
        .route("/reload", post(reload))
        .route("/drain", post(drain))
        .route("/log-level", get(level).put(set_level))
        .route("/circuits/{tool}/reset", post(reset_circuit))
        .merge(approvals::routes().with_state(state.gateway.clone()))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(state.clone(), door))
        .with_state(state)
}

/// A socket's mode says who may come; on loopback a token does, and the Host must be this machine's own name, so that no
/// web page can come under a name of its own.
async fn door(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if state.is_remote
        && let Err(error) = require_local_host(headers)
    {
        return error.into_response();
    }
    let known = match state.gateway.epoch().snapshot.operators {
        Operators::Anybody => !state.is_remote,
        Operators::Nobody => false,
        Operators::Token(token) => bearer(headers).map(KeyDigest::of) == Some(token),
    };
    if known {
        next.run(request).await
    } else {
        state.gateway.audit().refused(KeyRefusal::UnknownKey, None, Some("admin"));
        let text = "the admin token is required: `Authorization: Bearer TOKEN`";
        ApiError::new(ApiCode::Unauthorized, text).into_response()
    }
}

async fn status(State(state): State<AdminState>) -> Response {
    json(StatusCode::OK, &state.control.status())
}

async fn config(State(state): State<AdminState>) -> Response {
    let epoch = state.gateway.epoch();
    #[derive(Serialize)]
    struct InForce<'a> {
        hash: &'a str,
        generation: u64,
        config: &'a Value,
    }
    let snapshot = &epoch.snapshot;
    let (hash, generation) = (snapshot.hash.as_str(), snapshot.generation);
    json(StatusCode::OK, &InForce { hash, generation, config: &snapshot.redacted })
}

async fn reload(State(state): State<AdminState>) -> Response {
    let Some(reloaded) = state.control.reload().await else {
        let text = "the gateway is shutting down";
        return ApiError::new(ApiCode::Draining, text).into_response();
    };
    let status = match reloaded.result {
        "invalid" => StatusCode::UNPROCESSABLE_ENTITY,
        "needs_restart" => StatusCode::CONFLICT,
        _ => StatusCode::OK,
    };
    json(status, &reloaded)
}

async fn drain(State(state): State<AdminState>) -> Response {
    tracing::info!("The admin listener asks for the end.");
    state.control.drain();
    json(StatusCode::ACCEPTED, &serde_json::json!({"draining": true}))
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Level {
    level: LogLevel,
}

async fn level(State(state): State<AdminState>) -> Response {
    json(StatusCode::OK, &Level { level: state.control.level() })
}

async fn set_level(
    State(state): State<AdminState>,
    request: Request,
) -> Result<Response, ApiError> {
    let bytes = body::read(request.into_body(), MAX_BODY).await?;
    let level: Level = serde_json::from_slice(&bytes).map_err(|_| {
        let text = "write {\"level\": \"info\"}; levels are trace, debug, info, warn and error";
        ApiError::field(Some("level"), "/level", text)
    })?;
    state.control.set_level(level.level);
    // At the severity that is always written.
    tracing::error!(level = ?level.level, "The admin listener changed the log's level.");
    Ok(json(StatusCode::OK, &level))
}

async fn reset_circuit(
    State(state): State<AdminState>,
    Path(tool): Path<String>,
) -> Result<Response, ApiError> {
    if !state.control.reset_circuit(&tool) {
        return Err(ApiError::new(ApiCode::NotFound, "there is no tool of this name"));
    }
    tracing::info!(tool, "The admin listener closed the circuit.");
    Ok(json(StatusCode::OK, &serde_json::json!({"tool": tool, "state": "closed"})))
}
