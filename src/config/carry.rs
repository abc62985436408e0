//! A JSON Schema carried out of a larger document: references come along, older words are translated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::model::json::pointer_step;
use crate::policy::schema::Dialect;
use crate::policy::schema_keywords::{LISTS, MAPS, ONE};

/// Schemas that are visited: the 64 KiB that a tool's schema may have hold no more, and a document may lead to more than
/// anybody could wait for.
const LARGEST: usize = 5_000;
/// References are followed so deep where they are put in place.
const DEEPEST: usize = 24;

/// Something that could not be carried over as it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Note {
    /// JSON pointer into the document.
    pub pointer: String,
    /// What.
    pub message: String,
}

impl Note {
    /// At this place.
    pub fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), message: message.into() }
    }
}

/// Notes in their order, each once.
#[derive(Debug, Default)]
pub struct Notes {
    all: Vec<Note>,
    known: HashSet<Note>,
}

impl Notes {
    /// Takes a note that is not known yet.
    pub fn push(&mut self, note: Note) {
        if self.known.insert(note.clone()) {
            self.all.push(note);
        }
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Note> {
        self.all
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pointer, message } = self;
        write!(f, "{}: {message}", if pointer.is_empty() { "the document" } else { pointer })
    }
}

/// Words that describe documents and clients, and bound no argument.
const DROPPED: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "definitions",
    "discriminator",
    "externalDocs",
    "id",
    "xml",
];

/// The schema as a document of its own; `at` is where it stands in `root`. `None`: it is too large.
pub fn carry(
    schema: &Value,
    root: &Value,
    at: &str,
    dialect: Dialect,
    notes: &mut Notes,
) -> Option<Value> {
    let mut carrier = Carrier {
        root,
        dialect,
        notes,
        names: HashMap::new(),
        taken: HashSet::new(),
        asked: HashMap::new(),
        waiting: Vec::new(),
        trail: Vec::new(),
        left: LARGEST,
    };
    let mut carried = carrier.schema(schema, at)?;
    let mut definitions = BTreeMap::new();
    while let Some((pointer, name)) = carrier.waiting.pop() {
        let target = root.pointer(&pointer)?;
        let target = carrier.schema(target, &pointer)?;
        definitions.insert(name, target);
    }
    if !definitions.is_empty() {
        let definitions: Map<String, Value> = definitions.into_iter().collect();
        if let Some(members) = carried.as_object_mut() {
            members.insert("$defs".into(), Value::Object(definitions));
        }
    }
    Some(carried)
}

struct Carrier<'d> {
    root: &'d Value,
    dialect: Dialect,
    notes: &'d mut Notes,
    /// Names of definitions by pointer.
    names: HashMap<String, String>,
    taken: HashSet<String>,
    /// How often a word was asked for as a name.
    asked: HashMap<String, usize>,
    /// Definitions that have a name and are not carried yet.
    waiting: Vec<(String, String)>,
    /// The references on the way, where they are put in place.
    trail: Vec<String>,
    /// How many schemas may still be visited.
    left: usize,
}

