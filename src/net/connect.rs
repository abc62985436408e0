//! The only place that dials: checked addresses (or the proxy's own) in, a ready stream out.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock::{BoxFuture, Clock};
use crate::net::certificate;
use crate::net::shortage::is_shortage;
use crate::net::tls::refuses_client;
use crate::policy::address::{Peer, Target, VettedAddr};
use crate::policy::endpoint::{Endpoint, Host, Scheme};

/// How long one address may take before the next is tried at the same time (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// How long a kept connection may be silent before the kernel asks whether the peer is there, and how often then.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(5));

/// How long sent bytes may stay unacknowledged.
const USER_TIMEOUT: Duration = Duration::from_secs(10);

/// A byte stream, encrypted or not.
pub trait IoStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> IoStream for T {}

/// An address that may be dialled: one that was judged, or the proxy's own.
pub trait Dialled: Copy + Send + Sync {
    /// Address and port.
    fn socket(&self) -> SocketAddr;
}

impl Dialled for VettedAddr {
    fn socket(&self) -> SocketAddr {
        Self::socket(self)
    }
}

/// Whatever can open a connection to where it may go.
pub trait Connect: Send + Sync {
    /// Dials the addresses in their order, each a moment after the one before, until one answers; or has the proxy do it.
    fn connect<'a>(
        &'a self,
        target: &'a Target<'a>,
        endpoint: &'a Endpoint,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Connected, ConnectError>>;
}

/// A stream on which nothing was said yet, and where it goes; or why there is none.
pub type Opened = Result<(Box<dyn IoStream>, Peer), ConnectError>;

/// Whatever can have somebody else open a connection.
pub trait Tunnel: Send + Sync {
    /// A stream to where it may go. `late` is the failure at `until`.
    fn open<'a>(
        &'a self,
        target: &'a Target<'a>,
        endpoint: &'a Endpoint,
        until: Instant,
        late: ConnectErrorKind,
    ) -> BoxFuture<'a, Opened>;
}

/// An open connection.
pub struct Connected {
    /// The bytes.
    pub stream: Box<dyn IoStream>,
    /// Where it goes.
    pub peer: Peer,
    /// How long the TCP part took.
    pub connect: Duration,
    /// How long the TLS part took; zero over plain HTTP.
    pub tls: Duration,
    /// When the server's certificate ends, in Unix seconds.
    pub certificate_expiry: Option<i64>,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connected").field(&self.peer).finish()
    }
}

/// Why there is no connection. Nothing of the request was sent, whatever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectErrorKind {
    /// The certificate is not valid for the name, or ours is not accepted: permanent.
    Certificate,
    /// Refused, unreachable, reset.
    Connect,
    /// `connect_timeout` ran out.
    ConnectTimeout,
    /// The attempt's deadline came while dialling.
    DeadlineInConnect,
    /// The attempt's deadline came in the TLS handshake.
    DeadlineInTls,
    /// This machine has no free port, descriptor or memory: not the tool's fault.
    Exhausted,
    /// The stream goes elsewhere than to the address that was checked.
    PeerMismatch,
    /// The TLS handshake was broken off, answered with an alert or took longer than `connect_timeout`.
    Tls,
}

impl ConnectErrorKind {
    /// The word for it in spans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Connect => "connect",
            Self::ConnectTimeout | Self::DeadlineInConnect | Self::DeadlineInTls => "timeout",
            Self::Exhausted => "exhausted",
            Self::PeerMismatch => "peer_mismatch",
            Self::Tls => "tls",
        }
    }
}

/// A failed dial, with the operator's sentence.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ConnectError {
    /// What happened.
    pub kind: ConnectErrorKind,
    /// How long the TCP part took, where it was the TLS part that failed.
    pub dialled: Option<Duration>,
    message: String,
}

impl ConnectError {
    /// A failure and the operator's sentence about it.
    pub fn new(kind: ConnectErrorKind, message: impl Into<String>) -> Self {
        Self { kind, dialled: None, message: message.into() }
    }

    /// A stream on which no HTTP can be begun.
    pub fn not_http(error: &hyper::Error) -> Self {
        Self::new(ConnectErrorKind::Connect, error.to_string())
    }
}

