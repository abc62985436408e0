//! What the gateway tells of a call as a response, and its errors as the API's.

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use crate::gateway::told::{CallError, Told};
use crate::serve::http::{ApiCode, ApiError, json_text};

/// The response: a failing tool is not a failing request, so every final state is a 200, and what has not ended a 202 with
/// the place where it can be followed.
pub fn answer(told: Told) -> Response {
    if told.phase.is_final() {
        return json_text(StatusCode::OK, told.body);
    }
    let mut response = json_text(StatusCode::ACCEPTED, told.body);
    let place = HeaderValue::from_str(&format!("/v1/calls/{}", told.id.as_str()));
    response.headers_mut().insert(LOCATION, place.expect("letters and digits"));
    response
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        let text = error.to_string();
        let digest =
            |code| Self::field_of(code, Some("arguments_digest"), "/arguments_digest", &text);
        match error {
            CallError::Malformed(malformed) => malformed.into(),
            CallError::DigestMissing => digest(ApiCode::BadRequest),
            CallError::DigestMismatch => digest(ApiCode::DigestMismatch),
            CallError::CredentialsCannotWait => {
                let code = ApiCode::InvalidDefinition;
                Self::field_of(code, Some("credentials"), "/credentials", &text)
            }
            CallError::Closed(_) | CallError::Persons | CallError::YesIsUsed => {
                Self::new(ApiCode::ApprovalClosed, text)
            }
            CallError::Conflict(_) => Self::new(ApiCode::IdempotencyConflict, text),
            CallError::NotFound => Self::new(ApiCode::NotFound, text),
            CallError::NotIdempotent => Self::new(ApiCode::NotIdempotent, text),
            CallError::Unavailable => Self::new(ApiCode::Overloaded, text),
        }
    }
}
