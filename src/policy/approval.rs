//! A tool's own policy, and what the model reads where a call may not run.

use std::borrow::Cow;

use crate::model::outcome::{Decision, Effect};
use crate::policy::condition::Condition;

/// A tool's own policy: what is in force, and a candidate that only watches.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPolicy {
    /// What is in force.
    pub effect: Effect,
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

/// What the model reads when a call may not run, or `None` where it may.
///
/// Nothing here can hold a call for a person yet, so an effect that needs one closes: the call is refused.
pub fn refusal(decision: &Decision) -> Option<Cow<'static, str>> {
    let sentence = match decision.effect {
        Effect::Allow => return None,
        Effect::AskFirst => {
            "This call is not allowed. The person must be asked first, and this gateway cannot ask yet."
        }
        Effect::Deny => "This call is not allowed.",
        Effect::RequireApproval => {
            "This call is not allowed. It needs a person's approval, and this gateway cannot ask for one yet."
        }
    };
    Some(match &decision.message {
        Some(message) => format!("{sentence} {message}").into(),
        None => sentence.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::PolicyName;

    fn decision(effect: Effect, message: Option<&str>) -> Decision {
        let message = message.map(Into::into);
        Decision { effect, policy: PolicyName::Tool, rule: None, message, shadow: Vec::new() }
    }

    #[test]
    fn only_allow_runs() {
        for effect in Effect::ALL {
            assert_eq!(refusal(&decision(effect, None)).is_none(), effect == Effect::Allow);
        }
    }

    #[test]
    fn the_message_of_a_rule_follows() {
        let text = refusal(&decision(Effect::Deny, Some("Refunds end at 500.")));
        assert_eq!(text.as_deref(), Some("This call is not allowed. Refunds end at 500."));
    }
}
