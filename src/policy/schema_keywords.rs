//! The keywords of JSON Schema below which further schemas stand.

/// Their value is a schema.
pub const ONE: &[&str] = &[
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Their value is a list of schemas.
pub const LISTS: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];
/// Their value holds schemas by name.
pub const MAPS: &[&str] =
    &["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
