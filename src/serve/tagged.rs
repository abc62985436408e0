//! A JSON text with its tag: whoever has it already is not sent it again.

use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::model::id::hex;
use crate::serve::http::json_text;

/// The text and its tag.
#[derive(Debug, Clone)]
pub struct Tagged {
    text: Bytes,
    tag: String,
}

impl Tagged {
    /// Tags a text by its digest.
    pub fn new(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        let tag = format!("\"{}\"", &hex(&Sha256::digest(&text))[..32]);
        Self { text, tag }
    }

    /// The text, or no text where the client has it already; `cache` says who may keep it.
    pub fn answer(&self, headers: &HeaderMap, cache: &'static str) -> Response {
        let known = headers.get_all(IF_NONE_MATCH).iter().any(|value| names(value, &self.tag));
        let mut response = if known {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            json_text(StatusCode::OK, self.text.clone())
        };
        let tag = HeaderValue::from_str(&self.tag).expect("hex digits in quotes");
        response.headers_mut().insert(ETAG, tag);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
        response
    }
}

/// Whether one of the tags in a line of If-None-Match is this one.
fn names(value: &HeaderValue, tag: &str) -> bool {
    let tags = value.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.into_iter().any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_tag(value: &str, expected: bool) {
        let value = HeaderValue::from_str(value).expect("a header value");
        assert_eq!(names(&value, "\"ab\""), expected, "{value:?}");
    }

    #[test]
    fn a_tag_is_known_in_any_form_that_a_client_may_give_it() {
        check_tag("\"ab\"", true);
        check_tag("\"x\", W/\"ab\"", true);
        check_tag("*", true);
        check_tag("\"abc\"", false);
        check_tag("ab", false);
        check_tag("", false);
    }
}
