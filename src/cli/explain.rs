//! `sortie explain`: the tool as it is in force, for the operator or for the author of its server.

mod author;

use std::borrow::Cow;
use std::path::PathBuf;

use serde::Serialize;

use crate::cli::egress::authentication;
use crate::cli::exit::{FAILED, OK, fail, print};
use crate::cli::explain_words::{breaker, rate_limits, retries, url};
use crate::cli::format::Format;
use crate::cli::judge::{ExceptionNote, Judge, Lookups, Verdict};
use crate::config::finding::Finding;
use crate::config::leaf::Span;
use crate::config::read::near;
use crate::config::snapshot::{Snapshot, Tool, Unavailable};
use crate::model::outcome::{Decision, Effect, PolicyName};
use crate::policy::answer::ErrorBody;
use crate::policy::approval;
use crate::policy::rules::Mode;
use crate::policy::wire::TRACEPARENT;
use crate::source;

/// Show one tool as it is in force: where it leads, what is sent, and what bounds it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The tool
    #[arg(value_name = "TOOL")]
    tool: String,
    /// The page for the author of the tool's server: what to expect, and how to verify it
    #[arg(long, conflicts_with = "format")]
    author: bool,
    /// Judge without a lookup
    #[arg(long)]
    no_dns: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Prints the tool: 0 where it may be called, 1 where there is none or its address is refused.
pub fn run(arguments: &Arguments) -> u8 {
    let snapshot = match source::check(std::slice::from_ref(&arguments.file), false) {
        Ok(snapshot) => snapshot,
        Err(error) => return fail(&error.to_string()),
    };
    let Some(tool) = snapshot.tool(&arguments.tool).cloned() else {
        return fail(&unknown(&arguments.tool, &snapshot));
    };
    if arguments.author {
        return match author::sheet(&tool) {
            Ok(text) => print(&text, OK),
            Err(message) => fail(&message),
        };
    }
    let lookups = if arguments.no_dns { Lookups::None } else { Lookups::Now };
    let judge = match Judge::new(snapshot.egress.clone(), &snapshot.dns, lookups) {
        Ok(judge) => judge,
        Err(message) => return fail(&message),
    };
    let explanation = Explanation::of(&tool, &snapshot, &judge);
    let code = if explanation.url_verdict.allows() { OK } else { FAILED };
    let text = match arguments.format {
        Format::Json => {
            serde_json::to_string_pretty(&explanation).expect("texts and numbers") + "\n"
        }
        Format::Text => explanation.as_text(),
    };
    print(&text, code)
}

fn unknown(name: &str, snapshot: &Snapshot) -> String {
    let mut known: Vec<&str> = snapshot.tools.keys().map(|name| name.as_str()).collect();
    known.sort_unstable();
    let near = near(name, &known);
    match (near.as_slice(), known.len()) {
        ([], 0) => format!("there is no tool `{name}`: the file has none"),
        ([], 1..=10) => format!("there is no tool `{name}`; there are {}", known.join(", ")),
        ([], count) => format!("there is no tool `{name}` among {count}"),
        (near, _) => format!("there is no tool `{name}`; did you mean {}?", near.join(" or ")),
    }
}

/// A tool, as it is in force.
#[derive(Debug, Serialize)]
struct Explanation<'a> {
    tool: &'a str,
    id: &'a str,
    description: &'a str,
    owner: Option<&'a str>,
    runbook: Option<&'a str>,
    enabled: bool,
    /// Why it cannot be called, where it cannot.
    unavailable: Option<String>,
    /// Without its query, in which tokens stand.
    url: String,
    url_verdict: Verdict,
    exception: Option<ExceptionNote>,
    profile: &'a str,
    signature: Option<String>,
    authentication: String,
    /// In the order in which they are sent.
    headers: Vec<Header<'a>>,
    policy: Policy,
    timeout: String,
    attempts: u32,
    retries: String,
    result_max_bytes: usize,
    concurrency: usize,
    rate_limits: Vec<String>,
    breaker: String,
    /// What is kept of its calls: full, or none.
    capture: &'static str,
    error_body: &'static str,
    idempotent: bool,
    read_only: bool,
    destructive: bool,
    warnings: Vec<String>,
}

