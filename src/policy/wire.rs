//! The wire format of one profile: its limits, its headers in order and letter case, its body.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use regex::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::call::CallContext;
use crate::model::id::{CallId, IdempotencyKey, ToolName};
use crate::model::outcome::Effect;
use crate::model::secret::Secret;
use crate::policy::answer::ErrorBody;
use crate::policy::breaker::Trip;
use crate::policy::endpoint::Endpoint;
use crate::policy::header::{Field, FieldValue, HeaderSlot, Line, VALUE_LIMIT, is_value_byte};
use crate::policy::retry::RetryPolicy;
use crate::policy::schema::{Dialect, ValidArguments};
use crate::policy::sign::{MessageId, SignatureScheme, SigningKeys, plain_seconds};
use crate::policy::template::{BodyTemplate, BodyValues, Slot};

/// Contract: no tool sends these of its own.
const NEVER_OWN: [&str; 11] = [
    "accept-encoding",
    "connection",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Contract: nor any name that begins like this.
const NEVER_OWN_PREFIXES: [&str; 5] = ["cl-", "content-", "proxy-", "webhook-", "x-tool-"];

/// One wire format, compiled.
#[derive(Debug)]
pub struct WireProfile {
    /// The profile's name.
    pub name: String,
    /// A digest over all that it says.
    pub definition: [u8; 32],
    /// Which JSON Schema keywords its tools may use.
    pub dialect: Dialect,
    /// The policy of a tool that names none.
    pub default_policy: Effect,
    /// Bounds on one attempt's time.
    pub timeout: TimeoutBounds,
    /// Bound on the result, in bytes.
    pub result_limit: usize,
    /// Which failures are wanted again.
    pub retry: RetryPolicy,
    /// After which answers its tools are not called for a while.
    pub circuit: Option<Trip>,
    /// Which error bodies the model reads.
    pub error_body: ErrorBody,
    pub(in crate::policy) name_pattern: String,
    pub(in crate::policy) names: Regex,
    pub(in crate::policy) lines: Vec<Line>,
    pub(in crate::policy) key_form: KeyForm,
    pub(in crate::policy) body: BodyTemplate,
    pub(in crate::policy) signature: Option<SignatureScheme>,
}

/// Bounds on one attempt's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutBounds {
    /// Where the tool says nothing.
    pub default: Duration,
    /// The least that a tool may ask for.
    pub min: Duration,
    /// The most that a tool may ask for.
    pub max: Duration,
}

/// How the Idempotency-Key is written in a header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// As it is.
    #[default]
    Bare,
    /// In double quotes: a string of RFC 8941, as the IETF draft wants it.
    Quoted,
}

/// What one call brings to the wire.
#[derive(Debug, Clone, Copy)]
pub struct Rendering<'a> {
    /// The tool.
    pub tool: &'a ToolName,
    /// The call.
    pub call_id: &'a CallId,
    /// Where it comes from.
    pub context: &'a CallContext,
    /// What was validated.
    pub arguments: &'a ValidArguments,
    /// Where it goes.
    pub endpoint: &'a Endpoint,
    /// Unix milliseconds of the first attempt: the `t` of that attempt is its whole second.
    pub sent_at_ms: i64,
    /// The key of run, step and index, where they were given.
    pub idempotency_key: Option<&'a IdempotencyKey>,
}

/// The header that tells a tool the trace, in the spelling in which it is sent: the last of its own headers.
pub const TRACEPARENT: &str = "traceparent";

/// The headers of one attempt, in order; the values of own headers are marked sensitive.
#[derive(Debug)]
pub struct Headers(pub HeaderMap);

/// A header of the tool's own, checked against its profile: the value is whole, hidden from `Debug` and wiped on drop.
#[derive(Debug, Clone)]
pub struct OwnHeader {
    spelling: String,
    name: HeaderName,
    value: HeaderValue,
}

impl OwnHeader {
    /// The name as it was written and as it is sent.
    pub fn spelling(&self) -> &str {
        &self.spelling
    }

    /// The name, for comparing.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The value, marked sensitive.
    pub fn value(&self) -> &HeaderValue {
        &self.value
    }

    /// The `Authorization` header, whose value is whole.
    pub fn authorization(value: Secret) -> Result<Self, HeaderError> {
        Self::new("Authorization", value)
    }

