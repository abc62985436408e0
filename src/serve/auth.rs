//! From what a request brings along to a caller with the scope that a route asks for.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::request::Parts;

use crate::config::listening::Bind;
use crate::net::epoch::Epoch;
use crate::net::key_sets::KeySets;
use crate::net::serving::Peer;
use crate::policy::authentication::{Authentication, Known};
use crate::policy::identity::{Caller, Scope};
use crate::policy::issuer::KeySource;
use crate::policy::token::{Token, TokenError};
use crate::serve::http::{ApiCode, ApiError};
use crate::telemetry::audit::{Audit, KeyRefusal};

/// Who calls, by what a request brings along.
#[derive(Debug)]
pub struct Doorkeeper {
    /// Sets of keys that issuers publish.
    pub key_sets: KeySets,
    /// Takes down who was refused.
    pub audit: Audit,
}

impl Doorkeeper {
    /// The caller, who has the scope.
    pub async fn admit(
        &self,
        epoch: &Epoch,
        request: &Parts,
        scope: Scope,
        now: i64,
    ) -> Result<Arc<Caller>, ApiError> {
        self.admit_by(epoch, request, &[scope], now).await
    }

    /// The caller, who has one of the scopes. What the Authorization header holds counts; the connection's certificate counts where
    /// there is no such header.
    pub async fn admit_by(
        &self,
        epoch: &Epoch,
        request: &Parts,
        scopes: &[Scope],
        now: i64,
    ) -> Result<Arc<Caller>, ApiError> {
        let caller = match self.known(epoch, request, now).await {
            Ok(caller) => caller,
            Err(error) => {
                if error.code == ApiCode::Unauthorized {
                    self.audit.refused(KeyRefusal::UnknownKey, None, Some("api"));
                }
                return Err(error);
            }
        };
        if scopes.iter().any(|scope| caller.has(*scope)) {
            return Ok(caller);
        }
        let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
        let names = names.join("` or `");
        self.audit.refused(
            KeyRefusal::MissingScope,
            Some(&caller),
            scopes.first().map(|one| one.as_str()),
        );
        let text = format!("{} does not have the scope `{names}`", caller.noun());
        Err(ApiError::new(ApiCode::MissingScope, text))
    }

    /// The caller, whatever they may do.
    async fn known(
        &self,
        epoch: &Epoch,
        request: &Parts,
        now: i64,
    ) -> Result<Arc<Caller>, ApiError> {
        let snapshot = &epoch.snapshot;
        let (peer, serving) = (request.extensions.get::<Arc<Peer>>(), epoch.network.serving());
        if peer.is_some_and(|peer| !peer.may_ask(serving, now)) {
            let text = "the client certificate of this connection is no longer taken";
            return Err(unauthorized(text));
        }
        match &snapshot.authentication {
            Authentication::None(caller) => {
                if let Bind::Tcp(_) = &snapshot.listeners.api.bind {
                    require_local_host(&request.headers)?;
                }
                Ok(caller.clone())
            }
            Authentication::Known(known) if request.headers.contains_key(AUTHORIZATION) => {
                self.by_header(known, &request.headers, now).await
            }
            Authentication::Known(known) => {
                let names = peer.map(|peer| peer.names(serving, now));
                let caller = known.by_certificate(names.unwrap_or_default());
                caller.cloned().ok_or_else(|| unauthorized(known.ways()))
            }
        }
    }

    async fn by_header(
        &self,
        known: &Known,
        headers: &HeaderMap,
        now: i64,
    ) -> Result<Arc<Caller>, ApiError> {
        let presented = bearer(headers).ok_or_else(|| unauthorized(known.ways()))?;
        if let Some(caller) = known.keys.find(presented, now) {
            return Ok(caller);
        }
        if known.issuers.is_empty() || !Token::has_its_form(presented) {
            return Err(unauthorized(known.ways()));
        }
        // In a box of its own, so that a call with a key does not carry it along.
        let caller = Box::pin(self.by_token(known, presented, now)).await;
        caller
            .map(Arc::new)
            .map_err(|error| unauthorized(&format!("the token is not taken: {error}")))
    }

    async fn by_token(
        &self,
        known: &Known,
        presented: &[u8],
        now: i64,
    ) -> Result<Caller, TokenError> {
        let token = Token::parse(presented)?;
        let issuer = token.claimed_issuer().and_then(|name| known.issuer(name));
        let issuer = issuer.ok_or(TokenError::Issuer)?;
        let claims = match &issuer.keys {
            KeySource::Missing => return Err(TokenError::KeysUnavailable),
            KeySource::Set(keys) => token.verify(keys)?,
            KeySource::Url(endpoint) => {
                let keys = self.key_sets.get(endpoint).await;
                let keys = keys.ok_or(TokenError::KeysUnavailable)?;
                match token.verify(&keys) {
                    // The issuer may sign by a key that is newer than what we have, under a new name or the same one.
                    Err(error @ (TokenError::Key | TokenError::Signature)) => {
                        match self.key_sets.newer(endpoint, &keys).await {
                            Some(newer) => token.verify(&newer)?,
                            None => return Err(error),
                        }
                    }
                    verified => verified?,
                }
            }
        };
        issuer.caller(claims, now)
    }
}

fn unauthorized(text: &str) -> ApiError {
    ApiError::new(ApiCode::Unauthorized, text)
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
