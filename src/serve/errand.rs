//! One request about policies, let in by its key, and its body as a JSON object.

use axum::body::Body;
use axum::extract::Request;
use http_body::Body as _;
use serde_json::{Map, Value};

use crate::model::json;
use crate::policy::identity::Scope;
use crate::serve::calls::ApiState;
use crate::serve::http::{ApiCode, ApiError};
use crate::serve::visit::Visit;
use crate::store::StoreError;

/// The request.
pub struct Errand {
    /// The routes' means.
    pub state: ApiState,
    /// Who asks, and for what.
    pub visit: Visit,
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
        let (visit, body) = Visit::begin_with_body(&state, request, &[scope]).await?;
        Ok((Self { state, visit }, body))
    }

    /// A body: a JSON object without duplicate keys. None at all is an empty one.
    pub async fn object(&self, body: Body) -> Result<Map<String, Value>, ApiError> {
        if body.is_end_stream() {
            return Ok(Map::new());
        }
        let limit = self.visit.snapshot().listeners.api.max_body;
        let bytes = self.state.read_json(&self.visit.headers, body, limit).await?;
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
