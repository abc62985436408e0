//! Log lines: written to a bounded buffer, carried to stdout by one thread in batches.
//!
//! A call must not wait for a slow reader of stdout and must not wake a thread for each line, so lines are appended
//! under a short lock and the writer takes whatever has come together.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::snapshot::{LogLevel, Logging};
use crate::model::call::CallContext;
use crate::model::outcome::CallOutcome;
use crate::model::time::{TimeText, rfc3339};
use crate::model::trace::TraceId;
use crate::telemetry::dial::Dial;
use crate::telemetry::line::one_line;

/// Bytes of lines that wait: past this, new ones are dropped and counted. As much again may be on its way out.
const BUFFER_LIMIT: usize = 8 << 20;
/// How long the writer lets lines come together.
const BATCH_WINDOW: Duration = Duration::from_millis(20);
/// What a buffer keeps for the next lines; a larger one is given back.
const KEPT_CAPACITY: usize = 1 << 20;
/// How long the writer waits where a pipe that does not block is full.
const FULL_PIPE_PAUSE: Duration = Duration::from_millis(10);
/// How often `drained` looks.
const LOOK: Duration = Duration::from_millis(5);
/// How long the end waits for the writer, which a reader that has stopped would hold for ever.
const LAST_LINES: Duration = Duration::from_millis(200);

/// Where log lines go. Clones share the buffer.
#[derive(Clone)]
pub struct LogSink(Arc<Shared>);

struct Shared {
    dial: Dial,
    /// Whether calls are told as sentences.
    sentences: bool,
    state: Mutex<State>,
    wake: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Batch,
    /// Lines that got lost since the last one that said so.
    dropped: u64,
    /// Lines of finished calls since the start: all of them, and those that got lost.
    calls: u64,
    lost_calls: u64,
    writing: bool,
    closed: bool,
    /// Nobody waits for the writer any more.
    abandoned: bool,
    ended: bool,
}

impl State {
    fn is_drained(&self) -> bool {
        self.ended || !self.writing && self.waiting.text.is_empty()
    }
}

/// Lines that are written together.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    calls: u64,
}

/// The thread that writes. Dropping it writes what is left, as far as that goes without waiting for long.
pub struct LogWriter {
    sink: LogSink,
    thread: Option<JoinHandle<()>>,
}

impl LogSink {
    /// Starts the writer on an output, usually stdout.
    pub fn start(json: bool, output: impl Write + Send + 'static) -> io::Result<(Self, LogWriter)> {
        Self::begin(json, false, output)
    }

    /// The same for a terminal: a finished call is a short line, which ends with what the model reads of a failure.
    pub fn start_for_people(output: impl Write + Send + 'static) -> io::Result<(Self, LogWriter)> {
        Self::begin(false, true, output)
    }

