//! `sortie calls`: calls out of a gateway's store or log, filtered.

mod line;
mod stored;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cli::calls::line::{Line, clean, heading};
use crate::cli::calls::stored::{Stored, Wanted};
use crate::cli::exit::{OK, fail, print};
use crate::cli::listener::{ApiArguments, Listener};
use crate::clock::{Clock, SystemClock};
use crate::config::leaf::Span;
use crate::model::time::rfc3339;
use crate::telemetry::line::printable;

/// A longer line is no line of a call.
const LONGEST_LINE: u64 = 1 << 20;
/// Codes that are counted apart: more than there are.
const MOST_CODES: usize = 100;

/// Show calls, out of a gateway's store or its log.
///
/// With `--url` it asks the api listener for the calls that the gateway keeps, those that wait or run too (`--key-file` holds a
/// key with the scope `agent` or `agent:call`). Without, it reads what the gateway writes to its standard output (with
/// `logging.format: json`), from a file or from standard input:
/// `kubectl logs deploy/sortie | sortie calls --tool lookup_order --since 1h`. Lines of other kinds are passed over; what is
/// no JSON is counted on stderr.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only calls of this tool; may be given more than once
    #[arg(long, value_name = "NAME")]
    tool: Vec<String>,
    /// Only calls that ended with this code (`ok`, `timeout`, …); may be given more than once
    #[arg(long, value_name = "CODE")]
    code: Vec<String>,
    /// Only calls that ended (with --url: were made) since then: a time such as 2026-12-01T08:00:00Z, or how long ago, such as 15m, 2h or 1d
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<i64>,
    /// The log; `-` is standard input
    #[arg(long, value_name = "FILE", default_value = "-", conflicts_with = "url")]
    log: PathBuf,
    /// Only calls of this conversation
    #[arg(long, value_name = "ID", requires = "url")]
    session_id: Option<String>,
    /// Only calls of this run
    #[arg(long, value_name = "ID", requires = "url")]
    run_id: Option<String>,
    #[command(flatten)]
    api: ApiArguments,
    /// Print the lines as they are, odd characters escaped
    #[arg(long)]
    json: bool,
}

/// What a line of the log is.
#[derive(Debug)]
enum Found {
    Call(Line),
    Malformed,
    Other,
}

/// How many lines there were of each kind.
#[derive(Debug, Default)]
struct Counts {
    by_code: BTreeMap<String, u64>,
    malformed: u64,
}

/// Unix milliseconds of a time, or of so long ago.
fn since(text: &str) -> Result<i64, String> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Ok(moment.as_millisecond());
    }
    let ago = Span::parse(text).ok_or("write 2026-12-01T08:00:00Z, or 15m, 2h, 1d")?;
    let ago = i64::try_from(ago.0.as_millis()).unwrap_or(i64::MAX);
    Ok(SystemClock.unix_ms().saturating_sub(ago))
}

/// Prints what is asked for: 0 also where that is nothing, 1 where the log cannot be read or the gateway does not answer.
pub fn run(arguments: &Arguments) -> u8 {
    if let Some(listener) = arguments.api.listener() {
        let shown = listener.and_then(|listener| arguments.stored(&listener));
        return shown.unwrap_or_else(|code| code);
    }
    let log: Box<dyn Read> = if arguments.log == Path::new("-") {
        Box::new(io::stdin())
    } else {
        match File::open(&arguments.log) {
            Ok(file) => Box::new(file),
            Err(error) => {
                let log = arguments.log.display();
                return fail(&format!("the log `{log}` cannot be read: {error}"));
            }
        }
    };
    let mut counts = Counts::default();
    let told = arguments.tell(BufReader::new(log), &mut io::stdout(), &mut counts);
    if counts.malformed > 0 {
        let lines = if counts.malformed == 1 { "line is" } else { "lines are" };
        let hint = "the log has to be written with `logging.format: json`";
        fail(&format!("{} {lines} no JSON and left out; {hint}", counts.malformed));
    }
    match told {
        // A reader that closed the pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => OK,
        Err(error) => fail(&format!("the log cannot be read to its end: {error}")),
        Ok(()) => OK,
    }
}

impl Arguments {
    /// Out of the store, at once.
    fn stored(&self, listener: &Listener) -> Result<u8, u8> {
        let wanted = Wanted {
            tool: self.tool.first().filter(|_| self.tool.len() == 1).map(String::as_str),
            session_id: self.session_id.as_deref(),
            run_id: self.run_id.as_deref(),
            since_ms: self.since,
        };
        let (mut page, mut counts) = (String::new(), Counts::default());
        if !self.json {
            page.push_str(&heading());
        }
        for Stored { line, json } in stored::ask(listener, wanted)? {
            if !among(&self.tool, &line.tool) || !among(&self.code, &line.code) {
                continue;
            }
            counts.add(&line.code);
            page.push_str(&if self.json { json_line(json.as_bytes()) } else { line.row() });
        }
        if !self.json {
            page.push_str(&counts.summary());
        }
        Ok(print(&page, OK))
    }

