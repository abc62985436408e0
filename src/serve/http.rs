//! The API's own errors in their one shape (contract, section 4), and what every request must be before it is routed.

use axum::body::Body;
use axum::http::header::{
    CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::model::id::random_base62;
use crate::policy::truncate;

/// An error of the request to Sortie. What happens to a call of a tool is an outcome and no such error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Which one.
    pub code: ApiCode,
    /// What is wrong and what would be right.
    pub message: String,
    /// JSON pointer to the part of the body that is meant.
    pub field: Option<String>,
    /// The known field of the body that is meant or holds it: all that the log is told, since the rest is the client's
    /// own text.
    pub about: Option<&'static str>,
}

/// Most bytes of a pointer in an error: the client's own text, which it knows.
const POINTER_LIMIT: usize = 256;
/// Most bytes of an error's message, which may quote the client.
const MESSAGE_LIMIT: usize = 1024;

/// The codes of contract section 4 that this version can give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiCode {
    /// It was decided before, or can no longer be decided.
    ApprovalClosed,
    /// The request is not what it must be.
    BadRequest,
    /// The decision is about other arguments.
    DigestMismatch,
    /// The gateway ends.
    Draining,
    /// It stands in the configuration file, and is changed there.
    FileManaged,
    /// The step, or the call's id, is another call's.
    IdempotencyConflict,
    /// Something broke in here.
    Internal,
    /// What is to be kept is not what it must be.
    InvalidDefinition,
    /// The method does not go with the path.
    MethodNotAllowed,
    /// The key may not do this.
    MissingScope,
    /// Another one has the name.
    NameTaken,
    /// Nothing is there.
    NotFound,
    /// Sending the call again could have its effect twice.
    NotIdempotent,
    /// Too many requests are being read.
    Overloaded,
    /// The body did not come in time.
    RequestTimeout,
    /// The body is too large.
    TooLarge,
    /// No key, or one that is not known.
    Unauthorized,
    /// The body is not JSON by its type.
    UnsupportedType,
    /// Somebody changed it meanwhile.
    VersionConflict,
}

impl ApiCode {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::ApprovalClosed,
        Self::BadRequest,
        Self::DigestMismatch,
        Self::Draining,
        Self::FileManaged,
        Self::IdempotencyConflict,
        Self::Internal,
        Self::InvalidDefinition,
        Self::MethodNotAllowed,
        Self::MissingScope,
        Self::NameTaken,
        Self::NotFound,
        Self::NotIdempotent,
        Self::Overloaded,
        Self::RequestTimeout,
        Self::TooLarge,
        Self::Unauthorized,
        Self::UnsupportedType,
        Self::VersionConflict,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ApprovalClosed => "approval_closed",
            Self::BadRequest => "bad_request",
            Self::DigestMismatch => "digest_mismatch",
            Self::Draining => "draining",
            Self::FileManaged => "file_managed",
            Self::IdempotencyConflict => "idempotency_conflict",
            Self::Internal => "internal",
            Self::InvalidDefinition => "invalid_definition",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::MissingScope => "missing_scope",
            Self::NameTaken => "name_taken",
            Self::NotFound => "not_found",
            Self::NotIdempotent => "not_idempotent",
            Self::Overloaded => "overloaded",
            Self::RequestTimeout => "request_timeout",
            Self::TooLarge => "too_large",
            Self::Unauthorized => "unauthorized",
            Self::UnsupportedType => "unsupported_type",
            Self::VersionConflict => "version_conflict",
        }
    }

    /// The status that it is answered with.
    pub fn status(self) -> StatusCode {
        match self {
            Self::ApprovalClosed => StatusCode::CONFLICT,
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::DigestMismatch => StatusCode::CONFLICT,
            Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Self::FileManaged => StatusCode::CONFLICT,
            Self::IdempotencyConflict => StatusCode::CONFLICT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::InvalidDefinition => StatusCode::UNPROCESSABLE_ENTITY,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::MissingScope => StatusCode::FORBIDDEN,
            Self::NameTaken => StatusCode::CONFLICT,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::NotIdempotent => StatusCode::CONFLICT,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::UnsupportedType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::VersionConflict => StatusCode::CONFLICT,
        }
    }
}

impl ApiError {
    /// An error without a field.
    pub fn new(code: ApiCode, message: impl Into<String>) -> Self {
        Self { code, message: bounded(message.into(), MESSAGE_LIMIT), field: None, about: None }
    }

