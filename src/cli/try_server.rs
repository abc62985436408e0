//! `sortie try`: one call to a tool's server without a configuration, and whether the server verifies what it is sent.

mod judge;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::app::desk::{Desk, DeskError};
use crate::cli::demo::folder::random_text;
use crate::cli::exit::{FAILED, NOT_VERIFIED, OK, USAGE, fail, print};
use crate::cli::given::{self, Origin};
use crate::cli::page::{indent, raw};
use crate::cli::try_server::judge::{Probe, Seen, Signs, verdict};
use crate::clock::{Clock, SystemClock};
use crate::config::context::Source;
use crate::config::finding::Finding;
use crate::config::snapshot::Snapshot;
use crate::config::yaml::Document;
use crate::model::call::Arguments as ToolArguments;
use crate::model::outcome::CallOutcome;
use crate::model::secret::Secret;
use crate::policy::endpoint::{Endpoint, Host};
use crate::source::{self, LoadError};

/// How old the time of the stale request is: any server's tolerance is less.
const STALE: Duration = Duration::from_secs(10 * 60);
/// A profile of one's own is no larger.
const MAX_PROFILE: u64 = 1 << 20;

/// Call a tool's server without a configuration, and see whether it verifies signatures.
///
/// Signs and sends one call and prints both sides. Then it sends a wrong signature, and a right one that is ten minutes old:
/// a server that accepts either is found. The call has to be one that may run three times. Exits 0 where all is well, 1 where
/// the call failed, 3 where the server does not verify.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The tool's URL, https and public
    url: String,
    /// A shipped profile, or @FILE with one of your own as it stands under `profiles`
    #[arg(long, value_name = "NAME|@FILE")]
    profile: String,
    /// The file that holds the secret; one trailing newline is not part of it
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A PEM file of further roots for the server's certificate
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Also call a server on this machine: 127.0.0.1, [::1] or a name that leads there, by http too
    #[arg(long)]
    allow_loopback: bool,
    /// The tool's name, where the profile sends it
    #[arg(long, value_name = "NAME", default_value = "try")]
    tool: String,
    /// The tool's arguments: a JSON object, or @FILE
    #[arg(value_name = "ARGS")]
    arguments: String,
}

/// A clock that is behind: what it signs is old.
struct Behind(Duration);

impl Clock for Behind {
    fn unix_ms(&self) -> i64 {
        let behind = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        SystemClock.unix_ms().saturating_sub(behind)
    }

    fn now(&self) -> Instant {
        SystemClock.now()
    }
}

/// Why nothing was tried.
#[derive(Debug, thiserror::Error)]
enum TryError {
    #[error(transparent)]
    Desk(#[from] DeskError),
    #[error("{0}")]
    Invalid(String),
    #[error("the profile file `{file}` cannot be read: {error}")]
    Profile { file: String, error: std::io::Error },
    #[error("the runtime does not start: {0}")]
    Runtime(std::io::Error),
    #[error("the profile `{0}` signs, give --secret-file")]
    Secretless(String),
}

/// Calls up to three times: 0 where the server verifies, 1 where the call failed, 3 where it does not verify.
pub fn run(arguments: &Arguments) -> u8 {
    let given = match given::arguments(&arguments.arguments) {
        Ok(given) => given,
        Err(error) => return usage(&error.to_string()),
    };
    match Trial::new(arguments).and_then(|trial| trial.run(&given)) {
        Ok(code) => code,
        Err(error @ TryError::Secretless(_)) => usage(&error.to_string()),
        Err(error) => fail(&error.to_string()),
    }
}

fn usage(message: &str) -> u8 {
    fail(message);
    USAGE
}

/// What is the same for all requests of one run.
struct Trial<'a> {
    arguments: &'a Arguments,
    configuration: String,
    signs: Signs,
}