    fn begin(
        json: bool,
        sentences: bool,
        output: impl Write + Send + 'static,
    ) -> io::Result<(Self, LogWriter)> {
        let sink = Self(Arc::new(Shared {
            sentences,
            dial: Dial::new(Logging { level: LogLevel::Info, json }),
            state: Mutex::default(),
            wake: Condvar::new(),
            ended: Condvar::new(),
        }));
        let worker = sink.clone();
        let thread = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || worker.write_loop(output))?;
        Ok((sink.clone(), LogWriter { sink, thread: Some(thread) }))
    }

    /// Takes other settings; lines that wait stay as they were written.
    pub fn configure(&self, logging: Logging) {
        self.0.dial.turn(|now| *now = logging);
    }

    /// Changes the level alone, until the configuration says another one.
    pub fn set_level(&self, level: LogLevel) {
        self.0.dial.turn(|now| now.level = level);
    }

    /// The settings in force.
    pub fn logging(&self) -> Logging {
        self.0.dial.logging()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends one whole line; false where the buffer is full and it is dropped and counted.
    fn append(&self, line: &[u8], is_call: bool) -> bool {
        let calls = u64::from(is_call);
        let line = one_line(line);
        let mut state = self.lock();
        state.calls += calls;
        if state.waiting.text.len() + line.len() > BUFFER_LIMIT {
            state.dropped += 1;
            state.lost_calls += calls;
            return false;
        }
        let was_empty = state.waiting.text.is_empty();
        state.waiting.text.extend_from_slice(&line);
        state.waiting.calls += calls;
        drop(state);
        if was_empty {
            self.0.wake.notify_one();
        }
        true
    }

    /// Waits until everything that was appended before is written; for ever, where nobody reads it.
    pub async fn drained(&self) {
        self.0.wake.notify_one();
        while !self.lock().is_drained() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lines of finished calls since the start, by what became of them.
    pub fn call_lines(&self) -> [(&'static str, u64); 2] {
        let state = self.lock();
        [("written", state.calls - state.lost_calls), ("dropped", state.lost_calls)]
    }

    fn write_loop(&self, mut output: impl Write) {
        let mut batch = Batch::default();
        loop {
            let mut state = self.lock();
            while state.waiting.text.is_empty() && !state.closed {
                state = self.0.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if !state.closed {
                let waited = self.0.wake.wait_timeout(state, BATCH_WINDOW);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            let closed = state.closed;
            std::mem::swap(&mut state.waiting, &mut batch);
            let dropped = std::mem::take(&mut state.dropped);
            state.writing = true;
            drop(state);
            let lines = batch.text.len();
            if dropped > 0 {
                self.say_dropped(dropped, &mut batch.text);
            }
            let written = self.write(&mut output, &batch.text);
            let mut state = self.lock();
            // A reader that went away is no reason to stop serving.
            if written < batch.text.len() {
                let unwritten = &batch.text[written.min(lines)..lines];
                let lost = unwritten.iter().filter(|byte| **byte == b'\n').count();
                state.dropped += dropped + u64::try_from(lost).unwrap_or(u64::MAX);
                state.lost_calls += batch.calls;
            }
            state.writing = false;
            if closed {
                state.ended = true;
                self.0.ended.notify_all();
                return;
            }
            drop(state);
            batch.text.clear();
            batch.text.shrink_to(KEPT_CAPACITY);
            batch.calls = 0;
        }
    }

    /// Writes all of it; how much of it was written, where that was not possible.
    fn write(&self, output: &mut impl Write, text: &[u8]) -> usize {
        let mut written = 0;
        while written < text.len() {
            match output.write(&text[written..]) {
                Ok(0) => return written,
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.lock().abandoned {
                        return written;
                    }
                    std::thread::park_timeout(FULL_PIPE_PAUSE);
                }
                Err(_) => return written,
            }
        }
        // Only a buffer of the output's own could be left, and stdout's ends with each line.
        let _ = output.flush();
        written
    }

    fn say_dropped(&self, dropped: u64, text: &mut Vec<u8>) {
        const MESSAGE: &str = "Log lines were dropped: stdout is too slow.";
        let line = if self.0.dial.logging().json {
            format!(r#"{{"level":"WARN","dropped":{dropped},"message":"{MESSAGE}"}}"#)
        } else {
            format!(" WARN sortie: {MESSAGE} dropped={dropped}")
        };
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }

    /// Writes the line of a finished call; false where it is dropped, which is counted here.
    pub fn call(&self, line: &CallLine<'_>) -> bool {
        let mut text = Vec::with_capacity(640);
        // Writing to memory does not fail, and the line holds nothing that serde refuses.
        let _ = if self.0.sentences {
            line.as_sentence(&mut text)
        } else if self.0.dial.logging().json {
            serde_json::to_writer(&mut text, line).map_err(io::Error::from)
        } else {
            line.as_text(&mut text)
        };
        text.push(b'\n');
        self.append(&text, true)
    }

    /// Writes the line of another stream: as JSON, or as this text.
    pub fn line(&self, line: &impl Serialize, as_text: impl FnOnce() -> String) {
        let mut text = if self.0.dial.logging().json {
            serde_json::to_string(line).expect("the log's own shapes are JSON")
        } else {
            as_text()
        };
        text.push('\n');
        self.append(text.as_bytes(), false);
    }
}

impl std::fmt::Debug for LogSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogSink")
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        let mut state = self.sink.lock();
        state.closed = true;
        self.sink.0.wake.notify_one();
        let waited = self.sink.0.ended.wait_timeout_while(state, LAST_LINES, |state| !state.ended);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.abandoned = true;
        let ended = state.ended;
        drop(state);
        // A thread whose reader has stopped is left behind.
        if let Some(thread) = self.thread.take().filter(|_| ended) {
            // A panic of the writer has been printed already.
            let _ = thread.join();
        }
    }
}

/// Collects one event of `tracing` and appends it as a whole line.
#[derive(Debug)]
pub struct EventLine {
    sink: LogSink,
    text: Vec<u8>,
}

impl Write for EventLine {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for EventLine {
    fn drop(&mut self) {
        self.sink.append(&self.text, false);
    }
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = EventLine;

    fn make_writer(&'a self) -> EventLine {
        EventLine { sink: self.clone(), text: Vec::with_capacity(256) }
    }
}

/// Sends this process's `tracing` events to the sink. Call it once; `LogSink::configure` changes the settings later.
pub fn install(logging: Logging, sink: &LogSink) {
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    sink.configure(logging);
    // One layer for each form, of which one passes lines: so the form can change as well.
    let json = tracing_subscriber::fmt::layer().with_writer(sink.clone()).with_ansi(false).json();
    let json = json.flatten_event(true).with_current_span(false).with_span_list(false);
    let text = tracing_subscriber::fmt::layer().with_writer(sink.clone()).with_ansi(false);
    let started = tracing_subscriber::registry()
        .with(json.with_filter(sink.0.dial.gate(true)))
        .with(text.with_filter(sink.0.dial.gate(false)))
        .try_init();
    // A second gateway in one process (a test) keeps the first one's sink.
    drop(started);
}

/// The line of a finished call, fields in the order of the contract (section 10). It never holds arguments, answers,
/// header values or addresses.
#[derive(Debug, Serialize)]
pub struct CallLine<'a> {
    stream: &'static str,
    ts: TimeText,
    call_id: &'a str,
    trace_id: Option<TraceId>,
    organisation: &'a str,
    key: &'a str,
    agent_id: Option<&'a str>,
    session_id: Option<&'a str>,
    run_id: Option<&'a str>,
    end_user_id: Option<&'a str>,
    tool: &'a str,
    owner: Option<&'a str>,
    version: Option<u32>,
    status: &'static str,
    code: &'static str,
    outcome: Option<&'static str>,
    attempts: usize,
    duration_ms: u64,
    bytes: u64,
    truncated: bool,
    replayed: bool,
    shadow: Option<&'static str>,
    region: Option<&'a str>,
    #[serde(skip)]
    told: Told<'a>,
}

/// What only a terminal is told.
#[derive(Debug, Clone, Copy)]
struct Told<'a> {
    detail: Option<&'static str>,
    sentence: Option<&'a str>,
}

/// Who called, for the line.
#[derive(Debug, Clone, Copy)]
pub struct LineCaller<'a> {
    /// The organisation.
    pub organisation: &'a str,
    /// The key's name.
    pub key: &'a str,
    /// The deployment's region.
    pub region: Option<&'a str>,
    /// The tool's owner.
    pub owner: Option<&'a str>,
}

