//! A tool's `parameters`: compiled once, then the only way from arguments to what may be sent.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{
    Draft, PatternOptions, ReferencingError, ValidationError, ValidationOptions, Validator,
};
use serde_json::Value;

use crate::model::call::Arguments;
use crate::model::json;
use crate::model::outcome::Problem;
use crate::policy::schema_cost::Costs;
use crate::policy::schema_numbers::stand_ins;
use crate::policy::schema_subset;
use crate::policy::schema_words::{
    MESSAGE_LIMIT, expectation, problem, problems_of, unknown_argument,
};
use crate::policy::truncate::shorten;

/// Which part of JSON Schema a profile takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// JSON Schema 2020-12, offline.
    Full,
    /// The short list of `schema_subset`.
    Subset,
}

/// What is wrong with a schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", if pointer.is_empty() { "the schema" } else { pointer })]
pub struct SchemaError {
    /// JSON pointer into the schema; empty for the whole.
    pub pointer: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// A tool's compiled schema.
pub struct ArgumentSchema {
    /// `None`: the tool takes no arguments.
    rule: Option<Rule>,
}

struct Rule {
    validator: Validator,
    costs: Costs,
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").finish_non_exhaustive()
    }
}

/// Arguments that fit their tool: only [`ArgumentSchema::check`] makes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidArguments(Bytes);

impl ValidArguments {
    /// The compact JSON text, as it is sent.
    pub fn text(&self) -> &Bytes {
        &self.0
    }
}

impl ArgumentSchema {
    /// Compiles a schema; all that is wrong with it is said at once. `None`: the tool takes no arguments.
    pub fn compile(schema: Option<&Value>, dialect: Dialect) -> Result<Self, Vec<SchemaError>> {
        let Some(schema) = schema else {
            return Ok(Self { rule: None });
        };
        // Bounds first: all that follows walks the schema.
        let text = schema.to_string();
        if text.len() > SIZE_LIMIT {
            let message = format!("is {} bytes long, {SIZE_LIMIT} are allowed", text.len());
            return Err(vec![fault("", message)]);
        }
        if json::measure(&text).depth > DEPTH_LIMIT {
            let message = format!("is nested deeper than {DEPTH_LIMIT} levels");
            return Err(vec![fault("", message)]);
        }
        let survey = Survey::of(schema);
        let faults = match dialect {
            Dialect::Full => full_faults(schema, &survey),
            Dialect::Subset => schema_subset::faults(schema)
                .into_iter()
                .map(|(pointer, message)| fault(pointer, message))
                .collect(),
        };
        if !faults.is_empty() {
            return Err(faults);
        }
        let costs = survey.costs();
        if let Some(target) = costs.circle() {
            let found = survey.references.iter().find(|(_, other)| *other == target);
            let at = found.map(|(at, _)| at.clone()).unwrap_or_default();
            let message = format!("`{target}` leads back here without an argument on the way");
            return Err(vec![fault(at, message)]);
        }
        if costs.per_value() > COST_LIMIT || costs.levels() > LEVEL_LIMIT {
            let message = "its references nest too deeply or make too much work: refer to less from each place";
            return Err(vec![fault("", message)]);
        }
        let validator = options().build(schema).map_err(|error| vec![survey.fault(&error)])?;
        Ok(Self { rule: Some(Rule { validator, costs }) })
    }

    /// Whether checking them may take milliseconds: whoever serves others in the same thread should not wait for it.
    pub fn takes_long(&self, arguments: &Arguments) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.work(arguments.text().len()) > LONG_CHECK)
    }

    /// Checks arguments; the first five problems come back, none of them holding a value.
    pub fn check(&self, arguments: &Arguments) -> Result<ValidArguments, Vec<Problem>> {
        let value = arguments.value();
        let problems = match &self.rule {
            Some(rule) => rule.problems(arguments),
            None => value.as_object().filter(|members| !members.is_empty()).map(|members| {
                let names = members.keys().take(PROBLEM_LIMIT);
                names.map(|name| unknown_argument("", name, "additionalProperties")).collect()
            }),
        };
        problems.map_or_else(|| Ok(ValidArguments(arguments.text().clone())), Err)
    }
}

impl Rule {
    /// What is wrong with arguments: nothing, or one problem at least.
    fn problems(&self, arguments: &Arguments) -> Option<Vec<Problem>> {
        let text = std::str::from_utf8(arguments.text()).unwrap_or_default();
        if self.is_too_much(text) {
            return Some(misfit("are too much to be checked against the tool's schema; send less"));
        }
        if !self.validator.is_valid(arguments.value()) {
            return Some(self.reasons(text, arguments.value()));
        }
        if arguments.rounded().is_empty() {
            return None;
        }
        let mut stand_ins = stand_ins(arguments.value(), arguments.rounded());
        let other = stand_ins.find(|value| !self.validator.is_valid(value))?;
        let places = self.reasons(text, &other).into_iter().take(1);
        let message = "has more digits than can be checked; write 15 of them at most";
        let places = places.map(|place| Problem { message: message.to_owned(), ..place });
        Some(places.collect())
    }

