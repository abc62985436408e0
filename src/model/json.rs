//! Reading JSON so that what is checked is what is sent: no duplicate keys, bounded depth, compact text.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use crate::model::call::Arguments;
use crate::model::number::Rounded;

/// Levels of arrays and objects that arguments may have: more than any honest call needs.
pub const MAX_DEPTH: usize = 64;

/// Why a text is not taken as JSON. Never holds a value of the document, only keys and places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The same key stands twice in one object.
    #[error("the key at `{pointer}` stands twice")]
    DuplicateKey {
        /// JSON pointer of the key.
        pointer: String,
    },
    /// The document is JSON, but no object.
    #[error("must be a JSON object")]
    NotAnObject,
    /// It is not JSON, or holds a number that no double can hold.
    #[error("not valid JSON: {message}")]
    Syntax {
        /// What is wrong and where.
        message: String,
    },
    /// Arrays and objects are nested too deeply.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
}

impl JsonError {
    /// JSON pointer of what is wrong; empty for the whole document.
    pub fn pointer(&self) -> &str {
        match self {
            Self::DuplicateKey { pointer } => pointer,
            Self::NotAnObject | Self::Syntax { .. } | Self::TooDeep { .. } => "",
        }
    }
}

/// Reads the arguments of a call: value and compact text of the same bytes.
pub fn read_object(raw: &str) -> Result<Arguments, JsonError> {
    let (value, has_doubles) = parse(raw)?;
    if !value.is_object() {
        return Err(JsonError::NotAnObject);
    }
    // Whole numbers of 64 bits and texts are never rounded, so most calls are not searched.
    let rounded = if has_doubles { rounded(raw) } else { Vec::new() };
    Ok(Arguments { text: compact(raw), value, rounded })
}

/// Reads any document; duplicate keys are refused at every depth.
pub fn read_value(raw: &str) -> Result<Value, JsonError> {
    parse(raw).map(|(value, _)| value)
}

/// The document, and whether a number of it was read as a double.
fn parse(raw: &str) -> Result<(Value, bool), JsonError> {
    // Before the parser, whose own error for this case has no name.
    if is_deeper(raw, MAX_DEPTH) {
        return Err(JsonError::TooDeep { limit: MAX_DEPTH });
    }
    let (mut path, mut has_doubles) = (Vec::new(), false);
    let mut parser = serde_json::Deserializer::from_str(raw);
    let read = UniqueKeys { path: &mut path, has_doubles: &mut has_doubles }
        .deserialize(&mut parser)
        .and_then(|value| parser.end().map(|()| value));
    let read = read.map(|value| (value, has_doubles));
    read.map_err(|error| {
        if path.is_empty() {
            return JsonError::Syntax { message: error.to_string() };
        }
        let pointer = path.iter().rev().flat_map(|step| ["/", step]).collect();
        JsonError::DuplicateKey { pointer }
    })
}

/// Refuses a document that is not JSON or has a duplicate key anywhere.
pub fn check_unique_keys(raw: &str) -> Result<(), JsonError> {
    read_value(raw).map(drop)
}

/// Whether a text is nested deeper than this. Few texts have brackets enough, which is quickly seen.
pub fn is_deeper(text: &str, limit: usize) -> bool {
    // Counted in single bytes, which the compiler does for many of them at once.
    let parts = text.as_bytes().chunks(usize::from(u8::MAX));
    let opening: usize = parts.map(|part| usize::from(opening_brackets(part))).sum();
    opening > limit && measure(text).depth > limit
}

/// Of 255 bytes at the most.
fn opening_brackets(part: &[u8]) -> u8 {
    part.iter().map(|byte| u8::from(matches!(byte, b'[' | b'{'))).sum()
}

/// How large a document is, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Levels of arrays and objects.
    pub depth: usize,
    /// Values and keys; a little more than there are.
    pub values: usize,
}

