//! `sortie egress`: why a URL, a host or an address may be called or not, by the very rules of a call.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::cli::exit::{FAILED, OK, fail, print};
use crate::clock::{Clock, SystemClock};
use crate::config::snapshot::DnsSettings;
use crate::net::resolve::{HickoryResolver, Resolve};
use crate::policy::address::{Admitted, EgressRules, Judged, Refusal, WayOut};
use crate::policy::egress_code::EgressCode;
use crate::policy::endpoint::Endpoint;
use crate::source;

/// Say why URLs, hosts or addresses may be called or not.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration whose rules apply; without it the built-in defaults do. Each further file changes what those
    /// before it say
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
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
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
}

/// One verdict.
#[derive(Debug, Serialize)]
struct Line<'a> {
    input: &'a str,
    verdict: &'static str,
    code: &'static str,
    addresses: Vec<IpAddr>,
    /// Whether the proxy looks the name up and judges what it finds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    delegated: bool,
    #[serde(skip)]
    reason: Option<String>,
}

struct Judge {
    rules: Arc<EgressRules>,
    resolver: Option<HickoryResolver>,
    tool: String,
    now: i64,
}

/// Judges each target: 0 where all may be called, 1 where one may not.
pub fn run(arguments: &Arguments) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime does not start: {error}")),
    };
    let judge = match Judge::new(arguments) {
        Ok(judge) => judge,
        Err(message) => return fail(&message),
    };
    let mut code = OK;
    for target in &arguments.targets {
        let line = runtime.block_on(judge.target(target));
        if line.verdict != "allow" {
            code = FAILED;
        }
        let text = if arguments.json { line.as_json() } else { line.as_text() };
        code = print(&format!("{text}\n"), code);
    }
    code
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

impl Judge {
    fn new(arguments: &Arguments) -> Result<Self, String> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let now = clock.unix_ms().div_euclid(1000);
        let (rules, dns) = rules(&arguments.config)?;
        let resolver = if arguments.no_dns {
            None
        } else {
            Some(HickoryResolver::new(&dns, clock).map_err(|error| error.to_string())?)
        };
        Ok(Self { rules, resolver, tool: arguments.tool.clone(), now })
    }

    async fn target<'a>(&self, input: &'a str) -> Line<'a> {
        if let Ok(address) = input.parse::<IpAddr>() {
            let judged = self.rules.judge_address(address);
            return Line::of(input, judged.verdict.map(|address| vec![address]));
        }
        let url = if is_bare_host(input) { format!("https://{input}/") } else { input.to_owned() };
        let endpoint = match Endpoint::parse(&url) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                let reason = Some(error.to_string());
                let code = error.code().as_str();
                return Line::without(input, "refuse", code, reason);
            }
        };
        let judged: Judged<Admitted<'_>> = self.rules.admit(&self.tool, &endpoint, self.now);
        let admitted = match judged.verdict {
            Ok(admitted) => admitted,
            Err(refusal) => return Line::of(input, Err(refusal)),
        };
        if let WayOut::Delegated(_) = self.rules.way_out(&admitted) {
            let (code, reason) = (EgressCode::Ok.as_str(), "delegated: the proxy judges it");
            let line = Line::without(input, "allow", code, Some(reason.to_owned()));
            return Line { delegated: true, ..line };
        }
        let answers = match (admitted.literal(), &self.resolver) {
            (Some(answers), _) => answers,
            (None, None) => return Line::of(input, Ok(Vec::new())),
            (None, Some(resolver)) => match resolver.lookup(&admitted).await {
                Ok(resolved) => (*resolved.answers).clone(),
                Err(error) => {
                    let (verdict, code) = ("unresolvable", EgressCode::ResolveFailed.as_str());
                    return Line::without(input, verdict, code, Some(error.to_string()));
                }
            },
        };
        let vetted = self.rules.vet(&admitted, &answers).verdict;
        Line::of(input, vetted.map(|all| all.iter().map(|one| one.socket().ip()).collect()))
    }
}

impl<'a> Line<'a> {
    fn without(
        input: &'a str,
        verdict: &'static str,
        code: &'static str,
        reason: Option<String>,
    ) -> Self {
        Self { input, verdict, code, addresses: Vec::new(), delegated: false, reason }
    }

    fn of(input: &'a str, verdict: Result<Vec<IpAddr>, Refusal>) -> Self {
        match verdict {
            Ok(addresses) => {
                let code = EgressCode::Ok.as_str();
                Self { addresses, ..Self::without(input, "allow", code, None) }
            }
            Err(refusal) => Self {
                input,
                verdict: if refusal.code == EgressCode::ResolveFailed {
                    "unresolvable"
                } else {
                    "refuse"
                },
                code: refusal.code.as_str(),
                delegated: false,
                addresses: refusal.address.into_iter().collect(),
                reason: Some(refusal.to_string()),
            },
        }
    }

    fn as_json(&self) -> String {
        serde_json::to_string(self).expect("a line is JSON")
    }

    fn as_text(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        let rest = self.reason.clone().unwrap_or_else(|| addresses.join(", "));
        let input = self.input.escape_debug();
        format!("{:<12} {:<20} {input} {rest}", self.verdict, self.code)
    }
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
        let (rules, _) = rules(&[]).expect("the defaults");
        let judge = Judge { rules, resolver: None, tool: String::new(), now: 0 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let line = runtime.block_on(judge.target(input));
        assert_eq!((line.verdict, line.code), (verdict, code), "{input}");
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
        let (input, code) = ("a\nb", "malformed_url");
        let line = Line::without(input, "refuse", code, None);
        assert_eq!(line.as_text().lines().count(), 1, "{}", line.as_text());
    }
}
