//! One call as a row of the table.

use serde::Deserialize;

use crate::telemetry::line::one_line;

/// What is shown of a call's line.
#[derive(Debug, Deserialize)]
pub(super) struct Line {
    pub(super) ts: String,
    pub(super) call_id: String,
    pub(super) tool: String,
    pub(super) status: String,
    pub(super) code: String,
    pub(super) outcome: Option<String>,
    pub(super) attempts: u64,
    pub(super) duration_ms: u64,
}

/// The head of the table.
pub(super) fn heading() -> String {
    let heads = ["TIME", "TOOL", "STATUS", "CODE", "OUTCOME", "ATTEMPTS", "MS", "CALL"];
    row(heads.map(str::to_owned))
}

impl Line {
    /// Its row of the table.
    pub(super) fn row(self) -> String {
        let outcome = self.outcome.unwrap_or_else(|| "-".to_owned());
        let numbers = [self.attempts, self.duration_ms].map(|number| number.to_string());
        let [attempts, duration] = numbers;
        row([self.ts, self.tool, self.status, self.code, outcome, attempts, duration, self.call_id])
    }
}

/// One line of the table. A tool's name is as it was asked for, so it may hold anything.
fn row(cells: [String; 8]) -> String {
    let [ts, tool, status, code, outcome, attempts, ms, call] = cells;
    clean(&format!(
        "{ts:<24}  {tool:<24}  {status:<16}  {code:<19}  {outcome:<8}  {attempts:>8}  {ms:>7}  {call}"
    ))
}

/// A text on one line of its own.
pub(super) fn clean(text: &str) -> String {
    String::from_utf8_lossy(&one_line(text.as_bytes())).into_owned() + "\n"
}
