//! `storage` exactly as it is written in the configuration file.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::given::{Given, OneOf};
use crate::config::leaf::{Span, Verbatim};
use crate::config::raw_tool::RawReference;
use crate::config::storage::Capture;

/// `storage`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawStorage {
    /// `sqlite:PATH` (a relative path starts at the configuration file's folder), `sqlite::memory:` (default) or
    /// `postgres://USER@HOST/DATABASE`; a url with a password is a reference: {file: PATH} or {env: NAME}. A change here
    /// needs a restart.
    pub url: Given<OneOf<Verbatim, RawReference>>,
    /// full (default): records of calls have arguments and answers too; none: they have neither.
    pub capture: Given<Capture>,
    /// How long records are kept.
    pub keep: Given<RawKeep>,
}

/// `storage.keep`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RawKeep {
    /// Finished calls; default 7d.
    pub calls: Given<Span>,
    /// What the same call is answered with when it is made again; default 24h.
    pub replay: Given<Span>,
    /// Who decided and changed what; default 400d.
    pub audit: Given<Span>,
    /// Finished calls at most; 0: none is recorded. Default 100000, and 10000 in memory.
    #[schemars(range(max = 100_000_000))]
    pub max_calls: Given<u64>,
}
