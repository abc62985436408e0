//! `sortie serve`: runs the gateway until SIGTERM or Ctrl-C, and reads its configuration again on SIGHUP.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::cli::exit::{FAILED, OK, fail, print};
use crate::config::local::Local;
use crate::config::snapshot::Snapshot;
use crate::reload::Trigger;
use crate::source::{self, Load};
use crate::telemetry::log::{self, LogSink, LogWriter};

/// Run the gateway until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration file; each further one changes what those before it say
    #[arg(long, value_name = "FILE", required = true)]
    config: Vec<PathBuf>,
}

/// What is said before local development begins.
const BANNER: &str = "\
=== LOCAL DEVELOPMENT: not for production ===
No key is asked for, listeners are on loopback, and servers on this machine may be called by http.
Calls are shown as they end. The configuration is read again when it is saved. Ctrl-C ends it.

";
/// How long stdout may take for the last log lines.
const LAST_LINES: Duration = Duration::from_secs(2);
/// How long the runtime waits for what cannot be called off.
const LEFTOVERS: Duration = Duration::from_millis(100);

/// Runs until it is told to stop: 0 after a drain, 1 where it did not start or was told twice.
pub fn run(arguments: &Arguments) -> u8 {
    gateway(&arguments.config, None)
}

/// The same, for local development where that is given.
pub fn gateway(config: &[PathBuf], local: Option<Local>) -> u8 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime does not start: {error}")),
    };
    let (code, writer) = runtime.block_on(serve(config, local));
    // The tasks end before the writer does, so that what they say last is written.
    runtime.shutdown_timeout(LEFTOVERS);
    drop(writer);
    code
}

/// SIGTERM and Ctrl-C, and SIGHUP.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until it is told to end.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits until it is told to end or to reload.
    async fn next_order(&mut self) -> Order {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Order::End,
            _ = self.interrupt.recv() => Order::End,
            _ = self.hangup.recv() => Order::Reload,
        }
    }
}

/// What a signal means to a gateway that serves.
enum Order {
    End,
    Reload,
}

/// How it ended.
enum End {
    /// In order, with this exit code.
    Ordered(u8),
    /// A second signal asked for the end now.
    Hurried,
}

async fn serve(config: &[PathBuf], local: Option<Local>) -> (u8, Option<LogWriter>) {
    // Signals that come while it starts count too.
    let mut signals = match Signals::new() {
        Ok(signals) => signals,
        Err(error) => return (fail(&format!("signals cannot be received: {error}")), None),
    };
    let load = match local {
        None => source::load(config),
        Some(local) => source::load_local(config, local),
    };
    let load = match load {
        Ok(load) => load,
        Err(error) => return (fail(&error.to_string()), None),
    };
    if local.is_some() {
        print(BANNER, OK);
    }
    let started = match local {
        None => LogSink::start(load.found.logging.json, io::stdout()),
        Some(_) => LogSink::start_for_people(io::stdout()),
    };
    let (sink, writer) = match started {
        Ok(started) => started,
        Err(error) => return (fail(&format!("the log writer does not start: {error}")), None),
    };
    log::install(load.found.logging, &sink);
    raise_descriptors(&load.found);
    let code = match until_told(load, config, sink.clone(), &mut signals).await {
        End::Hurried => FAILED,
        End::Ordered(code) => {
            // A reader of stdout that has stopped holds neither the process nor a second signal.
            tokio::select! {
                () = sink.drained() => {}
                () = signals.next() => {}
                () = tokio::time::sleep(LAST_LINES) => {}
            }
            code
        }
    };
    (code, Some(writer))
}

/// Raises the bound on descriptors to what the system lets it be: the listener's own bound on connections is the one that
/// is meant, and a shell's is lower.
fn raise_descriptors(snapshot: &Snapshot) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let bound = if raised.is_ok() { maximum } else { current };
    let connections = snapshot.listeners.api.max_connections;
    if bound.is_some_and(|bound| bound < u64::try_from(connections).unwrap_or(u64::MAX)) {
        let message =
            "The system allows fewer descriptors than the api listener's max_connections.";
        tracing::warn!(descriptors = bound, max_connections = connections, message);
    }
}

async fn until_told(
    load: Load<Snapshot>,
    config: &[PathBuf],
    log: LogSink,
    signals: &mut Signals,
) -> End {
    let started = tokio::select! {
        biased;
        started = App::build(load, config, log) => started,
        () = signals.next() => return End::Ordered(OK),
    };
    let app = match started {
        Ok(app) => app,
        Err(error) => {
            tracing::error!(%error, "The gateway does not start.");
            return End::Ordered(fail(&error.to_string()));
        }
    };
    loop {
        let order = tokio::select! {
            order = signals.next_order() => order,
            () = app.asked_to_end() => Order::End,
        };
        let Order::Reload = order else { break };
        tokio::select! {
            biased;
            () = signals.next() => break,
            _ = app.reloader().reload(Trigger::Signal) => {}
        }
    }
    tokio::select! {
        () = app.shutdown() => End::Ordered(OK),
        () = signals.next() => End::Hurried,
    }
}
