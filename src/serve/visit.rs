//! One request to the API, let in by its key.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;

use crate::config::snapshot::{Snapshot, Tool};
use crate::net::epoch::Epoch;
use crate::policy::identity::{Caller, Scope};
use crate::serve::calls::ApiState;
use crate::serve::http::ApiError;

/// Who asks, and what else came with the request.
#[derive(Debug)]
pub struct Visit {
    /// The configuration that it is answered by.
    pub epoch: Arc<Epoch>,
    /// Who asks.
    pub caller: Arc<Caller>,
    /// What stands behind the question mark.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
}

impl Visit {
    /// Lets a caller in who has one of the scopes.
    pub async fn begin(
        state: &ApiState,
        request: Request,
        scopes: &[Scope],
    ) -> Result<Self, ApiError> {
        Self::begin_with_body(state, request, scopes).await.map(|(visit, _)| visit)
    }

    /// The same for a request whose body is read afterwards.
    pub async fn begin_with_body(
        state: &ApiState,
        request: Request,
        scopes: &[Scope],
    ) -> Result<(Self, Body), ApiError> {
        let epoch = state.gateway.epoch();
        let (parts, body) = request.into_parts();
        let now = state.gateway.clock().unix_ms().div_euclid(1000);
        let caller = state.doorkeeper.admit_by(&epoch, &parts, scopes, now).await?;
        let query = parts.uri.query().map(str::to_owned);
        Ok((Self { epoch, caller, query, headers: parts.headers }, body))
    }

    /// The configuration.
    pub fn snapshot(&self) -> &Snapshot {
        &self.epoch.snapshot
    }

    /// Whether the caller may know of this tool.
    pub fn shows(&self, tool: &Tool) -> bool {
        self.snapshot().agents.shows(&self.caller, tool.name.as_str())
    }

    /// The tool of this name, exported name or id, where the caller may know of it.
    pub fn tool(&self, text: &str) -> Option<&Arc<Tool>> {
        let snapshot = self.snapshot();
        let by_id = || snapshot.tools.values().find(|tool| tool.id == text);
        let tool = snapshot.tool_by_any_name(text).or_else(by_id)?;
        self.shows(tool).then_some(tool)
    }
}