impl<'a> Trial<'a> {
    fn new(arguments: &'a Arguments) -> Result<Self, TryError> {
        let configuration = configuration(arguments)?;
        let trial = Self { arguments, configuration, signs: Signs::Nothing };
        let snapshot = trial.compile(Probe::Good)?;
        for warning in &snapshot.warnings {
            fail(&format!("warning: {}", trial.in_words(warning)));
        }
        let profile = snapshot.tool(&arguments.tool).map(|tool| tool.profile.clone());
        let signs = match profile.as_ref().and_then(|profile| profile.signature()) {
            Some(scheme) if scheme.signs_time() => Signs::BodyAndTime,
            Some(_) => Signs::Body,
            None => Signs::Nothing,
        };
        Ok(Self { signs, ..trial })
    }

    fn run(&self, given: &ToolArguments) -> Result<u8, TryError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(TryError::Runtime)?;
        let mut seen = Vec::new();
        for probe in Probe::of(self.signs) {
            let (desk, outcome) = runtime.block_on(self.send(probe, given))?;
            let found = Seen::of(&outcome, desk.history(&outcome.tool).failures.front());
            let page = format!(
                "=== {}. {} ===\n\n{}{}\n\n",
                seen.len() + 1,
                probe.title(),
                both_sides(&desk),
                found.sentence(probe, &outcome),
            );
            print(&page, OK);
            let failed = probe == Probe::Good && outcome.ended.is_err();
            seen.push((probe, found));
            if failed {
                break;
            }
        }
        let verdict = verdict(self.signs, &seen);
        let code = match verdict.good {
            judge::Good::No => FAILED,
            judge::Good::NotVerified => NOT_VERIFIED,
            judge::Good::Yes => OK,
        };
        Ok(print(&format!("{}\n", verdict.text), code))
    }

    async fn send(
        &self,
        probe: Probe,
        given: &ToolArguments,
    ) -> Result<(Desk, CallOutcome), TryError> {
        let clock: Arc<dyn Clock> = match probe {
            Probe::Good | Probe::WrongSignature => Arc::new(SystemClock),
            Probe::StaleTime => Arc::new(Behind(STALE)),
        };
        let desk = Desk::new(self.compile(probe)?, clock)?;
        // A run of its own, so that no answer to another request is taken for one to this.
        let call = given::call(&self.arguments.tool, given.clone(), &Origin::default());
        let call = call.map_err(|error| TryError::Invalid(error.to_string()))?;
        let outcome = desk.call(call).await;
        let outcome = outcome.map_err(|malformed| TryError::Invalid(malformed.to_string()))?;
        Ok((desk, outcome))
    }

    /// The one tool as a configuration has it, with the secret or with another one.
    fn compile(&self, probe: Probe) -> Result<Snapshot, TryError> {
        let wrong = Secret::new(format!("whsec_{}", random_text(32)));
        let lookup = |source: &Source| match source {
            Source::Env(_) => Ok(wrong.clone()),
            Source::File(_) | Source::OptionalFile(_) => source::lookup(source),
        };
        let text = match probe {
            Probe::Good | Probe::StaleTime => self.configuration.clone(),
            Probe::WrongSignature => self.configuration.replacen(
                &secret(self.arguments).to_string(),
                &json!({"env": "WRONG"}).to_string(),
                1,
            ),
        };
        source::compile_text("the command line", &text, &lookup).map_err(|error| match error {
            LoadError::Invalid(found) if self.lacks_secret(&found.errors) => {
                TryError::Secretless(self.arguments.profile.clone())
            }
            LoadError::Invalid(found) => {
                let lines: Vec<_> = found.errors.iter().map(|one| self.in_words(one)).collect();
                TryError::Invalid(lines.join("\nsortie: ") + self.hint())
            }
            error @ LoadError::Unreadable { .. } => TryError::Invalid(error.to_string()),
        })
    }

    fn lacks_secret(&self, errors: &[Finding]) -> bool {
        let about_it = |finding: &Finding| finding.path == "tools[0].secret";
        self.arguments.secret_file.is_none() && errors.iter().any(about_it)
    }

    /// A finding by the option that it is about.
    fn in_words(&self, finding: &Finding) -> String {
        const OPTIONS: [(&str, &str); 6] = [
            ("tools[0].url", "URL"),
            ("tools[0].profile", "--profile"),
            ("tools[0].secret", "--secret-file"),
            ("tools[0].name", "--tool"),
            ("egress.tls.extra_ca", "--ca"),
            ("egress.exceptions", "URL"),
        ];
        let option = OPTIONS.iter().find(|(path, _)| finding.path.starts_with(path));
        let place = option.map_or(finding.path.as_str(), |(_, option)| option);
        format!("{place}: {}", finding.message)
    }

    fn hint(&self) -> &'static str {
        let here = |endpoint: &Endpoint| match endpoint.host() {
            Host::Address(address) => address.is_loopback(),
            Host::Name(name) => name == "localhost",
        };
        let here = Endpoint::parse(&self.arguments.url).is_ok_and(|endpoint| here(&endpoint));
        match (here, self.arguments.allow_loopback) {
            (true, false) => "\nsortie: a server on this machine is called with --allow-loopback",
            (true, true) | (false, _) => "",
        }
    }
}

