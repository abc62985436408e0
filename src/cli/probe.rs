//! `sortie probe ready`: asks a running gateway, for images without a shell or curl.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use crate::cli::client::{Ask, Place, ask};
use crate::cli::exit::{OK, fail};

/// Ask a running gateway whether it takes calls.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Exit 0 when the gateway takes calls, else 1
    Ready {
        /// Where the telemetry listener is
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9477")]
        telemetry: SocketAddr,
    },
}

/// A gateway that takes longer is not ready.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks once.
pub fn run(arguments: &Arguments) -> u8 {
    let Command::Ready { telemetry } = &arguments.command;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime does not start: {error}")),
    };
    let place = Place::Tcp(*telemetry);
    let asked = async { timeout(TIMEOUT, ask(&place, Ask::get("/readyz"))).await };
    match runtime.block_on(asked) {
        Ok(Ok((200, _))) => OK,
        Ok(Ok((status, _))) => fail(&format!("not ready: {telemetry} answered {status}")),
        Ok(Err(error)) => fail(&format!("{telemetry} does not answer: {error}")),
        Err(_) => fail(&format!("{telemetry} does not answer within {TIMEOUT:?}")),
    }
}
