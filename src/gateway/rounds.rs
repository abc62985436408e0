//! Rounds: how many calls run at the same time for one reply, and how often before it is given.

use crate::config::snapshot::{Rounds, Tool};
use crate::model::call::ToolCall;
use crate::model::outcome::{Failure, FailureCode};

/// Refuses a call whose round is one too many, or has too many calls before it.
///
/// It is not to be repeated: the same call would only come past the bound.
pub(super) fn admit(rounds: &Rounds, call: &ToolCall) -> Result<(), Failure> {
    if call.context.round.is_some_and(|round| round > rounds.max_rounds) {
        let count = counted(rounds.max_rounds, "round runs", "rounds run");
        return Err(not_run(&format!("not run: at most {count} in one reply.")));
    }
    let before = call.batch.as_ref().map_or(0, |batch| batch.index());
    if u32::try_from(before).is_ok_and(|before| before < rounds.calls_per_round) {
        return Ok(());
    }
    let count = counted(rounds.calls_per_round, "call runs", "calls run");
    Err(not_run(&format!("not run: at most {count} in one round.")))
}

/// What is said to the person while the call runs that begins now: once in a round.
pub(super) fn filler<'a>(tool: &'a Tool, call: &ToolCall) -> Option<&'a str> {
    let filler = tool.filler.as_deref()?;
    let Some(batch) = &call.batch else { return Some(filler) };
    batch.take_filler();
    batch.says_filler().then_some(filler)
}

fn not_run(text: &str) -> Failure {
    Failure::not_sent(FailureCode::NotRun, text)
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
