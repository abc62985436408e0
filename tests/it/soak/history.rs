//! What was asked, what arrived and what was answered, and what must hold between them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::driver::SoakTool;
use super::peer::Fault;

/// A request that the tool's server read to its end.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) fault: Fault,
    pub(super) key: Option<String>,
}

/// One call as its runtime saw it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) tool: &'static SoakTool,
    /// When the outcome was read; `None` where the runtime hung up.
    pub(super) answered: Option<(Instant, Value)>,
}

#[derive(Default)]
struct Books {
    arrivals: HashMap<String, Vec<Arrival>>,
    asked: HashMap<String, Asked>,
    faults: BTreeMap<&'static str, usize>,
    codes: BTreeMap<String, usize>,
}

/// Everything that happened.
#[derive(Default)]
pub(super) struct History(Mutex<Books>);

impl History {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fault that the server chose, with the request that it read for it, if any.
    pub(super) fn arrived(&self, fault: Fault, call: Option<(String, Option<String>)>) {
        let mut books = self.books();
        *books.faults.entry(fault.name()).or_default() += 1;
        if let Some((call, key)) = call {
            let arrival = Arrival { at: Instant::now(), fault, key };
            books.arrivals.entry(call).or_default().push(arrival);
        }
    }

    pub(super) fn asked(&self, call: String, asked: Asked) {
        let mut books = self.books();
        let code = match &asked.answered {
            None => "(hung up)".to_owned(),
            Some((_, outcome)) => {
                outcome.pointer("/error/code").and_then(Value::as_str).unwrap_or("ok").to_owned()
            }
        };
        *books.codes.entry(code).or_default() += 1;
        let before = books.asked.insert(call, asked);
        assert!(before.is_none(), "every call has an id of its own");
    }

    /// Checks every call; how many there were. `logged` gives a call's log lines.
    pub(super) fn check(&self, logged: impl Fn(&str) -> Vec<Value>) -> usize {
        let books = self.books();
        for (call, asked) in &books.asked {
            let arrivals = books.arrivals.get(call).map(Vec::as_slice).unwrap_or_default();
            let lines = logged(call);
            let story = || format!("{call}: {asked:#?}\n{arrivals:#?}\n{lines:#?}");
            resends(asked.tool, arrivals).unwrap_or_else(|why| panic!("{why}\n{}", story()));
            match &asked.answered {
                Some((at, outcome)) => {
                    told(*at, outcome, arrivals).unwrap_or_else(|why| panic!("{why}\n{}", story()));
                    assert_eq!(lines.len(), 1, "one line a call\n{}", story());
                    let code = outcome.pointer("/error/code").cloned().unwrap_or("ok".into());
                    assert_eq!(lines[0]["code"], code, "{}", story());
                }
                // Whatever reached the server was a call, and was logged.
                None => assert!(
                    lines.len() <= 1 && (arrivals.is_empty() || lines.len() == 1),
                    "{}",
                    story()
                ),
            }
        }
        let strangers: Vec<_> =
            books.arrivals.keys().filter(|call| !books.asked.contains_key(*call)).collect();
        assert!(strangers.is_empty(), "requests that nobody asked for: {strangers:?}");
        books.asked.len()
    }

    /// Whether each fault happened; a short run may not come to all of them.
    pub(super) fn covers_every_fault(&self, length: Duration) -> bool {
        length < Duration::from_secs(60) || self.books().faults.len() == Fault::ALL.len()
    }

    pub(super) fn summary(&self) -> String {
        let books = self.books();
        let mut text = format!("{} calls; outcomes", books.asked.len());
        for (code, count) in &books.codes {
            let _ = write!(text, " {code}={count}");
        }
        text.push_str("; faults");
        for (fault, count) in &books.faults {
            let _ = write!(text, " {fault}={count}");
        }
        text
    }
}

/// A request is repeated only where that can do no harm, and always with the same key.
fn resends(tool: &SoakTool, arrivals: &[Arrival]) -> Result<(), String> {
    if arrivals.len() > 3 {
        return Err(format!("{} requests of one call", arrivals.len()));
    }
    let mut keys: Vec<_> = arrivals.iter().map(|arrival| &arrival.key).collect();
    keys.dedup();
    if keys.len() > 1
        || tool.keyed != arrivals.iter().all(|one| one.key.is_some()) && !arrivals.is_empty()
    {
        return Err("the key is the same on each attempt, where the profile sends one".into());
    }
    for arrival in arrivals.iter().rev().skip(1) {
        let harmless = tool.keyed
            || arrival.fault.says_nothing_was_done()
            || tool.read_only && arrival.fault.breaks_the_body();
        if !harmless {
            return Err(format!("sent again after {:?}", arrival.fault));
        }
    }
    Ok(())
}

/// The outcome is true.
fn told(at: Instant, outcome: &Value, arrivals: &[Arrival]) -> Result<(), String> {
    if let Some(late) = arrivals.iter().find(|arrival| arrival.at > at) {
        return Err(format!("a request after the outcome: {late:?}"));
    }
    let last = arrivals.last().map(|arrival| arrival.fault);
    if outcome["status"] == "succeeded" {
        // The server echoes the call's id: an answer that belongs to another call would show.
        return match last {
            Some(fault) if fault.can_succeed() => Ok(()),
            other => Err(format!("succeeded, after {other:?}")),
        };
    }
    match outcome["error"]["outcome"].as_str() {
        Some("not_sent") if arrivals.is_empty() => Ok(()),
        Some("not_sent") => Err("`not_sent`, and the server has the request".into()),
        Some("answered") if arrivals.iter().all(|one| one.fault.answers()) => Ok(()),
        Some("answered") => Err("`answered`, and an attempt was not".into()),
        // The request may have been lost on its way.
        Some("unknown") => Ok(()),
        other => Err(format!("no outcome: {other:?}")),
    }
}
