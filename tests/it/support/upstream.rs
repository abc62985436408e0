//! The fault upstream: a scripted raw TCP or TLS peer that records exactly what it was sent.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::Acceptor;
use rustls::{HandshakeKind, ServerConfig};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::LazyConfigAcceptor;

use crate::support::certs::Leaf;
use crate::support::script::{Script, Step};
use crate::support::wait::{Log, within};

/// A request as it arrived, byte for byte.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Which connection it came on, counted from 0.
    pub(crate) connection: usize,
    /// Request line and headers with the empty line.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Head and body.
    pub(crate) fn raw(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }

    /// The request line.
    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The headers in order and in their own spelling.
    pub(crate) fn headers(&self) -> Vec<(&str, &str)> {
        self.head.lines().skip(1).filter_map(|line| line.split_once(": ")).collect()
    }

    /// The one header of this name, in any case; two of them are a failure.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.headers();
        let mut found = headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let first = found.next().map(|(_, value)| *value);
        assert!(found.next().is_none(), "two {name} headers in {}", self.head);
        first
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }
}

/// What is known of one accepted connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// Who connected.
    pub(crate) peer: SocketAddr,
    /// Every byte that was received (after TLS).
    pub(crate) received: Vec<u8>,
    /// How many bytes were sent (before TLS).
    pub(crate) sent: usize,
    /// The name that the client asked for in its hello.
    pub(crate) server_name: Option<String>,
    /// The protocols that the client offered in its hello.
    pub(crate) alpn: Vec<String>,
    /// Whether the session is the continuation of an older one, and whether bytes came before the handshake ended.
    pub(crate) resumed: bool,
    pub(crate) early_data: bool,
    /// Why the TLS handshake failed.
    pub(crate) handshake_error: Option<String>,
    /// Whether it is still open on this side.
    pub(crate) open: bool,
}

struct Shared {
    connections: Log<Connection>,
    requests: Log<Request>,
    next: Mutex<VecDeque<Script>>,
    default: Mutex<Option<Script>>,
    /// What happened against the script: it fails the test when the upstream is dropped.
    surprises: Log<String>,
}

/// The scripted peer. Scripts given to [`Upstream::next`] serve one connection each, in order; then the default serves.
/// A connection for which there is no script fails the test.
pub(crate) struct Upstream {
    address: SocketAddr,
    tls: bool,
    forbidden: bool,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Upstream {
    /// Speaks plain TCP on a free loopback port.
    pub(crate) async fn plain() -> Self {
        Self::start(loopback(), None, false).await
    }

    /// The same at an address of the test's own network.
    pub(crate) async fn plain_at(address: SocketAddr) -> Self {
        Self::start(address, None, false).await
    }

    /// Speaks TLS with this certificate on a free loopback port.
    pub(crate) async fn tls(leaf: &Leaf) -> Self {
        Self::tls_at(loopback(), leaf).await
    }

    /// Speaks TLS with this certificate at a given address.
    pub(crate) async fn tls_at(address: SocketAddr, leaf: &Leaf) -> Self {
        Self::start(address, Some(leaf.server_config(&["http/1.1"])), false).await
    }

    /// Speaks TLS in any way that a configuration can.
    pub(crate) async fn with_tls_config(config: Arc<ServerConfig>) -> Self {
        Self::start(loopback(), Some(config), false).await
    }

    /// Nobody may connect here: a connection fails the test.
    pub(crate) async fn forbidden_at(address: SocketAddr) -> Self {
        Self::start(address, None, true).await
    }

    async fn start(address: SocketAddr, tls: Option<Arc<ServerConfig>>, forbidden: bool) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free address");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            connections: Log::new(),
            requests: Log::new(),
            next: Mutex::new(VecDeque::new()),
            default: Mutex::new(None),
            surprises: Log::new(),
        });
        let is_tls = tls.is_some();
        let accepting = tokio::spawn(accept(listener, tls, forbidden, Arc::clone(&shared)));
        Self { address, tls: is_tls, forbidden, shared, accepting }
    }

    /// Serves every connection that has no script of its own.
    pub(crate) fn default(&self, script: Script) -> &Self {
        *self.shared.default.lock().unwrap_or_else(PoisonError::into_inner) = Some(script);
        self
    }

    /// Serves the next connection that has no script yet.
    pub(crate) fn next(&self, script: Script) -> &Self {
        self.shared.next.lock().unwrap_or_else(PoisonError::into_inner).push_back(script);
        self
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The URL of a path here, under a name that the DNS fixture knows.
    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{host}:{}{path}", self.port())
    }

    /// Everything that was asked so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.all()
    }

    /// The only request; any other number is a failure.
    #[track_caller]
    pub(crate) fn only_request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "one request, not {requests:#?}");
        requests.remove(0)
    }

    /// The accept log.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.shared.connections.all()
    }

    pub(crate) async fn wait_for_requests(&self, count: usize) -> Vec<Request> {
        let what = format!("{count} requests");
        self.shared.requests.wait(&what, |all| (all.len() >= count).then(|| all.to_vec())).await
    }

    pub(crate) async fn wait_for_connections(&self, count: usize) -> Vec<Connection> {
        let what = format!("{count} connections");
        self.shared.connections.wait(&what, |all| (all.len() >= count).then(|| all.to_vec())).await
    }

    /// Waits until so many have connected and all of them are closed.
    pub(crate) async fn wait_until_closed(&self, count: usize) -> Vec<Connection> {
        let ask = |all: &[Connection]| {
            (all.len() >= count && all.iter().all(|one| !one.open)).then(|| all.to_vec())
        };
        self.shared.connections.wait(&format!("{count} closed connections"), ask).await
    }

    /// Waits until a connection is closed by whoever opened it.
    pub(crate) async fn wait_for_close(&self, index: usize) -> Connection {
        let ask = |all: &[Connection]| all.get(index).filter(|one| !one.open).cloned();
        self.shared.connections.wait(&format!("the end of connection {index}"), ask).await
    }

    /// Proves that nobody connected. A listener's queue keeps its order, so a connection of our own is accepted after
    /// each earlier one: when it is in the log, so are they.
    pub(crate) async fn assert_untouched(&self) {
        let own = within("our own connection", TcpStream::connect(self.address))
            .await
            .expect("a connection");
        let own = own.local_addr().expect("an address");
        let log = self
            .shared
            .connections
            .wait("our own connection in the log", |all| {
                all.iter().any(|one| one.peer == own).then(|| all.to_vec())
            })
            .await;
        self.shared.connections.change(|all| all.retain(|one| one.peer != own));
        let others: Vec<_> = log.into_iter().filter(|one| one.peer != own).collect();
        assert!(others.is_empty(), "nobody may connect to {}: {others:#?}", self.address);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
        if std::thread::panicking() {
            return;
        }
        let surprises = self.shared.surprises.all();
        assert!(surprises.is_empty(), "the upstream met something unexpected: {surprises:#?}");
        if self.forbidden {
            let connections = self.connections();
            assert!(
                connections.is_empty(),
                "nobody may connect to {}: {connections:#?}",
                self.address
            );
        }
    }
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

