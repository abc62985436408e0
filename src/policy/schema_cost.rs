//! How much work a schema can make of its arguments: references multiply, and so does nesting.

use std::collections::HashMap;
use std::ops::Add;

use serde_json::Value;

use crate::model::json::MAX_DEPTH;

/// Applied subschemas per argument value, by how deeply the arguments are nested. Floating, because they
/// may grow beyond any integer and only their size matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs(Vec<f64>);

impl Costs {
    /// Estimates a schema; `references` are its `$ref` targets, `find` leads to them.
    pub fn of<'a>(
        schema: &'a Value,
        references: &[&'a str],
        find: &dyn Fn(&str) -> Option<&'a Value>,
    ) -> Self {
        let mut estimate = Estimate { find, known: HashMap::new(), open: Vec::new() };
        // From shallow to deep, so that each level finds the ones below it.
        let levels = (0..=MAX_DEPTH).map(|depth| {
            for target in references {
                estimate.reference(target, depth);
            }
            estimate.schema(schema, depth)
        });
        Self(levels.collect())
    }

    /// The cost for arguments of so many levels.
    pub fn at(&self, depth: usize) -> f64 {
        self.0.get(depth).or(self.0.last()).copied().unwrap_or(f64::INFINITY)
    }

    /// What the schema alone can cause: whatever the arguments are, or only those on one level
    /// where it refers to itself and therefore has no bound.
    pub fn least_bound(&self) -> f64 {
        let refers_to_itself = self.at(MAX_DEPTH) > self.at(MAX_DEPTH - 1);
        self.at(if refers_to_itself { 0 } else { MAX_DEPTH })
    }
}

/// A longer chain of references without an argument between them is taken as endless work.
const CHAIN_LIMIT: usize = 64;

struct Estimate<'a, 'f> {
    find: &'f dyn Fn(&str) -> Option<&'a Value>,
    known: HashMap<(&'a str, usize), f64>,
    /// The references that are being followed.
    open: Vec<&'a str>,
}

impl<'a> Estimate<'a, '_> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> f64 {
        match schema {
            Value::Array(items) => self.sum(items.iter(), depth),
            Value::Object(members) => members
                .iter()
                .map(|(keyword, value)| self.keyword(keyword, value, depth))
                .fold(1.0, Add::add),
            _ => 1.0,
        }
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, depth: usize) -> f64 {
        match keyword {
            "$defs" | "definitions" => 0.0,
            "$ref" | "$dynamicRef" => value.as_str().map_or(0.0, |to| self.reference(to, depth)),
            "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" => {
                self.schema(value, depth)
            }
            "dependentSchemas" => self.members(value, depth),
            _ if depth == 0 => 0.0,
            "patternProperties" | "properties" => self.members(value, depth - 1),
            "additionalProperties"
            | "contains"
            | "items"
            | "prefixItems"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties" => self.schema(value, depth - 1),
            _ => 0.0,
        }
    }

    fn members(&mut self, schemas: &'a Value, depth: usize) -> f64 {
        self.sum(schemas.as_object().into_iter().flat_map(|members| members.values()), depth)
    }

    fn sum(&mut self, schemas: impl Iterator<Item = &'a Value>, depth: usize) -> f64 {
        schemas.map(|schema| self.schema(schema, depth)).fold(0.0, Add::add)
    }

    fn reference(&mut self, target: &'a str, depth: usize) -> f64 {
        if let Some(cost) = self.known.get(&(target, depth)) {
            return *cost;
        }
        if self.open.contains(&target) {
            return 0.0;
        }
        if self.open.len() >= CHAIN_LIMIT {
            return f64::INFINITY;
        }
        let Some(schema) = (self.find)(target) else {
            return 0.0;
        };
        self.open.push(target);
        let cost = self.schema(schema, depth);
        self.open.pop();
        self.known.insert((target, depth), cost);
        cost
    }
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
        let find = |target: &str| schema.pointer(target.trim_start_matches('#'));
        Costs::of(schema, &targets, &find)
    }

    #[track_caller]
    fn check(schema: Value, by_depth: &[f64], least_bound: f64) {
        let costs = costs(&schema);
        let found: Vec<_> = (0..by_depth.len()).map(|depth| costs.at(depth)).collect();
        assert_eq!((found.as_slice(), costs.least_bound()), (by_depth, least_bound), "{schema}");
    }

    #[test]
    fn a_plain_schema_costs_its_own_size() {
        check(json!({}), &[1.0, 1.0], 1.0);
        check(json!({"type": "object", "required": ["a"], "enum": [{}, {}]}), &[1.0, 1.0], 1.0);
        check(json!({"properties": {"a": {}, "b": {"items": {}}}}), &[1.0, 3.0, 4.0, 4.0], 4.0);
        check(json!({"anyOf": [{}, {}], "not": {}}), &[4.0, 4.0], 4.0);
    }

    #[test]
    fn references_count_each_time() {
        let defs = json!({"a": {"allOf": [{}, {}]}});
        let twice = json!({"$ref": "#/$defs/a"});
        check(json!({"$defs": defs, "allOf": [twice, twice]}), &[9.0, 9.0], 9.0);
        check(
            json!({"$defs": defs, "properties": {"x": twice, "y": twice}}),
            &[1.0, 9.0, 9.0],
            9.0,
        );
    }

    #[test]
    fn a_schema_that_refers_to_itself_grows_with_the_arguments() {
        let reference = json!({"$ref": "#/$defs/a"});
        let list =
            json!({"$defs": {"a": {"properties": {"next": reference}}}, "$ref": "#/$defs/a"});
        check(list, &[2.0, 4.0, 6.0, 8.0], 2.0);
        let tree = json!({
            "$defs": {"a": {"properties": {"next": {"anyOf": [reference, reference]}}}},
            "$ref": "#/$defs/a",
        });
        assert!(costs(&tree).at(20) > 1e6);
        assert_eq!(costs(&tree).least_bound(), 2.0);
    }

    #[test]
    fn doubling_without_arguments_is_seen_in_the_schema() {
        let mut defs = json!({"z": {}});
        for (name, next) in ('a'..='y').zip('b'..='z') {
            let next = json!({"$ref": format!("#/$defs/{next}")});
            defs[name.to_string()] = json!({"allOf": [next, next]});
        }
        let schema = json!({"$defs": defs, "$ref": "#/$defs/a"});
        assert!(costs(&schema).least_bound() > 1e7);
    }

    #[test]
    fn circles_end() {
        check(
            json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}),
            &[2.0, 2.0],
            2.0,
        );
    }
}
