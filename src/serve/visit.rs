//! One request to the API, let in by its key.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;

use crate::policy::identity::{Caller, Scope};
use crate::serve::calls::ApiState;
use crate::serve::http::ApiError;

/// Who asks, and what else came with the request.
#[derive(Debug)]
pub struct Visit {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// What stands behind the question mark.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, not read yet.
    pub body: Body,
}

impl Visit {
    /// Lets a caller in who has one of the scopes.
    pub async fn begin(
        state: &ApiState,
        request: Request,
        scopes: &[Scope],
    ) -> Result<Self, ApiError> {
        let epoch = state.gateway.epoch();
        let (parts, body) = request.into_parts();
        let now = state.gateway.clock().unix_ms().div_euclid(1000);
        let caller = state.doorkeeper.admit_by(&epoch, &parts, scopes, now).await?;
        let query = parts.uri.query().map(str::to_owned);
        Ok(Self { caller, query, headers: parts.headers, body })
    }
}
