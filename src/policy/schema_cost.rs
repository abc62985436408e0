//! How much work a schema can make of its arguments, and how deeply judging them recurses: references multiply, and so
//! does nesting.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use crate::model::json::MAX_DEPTH;

/// Leads from a reference to the schemas that it may mean.
pub type Find<'a, 'f> = dyn Fn(&str) -> Vec<&'a Value> + 'f;

/// A longer chain of references is taken as endless.
const CHAIN_LIMIT: usize = 64;

/// So are more subschemas in each other, references followed: the estimate recurses as deeply, and so does compiling.
const NEST_LIMIT: usize = 400;

/// What a schema can cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    by_depth: Vec<Load>,
    /// Applied subschemas per value, where each value meets what refers to itself once: the validator keeps the verdict.
    per_value: f64,
    circle: Option<String>,
}

/// What one application of a schema causes. Floating, because it may grow beyond any integer and only its size matters.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Load {
    /// Applied subschemas.
    work: f64,
    /// How many of them are being applied at the same time.
    levels: f64,
}

impl Load {
    const ENDLESS: Self = Self { work: f64::INFINITY, levels: f64::INFINITY };
    const NONE: Self = Self { work: 0.0, levels: 0.0 };

    fn beside(self, other: Self) -> Self {
        Self { work: self.work + other.work, levels: self.levels.max(other.levels) }
    }

    fn larger(self, other: Self) -> Self {
        Self { work: self.work.max(other.work), levels: self.levels.max(other.levels) }
    }

    /// A schema with this in it.
    fn inside(self) -> Self {
        Self { work: self.work + 1.0, levels: self.levels + 1.0 }
    }
}

impl Costs {
    /// Estimates a schema; `references` are its `$ref` targets.
    pub fn of<'a>(schema: &'a Value, references: &[&'a str], find: &Find<'a, '_>) -> Self {
        let mut estimate = Estimate::new(find, HashSet::new());
        // From shallow to deep, so that each level finds the ones below it.
        let by_depth = (0..=MAX_DEPTH).map(|depth| {
            for target in references {
                estimate.reference(target, Some(depth));
            }
            estimate.schema(schema, Some(depth))
        });
        let by_depth = by_depth.collect();
        let circle = estimate.circle.map(str::to_owned);

        let recursive = recursive(references, find);
        let bodies: Vec<_> = recursive.iter().flat_map(|target| find(target)).collect();
        let mut estimate = Estimate::new(find, recursive);
        let loads = std::iter::once(schema).chain(bodies).map(|body| estimate.schema(body, None));
        Self { by_depth, per_value: loads.fold(Load::NONE, Load::beside).work, circle }
    }

    /// Applied subschemas for arguments of so many levels.
    pub fn at(&self, depth: usize) -> f64 {
        self.by_depth.get(depth).or(self.by_depth.last()).map_or(f64::INFINITY, |load| load.work)
    }

    /// Applied subschemas per value of the arguments, however they are nested, for a yes or no.
    pub fn per_value(&self) -> f64 {
        self.per_value
    }

    /// How many subschemas are being applied at the same time, at most.
    pub fn levels(&self) -> f64 {
        self.by_depth.last().map_or(f64::INFINITY, |load| load.levels)
    }

    /// A reference that leads to itself for the same value.
    pub fn circle(&self) -> Option<&str> {
        self.circle.as_deref()
    }
}

/// The references that lead to themselves, through the arguments or not.
fn recursive<'a>(references: &[&'a str], find: &Find<'a, '_>) -> HashSet<&'a str> {
    let mut next: HashMap<&str, Vec<&str>> = HashMap::new();
    for target in references {
        let mut found = Vec::new();
        for body in find(target) {
            collect_references(body, &mut found);
        }
        next.insert(target, found);
    }
    let returns = |start: &&&'a str| {
        let (mut seen, mut open) = (HashSet::new(), vec![**start]);
        while let Some(target) = open.pop() {
            for target in next.get(target).into_iter().flatten() {
                if target == *start {
                    return true;
                }
                if seen.insert(*target) {
                    open.push(target);
                }
            }
        }
        false
    };
    references.iter().filter(returns).copied().collect()
}

