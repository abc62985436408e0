//! A value that fits a JSON Schema, as an example for people. It is a guess: whoever shows it checks it first.

use std::cell::Cell;

use serde_json::{Map, Number, Value};

/// Below this depth only what is required is made.
const DEPTH: usize = 4;
/// Schemas that are visited: several of them lead to each other in more ways than anybody could wait for.
const LARGEST: usize = 2000;
/// No schema that fits into a configuration is deeper where it does not lead back to itself.
const DEEPEST: usize = 64;
/// Items and characters are not made up beyond this.
const MOST: u64 = 1000;

/// How much of an object is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Every property that is described.
    Full,
    /// Those that are required.
    Required,
}

/// A value for the schema; `None` where it leads nowhere.
pub fn sample(schema: &Value, extent: Extent) -> Option<Value> {
    Maker { root: schema, extent, left: Cell::new(LARGEST) }.value(schema, 0)
}

struct Maker<'s> {
    root: &'s Value,
    extent: Extent,
    /// How many schemas may still be visited.
    left: Cell<usize>,
}

impl Maker<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Option<Value> {
        let left = self.left.get().checked_sub(1).filter(|_| depth <= DEEPEST)?;
        self.left.set(left);
        let schema = match schema {
            Value::Object(schema) => schema,
            Value::Bool(true) => return Some(Value::String("text".into())),
            _ => return None,
        };
        for keyword in ["const", "default"] {
            if let Some(value) = schema.get(keyword) {
                return Some(value.clone());
            }
        }
        for keyword in ["examples", "enum"] {
            if let Some(value) =
                schema.get(keyword).and_then(Value::as_array).and_then(|all| all.first())
            {
                return Some(value.clone());
            }
        }
        let mut schema = schema.clone();
        if let Some(reference) = schema.remove("$ref") {
            let target = self.target(reference.as_str()?)?;
            if schema.is_empty() {
                return self.value(target, depth + 1);
            }
            merge(&mut schema, target);
        }
        for part in take_list(&mut schema, "allOf") {
            merge(&mut schema, &self.followed(part, 0)?);
        }
        for keyword in ["anyOf", "oneOf"] {
            let parts = take_list(&mut schema, keyword);
            if parts.is_empty() {
                continue;
            }
            return parts.iter().find_map(|part| {
                let mut one = schema.clone();
                merge(&mut one, &self.followed(part.clone(), 0)?);
                self.value(&Value::Object(one), depth + 1)
            });
        }
        match type_of(&schema) {
            "array" => self.array(&schema, depth),
            "boolean" => Some(Value::Bool(true)),
            "integer" => number(&schema, true),
            "null" => Some(Value::Null),
            "number" => number(&schema, false),
            "object" => self.object(&schema, depth),
            _ => string(&schema),
        }
    }

    /// Where a reference within the document leads.
    fn target(&self, reference: &str) -> Option<&Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    fn followed(&self, schema: Value, hops: usize) -> Option<Value> {
        match schema.get("$ref").and_then(Value::as_str) {
            Some(reference) if hops < DEPTH => {
                self.followed(self.target(reference)?.clone(), hops + 1)
            }
            Some(_) => None,
            None => Some(schema),
        }
    }

    fn object(&self, schema: &Map<String, Value>, depth: usize) -> Option<Value> {
        let none = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .map(|all| all.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let mut object = Map::new();
        for (name, property) in properties {
            let is_required = required.contains(&name.as_str());
            if is_required || (self.extent == Extent::Full && depth < DEPTH) {
                match self.value(property, depth + 1) {
                    Some(value) => {
                        object.insert(name.clone(), value);
                    }
                    None if is_required => return None,
                    None => {}
                }
            }
        }
        for name in required {
            object.entry(name).or_insert_with(|| Value::String("text".into()));
        }
        Some(Value::Object(object))
    }

    fn array(&self, schema: &Map<String, Value>, depth: usize) -> Option<Value> {
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let wanted =
            if self.extent == Extent::Full && depth < DEPTH { least.max(1) } else { least };
        let count = usize::try_from(wanted.min(most)).ok().filter(|_| wanted <= MOST)?;
        let prefix = schema.get("prefixItems").and_then(Value::as_array);
        let prefix = prefix.map(Vec::as_slice).unwrap_or_default();
        let any = Value::Bool(true);
        let items = schema.get("items").unwrap_or(&any);
        let each = (0..count).map(|at| self.value(prefix.get(at).unwrap_or(items), depth + 1));
        each.collect::<Option<Vec<_>>>().map(Value::Array)
    }
}

