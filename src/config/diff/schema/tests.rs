//! Keywords of schemas that open and close.

use super::*;
use serde_json::json;

#[track_caller]
fn check(old: Value, new: Value, expected: &[(Direction, &str)]) {
    let mut changes = Changes::default();
    compare(&mut changes, "", Some(&old), Some(&new));
    let found = changes.into_sorted();
    let found: Vec<(Direction, &str)> =
        found.iter().map(|one| (one.direction, one.path.as_str())).collect();
    assert_eq!(found, expected, "{old} -> {new}");
}

fn argument(schema: Value) -> Value {
    json!({"type": "object", "properties": {"a": schema}})
}

#[test]
fn bounds_open_and_close() {
    use Direction::{Looser, Neutral, Tighter};
    let one = |old, new, direction, path| check(argument(old), argument(new), &[(direction, path)]);
    one(json!({"maxLength": 5}), json!({"maxLength": 6}), Looser, "/properties/a/maxLength");
    one(json!({"maxLength": 5}), json!({}), Looser, "/properties/a/maxLength");
    one(json!({}), json!({"pattern": "^a"}), Tighter, "/properties/a/pattern");
    one(json!({"pattern": "^b"}), json!({"pattern": "^a"}), Looser, "/properties/a/pattern");
    one(json!({"minimum": 5}), json!({"minimum": 6}), Tighter, "/properties/a/minimum");
    one(
        json!({"exclusiveMaximum": 5}),
        json!({"exclusiveMaximum": 4}),
        Tighter,
        "/properties/a/exclusiveMaximum",
    );
    one(json!({"enum": ["x", "y"]}), json!({"enum": ["x"]}), Tighter, "/properties/a/enum");
    one(json!({"enum": ["x"]}), json!({"enum": ["x", "z"]}), Looser, "/properties/a/enum");
    one(json!({"type": "number"}), json!({"type": "integer"}), Tighter, "/properties/a/type");
    one(
        json!({"type": "string"}),
        json!({"type": ["string", "null"]}),
        Looser,
        "/properties/a/type",
    );
    one(
        json!({"description": "x"}),
        json!({"description": "y"}),
        Neutral,
        "/properties/a/description",
    );
    one(
        json!({"items": {"maxLength": 1}}),
        json!({"items": {}}),
        Looser,
        "/properties/a/items/maxLength",
    );
    one(
        json!({"anyOf": [{"const": 1}]}),
        json!({"anyOf": [{"const": 1}, {"const": 2}]}),
        Looser,
        "/properties/a/anyOf",
    );
}

#[test]
fn a_new_argument_is_looser_where_others_are_refused() {
    use Direction::{Looser, Tighter};
    let closed = |names: &[&str]| {
        let names: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"properties": names, "additionalProperties": false})
    };
    check(closed(&["a"]), closed(&["a", "b"]), &[(Looser, "/properties/b")]);
    check(closed(&["a", "b"]), closed(&["a"]), &[(Tighter, "/properties/b")]);
    let open = |schema: Value| json!({"properties": schema});
    check(open(json!({})), open(json!({"b": {"type": "string"}})), &[(Tighter, "/properties/b")]);
    check(open(json!({"b": {"type": "string"}})), open(json!({})), &[(Looser, "/properties/b")]);
    let (shut, ajar) = (json!({"additionalProperties": false}), json!({}));
    check(shut.clone(), ajar.clone(), &[(Looser, "/additionalProperties")]);
    check(ajar, shut, &[(Tighter, "/additionalProperties")]);
}

#[test]
fn a_definition_that_may_be_turned_around_counts_as_looser() {
    let with = |all: Value| json!({"$defs": {"d": {"maxLength": 2}}, "properties": {"a": all}});
    let (old, turned) =
        (with(json!({"$ref": "#/$defs/d"})), with(json!({"not": {"$ref": "#/$defs/d"}})));
    let tighter = |schema: &Value| {
        let mut schema = schema.clone();
        schema["$defs"]["d"]["maxLength"] = json!(1);
        schema
    };
    check(old.clone(), tighter(&old), &[(Direction::Tighter, "/$defs/d/maxLength")]);
    check(turned.clone(), tighter(&turned), &[(Direction::Looser, "/$defs/d")]);
}

#[test]
fn a_keyword_that_frees_from_another_one_is_looser() {
    let looser = |old: Value, new: Value, path| check(old, new, &[(Direction::Looser, path)]);
    let closed = json!({"properties": {"a": {}}, "additionalProperties": false});
    let with = |schema: &Value, key: &str, value: Value| {
        let mut schema = schema.clone();
        schema[key] = value;
        schema
    };
    looser(
        closed.clone(),
        with(&closed, "patternProperties", json!({"": {}})),
        "/patternProperties",
    );
    let bound = json!({"additionalProperties": {"maximum": 5}});
    looser(bound.clone(), with(&bound, "properties", json!({"a": {}})), "/properties/a");
    let caught = json!({"properties": {"a": {"maximum": 5}}, "patternProperties": {"^a": {}}, "additionalProperties": false});
    looser(caught.clone(), with(&caught, "properties", json!({})), "/properties/a");
    let items = json!({"items": {"maximum": 5}});
    looser(items.clone(), with(&items, "prefixItems", json!([{}])), "/prefixItems");
    let contains = json!({"contains": {"const": 1}});
    looser(contains.clone(), with(&contains, "minContains", json!(0)), "/minContains");
    let few = json!({"contains": {}, "maxContains": 1});
    looser(few.clone(), with(&few, "contains", json!({"const": 1})), "/contains");
    let most = json!({"maximum": 9_007_199_254_740_992_u64});
    looser(most.clone(), with(&most, "maximum", json!(9_007_199_254_740_993_u64)), "/maximum");
}

#[test]
fn where_one_place_depends_on_another_nothing_is_tighter() {
    let looser = |old: Value, new: Value, path| check(old, new, &[(Direction::Looser, path)]);
    let branch = |properties: Value| json!({"unevaluatedProperties": false, "allOf": [{"properties": properties}]});
    looser(branch(json!({})), branch(json!({"a": {}})), "/allOf/0/properties/a");
    let turned =
        |a: Value| json!({"properties": {"a": a, "b": {"not": {"$ref": "#/properties/a"}}}});
    let (wide, narrow) = (json!({"maximum": 9}), json!({"maximum": 5}));
    looser(turned(wide), turned(narrow), "/properties/a/maximum");
    let defined = |a: Value| json!({"$defs": {"x": {"maximum": 5}}, "properties": {"a": a}});
    let moved = json!({"$ref": "#/$defs/x", "$id": "https://a.example.com/", "$defs": {"x": {}}});
    let mut changes = Changes::default();
    let (old, new) = (defined(json!({"$ref": "#/$defs/x"})), defined(moved));
    compare(&mut changes, "", Some(&old), Some(&new));
    assert_eq!(changes.into_sorted()[0].direction, Direction::Looser);
}

#[test]
fn arguments_where_there_were_none_are_looser() {
    let schema = json!({"type": "object"});
    let directions = |old: Option<&Value>, new: Option<&Value>| -> Vec<Direction> {
        let mut changes = Changes::default();
        compare(&mut changes, "", old, new);
        changes.into_sorted().iter().map(|one| one.direction).collect()
    };
    assert_eq!(directions(None, Some(&schema)), [Direction::Looser]);
    assert_eq!(directions(Some(&schema), None), [Direction::Tighter]);
    assert_eq!(directions(None, None), []);
}
