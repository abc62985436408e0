//! What a scripted peer does on one connection, as a list of steps; and answers to send.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::upstream::Request;
use crate::support::wait::Signal;

/// Makes an answer's bytes from the request's.
pub(crate) type Responder = Arc<dyn Fn(&Request) -> Vec<u8> + Send + Sync>;

/// One thing that the peer does. It goes on to the next when this one is done.
#[derive(Clone)]
pub(crate) enum Step {
    /// Reads and records a head, up to the empty line.
    Head,
    /// Reads as many bytes as the head's Content-Length says.
    Body,
    /// Reads whatever comes first: for peers that speak no HTTP.
    Some,
    /// Sends bytes as they are.
    Send(Vec<u8>),
    /// Sends what the responder makes of the last request.
    Respond(Responder),
    /// Sends one byte in each period.
    Drip { bytes: Vec<u8>, period: Duration },
    /// Sends the same bytes again and again until the peer closes.
    Flood(Vec<u8>),
    /// Waits for a signal.
    Wait(Signal),
    /// Fires a signal.
    Fire(Signal),
    /// Reads and throws away until the peer closes.
    Stall,
    /// Reads nothing and keeps the connection until the test ends.
    Hold,
    /// Passes everything on to another server, and its bytes back, until one of them ends.
    Relay(SocketAddr),
    /// Ends the sending direction in good order (with TLS: close_notify, then FIN).
    Fin,
    /// Ends the sending direction with a bare FIN, which under TLS is a truncation.
    BareFin,
    /// Resets the connection.
    Reset,
    /// Repeats the steps until the peer closes.
    Forever(Vec<Step>),
}

/// The steps of one connection. A script that runs out closes in good order.
#[derive(Clone, Default)]
pub(crate) struct Script(Vec<Step>);

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The ordinary server: answers each request on a kept connection.
    pub(crate) fn responding(
        responder: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::new().forever(Self::new().request().respond(responder))
    }

    /// The ordinary server with one answer for everything.
    pub(crate) fn always(answer: impl Into<Vec<u8>>) -> Self {
        Self::new().forever(Self::new().request().send(answer))
    }

    /// Answers one request and closes.
    pub(crate) fn once(answer: impl Into<Vec<u8>>) -> Self {
        Self::new().request().send(answer)
    }

    /// Adds a step.
    pub(crate) fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Reads a whole request: head and body.
    pub(crate) fn request(self) -> Self {
        self.then(Step::Head).then(Step::Body)
    }

    /// Reads whatever comes first.
    pub(crate) fn some(self) -> Self {
        self.then(Step::Some)
    }

    pub(crate) fn send(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Send(bytes.into()))
    }

    pub(crate) fn respond(
        self,
        responder: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        self.then(Step::Respond(Arc::new(responder)))
    }

    pub(crate) fn drip(self, bytes: impl Into<Vec<u8>>, period: Duration) -> Self {
        self.then(Step::Drip { bytes: bytes.into(), period })
    }

    pub(crate) fn flood(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Flood(bytes.into()))
    }

    pub(crate) fn wait(self, signal: &Signal) -> Self {
        self.then(Step::Wait(signal.clone()))
    }

    pub(crate) fn fire(self, signal: &Signal) -> Self {
        self.then(Step::Fire(signal.clone()))
    }

    pub(crate) fn stall(self) -> Self {
        self.then(Step::Stall)
    }

    pub(crate) fn hold(self) -> Self {
        self.then(Step::Hold)
    }

    pub(crate) fn relay(self, address: SocketAddr) -> Self {
        self.then(Step::Relay(address))
    }

    pub(crate) fn fin(self) -> Self {
        self.then(Step::Fin)
    }

    pub(crate) fn bare_fin(self) -> Self {
        self.then(Step::BareFin)
    }

    pub(crate) fn reset(self) -> Self {
        self.then(Step::Reset)
    }

    pub(crate) fn forever(self, script: Self) -> Self {
        self.then(Step::Forever(script.0))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

/// An answer with a Content-Length; the connection may be kept.
pub(crate) fn answer(status: u16, content_type: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    answer_with_headers(status, &[("Content-Type", content_type)], body)
}

/// An answer with these headers and a Content-Length.
pub(crate) fn answer_with_headers(
    status: u16,
    headers: &[(&str, &str)],
    body: impl AsRef<[u8]>,
) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = head(status, headers);
    bytes.truncate(bytes.len() - 2);
    bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A head alone: what follows is the script's business.
pub(crate) fn head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {status} Scripted\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    text.into_bytes()
}
