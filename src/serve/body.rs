//! A request's body: bounded in size and time, and read field by field so that an error names its field.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::model::json::pointer_step;
use crate::model::secret::Secret;
use crate::serve::http::{ApiCode, ApiError};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the whole body. More than `limit` bytes: 413. Not there in time: 408.
pub async fn read(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(BODY_TIMEOUT, collect(body, limit)).await {
        Ok(read) => read,
        Err(_) => {
            let text = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(ApiError::new(ApiCode::RequestTimeout, text))
        }
    }
}

async fn collect(mut body: Body, limit: usize) -> Result<Bytes, ApiError> {
    let too_large = || {
        let text = format!("the body is larger than {limit} bytes");
        ApiError::new(ApiCode::TooLarge, text)
    };
    let announced = http_body::Body::size_hint(&body).lower();
    if usize::try_from(announced).map_or(true, |bytes| bytes > limit) {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(ApiError::new(ApiCode::BadRequest, "the body broke off"));
        };
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(too_large());
        }
        // Nearly every call comes in one piece, which is then used without a copy.
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}

/// The fields of one JSON object, each still text: `N` names in the order of `names`.
#[derive(Debug)]
pub struct Fields<'a, const N: usize> {
    at: String,
    about: Option<&'static str>,
    names: &'static [&'static str; N],
    values: [Option<&'a RawValue>; N],
}

impl<'a, const N: usize> Fields<'a, N> {
    /// Reads an object. An unknown field, a field that stands twice and anything but an object are errors; `at` is the
    /// pointer of the object itself.
    pub fn read(
        text: &'a str,
        at: &'static str,
        names: &'static [&'static str; N],
    ) -> Result<Self, ApiError> {
        Self::read_within(text, at.to_owned(), at.split('/').nth(1), names)
    }

    /// The same where the pointer is made while reading; `about` is the field of the whole body in which the object
    /// stands.
    pub fn read_within(
        text: &'a str,
        at: String,
        about: Option<&'static str>,
        names: &'static [&'static str; N],
    ) -> Result<Self, ApiError> {
        let mut problem = None;
        let mut reader = serde_json::Deserializer::from_str(text);
        let seed = FieldsSeed { at: &at, about, names, problem: &mut problem };
        let values = seed.deserialize(&mut reader).and_then(|values| reader.end().map(|()| values));
        match (values, problem) {
            (_, Some(problem)) => Err(problem),
            (Ok(values), None) => Ok(Self { at, about, names, values }),
            (Err(error), None) => Err(ApiError::field(about, &at, &not_json(&error, &at))),
        }
    }

    /// The text of a field; `None` where it is absent or null.
    pub fn raw(&self, name: &'static str) -> Option<&'a RawValue> {
        let index = self.names.iter().position(|one| *one == name)?;
        self.values[index].filter(|value| value.get() != "null")
    }

    /// The pointer of a field.
    pub fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.at)
    }

    /// A text of at most `limit` bytes without control characters.
    pub fn text(&self, name: &'static str, limit: usize) -> Result<Option<Cow<'a, str>>, ApiError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let fits = |text: &Cow<'_, str>| {
            (1..=limit).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        string(raw).filter(fits).map(Some).ok_or_else(|| {
            let text = format!("must be a text of 1 to {limit} bytes without control characters");
            self.error(name, &text)
        })
    }

    /// The same, as a text of its own.
    pub fn owned(&self, name: &'static str, limit: usize) -> Result<Option<String>, ApiError> {
        Ok(self.text(name, limit)?.map(Cow::into_owned))
    }

    /// A whole number from `min` to `max`, written without fraction or exponent.
    pub fn number(&self, name: &'static str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let number = raw.get().parse::<u64>().ok().filter(|number| (min..=max).contains(number));
        number
            .map(Some)
            .ok_or_else(|| self.error(name, &format!("must be a whole number from {min} to {max}")))
    }

    /// `true` or `false`.
    pub fn truth(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        match self.raw(name).map(RawValue::get) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(self.error(name, "must be true or false")),
        }
    }

    /// What is wrong with a field.
    pub fn error(&self, name: &'static str, what: &str) -> ApiError {
        let about = self.about.or(Some(name));
        ApiError::field(about, &self.pointer(name), &format!("`{name}` {what}"))
    }

    /// A field that has to be there.
    pub fn missing(&self, name: &'static str) -> ApiError {
        self.error(name, "is required")
    }
}

/// The text of a JSON string; most have no escapes and need no copy.
fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

fn not_json(error: &serde_json::Error, at: &str) -> String {
    let what = if at.is_empty() { "the body" } else { at };
    if error.is_data() {
        return format!("{what} must be a JSON object");
    }
    format!("{what} is not JSON: line {}, column {}", error.line(), error.column())
}

struct FieldsSeed<'p, const N: usize> {
    at: &'p str,
    about: Option<&'static str>,
    names: &'static [&'static str; N],
    problem: &'p mut Option<ApiError>,
}

