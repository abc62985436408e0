//! Reading a tool's answer: which kinds can be shown, and as what.

use std::borrow::Cow;

use crate::model::json_text::JsonText;
use crate::model::outcome::{Success, ToolResult};
use crate::policy::truncate::{cut, note, prefix};

/// Bytes of an error body that are kept. Contract: 2 KiB.
pub const ERROR_BODY_LIMIT: usize = 2048;

/// Whether the body of a failed answer is shown to the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorBody {
    /// Of 4xx answers.
    ClientErrors,
    /// Of no answer.
    Never,
}

/// What an answer says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerHead<'a> {
    /// The status.
    pub status: u16,
    /// The first `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// The first `Content-Encoding`.
    pub content_encoding: Option<&'a [u8]>,
}

/// How a body is to be read; only [`judge_head`] says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Media {
    shape: Shape,
    charset: Charset,
}

/// What a type promises about the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// JSON by its type; text when it does not parse.
    Json,
    /// A type that says nothing about text: it may turn out to be some.
    Other,
    /// Text by its type.
    Text,
    /// No usable type: JSON when it parses, else text.
    Unknown,
}

/// How bytes become characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charset {
    /// One byte, one character.
    Latin1,
    /// Any other declared charset.
    Unsupported,
    /// Also ASCII, and where none is declared.
    Utf8,
}

/// Why an answer cannot be read: `bad_body` with one of three details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The body is compressed, which was not asked for.
    #[error("the answer has a content encoding, none was asked for")]
    Encoding,
    /// A type that cannot be text.
    #[error("the answer is {0}, which is not text")]
    Media(String),
    /// Neither UTF-8 nor the declared charset, or a charset that is not read.
    #[error("the answer is not valid text in its charset")]
    Utf8,
}

impl AnswerError {
    /// `error.detail`.
    pub fn detail(&self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::Media(_) => "media",
            Self::Utf8 => "utf8",
        }
    }

    /// What the model reads.
    pub fn sentence(&self) -> String {
        match self {
            Self::Encoding | Self::Utf8 => "The tool's answer could not be read.".into(),
            Self::Media(kind) => format!("The tool answered with {kind}, which cannot be shown."),
        }
    }
}

/// Judges the head of a 2xx answer, before its body is read.
pub fn judge_head(head: &AnswerHead<'_>) -> Result<Media, AnswerError> {
    // 204: there is no body, whatever the head says about one.
    if head.status == 204 {
        return Ok(Media { shape: Shape::Unknown, charset: Charset::Utf8 });
    }
    if head.content_encoding.is_some_and(is_encoded) {
        return Err(AnswerError::Encoding);
    }
    // Nearly every answer says just this.
    if head.content_type == Some(b"application/json") {
        return Ok(Media { shape: Shape::Json, charset: Charset::Utf8 });
    }
    let Some(content_type) = head.content_type.and_then(ContentType::parse) else {
        return Ok(Media { shape: Shape::Unknown, charset: Charset::Utf8 });
    };
    match content_type.shape() {
        Some(shape) => Ok(Media { shape, charset: content_type.charset }),
        None => Err(AnswerError::Media(content_type.essence)),
    }
}

/// Reads the body of a 2xx answer. `whole`: it ended within the limit; `total`: its size, where known.
pub fn read(
    media: Media,
    body: &[u8],
    whole: bool,
    total: Option<u64>,
    limit: usize,
) -> Result<Success, AnswerError> {
    let read_bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    let result_bytes = total.unwrap_or(read_bytes).max(read_bytes);
    if whole && body.len() <= limit {
        let result = if body.is_empty() { ToolResult::Null } else { media.result(body)? };
        return Ok(Success { result, result_bytes, cut_note: None });
    }
    let kept = match media.charset {
        Charset::Latin1 => body.len().min(limit),
        Charset::Unsupported | Charset::Utf8 => cut(body, limit),
    };
    let text = media.decode(body.get(..kept).unwrap_or_default())?;
    Ok(Success {
        result: ToolResult::Text(text.into_owned()),
        result_bytes,
        cut_note: Some(note(kept, total, limit)),
    })
}

/// What the model may read of a failed answer's body, 2 KiB at most: JSON or text, never anything else.
pub fn error_text(head: &AnswerHead<'_>, body: &[u8], rule: ErrorBody) -> Option<String> {
    match rule {
        ErrorBody::Never => return None,
        ErrorBody::ClientErrors if !(400..500).contains(&head.status) => return None,
        ErrorBody::ClientErrors => {}
    }
    let media = judge_head(head).ok().filter(|media| media.shape != Shape::Other)?;
    let body = body.get(..ERROR_BODY_LIMIT).unwrap_or(body);
    // The body may have been cut inside a character, by the reader or here.
    let whole = match std::str::from_utf8(body) {
        Err(error) if media.charset == Charset::Utf8 && error.error_len().is_none() => {
            error.valid_up_to()
        }
        _ => body.len(),
    };
    let text = media.decode(body.get(..whole)?).ok()?;
    let shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let text: String = text.chars().filter(shown).collect();
    let text = prefix(text.trim(), ERROR_BODY_LIMIT);
    (!text.is_empty()).then(|| text.to_owned())
}

