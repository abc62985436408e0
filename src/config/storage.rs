//! Where calls and approvals are kept, what of them, and for how long.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::secret::Secret;

/// Where calls and approvals are kept, what of them, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Where. It is opened once, at the start.
    pub url: StoreUrl,
    /// What of a call is kept, where its tool does not say it.
    pub capture: Capture,
    /// How long, and how much.
    pub keep: Keep,
}

impl Storage {
    /// The settings that need a restart to change.
    pub fn changes(&self, other: &Self) -> Vec<&'static str> {
        if self.url == other.url { Vec::new() } else { vec!["storage.url"] }
    }
}

/// Where calls and approvals are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// Nobody knows: the secret that says it could not be read. Why, for the operator.
    Lacking(String),
    /// In this process.
    Memory,
    /// In PostgreSQL: the whole URL, which may hold a password.
    Postgres(Secret),
    /// In a file of SQLite.
    Sqlite(PathBuf),
}

/// What of a call is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Capture {
    /// Its arguments and its answer too.
    Full,
    /// That it was made, and how it ended.
    None,
}

impl Capture {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::None => "none",
        }
    }
}

/// How long things are kept, and how much of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Finished calls.
    pub calls: Duration,
    /// What a call that is made again is answered with.
    pub replay: Duration,
    /// Who decided and changed what.
    pub audit: Duration,
    /// Finished calls at most; 0: none is recorded.
    pub max_calls: u64,
}