    /// Takes a header unless the contract refuses it to every tool.
    pub fn new(spelling: &str, value: Secret) -> Result<Self, HeaderError> {
        let name = own_name(spelling)?;
        if value.len() > VALUE_LIMIT {
            return Err(HeaderError::TooLong { name: spelling.to_owned(), bytes: value.len() });
        }
        let refused = || HeaderError::Character { name: spelling.to_owned() };
        if !value.expose().iter().all(|&b| is_value_byte(b)) {
            return Err(refused());
        }
        // The header value shares the secret's own bytes, so that they are wiped with the last request that held them.
        let shared = Bytes::from_owner(SharedSecret(value));
        let mut value = HeaderValue::from_maybe_shared(shared).map_err(|_| refused())?;
        value.set_sensitive(true);
        Ok(Self { spelling: spelling.to_owned(), name, value })
    }
}

/// Why a header cannot be a tool's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A byte that could end the line, or that servers read differently.
    #[error("the value of `{name}` may hold spaces and visible ASCII only")]
    Character {
        /// The name.
        name: String,
    },
    /// Not a header name.
    #[error("is not a header name, which has letters, digits and `-`")]
    Name,
    /// A name that is kept from every tool.
    #[error("`{name}` cannot be a tool's own header: the gateway or a profile sets it")]
    Refused {
        /// The name.
        name: String,
    },
    /// A name that this profile sends itself.
    #[error("`{name}` cannot be a tool's own header: its profile `{profile}` sends it")]
    SentByProfile {
        /// The name.
        name: String,
        /// The profile.
        profile: String,
    },
    /// A value that is too long.
    #[error("the value of `{name}` has {bytes} bytes; at most 4096 are allowed")]
    TooLong {
        /// The name.
        name: String,
        /// Its size.
        bytes: usize,
    },
}

/// Why a request could not be written. None of it went out: a call is never sent unsigned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The id is signed and was not given.
    #[error("this profile signs the call id; give one")]
    NoMessageId,
    /// The profile signs, and there is no key.
    #[error("the profile signs, and the tool has no signing key")]
    NoKey,
    /// A value that no header may hold.
    #[error("the value of `{header}` holds a character that no header may hold")]
    Value {
        /// The header.
        header: String,
    },
}

/// What one attempt puts into header slots.
struct Attempt<'a> {
    call: &'a Rendering<'a>,
    body: &'a [u8],
    t: String,
    keys: &'a SigningKeys,
}

impl WireProfile {
    /// Whether a tool of this profile may have the name.
    pub fn accepts_name(&self, name: &str) -> bool {
        self.names.is_match(name)
    }

    /// The pattern of names, as the profile writes it.
    pub fn name_pattern(&self) -> &str {
        &self.name_pattern
    }

    /// How it signs, where it does.
    pub fn signature(&self) -> Option<&SignatureScheme> {
        self.signature.as_ref()
    }

    /// Whether it signs.
    pub fn signs(&self) -> bool {
        self.signature.is_some()
    }

    /// Whether it sends an Idempotency-Key.
    pub fn sends_idempotency_key(&self) -> bool {
        self.has_line(HeaderSlot::IdempotencyKey) || self.body.holds(Slot::IdempotencyKey)
    }

    /// Whether a call must give `run_id` and `step`.
    pub fn needs_run(&self) -> bool {
        self.sends_idempotency_key() || self.has_line(HeaderSlot::RunId)
    }

    /// Says whether a tool may send a header of this name, or take it from a call.
    pub fn check_own_name(&self, name: &str) -> Result<(), HeaderError> {
        let own = folded_name(own_name(name)?.as_str());
        if self.fields().any(|field| folded_name(field.name.as_str()) == own) {
            return Err(HeaderError::SentByProfile {
                name: name.to_owned(),
                profile: self.name.clone(),
            });
        }
        Ok(())
    }

    /// Takes a header of the tool's own; `value` is whole, its prefix included.
    pub fn check_own_header(&self, name: &str, value: Secret) -> Result<OwnHeader, HeaderError> {
        self.check_own_name(name)?;
        OwnHeader::new(name, value)
    }