async fn accept(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    forbidden: bool,
    shared: Arc<Shared>,
) {
    // Owned here, so that all connections end when this task is aborted.
    let mut running = JoinSet::new();
    loop {
        let (stream, peer) = listener.accept().await.expect("a connection");
        let index = shared.connections.push(Connection {
            peer,
            received: Vec::new(),
            sent: 0,
            server_name: None,
            alpn: Vec::new(),
            resumed: false,
            early_data: false,
            handshake_error: None,
            open: !forbidden,
        });
        if forbidden {
            continue;
        }
        let next = shared.next.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let default = || shared.default.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(script) = next.or_else(default) else {
            shared.connections.change(|all| all[index].open = false);
            shared.surprises.push(format!("connection {index} has no script"));
            continue;
        };
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        running.spawn(async move {
            serve(stream, tls, script, index, &shared).await;
            shared.connections.change(|all| all[index].open = false);
        });
        while running.try_join_next().is_some() {}
    }
}

async fn serve(
    tcp: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    script: Script,
    index: usize,
    shared: &Shared,
) {
    tcp.set_nodelay(true).expect("TCP_NODELAY");
    let Some(config) = tls else {
        let mut peer = Peer::new(tcp, index, shared, |tcp| tcp);
        return peer.finish(&script).await;
    };
    let hello = match LazyConfigAcceptor::new(Acceptor::default(), tcp).await {
        Ok(hello) => hello,
        Err(error) => {
            return shared
                .connections
                .change(|all| all[index].handshake_error = Some(error.to_string()));
        }
    };
    let server_name = hello.client_hello().server_name().map(str::to_owned);
    let offered = hello.client_hello().alpn().into_iter().flatten();
    let alpn = offered.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    shared
        .connections
        .change(|all| (all[index].server_name, all[index].alpn) = (server_name, alpn));
    match hello.into_stream(config).await {
        Ok(mut stream) => {
            let session = stream.get_mut().1;
            let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
            let early_data = session.early_data().is_some();
            shared
                .connections
                .change(|all| (all[index].resumed, all[index].early_data) = (resumed, early_data));
            Peer::new(stream, index, shared, |stream| stream.get_ref().0).finish(&script).await
        }
        Err(error) => {
            shared.connections.change(|all| all[index].handshake_error = Some(error.to_string()))
        }
    }
}

