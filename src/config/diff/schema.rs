//! What arguments may be: two JSON Schemas, keyword by keyword.
//!
//! Where nobody can tell, it counts as looser.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::config::change::{Changes, Direction, Kind, Told, pairs};
use crate::model::json::pointer_step;

/// Keywords that tell, and bound nothing.
const NOTES: &[&str] = &[
    "$comment",
    "$schema",
    "default",
    "deprecated",
    "description",
    "example",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];
/// Keywords whose value is a schema that says more where it says less is allowed.
const BELOW: &[&str] = &[
    "additionalProperties",
    "contains",
    "items",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that turn what stands in them, or beside them, around.
const TURNING: &[&str] = &["if", "maxContains", "not", "oneOf"];
/// Keywords that mean what others elsewhere make of them.
const FAR: &[&str] = &[
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Compares two schemas; `None` takes no arguments.
pub(super) fn compare(changes: &mut Changes, path: &str, old: Option<&Value>, new: Option<&Value>) {
    let mut walk = Walk { changes, far: [old, new].into_iter().flatten().any(reaches_far) };
    match (old, new) {
        (Some(old), Some(new)) => walk.schema(path, old, new),
        (None, None) => {}
        (None, Some(new)) => {
            walk.note(Direction::Looser, path, "no arguments", &brief(Some(new)));
        }
        (Some(old), None) => {
            walk.note(Direction::Tighter, path, &brief(Some(old)), "no arguments");
        }
    }
}

struct Walk<'c> {
    changes: &'c mut Changes,
    /// Whether a bound in one place may open another one: then nobody can tell that anything is tighter.
    far: bool,
}

impl Walk<'_> {
    fn note(&mut self, direction: Direction, path: &str, old: &str, new: &str) {
        let direction = match direction {
            Direction::Tighter if self.far => Direction::Looser,
            direction => direction,
        };
        self.changes.note(Kind::Arguments, direction, path, &Told::text(old), &Told::text(new));
    }

    /// One schema; nested ones come back here. Their depth was bounded when they were compiled.
    fn schema(&mut self, path: &str, old: &Value, new: &Value) {
        if old == new {
            return;
        }
        let (Value::Object(before), Value::Object(after)) = (old, new) else {
            // `false` takes nothing, and so does not become looser than anything.
            let tighter = *new == Value::Bool(false) || *old == Value::Bool(true);
            let direction = if tighter { Direction::Tighter } else { Direction::Looser };
            return self.note(direction, path, &brief(Some(old)), &brief(Some(new)));
        };
        for (keyword, one, other) in pairs(before, after) {
            if one != other {
                let here = format!("{path}/{}", pointer_step(keyword));
                self.keyword(keyword, &here, (before, one), (after, other));
            }
        }
    }

    fn keyword(
        &mut self,
        keyword: &str,
        path: &str,
        (old_all, old): (&Map<String, Value>, Option<&Value>),
        (new_all, new): (&Map<String, Value>, Option<&Value>),
    ) {
        let texts = (brief(old), brief(new));
        let mut say = |direction| self.note(direction, path, &texts.0, &texts.1);
        let bound = keyword.trim_start_matches("exclusive").to_ascii_lowercase();
        match (keyword, old, new) {
            (keyword, ..) if NOTES.contains(&keyword) => say(Direction::Neutral),
            ("properties", old, new) => {
                let none = Map::new();
                let of = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
                let (old, new) = (of(old).unwrap_or(none.clone()), of(new).unwrap_or(none));
                for (name, old, new) in pairs(&old, &new) {
                    let here = format!("{path}/{}", pointer_step(name));
                    match (old, new) {
                        (Some(old), Some(new)) => self.schema(&here, old, new),
                        // Where others are bounded, a new one is free of that; else it was free before.
                        (None, _) => {
                            let direction = if bounds(old_all, "additionalProperties") {
                                Direction::Looser
                            } else {
                                Direction::Tighter
                            };
                            self.note(direction, &here, "none", &brief(new));
                        }
                        (_, None) => {
                            let takes_others = new_all.contains_key("patternProperties");
                            let direction = if is_closed(new_all) && !takes_others {
                                Direction::Tighter
                            } else {
                                Direction::Looser
                            };
                            self.note(direction, &here, &brief(old), "none");
                        }
                    }
                }
            }
            ("$defs" | "definitions", old, new) => {
                let none = Map::new();
                let of = |value: Option<&Value>| value.and_then(Value::as_object).cloned();
                let (old, new) = (of(old).unwrap_or(none.clone()), of(new).unwrap_or(none));
                let turned = [old_all, new_all].iter().any(|all| turns(all));
                for (name, old, new) in pairs(&old, &new) {
                    let here = format!("{path}/{}", pointer_step(name));
                    match (old, new) {
                        (Some(old), Some(new)) if !turned => self.schema(&here, old, new),
                        (Some(old), Some(new)) if old != new => {
                            let (old, new) = (brief(Some(old)), brief(Some(new)));
                            self.note(Direction::Looser, &here, &old, &new);
                        }
                        (Some(_), Some(_)) => {}
                        // Whoever refers to it changed too.
                        (old, new) => {
                            self.note(Direction::Neutral, &here, &brief(old), &brief(new))
                        }
                    }
                }
            }
            // Of what holds fewer items, more of them may be there.
            ("contains", Some(_), Some(_))
                if [old_all, new_all].iter().any(|all| all.contains_key("maxContains")) =>
            {
                say(Direction::Looser);
            }
            // Without it one item must be there.
            ("minContains", None, Some(new)) if new.as_f64().is_none_or(|least| least < 1.0) => {
                say(Direction::Looser);
            }
            // What they hold is free of what the others are bound to.
            ("patternProperties", None, Some(_)) if bounds(old_all, "additionalProperties") => {
                say(Direction::Looser);
            }
            ("prefixItems", None, Some(_)) if bounds(old_all, "items") => say(Direction::Looser),
            (keyword, Some(old), Some(new)) if BELOW.contains(&keyword) => {
                self.schema(path, old, new);
            }
            (keyword, None, Some(new)) if BELOW.contains(&keyword) => {
                say(if is_free(new) { Direction::Neutral } else { Direction::Tighter });
            }
            ("allOf" | "anyOf", Some(Value::Array(old)), Some(Value::Array(new)))
                if old.len() == new.len() =>
            {
                for (at, (old, new)) in old.iter().zip(new).enumerate() {
                    self.schema(&format!("{path}/{at}"), old, new);
                }
            }
            ("enum" | "required" | "type", Some(old), Some(new)) => {
                let (old, new) = (texts_of(keyword, old), texts_of(keyword, new));
                let opens = if keyword == "required" { (&new, &old) } else { (&old, &new) };
                say(match opens {
                    (old, new) if !new.is_subset(old) => Direction::Looser,
                    (old, new) if !old.is_subset(new) => Direction::Tighter,
                    _ => Direction::Neutral,
                });
            }
            (_, Some(Value::Number(old)), Some(Value::Number(new)))
                if bound.starts_with("max") || bound.starts_with("min") =>
            {
                let (old, new) = (old.as_f64(), new.as_f64());
                // Two that are the same as doubles may differ.
                let looser = old.zip(new).is_none_or(|(old, new)| {
                    if bound.starts_with("max") { new >= old } else { new <= old }
                });
                say(if looser { Direction::Looser } else { Direction::Tighter });
            }
            (_, None, Some(_)) => say(Direction::Tighter),
            // One that is gone bounds nothing; whether another one bounds less cannot be told.
            (_, Some(_), _) => say(Direction::Looser),
            (_, None, None) => {}
        }
    }
}