/// The real connector: TCP or a tunnel, and TLS where the scheme asks for it.
pub struct TlsConnect {
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    clock: Arc<dyn Clock>,
    tunnel: Option<Arc<dyn Tunnel>>,
}

impl fmt::Debug for TlsConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsConnect").field(&self.connect_timeout).finish()
    }
}

impl TlsConnect {
    /// `connect_timeout` bounds the TCP part, and again the TLS handshake.
    pub fn new(tls: Arc<ClientConfig>, connect_timeout: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { tls, connect_timeout, clock, tunnel: None }
    }

    /// What does not go direct goes through this.
    pub fn through(self, tunnel: Option<Arc<dyn Tunnel>>) -> Self {
        Self { tunnel, ..self }
    }

    /// The moment that ends a phase which begins now, and the failure that it then is.
    fn limit(
        &self,
        deadline: Instant,
        at_deadline: ConnectErrorKind,
        at_timeout: ConnectErrorKind,
    ) -> (Instant, ConnectErrorKind) {
        let own = self.clock.now() + self.connect_timeout;
        if deadline <= own { (deadline, at_deadline) } else { (own, at_timeout) }
    }

    /// A stream to where it may go, and which of the places it is.
    async fn stream(&self, target: &Target<'_>, endpoint: &Endpoint, deadline: Instant) -> Opened {
        let (until, late) = self.limit(
            deadline,
            ConnectErrorKind::DeadlineInConnect,
            ConnectErrorKind::ConnectTimeout,
        );
        match (target, &self.tunnel) {
            (Target::Direct(addresses), _) => {
                let (stream, address) = tcp(addresses, until, late).await?;
                Ok((Box::new(stream), Peer::Direct(address)))
            }
            (Target::Delegated(_) | Target::Proxied(_), Some(tunnel)) => {
                tunnel.open(target, endpoint, until, late).await
            }
            (Target::Delegated(_) | Target::Proxied(_), None) => {
                let message = "there is no proxy, and nothing else may be dialled";
                Err(ConnectError::new(ConnectErrorKind::PeerMismatch, message))
            }
        }
    }
}

/// Dials until `until`, and compares where the stream goes with what was to be dialled.
pub(in crate::net) async fn tcp<A: Dialled>(
    addresses: &[A],
    until: Instant,
    late: ConnectErrorKind,
) -> Result<(TcpStream, A), ConnectError> {
    let (stream, address) = timeout_at(until, race(addresses))
        .await
        .map_err(|_| ConnectError::new(late, format!("no answer from {}", list(addresses))))??;
    check_peer(&stream, address)?;
    Ok((stream, address))
}

/// The client's side of TLS over any stream.
pub(in crate::net) async fn handshake<S: IoStream>(
    tls: &Arc<ClientConfig>,
    stream: S,
    host: &Host,
    until: Instant,
    late: ConnectErrorKind,
) -> Result<TlsStream<S>, ConnectError> {
    let name = match host {
        Host::Address(address) => ServerName::from(*address),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|_| {
            let message = format!("no certificate can be valid for `{name}`");
            ConnectError::new(ConnectErrorKind::Certificate, message)
        })?,
    };
    let connector = TlsConnector::from(Arc::clone(tls));
    match timeout_at(until, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(tls_error(&error)),
        Err(_) => Err(ConnectError::new(late, "the TLS handshake did not end in time")),
    }
}

impl Connect for TlsConnect {
    fn connect<'a>(
        &'a self,
        target: &'a Target<'a>,
        endpoint: &'a Endpoint,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Connected, ConnectError>> {
        Box::pin(async move {
            let begun = self.clock.now();
            let (stream, peer) = self.stream(target, endpoint, deadline).await?;
            let dialled = self.clock.now();
            let connect = dialled - begun;
            match endpoint.scheme() {
                Scheme::Http => Ok(Connected {
                    stream,
                    peer,
                    connect,
                    tls: Duration::ZERO,
                    certificate_expiry: None,
                }),
                Scheme::Https => {
                    let (until, late) = self.limit(
                        deadline,
                        ConnectErrorKind::DeadlineInTls,
                        ConnectErrorKind::Tls,
                    );
                    let host = endpoint.host();
                    let stream = handshake(&self.tls, stream, host, until, late)
                        .await
                        .map_err(|error| ConnectError { dialled: Some(connect), ..error })?;
                    let certificates = stream.get_ref().1.peer_certificates();
                    let certificate_expiry = certificates
                        .and_then(|chain| chain.first())
                        .and_then(|certificate| certificate::not_after(certificate));
                    let tls = self.clock.now() - dialled;
                    Ok(Connected {
                        stream: Box::new(stream),
                        peer,
                        connect,
                        tls,
                        certificate_expiry,
                    })
                }
            }
        })
    }
}

