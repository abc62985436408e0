//! `sortie egress`: why a URL, a host or an address may be called or not, by the very rules of a call.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::cli::exit::{FAILED, OK, fail, print};
use crate::cli::judge::{ExceptionNote, Judge, Lookups, Verdict};
use crate::config::snapshot::{DnsSettings, Snapshot, Tool};
use crate::policy::address::EgressRules;
use crate::policy::endpoint::Endpoint;
use crate::source;

/// Say why URLs, hosts or addresses may be called or not.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration whose rules apply; without it the built-in defaults do. Each further file changes what those
    /// before it say
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Every tool of the configuration: where it leads now, and why it may
    #[arg(long, requires = "config", conflicts_with_all = ["tool", "targets"])]
    all: bool,
    /// The tool that would call: exceptions are made for tools
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    tool: String,
    /// Judge without a lookup: a name that passes is allowed
    #[arg(long)]
    no_dns: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// URLs, hosts or addresses
    #[arg(required_unless_present = "all", value_name = "TARGET")]
    targets: Vec<String>,
}

/// One verdict on a target.
#[derive(Debug, Serialize)]
struct Line<'a> {
    input: &'a str,
    #[serde(flatten)]
    verdict: Verdict,
}

/// One verdict on a tool, with what a reviewer of all tools asks.
#[derive(Debug, Serialize)]
struct ToolLine<'a> {
    tool: &'a str,
    owner: Option<&'a str>,
    host: String,
    port: u16,
    #[serde(flatten)]
    verdict: Verdict,
    exception: Option<ExceptionNote>,
    profile: &'a str,
    policy: &'static str,
    authentication: String,
}

/// Judges each target, or each tool: 0 where all may be called, 1 where one may not.
pub fn run(arguments: &Arguments) -> u8 {
    let lookups = if arguments.no_dns { Lookups::None } else { Lookups::Now };
    let outcome = if arguments.all {
        all(&arguments.config, lookups, arguments.json)
    } else {
        targets(lookups, arguments)
    };
    outcome.unwrap_or_else(|message| fail(&message))
}

fn targets(lookups: Lookups, arguments: &Arguments) -> Result<u8, String> {
    let (rules, dns) = rules(&arguments.config)?;
    let judge = Judge::new(rules, &dns, lookups)?;
    let mut code = OK;
    for input in &arguments.targets {
        let line = Line { input, verdict: target(&judge, &arguments.tool, input) };
        if !line.verdict.allows() {
            code = FAILED;
        }
        let text = if arguments.json { as_json(&line) } else { line.as_text() };
        code = print(&format!("{text}\n"), code);
    }
    Ok(code)
}

fn all(config: &[PathBuf], lookups: Lookups, json: bool) -> Result<u8, String> {
    let snapshot = source::check(config, false).map_err(|error| error.to_string())?;
    let mut code = OK;
    for error in snapshot.file_errors() {
        // Of a broken included file nobody knows where its tools lead.
        code = fail(&error.to_string());
    }
    let Snapshot { tools, egress, dns, .. } = snapshot;
    let judge = Judge::new(egress, &dns, lookups)?;
    let mut tools: Vec<_> = tools.into_values().collect();
    tools.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    for tool in &tools {
        let line = ToolLine::of(tool, &judge);
        if !line.verdict.allows() {
            code = FAILED;
        }
        let text = if json { as_json(&line) } else { line.as_text() };
        code = print(&format!("{text}\n"), code);
    }
    Ok(code)
}

fn target(judge: &Judge, tool: &str, input: &str) -> Verdict {
    if let Ok(address) = input.parse::<IpAddr>() {
        return judge.address(address);
    }
    let url = if is_bare_host(input) { format!("https://{input}/") } else { input.to_owned() };
    match Endpoint::parse(&url) {
        Ok(endpoint) => judge.endpoint(tool, &endpoint),
        Err(error) => Verdict::without("refuse", error.code().as_str(), Some(error.to_string())),
    }
}

/// Whether this is a host, perhaps with a port, and no URL: then it stands for `https://HOST/`.
fn is_bare_host(input: &str) -> bool {
    if input.contains(['/', '\\']) {
        return false;
    }
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (input.starts_with('['), input.rsplit_once(':')) {
        (true, _) | (false, None) => true,
        (false, Some((host, port))) => !host.contains(':') && is_port(port),
    }
}

