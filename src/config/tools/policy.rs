//! Compiles a tool's own policy, and the candidate that may stand for it one day.

use crate::config::given::OneOf;
use crate::config::policies;
use crate::config::tools::Compiler;
use crate::model::outcome::Effect;
use crate::policy::approval::{Candidate, ToolPolicy};
use crate::policy::wire::WireProfile;

impl Compiler<'_> {
    /// The strictest of what the tool says; the file's default where it says nothing, or else the profile's.
    pub(super) fn policy(&self, profile: &WireProfile) -> ToolPolicy {
        let (own, candidate) = match self.raw.policy.found() {
            None => (None, None),
            Some((OneOf::Short(effect), _)) => (Some(effect), None),
            Some((OneOf::Long(raw), node)) => {
                let hint = "write allow, ask_first, require_approval or deny";
                let own = self.context.required(node, "effect", &raw.effect, hint);
                let candidate = raw.shadow.found().and_then(|(raw, node)| {
                    let effect = self.context.required(node, "effect", &raw.effect, hint);
                    let when = policies::conditions(self.context, &raw.when);
                    let when = when.into_iter().map(|(condition, _)| condition).collect();
                    effect.map(|(effect, _)| Candidate { effect: effect.effect(), when })
                });
                (own.map(|(effect, _)| effect), candidate)
            }
        };
        let default = self.defaults.policy.unwrap_or(profile.default_policy);
        let own = own.map_or(default, |effect| effect.effect());
        let ask_first = self.raw.ask_first.get() == Some(&true);
        let effect_in_force = if ask_first { own.max(Effect::AskFirst) } else { own };
        let ask_first = ask_first || own == Effect::AskFirst;
        ToolPolicy { effect: effect_in_force, ask_first, candidate }
    }
}
