//! `sortie dev`: a gateway for the machine of somebody who writes a tool or a runtime.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::cli::exit::{USAGE, fail};
use crate::cli::serve;
use crate::config::local::Local;

/// Run a gateway for local development: never for anything else.
///
/// It takes a configuration as it is and forces what makes it local: it listens on loopback only, asks for no key, keeps
/// everything in memory, has no admin listener, and also calls tools whose URL has 127.0.0.1 or `[::1]` for its host, by http
/// too. Calls are shown as they end, and the file is read again when it is saved. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration file; each further one changes what those before it say
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Where calls are taken; a loopback address, and port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value_t = here(8477))]
    listen: SocketAddr,
    /// Where metrics are; a loopback address
    #[arg(long, value_name = "ADDRESS", default_value_t = here(9477))]
    telemetry: SocketAddr,
}

fn here(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Runs until Ctrl-C: 0 then, 1 where it does not start.
pub fn run(arguments: &Arguments) -> u8 {
    match Local::new(arguments.listen, arguments.telemetry) {
        Ok(local) => serve::gateway(&arguments.files, Some(local)),
        Err(error) => {
            fail(&error.to_string());
            USAGE
        }
    }
}
