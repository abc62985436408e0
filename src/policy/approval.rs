//! Decides whether a tool's call may run, and what its candidate policy would have said.

use crate::model::outcome::{Decision, Effect};

/// A tool's own policy: what is in force, and a candidate that only watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolPolicy {
    /// What is in force.
    pub effect: Effect,
    /// The candidate, which changes nothing but the report.
    pub shadow: Option<Effect>,
}

impl ToolPolicy {
    /// The decision on one call.
    pub fn decide(&self) -> Decision {
        Decision { enforced: self.effect, shadow: self.shadow }
    }
}

/// What the model reads when a call may not run, or `None` where it may.
///
/// Nothing here can hold a call for a person yet, so an effect that needs one closes: the call is refused.
pub fn refusal(decision: &Decision) -> Option<&'static str> {
    match decision.enforced {
        Effect::Allow => None,
        Effect::AskFirst => Some(
            "This call is not allowed. The person must be asked first, and this gateway cannot ask yet.",
        ),
        Effect::Deny => Some("This call is not allowed."),
        Effect::RequireApproval => Some(
            "This call is not allowed. It needs a person's approval, and this gateway cannot ask for one yet.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allow_runs() {
        for effect in Effect::ALL {
            let decision = ToolPolicy { effect, shadow: Some(Effect::Allow) }.decide();
            assert_eq!(refusal(&decision).is_none(), effect == Effect::Allow, "{effect:?}");
        }
    }

    #[test]
    fn a_candidate_never_changes_what_is_in_force() {
        let decision = ToolPolicy { effect: Effect::Allow, shadow: Some(Effect::Deny) }.decide();
        assert_eq!(refusal(&decision), None);
        assert_eq!(decision.shadow, Some(Effect::Deny));
    }
}
