//! The outermost schema: providers want one object there, and none of them takes all of JSON Schema in its place.

use std::collections::HashSet;

use crate::model::json_tree::Tree;
use crate::policy::schema::decode_percent;
use crate::policy::schema_keywords::{LISTS, MAPS, ONE};

/// Keywords that OpenAI and Anthropic refuse in the outermost schema, though not below it.
const REFUSED: &[&str] = &["$ref", "allOf", "anyOf", "const", "enum", "not", "oneOf"];
/// Branches and references that are looked at in one schema: alternatives of alternatives multiply.
const MOST_STEPS: usize = 4000;
/// Bytes of a parameter's name that Anthropic takes.
const NAME_BYTES: usize = 64;

/// As it is written, with `type: object`, which the protocol asks for.
pub(super) fn mcp(parameters: Option<&Tree>) -> Tree {
    match parameters {
        Some(schema @ Tree::Map(entries)) => {
            if schema.get("type").and_then(Tree::as_text) == Some("object") {
                return schema.clone();
            }
            let rest = entries.iter().filter(|(key, _)| key != "type").cloned();
            let object = ("type".to_owned(), Tree::text("object"));
            Tree::Map([object].into_iter().chain(rest).collect())
        }
        Some(Tree::Word(word)) if word == "true" => Tree::map([("type", Tree::text("object"))]),
        Some(_) | None => nothing(),
    }
}

/// One object with its properties; arrays say what is in them, and objects have a list of properties, be it empty.
pub(super) fn openai(parameters: Option<&Tree>) -> Tree {
    completed(&object(parameters))
}

/// One object whose parameters have names that are taken.
pub(super) fn anthropic(parameters: Option<&Tree>) -> Tree {
    let takes = |name: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
    };
    with_names(object(parameters), takes)
}

/// Takes the properties whose names a provider does not take out of a schema, and out of `required`.
pub(super) fn with_names(mut schema: Tree, takes: impl Fn(&str) -> bool) -> Tree {
    let Tree::Map(entries) = &mut schema else { return schema };
    for (key, value) in entries.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Tree::Map(properties)) => properties.retain(|(name, _)| takes(name)),
            ("required", Tree::List(names)) => {
                names.retain(|name| name.as_text().is_some_and(&takes));
            }
            _ => {}
        }
    }
    schema
}

/// No arguments.
fn nothing() -> Tree {
    Tree::map([
        ("type", Tree::text("object")),
        ("properties", Tree::Map(Vec::new())),
        ("additionalProperties", Tree::truth(false)),
    ])
}

/// The outermost schema as one object: a reference is followed, `allOf` is put together, and alternatives become one
/// object in which only what all of them require is required.
pub(super) fn object(parameters: Option<&Tree>) -> Tree {
    let Some(schema) = parameters else { return nothing() };
    if *schema == Tree::truth(false) {
        return nothing();
    }
    let mut parts = Parts::default();
    let mut walk = Walk::of(schema);
    parts.take(&mut walk, schema);
    parts.join(&mut walk);
    let mut object = Tree::map([("type", Tree::text("object"))]);
    let kept =
        |key: &str| !REFUSED.contains(&key) && !["type", "properties", "required"].contains(&key);
    // What surrounds the properties stays where it stood.
    for (key, value) in schema.entries() {
        match key.as_str() {
            "properties" => object.set(key, Tree::Map(std::mem::take(&mut parts.properties))),
            "required" => object.set(key, parts.required()),
            key if kept(key) => object.set(key, value.clone()),
            _ => {}
        }
    }
    if object.get("properties").is_none() {
        object.set("properties", Tree::Map(parts.properties.clone()));
    }
    if object.get("required").is_none() && !parts.required.is_empty() {
        object.set("required", parts.required());
    }
    object
}

/// The way through a document: which references were followed to where one stands.
#[derive(Debug)]
pub(super) struct Walk<'t> {
    root: &'t Tree,
    open: Vec<String>,
    steps: usize,
}

impl<'t> Walk<'t> {
    /// At the beginning.
    pub(super) fn of(root: &'t Tree) -> Self {
        Self { root, open: Vec::new(), steps: 0 }
    }

    /// How far it is; [`Walk::back`] returns to here.
    pub(super) fn mark(&self) -> usize {
        self.open.len()
    }

    /// Returns to a mark.
    pub(super) fn back(&mut self, mark: usize) {
        self.open.truncate(mark);
    }

    fn follow(&mut self, reference: &str) -> Reference<'t> {
        self.steps += 1;
        let Some(target) = resolve(self.root, reference) else { return Reference::Nowhere };
        if self.open.iter().any(|open| open == reference) {
            return Reference::Open(target);
        }
        self.open.push(reference.to_owned());
        Reference::New(target)
    }
}

