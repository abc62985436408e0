//! One route of the api listener as a value, so that what is routed can be compared with what is described.

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

/// A method and a path, and what answers there by the means `S`.
#[derive(Debug, Clone)]
pub struct Route<S> {
    /// The method; where it is GET, HEAD is answered too.
    pub method: Method,
    /// The path, its parameters in braces.
    pub path: &'static str,
    /// What answers.
    pub answer: MethodRouter<S>,
}

impl<S: Clone + Send + Sync + 'static> Route<S> {
    /// Answers DELETE.
    pub fn delete<H: Handler<T, S>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: Method::DELETE, path, answer: on(MethodFilter::DELETE, handler) }
    }

    /// Answers GET, and HEAD.
    pub fn get<H: Handler<T, S>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: Method::GET, path, answer: on(MethodFilter::GET, handler) }
    }

    /// Answers PATCH.
    pub fn patch<H: Handler<T, S>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: Method::PATCH, path, answer: on(MethodFilter::PATCH, handler) }
    }

    /// Answers POST.
    pub fn post<H: Handler<T, S>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: Method::POST, path, answer: on(MethodFilter::POST, handler) }
    }

    /// Answers PUT.
    pub fn put<H: Handler<T, S>, T: 'static>(path: &'static str, handler: H) -> Self {
        Self { method: Method::PUT, path, answer: on(MethodFilter::PUT, handler) }
    }
}
