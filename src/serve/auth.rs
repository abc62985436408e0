//! From an Authorization header to a caller with the scope that a route asks for.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use crate::policy::identity::{Authentication, Caller, Scope};
use crate::serve::http::{ApiCode, ApiError};

/// The caller, who has the scope.
pub fn authorize(
    authentication: &Authentication,
    headers: &HeaderMap,
    scope: Scope,
    now: i64,
) -> Result<Arc<Caller>, ApiError> {
    let caller = authentication.identify(bearer(headers), now).ok_or_else(|| {
        let text = "a known key is required: `Authorization: Bearer KEY`";
        ApiError::new(ApiCode::Unauthorized, text)
    })?;
    if !caller.has(scope) {
        let text =
            format!("the key `{}` does not have the scope `{}`", caller.name, scope.as_str());
        return Err(ApiError::new(ApiCode::MissingScope, text));
    }
    Ok(caller)
}

/// The bearer token, where there is exactly one Authorization header and it holds one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?.as_bytes(), values.next()) else { return None };
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[&str], expected: Option<&str>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, value.parse().expect("a header value"));
        }
        assert_eq!(bearer(&headers), expected.map(str::as_bytes));
    }

    #[test]
    fn one_bearer_header_gives_its_token() {
        check(&["Bearer abc"], Some("abc"));
        check(&["bearer  abc "], Some("abc"));
        check(&["Basic abc"], None);
        check(&["Bearer"], None);
        check(&[], None);
        check(&["Bearer a", "Bearer b"], None);
    }

    #[test]
    fn without_authentication_nobody_may_write() {
        let none = Authentication::None(Arc::new(Caller::anonymous()));
        let code =
            |scope| authorize(&none, &HeaderMap::new(), scope, 0).map_err(|error| error.code);
        assert!(code(Scope::AgentCall).is_ok());
        assert_eq!(code(Scope::AgentWrite).err(), Some(ApiCode::MissingScope));
    }
}
