//! One request about policies, let in by its key: the tool that it names, and its body as a JSON object.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use http_body::Body as _;
use serde_json::{Map, Value};

use crate::config::snapshot::{Snapshot, Tool};
use crate::model::json;
use crate::net::epoch::Epoch;
use crate::policy::identity::{Caller, Scope};
use crate::serve::calls::ApiState;
use crate::serve::http::{ApiCode, ApiError};
use crate::store::StoreError;

/// The request.
pub struct Errand {
    /// The routes' means.
    pub state: ApiState,
    /// The configuration that it is answered by.
    pub epoch: Arc<Epoch>,
    /// Who asks.
    pub caller: Arc<Caller>,
    query: Option<String>,
    headers: HeaderMap,
}

impl Errand {
    /// Lets somebody in who has this scope.
    pub async fn begin(state: ApiState, request: Request, scope: Scope) -> Result<Self, ApiError> {
        Self::begin_with_body(state, request, scope).await.map(|(errand, _)| errand)
    }

    /// The same for a request whose body is read afterwards.
    pub async fn begin_with_body(
        state: ApiState,
        request: Request,
        scope: Scope,
    ) -> Result<(Self, Body), ApiError> {
        let epoch = state.gateway.epoch();
        let (parts, body) = request.into_parts();
        let now = state.gateway.clock().unix_ms().div_euclid(1000);
        let caller = state.doorkeeper.admit(&epoch, &parts, scope, now).await?;
        let query = parts.uri.query().map(str::to_owned);
        Ok((Self { state, epoch, caller, query, headers: parts.headers }, body))
    }

    /// The configuration.
    pub fn snapshot(&self) -> &Snapshot {
        &self.epoch.snapshot
    }

    /// What stands after the `?` of the path.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The tool of this name, exported name or id, where the caller may know of it.
    pub fn tool(&self, text: &str) -> Option<&Arc<Tool>> {
        let snapshot = self.snapshot();
        let by_id = || snapshot.tools.values().find(|tool| tool.id == text);
        let tool = snapshot.tool_by_any_name(text).or_else(by_id)?;
        snapshot.agents.shows(&self.caller, tool.name.as_str()).then_some(tool)
    }

    /// A body: a JSON object without duplicate keys. None at all is an empty one.
    pub async fn object(&self, body: Body) -> Result<Map<String, Value>, ApiError> {
        if body.is_end_stream() {
            return Ok(Map::new());
        }
        let limit = self.epoch.snapshot.listeners.api.max_body;
        let bytes = self.state.read_json(&self.headers, body, limit).await?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| ApiError::new(ApiCode::BadRequest, "the body is not UTF-8"))?;
        match json::read_value(text) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(_) => Err(ApiError::field(None, "", "the body must be a JSON object")),
            Err(error) => {
                Err(ApiError::field(None, error.pointer(), &format!("the body: {error}")))
            }
        }
    }
}

/// The store does not answer now.
pub fn unavailable(error: &StoreError) -> ApiError {
    tracing::warn!(%error, "A request was refused for want of the store.");
    ApiError::new(ApiCode::Overloaded, "the store is not available now, try again")
}
