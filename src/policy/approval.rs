//! A tool's own policy, and what the model reads where a call may not run.

use std::borrow::Cow;

use crate::model::outcome::{Decision, Effect};
use crate::policy::condition::Condition;
use crate::policy::truncate;

/// What the model reads where a yes is no longer about what would run.
pub const VOID: &str = "The tool changed while this call waited; call it again.";

/// The model wrote the arguments: so much of them reminds it.
const ASKED_BYTES: usize = 4096;

/// A tool's own policy: what is in force, and a candidate that only watches.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPolicy {
    /// What is in force.
    pub effect: Effect,
    /// Whether it says `ask_first`, by itself or beside an effect that is stricter.
    pub ask_first: bool,
    /// The candidate, which changes nothing but the report.
    pub candidate: Option<Candidate>,
}

/// What may stand for a tool's policy one day.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// What it says.
    pub effect: Effect,
    /// Of which calls it says something: all of this holds of their arguments.
    pub when: Vec<Condition>,
}

/// What the model reads when a call may not run, or `None` where it may, or where a person can let it.
///
/// Where nobody can be asked, an effect that needs somebody closes: the call is refused.
pub fn refusal(decision: &Decision, can_wait: bool) -> Option<Cow<'static, str>> {
    let sentence = match decision.effect {
        Effect::Allow => return None,
        Effect::AskFirst | Effect::RequireApproval if can_wait => return None,
        Effect::AskFirst => {
            "This call is not allowed. The person must be asked first, and nobody can be asked here."
        }
        Effect::Deny => "This call is not allowed.",
        Effect::RequireApproval => {
            "This call is not allowed. It needs a person's approval, and nobody can be asked here."
        }
    };
    Some(with_message(sentence, decision.message.as_deref()))
}

/// What the model reads while a call waits for an operator.
pub fn waits(message: Option<&str>) -> String {
    with_message("This call waits for approval.", message).into_owned()
}

/// What the model reads while a call waits for the person: it asks in its own words.
pub fn ask(tool: &str, arguments: &[u8]) -> String {
    let arguments = String::from_utf8_lossy(&arguments[..truncate::cut(arguments, ASKED_BYTES)]);
    format!(
        "Ask the person, in your own words, whether to do this: {tool} with {arguments}. \
         Call the tool again with the same arguments only after they say yes."
    )
}

/// What the model reads of a no.
pub fn rejected(reason: Option<&str>) -> String {
    with_message("A person declined this call.", reason).into_owned()
}

fn with_message(sentence: &'static str, message: Option<&str>) -> Cow<'static, str> {
    match message {
        Some(message) => format!("{sentence} {message}").into(),
        None => sentence.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::PolicyName;

    fn decision(effect: Effect, message: Option<&str>) -> Decision {
        let message = message.map(Into::into);
        Decision {
            effect,
            then_ask: false,
            policy: PolicyName::Tool,
            rule: None,
            message,
            expires: None,
            shadow: Vec::new(),
        }
    }

    #[test]
    fn where_nobody_can_be_asked_only_allow_runs() {
        for effect in Effect::ALL {
            let open = refusal(&decision(effect, None), true);
            assert_eq!(open.is_none(), effect != Effect::Deny);
            let closed = refusal(&decision(effect, None), false);
            assert_eq!(closed.is_none(), effect == Effect::Allow);
        }
    }

    #[test]
    fn the_message_of_a_rule_follows() {
        let text = refusal(&decision(Effect::Deny, Some("Refunds end at 500.")), true);
        assert_eq!(text.as_deref(), Some("This call is not allowed. Refunds end at 500."));
    }
}