    /// Whether judging the arguments would take too long. Their text is longer than they have values, so that most of them
    /// need not be measured.
    fn is_too_much(&self, text: &str) -> bool {
        self.work(text.len()) > CHECK_LIMIT
            && self.work(json::measure(text).values + text.len() / BYTES_PER_VALUE) > CHECK_LIMIT
    }

    /// Subschemas that are applied to so many values, at the most.
    fn work(&self, values: usize) -> f64 {
        self.costs.per_value() * f64::from(u32::try_from(values).unwrap_or(u32::MAX))
    }

    /// What is wrong with arguments that do not fit: one problem at least. The validator builds every
    /// error of every alternative before the first is seen, so it is only asked where they are few.
    fn reasons(&self, text: &str, value: &Value) -> Vec<Problem> {
        let extent = json::measure(text);
        let values = u32::try_from(extent.values).unwrap_or(u32::MAX);
        if self.costs.at(extent.depth) * f64::from(values) > WORK_LIMIT {
            return misfit("must fit the tool's schema; there is too much of them to say where");
        }
        let errors = self.validator.iter_errors(value);
        let problems = errors.flat_map(|error| problems_of(&error, value));
        let problems: Vec<_> = problems.take(PROBLEM_LIMIT).collect();
        if problems.is_empty() { misfit("must fit the tool's schema") } else { problems }
    }
}

/// A problem of the arguments as a whole.
fn misfit(message: &str) -> Vec<Problem> {
    vec![problem(String::new(), "schema", message.to_owned())]
}

/// What the model reads: `The arguments do not fit the tool: /scanId must match ^RX-\d{4,}$.`
pub fn sentence(problems: &[Problem]) -> String {
    let clauses: Vec<_> = problems
        .iter()
        .map(|problem| match problem.pointer.as_str() {
            "" => format!("the arguments {}", problem.message),
            pointer => format!("{pointer} {}", problem.message),
        })
        .collect();
    if clauses.is_empty() {
        return "The arguments do not fit the tool.".into();
    }
    format!("The arguments do not fit the tool: {}.", clauses.join("; "))
}

/// Bytes of a schema as compact JSON.
const SIZE_LIMIT: usize = 64 * 1024;

/// Levels of objects and arrays in a schema: checking recurses as deeply.
const DEPTH_LIMIT: usize = 64;

/// Contract: the first five problems are named.
const PROBLEM_LIMIT: usize = 5;

/// Bytes of one compiled pattern, and of the cache it works with.
const PATTERN_LIMIT: usize = 1024 * 1024;

/// Subschemas that are applied to one value, by the schema's own doing.
const COST_LIMIT: f64 = 1e5;

/// Subschemas that are being applied at the same time: the validator recurses as deeply, on a stack of 2 MiB.
const LEVEL_LIMIT: f64 = 700.0;

/// Subschemas that are applied to all values together while arguments are judged, at some ten nanoseconds each: no call
/// may keep a thread for longer than 50 ms.
const CHECK_LIMIT: f64 = 5e6;
/// From here on a check may take some milliseconds.
const LONG_CHECK: f64 = 1e5;

/// So many bytes of a text are as much work as one value: they are searched for patterns.
const BYTES_PER_VALUE: usize = 16;

/// Subschemas that are applied to all values together while problems are collected.
const WORK_LIMIT: f64 = 5e5;

/// The one draft that is read.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Nothing is fetched, and no pattern backtracks.
fn options<'a>() -> ValidationOptions<'a> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_LIMIT).dfa_size_limit(PATTERN_LIMIT);
    jsonschema::options().with_draft(Draft::Draft202012).offline().with_pattern_options(patterns)
}

fn fault(pointer: impl Into<String>, message: impl Into<String>) -> SchemaError {
    SchemaError { pointer: pointer.into(), message: shorten(message.into(), MESSAGE_LIMIT) }
}

/// What is wrong with a schema of the full dialect.
fn full_faults(schema: &Value, survey: &Survey<'_>) -> Vec<SchemaError> {
    let Some(top) = schema.as_object() else {
        return vec![fault("", "must be a schema of type object")];
    };
    if top.get("type").is_some_and(|kind| kind != "object") {
        return vec![fault("/type", "must be \"object\": arguments are an object")];
    }
    let mut faults = Vec::new();
    // The meta-schema says some things several times.
    for error in jsonschema::draft202012::meta::validator().iter_errors(schema) {
        let found = fault(error.instance_path().as_str(), expectation(&error));
        if !faults.contains(&found) {
            faults.push(found);
        }
    }
    for (pointer, target) in &survey.references {
        let document = target.split('#').next().unwrap_or_default();
        if !document.is_empty() && !survey.ids.contains_key(document) {
            faults.push(fault(pointer, format!("`{target}` leads out of the schema: copy it in")));
        }
    }
    faults.extend(survey.faults.iter().cloned());
    faults
}

