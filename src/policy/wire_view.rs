//! A wire format as a reviewer compares it: what limits a call, and the rest as one text.

use crate::policy::answer::ErrorBody;
use crate::policy::breaker::Trip;
use crate::policy::retry::RetryPolicy;
use crate::policy::schema::Dialect;
use crate::policy::wire::WireProfile;

/// What of a wire format is in force for a tool that uses it. What a tool's own settings begin from (its policy, time
/// and result) is no part: it is seen at the tool.
#[derive(Debug)]
pub struct WireView<'a> {
    /// The name.
    pub name: &'a str,
    /// Which JSON Schema keywords are taken.
    pub dialect: Dialect,
    /// Which failures are wanted again.
    pub retry: &'a RetryPolicy,
    /// After which answers its tools are not called for a while.
    pub circuit: Option<&'a Trip>,
    /// Which error bodies the model reads.
    pub error_body: ErrorBody,
    /// Whether it signs.
    pub signs: bool,
    /// Header lines, body and signature: equal texts send equal requests.
    pub format: String,
}

impl WireProfile {
    /// What a reviewer compares. Every field is named here, so that a new one has to be decided about.
    pub fn view(&self) -> WireView<'_> {
        let Self {
            name,
            // Everything in it is seen by itself.
            definition: _,
            dialect,
            default_policy: _,
            timeout: _,
            result_limit: _,
            retry,
            circuit,
            error_body,
            name_pattern: _,
            names: _,
            lines,
            key_form,
            body,
            signature,
        } = self;
        WireView {
            name,
            dialect: *dialect,
            retry,
            circuit: circuit.as_ref(),
            error_body: *error_body,
            signs: signature.is_some(),
            format: format!("{lines:?} {key_form:?} {body:?} {signature:?}"),
        }
    }
}
