//! The tree of a document to serde types: reading goes on after an error, so that all of them are found.
//!
//! A [`Given`] field is where reading goes on: whatever is wrong below it is reported with its position, and the field
//! stays without a value. Keys that a struct does not have are reported and left out.

use std::fmt;

use serde::de::value::{SeqDeserializer, StrDeserializer, UsizeDeserializer};
use serde::de::{self, DeserializeSeed, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use crate::config::finding::Report;
use crate::config::given::{GIVEN, Given, LIST, ONE_OF};
use crate::config::yaml::{Kind, NodeId};

/// Names that a struct will have in a later version: (struct, keys).
pub type Later = [(&'static str, &'static [&'static str])];

/// Structs that hold secrets or say where they are. A key that they do not have may be a secret in the wrong place, so
/// it is not repeated.
const SECRETIVE: &[&str] = &[
    "RawBasic",
    "RawClientCertificate",
    "RawHeader",
    "RawKeyValue",
    "RawOauth2",
    "RawReference",
    "RawSecret",
    "RawToolAuthentication",
];

/// Reads the whole document; what is wrong goes into the report.
pub fn read<T: de::DeserializeOwned>(report: &Report<'_>, later: &Later) -> Given<T> {
    read_part(report, later, &[])
}

/// The same for a document that is a part of another one, in which alone the keys `elsewhere` stand.
pub fn read_part<T: de::DeserializeOwned>(
    report: &Report<'_>,
    later: &Later,
    elsewhere: &[&str],
) -> Given<T> {
    let reader = Reader { report, later, elsewhere, node: report.document.root(), is_item: false };
    Given::deserialize(reader).unwrap_or_default()
}

/// Why a value could not be read: the innermost place that is known, and what is wrong there.
#[derive(Debug)]
struct ReadError {
    node: Option<NodeId>,
    message: String,
}

impl ReadError {
    fn or_at(self, node: NodeId) -> Self {
        Self { node: self.node.or(Some(node)), ..self }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { node: None, message: message.to_string() }
    }

    /// Never says the value: it may be a secret that was put into the wrong place.
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let (found, scalar) = match found {
            Unexpected::Bool(_) => ("a boolean", true),
            Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => {
                ("a number", true)
            }
            Unexpected::Seq => ("a list", false),
            Unexpected::Map | Unexpected::StructVariant => ("a mapping", false),
            Unexpected::Unit | Unexpected::Option => ("nothing", false),
            _ => ("text", false),
        };
        let expected = expected.to_string();
        let expected = match expected.as_str() {
            "a string" => "text",
            "a sequence" => "a list",
            "a map" => "a mapping",
            "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
            "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number, or a negative one",
            "f32" | "f64" => "a number",
            "unit" => "nothing",
            other if other.starts_with("struct ") => "a mapping",
            other => other,
        };
        let hint = if expected == "text" && scalar { ", put it in quotes" } else { "" };
        Self::custom(format_args!("must be {expected}, not {found}{hint}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Signed(_) | Unexpected::Unsigned(_) | Unexpected::Float(_) => {
                Self::custom(format_args!("is outside of what fits here ({expected})"))
            }
            _ => Self::custom(format_args!("must be {expected}")),
        }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::custom(choice(variant, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format_args!("`{field}` is missing"))
    }
}

/// Says which of a few words would be right. What stands there is repeated only where it looks like a misspelt one:
/// else it may be a secret in the wrong place.
pub fn choice(found: &str, expected: &[&str]) -> String {
    let right = listed(expected);
    match nearest(found, expected) {
        Some(_) => format!("must be {right}, not `{found}`"),
        None => format!("must be {right}"),
    }
}

fn listed(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [one] => one.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
        [] => "left out".into(),
    }
}

#[derive(Clone, Copy)]
struct Reader<'de> {
    report: &'de Report<'de>,
    later: &'de Later,
    /// Keys of the outermost mapping that belong into another document.
    elsewhere: &'de [&'de str],
    node: NodeId,
    /// Whether the value is one of a list.
    is_item: bool,
}

impl<'de> Reader<'de> {
    fn kind(self) -> &'de Kind {
        self.report.document.kind(self.node)
    }

    fn at(self, node: NodeId) -> Self {
        Self { node, is_item: false, ..self }
    }

    /// Reports the keys that a struct does not have, and gives the entries that it has.
    fn known(
        self,
        name: &str,
        fields: &[&str],
        entries: &'de [(NodeId, NodeId)],
    ) -> Vec<(NodeId, NodeId)> {
        let is_known = |(key, _): &(NodeId, NodeId)| {
            let text = self.report.document.text(*key).unwrap_or_default();
            if fields.contains(&text) {
                return true;
            }
            let later = self
                .later
                .iter()
                .filter(|(of, _)| *of == name)
                .any(|(_, keys)| keys.contains(&text));
            let elsewhere =
                self.node == self.report.document.root() && self.elsewhere.contains(&text);
            let message = if elsewhere {
                "stands in the main file only, an included file has no say in it".into()
            } else if later {
                "is not supported by this version".into()
            } else {
                match nearest(text, fields) {
                    Some(near) => format!("is not a known key, did you mean `{near}`?"),
                    None if SECRETIVE.contains(&name) => {
                        let message = format!("has another key than {}", listed(fields));
                        self.report.error_inside(self.node, *key, message);
                        return false;
                    }
                    None => "is not a known key".into(),
                }
            };
            self.report.error(*key, message);
            false
        };
        entries.iter().copied().filter(is_known).collect()
    }
}