    /// Header names in order and exact letter case; `own` are the spellings of own headers, in their order.
    pub fn header_spelling<'a>(&'a self, own: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let mut own = own.into_iter();
        let mut names = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            match line {
                Line::Field(field) => names.push(field.spelling.as_str()),
                Line::Own => names.extend(own.by_ref()),
            }
        }
        names
    }

    /// The body, built once per call: every attempt sends these bytes.
    pub fn body(&self, call: &Rendering<'_>) -> Bytes {
        self.body.fill(&BodyValues {
            tool: call.tool,
            call_id: call.call_id,
            context: call.context,
            arguments: call.arguments.text(),
            sent_at_ms: call.sent_at_ms,
            idempotency_key: call.idempotency_key,
        })
    }

    /// The headers of one attempt at the Unix second `t`.
    pub fn headers(
        &self,
        call: &Rendering<'_>,
        own: &[OwnHeader],
        body: &Bytes,
        keys: &SigningKeys,
        t: i64,
    ) -> Result<Headers, RenderError> {
        if self.signs() && keys.is_empty() {
            return Err(RenderError::NoKey);
        }
        let attempt = Attempt { call, body, t: plain_seconds(t), keys };
        let mut map = HeaderMap::with_capacity(self.lines.len() + own.len());
        for line in &self.lines {
            match line {
                Line::Field(field) => {
                    if let Some(value) = self.value(field, &attempt)? {
                        map.append(field.name.clone(), value);
                    }
                }
                Line::Own => {
                    for header in own {
                        map.append(header.name().clone(), header.value().clone());
                    }
                }
            }
        }
        Ok(Headers(map))
    }

    /// The names and values of the headers that a signature consists of, for whoever signs without sending.
    pub fn signature_headers(
        &self,
        keys: &SigningKeys,
        t: i64,
        id: Option<MessageId<'_>>,
        body: &[u8],
    ) -> Result<Vec<(&str, String)>, RenderError> {
        let Some(scheme) = &self.signature else { return Ok(Vec::new()) };
        if keys.is_empty() {
            return Err(RenderError::NoKey);
        }
        let t = plain_seconds(t);
        let id = match id {
            _ if !scheme.signs_id() => "",
            Some(id) => id.as_str(),
            None => return Err(RenderError::NoMessageId),
        };
        let lines = self.fields().filter_map(|field| match field.value {
            FieldValue::Slot(HeaderSlot::CallId) if scheme.signs_id() => {
                Some((&*field.spelling, id.to_owned()))
            }
            FieldValue::Slot(HeaderSlot::Signature) => {
                Some((&*field.spelling, scheme.write(keys, &t, id, body)))
            }
            FieldValue::Slot(HeaderSlot::Timestamp) => Some((&*field.spelling, t.clone())),
            _ => None,
        });
        Ok(lines.collect())
    }

    fn value(
        &self,
        field: &Field,
        attempt: &Attempt<'_>,
    ) -> Result<Option<HeaderValue>, RenderError> {
        let call = attempt.call;
        let slot = match &field.value {
            FieldValue::Literal(value) => return Ok(Some(value.clone())),
            FieldValue::Slot(slot) => slot,
        };
        let value = match slot {
            HeaderSlot::CallId => HeaderValue::from_str(call.call_id.as_str()),
            HeaderSlot::ContentLength => Ok(HeaderValue::from(attempt.body.len())),
            HeaderSlot::Host => HeaderValue::from_str(call.endpoint.authority()),
            HeaderSlot::IdempotencyKey => match (call.idempotency_key, self.key_form) {
                (None, _) => return Ok(None),
                (Some(key), KeyForm::Bare) => HeaderValue::from_str(key.as_str()),
                (Some(key), KeyForm::Quoted) => {
                    HeaderValue::try_from(format!("\"{}\"", key.as_str()))
                }
            },
            HeaderSlot::RunId => match &call.context.run_id {
                None => return Ok(None),
                Some(run_id) => HeaderValue::from_str(run_id.as_str()),
            },
            HeaderSlot::Signature => match &self.signature {
                None => return Ok(None),
                Some(scheme) => {
                    let id = MessageId::from(call.call_id).as_str();
                    HeaderValue::try_from(scheme.write(attempt.keys, &attempt.t, id, attempt.body))
                }
            },
            HeaderSlot::Timestamp => HeaderValue::from_str(&attempt.t),
            HeaderSlot::Tool => HeaderValue::from_str(call.tool.as_str()),
        };
        value.map(Some).map_err(|_| RenderError::Value { header: field.spelling.clone() })
    }

    pub(in crate::policy) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.lines.iter().filter_map(|line| match line {
            Line::Field(field) => Some(field),
            Line::Own => None,
        })
    }

    pub(in crate::policy) fn has_line(&self, slot: HeaderSlot) -> bool {
        self.fields().any(|field| field.value == FieldValue::Slot(slot))
    }
}

struct SharedSecret(Secret);

impl AsRef<[u8]> for SharedSecret {
    fn as_ref(&self) -> &[u8] {
        self.0.expose()
    }
}

/// A header name as many servers tell names apart: they hand `X-Tool-Name` and `x_tool_name` on as one variable.
pub fn folded_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Says whether any tool may send a header of this name.
fn own_name(spelling: &str) -> Result<HeaderName, HeaderError> {
    let name = HeaderName::from_bytes(spelling.as_bytes()).map_err(|_| HeaderError::Name)?;
    let text = folded_name(spelling);
    let refused = NEVER_OWN.contains(&text.as_str())
        || NEVER_OWN_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    if refused { Err(HeaderError::Refused { name: spelling.to_owned() }) } else { Ok(name) }
}

#[cfg(test)]
mod tests;