type Dial<'a, A> = Pin<Box<dyn Future<Output = (A, io::Result<TcpStream>)> + Send + 'a>>;

/// Dials the addresses one after another; a slow one does not hold up the next.
async fn race<A: Dialled>(addresses: &[A]) -> Result<(TcpStream, A), ConnectError> {
    let mut waiting = addresses.iter().copied();
    let mut dials: Vec<Dial<'_, A>> = Vec::new();
    let mut failures = Vec::new();
    loop {
        let next = waiting.next();
        if let Some(address) = next {
            dials.push(Box::pin(async move { (address, dial(address.socket()).await) }));
        }
        if dials.is_empty() {
            return Err(no_dial(&failures));
        }
        let ended = if waiting.len() > 0 {
            timeout(NEXT_ADDRESS_AFTER, first(&mut dials)).await.ok()
        } else {
            Some(first(&mut dials).await)
        };
        match ended {
            Some((address, Ok(stream))) => return Ok((stream, address)),
            Some((address, Err(error))) => failures.push((address.socket(), error)),
            None => {}
        }
    }
}

/// The dial that ends first, taken off the list.
async fn first<A>(dials: &mut Vec<Dial<'_, A>>) -> (A, io::Result<TcpStream>) {
    poll_fn(|cx| {
        for at in 0..dials.len() {
            if let Poll::Ready(ended) = dials[at].as_mut().poll(cx) {
                drop(dials.swap_remove(at));
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    let options = SockRef::from(&socket);
    let (time, interval) = KEEPALIVE;
    options.set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval))?;
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    socket.connect(address).await
}

/// Compares where the stream goes with what was checked, before a byte is sent.
fn check_peer(stream: &TcpStream, address: impl Dialled) -> Result<(), ConnectError> {
    let wanted = address.socket();
    match stream.peer_addr() {
        Ok(peer) if (peer.ip(), peer.port()) == (wanted.ip(), wanted.port()) => Ok(()),
        Ok(peer) => Err(ConnectError::new(
            ConnectErrorKind::PeerMismatch,
            format!("{wanted} was checked, but the connection goes to {peer}"),
        )),
        Err(error) => {
            Err(ConnectError::new(ConnectErrorKind::Connect, format!("{wanted}: {error}")))
        }
    }
}

fn no_dial(failures: &[(SocketAddr, io::Error)]) -> ConnectError {
    let local = |(address, error): &(SocketAddr, io::Error)| is_shortage(*address, error);
    let kind = if !failures.is_empty() && failures.iter().all(local) {
        ConnectErrorKind::Exhausted
    } else {
        ConnectErrorKind::Connect
    };
    let texts: Vec<String> =
        failures.iter().take(4).map(|(address, error)| format!("{address}: {error}")).collect();
    let message = if texts.is_empty() { "there is no address".into() } else { texts.join("; ") };
    ConnectError::new(kind, message)
}

fn tls_error(error: &io::Error) -> ConnectError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let (kind, hint) = match inner {
        Some(rustls::Error::InvalidCertificate(why)) if is_of_another_time(why) => {
            (ConnectErrorKind::Certificate, "; is this machine's clock right?")
        }
        Some(rustls::Error::InvalidCertificate(_)) => (ConnectErrorKind::Certificate, ""),
        Some(error) if refuses_client(error) => {
            let message = format!("the server does not take the client certificate: {error}");
            return ConnectError::new(ConnectErrorKind::Certificate, message);
        }
        _ => (ConnectErrorKind::Tls, ""),
    };
    ConnectError::new(kind, format!("TLS handshake: {error}{hint}"))
}

/// Whether a certificate is refused for its dates, which are good by another clock.
fn is_of_another_time(why: &CertificateError) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

fn list(addresses: &[impl Dialled]) -> String {
    let texts: Vec<String> =
        addresses.iter().take(4).map(|address| address.socket().to_string()).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests;
