//! `sortie serve`: runs the gateway until SIGTERM or Ctrl-C.

use std::io;
use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};

use crate::app::App;
use crate::cli::exit::{FAILED, OK, fail};
use crate::source;
use crate::telemetry::log::{self, LogSink};

/// Run the gateway until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// Runs until it is told to stop: 0 where all calls finished, 1 where it did not start or calls were cut off.
pub fn run(arguments: &Arguments) -> u8 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime does not start: {error}")),
    };
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: &Arguments) -> u8 {
    // Signals that come while it starts count too.
    let (terminate, interrupt) =
        match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
            (Ok(terminate), Ok(interrupt)) => (terminate, interrupt),
            (Err(error), _) | (_, Err(error)) => {
                return fail(&format!("signals cannot be received: {error}"));
            }
        };
    let (mut terminate, mut interrupt) = (terminate, interrupt);
    let snapshot = match source::load(&arguments.config) {
        Ok(snapshot) => snapshot,
        Err(error) => return fail(&error.to_string()),
    };
    let (sink, writer) = match LogSink::start(snapshot.logging.json, io::stdout()) {
        Ok(started) => started,
        Err(error) => return fail(&format!("the log writer does not start: {error}")),
    };
    log::install(&snapshot.logging, &sink);
    let code = tokio::select! {
        biased;
        started = App::build(snapshot, &arguments.config, sink) => match started {
            Ok(app) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                tokio::select! {
                    finished = app.shutdown() => if finished { OK } else { FAILED },
                    // A second signal ends now.
                    _ = terminate.recv() => FAILED,
                    _ = interrupt.recv() => FAILED,
                }
            }
            Err(error) => {
                tracing::error!(%error, "The gateway does not start.");
                fail(&error.to_string())
            }
        },
        _ = terminate.recv() => OK,
        _ = interrupt.recv() => OK,
    };
    drop(writer);
    code
}