/// What a walk through a schema finds besides the meta-schema's errors.
struct Survey<'a> {
    root: &'a Value,
    anchors: BTreeMap<&'a str, Vec<&'a Value>>,
    ids: BTreeMap<&'a str, &'a Value>,
    /// Where references stand, and what they say.
    references: Vec<(String, &'a str)>,
    faults: Vec<SchemaError>,
}

impl<'a> Survey<'a> {
    fn of(root: &'a Value) -> Self {
        let (anchors, ids) = Default::default();
        let mut survey = Self { root, anchors, ids, references: Vec::new(), faults: Vec::new() };
        survey.schema(root, "");
        survey
    }

    fn schema(&mut self, schema: &'a Value, at: &str) {
        match schema {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.schema(item, &format!("{at}/{index}"));
                }
            }
            Value::Object(members) => {
                for (keyword, value) in members {
                    let here = format!("{at}/{}", json::pointer_step(keyword));
                    self.keyword(schema, keyword, value, &here);
                }
            }
            _ => {}
        }
    }

    fn keyword(&mut self, schema: &'a Value, keyword: &str, value: &'a Value, here: &str) {
        match (keyword, value) {
            // Data, which may look like a schema.
            ("const" | "default" | "enum" | "examples", _) => {}
            ("$id", Value::String(id)) => {
                self.ids.insert(id.trim_end_matches('#'), schema);
            }
            ("$anchor" | "$dynamicAnchor", Value::String(anchor)) => {
                self.anchors.entry(anchor).or_default().push(schema);
            }
            ("$ref" | "$dynamicRef", Value::String(target)) => {
                self.references.push((here.into(), target));
            }
            ("$schema", Value::String(draft)) if draft.trim_end_matches('#') != DRAFT => {
                self.faults.push(fault(here, format!("only {DRAFT} is read: leave it out")));
            }
            ("pattern", Value::String(pattern)) => self.pattern(pattern, here),
            (
                "$defs" | "definitions" | "dependentSchemas" | "patternProperties" | "properties",
                Value::Object(schemas),
            ) => {
                for (name, schema) in schemas {
                    let here = format!("{here}/{}", json::pointer_step(name));
                    if keyword == "patternProperties" {
                        self.pattern(name, &here);
                    }
                    self.schema(schema, &here);
                }
            }
            (_, nested) => self.schema(nested, here),
        }
    }

    /// Compiles a pattern alone, so that each bad one is named with its reason.
    fn pattern(&mut self, pattern: &str, here: &str) {
        let schema = serde_json::json!({ "pattern": pattern });
        if options().build(&schema).is_ok() {
            return;
        }
        let unbounded = options().with_pattern_options(PatternOptions::regex());
        let backtracking = options().with_pattern_options(PatternOptions::fancy_regex());
        self.faults.push(fault(
            here,
            if unbounded.build(&schema).is_ok() {
                "this pattern is too large once compiled: use smaller repeats"
            } else if backtracking.build(&schema).is_ok() {
                "a pattern cannot look around or refer back: it must match in linear time"
            } else {
                "must be a regular expression, and not a huge one"
            },
        ));
    }

    /// What a reference can lead to, if it stays in the schema: a pointer is relative to the nearest `$id`, and anchors of
    /// one name may stand below several.
    fn find(&self, target: &str) -> Vec<&'a Value> {
        let (document, fragment) = target.split_once('#').unwrap_or((target, ""));
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(fragment).cloned().unwrap_or_default();
        }
        let fragment = decode_percent(fragment);
        let bases: Vec<_> = if document.is_empty() {
            std::iter::once(self.root).chain(self.ids.values().copied()).collect()
        } else {
            self.ids.get(document).copied().into_iter().collect()
        };
        bases.iter().filter_map(|base| base.pointer(&fragment)).collect()
    }

    fn costs(&self) -> Costs {
        let targets: Vec<_> = self.references.iter().map(|(_, target)| *target).collect();
        Costs::of(self.root, &targets, &|target| self.find(target))
    }

    /// What the builder found that nothing before it did.
    fn fault(&self, error: &ValidationError<'_>) -> SchemaError {
        let ValidationErrorKind::Referencing(error) = error.kind() else {
            return fault(error.schema_path().as_str(), expectation(error));
        };
        let fragment = match error {
            ReferencingError::PointerToNowhere { pointer } => pointer,
            ReferencingError::NoSuchAnchor { anchor }
            | ReferencingError::InvalidAnchor { anchor } => anchor,
            other => return fault("", other.to_string()),
        };
        let ends = |target: &str| target.split_once('#').is_some_and(|(_, end)| end == fragment);
        let pointer = self.references.iter().find(|(_, target)| ends(target)).map(|(at, _)| at);
        fault(
            pointer.cloned().unwrap_or_default(),
            format!("there is no `{fragment}` in the schema"),
        )
    }
}

/// Decodes `%XX`; what is no UTF-8 then stays as it was.
pub fn decode_percent(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|&byte| char::from(byte).to_digit(16));
        let decoded = digit(0).zip(digit(1)).map(|(high, low)| high << 4 | low);
        match (first, decoded.and_then(|byte| u8::try_from(byte).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests;
