//! The page's own tool server, run as its reader runs it.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use super::page::Shell;
use crate::support::deaf::Vacant;
use crate::support::wait::poll;

/// The port of the page's server, which a test must not take.
const PORT: &str = "8700";

/// The server; it is killed when it is dropped.
pub(super) struct Server {
    port: Vacant,
    child: Option<Child>,
}

impl Server {
    /// One that does not run yet, with a port that is kept for it.
    pub(super) fn new() -> Self {
        Self { port: Vacant::take(), child: None }
    }

    /// The page's text with this server's port.
    pub(super) fn at_home(&self, text: &str) -> String {
        text.replace(PORT, &self.port.port().to_string())
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Runs `python3 server.py`, and waits until it can be called.
    pub(super) async fn start(&mut self, line: &str, shell: &Shell) {
        assert!(self.child.is_none(), "it is started once");
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).current_dir(shell.folder()).env("PYTHONDONTWRITEBYTECODE", "1");
        // It writes a line for each request.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("it starts"));
        let address = self.address();
        poll("the page's server", || async move { TcpStream::connect(address).ok() }).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
