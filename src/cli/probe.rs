//! `sortie probe ready`: asks a running gateway, for images without a shell or curl.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

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

const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks once, two seconds at most for each step.
pub fn run(arguments: &Arguments) -> u8 {
    let Command::Ready { telemetry } = &arguments.command;
    match ask(*telemetry) {
        Ok(head) if head.starts_with("HTTP/1.1 200 ") => OK,
        Ok(head) => fail(&format!("not ready: {}", head.lines().next().unwrap_or("no answer"))),
        Err(error) => fail(&format!("{telemetry} does not answer: {error}")),
    }
}

fn ask(telemetry: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&telemetry, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {telemetry}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(4096).read_to_string(&mut answer)?;
    Ok(answer)
}
