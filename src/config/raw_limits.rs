//! Limits exactly as they are written in the configuration file: those of a tool, and of the gateway as a whole.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::Given;
use crate::config::leaf::{RateText, Span};
use crate::policy::quota::Per;

/// `limits`: of the gateway as a whole.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawLimits {
    /// Calls that are sent at the same time, and bodies that are read at the same time; default 1024.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_calls_in_flight: Given<u32>,
    /// Calls that one round may run at the same time; default 5.
    #[schemars(range(min = 1, max = 100))]
    pub calls_per_round: Given<u32>,
    /// Rounds of calls before a reply; default 3.
    #[schemars(range(min = 1, max = 100))]
    pub max_rounds: Given<u32>,
    /// How long the person may take to confirm a call; default 10m.
    pub confirm_for: Given<Span>,
    /// How long an approved call waits for its limits, a place and its tool; default 5m.
    pub dispatch_within: Given<Span>,
}

/// How often a tool may be called.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["per", "rate"]))]
pub struct RawRateLimit {
    /// For whom calls are counted.
    pub per: Given<RawPer>,
    /// How many calls in the long run: `60/min`.
    pub rate: Given<RateText>,
    /// How many may come at once; default the rate's own number.
    #[schemars(range(min = 1, max = 100_000))]
    pub burst: Given<u32>,
}

/// For whom calls are counted.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawPer {
    /// For each agent; calls without one are counted together.
    Agent,
    /// For each person; calls without one are counted together.
    EndUser,
    /// For each key of the API.
    Key,
    /// For each organisation.
    Organisation,
    /// For all together.
    Tool,
}

impl RawPer {
    /// What it means.
    pub fn per(self) -> Per {
        match self {
            Self::Agent => Per::Agent,
            Self::EndUser => Per::EndUser,
            Self::Key => Per::Key,
            Self::Organisation => Per::Organisation,
            Self::Tool => Per::Tool,
        }
    }
}

/// `off`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RawOff {
    /// There is none.
    Off,
}

/// When a tool that fails is not called for a while.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawBreaker {
    /// Calls that failed one after the other; default 5.
    #[schemars(range(min = 1, max = 1000))]
    pub consecutive: Given<u32>,
    /// The share of calls that failed, more than 0 and at most 1; default 0.5.
    pub failure_ratio: Given<f64>,
    /// How many calls there must be before the share counts; default 10.
    #[schemars(range(min = 1, max = 100_000))]
    pub min_calls: Given<u32>,
    /// Of how long the share is taken; default 60s.
    pub window: Given<Span>,
    /// How long the tool is not called; then one call is the probe. Default 30s.
    pub open_for: Given<Span>,
    /// Each probe that fails doubles the time, up to here; default 10m.
    pub max_open_for: Given<Span>,
}
