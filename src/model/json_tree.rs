//! JSON as a tree that keeps the order of keys and the text of numbers.

use std::fmt;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tree {
    /// An array.
    List(Vec<Tree>),
    /// An object, in its order.
    Map(Vec<(String, Tree)>),
    /// A text.
    Text(String),
    /// A number as it is written, `true`, `false` or `null`.
    Word(String),
}

impl Tree {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// `true` or `false`.
    pub fn truth(truth: bool) -> Self {
        Self::Word(truth.to_string())
    }

    /// An object of these entries.
    pub fn map<const N: usize>(entries: [(&str, Tree); N]) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Reads a text that is JSON, whose depth was bounded before; `None` where it is none.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The entries of an object; none of anything else.
    pub fn entries(&self) -> &[(String, Self)] {
        match self {
            Self::Map(entries) => entries,
            Self::List(_) | Self::Text(_) | Self::Word(_) => &[],
        }
    }

    /// The items of an array; none of anything else.
    pub fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            Self::Map(_) | Self::Text(_) | Self::Word(_) => &[],
        }
    }

    /// The text of a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::List(_) | Self::Map(_) | Self::Word(_) => None,
        }
    }

    /// The value under a key, which is put at the end where it is not there.
    pub fn set(&mut self, key: &str, value: Self) {
        let Self::Map(entries) = self else { return };
        match entries.iter_mut().find(|(name, _)| name == key) {
            Some((_, place)) => *place = value,
            None => entries.push((key.to_owned(), value)),
        }
    }

    /// Compact JSON.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
            Self::Text(text) => write_text(text, out),
            Self::Word(word) => out.push_str(word),
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::to_string(text).expect("a text is JSON"));
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(reader)?.get();
        let read = match raw.as_bytes().first() {
            Some(b'{') => serde_json::Deserializer::from_str(raw).deserialize_map(TreeVisitor),
            Some(b'[') => serde_json::Deserializer::from_str(raw).deserialize_seq(TreeVisitor),
            Some(b'"') => serde_json::from_str(raw).map(Self::Text),
            _ => Ok(Self::Word(raw.to_owned())),
        };
        read.map_err(de::Error::custom)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_the_same_but_for_white_space() {
        let text = r#"{"b": [1e2, -0.50, 12345678901234567890], "a": {"\u00e9\n": "\u2028", "": null}, "c": [true, {}, []]}"#;
        let compact = "{\"b\":[1e2,-0.50,12345678901234567890],\"a\":{\"é\\n\":\"\u{2028}\",\"\":null},\"c\":[true,{},[]]}";
        let tree = Tree::read(text).expect("JSON");
        assert_eq!(tree.to_json(), compact);
        assert_eq!(Tree::read(compact).as_ref(), Some(&tree));
        assert_eq!(tree.get("c").expect("a value").items().len(), 3);
        assert_eq!(Tree::read("{\"a\":}"), None);
    }
}
