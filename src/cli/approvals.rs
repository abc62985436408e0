//! `sortie approvals`: what waits for a person, and the decision, by a running gateway's listeners.

mod page;
mod shown;

use std::io::{self, BufRead, Write};

use serde::Deserialize;
use serde_json::json;

use crate::cli::approvals::shown::Shown;
use crate::cli::client::Ask;
use crate::cli::exit::{FAILED, OK, fail, print, tell};
use crate::cli::listener::{AdminArguments, ApiArguments, Listener};
use crate::clock::{Clock, SystemClock};
use crate::model::approval::{ApprovalId, ApprovalStatus};
use crate::model::canonical;

/// Show calls that wait for a person, and decide on them.
///
/// It asks the admin listener (`--admin`, `--config`, or the socket /run/sortie/admin.sock), or with `--url` the api listener,
/// where `--key-file` holds a key with the scope `agent:approve`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List them, those that wait unless --status says otherwise
    List(List),
    /// Show one with the exact arguments
    Show(Show),
    /// Let a call run, exactly as it is shown
    Approve(Decide),
    /// Refuse a call; the model reads the reason
    Reject(Decide),
}

/// Whom to ask.
#[derive(Debug, clap::Args)]
struct Whom {
    #[command(flatten)]
    admin: AdminArguments,
    #[command(flatten)]
    api: ApiArguments,
    /// The organisation, where the admin listener is asked about another one than `default`
    #[arg(long, value_name = "ID", conflicts_with = "url")]
    organisation: Option<String>,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only those in this state; `all` for every state
    #[arg(long, value_name = "STATE", default_value = "pending", value_parser = state)]
    status: String,
    /// Only those of this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Print the gateway's own answer
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Its id: ap_…
    #[arg(value_parser = id)]
    id: ApprovalId,
    /// Print the gateway's own answer
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    whom: Whom,
}

#[derive(Debug, clap::Args)]
struct Decide {
    /// Its id: ap_…
    #[arg(value_parser = id)]
    id: ApprovalId,
    /// Decide only if the arguments have this digest, as `show` printed it
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    /// Why; of a rejected call the model reads it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The name of whoever decides, beside that of the key
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    whom: Whom,
}

fn state(text: &str) -> Result<String, String> {
    let known: Vec<&str> = ApprovalStatus::ALL.iter().map(|one| one.as_str()).collect();
    match ApprovalStatus::parse(text) {
        None if text != "all" => Err(format!("write all, {}", known.join(", "))),
        _ => Ok(text.to_owned()),
    }
}

fn id(text: &str) -> Result<ApprovalId, String> {
    ApprovalId::parse(text).map_err(|error| error.to_string())
}

/// Does what is asked for: 0 where it was done, else 1.
pub fn run(arguments: &Arguments) -> u8 {
    let done = match &arguments.command {
        Command::List(list) => list.run(),
        Command::Show(show) => show.run(),
        Command::Approve(decide) => decide.run(true),
        Command::Reject(decide) => decide.run(false),
    };
    done.unwrap_or_else(|code| code)
}

/// The routes of the listener that is asked.
struct Desk {
    listener: Listener,
    is_api: bool,
    organisation: Option<String>,
}

impl Whom {
    fn desk(&self) -> Result<Desk, u8> {
        let organisation = self.organisation.clone();
        match self.api.listener() {
            Some(listener) => Ok(Desk { listener: listener?, is_api: true, organisation }),
            None => Ok(Desk { listener: self.admin.listener()?, is_api: false, organisation }),
        }
    }
}

impl Desk {
    fn path(&self, rest: &str, parameters: &[(&str, Option<&str>)]) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let organisation = ("organisation", self.organisation.as_deref());
        for (name, value) in parameters.iter().chain([&organisation]) {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let root = if self.is_api { "/v1/approvals" } else { "/approvals" };
        let query = query.finish();
        if query.is_empty() { format!("{root}{rest}") } else { format!("{root}{rest}?{query}") }
    }

    fn get(&self, path: &str) -> Result<String, u8> {
        self.listener.ask_for(Ask::get(path))
    }

