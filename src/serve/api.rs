//! The routes of the api listener, put together.

use axum::Router;

use crate::serve::approvals;
use crate::serve::batch;
use crate::serve::calls::{self, ApiState};
use crate::serve::http::{method_not_allowed, not_found};
use crate::serve::{catalogue, events, follow, policies, shadow};

/// The routes.
pub fn router(state: ApiState) -> Router {
    calls::routes()
        .merge(batch::routes())
        .merge(follow::routes())
        .merge(approvals::routes())
        .merge(catalogue::routes())
        .merge(events::routes())
        .merge(policies::routes())
        .merge(shadow::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}
