//! `sortie status`: how a running gateway and its tools stand, by its admin listener.

use crate::cli::client::Ask;
use crate::cli::exit::{OK, fail, print};
use crate::cli::listener::AdminArguments;
use crate::serve::admin::status::{FailureStatus, Status, ToolStatus};
use crate::telemetry::line::one_line;

/// Ask a running gateway how it and its tools stand.
///
/// It asks the admin listener: that of `--admin`, or the one that the configuration names, or the socket
/// /run/sortie/admin.sock. With a tool's name it shows that tool's last failures, with the words of the log.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// One tool, with its last failures
    tool: Option<String>,
    #[command(flatten)]
    admin: AdminArguments,
    /// Print the gateway's own answer
    #[arg(long)]
    json: bool,
}

/// Asks once: 0 where it answered, else 1.
pub fn run(arguments: &Arguments) -> u8 {
    let listener = match arguments.admin.listener() {
        Ok(listener) => listener,
        Err(code) => return code,
    };
    let place = &listener.place;
    let text = match listener.ask(Ask::get("/status")) {
        Ok((200, text)) => text,
        Ok((401, _)) => return fail(&format!("{place} takes another token, give --token-file")),
        Ok((status, _)) => {
            return fail(&format!("{place} answered {status}: is it an admin listener?"));
        }
        Err(code) => return code,
    };
    let status: Status = match serde_json::from_str(&text) {
        Ok(status) => status,
        Err(error) => return fail(&format!("{place} does not answer as Sortie does: {error}")),
    };
    let tool = match &arguments.tool {
        None => None,
        Some(name) => match status.tools.get(name) {
            Some(tool) => Some((name, tool)),
            None => {
                let names: Vec<&str> = status.tools.keys().map(String::as_str).collect();
                let names = names.join(", ");
                return fail(&format!("there is no tool `{name}`; there are: {names}"));
            }
        },
    };
    let page = match (arguments.json, tool) {
        (true, None) => text + "\n",
        (true, Some((_, tool))) => serde_json::to_string(tool).expect("texts and numbers") + "\n",
        (false, None) => overview(&status),
        (false, Some((name, tool))) => head(&status) + "\n" + &details(name, tool),
    };
    print(&page, OK)
}

/// The gateway as a whole.
fn head(status: &Status) -> String {
    let state = match (status.ready, status.draining) {
        (_, true) => "draining",
        (true, false) => "ready",
        (false, false) => "not ready",
    };
    let mut page = format!(
        "sortie {}: {state}, {} of {} calls running, configuration {} (generation {})\n",
        status.version,
        status.calls_in_flight,
        status.calls_in_flight_limit,
        status.hash,
        status.generation,
    );
    if let Some(reload) = &status.reload {
        let what = match reload.result.as_str() {
            "invalid" | "needs_restart" => ", the configuration before stays in force",
            _ => "",
        };
        let line = format!("last reload: {} at {}{what}", reload.result, reload.at);
        page.push_str(&format!("{}\n", clean(&line)));
        for finding in &reload.findings {
            page.push_str(&format!("    {}\n", clean(finding)));
        }
    }
    for broken in &status.broken_files {
        let line = format!("{} is broken, its tools are {}", broken.file, broken.tools);
        page.push_str(&format!("{}\n", clean(&line)));
        for finding in &broken.findings {
            page.push_str(&format!("    {}\n", clean(finding)));
        }
    }
    page
}

/// All tools, those that need a look first.
fn overview(status: &Status) -> String {
    let mut tools: Vec<(&String, &ToolStatus, String)> =
        status.tools.iter().map(|(name, tool)| (name, tool, state(tool))).collect();
    tools.sort_by_key(|(name, _, state)| (state == FINE, (*name).clone()));
    let ill = tools.iter().filter(|(_, _, state)| state != FINE).count();
    let width = |heading: &str, longest: Option<usize>| longest.unwrap_or(0).max(heading.len());
    let name_width = width("TOOL", tools.iter().map(|(name, ..)| name.len()).max());
    let state_width = width("STATE", tools.iter().map(|(_, _, state)| state.len()).max());
    let row = |name: &str, state: &str, ok: &str, not: &str, last: &str| {
        format!("{name:<name_width$}  {state:<state_width$}  {ok:>9}  {not:>9}  {last}")
            .trim_end()
            .to_owned()
            + "\n"
    };
    let mut page = head(status) + "\n";
    page.push_str(&row("TOOL", "STATE", "SUCCEEDED", "DID NOT", "LAST FAILURE"));
    for (name, tool, state) in &tools {
        let last = tool.failures.first().map(|one| format!("{} {}", one.at, code(one)));
        let counts = [tool.succeeded, tool.unsuccessful].map(|count| count.to_string());
        let [ok, not] = &counts;
        page.push_str(&row(name, state, ok, not, &clean(&last.unwrap_or_default())));
    }
    let tools = if tools.len() == 1 { "tool" } else { "tools" };
    page.push_str(&format!("\n{ill} of {} {tools} need a look\n", status.tools.len()));
    page
}