/// A header by its name.
#[derive(Debug, Serialize)]
struct Header<'a> {
    name: &'a str,
    /// `profile`, `tool` (a secret), `call` (a person's credentials) or `trace`.
    from: &'static str,
}

/// The effect, and where it comes from.
#[derive(Debug, Serialize)]
struct Policy {
    effect: &'static str,
    from: &'static str,
    shadow: Option<&'static str>,
    /// What a model reads instead of a result, where the call may not run.
    refusal: Option<String>,
    /// The policies over many tools that are about it: the strictest of all counts.
    others: Vec<String>,
}

impl<'a> Explanation<'a> {
    fn of(tool: &'a Tool, snapshot: &'a Snapshot, judge: &Judge) -> Self {
        let url_verdict = judge.endpoint(tool.name.as_str(), &tool.endpoint);
        let view = tool.profile.view();
        Self {
            tool: tool.name.as_str(),
            id: &tool.id,
            description: &tool.description,
            owner: tool.owner.as_deref(),
            runbook: tool.runbook.as_deref(),
            enabled: tool.enabled,
            unavailable: tool.unavailable.as_ref().map(|reason| match reason {
                Unavailable::ExceptionEnded => "the exception that opened it has ended".into(),
                Unavailable::NoSecret(text) => text.clone(),
            }),
            url: url(tool),
            exception: url_verdict.exception.clone(),
            url_verdict,
            profile: view.name,
            signature: tool.profile.signature().map(|scheme| scheme.in_words()),
            authentication: authentication(tool),
            headers: headers(tool),
            policy: policy(tool),
            timeout: Span(tool.timeout).to_string(),
            attempts: view.retry.attempts,
            retries: retries(tool),
            result_max_bytes: tool.result_limit,
            concurrency: tool.limits.concurrency,
            rate_limits: rate_limits(tool),
            breaker: breaker(tool),
            capture: tool.capture.as_str(),
            error_body: match view.error_body {
                ErrorBody::ClientErrors => "4xx",
                ErrorBody::Never => "never",
            },
            idempotent: tool.idempotent,
            read_only: tool.read_only,
            destructive: tool.destructive,
            warnings: warnings(tool, snapshot),
        }
    }

    fn as_text(&self) -> String {
        let none = || "none".to_owned();
        let mut lines: Vec<(&str, String)> = vec![
            ("tool", format!("{} ({})", self.tool, self.id)),
            ("description", self.description.to_owned()),
            ("owner", self.owner.map_or_else(none, str::to_owned)),
            ("runbook", self.runbook.map_or_else(none, str::to_owned)),
            ("url", self.url.clone()),
            ("may be called", self.verdict_in_words()),
        ];
        if let Some(exception) = &self.exception {
            lines.push(("exception", exception.opens.clone()));
        }
        let state = match (&self.unavailable, self.enabled) {
            (Some(reason), _) => format!("unavailable: {reason}"),
            (None, false) => "turned off".into(),
            (None, true) => "on".into(),
        };
        lines.push(("state", state));
        lines.push(("profile", self.profile.to_owned()));
        lines.push(("signature", self.signature.clone().unwrap_or_else(|| "unsigned".into())));
        lines.push(("authentication", self.authentication.clone()));
        let header = |header: &Header<'_>| match header.from {
            "profile" => header.name.to_owned(),
            from => format!("{} (from the {from})", header.name),
        };
        lines.push(("headers", self.headers.iter().map(header).collect::<Vec<_>>().join(", ")));
        let Policy { effect, from, shadow, refusal, others } = &self.policy;
        let mut text = format!("{effect}, by {from}");
        if let Some(shadow) = shadow {
            text.push_str(&format!("; {shadow} only watches"));
        }
        if let Some(refusal) = refusal {
            text.push_str(&format!("; a call is refused: {refusal}"));
        }
        lines.push(("policy", text));
        lines.extend(others.iter().map(|other| ("policy too", other.clone())));
        lines.push(("timeout", format!("{} for each attempt", self.timeout)));
        lines.push(("attempts", format!("{}; {}", self.attempts, self.retries)));
        lines.push(("result", format!("{} bytes at most", self.result_max_bytes)));
        lines.push(("at once", format!("{} calls", self.concurrency)));
        let rates = self.rate_limits.join("; ");
        lines.push(("rate limits", if rates.is_empty() { none() } else { rates }));
        lines.push(("breaker", self.breaker.clone()));
        lines.push(("capture", self.capture.into()));
        lines.push(("error bodies", format!("the model reads: {}", self.error_body)));
        lines.extend(self.warnings.iter().map(|warning| ("warning", warning.clone())));
        let line = |(name, text): &(&str, String)| {
            let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            format!("{name:<15} {text}\n")
        };
        lines.iter().map(line).collect()
    }

    fn verdict_in_words(&self) -> String {
        let Verdict { verdict, code, .. } = &self.url_verdict;
        match self.url_verdict.in_words() {
            words if words.is_empty() => format!("{verdict} ({code})"),
            words => format!("{verdict} ({code}): {words}"),
        }
    }
}

