//! OAuth2 client credentials (RFC 6749, section 4.4): the request for a token, and what its answer is worth.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::form_urlencoded::{Serializer, byte_serialize};

use crate::model::secret::Secret;
use crate::policy::credentials;
use crate::policy::endpoint::Endpoint;
use crate::policy::wire::OwnHeader;

/// How long a token is good for whose answer does not say it.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);

/// No token is kept for longer, whatever its answer says.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A token is not used in the last tenth of its life, nor in its last minute where that is less.
const MAX_MARGIN: Duration = Duration::from_secs(60);

/// Codes of RFC 6749 (section 5.2) and their kin: nothing else of an error answer is ever shown.
const ERRORS: [&str; 9] = [
    "access_denied",
    "invalid_client",
    "invalid_grant",
    "invalid_request",
    "invalid_scope",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_grant_type",
];

/// The names of a token request's headers, as they are sent.
pub const SPELLING: [&str; 5] =
    ["Host", "Content-Type", "Accept", "Authorization", "Content-Length"];

/// How the client shows its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// In an `Authorization` header: `client_secret_basic`.
    Basic,
    /// In the body: `client_secret_post`.
    Post,
}

/// What a token is asked for with.
#[derive(Debug)]
pub struct Client<'a> {
    /// Who asks.
    pub id: &'a str,
    /// Its secret.
    pub secret: &'a Secret,
    /// For which scopes, separated by spaces.
    pub scope: Option<&'a str>,
    /// For whom.
    pub audience: Option<&'a str>,
    /// How the secret is shown.
    pub method: ClientAuthentication,
}

/// Where tokens come from, with the whole request, made once.
pub struct TokenSource {
    /// The token endpoint.
    pub endpoint: Endpoint,
    headers: HeaderMap,
    body: Bytes,
    fingerprint: [u8; 32],
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenSource").field(&self.place()).finish()
    }
}

impl TokenSource {
    /// Writes the request down.
    pub fn new(endpoint: Endpoint, client: &Client<'_>) -> Self {
        let shown = (client.method == ClientAuthentication::Post).then_some(client.secret);
        let body = Bytes::from_owner(SharedText(form(client, shown)));
        let mut headers = HeaderMap::with_capacity(SPELLING.len());
        let host = HeaderValue::from_str(endpoint.authority());
        headers.insert(HOST, host.expect("an authority is visible ASCII"));
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if client.method == ClientAuthentication::Basic {
            headers.insert(AUTHORIZATION, basic(client));
        }
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let fingerprint = fingerprint(&endpoint, client);
        Self { endpoint, headers, body, fingerprint }
    }

    /// The headers, in order; what is secret is marked sensitive.
    pub fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    /// The body.
    pub fn body(&self) -> Bytes {
        self.body.clone()
    }

    /// Tells two sources apart by everything that they are made of.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// The endpoint without its query, for the operator's log.
    pub fn place(&self) -> String {
        let path = self.endpoint.path_and_query().split('?').next().unwrap_or_default();
        format!("{}://{}{path}", self.endpoint.scheme().as_str(), self.endpoint.authority())
    }
}

/// A token, ready to be sent.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The `Authorization` header.
    pub header: OwnHeader,
    /// How long it may be used from now on.
    pub usable_for: Duration,
}

