//! A wire format as a profile describes it, checked as a whole and compiled.

use std::time::Duration;

use regex::Regex;

use crate::model::outcome::Effect;
use crate::policy::answer::ErrorBody;
use crate::policy::breaker::Trip;
use crate::policy::header::{FieldValue, HeaderSlot, HeaderText, compile_lines};
use crate::policy::profile_fault::ProfileFault;
use crate::policy::retry::RetryPolicy;
use crate::policy::schema::Dialect;
use crate::policy::scheme::SchemeText;
use crate::policy::template::{BodyTemplate, Slot, TemplateText};
use crate::policy::wire::{KeyForm, TimeoutBounds, WireProfile};

/// Attempts that a profile may ask for: more would outlast any deadline.
const MOST_ATTEMPTS: u32 = 10;

/// The longest attempt: no call lasts longer.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(20 * 60);

/// The largest result, which is held in memory.
const LARGEST_RESULT: usize = 64 << 20;

/// How long an answer may keep its tool from being called.
const SHORTEST_TRIP: Duration = Duration::from_secs(1);
const LONGEST_TRIP: Duration = Duration::from_secs(24 * 60 * 60);

/// What a wire format is made of, before it is checked.
#[derive(Debug, Clone)]
pub struct WireParts {
    /// The profile's name.
    pub name: String,
    /// A digest over all that it says.
    pub definition: [u8; 32],
    /// The pattern of its tools' names.
    pub names: String,
    /// Which JSON Schema keywords its tools may use.
    pub dialect: Dialect,
    /// The policy of a tool that names none.
    pub default_policy: Effect,
    /// Bounds on one attempt's time.
    pub timeout: TimeoutBounds,
    /// Bound on the result, in bytes.
    pub result_limit: usize,
    /// Which failures are wanted again.
    pub retry: RetryPolicy,
    /// After which answers its tools are not called for a while.
    pub circuit: Option<Trip>,
    /// Which error bodies the model reads.
    pub error_body: ErrorBody,
    /// The headers in order.
    pub headers: Vec<HeaderText>,
    /// How the Idempotency-Key is written in a header.
    pub key_form: KeyForm,
    /// The body.
    pub body: TemplateText,
    /// How it is signed.
    pub signature: Option<SchemeText>,
}

impl WireParts {
    /// Checks and compiles a wire format; all faults at once.
    pub fn compile(self) -> Result<WireProfile, Vec<ProfileFault>> {
        let mut faults = check_limits(&self);
        // Alone first: `a)|(?:b` is a pattern only between the brackets.
        let names =
            Regex::new(&self.names).and_then(|_| Regex::new(&format!(r"\A(?:{})\z", self.names)));
        if names.is_err() {
            let message = format!("`{}` is not a regular expression", self.names);
            faults.push(ProfileFault::new("names", message));
        }
        let mut keep = |found: Vec<ProfileFault>| faults.extend(found);
        let lines = compile_lines(&self.headers).map_err(&mut keep);
        let body = BodyTemplate::compile(&self.body).map_err(&mut keep);
        let signature =
            self.signature.as_ref().map(SchemeText::compile).transpose().map_err(&mut keep);
        let (Ok(names), Ok(lines), Ok(body), Ok(signature)) = (names, lines, body, signature)
        else {
            return Err(faults);
        };
        let profile = WireProfile {
            name: self.name,
            definition: self.definition,
            dialect: self.dialect,
            default_policy: self.default_policy,
            timeout: self.timeout,
            result_limit: self.result_limit,
            retry: self.retry,
            circuit: self.circuit,
            error_body: self.error_body,
            name_pattern: self.names,
            names,
            lines,
            key_form: self.key_form,
            body,
            signature,
        };
        faults.extend(check_agreement(&profile));
        if faults.is_empty() { Ok(profile) } else { Err(faults) }
    }
}

/// What no part can know of the others.
fn check_agreement(profile: &WireProfile) -> Vec<ProfileFault> {
    let mut faults = Vec::new();
    let mut note = |path: &str, message: &str| faults.push(ProfileFault::new(path, message));
    let signature_lines = profile
        .fields()
        .filter(|field| field.value == FieldValue::Slot(HeaderSlot::Signature))
        .count();
    match (&profile.signature, signature_lines) {
        (None, 0) | (Some(_), 1) => {}
        (None, _) => note("signature", "is missing, and a header holds `$signature`"),
        (Some(_), 0) => note("headers", "one must hold `$signature`; without it nothing is signed"),
        (Some(_), _) => note("headers", "only one can hold `$signature`"),
    }
    let sends_id = profile.has_line(HeaderSlot::CallId) || profile.body.holds(Slot::CallId);
    if let Some(scheme) = &profile.signature {
        if scheme.signs_time() && !scheme.shows_time() && !profile.has_line(HeaderSlot::Timestamp) {
            note("headers", "the time is signed and never sent; add a header with `$timestamp`");
        }
        if scheme.signs_id() && !sends_id {
            note("headers", "the call id is signed and never sent; add a header with `$call_id`");
        }
    }
    if profile.retry.repeat_key && !profile.sends_idempotency_key() && !sends_id {
        note(
            "retry.repeat_key",
            "nothing tells the tool of a repeat; send `$idempotency_key` or `$call_id`, or write false",
        );
    }
    if !profile.body.holds(Slot::Arguments) {
        note("body", "has no `$arguments`; the tool would be sent none");
    }
    faults
}

fn check_limits(parts: &WireParts) -> Vec<ProfileFault> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, path: &str, message: &str| {
        if !holds {
            faults.push(ProfileFault::new(path, message));
        }
    };
    let name = &parts.name;
    let name_fits = name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    check(name_fits, "name", "is 1 to 64 of a-z, 0-9 and `-`, and starts with a letter");
    let TimeoutBounds { default, min, max } = parts.timeout;
    check(!min.is_zero(), "timeout.min", "must be more than 0 s");
    check(min <= max, "timeout.max", "must be at least `min`");
    check(max <= LONGEST_TIMEOUT, "timeout.max", "must be 20m at most");
    check(min <= default && default <= max, "timeout.default", "must lie between `min` and `max`");
    let result_fits = (1..=LARGEST_RESULT).contains(&parts.result_limit);
    check(result_fits, "result_max_bytes", "must be 1 to 64MiB");
    let retry = &parts.retry;
    check((1..=MOST_ATTEMPTS).contains(&retry.attempts), "retry.attempts", "must be 1 to 10");
    let names_failures = retry.on_network || !retry.statuses.is_empty();
    check(
        retry.attempts <= 1 || names_failures,
        "retry.on",
        "names no failure to repeat; add `network` or `5xx`",
    );
    if let Some(Trip { statuses, lasts }) = &parts.circuit {
        let names_failures = !statuses.is_empty() && statuses.range(..400).next().is_none();
        check(
            names_failures && statuses.range(600..).next().is_none(),
            "circuit.open_on",
            "must name statuses from 400 to 599",
        );
        let fits = (SHORTEST_TRIP..=LONGEST_TRIP).contains(lasts);
        check(fits, "circuit.for", "must be from 1s to 24h");
    }
    faults
}