impl Carrier<'_> {
    fn note(&mut self, at: &str, message: impl Into<String>) {
        self.notes.push(Note::new(at, message));
    }

    /// `None`: it is too large.
    fn schema(&mut self, schema: &Value, at: &str) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        let members = match schema {
            Value::Bool(_) => return Some(schema.clone()),
            Value::Object(members) => members,
            _ => {
                self.note(at, "is no schema; anything passes there");
                return Some(json!({}));
            }
        };
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            return self.reference(reference, members, at);
        }
        let mut carried = Map::new();
        for (word, value) in members {
            let here = format!("{at}/{}", pointer_step(word));
            let word = word.as_str();
            match value {
                _ if DROPPED.contains(&word) || word.starts_with("x-") => {}
                Value::Array(items) if word == "items" => {
                    let items = self.list(items, &here)?;
                    carried.insert("prefixItems".into(), items);
                }
                value if ONE.contains(&word) => {
                    let value = self.schema(value, &here)?;
                    carried.insert(word.into(), value);
                }
                Value::Array(items) if LISTS.contains(&word) => {
                    let items = self.list(items, &here)?;
                    carried.insert(word.into(), items);
                }
                Value::Object(all) if MAPS.contains(&word) => {
                    let mut inside = Map::new();
                    for (name, value) in all {
                        let value =
                            self.schema(value, &format!("{here}/{}", pointer_step(name)))?;
                        inside.insert(name.clone(), value);
                    }
                    carried.insert(word.into(), Value::Object(inside));
                }
                value if word == "example" => {
                    carried.entry("examples").or_insert_with(|| json!([value]));
                }
                value => {
                    carried.insert(word.into(), value.clone());
                }
            }
        }
        if self.dialect == Dialect::Subset {
            // The subset has neither of them, and neither bounds an argument.
            for word in ["default", "examples", "title", "readOnly", "writeOnly", "deprecated"] {
                carried.remove(word);
            }
        }
        Some(modern(carried))
    }

    fn list(&mut self, items: &[Value], at: &str) -> Option<Value> {
        let each = items.iter().enumerate();
        let each = each.map(|(index, item)| self.schema(item, &format!("{at}/{index}")));
        each.collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn reference(
        &mut self,
        reference: &str,
        members: &Map<String, Value>,
        at: &str,
    ) -> Option<Value> {
        let here = format!("{at}/$ref");
        let pointer = reference
            .strip_prefix('#')
            .map(|fragment| percent_decode_str(fragment).decode_utf8_lossy().into_owned());
        let target = pointer.as_ref().and_then(|pointer| self.root.pointer(pointer));
        let (Some(pointer), Some(target)) = (pointer, target) else {
            let why = if reference.starts_with('#') {
                "leads nowhere"
            } else {
                "leads out of the document"
            };
            self.note(&here, format!("`{reference}` {why}; anything passes there"));
            return Some(json!({}));
        };
        match self.dialect {
            Dialect::Full => {
                let name = self.name(&pointer);
                let reference = json!(format!("#/$defs/{}", pointer_step(&name)));
                let mut carried = Map::from_iter([("$ref".to_owned(), reference)]);
                // Older documents mean nothing by what stands beside a reference; a description does no harm.
                let beside = members.get("description").filter(|text| text.is_string());
                carried.extend(beside.map(|text| ("description".to_owned(), text.clone())));
                Some(Value::Object(carried))
            }
            // It has no references: what they lead to is put in place.
            Dialect::Subset => {
                if self.trail.contains(&pointer) || self.trail.len() > DEEPEST {
                    self.note(&here, format!("`{reference}` leads back to itself; it is left out"));
                    return Some(json!({}));
                }
                self.trail.push(pointer.clone());
                let carried = self.schema(target, &pointer);
                self.trail.pop();
                carried
            }
        }
    }

    /// The name of a definition: the last word of its pointer.
    fn name(&mut self, pointer: &str) -> String {
        if let Some(name) = self.names.get(pointer) {
            return name.clone();
        }
        let last = pointer.rsplit('/').next().unwrap_or_default();
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let last: String = last.chars().map(|c| if fits(c) { c } else { '_' }).collect();
        let base = if last.is_empty() { "root".to_owned() } else { last };
        let mut name = base.clone();
        let count = self.asked.entry(base.clone()).or_insert(1);
        while !self.taken.insert(name.clone()) {
            *count += 1;
            name = format!("{base}_{count}");
        }
        self.names.insert(pointer.to_owned(), name.clone());
        self.waiting.push((pointer.to_owned(), name.clone()));
        name
    }
}

/// The words of OpenAPI 3.0 in those of JSON Schema 2020-12.
fn modern(mut schema: Map<String, Value>) -> Value {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if let Some(Value::Bool(is_exclusive)) = schema.get(exclusive).cloned() {
            schema.remove(exclusive);
            if let Some(limit) = schema.get(bound).filter(|_| is_exclusive).cloned() {
                schema.remove(bound);
                schema.insert(exclusive.into(), limit);
            }
        }
    }
    let is_nullable = schema.remove("nullable") == Some(Value::Bool(true));
    if !is_nullable {
        return Value::Object(schema);
    }
    if let Some(Value::Array(choices)) = schema.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
    match schema.get("type").cloned() {
        Some(Value::String(kind)) => {
            schema.insert("type".into(), json!([kind, "null"]));
            Value::Object(schema)
        }
        Some(Value::Array(_)) => Value::Object(schema),
        _ if schema.is_empty() => json!({}),
        _ => json!({"anyOf": [Value::Object(schema), {"type": "null"}]}),
    }
}
