//! The telemetry listener: `/metrics`, `/livez`, `/readyz`, GET only, nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::serve::auth::require_local_host;
use crate::serve::http::{method_not_allowed, not_found};
use crate::telemetry::labels::ListenerName;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readings::Readings;

/// Whether the gateway takes calls.
#[derive(Debug, Default)]
pub struct Readiness {
    takes_calls: AtomicBool,
    short: [AtomicBool; ListenerName::ALL.len()],
}

impl Readiness {
    /// Says whether it does.
    pub fn set(&self, ready: bool) {
        self.takes_calls.store(ready, Ordering::Release);
    }

    /// Says whether a listener cannot accept connections because the machine has run out of something.
    pub fn set_short(&self, listener: ListenerName, short: bool) {
        self.short[listener as usize].store(short, Ordering::Release);
    }

    /// Whether it does, and can.
    pub fn is_ready(&self) -> bool {
        self.takes_calls.load(Ordering::Acquire)
            && !self.short.iter().any(|short| short.load(Ordering::Acquire))
    }
}

/// What the routes need.
#[derive(Clone)]
pub struct TelemetryState {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// What is counted elsewhere.
    pub readings: Arc<dyn Readings>,
    /// Whether calls are taken.
    pub readiness: Arc<Readiness>,
    /// Whether only names that nobody else can give this machine are answered: a web page under one of its own comes in
    /// vain.
    pub is_local: bool,
}

/// The routes.
pub fn router(state: TelemetryState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(state.clone(), door))
        .with_state(state)
}

async fn door(State(state): State<TelemetryState>, request: Request, next: Next) -> Response {
    if state.is_local
        && let Err(error) = require_local_host(request.headers())
    {
        return error.into_response();
    }
    next.run(request).await
}

async fn metrics(State(state): State<TelemetryState>) -> Response {
    // Many tools make a text of many milliseconds: not on a thread that serves calls.
    let encode = move || state.metrics.encode(&*state.readings);
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