/// Whether arguments that are not named are refused.
fn is_closed(schema: &Map<String, Value>) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
}

/// Whether this keyword is there and says anything.
fn bounds(schema: &Map<String, Value>, keyword: &str) -> bool {
    schema.get(keyword).is_some_and(|value| !is_free(value))
}

/// Whether a schema takes anything.
fn is_free(schema: &Value) -> bool {
    *schema == Value::Bool(true) || *schema == Value::Object(Map::new())
}

/// Whether what one place of the schema says depends on what another one says.
fn reaches_far(schema: &Value) -> bool {
    let has = |keyword: &&str| names(schema, keyword);
    FAR.iter().any(has) || (names(schema, "$ref") && TURNING.iter().any(has))
}

/// Whether there is such a key at any depth.
fn names(schema: &Value, keyword: &str) -> bool {
    match schema {
        Value::Object(members) => {
            members.contains_key(keyword) || members.values().any(|value| names(value, keyword))
        }
        Value::Array(items) => items.iter().any(|item| names(item, keyword)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Whether something in the schema is turned around, so that less inside of it is more outside.
fn turns(schema: &Map<String, Value>) -> bool {
    schema.iter().any(|(keyword, value)| TURNING.contains(&keyword.as_str()) || below_turns(value))
}

fn below_turns(value: &Value) -> bool {
    match value {
        Value::Object(members) => turns(members),
        Value::Array(items) => items.iter().any(below_turns),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The entries of a list, or the one that stands for a list. A whole number is a number too.
fn texts_of(keyword: &str, value: &Value) -> BTreeSet<String> {
    let mut texts: BTreeSet<String> = match value {
        Value::Array(items) => items.iter().map(Value::to_string).collect(),
        one => BTreeSet::from([one.to_string()]),
    };
    if keyword == "type" && texts.contains("\"number\"") {
        texts.insert("\"integer\"".into());
    }
    texts
}

fn brief(value: Option<&Value>) -> String {
    value.map_or("none".into(), Value::to_string)
}

#[cfg(test)]
mod tests;
