//! The part of JSON Schema that model providers agree on; everything else is refused by name.

use serde_json::{Map, Value};

use crate::model::json::pointer_step;

/// What a schema holds beyond the subset, as pairs of JSON pointer and message.
pub fn faults(schema: &Value) -> Vec<(String, String)> {
    let mut faults = Faults(Vec::new());
    faults.node(schema, "", true);
    faults.0
}

/// Types and the keywords that each of them may have besides `type` and `description`.
const TYPES: &[(&str, &[&str])] = &[
    ("array", &["items"]),
    ("boolean", &[]),
    ("integer", &[]),
    ("number", &[]),
    ("object", &["properties", "required"]),
    ("string", &["enum"]),
];

struct Faults(Vec<(String, String)>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.0.push((pointer.into(), message.into()));
    }

    /// One schema; nested ones come back here. The depth was bounded before.
    fn node(&mut self, schema: &Value, at: &str, top: bool) {
        let Some(schema) = schema.as_object() else {
            return self.add(at, "must be an object with `type`");
        };
        let Some(allowed) = self.keywords(schema, at, top) else {
            return;
        };
        for (keyword, value) in schema {
            let here = format!("{at}/{}", pointer_step(keyword));
            match keyword.as_str() {
                "type" => {}
                "description" if value.is_string() => {}
                "description" => self.add(here, "must be a string"),
                keyword if !allowed.contains(&keyword) => self.unknown(here, keyword),
                "enum" => self.choices(value, &here),
                "items" => self.node(value, &here, false),
                "properties" => self.properties(value, &here),
                // Only `required` is left.
                _ => self.required(value, schema.get("properties"), &here),
            }
        }
    }

    /// The keywords that the type of this schema allows; `None` where it has no such type.
    fn keywords(
        &mut self,
        schema: &Map<String, Value>,
        at: &str,
        top: bool,
    ) -> Option<&'static [&'static str]> {
        let here = format!("{at}/type");
        let Some(name) = schema.get("type") else {
            self.add(at, "must have `type`");
            return None;
        };
        let found = TYPES.iter().find(|(known, _)| name.as_str() == Some(*known));
        match found {
            Some(("object", keywords)) if top => Some(keywords),
            _ if top => {
                self.add(here, "must be \"object\": arguments are an object");
                None
            }
            Some((_, keywords)) => Some(keywords),
            None => {
                let names: Vec<_> = TYPES.iter().map(|(name, _)| *name).collect();
                self.add(here, format!("must be one of {}", names.join(", ")));
                None
            }
        }
    }

    fn unknown(&mut self, here: String, keyword: &str) {
        let of = TYPES.iter().find(|(_, keywords)| keywords.contains(&keyword));
        self.add(
            here,
            match of {
                Some((name, _)) => format!("only type {name} takes this keyword"),
                None => "this profile does not take this keyword".to_owned(),
            },
        );
    }

    fn choices(&mut self, value: &Value, here: &str) {
        match value.as_array() {
            Some(choices) if !choices.is_empty() => {
                for (index, _) in choices.iter().enumerate().filter(|(_, item)| !item.is_string()) {
                    self.add(format!("{here}/{index}"), "must be a string");
                }
            }
            _ => self.add(here, "must be a list of strings, at least one"),
        }
    }

    fn properties(&mut self, value: &Value, here: &str) {
        let Some(properties) = value.as_object() else {
            return self.add(here, "must be an object of schemas");
        };
        for (name, schema) in properties {
            self.node(schema, &format!("{here}/{}", pointer_step(name)), false);
        }
    }

    fn required(&mut self, value: &Value, properties: Option<&Value>, here: &str) {
        let Some(names) = value.as_array() else {
            return self.add(here, "must be a list of property names");
        };
        for (index, name) in names.iter().enumerate() {
            let here = format!("{here}/{index}");
            match name.as_str() {
                None => self.add(here, "must be a string"),
                Some(_) if names.iter().take(index).any(|other| other == name) => {
                    self.add(here, "stands twice");
                }
                Some(name) if properties.and_then(|known| known.get(name)).is_none() => {
                    self.add(here, format!("there is no property `{name}`"));
                }
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