fn collect_references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        Value::Object(members) => {
            for (keyword, value) in members {
                match (keyword.as_str(), value) {
                    ("$ref" | "$dynamicRef", Value::String(target)) => found.push(target),
                    _ => collect_references(value, found),
                }
            }
        }
        _ => {}
    }
}

struct Estimate<'a, 'f> {
    find: &'f Find<'a, 'f>,
    /// References that count as one schema.
    once: HashSet<&'a str>,
    known: HashMap<(&'a str, Option<usize>), Load>,
    /// The references that are being followed.
    open: Vec<&'a str>,
    /// How many schemas are being looked at.
    level: usize,
    circle: Option<&'a str>,
}

impl<'a, 'f> Estimate<'a, 'f> {
    fn new(find: &'f Find<'a, 'f>, once: HashSet<&'a str>) -> Self {
        let (known, open, level, circle) = Default::default();
        Self { find, once, known, open, level, circle }
    }

    /// One schema, or each of a list, for arguments of so many levels; `None`: as many as there are schemas for.
    fn schema(&mut self, schema: &'a Value, depth: Option<usize>) -> Load {
        match schema {
            Value::Array(items) => self.sum(items.iter(), depth),
            Value::Object(_) if self.level >= NEST_LIMIT => Load::ENDLESS,
            Value::Object(members) => {
                self.level += 1;
                let loads =
                    members.iter().map(|(keyword, value)| self.keyword(keyword, value, depth));
                let load = loads.fold(Load::NONE, Load::beside).inside();
                self.level -= 1;
                load
            }
            _ => Load::NONE.inside(),
        }
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, depth: Option<usize>) -> Load {
        let below = depth.map(|depth| depth.saturating_sub(1));
        match keyword {
            "$defs" | "definitions" => Load::NONE,
            "$ref" | "$dynamicRef" => {
                value.as_str().map_or(Load::NONE, |target| self.reference(target, depth))
            }
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => {
                self.schema(value, depth)
            }
            "dependentSchemas" => self.members(value, depth),
            // The validator looks strings up, and compares other choices one by one.
            "enum" => of_each(value, |choice| !choice.is_string()),
            "required" => of_each(value, |_| true),
            _ if depth == Some(0) => Load::NONE,
            "patternProperties" | "properties" => self.members(value, below),
            "additionalProperties"
            | "contains"
            | "items"
            | "prefixItems"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties" => self.schema(value, below),
            _ => Load::NONE,
        }
    }

    fn members(&mut self, schemas: &'a Value, depth: Option<usize>) -> Load {
        self.sum(schemas.as_object().into_iter().flat_map(|members| members.values()), depth)
    }

    fn sum(&mut self, schemas: impl Iterator<Item = &'a Value>, depth: Option<usize>) -> Load {
        schemas.map(|schema| self.schema(schema, depth)).fold(Load::NONE, Load::beside)
    }

