//! Parameters as Gemini takes them: a part of OpenAPI 3.0's schema, in which every value has one type.
//!
//! There are no references, so each is replaced by what it names; a schema that holds itself ends where it begins again.

use crate::model::json_tree::Tree;
use crate::policy::export::root::{Parts, Walk, object, with_names};

/// Schemas that are written at most: references multiply.
const MOST_SCHEMAS: usize = 2000;
/// How deep schemas are written.
const DEEPEST: usize = 32;
/// Bytes of a parameter's name.
const NAME_BYTES: usize = 64;

/// Keywords of a type that are taken as they are.
const KEYWORDS: &[(&str, &[&str])] = &[
    ("array", &["minItems", "maxItems"]),
    ("boolean", &[]),
    ("integer", &["minimum", "maximum"]),
    ("number", &["minimum", "maximum"]),
    ("object", &["minProperties", "maxProperties"]),
    ("string", &["minLength", "maxLength", "pattern"]),
];
/// Formats that are taken.
const FORMATS: &[(&str, &[&str])] = &[
    ("integer", &["int32", "int64"]),
    ("number", &["double", "float"]),
    ("string", &["date-time"]),
];
/// By which keywords a type is told that nobody named.
const TELLING: &[(&str, &[&str])] = &[
    ("object", &["additionalProperties", "maxProperties", "minProperties", "patternProperties"]),
    ("array", &["items", "maxItems", "minItems", "prefixItems", "uniqueItems"]),
    ("string", &["format", "maxLength", "minLength", "pattern"]),
    ("number", &["exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"]),
];
/// What anything may be; an array would have to say what is in it.
const ANYTHING: &[&str] = &["string", "number", "boolean", "object"];

/// The parameters; none where the tool takes none.
pub(super) fn parameters(given: Option<&Tree>) -> Option<Tree> {
    let schema = with_names(object(given), is_name);
    if schema.get("properties").is_none_or(|properties| properties.entries().is_empty()) {
        return None;
    }
    let mut writer = Writer { walk: Walk::of(given?), written: 0, depth: 0 };
    writer.schema(&schema)
}

fn is_name(name: &str) -> bool {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let goes_on = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    begins && goes_on && name.len() <= NAME_BYTES
}

struct Writer<'t> {
    walk: Walk<'t>,
    written: usize,
    depth: usize,
}

impl Writer<'_> {
    /// A schema in the provider's words; `None` where nothing fits it.
    fn schema(&mut self, schema: &Tree) -> Option<Tree> {
        if *schema == Tree::truth(false) {
            return None;
        }
        let mark = self.walk.mark();
        let mut parts = Parts::default();
        parts.take(&mut self.walk, schema);
        self.written += 1;
        self.depth += 1;
        let written = self.parts(&mut parts);
        self.depth -= 1;
        self.walk.back(mark);
        Some(written)
    }

    fn parts(&mut self, parts: &mut Parts) -> Tree {
        let (types, mut nullable) = types(parts);
        let kinds: Vec<&str> = match types.as_slice() {
            [] => told(parts).into_iter().collect(),
            types => types.iter().map(String::as_str).collect(),
        };
        let mut alternatives: Vec<Tree> = match kinds.as_slice() {
            ["object"] => {
                parts.join(&mut self.walk);
                return self.one("object", parts, nullable);
            }
            [only] => return self.one(only, parts, nullable),
            [] => {
                let given =
                    ["anyOf", "oneOf"].into_iter().find_map(|key| parts.other(key).cloned());
                let given = given.as_ref().map_or(&[][..], Tree::items);
                nullable |= given.iter().any(is_null);
                given
                    .iter()
                    .filter(|one| !is_null(one))
                    .filter_map(|one| self.schema(one))
                    .collect()
            }
            several => several.iter().map(|kind| self.one(kind, parts, false)).collect(),
        };
        if alternatives.is_empty() {
            let kinds =
                if nullable && parts.other("type").is_some() { &ANYTHING[..1] } else { ANYTHING };
            alternatives =
                kinds.iter().map(|kind| self.one(kind, &Parts::default(), false)).collect();
        }
        // Beside `anyOf` nothing else may stand, so each alternative has what was said about all of them, and those of an
        // alternative are alternatives.
        alternatives = alternatives.into_iter().flat_map(alone).collect();
        for alternative in &mut alternatives {
            if nullable {
                alternative.set("nullable", Tree::truth(true));
            }
            let description = parts.other("description").filter(|text| text.as_text().is_some());
            if let Some(description) = description
                && alternative.get("description").is_none()
            {
                alternative.set("description", description.clone());
            }
        }
        match alternatives.as_slice() {
            [only] => only.clone(),
            _ => Tree::map([("anyOf", Tree::List(alternatives))]),
        }
    }

    /// A value of one type.
    fn one(&mut self, kind: &str, parts: &Parts, nullable: bool) -> Tree {
        let mut schema = Tree::map([("type", Tree::text(kind))]);
        for key in ["title", "description"] {
            if let Some(text) = parts.other(key).filter(|text| text.as_text().is_some()) {
                schema.set(key, text.clone());
            }
        }
        if nullable {
            schema.set("nullable", Tree::truth(true));
        }
        let format = parts.other("format").and_then(Tree::as_text);
        if let Some(format) = format.filter(|format| of(FORMATS, kind).contains(format)) {
            schema.set("format", Tree::text(format));
        }
        for key in of(KEYWORDS, kind) {
            if let Some(value) = parts.other(key) {
                schema.set(key, value.clone());
            }
        }
        match kind {
            "string" => {
                if let Some(choices) = choices(parts) {
                    schema.set("enum", choices);
                }
            }
            "array" => {
                let items = if self.has_room() { self.items(parts) } else { None };
                let items = items.unwrap_or_else(|| Tree::map([("type", Tree::text("string"))]));
                schema.set("items", items);
            }
            "object" if self.has_room() => {
                let properties = parts
                    .properties
                    .iter()
                    .filter_map(|(name, property)| Some((name.clone(), self.schema(property)?)));
                let properties: Vec<_> = properties.collect();
                let known = |name: &&String| properties.iter().any(|(other, _)| other == *name);
                let required = parts.required.iter().filter(known).map(Tree::text).collect();
                if !properties.is_empty() {
                    schema.set("properties", Tree::Map(properties));
                }
                if required != Tree::List(Vec::new()).items() {
                    schema.set("required", Tree::List(required));
                }
            }
            _ => {}
        }
        schema
    }

    /// What is in an array: something has to be said.
    fn items(&mut self, parts: &Parts) -> Option<Tree> {
        if let Some(items) = parts.other("items").filter(|items| matches!(items, Tree::Map(_))) {
            return self.schema(items);
        }
        let mut items: Vec<Tree> = Vec::new();
        for item in parts.other("prefixItems").map_or(&[][..], Tree::items) {
            items.extend(self.schema(item).filter(|item| !items.contains(item)));
        }
        match items.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            _ => Some(Tree::map([("anyOf", Tree::List(items))])),
        }
    }

    fn has_room(&self) -> bool {
        self.written < MOST_SCHEMAS && self.depth < DEEPEST
    }
}