/// The names that a misspelt one was probably meant to be, the nearest first: three at most.
pub fn near<'f>(found: &str, known: &[&'f str]) -> Vec<&'f str> {
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .map(|name| {
            let is_part = !found.is_empty() && (name.contains(found) || found.contains(*name));
            (if is_part { 1 } else { distance(found, name) }, *name)
        })
        .filter(|(distance, name)| distance * 3 <= name.len())
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The field that a misspelt key was probably meant to be.
fn nearest<'f>(key: &str, fields: &[&'f str]) -> Option<&'f str> {
    let folded = |text: &str| text.to_ascii_lowercase().replace(['-', '_'], "");
    let distances = fields.iter().map(|field| (distance(&folded(key), &folded(field)), *field));
    let (distance, field) = distances.min()?;
    (distance * 3 <= field.len()).then_some(field)
}

/// How many letters differ (Levenshtein), for short texts.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 64 {
        return usize::MAX / 4;
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        for (other, above) in b.iter().zip(&mut row[1..]) {
            let replaced = corner + usize::from(letter != *other);
            corner = *above;
            left = replaced.min(left + 1).min(*above + 1);
            *above = left;
        }
        row[0] = i + 1;
    }
    row.last().copied().unwrap_or(0)
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        let read = match self.kind() {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Float(value, _) => visitor.visit_f64(*value),
            Kind::Integer(value) => match (u64::try_from(*value), i64::try_from(*value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                (Err(error), Err(_)) => Err(de::Error::custom(error)),
            },
            Kind::Text(text) => visitor.visit_borrowed_str(text),
            Kind::List(items) => visitor.visit_seq(Items { reader: self, rest: items.iter() }),
            Kind::Map(entries) => {
                visitor.visit_map(MapEntries { reader: self, rest: entries.iter(), value: None })
            }
        };
        read.map_err(|error| error.or_at(self.node))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.kind() {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match (name, self.kind()) {
            (GIVEN, Kind::Null) if !self.is_item => visitor.visit_none(),
            (GIVEN, _) => {
                visitor.visit_seq(GivenParts { reader: self, first: true, is_list: false })
            }
            (LIST, _) => visitor.visit_seq(GivenParts { reader: self, first: true, is_list: true }),
            (ONE_OF, kind) => {
                let long = matches!(kind, Kind::Map(_));
                visitor.visit_seq(OneOfParts { reader: self, first: Some(long) })
            }
            _ => visitor.visit_newtype_struct(self),
        }
        .map_err(|error| error.or_at(self.node))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let found = match self.kind() {
            Kind::Map(entries) => Ok(entries),
            Kind::List(_) => Err(Unexpected::Seq),
            Kind::Bool(value) => Err(Unexpected::Bool(*value)),
            Kind::Float(..) | Kind::Integer(_) => Err(Unexpected::Float(0.0)),
            Kind::Null => Err(Unexpected::Unit),
            Kind::Text(_) => Err(Unexpected::Str("")),
        };
        let entries = found.map_err(|found| {
            let error: ReadError = de::Error::invalid_type(found, &visitor);
            error.or_at(self.node)
        })?;
        let known = self.known(name, fields, entries);
        visitor
            .visit_map(MapEntries { reader: self, rest: known.iter(), value: None })
            .map_err(|error| error.or_at(self.node))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        let read = match self.kind() {
            Kind::Text(text) => {
                visitor.visit_enum(IntoDeserializer::<ReadError>::into_deserializer(text.as_str()))
            }
            Kind::Map(entries) => match entries.as_slice() {
                [(key, value)] => {
                    visitor.visit_enum(Variant { key: self.at(*key), value: self.at(*value) })
                }
                _ => Err(de::Error::custom(format_args!(
                    "must have one key of {}",
                    variants.join(", ")
                ))),
            },
            kind => {
                let scalar = matches!(kind, Kind::Bool(_) | Kind::Float(..) | Kind::Integer(_));
                let hint = if scalar { ", put it in quotes" } else { "" };
                Err(de::Error::custom(format_args!("must be {}{hint}", listed(variants))))
            }
        };
        read.map_err(|error| error.or_at(self.node))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Items<'de> {
    reader: Reader<'de>,
    rest: std::slice::Iter<'de, NodeId>,
}

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let item = self.rest.next();
        let reader = item.map(|item| Reader { is_item: true, ..self.reader.at(*item) });
        reader.map(|reader| seed.deserialize(reader)).transpose()
    }
}