/// One tool.
fn details(name: &str, tool: &ToolStatus) -> String {
    let mut page = format!("{name}: {}\n", state(tool));
    let mut line =
        |key: &str, text: String| page.push_str(&format!("  {key:<10}{}\n", clean(&text)));
    if let Some(owner) = &tool.owner {
        line("owner", owner.clone());
    }
    if let Some(runbook) = &tool.runbook {
        line("runbook", runbook.clone());
    }
    line("profile", format!("{}, policy {}", tool.profile, tool.policy));
    let last = tool.succeeded_at.as_ref().map(|at| format!(" (the last at {at})"));
    line(
        "calls",
        format!(
            "{} succeeded{}, {} did not, {} of {} running",
            tool.succeeded,
            last.unwrap_or_default(),
            tool.unsuccessful,
            tool.calls_in_flight,
            tool.concurrency
        ),
    );
    for limit in &tool.rate_limits {
        line("limit", limit.clone());
    }
    if !tool.failures.is_empty() {
        page.push_str("  the last that did not succeed, the latest first:\n");
    }
    for failure in &tool.failures {
        let shown = format!("{} {} {}", failure.at, failure.call_id, code(failure));
        page.push_str(&format!("    {}\n", clean(&shown)));
        page.push_str(&format!("      {}\n", clean(&failure.message)));
        if let Some(reason) = &failure.reason {
            page.push_str(&format!("      {}\n", clean(reason)));
        }
    }
    page
}

/// Nothing to look at.
const FINE: &str = "ok";

/// The first reason for which calls of the tool do not work now.
fn state(tool: &ToolStatus) -> String {
    let seconds = |millis: u64| millis.div_ceil(1000);
    if !tool.enabled {
        return "turned off".to_owned();
    }
    if let Some(reason) = &tool.unavailable {
        return clean(&format!("unavailable: {reason}"));
    }
    if tool.policy != "allow" {
        return format!("policy {}", clean(&tool.policy));
    }
    match tool.circuit.as_str() {
        "open" => return format!("circuit open, {} s left", seconds(tool.circuit_wait_ms)),
        "half_open" => return "circuit half open".to_owned(),
        _ => {}
    }
    if tool.pause_ms > 0 {
        return format!("asked for a pause, {} s left", seconds(tool.pause_ms));
    }
    // Times of one form and length are in order as texts.
    let failed_at = tool.failures.first().map(|failure| failure.at.as_str());
    if failed_at > tool.succeeded_at.as_deref() { "failing".to_owned() } else { FINE.to_owned() }
}

fn code(failure: &FailureStatus) -> String {
    let detail = failure.detail.as_ref().map(|detail| format!("/{detail}"));
    let status = failure.status.map(|status| format!(" {status}"));
    format!("{}{}{}", failure.code, detail.unwrap_or_default(), status.unwrap_or_default())
}

fn clean(text: &str) -> String {
    String::from_utf8_lossy(&one_line(text.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> ToolStatus {
        let (policy, circuit) = ("allow".to_owned(), "closed".to_owned());
        ToolStatus { enabled: true, policy, circuit, ..ToolStatus::default() }
    }

    fn failed(at: &str) -> Vec<FailureStatus> {
        let (code, detail) = ("timeout".to_owned(), Some("connect".to_owned()));
        vec![FailureStatus { at: at.to_owned(), code, detail, ..FailureStatus::default() }]
    }

    #[test]
    fn a_tool_s_state_is_the_first_reason() {
        #[track_caller]
        fn check(tool: ToolStatus, expected: &str) {
            assert_eq!(state(&tool), expected);
        }
        let at = "2026-10-30T09:55:02.000Z";
        let before = "2026-10-30T09:55:01.000Z";
        let (open, half) = ("open".to_owned(), "half_open".to_owned());
        check(fine(), "ok");
        check(ToolStatus { enabled: false, ..fine() }, "turned off");
        check(ToolStatus { unavailable: Some("a\nb".into()), ..fine() }, "unavailable: a\\u000ab");
        check(ToolStatus { policy: "deny".into(), ..fine() }, "policy deny");
        let open = ToolStatus { circuit: open, circuit_wait_ms: 1001, ..fine() };
        check(open, "circuit open, 2 s left");
        check(ToolStatus { circuit: half, ..fine() }, "circuit half open");
        check(ToolStatus { pause_ms: 1, ..fine() }, "asked for a pause, 1 s left");
        check(ToolStatus { failures: failed(at), ..fine() }, "failing");
        let lately = Some(before.to_owned());
        check(ToolStatus { failures: failed(at), succeeded_at: lately, ..fine() }, "failing");
        let since = Some(at.to_owned());
        check(ToolStatus { failures: failed(before), succeeded_at: since, ..fine() }, "ok");
    }

    #[test]
    fn what_needs_a_look_comes_first() {
        let mut status = Status { ready: true, ..Status::default() };
        status.tools.insert("a".into(), fine());
        let at = "2026-10-30T09:55:02.000Z";
        status.tools.insert("b".into(), ToolStatus { failures: failed(at), ..fine() });
        let page = overview(&status);
        let rows: Vec<&str> = page.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "TOOL  STATE    SUCCEEDED    DID NOT  LAST FAILURE",
                "b     failing          0          0  2026-10-30T09:55:02.000Z timeout/connect",
                "a     ok               0          0",
                "",
                "1 of 2 tools need a look",
            ]
        );
    }
}
