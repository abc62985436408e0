//! `sortie call`: the test button, one call on a configuration in this process.

use std::path::PathBuf;
use std::sync::Arc;

use crate::app::desk::Desk;
use crate::cli::exit::{FAILED, OK, USAGE, fail, print};
use crate::cli::given::{self, Origin};
use crate::cli::page::{raw, unfold, without_secrets};
use crate::clock::SystemClock;
use crate::config::snapshot::{Tool, Unavailable};
use crate::model::outcome::CallOutcome;
use crate::model::outcome_text;
use crate::source;

/// Names of tools that are shown where one was not found.
const NAMES_SHOWN: usize = 20;

/// Run one call on a configuration, in this process: the test button.
///
/// Nothing listens, and a running gateway does not notice: its limits and circuits are its own. The call is marked as a test
/// where the profile says so. Prints the outcome, and on stderr why it failed, in the words of the log. Exits 0 where the
/// call succeeded, else 1.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The tool's name
    tool: String,
    /// Its arguments: a JSON object, a file (FILE or @FILE), or `-` for standard input
    #[arg(value_name = "ARGS", default_value = "{}")]
    arguments: String,
    /// Print each request as it was sent, with its signature; other secrets in headers, and the URL's query, are `***`
    #[arg(long)]
    show_request: bool,
    /// The run, where the profile sends one; made up when left out
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// The step of the run; 1 when left out
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// The agent that calls
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,
}

/// Runs the call: 0 where it succeeded, else 1.
pub fn run(arguments: &Arguments) -> u8 {
    let usage = |message: String| {
        fail(&message);
        USAGE
    };
    let given = match given::arguments(&arguments.arguments) {
        Ok(given) => given,
        Err(error) => return usage(error.to_string()),
    };
    let origin = Origin {
        run_id: arguments.run_id.as_deref(),
        step: arguments.step.as_deref(),
        agent_id: arguments.agent_id.as_deref(),
    };
    let call = match given::call(&arguments.tool, given, &origin) {
        Ok(call) => call,
        Err(error) => return usage(format!("--run-id, --step: {error}")),
    };
    let snapshot = match source::check(std::slice::from_ref(&arguments.file), false) {
        Ok(snapshot) => snapshot,
        Err(error) => return fail(&error.to_string()),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime does not start: {error}")),
    };
    let ended = runtime.block_on(async {
        let desk = Desk::new(snapshot, Arc::new(SystemClock)).map_err(|error| error.to_string())?;
        let outcome = desk.call(call).await.map_err(|error| error.to_string())?;
        Ok::<_, String>((desk, outcome))
    });
    match ended {
        Ok((desk, outcome)) => show(arguments, &desk, &outcome),
        Err(error) => fail(&error),
    }
}

fn show(arguments: &Arguments, desk: &Desk, outcome: &CallOutcome) -> u8 {
    let snapshot = desk.snapshot();
    let tool = snapshot.tool(&arguments.tool);
    let code = if outcome.ended.is_ok() { OK } else { FAILED };
    let mut page = String::new();
    if arguments.show_request {
        let secret = tool.map(|tool| secret_headers(tool)).unwrap_or_default();
        for exchange in desk.exchanges() {
            page.push_str(&raw(&without_secrets(&exchange, &secret), 0));
            page.push('\n');
        }
    }
    let json = outcome_text::write(outcome);
    page.push_str(&unfold(&String::from_utf8_lossy(&json)));
    page.push('\n');
    let printed = print(&page, code);
    let history = desk.history(&arguments.tool);
    let reason = history.failures.front().and_then(|failure| failure.reason.clone());
    let unavailable = || tool.and_then(|tool| tool.unavailable.as_ref()).map(Unavailable::reason);
    if let Some(reason) = reason.or_else(unavailable) {
        fail(&reason);
    }
    if tool.is_none() {
        let mut names: Vec<&str> = snapshot.tools.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
        names.truncate(NAMES_SHOWN);
        let file = arguments.file.display();
        fail(&format!("the tools of {file} are {}{more}", names.join(", ")));
    }
    printed
}

/// The headers of a tool whose values are secret.
fn secret_headers(tool: &Tool) -> Vec<String> {
    let own = tool.headers.iter().map(|header| header.spelling().to_owned());
    let token = tool.tokens.iter().map(|_| "Authorization".to_owned());
    own.chain(token).chain(tool.accept_credentials.iter().cloned()).collect()
}