struct MapEntries<'de, 'e> {
    reader: Reader<'de>,
    rest: std::slice::Iter<'e, (NodeId, NodeId)>,
    value: Option<NodeId>,
}

impl<'de> de::MapAccess<'de> for MapEntries<'de, '_> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(*value);
        seed.deserialize(self.reader.at(*key)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("a value before its key"))?;
        seed.deserialize(self.reader.at(value))
    }
}

/// The parts of a [`Given`]. A value that cannot be read is reported here, and reading goes on.
struct GivenParts<'de> {
    reader: Reader<'de>,
    first: bool,
    is_list: bool,
}

impl<'de> de::SeqAccess<'de> for GivenParts<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        if std::mem::take(&mut self.first) {
            let index: UsizeDeserializer<ReadError> = self.reader.node.index().into_deserializer();
            return seed.deserialize(index).map(Some);
        }
        let read = match (self.reader.kind(), self.is_list) {
            (Kind::Null, true) => seed.deserialize(SeqDeserializer::new(std::iter::empty::<()>())),
            (Kind::Null, false) => {
                Err(de::Error::custom("is empty, write a value or take the item out"))
            }
            _ => seed.deserialize(self.reader),
        };
        let report = |error: ReadError| {
            self.reader.report.error(error.node.unwrap_or(self.reader.node), error.message);
        };
        Ok(read.map_err(report).ok())
    }
}

struct OneOfParts<'de> {
    reader: Reader<'de>,
    first: Option<bool>,
}

impl<'de> de::SeqAccess<'de> for OneOfParts<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        match self.first.take() {
            Some(long) => {
                seed.deserialize(IntoDeserializer::<ReadError>::into_deserializer(long)).map(Some)
            }
            None => seed.deserialize(self.reader).map(Some),
        }
    }
}

/// A mapping of one key: the name of a variant and what it holds.
struct Variant<'de> {
    key: Reader<'de>,
    value: Reader<'de>,
}

impl<'de> de::EnumAccess<'de> for Variant<'de> {
    type Error = ReadError;
    type Variant = Reader<'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Reader<'de>), ReadError> {
        let name = self.key.report.document.text(self.key.node).unwrap_or_default();
        let name: StrDeserializer<'_, ReadError> = name.into_deserializer();
        seed.deserialize(name)
            .map(|variant| (variant, self.value))
            .map_err(|error| error.or_at(self.key.node))
    }
}

impl<'de> de::VariantAccess<'de> for Reader<'de> {
    type Error = ReadError;

    fn unit_variant(self) -> Result<(), ReadError> {
        Deserialize::deserialize(self)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ReadError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ReadError> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests;
