//! The routes of the api listener, put together.

use axum::Router;

use crate::serve::calls::ApiState;
use crate::serve::http::{method_not_allowed, not_found};
use crate::serve::route::Route;
use crate::serve::{approvals, batch, calls, catalogue, events, follow, openapi, policies, shadow};

/// Every route that there is; `config/openapi.yaml` describes exactly these.
pub fn routes() -> Vec<Route<ApiState>> {
    let routes = [
        calls::routes(),
        batch::routes(),
        follow::routes(),
        approvals::routes(),
        catalogue::routes(),
        events::routes(),
        policies::routes(),
        shadow::routes(),
        openapi::routes(),
    ];
    routes.into_iter().flatten().collect()
}

/// The router of these routes and no others.
pub fn router(state: ApiState) -> Router {
    let router = Router::new();
    let router =
        routes().into_iter().fold(router, |router, route| router.route(route.path, route.answer));
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed).with_state(state)
}