/// Why an answer brings no token. The texts are the operator's; they quote nothing of the answer but known codes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The client, its secret or what it asks for is refused: asking again changes nothing.
    #[error("the grant was refused with status {status}{}", code_text(.code))]
    Refused {
        /// 400 to 499.
        status: u16,
        /// The error code, where it is a known one.
        code: Option<&'static str>,
    },
    /// Another status than 2xx that says nothing about the client.
    #[error("it answered with status {status}")]
    Status {
        /// The status.
        status: u16,
    },
    /// A 2xx answer without a token that can be sent.
    #[error("its answer holds no bearer token that can be sent: {what}")]
    Unusable {
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Reads the answer of a token endpoint; `whole` says that its body was read to its end.
pub fn read_grant(status: u16, body: &[u8], whole: bool) -> Result<Grant, GrantError> {
    match status {
        200..300 => {}
        408 | 425 | 429 => return Err(GrantError::Status { status }),
        400..500 => return Err(GrantError::Refused { status, code: error_code(body) }),
        _ => return Err(GrantError::Status { status }),
    }
    let unusable = |what| GrantError::Unusable { what };
    if !whole {
        return Err(unusable("it is too long or broke off"));
    }
    let answer: Answer =
        serde_json::from_slice(body).map_err(|_| unusable("it is not the JSON of RFC 6749"))?;
    let token = Secret::new(answer.access_token);
    if !answer.token_type.eq_ignore_ascii_case("bearer") {
        return Err(unusable("its token_type is not bearer"));
    }
    let value = credentials::bearer(&token)
        .map_err(|_| unusable("its access_token is empty or is not visible ASCII"))?;
    let header = OwnHeader::authorization(value)
        .map_err(|_| unusable("its access_token is longer than a header may be"))?;
    let lifetime = answer.expires_in.as_ref().and_then(seconds).unwrap_or(DEFAULT_LIFETIME);
    let lifetime = lifetime.min(MAX_LIFETIME);
    Ok(Grant { header, usable_for: lifetime - MAX_MARGIN.min(lifetime / 10) })
}

#[derive(Deserialize)]
struct Answer {
    access_token: String,
    token_type: String,
    #[serde(default)]
    expires_in: Option<Value>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    error: String,
}

fn error_code(body: &[u8]) -> Option<&'static str> {
    let answer: ErrorAnswer = serde_json::from_slice(body).ok()?;
    ERRORS.into_iter().find(|code| *code == answer.error)
}

fn code_text(code: &Option<&'static str>) -> String {
    code.map_or_else(String::new, |code| format!(" ({code})"))
}

/// A number of seconds, which some servers write as text. Less than none is none.
fn seconds(value: &Value) -> Option<Duration> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.trim().parse().ok()?,
        _ => return None,
    };
    let most = MAX_LIFETIME.as_secs_f64();
    number.is_finite().then(|| Duration::from_secs_f64(number.clamp(0.0, most).floor()))
}

/// The body. Its buffer is large enough from the start, so that no copy of the secret is left behind.
fn form(client: &Client<'_>, secret: Option<&Secret>) -> Secret {
    let texts = [Some(client.id), client.scope, client.audience];
    let length: usize = texts.iter().flatten().map(|text| text.len()).sum();
    let room = 128 + 3 * (length + secret.map_or(0, Secret::len));
    let mut form = Serializer::new(String::with_capacity(room));
    form.append_pair("grant_type", "client_credentials");
    if let Some(scope) = client.scope {
        form.append_pair("scope", scope);
    }
    if let Some(audience) = client.audience {
        form.append_pair("audience", audience);
    }
    let mut text = form.finish();
    if let Some(secret) = secret {
        text.push_str("&client_id=");
        text.extend(byte_serialize(client.id.as_bytes()));
        text.push_str("&client_secret=");
        text.extend(byte_serialize(secret.expose()));
    }
    Secret::new(text)
}

/// Both parts are form-encoded first (RFC 6749, section 2.3.1).
fn basic(client: &Client<'_>) -> HeaderValue {
    let id: String = byte_serialize(client.id.as_bytes()).collect();
    let mut encoded = String::with_capacity(3 * client.secret.len());
    encoded.extend(byte_serialize(client.secret.expose()));
    let value = credentials::basic(&id, &Secret::new(encoded));
    let shared = Bytes::from_owner(SharedText(value));
    let mut value = HeaderValue::from_maybe_shared(shared).expect("base64 is visible ASCII");
    value.set_sensitive(true);
    value
}

/// Everything that a token depends on, each part with its length before it.
fn fingerprint(endpoint: &Endpoint, client: &Client<'_>) -> [u8; 32] {
    let url = endpoint.to_string();
    let method = match client.method {
        ClientAuthentication::Basic => "basic",
        ClientAuthentication::Post => "post",
    };
    let public = [Some(&*url), Some(client.id), client.scope, client.audience, Some(method)];
    let mut hash = Sha256::new();
    for part in public {
        hash.update(part.map_or_else(|| "-".to_owned(), |text| format!("{}:{text}", text.len())));
    }
    hash.update(client.secret.expose());
    hash.finalize().into()
}

struct SharedText(Secret);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

#[cfg(test)]
mod tests;