fn as_json(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("a line is JSON")
}

impl Line<'_> {
    fn as_text(&self) -> String {
        let Verdict { verdict, code, .. } = &self.verdict;
        let (input, rest) = (self.input.escape_debug(), self.verdict.in_words());
        format!("{verdict:<12} {code:<20} {input} {rest}")
    }
}

impl<'a> ToolLine<'a> {
    fn of(tool: &'a Tool, judge: &Judge) -> Self {
        let verdict = judge.endpoint(tool.name.as_str(), &tool.endpoint);
        Self {
            tool: tool.name.as_str(),
            owner: tool.owner.as_deref(),
            host: tool.endpoint.host().to_string(),
            port: tool.endpoint.port(),
            exception: verdict.exception.clone(),
            verdict,
            profile: &tool.profile.name,
            policy: tool.policy.effect.as_str(),
            authentication: authentication(tool),
        }
    }

    fn as_text(&self) -> String {
        let Verdict { verdict, code, .. } = &self.verdict;
        let (tool, host, port, rest) = (self.tool, &self.host, self.port, self.verdict.in_words());
        let mut text = format!("{verdict:<12} {code:<20} {tool} {host}:{port} {rest}; ");
        let owner = self.owner.unwrap_or("none").escape_debug();
        let (profile, policy, own) = (self.profile, self.policy, &self.authentication);
        text.push_str(&format!(
            "owner {owner}, profile {profile}, policy {policy}, authentication {own}"
        ));
        if let Some(exception) = &self.exception {
            text.push_str(&format!("; by the exception {}", exception.opens));
        }
        text
    }
}

/// How the tool's server is told who calls, beside the signature.
pub(super) fn authentication(tool: &Tool) -> String {
    let way = tool.written.get("authentication").and_then(Value::as_object);
    let way = way.and_then(|ways| ways.keys().next()).map(String::as_str);
    let certificate = tool.written.get("client_certificate").map(|_| "client certificate");
    let ways: Vec<&str> = [way, certificate].into_iter().flatten().collect();
    if ways.is_empty() { "none".into() } else { ways.join(" and ") }
}

fn rules(config: &[PathBuf]) -> Result<(Arc<EgressRules>, DnsSettings), String> {
    if config.is_empty() {
        return source::defaults().map_err(|error| error.to_string());
    }
    let snapshot = source::load(config).map_err(|error| error.to_string())?.found;
    Ok((snapshot.egress, snapshot.dns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, verdict: &str, code: &str) {
        let (rules, dns) = rules(&[]).expect("the defaults");
        let judge = Judge::new(rules, &dns, Lookups::None).expect("a judge");
        let found = target(&judge, "", input);
        assert_eq!((found.verdict, found.code), (verdict, code), "{input}");
    }

    #[test]
    fn a_target_is_an_address_a_host_or_a_url() {
        check("93.184.216.34", "allow", "ok");
        check("::1", "refuse", "loopback");
        check("[::1]", "refuse", "loopback");
        check("[::1]:8443", "refuse", "loopback");
        check("10.0.0.5:8443", "refuse", "private");
        check("127.1", "refuse", "non_canonical_host");
        check("api.example.com", "allow", "ok");
        check("api.example.com:8443", "allow", "ok");
        check("api.example.com:80", "refuse", "port");
        check("localhost:8443", "refuse", "name_denied");
        check("user@api.example.com", "refuse", "userinfo");
        check("bücher.example", "refuse", "non_ascii_url");
        check("", "refuse", "malformed_url");
        check("https://api.example.com/tool", "allow", "ok");
        check("api.example.com/tool", "refuse", "malformed_url");
        check("//api.example.com/", "refuse", "malformed_url");
        check("https:127.0.0.1", "refuse", "malformed_url");
        check("javascript:alert(1)", "refuse", "scheme");
    }

    #[test]
    fn a_line_of_text_stays_one_line() {
        let verdict = Verdict::without("refuse", "malformed_url", None);
        let line = Line { input: "a\nb", verdict };
        assert_eq!(line.as_text().lines().count(), 1, "{}", line.as_text());
    }
}