/// A configuration with this one tool: it goes through the parser that every configuration goes through.
fn configuration(arguments: &Arguments) -> Result<String, TryError> {
    let (profile, own) = match arguments.profile.strip_prefix('@') {
        Some(file) => own_profile(Path::new(file))?,
        None => (arguments.profile.clone(), String::new()),
    };
    let mut tool = json!({
        "name": arguments.tool,
        "description": "Called once by hand, to see how its server answers.",
        "url": arguments.url,
        "profile": profile,
        "policy": "allow",
        "parameters": {"type": "object"},
    });
    if arguments.secret_file.is_some() {
        tool["secret"] = json!({"current": secret(arguments)});
    }
    let mut egress = json!({});
    if let Some(ca) = &arguments.ca {
        egress["tls"] = json!({"extra_ca": {"file": absolute(ca)}});
    }
    if let Some(endpoint) =
        Endpoint::parse(&arguments.url).ok().filter(|_| arguments.allow_loopback)
    {
        egress["exceptions"] = json!([{
            "tools": [arguments.tool],
            "hosts": [endpoint.host().to_string().trim_matches(['[', ']'])],
            "cidrs": ["127.0.0.0/8", "::1/128"],
            "ports": [endpoint.port().to_string()],
            "http": true,
            "reason": "--allow-loopback",
            "owner": "whoever typed it",
        }]);
    }
    // JSON is YAML; an own profile stands there as it was written.
    Ok(format!("version: 1\nauth: none\negress: {egress}\ntools: [{tool}]\n{own}"))
}

fn secret(arguments: &Arguments) -> serde_json::Value {
    json!({"file": arguments.secret_file.as_deref().map(absolute)})
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The name of a profile that stands in a file, and the section that holds it.
fn own_profile(file: &Path) -> Result<(String, String), TryError> {
    let unreadable = |error| TryError::Profile { file: file.display().to_string(), error };
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    opened.take(MAX_PROFILE).read_to_string(&mut text).map_err(unreadable)?;
    let (document, _) = Document::parse(&text);
    let name = document.as_ref().and_then(|document| {
        let name = document.child(document.root(), "name")?;
        document.text(name).map(str::to_owned)
    });
    let missing = || TryError::Invalid(format!("--profile: `{}` has no `name`", file.display()));
    // A carriage return alone ends a line too: what follows it must not leave the section.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: String = text.lines().map(|line| format!("    {line}\n")).collect();
    Ok((name.ok_or_else(missing)?, format!("profiles:\n  -\n{lines}")))
}

/// What was sent and what came back, each attempt.
fn both_sides(desk: &Desk) -> String {
    let exchanges = desk.exchanges();
    if exchanges.is_empty() {
        return "Nothing was sent.\n".to_owned();
    }
    let page = exchanges.iter().map(|exchange| {
        let sent = indent(&raw(&exchange.sent, 0));
        let received = match exchange.received.as_slice() {
            [] => "    (nothing)\n".to_owned(),
            received => indent(&raw(received, exchange.left_out)),
        };
        format!("Sent:\n{sent}\nAnswered:\n{received}\n")
    });
    page.collect()
}
