//! What is counted elsewhere; a scrape copies it.

use crate::policy::breaker::State;

/// The counts of others.
pub trait Readings: Send + Sync {
    /// `(kind, how many)` connections to tools since the start, with the kinds of the contract.
    fn connections(&self) -> [(&'static str, u64); 4];

    /// Connections to tools that are open.
    fn connections_open(&self) -> u64;

    /// `(result, how many)` lines of finished calls since the start, with the results of the contract.
    fn call_lines(&self) -> [(&'static str, u64); 2];

    /// Exceptions in the egress rules that are in force.
    fn egress_exceptions(&self) -> usize;

    /// Where the circuit of each tool stands, by the tool's name; `None` where it has none.
    fn circuits(&self) -> Vec<(String, Option<State>)>;
}