    /// Line by line, so that a log that goes on is shown as it grows.
    fn tell(
        &self,
        mut log: impl BufRead,
        out: &mut impl Write,
        counts: &mut Counts,
    ) -> io::Result<()> {
        if !self.json {
            out.write_all(heading().as_bytes())?;
        }
        while let Some(bytes) = next_line(&mut log)? {
            let line = match Found::of(&bytes) {
                Found::Call(line) if self.wants(&line) => line,
                Found::Call(_) | Found::Other => continue,
                Found::Malformed => {
                    counts.malformed += 1;
                    continue;
                }
            };
            counts.add(&line.code);
            let shown = if self.json { json_line(&bytes) } else { line.row() };
            out.write_all(shown.as_bytes())?;
            out.flush()?;
        }
        if !self.json {
            out.write_all(counts.summary().as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }

    fn wants(&self, line: &Line) -> bool {
        // Times of one form and length are in order as texts.
        let since = self.since.is_none_or(|since| line.ts.as_str() >= rfc3339(since).as_str());
        since && among(&self.tool, &line.tool) && among(&self.code, &line.code)
    }
}

impl Found {
    fn of(bytes: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Any {
            stream: Option<String>,
        }
        if bytes.trim_ascii().is_empty() {
            return Self::Other;
        }
        let json = json_of(bytes);
        match serde_json::from_slice::<Any>(json) {
            Ok(Any { stream: Some(stream) }) if stream == "call" => {
                serde_json::from_slice(json).map_or(Self::Malformed, Self::Call)
            }
            Ok(_) => Self::Other,
            Err(_) => Self::Malformed,
        }
    }
}

impl Counts {
    /// Of a foreign log nobody knows how many codes it has.
    fn add(&mut self, code: &str) {
        let is_kept = self.by_code.len() < MOST_CODES || self.by_code.contains_key(code);
        *self.by_code.entry(if is_kept { code } else { "other" }.to_owned()).or_default() += 1;
    }

    fn summary(&self) -> String {
        let all: u64 = self.by_code.values().sum();
        let codes = self.by_code.iter().map(|(code, count)| format!("{count} {code}"));
        let codes: Vec<_> = codes.collect();
        let calls = if all == 1 { "call" } else { "calls" };
        match codes.as_slice() {
            [] => "\nno such calls\n".to_owned(),
            codes => format!("\n{}", clean(&format!("{all} {calls}: {}", codes.join(", ")))),
        }
    }
}

/// A line from where its JSON begins: some collectors write their own time before it.
fn json_of(line: &[u8]) -> &[u8] {
    let begin = line.iter().position(|byte| *byte == b'{').unwrap_or_default();
    line.get(begin..).unwrap_or_default()
}

/// The line for whoever reads JSON on a terminal: white space between the values is made plain, and within a text an odd
/// character is escaped, which means the same.
fn json_line(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(json_of(line).trim_ascii_end());
    let text = text.replace(['\t', '\r', '\n'], " ");
    printable(&text).into_owned() + "\n"
}

/// Whether a value is among those that are asked for.
fn among(given: &[String], found: &str) -> bool {
    given.is_empty() || given.iter().any(|one| one == found)
}

/// The next line without its end, `None` at the end. Of one that is too long only the beginning is kept.
fn next_line(log: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if log.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop_if(|last| *last == b'\n').is_none() {
        let mut rest = Vec::new();
        while log.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut rest)? > 0
            && rest.last() != Some(&b'\n')
        {
            rest.clear();
        }
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK_LINE: &str = r#"{"stream":"call","ts":"2026-10-30T09:55:02.000Z","call_id":"call_1","trace_id":null,"organisation":"default","key":"a","agent_id":null,"session_id":null,"run_id":null,"end_user_id":null,"tool":"lookup_order","owner":null,"version":1,"status":"succeeded","code":"ok","outcome":null,"attempts":1,"duration_ms":184,"bytes":20,"truncated":false,"replayed":false,"shadow":null,"region":null}"#;

    fn line(ts: &str, tool: &str, code: &str) -> String {
        let time = OK_LINE.replace("2026-10-30T09:55:02.000Z", ts);
        time.replace("\"ok\"", &format!("\"{code}\"")).replace("lookup_order", tool)
    }

    fn arguments() -> Arguments {
        let log = PathBuf::from("-");
        let api = ApiArguments::default();
        let (tool, code, since) = (Vec::new(), Vec::new(), None);
        let (session_id, run_id) = (None, None);
        Arguments { tool, code, since, log, session_id, run_id, api, json: false }
    }

    #[track_caller]
    fn check(arguments: &Arguments, log: &str, shown: &[&str], malformed: u64) {
        let (mut out, mut counts) = (Vec::new(), Counts::default());
        arguments.tell(log.as_bytes(), &mut out, &mut counts).expect("memory");
        let out = String::from_utf8(out).expect("UTF-8");
        assert_eq!(out.lines().collect::<Vec<_>>(), shown);
        assert_eq!(counts.malformed, malformed);
    }

    const HEAD: &str = "TIME                      TOOL                      STATUS            CODE                 OUTCOME   ATTEMPTS       MS  CALL";
    const OK_ROW: &str = "2026-10-30T09:55:02.000Z  lookup_order              succeeded         ok                   -                1      184  call_1";

    #[test]
    fn calls_are_rows_and_other_lines_are_passed_over() {
        let log = format!("{{\"level\":\"INFO\"}}\n\n2026-10-30T09:55:02.1Z {OK_LINE}\n");
        check(&arguments(), &log, &[HEAD, OK_ROW, "", "1 call: 1 ok"], 0);
        check(&arguments(), "", &[HEAD, "", "no such calls"], 0);
        check(&Arguments { json: true, ..arguments() }, OK_LINE, &[OK_LINE], 0);
    }

    #[test]
    fn what_is_no_line_of_a_call_is_counted() {
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20));
        let odd = r#"{"stream":"call","ts":7}"#;
        let log = format!("nonsense\n{long}\n{odd}\n[]\n{{\"stream\":\"call\"\n{OK_LINE}");
        check(&arguments(), &log, &[HEAD, OK_ROW, "", "1 call: 1 ok"], 5);
    }

