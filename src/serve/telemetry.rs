//! The telemetry listener: `/metrics`, `/livez`, `/readyz`, GET only, nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::serve::http::{method_not_allowed, not_found};
use crate::telemetry::metrics::{ConnectionCounts, Metrics};

/// Whether the gateway takes calls.
#[derive(Debug, Default)]
pub struct Readiness(AtomicBool);

impl Readiness {
    /// Says whether it does.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    /// Whether it does.
    pub fn is_ready(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the routes need.
#[derive(Clone)]
pub struct TelemetryState {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The pool's counts.
    pub connections: Arc<dyn ConnectionCounts>,
    /// Whether calls are taken.
    pub readiness: Arc<Readiness>,
}

/// The routes.
pub fn router(state: TelemetryState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(state)
}

async fn metrics(State(state): State<TelemetryState>) -> Response {
    // Many tools make a text of many milliseconds: not on a thread that serves calls.
    let encode = move || state.metrics.encode(&*state.connections);
    match tokio::task::spawn_blocking(encode).await {
        Ok(text) => {
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            ([(CONTENT_TYPE, kind)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(state): State<TelemetryState>) -> Response {
    if state.readiness.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}