/// Measures a text, which need not be JSON.
pub fn measure(text: &str) -> Extent {
    let (mut level, mut extent) = (0_usize, Extent { depth: 0, values: 1 });
    let mut scan = Scan::default();
    for byte in text.bytes() {
        if scan.outside_string(byte) {
            match byte {
                b'[' | b'{' => {
                    level += 1;
                    extent.depth = extent.depth.max(level);
                    extent.values += 1;
                }
                b',' | b':' => extent.values += 1,
                b']' | b'}' => level = level.saturating_sub(1),
                _ => {}
            }
        }
    }
    extent
}

/// The key that a step of a JSON pointer stands for.
pub fn pointer_name(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// The key as a step of a JSON pointer.
pub fn pointer_step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The numbers of a text that a double holds less exactly than the text says. The text is JSON and no number alone.
fn rounded(raw: &str) -> Vec<Rounded> {
    let is_part =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    let (mut found, mut begin) = (Vec::new(), None);
    let mut scan = Scan::default();
    for (at, byte) in raw.bytes().enumerate() {
        match (scan.outside_string(byte) && is_part(byte), begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                found.extend(raw.get(from..at).and_then(Rounded::read));
                begin = None;
            }
            _ => {}
        }
    }
    found
}

/// Removes white space outside strings from a text that is JSON.
fn compact(raw: &str) -> Bytes {
    let is_space = |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let mut kept = Vec::with_capacity(raw.len());
    let mut scan = Scan::default();
    let mut begin = 0;
    for (at, byte) in raw.bytes().enumerate() {
        if scan.outside_string(byte) && is_space(byte) {
            kept.extend_from_slice(raw.as_bytes().get(begin..at).unwrap_or_default());
            begin = at + 1;
        }
    }
    kept.extend_from_slice(raw.as_bytes().get(begin..).unwrap_or_default());
    Bytes::from(kept)
}

/// Tells strings from the rest while the bytes of a document pass by.
#[derive(Default)]
struct Scan {
    in_string: bool,
    escaped: bool,
}

impl Scan {
    /// Takes the next byte; true when it belongs to no string and is no quote.
    fn outside_string(&mut self, byte: u8) -> bool {
        if !self.in_string {
            self.in_string = byte == b'"';
            return !self.in_string;
        }
        if self.escaped {
            self.escaped = false;
        } else {
            self.escaped = byte == b'\\';
            self.in_string = byte != b'"';
        }
        false
    }
}

/// Builds a value as `serde_json` does, but stops at a duplicate key.
struct UniqueKeys<'a> {
    /// The steps to the duplicate key, from the inside out; empty until there is one.
    path: &'a mut Vec<String>,
    /// Set when a number is read as a double.
    has_doubles: &'a mut bool,
}

impl UniqueKeys<'_> {
    /// The same place to report to, for one nested value.
    fn nested(&mut self) -> UniqueKeys<'_> {
        UniqueKeys { path: self.path, has_doubles: self.has_doubles }
    }

    /// Adds a step to the path of a duplicate that was found further in.
    fn step(&mut self, step: impl FnOnce() -> String) {
        if !self.path.is_empty() {
            self.path.push(step());
        }
    }
}

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, parser: D) -> Result<Value, D::Error> {
        parser.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        *self.has_doubles = true;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            match items.next_element_seed(self.nested()) {
                Ok(Some(item)) => list.push(item),
                Ok(None) => return Ok(Value::Array(list)),
                Err(error) => {
                    self.step(|| list.len().to_string());
                    return Err(error);
                }
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let slot = match object.entry(key) {
                Entry::Vacant(slot) => slot,
                Entry::Occupied(slot) => {
                    self.path.push(pointer_step(slot.key()));
                    return Err(A::Error::custom("duplicate key"));
                }
            };
            match members.next_value_seed(self.nested()) {
                Ok(value) => slot.insert(value),
                Err(error) => {
                    self.step(|| pointer_step(slot.key()));
                    return Err(error);
                }
            };
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests;