impl<'de, const N: usize> DeserializeSeed<'de> for FieldsSeed<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for FieldsSeed<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; N];
        while let Some(found) = map.next_key_seed(NameSeed(self.names))? {
            let problem = match found {
                Ok(index) if values[index].is_none() => {
                    values[index] = Some(map.next_value::<&RawValue>()?);
                    continue;
                }
                Ok(index) => {
                    let name = self.names[index];
                    let pointer = format!("{}/{name}", self.at);
                    let about = self.about.or(Some(name));
                    ApiError::field(about, &pointer, &format!("`{name}` stands twice"))
                }
                Err(name) => {
                    let shown: String = name.chars().take(64).collect();
                    let pointer = format!("{}/{}", self.at, pointer_step(&shown));
                    let known = self.names.join(", ");
                    let text = format!("`{shown}` is not known; known are {known}");
                    ApiError::field(self.about, &pointer, &text)
                }
            };
            map.next_value::<IgnoredAny>()?;
            self.problem.get_or_insert(problem);
        }
        Ok(values)
    }
}

/// A name to its place in the list; an unknown one comes back.
struct NameSeed<const N: usize>(&'static [&'static str; N]);

impl<'de, const N: usize> DeserializeSeed<'de> for NameSeed<N> {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<const N: usize> Visitor<'_> for NameSeed<N> {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|one| *one == name).ok_or_else(|| name.to_owned()))
    }
}

/// A map of names to values that nobody may see; each value is wiped, also where the map is no good.
pub fn secret_map(raw: &RawValue) -> Option<Vec<(String, Secret)>> {
    struct Pairs;
    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, Secret)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(name) = map.next_key()? {
                pairs.push((name, Secret::new(map.next_value::<String>()?)));
            }
            Ok(pairs)
        }
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(Pairs).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str; 3] = &["tool", "wait_ms", "a/b"];

    #[track_caller]
    fn refused(text: &str, field: &str, message: &str) {
        let error = Fields::read(text, "", NAMES).expect_err("it is wrong");
        assert_eq!((error.field.as_deref(), error.message.as_str()), (Some(field), message));
    }

    #[test]
    fn unknown_and_repeated_fields_are_named() {
        refused(r#"{"x/y":1}"#, "/x~1y", "`x/y` is not known; known are tool, wait_ms, a/b");
        refused(r#"{"tool":"a","tool":"b"}"#, "/tool", "`tool` stands twice");
        refused(r#"{"tool":"a","too\u006c":"b"}"#, "/tool", "`tool` stands twice");
    }

    #[test]
    fn what_is_no_object_is_said_with_its_place() {
        refused("[]", "", "the body must be a JSON object");
        refused("7", "", "the body must be a JSON object");
        refused("{\"tool\":\n x}", "", "the body is not JSON: line 2, column 2");
        refused("{} {}", "", "the body is not JSON: line 1, column 4");
        refused("", "", "the body is not JSON: line 1, column 0");
    }

    #[test]
    fn numbers_are_whole_and_bounded() {
        fn fields(text: &str) -> Fields<'_, 3> {
            Fields::read(text, "", NAMES).expect("an object")
        }
        assert_eq!(fields(r#"{"wait_ms":7}"#).number("wait_ms", 0, 10), Ok(Some(7)));
        assert_eq!(fields(r#"{"wait_ms":null}"#).number("wait_ms", 0, 10), Ok(None));
        for bad in ["11", "-1", "1.0", "1e1", "\"7\"", "true", "[]", "99999999999999999999"] {
            let text = format!("{{\"wait_ms\":{bad}}}");
            let error = fields(&text).number("wait_ms", 0, 10).expect_err(bad);
            assert_eq!(error.message, "`wait_ms` must be a whole number from 0 to 10");
        }
    }

    #[test]
    fn texts_are_read_with_their_escapes() {
        let text = |raw: &str| {
            let body = format!("{{\"tool\":{raw}}}");
            let fields = Fields::read(&body, "", NAMES).expect("an object");
            fields.owned("tool", 6).map_err(|error| error.message)
        };
        assert_eq!(text(r#""ab""#), Ok(Some("ab".into())));
        assert_eq!(text(r#""a\u0062\"""#), Ok(Some("ab\"".into())));
        assert_eq!(text("null"), Ok(None));
        for bad in [r#""""#, r#""a\n""#, r#""\ud800""#, r#""1234567""#, "7", "[\"a\"]"] {
            let message = "`tool` must be a text of 1 to 6 bytes without control characters";
            assert_eq!(text(bad), Err(message.into()), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        assert_eq!(read(Body::from("12345"), 5).await, Ok(Bytes::from("12345")));
        let error = read(Body::from("123456"), 5).await.expect_err("too large");
        assert_eq!(error.code, ApiCode::TooLarge);
    }

    #[tokio::test(start_paused = true)]
    async fn f124_a_body_that_never_ends_is_a_timeout() {
        struct Never;
        impl http_body::Body for Never {
            type Data = Bytes;
            type Error = std::convert::Infallible;

            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
                std::task::Poll::Pending
            }
        }
        let error = read(Body::new(Never), 5).await.expect_err("never ends");
        assert_eq!(error.code, ApiCode::RequestTimeout);
    }
}