fn headers(tool: &Tool) -> Vec<Header<'_>> {
    let own = tool.header_names.iter().chain(&tool.accept_credentials).map(String::as_str);
    let own = own.chain(tool.forward_trace.then_some(TRACEPARENT));
    let is_of = |names: &[String], name: &str| names.iter().any(|one| one == name);
    let header = |name| {
        let from = if is_of(&tool.header_names, name) {
            "tool"
        } else if is_of(&tool.accept_credentials, name) {
            "call"
        } else if tool.forward_trace && name == TRACEPARENT {
            "trace"
        } else {
            "profile"
        };
        Header { name, from }
    };
    tool.profile.header_spelling(own).into_iter().map(header).collect()
}

fn policy(tool: &Tool) -> Policy {
    let says = |key: &str| tool.written.get(key).filter(|value| !value.is_null());
    let asks = says("ask_first").and_then(serde_json::Value::as_bool) == Some(true);
    let from = match (says("policy"), asks) {
        (_, true) if tool.policy.effect == Effect::AskFirst => "the tool's `ask_first`",
        (Some(_), _) => "the tool",
        (None, _) if tool.policy.effect == tool.profile.default_policy => "the profile",
        (None, _) => "`defaults.policy`",
    };
    let decision = Decision {
        effect: tool.policy.effect,
        then_ask: false,
        policy: PolicyName::Tool,
        rule: None,
        message: None,
        expires: None,
        shadow: Vec::new(),
    };
    let others = tool.policies.iter().map(|policy| {
        let mode = match policy.mode {
            Mode::Enforce => "in force",
            Mode::Shadow => "only watches",
        };
        let rule = policy.rule.as_deref().map(|rule| format!(" where {rule}")).unwrap_or_default();
        format!("{}: {}{rule} ({mode})", policy.id, policy.effect.as_str())
    });
    Policy {
        others: others.collect(),
        effect: tool.policy.effect.as_str(),
        from,
        shadow: tool.policy.candidate.as_ref().map(|candidate| candidate.effect.as_str()),
        refusal: approval::refusal(&decision, true).map(Cow::into_owned),
    }
}

/// What `check` says of this tool.
fn warnings(tool: &Tool, snapshot: &Snapshot) -> Vec<String> {
    let file = snapshot.files.iter().find(|file| *file.label == *tool.file);
    let is_its = |finding: &&Finding| {
        let rest = finding.path.strip_prefix(&tool.path);
        file.is_some_and(|file| file.name == finding.file)
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    snapshot.warnings.iter().filter(is_its).map(Finding::as_warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_not_there_names_its_neighbours() {
        let known = ["lookup_order", "lookup_orders", "refund"];
        assert_eq!(near("lookup_ordr", &known), ["lookup_order", "lookup_orders"]);
        assert_eq!(near("order", &known), ["lookup_order", "lookup_orders"]);
        assert_eq!(near("weather", &known), Vec::<&str>::new());
    }
}
