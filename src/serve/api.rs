//! The routes of the api listener, put together.

use axum::Router;

use crate::serve::approvals;
use crate::serve::calls::{self, ApiState};
use crate::serve::catalogue;
use crate::serve::follow;
use crate::serve::http::{method_not_allowed, not_found};

/// The routes.
pub fn router(state: ApiState) -> Router {
    calls::routes()
        .merge(follow::routes())
        .merge(approvals::routes())
        .merge(catalogue::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}