fn of<'a>(table: &[(&str, &'a [&'a str])], kind: &str) -> &'a [&'a str] {
    table.iter().find(|(name, _)| *name == kind).map_or(&[], |(_, words)| words)
}

/// The types that are named, without null, and whether null is among them.
fn types(parts: &Parts) -> (Vec<String>, bool) {
    let given = parts.other("type");
    let named = given.map_or(&[][..], |given| match given {
        Tree::List(names) => names,
        one => std::slice::from_ref(one),
    });
    let values = parts.other("enum").map_or(&[][..], Tree::items).iter();
    let null = Tree::Word("null".into());
    let mut values = values.chain(parts.other("const"));
    let nullable = named.iter().any(|name| name.as_text() == Some("null"))
        || (named.is_empty() && values.any(|value| *value == null));
    let known = named.iter().filter_map(Tree::as_text).filter(|name| *name != "null");
    (known.map(str::to_owned).collect(), nullable)
}

/// The type that the other keywords tell.
fn told(parts: &Parts) -> Option<&'static str> {
    if parts.other("anyOf").or(parts.other("oneOf")).is_some() && parts.properties.is_empty() {
        return None;
    }
    if !parts.properties.is_empty() {
        return Some("object");
    }
    if choices(parts).is_some() {
        return Some("string");
    }
    if let Some(kind) = kind_of_values(parts) {
        return Some(kind);
    }
    let tells = |words: &[&str]| words.iter().any(|word| parts.other(word).is_some());
    TELLING.iter().find(|(_, words)| tells(words)).map(|(kind, _)| *kind)
}

/// The type of the values of `enum` or `const` where they have one that needs no more said about it.
fn kind_of_values(parts: &Parts) -> Option<&'static str> {
    let values = parts.other("enum").map_or(&[][..], Tree::items).iter();
    let mut kinds = values.chain(parts.other("const")).filter_map(|value| match value {
        Tree::List(_) | Tree::Map(_) | Tree::Text(_) => Some(None),
        Tree::Word(word) => match word.as_str() {
            "null" => None,
            "true" | "false" => Some(Some("boolean")),
            number if number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') => {
                Some(Some("integer"))
            }
            _ => Some(Some("number")),
        },
    });
    let first = kinds.next()??;
    kinds.all(|kind| kind == Some(first)).then_some(first)
}

/// The values of `enum` or `const` where all of them are texts with something in them: others are not taken.
fn choices(parts: &Parts) -> Option<Tree> {
    let values: Vec<&Tree> = match (parts.other("enum"), parts.other("const")) {
        (_, Some(only)) => vec![only],
        (Some(values), None) => values.items().iter().collect(),
        (None, None) => return None,
    };
    let null = Tree::Word("null".into());
    let values: Vec<&Tree> = values.into_iter().filter(|value| **value != null).collect();
    let all = !values.is_empty()
        && values.iter().all(|value| value.as_text().is_some_and(|text| !text.is_empty()));
    all.then(|| Tree::List(values.into_iter().cloned().collect()))
}

/// Whether a schema says nothing but null.
fn is_null(schema: &Tree) -> bool {
    schema.get("type").and_then(Tree::as_text) == Some("null")
}

/// The alternatives of a schema; itself where it has none.
fn alone(schema: Tree) -> Vec<Tree> {
    match schema.get("anyOf") {
        Some(alternatives) => alternatives.items().to_vec(),
        None => vec![schema],
    }
}
