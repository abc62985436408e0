//! Shapes of values in the file: absent or given, short or long, named entries.
//!
//! They are read by the deserialiser of `read.rs` only, which knows their marker names.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::config::yaml::NodeId;

/// Marks a [`Given`] to the deserialiser.
pub const GIVEN: &str = "$given";
/// Marks a [`List`] to the deserialiser.
pub const LIST: &str = "$list";
/// Marks a [`OneOf`] to the deserialiser.
pub const ONE_OF: &str = "$one_of";

/// A value of the file that may be absent (or null), or wrong and already reported.
#[derive(Debug, Clone)]
pub struct Given<T> {
    node: Option<NodeId>,
    value: Option<T>,
}

impl<T> Given<T> {
    /// The value, unless it is absent or wrong.
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// The value with its place, unless it is absent or wrong.
    pub fn found(&self) -> Option<(&T, NodeId)> {
        self.value.as_ref().zip(self.node)
    }

    /// Its place, unless it is absent.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }
}

impl<T> Default for Given<T> {
    fn default() -> Self {
        Self { node: None, value: None }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Given<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(GIVEN, GivenVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Given<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

/// The parts arrive as a sequence: the place, then the value where it could be read.
struct GivenVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for GivenVisitor<T> {
    type Value = Given<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Given::default())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let node = parts.next_element()?.map(NodeId::from_index);
        Ok(Given { node, value: parts.next_element()? })
    }
}

/// A list of the file. Nothing under its key is the empty list, as after all items were commented out: it must not
/// read as if the key were absent. An item without a value is an error.
#[derive(Debug, Clone)]
pub struct List<T>(Given<Vec<Given<T>>>);

impl<T> Deref for List<T> {
    type Target = Given<Vec<Given<T>>>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Given::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(LIST, GivenVisitor(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Vec::<T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<T>::json_schema(generator)
    }
}

/// A value with a short form, a scalar, and a long one, a mapping.
#[derive(Debug, Clone)]
pub enum OneOf<S, L> {
    /// The scalar.
    Short(S),
    /// The mapping.
    Long(L),
}

impl<'de, S: Deserialize<'de>, L: Deserialize<'de>> Deserialize<'de> for OneOf<S, L> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(ONE_OF, OneOfVisitor(PhantomData))
    }
}

impl<S: JsonSchema, L: JsonSchema> JsonSchema for OneOf<S, L> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_{}", S::schema_name(), L::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [generator.subschema_for::<S>(), generator.subschema_for::<L>()]
        })
    }
}

/// The parts arrive as a sequence: whether it is the long form, then the value.
struct OneOfVisitor<S, L>(PhantomData<(S, L)>);

impl<'de, S: Deserialize<'de>, L: Deserialize<'de>> Visitor<'de> for OneOfVisitor<S, L> {
    type Value = OneOf<S, L>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar or a mapping")
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let absent = || de::Error::custom("has no value");
        if parts.next_element()?.ok_or_else(absent)? {
            Ok(OneOf::Long(parts.next_element()?.ok_or_else(absent)?))
        } else {
            Ok(OneOf::Short(parts.next_element()?.ok_or_else(absent)?))
        }
    }
}

/// The entries of a mapping whose keys are names, in the order of the file.
#[derive(Debug, Clone)]
pub struct Entries<T>(pub Vec<(String, Given<T>)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Entries_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "additionalProperties": generator.subschema_for::<T>()})
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}