impl<'a> CallLine<'a> {
    /// The line of this outcome.
    pub fn new(outcome: &'a CallOutcome, context: &'a CallContext, caller: LineCaller<'a>) -> Self {
        let success = outcome.ended.as_ref().ok();
        let failure = outcome.ended.as_ref().err();
        let told = Told {
            detail: failure.and_then(|failure| failure.detail),
            sentence: failure.map(|failure| failure.message.as_str()),
        };
        Self {
            told,
            stream: "call",
            ts: rfc3339(outcome.finished_at_ms),
            call_id: outcome.id.as_str(),
            trace_id: outcome.trace_id,
            organisation: caller.organisation,
            key: caller.key,
            agent_id: context.agent_id.as_deref(),
            session_id: context.session_id.as_deref(),
            run_id: context.run_id.as_ref().map(|run| run.as_str()),
            end_user_id: context.end_user.as_ref().and_then(|user| user.id.as_deref()),
            tool: &outcome.tool,
            owner: caller.owner,
            version: outcome.reference.as_ref().map(|tool| tool.version),
            status: outcome.status().as_str(),
            code: outcome.code(),
            outcome: failure.map(|failure| failure.sent.as_str()),
            attempts: outcome.attempts.len(),
            duration_ms: u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX),
            bytes: success.map_or(0, |success| success.result_bytes),
            truncated: success.is_some_and(|success| success.cut_note.is_some()),
            replayed: false,
            shadow: outcome
                .decision
                .as_ref()
                .and_then(|made| made.shadow.first())
                .map(|ruling| ruling.effect.as_str()),
            region: caller.region,
        }
    }

    /// The line for a terminal.
    fn as_sentence(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let (time, tool) = (self.ts.as_str(), self.tool.escape_debug());
        write!(out, "{time} call {tool}: {} {}", self.status, self.code)?;
        if let Some(detail) = self.told.detail {
            write!(out, "/{detail}")?;
        }
        write!(out, ", {} ms", self.duration_ms)?;
        match self.told.sentence {
            Some(sentence) => write!(out, ". {sentence}"),
            None => Ok(()),
        }
    }

    /// The line for eyes: what one looks for first, the rest is in the JSON form.
    fn as_text(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write!(
            out,
            "{} call {} tool={} status={} code={} outcome={} attempts={} duration_ms={} bytes={} key={}",
            self.ts.as_str(),
            self.call_id,
            self.tool.escape_debug(),
            self.status,
            self.code,
            self.outcome.unwrap_or("-"),
            self.attempts,
            self.duration_ms,
            self.bytes,
            self.key,
        )
    }
}

#[cfg(test)]
mod tests;
