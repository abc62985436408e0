//! A call's JSON that is kept, told again with what has changed since.

use serde::Serialize;

use crate::model::approval::Approval;
use crate::model::json_tree::Tree;
use crate::model::outcome::{Failure, Phase};
use crate::model::outcome_text::{ApprovalBody, ModelBody, error_body};
use crate::model::time::rfc3339;

/// What changed about a call that has not ended.
#[derive(Debug, Default)]
pub struct Change<'a> {
    /// For which decision it waits, or on which it runs.
    pub approval: Option<&'a Approval>,
    /// Its call has begun to run, in Unix milliseconds.
    pub started_at_ms: Option<i64>,
    /// Why it ended, and when in Unix milliseconds.
    pub failure: Option<(&'a Failure, i64)>,
    /// Since when, in Unix milliseconds: with the end it gives the duration.
    pub created_at_ms: i64,
    /// Whether the tool only reads, so that nothing can have taken effect.
    pub read_only: bool,
}

/// The kept text with the change; `None` where the text is not one of ours.
pub fn changed(kept: &[u8], phase: Phase, change: &Change<'_>) -> Option<Vec<u8>> {
    let mut tree = Tree::read(std::str::from_utf8(kept).ok()?)?;
    tree.set("status", Tree::text(phase.as_str()));
    if let Some(approval) = change.approval {
        tree.set("approval", tree_of(&ApprovalBody::from(approval))?);
    }
    if let Some(at_ms) = change.started_at_ms {
        tree.set("started_at", tree_of(&rfc3339(at_ms))?);
        tree.set(
            "model",
            tree_of(&ModelText { text: None, is_error: false, reply_stands: false })?,
        );
    }
    if let Some((failure, at_ms)) = change.failure {
        tree.set("error", tree_of(&error_body(failure))?);
        let model = ModelBody::of_failure(failure, change.read_only);
        let text = Some(model.text.as_ref());
        tree.set("model", tree_of(&ModelText { text, is_error: true, reply_stands: false })?);
        let duration = at_ms.saturating_sub(change.created_at_ms).max(0);
        tree.set("duration_ms", Tree::Word(duration.to_string()));
        tree.set("finished_at", tree_of(&rfc3339(at_ms))?);
    }
    Some(tree.to_json().into_bytes())
}

/// A finished call's text for whoever asks for the same call again.
pub fn replayed(text: &[u8]) -> Vec<u8> {
    const BEFORE: &[u8] = b",\"replayed\":false,\"test\":";
    // Nothing that a tool or a runtime wrote stands after it, so the last one is the field.
    let found = text.windows(BEFORE.len()).rposition(|window| window == BEFORE);
    let Some(at) = found else { return text.to_vec() };
    let (before, after) = (&text[..at], &text[at + BEFORE.len()..]);
    [before, b",\"replayed\":true,\"test\":", after].concat()
}

/// A finished call's text without what the tool answered, for a store that keeps no answers.
pub fn without_answer(text: &[u8]) -> Option<Vec<u8>> {
    let mut tree = Tree::read(std::str::from_utf8(text).ok()?)?;
    if tree.get("status").and_then(Tree::as_text) == Some("succeeded") {
        tree.set("result", Tree::Word("null".to_owned()));
        let text = Some("The call succeeded; its answer was not kept.");
        tree.set("model", tree_of(&ModelText { text, is_error: false, reply_stands: false })?);
    } else if let Some(message) = tree.get("error").and_then(|error| error.get("message")) {
        // What the tool said of the failure goes, the sentence stays.
        let model = ModelText { text: message.as_text(), is_error: true, reply_stands: false };
        let model = tree_of(&model)?;
        tree.set("model", model);
    }
    Some(tree.to_json().into_bytes())
}

#[derive(Serialize)]
struct ModelText<'a> {
    text: Option<&'a str>,
    is_error: bool,
    reply_stands: bool,
}

fn tree_of(value: &impl Serialize) -> Option<Tree> {
    Tree::read(&serde_json::to_string(value).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_field_itself_says_that_it_is_told_again() {
        let said = r#"{"result":",\"replayed\":false,\"test\":","attempts":[],"replayed":false,"test":false}"#;
        let again = String::from_utf8(replayed(said.as_bytes())).unwrap();
        assert_eq!(
            again,
            said.replace(r#","replayed":false,"test":false}"#, r#","replayed":true,"test":false}"#)
        );
        assert_eq!(replayed(b"{}"), b"{}");
    }
}