fn take_list(schema: &mut Map<String, Value>, keyword: &str) -> Vec<Value> {
    match schema.remove(keyword) {
        Some(Value::Array(parts)) => parts,
        _ => Vec::new(),
    }
}

/// Adds what the other schema says: properties and required names are joined, else the first word stands.
fn merge(schema: &mut Map<String, Value>, other: &Value) {
    let Some(other) = other.as_object() else { return };
    for (keyword, value) in other {
        match (schema.get_mut(keyword), value) {
            (None, value) => {
                schema.insert(keyword.clone(), value.clone());
            }
            (Some(Value::Object(own)), Value::Object(more)) if keyword == "properties" => {
                for (name, property) in more {
                    own.entry(name).or_insert_with(|| property.clone());
                }
            }
            (Some(Value::Array(own)), Value::Array(more)) if keyword == "required" => {
                own.extend(more.iter().cloned());
            }
            (Some(_), _) => {}
        }
    }
}

/// The first type that is named and is not null, or the one that the keywords speak of.
fn type_of(schema: &Map<String, Value>) -> &str {
    let named = match schema.get("type") {
        Some(Value::String(name)) => Some(name.as_str()),
        Some(Value::Array(names)) => {
            let mut names = names.iter().filter_map(Value::as_str);
            names.clone().find(|name| *name != "null").or_else(|| names.next())
        }
        _ => None,
    };
    let speaks_of = |words: &[&str]| words.iter().any(|word| schema.contains_key(*word));
    named.unwrap_or_else(|| {
        if speaks_of(&["properties", "required", "additionalProperties"]) {
            "object"
        } else if speaks_of(&["items", "prefixItems", "minItems", "maxItems"]) {
            "array"
        } else if speaks_of(&["minimum", "maximum", "exclusiveMinimum", "multipleOf"]) {
            "number"
        } else {
            "string"
        }
    })
}

fn number(schema: &Map<String, Value>, whole: bool) -> Option<Value> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let step = bound("multipleOf").filter(|step| *step > 0.0);
    let step = step.unwrap_or(if whole { 1.0 } else { 0.5 });
    let least = match (bound("minimum"), bound("exclusiveMinimum")) {
        (one, Some(other)) if one.is_none_or(|one| other >= one) => {
            Some((other / step).floor() * step + step)
        }
        (one, _) => one.map(|one| (one / step).ceil() * step),
    };
    let most = match (bound("maximum"), bound("exclusiveMaximum")) {
        (one, Some(other)) if one.is_none_or(|one| other <= one) => {
            Some((other / step).ceil() * step - step)
        }
        (one, _) => one.map(|one| (one / step).floor() * step),
    };
    let usual = if whole { step } else { step * 3.0 };
    let value = match (least, most) {
        (Some(least), _) if least > usual => least,
        (_, Some(most)) if most < usual => most,
        _ => usual,
    };
    if whole && value.fract() == 0.0 {
        return format!("{value:.0}").parse::<Number>().ok().map(Value::Number);
    }
    Number::from_f64(value).map(Value::Number)
}

fn string(schema: &Map<String, Value>) -> Option<Value> {
    let length = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        return crate::policy::sample_pattern::text(pattern).map(Value::String);
    }
    let of_format = match schema.get("format").and_then(Value::as_str) {
        Some("date") => Some("2026-10-30"),
        Some("date-time") => Some("2026-10-30T09:55:02Z"),
        Some("duration") => Some("PT1H"),
        Some("email" | "idn-email") => Some("person@example.com"),
        Some("hostname" | "idn-hostname") => Some("host.example.com"),
        Some("ipv4") => Some("192.0.2.1"),
        Some("ipv6") => Some("2001:db8::1"),
        Some("time") => Some("09:55:02Z"),
        Some("uri" | "uri-reference" | "iri" | "iri-reference") => Some("https://example.com/"),
        Some("uuid") => Some("0193b1e2-6c1d-7a4e-9f20-5d8a3c2b1e07"),
        _ => None,
    };
    if let Some(text) = of_format {
        return Some(Value::String(text.into()));
    }
    let least = length("minLength").unwrap_or(0);
    let most = length("maxLength").unwrap_or(u64::MAX);
    let mut text = "text".to_owned();
    while u64::try_from(text.len()).is_ok_and(|length| length < least) {
        if least > MOST {
            return None;
        }
        text.push('x');
    }
    let kept = usize::try_from(most).unwrap_or(usize::MAX);
    text.truncate(kept);
    Some(Value::String(text))
}

#[cfg(test)]
mod tests;