/// What a reference names.
enum Reference<'t> {
    /// What was not met on the way.
    New(&'t Tree),
    /// Nothing in this document.
    Nowhere,
    /// What the way leads through already.
    Open(&'t Tree),
}

/// What several schemas say about one value, put together.
#[derive(Debug, Default, Clone)]
pub(super) struct Parts {
    /// The properties of an object.
    pub(super) properties: Vec<(String, Tree)>,
    /// Those that must be there.
    pub(super) required: Vec<String>,
    /// Every other keyword; of several that are the same, the first.
    pub(super) others: Vec<(String, Tree)>,
}

impl Parts {
    /// Adds what a schema says, with what it refers to.
    pub(super) fn take(&mut self, walk: &mut Walk<'_>, schema: &Tree) {
        for (key, value) in schema.entries() {
            let apart = ["$ref", "allOf", "properties", "required"].contains(&key.as_str());
            if !apart && self.other(key).is_none() {
                self.others.push((key.clone(), value.clone()));
            }
        }
        for (name, property) in schema.get("properties").map_or(&[][..], Tree::entries) {
            if !self.properties.iter().any(|(other, _)| other == name) {
                self.properties.push((name.clone(), property.clone()));
            }
        }
        let names = schema.get("required").map_or(&[][..], Tree::items);
        self.require(names.iter().filter_map(Tree::as_text));
        match schema.get("$ref").and_then(Tree::as_text).map(|target| walk.follow(target)) {
            Some(Reference::New(target)) => self.take(walk, target),
            Some(Reference::Open(target)) => self.sketch(target),
            Some(Reference::Nowhere) | None => {}
        }
        for part in schema.get("allOf").map_or(&[][..], Tree::items) {
            self.take(walk, part);
        }
    }

    /// Of alternatives for an object: what any of them says about a property may hold, and what all require is required.
    pub(super) fn join(&mut self, walk: &mut Walk<'_>) {
        for key in ["anyOf", "oneOf"] {
            let branches = self.other(key).map_or(&[][..], Tree::items);
            walk.steps += branches.len();
            if walk.steps > MOST_STEPS {
                return;
            }
            let branches = branches.iter().map(|branch| {
                let (mut parts, mark) = (Self::default(), walk.mark());
                parts.take(walk, branch);
                parts.join(walk);
                walk.back(mark);
                parts
            });
            let branches: Vec<_> = branches.collect();
            self.choose(&branches);
        }
    }

    /// Adds what can be said about a schema without what is in it.
    fn sketch(&mut self, schema: &Tree) {
        for (key, value) in schema.entries() {
            if ["type", "description"].contains(&key.as_str()) && self.other(key).is_none() {
                self.others.push((key.clone(), value.clone()));
            }
        }
    }

    /// Another keyword.
    pub(super) fn other(&self, key: &str) -> Option<&Tree> {
        self.others.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    fn require<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if !self.required.iter().any(|other| other == name) {
                self.required.push(name.to_owned());
            }
        }
    }

    /// One of these holds: a property may be what any of them says, and only what all require is required.
    fn choose(&mut self, branches: &[Self]) {
        let mut names = HashSet::new();
        let properties = branches.iter().flat_map(|branch| &branch.properties);
        for (name, _) in properties.clone() {
            let known = self.properties.iter().any(|(other, _)| other == name);
            if known || !names.insert(name) {
                continue;
            }
            let mut said: Vec<&Tree> = Vec::new();
            for (_, property) in properties.clone().filter(|(other, _)| other == name) {
                if !said.contains(&property) {
                    said.push(property);
                }
            }
            let property = match said.as_slice() {
                [only] => (*only).clone(),
                several => {
                    Tree::map([("anyOf", Tree::List(several.iter().copied().cloned().collect()))])
                }
            };
            self.properties.push((name.clone(), property));
        }
        if let Some((first, others)) = branches.split_first() {
            let by_all = |name: &&String| others.iter().all(|other| other.required.contains(name));
            self.require(first.required.iter().filter(by_all).map(String::as_str));
        }
    }

    fn required(&self) -> Tree {
        Tree::List(self.required.iter().map(Tree::text).collect())
    }
}

/// What a reference within the document names: `#`, or `#/` and a JSON pointer.
pub(super) fn resolve<'t>(root: &'t Tree, reference: &str) -> Option<&'t Tree> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    pointer.strip_prefix('/')?.split('/').try_fold(root, |at, step| {
        let step = decode_percent(step).replace("~1", "/").replace("~0", "~");
        match at {
            Tree::List(items) => items.get(step.parse::<usize>().ok()?),
            Tree::Map(_) | Tree::Text(_) | Tree::Word(_) => at.get(&step),
        }
    })
}

/// Says of every array that its items may be anything, and of every object that it has properties, where nobody said it:
/// schemas without these are refused.
fn completed(schema: &Tree) -> Tree {
    let Tree::Map(entries) = schema else { return schema.clone() };
    let entries = entries.iter().map(|(key, value)| {
        let value = if ONE.contains(&key.as_str()) {
            completed(value)
        } else if LISTS.contains(&key.as_str()) {
            Tree::List(value.items().iter().map(completed).collect())
        } else if MAPS.contains(&key.as_str()) {
            let below = value.entries().iter();
            Tree::Map(below.map(|(name, below)| (name.clone(), completed(below))).collect())
        } else {
            value.clone()
        };
        (key.clone(), value)
    });
    let mut schema = Tree::Map(entries.collect());
    for (kind, key) in [("array", "items"), ("object", "properties")] {
        if is_of(&schema, kind) && schema.get(key).is_none() {
            schema.set(key, Tree::Map(Vec::new()));
        }
    }
    schema
}

/// Whether `type` names this one, alone or among others.
fn is_of(schema: &Tree, kind: &str) -> bool {
    let Some(given) = schema.get("type") else { return false };
    given.as_text() == Some(kind) || given.items().iter().any(|one| one.as_text() == Some(kind))
}
