//! The processes of the bench: this binary again in another role, and what the kernel knows of a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Names the role of a child, as JSON.
const ROLE: &str = "SORTIE_BENCH_ROLE";

/// What a child does.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Calls the server with nothing in between.
    Bare(Bare),
    /// Calls the gateway.
    Load(Load),
    /// Is the server.
    Upstream,
}

/// How a driver drives.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) connections: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// Calls a second over all connections; `None`: the next call follows the last one's answer.
    pub(crate) rate: Option<u32>,
}

/// A driver of the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) plan: Plan,
    pub(crate) address: SocketAddr,
    /// The whole request, which is the same for every call.
    pub(crate) request: String,
}

/// A driver of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Bare {
    pub(crate) plan: Plan,
    pub(crate) address: SocketAddr,
    pub(crate) authority_pem: String,
}

/// What a driver tells at its end.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    calls: usize,
    failed: usize,
    p50_us: f64,
    p99_us: f64,
}

/// One measured window.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) calls: usize,
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cpu_ns: u64,
}

impl Window {
    /// CPU a call in microseconds.
    pub(crate) fn cpu_us(&self) -> f64 {
        self.cpu_ns as f64 / 1000.0 / self.calls.max(1) as f64
    }
}

/// The role that this process was started in.
pub(crate) fn own_role() -> Option<Role> {
    let role = std::env::var(ROLE).ok()?;
    Some(serde_json::from_str(&role).expect("a role of this binary"))
}

/// A child in a role. It ends when its standard input does.
pub(crate) struct Child {
    process: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(crate) fn spawn(role: &Role) -> Self {
        let role = serde_json::to_string(role).expect("a role is JSON");
        let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("this binary starts");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, input, output }
    }

    /// The next line that it says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("UTF-8");
        assert!(!line.is_empty(), "a child of the bench ended early");
        line.trim_end().to_owned()
    }

    /// Waits for a driver's window; CPU is that of `watched`, or the driver's own.
    pub(crate) fn window(mut self, watched: Option<u32>) -> Window {
        let watched = watched.unwrap_or_else(|| self.process.id());
        assert_eq!(self.line(), "begin");
        let (begun, cpu) = (Instant::now(), cpu_ns(watched));
        assert_eq!(self.line(), "end");
        let (seconds, cpu_ns) = (begun.elapsed().as_secs_f64(), cpu_ns(watched) - cpu);
        let told: Told = serde_json::from_str(&self.line()).expect("the figures of a driver");
        assert_eq!(told.failed, 0, "calls of the bench failed");
        let Told { calls, p50_us, p99_us, .. } = told;
        Window { calls, seconds, p50_us, p99_us, cpu_ns }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.input.take());
        // It has nothing left to do, and says nothing that matters.
        let _ = self.process.wait();
    }
}

/// The clock of a driver's run, shared by its connections.
pub(crate) struct Run {
    plan: Plan,
    began: Instant,
    told: Mutex<(Vec<u64>, usize)>,
}

impl Run {
    pub(crate) fn begin(plan: Plan) -> Arc<Self> {
        Arc::new(Self { plan, began: Instant::now(), told: Mutex::default() })
    }

    fn window_begins(&self) -> Instant {
        self.began + self.plan.warm_up
    }

    fn window_ends(&self) -> Instant {
        self.window_begins() + self.plan.window
    }

    /// When a connection has to make its call number `call`: at once, or by its own timetable. `None`: no more calls.
    pub(crate) fn due(&self, connection: usize, call: u32) -> Option<Instant> {
        let due = self.plan.rate.map_or_else(Instant::now, |rate| {
            let step = self.plan.connections as f64 / f64::from(rate);
            let offset = step * connection as f64 / self.plan.connections as f64;
            self.began + Duration::from_secs_f64(step * f64::from(call) + offset)
        });
        (due < self.window_ends()).then_some(due)
    }

    /// Takes what one connection saw; calls that began before the window do not count.
    pub(crate) fn take(&self, calls: &[Call]) {
        let begin = self.window_begins();
        let counted = || calls.iter().filter(|call| call.began >= begin);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let good = counted().filter(|call| call.good);
        told.0.extend(good.map(|call| u64::try_from(call.took.as_nanos()).unwrap_or(u64::MAX)));
        told.1 += counted().filter(|call| !call.good).count();
    }

    /// Says when the window begins and ends, on a thread of its own.
    pub(crate) fn announce(self: &Arc<Self>) -> std::thread::JoinHandle<()> {
        let run = Arc::clone(self);
        std::thread::spawn(move || {
            for (word, at) in [("begin", run.window_begins()), ("end", run.window_ends())] {
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                say(word);
            }
        })
    }

    /// Tells the figures and waits until the parent has read the CPU time.
    pub(crate) fn finish(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, failed) = &mut *told;
        times.sort_unstable();
        let at = |part: f64| {
            let index = (times.len() as f64 * part) as usize;
            times.get(index).map_or(f64::NAN, |ns| *ns as f64 / 1000.0)
        };
        let told = Told { calls: times.len(), failed: *failed, p50_us: at(0.5), p99_us: at(0.99) };
        say(&serde_json::to_string(&told).expect("figures are JSON"));
        wait_for_parent();
    }
}

/// One call as its connection saw it.
pub(crate) struct Call {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    pub(crate) good: bool,
}

/// Says a line to the parent.
pub(crate) fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("the parent reads");
}

/// Waits until the parent is done with this process, or gone.
pub(crate) fn wait_for_parent() {
    // Nothing is ever written to it, so that this ends with the pipe.
    let _ = std::io::stdin().read(&mut [0]);
}

/// CPU time of all threads of a process.
pub(crate) fn cpu_ns(process: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process lives");
    let of_task = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    tasks.filter_map(Result::ok).filter_map(of_task).sum()
}

/// Resident memory of a process.
pub(crate) fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is Linux");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
