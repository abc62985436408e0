//! From an Authorization header to a caller with the scope that a route asks for.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};

use crate::config::snapshot::Bind;
use crate::policy::identity::{Authentication, Caller, Scope};
use crate::serve::http::{ApiCode, ApiError};

/// The caller, who has the scope.
pub fn authorize(
    authentication: &Authentication,
    listener: &Bind,
    headers: &HeaderMap,
    scope: Scope,
    now: i64,
) -> Result<Arc<Caller>, ApiError> {
    if let (Authentication::None(_), Bind::Tcp(_)) = (authentication, listener) {
        require_local_host(headers)?;
    }
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

/// Where no key is asked for, a page whose own name was made to lead here must not call from a browser: the Host that
/// the browser sends is still that name.
pub(super) fn require_local_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_local(host) {
        return Ok(());
    }
    let text = "without keys only the Host `localhost` or a loopback address is served";
    Err(ApiError::new(ApiCode::BadRequest, text))
}

/// Whether this Host is this machine under a name that nobody else can give it, with any port.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().is_ok_and(|one| one.to_canonical().is_loopback()),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse::<Ipv4Addr>().is_ok_and(|one| one.is_loopback())
        }
    }
}

/// The bearer token, where there is exactly one Authorization header and it holds one.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
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
        let listener = Bind::Unix { path: "socket".into(), mode: 0o600 };
        let code = |scope| {
            let caller = authorize(&none, &listener, &HeaderMap::new(), scope, 0);
            caller.map_err(|error| error.code)
        };
        assert!(code(Scope::AgentCall).is_ok());
        assert_eq!(code(Scope::AgentWrite).err(), Some(ApiCode::MissingScope));
    }

    #[test]
    fn without_keys_only_this_machine_s_own_names_are_served() {
        for local in [
            "localhost",
            "LocalHost:8477",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.8.9.1:1",
            "[::1]",
            "[::1]:8477",
        ] {
            assert!(is_local(local), "{local}");
        }
        for foreign in [
            "",
            "evil.example.com",
            "localhost.example.com:8477",
            "127.0.0.1.example.com",
            "127.0.0.1@example.com",
            "10.0.0.1:8477",
            "[fe80::1]:8477",
            "::1",
            "127.1",
            "localhost:port",
            "0.0.0.0",
        ] {
            assert!(!is_local(foreign), "{foreign}");
        }
    }
}