impl Media {
    /// The result that a whole body stands for.
    fn result(self, body: &[u8]) -> Result<ToolResult, AnswerError> {
        let text = self.decode(body)?;
        if text.is_empty() {
            return Ok(ToolResult::Null); // A byte order mark and nothing else.
        }
        if matches!(self.shape, Shape::Json | Shape::Unknown)
            && let Some(value) = JsonText::read(&text)
        {
            return Ok(ToolResult::Json(value));
        }
        Ok(ToolResult::Text(text.into_owned()))
    }

    /// The characters of a body, without a byte order mark.
    fn decode(self, body: &[u8]) -> Result<Cow<'_, str>, AnswerError> {
        match self.charset {
            Charset::Latin1 => Ok(body.iter().copied().map(char::from).collect()),
            Charset::Unsupported => Err(AnswerError::Utf8),
            Charset::Utf8 => {
                let text = std::str::from_utf8(body).map_err(|_| AnswerError::Utf8)?;
                Ok(text.strip_prefix('\u{feff}').unwrap_or(text).into())
            }
        }
    }
}

/// A `Content-Type` that follows the grammar.
struct ContentType {
    /// `type/subtype`, lower-case, of token characters only.
    essence: String,
    charset: Charset,
}

impl ContentType {
    /// `None`: nothing that names a type.
    fn parse(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?;
        let mut parts = value.split(';').map(str::trim);
        let essence = parts.next()?.to_ascii_lowercase();
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) || essence.len() > TYPE_LIMIT {
            return None;
        }
        let charset = parts
            .filter_map(|part| part.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
            .map_or(Charset::Utf8, |(_, value)| Charset::named(value.trim().trim_matches('"')));
        Some(Self { essence, charset })
    }

    /// `None`: a type that cannot be text.
    fn shape(&self) -> Option<Shape> {
        let (kind, subtype) = self.essence.split_once('/')?;
        match (kind, subtype) {
            ("audio" | "font" | "image" | "model" | "multipart" | "video", _)
            | ("text", "event-stream") => None,
            ("application", subtype) if BINARY.contains(&subtype) => None,
            ("application", subtype) if BINARY_FAMILIES.iter().any(|f| subtype.starts_with(f)) => {
                None
            }
            (_, "json") => Some(Shape::Json),
            (_, subtype) if subtype.ends_with("+json") => Some(Shape::Json),
            (_, subtype) if ["+zip", "+gzip"].iter().any(|end| subtype.ends_with(end)) => None,
            ("text", _) | ("application", "xml" | "yaml" | "x-yaml" | "javascript") => {
                Some(Shape::Text)
            }
            (_, subtype) if ["+xml", "+yaml"].iter().any(|end| subtype.ends_with(end)) => {
                Some(Shape::Text)
            }
            _ => Some(Shape::Other),
        }
    }
}

impl Charset {
    fn named(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin1" => Self::Latin1,
            "ascii" | "us-ascii" | "utf-8" | "utf8" => Self::Utf8,
            _ => Self::Unsupported,
        }
    }
}

/// A longer type is none that anybody registered, and the model would have to read it.
const TYPE_LIMIT: usize = 100;

/// Subtypes of `application` that cannot be text.
const BINARY: &[&str] = &[
    "cbor",
    "epub+zip",
    "gzip",
    "java-archive",
    "msgpack",
    "msword",
    "ogg",
    "pdf",
    "protobuf",
    "vnd.rar",
    "wasm",
    "x-7z-compressed",
    "x-bzip",
    "x-bzip2",
    "x-gzip",
    "x-msgpack",
    "x-protobuf",
    "x-rar-compressed",
    "x-shockwave-flash",
    "x-tar",
    "x-xz",
    "x-zip-compressed",
    "zip",
    "zstd",
];

/// Beginnings of such subtypes.
const BINARY_FAMILIES: &[&str] = &[
    "font-",
    "grpc",
    "vnd.ms-excel",
    "vnd.ms-powerpoint",
    "vnd.oasis.opendocument.",
    "vnd.openxmlformats-officedocument.",
];

fn is_encoded(value: &[u8]) -> bool {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

/// RFC 9110: a token.
fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests;
