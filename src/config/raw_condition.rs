//! Conditions on the arguments of a call, exactly as they are written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::config::given::Given;
use crate::policy::condition::{Absent, Operator};

/// A condition on one value of the arguments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["pointer", "operator", "threshold"]))]
pub struct RawCondition {
    /// Where the value is, as a JSON pointer: `/amount`.
    pub pointer: Given<String>,
    /// How it is compared.
    pub operator: Given<Operator>,
    /// With what: a number, a text or a boolean; for `in` and `not_in` a list, or a text with commas.
    pub threshold: Given<Value>,
    /// What the condition says of a value that is absent, or no number where one is compared: match (default of the four
    /// that compare by number) or skip (default of the others).
    pub on_absent: Given<Absent>,
}