    #[test]
    fn filters_hold_together() {
        let log = [
            line("2026-10-30T09:55:02.000Z", "a", "ok"),
            line("2026-10-30T09:55:03.000Z", "a", "timeout"),
            line("2026-10-30T09:55:03.001Z", "b", "timeout"),
        ];
        let count = |arguments: &Arguments| {
            let (mut out, mut counts) = (Vec::new(), Counts::default());
            arguments.tell(log.join("\n").as_bytes(), &mut out, &mut counts).expect("memory");
            counts.by_code.values().sum::<u64>()
        };
        let given = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let since = Some(since("2026-10-30T09:55:03Z").expect("a time"));
        assert_eq!(count(&arguments()), 3);
        assert_eq!(count(&Arguments { tool: given(&["a"]), ..arguments() }), 2);
        assert_eq!(count(&Arguments { tool: given(&["a", "b"]), ..arguments() }), 3);
        assert_eq!(count(&Arguments { code: given(&["timeout"]), ..arguments() }), 2);
        assert_eq!(count(&Arguments { since, ..arguments() }), 2);
        let both = Arguments { since, tool: given(&["b"]), code: given(&["ok"]), ..arguments() };
        assert_eq!(count(&both), 0);
    }

    #[test]
    fn a_name_does_not_dress_the_terminal_up() {
        let log = line("2026-10-30T09:55:02.000Z", "\\u001b[31m", "ok");
        let (mut out, mut counts) = (Vec::new(), Counts::default());
        arguments().tell(log.as_bytes(), &mut out, &mut counts).expect("memory");
        assert!(!out.contains(&0x1b), "{out:?}");
        let log = format!("{}\r\n", OK_LINE.replace("call_1", "\u{9b}31m").replace(',', "\t,"));
        let mut out = Vec::new();
        let arguments = Arguments { json: true, ..arguments() };
        arguments.tell(log.as_bytes(), &mut out, &mut counts).expect("memory");
        let shown = String::from_utf8(out).expect("UTF-8");
        assert!(!shown.trim_end().contains(char::is_control), "{shown:?}");
        let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(value["call_id"], "\u{9b}31m");
    }

    #[test]
    fn a_foreign_log_does_not_grow_the_summary() {
        let mut counts = Counts::default();
        (0..MOST_CODES * 2).for_each(|n| counts.add(&n.to_string()));
        assert_eq!((counts.by_code.len(), counts.by_code["other"]), (MOST_CODES + 1, 100));
    }

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        assert_eq!(since("1970-01-01T00:00:01Z"), Ok(1000));
        let hour = since("1h").expect("a span");
        let off = SystemClock.unix_ms() - 3_600_000 - hour;
        assert!((0..60_000).contains(&off), "{off}");
        assert!(since("yesterday").is_err());
        assert!(since("999999999999999999d").is_err());
    }
}