    fn reference(&mut self, target: &'a str, depth: Option<usize>) -> Load {
        if self.once.contains(target) {
            return Load::NONE.inside();
        }
        if let Some(load) = self.known.get(&(target, depth)) {
            return *load;
        }
        if self.open.contains(&target) {
            self.circle = Some(target);
            return Load::ENDLESS;
        }
        if self.open.len() >= CHAIN_LIMIT {
            return Load::ENDLESS;
        }
        self.open.push(target);
        let bodies = (self.find)(target);
        let loads = bodies.into_iter().map(|body| self.schema(body, depth));
        let load = loads.fold(Load::NONE, Load::larger);
        self.open.pop();
        self.known.insert((target, depth), load);
        load
    }
}

/// One piece of work for each of these items.
fn of_each(list: &Value, counts: fn(&Value) -> bool) -> Load {
    let items = list.as_array().into_iter().flatten().filter(|item| counts(item));
    items.map(|_| Load { work: 1.0, levels: 0.0 }).fold(Load::NONE, Load::beside)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The costs of a schema whose `$defs` are `a`, `b`, ….
    fn costs(schema: &Value) -> Costs {
        let names: Vec<_> =
            schema["$defs"].as_object().into_iter().flat_map(|d| d.keys()).collect();
        let targets: Vec<_> = names.iter().map(|name| format!("#/$defs/{name}")).collect();
        let targets: Vec<_> = targets.iter().map(String::as_str).collect();
        let find =
            |target: &str| schema.pointer(target.trim_start_matches('#')).into_iter().collect();
        Costs::of(schema, &targets, &find)
    }

    #[track_caller]
    fn check(schema: Value, by_depth: &[f64], per_value: f64, levels: f64) {
        let costs = costs(&schema);
        let found: Vec<_> = (0..by_depth.len()).map(|depth| costs.at(depth)).collect();
        assert_eq!(found, by_depth, "{schema}");
        assert_eq!((costs.per_value(), costs.levels()), (per_value, levels), "{schema}");
    }

    #[test]
    fn a_plain_schema_costs_its_own_size() {
        check(json!({}), &[1.0, 1.0], 1.0, 1.0);
        check(json!({"type": "object", "enum": ["a", {}, 1]}), &[3.0, 3.0], 3.0, 1.0);
        check(json!({"required": ["a", "b"]}), &[3.0, 3.0], 3.0, 1.0);
        let nested = json!({"properties": {"a": {}, "b": {"items": {}}}});
        check(nested, &[1.0, 3.0, 4.0, 4.0], 4.0, 3.0);
        check(json!({"anyOf": [{}, {}], "not": {}}), &[4.0, 4.0], 4.0, 2.0);
    }

    #[test]
    fn references_count_each_time() {
        let defs = json!({"a": {"allOf": [{}, {}]}});
        let twice = json!({"$ref": "#/$defs/a"});
        check(json!({"$defs": defs, "allOf": [twice, twice]}), &[9.0, 9.0], 9.0, 4.0);
        let properties = json!({"$defs": defs, "properties": {"x": twice, "y": twice}});
        check(properties, &[1.0, 9.0, 9.0], 9.0, 4.0);
    }

    #[test]
    fn a_schema_that_refers_to_itself_grows_with_the_arguments() {
        let reference = json!({"$ref": "#/$defs/a"});
        let list =
            json!({"$defs": {"a": {"properties": {"next": reference}}}, "$ref": "#/$defs/a"});
        check(list, &[2.0, 4.0, 6.0, 8.0], 5.0, 130.0);
        let tree = json!({
            "$defs": {"a": {"properties": {"next": {"anyOf": [reference, reference]}}}},
            "$ref": "#/$defs/a",
        });
        assert!(costs(&tree).at(20) > 1e6);
        assert_eq!(costs(&tree).per_value(), 8.0);
    }

    /// `a` refers twice to `b`, that to `c`, and so on; `wrap` says how.
    fn doubling(wrap: fn(Value) -> Value) -> Value {
        let mut defs = json!({"z": {}});
        for (name, next) in ('a'..='y').zip('b'..='z') {
            let next = wrap(json!({"$ref": format!("#/$defs/{next}")}));
            defs[name.to_string()] = json!({"allOf": [next, next]});
        }
        json!({"$defs": defs, "$ref": "#/$defs/a"})
    }

    #[test]
    fn doubling_is_seen_beside_a_schema_that_refers_to_itself_too() {
        assert!(costs(&doubling(|next| next)).per_value() > 1e7);
        let mut schema = doubling(|next| json!({"properties": {"x": next}}));
        assert!(costs(&schema).per_value() > 1e7);
        schema["$defs"]["list"] = json!({"items": {"$ref": "#/$defs/list"}});
        schema["properties"] = json!({"list": {"$ref": "#/$defs/list"}});
        assert!(costs(&schema).per_value() > 1e7);
    }

    #[test]
    fn a_reference_to_itself_for_the_same_value_is_named() {
        for schema in [
            json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            json!({"$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        ] {
            assert!(costs(&schema).circle().is_some(), "{schema}");
        }
        let list = json!({"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"});
        assert_eq!(costs(&list).circle(), None);
    }
}