    fn read<'a, T: Deserialize<'a>>(&self, text: &'a str) -> Result<T, u8> {
        serde_json::from_str(text).map_err(|error| {
            fail(&format!("{} does not answer as Sortie does: {error}", self.listener.place))
        })
    }

    fn one(&self, id: &ApprovalId) -> Result<(String, Shown), u8> {
        let text = self.get(&self.path(&format!("/{id}"), &[]))?;
        let mut shown: Shown = self.read(&text)?;
        self.complete(std::slice::from_mut(&mut shown));
        Ok((text, shown))
    }

    /// Whom calls are for: the api listener says it of the call, to keys that may read calls.
    fn complete(&self, approvals: &mut [Shown]) {
        #[derive(Deserialize)]
        struct Context {
            agent_id: Option<String>,
            session_id: Option<String>,
        }
        for approval in approvals.iter_mut().filter(|_| self.is_api) {
            let path = format!("/v1/calls/{}", approval.call_id);
            let Ok((status, text)) = self.listener.ask(Ask::get(&path)) else { return };
            if status == 403 {
                return;
            }
            if let Ok(context) = serde_json::from_str::<Context>(&text) {
                approval.agent_id = context.agent_id;
                approval.session_id = context.session_id;
            }
        }
    }
}

impl List {
    fn run(&self) -> Result<u8, u8> {
        #[derive(Deserialize)]
        struct Page {
            data: Vec<Shown>,
        }
        let desk = self.whom.desk()?;
        let status = Some(self.status.as_str()).filter(|status| *status != "all");
        let parameters =
            [("status", status), ("tool", self.tool.as_deref()), ("limit", Some("1000"))];
        let text = desk.get(&desk.path("", &parameters))?;
        if self.json {
            return Ok(print(&(text + "\n"), OK));
        }
        let mut page: Page = desk.read(&text)?;
        desk.complete(&mut page.data);
        Ok(print(&page::table(&page.data, SystemClock.unix_ms()), OK))
    }
}

impl Show {
    fn run(&self) -> Result<u8, u8> {
        let (text, shown) = self.whom.desk()?.one(&self.id)?;
        let page = if self.json { text + "\n" } else { page::one(&shown, SystemClock.unix_ms()) };
        Ok(print(&page, OK))
    }
}

impl Decide {
    fn run(&self, yes: bool) -> Result<u8, u8> {
        let desk = self.whom.desk()?;
        let (_, shown) = desk.one(&self.id)?;
        if self.digest.as_ref().is_some_and(|digest| *digest != shown.arguments_digest) {
            let found = &shown.arguments_digest;
            return Err(fail(&format!(
                "the arguments have the digest {found}, not that of --digest"
            )));
        }
        let arguments = shown.arguments.as_ref().map(|text| text.get());
        if yes
            && arguments.map(|text| canonical::digest(text.as_bytes()))
                != Some(shown.arguments_digest.clone())
        {
            return Err(fail("the arguments that are shown are not those of the digest"));
        }
        if !self.yes {
            let page = page::one(&shown, SystemClock.unix_ms());
            if !is_sure(&page, if yes { "Approve" } else { "Reject" }) {
                tell("Nothing was decided.");
                return Ok(FAILED);
            }
        }
        let body = json!({
            "arguments_digest": shown.arguments_digest, "reason": self.reason, "name": self.name,
        });
        let body = body.to_string();
        let rest = format!("/{}/{}", self.id, if yes { "approve" } else { "reject" });
        let path = desk.path(&rest, &[]);
        let question = Ask { method: hyper::Method::POST, json: Some(&body), ..Ask::get(&path) };
        let decided: Shown = desk.read(&desk.listener.ask_for(question)?)?;
        let line = format!("{} is {}: call {}\n", decided.id, decided.status, decided.call_id);
        Ok(print(&line, OK))
    }
}

/// Shows what it is about, and asks whoever sits at this terminal.
fn is_sure(page: &str, verb: &str) -> bool {
    if print(&format!("{page}\n{verb} this call? [y/N] "), OK) != OK {
        return false;
    }
    let _ = io::stdout().flush();
    let mut answer = String::new();
    // No answer is a no.
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")
}
