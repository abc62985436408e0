//! `GET /openapi.json`: what this API takes and answers, for everybody.

use std::sync::{Arc, OnceLock};

use axum::http::HeaderMap;

use crate::config::json;
use crate::config::yaml::Document;
use crate::serve::calls::ApiState;
use crate::serve::route::Route;
use crate::serve::tagged::Tagged;

/// The description as it is written.
const WRITTEN: &str = include_str!("../../config/openapi.yaml");

/// The routes. Whoever asks first has the text made; a gateway that nobody asks spends nothing on it.
pub fn routes() -> Vec<Route<ApiState>> {
    let made = Arc::new(OnceLock::new());
    let get = async move |headers: HeaderMap| {
        let text: &Tagged = made.get_or_init(|| Tagged::new(text()));
        text.answer(&headers, "no-cache")
    };
    vec![Route::get("/openapi.json", get)]
}

/// The description as JSON, keys in their order.
fn text() -> String {
    let (document, _) = Document::parse(WRITTEN);
    let document = document.expect("a test reads it");
    json::tree(&document, document.root()).to_json()
}

#[cfg(test)]
mod tests;