    /// A 400 that names the field by its JSON pointer; `about` is the known top-level field that it is or stands in.
    pub fn field(about: Option<&'static str>, pointer: &str, message: &str) -> Self {
        Self::field_of(ApiCode::BadRequest, about, pointer, message)
    }

    /// The same with another code.
    pub fn field_of(
        code: ApiCode,
        about: Option<&'static str>,
        pointer: &str,
        message: &str,
    ) -> Self {
        let field = Some(bounded(pointer.to_owned(), POINTER_LIMIT));
        Self { field, about, ..Self::new(code, message) }
    }
}

/// The text itself where it is short enough, else its beginning.
fn bounded(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(truncate::cut(text.as_bytes(), limit));
        text.push('…');
    }
    text
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    code: &'a str,
    message: &'a str,
    field: Option<&'a str>,
    request_id: &'a str,
}

impl ApiError {
    /// Notes it in the log, and writes it as it is answered.
    pub fn tell(&self) -> Vec<u8> {
        let request_id =
            format!("req_{}", random_base62(16, rand::random_iter::<[u8; 32]>().flatten()));
        tracing::info!(
            request_id,
            code = self.code.as_str(),
            field = self.about,
            "A request was refused."
        );
        let error = ErrorFields {
            code: self.code.as_str(),
            message: &self.message,
            field: self.field.as_deref(),
            request_id: &request_id,
        };
        serde_json::to_vec(&ErrorBody { error }).expect("the API's own shapes are JSON")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_text(self.code.status(), self.tell());
        let headers: &[_] = match self.code {
            ApiCode::Draining => &[(RETRY_AFTER, "1")],
            ApiCode::Overloaded => &[(RETRY_AFTER, "1"), (CONNECTION, "close")],
            // What is left of the body is not read: the connection cannot go on.
            ApiCode::RequestTimeout | ApiCode::TooLarge => &[(CONNECTION, "close")],
            ApiCode::Unauthorized => &[(WWW_AUTHENTICATE, "Bearer")],
            ApiCode::ApprovalClosed
            | ApiCode::BadRequest
            | ApiCode::DigestMismatch
            | ApiCode::FileManaged
            | ApiCode::IdempotencyConflict
            | ApiCode::Internal
            | ApiCode::InvalidDefinition
            | ApiCode::MethodNotAllowed
            | ApiCode::MissingScope
            | ApiCode::NameTaken
            | ApiCode::NotFound
            | ApiCode::NotIdempotent
            | ApiCode::UnsupportedType
            | ApiCode::VersionConflict => &[],
        };
        for (name, value) in headers {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// A JSON response.
pub fn json(status: StatusCode, value: &impl Serialize) -> Response {
    json_text(status, serde_json::to_vec(value).expect("the API's own shapes are JSON"))
}

/// A response of JSON that is written already.
pub fn json_text(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// What hyper lets pass and this server does not: requests that two readers could read differently.
pub fn screen<B>(request: &Request<B>) -> Result<(), ApiError> {
    let bad = |message| Err(ApiError::new(ApiCode::BadRequest, message));
    if request.method() == Method::CONNECT {
        let text = "CONNECT is not served here";
        return Err(ApiError::new(ApiCode::MethodNotAllowed, text));
    }
    if request.version() == Version::HTTP_11 && request.headers().get_all(HOST).iter().count() != 1
    {
        return bad("exactly one Host header is required");
    }
    if request.uri().authority().is_some() {
        return bad("the request target must be a path");
    }
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return bad("the only transfer coding is chunked");
    }
    Ok(())
}

/// Whether the body's type is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let essence = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = essence.split(';').next().unwrap_or("").trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// No such path.
pub async fn not_found() -> ApiError {
    ApiError::new(ApiCode::NotFound, "there is nothing at this path")
}

/// The path has other methods.
pub async fn method_not_allowed() -> ApiError {
    ApiError::new(ApiCode::MethodNotAllowed, "this path does not take this method")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_own_text_is_cut() {
        let long = "é".repeat(5000);
        let error = ApiError::field(None, &long, &long);
        let field = error.field.unwrap();
        assert!(field.len() <= POINTER_LIMIT + '…'.len_utf8() && field.ends_with("é…"), "{field}");
        assert!(error.message.len() <= MESSAGE_LIMIT + '…'.len_utf8());
        let short = ApiError::field(Some("tool"), "/tool", "`tool` is required");
        assert_eq!(
            (short.field.as_deref(), short.message.as_str()),
            (Some("/tool"), "`tool` is required")
        );
    }
}
