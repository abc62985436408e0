//! Conditions on the arguments of a call, exactly as they are written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::config::given::Given;

/// A condition on one value of the arguments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["pointer", "operator", "threshold"]))]
pub struct RawCondition {
    /// Where the value is, as a JSON pointer: `/amount`.
    pub pointer: Given<String>,
    /// How it is compared.
    pub operator: Given<RawOperator>,
    /// With what: a number, a text or a boolean; for `in` and `not_in` a list, or a text with commas.
    pub threshold: Given<Value>,
    /// What the condition says of a value that is absent, or no number where one is compared: match (default of the four
    /// that compare by number) or skip (default of the others).
    pub on_absent: Given<RawAbsent>,
}

/// `on_absent`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawAbsent {
    /// It holds.
    Match,
    /// It does not hold.
    Skip,
}

/// `operator`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawOperator {
    /// A text has it inside, a list has it as an item.
    Contains,
    /// The same number, or the same text in any letter case.
    Equals,
    /// By number.
    GreaterThan,
    /// By number.
    GreaterThanOrEqual,
    /// Equals one of a list.
    In,
    /// By number.
    LessThan,
    /// By number.
    LessThanOrEqual,
    /// Not `contains`.
    NotContains,
    /// Not `equals`.
    NotEquals,
    /// Not `in`.
    NotIn,
}