/// Why a script stops before its end.
enum Stop {
    /// The peer closed, or the connection broke: scripts may count on that.
    Closed,
    /// The peer did what no script expects.
    Surprise(String),
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

/// One connection under its script.
struct Peer<'a, S> {
    stream: S,
    tcp: fn(&S) -> &TcpStream,
    index: usize,
    shared: &'a Shared,
    /// Read from the connection, not yet taken by a step.
    pending: Vec<u8>,
    /// The request that was read last.
    request: Option<Request>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin + Send> Peer<'a, S> {
    fn new(stream: S, index: usize, shared: &'a Shared, tcp: fn(&S) -> &TcpStream) -> Self {
        Self { stream, tcp, index, shared, pending: Vec::new(), request: None }
    }

    async fn finish(&mut self, script: &Script) {
        match self.run(script.steps()).await {
            Ok(()) => {
                // The peer may be gone already, which is no fault of the script.
                let _ = self.stream.shutdown().await;
            }
            Err(Stop::Closed) => {}
            Err(Stop::Surprise(what)) => {
                self.shared.surprises.push(format!("connection {}: {what}", self.index));
            }
        }
    }

    async fn run(&mut self, steps: &[Step]) -> Result<(), Stop> {
        for step in steps {
            match step {
                Step::Head => self.read_head().await?,
                Step::Body => self.read_body().await?,
                Step::Some => drop(self.read_more().await?),
                Step::Send(bytes) => self.send(bytes).await?,
                Step::Respond(responder) => {
                    let request = self
                        .request
                        .as_ref()
                        .ok_or(Stop::Surprise("no request to answer".into()))?;
                    let bytes = responder(request);
                    self.send(&bytes).await?;
                }
                Step::Drip { bytes, period } => {
                    let mut tick = tokio::time::interval(*period);
                    for byte in bytes {
                        tick.tick().await;
                        self.send(&[*byte]).await?;
                    }
                }
                Step::Flood(bytes) => loop {
                    self.send(bytes).await?;
                },
                Step::Wait(signal) => signal.fired().await,
                Step::Fire(signal) => signal.fire(),
                Step::Stall => while self.read_more().await? {},
                Step::Hold => std::future::pending().await,
                Step::Relay(address) => {
                    let mut other = TcpStream::connect(address).await?;
                    tokio::io::copy_bidirectional(&mut self.stream, &mut other).await?;
                }
                Step::Fin => self.stream.shutdown().await?,
                Step::BareFin => {
                    SockRef::from((self.tcp)(&self.stream)).shutdown(Shutdown::Write)?
                }
                Step::Reset => {
                    SockRef::from((self.tcp)(&self.stream))
                        .set_linger(Some(std::time::Duration::ZERO))?;
                    return Err(Stop::Closed);
                }
                Step::Forever(steps) => loop {
                    Box::pin(self.run(steps)).await?;
                },
            }
        }
        Ok(())
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        self.shared.connections.change(|all| all[self.index].sent += bytes.len());
        Ok(())
    }

    /// Whether there was more.
    async fn read_more(&mut self) -> Result<bool, Stop> {
        let mut buffer = [0; 16 * 1024];
        let count = self.stream.read(&mut buffer).await?;
        let bytes = &buffer[..count];
        self.pending.extend_from_slice(bytes);
        self.shared.connections.change(|all| all[self.index].received.extend_from_slice(bytes));
        Ok(count > 0)
    }

    async fn read_head(&mut self) -> Result<(), Stop> {
        let end = loop {
            if let Some(at) = self.pending.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.read_more().await? {
                return Err(Stop::Closed);
            }
        };
        let head: Vec<u8> = self.pending.drain(..end).collect();
        let head = String::from_utf8(head)
            .map_err(|_| Stop::Surprise("a head that is not UTF-8".into()))?;
        if !head.lines().next().unwrap_or_default().ends_with(" HTTP/1.1") {
            return Err(Stop::Surprise(format!("not a request head: {head:?}")));
        }
        self.request = Some(Request { connection: self.index, head, body: Vec::new() });
        Ok(())
    }

    async fn read_body(&mut self) -> Result<(), Stop> {
        let mut request =
            self.request.take().ok_or(Stop::Surprise("a body before a head".into()))?;
        if request.header("Transfer-Encoding").is_some() {
            return Err(Stop::Surprise(format!(
                "a body without Content-Length: {:?}",
                request.head
            )));
        }
        let length = request.header("Content-Length").map_or(Ok(0), str::parse);
        let length: usize = length
            .map_err(|_| Stop::Surprise(format!("a bad Content-Length: {:?}", request.head)))?;
        while self.pending.len() < length {
            if !self.read_more().await? {
                return Err(Stop::Closed);
            }
        }
        request.body = self.pending.drain(..length).collect();
        self.shared.requests.push(request.clone());
        self.request = Some(request);
        Ok(())
    }
}
