//! A profile's header list as it is written, compiled into lines.

use http::header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::policy::profile_fault::ProfileFault;

/// Contract: 4,096 bytes a value.
pub(in crate::policy) const VALUE_LIMIT: usize = 4096;

/// What a profile cannot send: it belongs to the connection, to the answer's coding, or to one tool's secrets.
const NEVER_PROFILE: [&str; 13] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-range",
    "cookie",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authorization",
];

/// One item of a profile's `headers`, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a header is `{name, value}`, or the text `$own`")]
pub enum HeaderText {
    /// A header.
    Field(FieldText),
    /// The place of the tool's own headers.
    Own(OwnPlace),
}

/// A header as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldText {
    /// The name, in the letter case in which it is sent.
    pub name: String,
    /// `$slot`, or the value itself.
    pub value: String,
}

/// The place of the tool's own headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum OwnPlace {
    /// `$own`
    #[serde(rename = "$own")]
    Here,
}

/// One line of a compiled header list.
#[derive(Debug, Clone)]
pub(in crate::policy) enum Line {
    Field(Field),
    Own,
}

/// A header that the profile sends.
#[derive(Debug, Clone)]
pub(in crate::policy) struct Field {
    pub(in crate::policy) spelling: String,
    pub(in crate::policy) name: HeaderName,
    pub(in crate::policy) value: FieldValue,
}

/// What a header holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::policy) enum FieldValue {
    Literal(HeaderValue),
    Slot(HeaderSlot),
}

/// What a call can put into a header. A line whose slot has nothing is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::policy) enum HeaderSlot {
    CallId,
    ContentLength,
    Host,
    IdempotencyKey,
    RunId,
    Signature,
    Timestamp,
    Tool,
}

impl HeaderSlot {
    const ALL: [Self; 8] = [
        Self::Host,
        Self::ContentLength,
        Self::Tool,
        Self::CallId,
        Self::RunId,
        Self::IdempotencyKey,
        Self::Timestamp,
        Self::Signature,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::CallId => "call_id",
            Self::ContentLength => "content_length",
            Self::Host => "host",
            Self::IdempotencyKey => "idempotency_key",
            Self::RunId => "run_id",
            Self::Signature => "signature",
            Self::Timestamp => "timestamp",
            Self::Tool => "tool",
        }
    }
}

/// Compiles a profile's header list; all faults at once, with paths that begin with `headers`.
pub(in crate::policy) fn compile_lines(
    texts: &[HeaderText],
) -> Result<Vec<Line>, Vec<ProfileFault>> {
    let mut lines: Vec<Line> = Vec::with_capacity(texts.len());
    let mut faults = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        match text {
            HeaderText::Own(OwnPlace::Here) => {
                if lines.iter().any(|line| matches!(line, Line::Own)) {
                    faults.push(ProfileFault::new(
                        format!("headers[{at}]"),
                        "`$own` stands there already",
                    ));
                }
                lines.push(Line::Own);
            }
            HeaderText::Field(field) => {
                let mut note = |part: &str, message: String| {
                    faults.push(ProfileFault::new(format!("headers[{at}].{part}"), message));
                };
                let name =
                    compile_name(&field.name, &lines).map_err(|message| note("name", message));
                let value = compile_value(&field.value).map_err(|message| note("value", message));
                if let (Ok(name), Ok(value)) = (name, value) {
                    if let Err(message) = check_pair(&name, &value) {
                        note("value", message);
                    }
                    lines.push(Line::Field(Field { spelling: field.name.clone(), name, value }));
                }
            }
        }
    }
    let has_name = |text: Option<&HeaderText>, name: &HeaderName| matches!(text, Some(HeaderText::Field(field)) if name.as_str().eq_ignore_ascii_case(&field.name));
    if !has_name(texts.first(), &HOST) {
        faults
            .push(ProfileFault::new("headers", "the first must be `Host` with the value `$host`"));
    }
    if !has_name(texts.last(), &CONTENT_LENGTH) {
        let message = "the last must be `Content-Length` with the value `$content_length`";
        faults.push(ProfileFault::new("headers", message));
    }
    if !texts.contains(&HeaderText::Own(OwnPlace::Here)) {
        let message = "`$own` is missing: it marks the place of a tool's own headers";
        faults.push(ProfileFault::new("headers", message));
    }
    if faults.is_empty() { Ok(lines) } else { Err(faults) }
}

fn compile_name(spelling: &str, before: &[Line]) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(spelling.as_bytes())
        .map_err(|_| format!("`{spelling}` is not a header name"))?;
    if NEVER_PROFILE.contains(&name.as_str()) {
        return Err(format!(
            "a profile cannot send `{spelling}`: it belongs to the connection or to a tool's own `headers`"
        ));
    }
    let repeats =
        before.iter().any(|line| matches!(line, Line::Field(field) if field.name == name));
    if repeats { Err(format!("`{spelling}` stands there already")) } else { Ok(name) }
}

fn compile_value(text: &str) -> Result<FieldValue, String> {
    if let Some(name) = text.strip_prefix('$') {
        return match HeaderSlot::ALL.into_iter().find(|slot| slot.as_str() == name) {
            Some(slot) => Ok(FieldValue::Slot(slot)),
            None => {
                let known = HeaderSlot::ALL.map(|slot| format!("${}", slot.as_str())).join(", ");
                Err(format!("`{text}` is no slot of a header; there are {known}"))
            }
        };
    }
    let fits = (1..=VALUE_LIMIT).contains(&text.len())
        && text.bytes().all(is_value_byte)
        && text.trim().len() == text.len()
        && !text.contains('$');
    match HeaderValue::from_str(text) {
        Ok(value) if fits => Ok(FieldValue::Literal(value)),
        _ => Err("must be one slot such as `$tool`, or 1 to 4096 characters of visible ASCII without `$`".into()),
    }
}

fn check_pair(name: &HeaderName, value: &FieldValue) -> Result<(), String> {
    for (only_name, slot) in [(HOST, HeaderSlot::Host), (CONTENT_LENGTH, HeaderSlot::ContentLength)]
    {
        if (*name == only_name) != (*value == FieldValue::Slot(slot)) {
            return Err(format!("`{only_name}` and `${}` belong together", slot.as_str()));
        }
    }
    Ok(())
}

/// Space and visible ASCII.
pub(in crate::policy) fn is_value_byte(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

#[cfg(test)]
mod tests;
