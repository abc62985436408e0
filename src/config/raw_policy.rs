//! Policies over many tools, exactly as they are written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, List};
use crate::config::raw_condition::RawCondition;
use crate::config::raw_tool::{RawEffect, RawKind};
use crate::policy::rules::{Mode, Permission};

/// One policy.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["id", "effect"]))]
pub struct RawPolicy {
    /// Its name, unique: a letter, then letters, digits, `-` and `_`, all lower case.
    pub id: Given<String>,
    /// enforce (default), or shadow: it changes nothing but `decision.shadow` and counters.
    pub mode: Given<Mode>,
    /// The calls that it is about; left out: all.
    #[serde(rename = "match")]
    pub matching: Given<RawMatch>,
    /// What it says of them.
    pub effect: Given<RawEffect>,
    /// A sentence that the model reads: 1 to 200 characters.
    pub message: Given<String>,
    /// How long a person may take: 1 minute to 7 days; default 60.
    #[schemars(range(min = 1, max = 10_080))]
    pub expires_minutes: Given<u64>,
    /// Of two policies that say the same, the message of the higher one is read; default 0.
    pub priority: Given<i64>,
}

/// Which calls a policy is about: all of it must fit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawMatch {
    /// Names of tools, in which `*` stands for any run of characters.
    pub tools: List<String>,
    /// Kinds of tools.
    pub kinds: List<RawKind>,
    /// Names of agents, in which `*` stands for any run of characters; a call without an agent fits `*` alone.
    pub agents: List<String>,
    /// READ: tools that are annotated `read_only`; WRITE: the others.
    pub permission: Given<Permission>,
    /// What holds of the arguments, all of it.
    pub when: List<RawCondition>,
}
