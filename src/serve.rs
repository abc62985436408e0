//! Listeners: accept, bound, serve, and close in order.

pub mod auth;
pub mod body;
pub mod calls;
pub mod http;
pub mod outcome;
mod pace;
pub mod telemetry;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::config::snapshot::Bind;
use crate::serve::http::screen;
use crate::serve::pace::{Pace, Paced};
use crate::telemetry::labels::ListenerName;
use crate::telemetry::metrics::Metrics;

/// Lines of a request's head. More: 431.
const MAX_HEADERS: usize = 64;
/// Bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// How long the accept loop rests when the machine has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds on the connections of one listener.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// A head must be whole within this time.
    pub header_timeout: Duration,
    /// A kept connection must bring its next request within this time.
    pub idle_timeout: Duration,
    /// Connections at the same time.
    pub max_connections: usize,
}

/// A bound listener, not yet serving.
#[derive(Debug)]
pub struct Listener {
    name: ListenerName,
    socket: Socket,
    limits: ConnectionLimits,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A place that cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("the {} listener cannot listen at {place}: {source}", .name.as_str())]
pub struct BindError {
    name: ListenerName,
    place: String,
    source: io::Error,
}

impl Listener {
    /// Takes the place. An address on all interfaces takes IPv4 too, and IPv4 alone where there is no IPv6.
    pub async fn bind(
        name: ListenerName,
        bind: &Bind,
        limits: ConnectionLimits,
    ) -> Result<Self, BindError> {
        let socket = match bind {
            Bind::Tcp(address) => bind_tcp(*address).await.map(Socket::Tcp),
            Bind::Unix { path, mode } => bind_unix(path, *mode),
        };
        let place = || match bind {
            Bind::Tcp(address) => address.to_string(),
            Bind::Unix { path, .. } => path.display().to_string(),
        };
        let socket = socket.map_err(|source| BindError { name, place: place(), source })?;
        Ok(Self { name, socket, limits })
    }

    /// The TCP address that was taken, with the real port where 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Where it listens, for the log.
    pub fn place(&self) -> String {
        match (&self.socket, self.address()) {
            (Socket::Unix(_, path), _) => path.display().to_string(),
            (Socket::Tcp(_), address) => address.map_or_else(String::new, |one| one.to_string()),
        }
    }

    /// Serves until `closing` says true, then finishes the requests that run. Idle connections are closed at once.
    pub async fn run(
        self,
        router: Router,
        metrics: Arc<Metrics>,
        mut closing: watch::Receiver<bool>,
    ) {
        let router = TowerToHyperService::new(router);
        let door = Arc::new(FrontDoor { listener: self.name, router, metrics });
        let permits = Arc::new(Semaphore::new(self.limits.max_connections));
        let mut connections = JoinSet::new();
        loop {
            let permit = tokio::select! {
                biased;
                () = closed(&mut closing) => break,
                Some(_) = connections.join_next() => continue,
                permit = permits.clone().acquire_owned() => permit.expect("the semaphore is not closed"),
            };
            let accepted = tokio::select! {
                biased;
                () = closed(&mut closing) => break,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(stream) => {
                    let serving = serve(stream, door.clone(), self.limits, closing.clone(), permit);
                    connections.spawn(serving);
                }
                Err(error) => {
                    tracing::warn!(listener = self.name.as_str(), %error, "A connection was not accepted.");
                    if !is_of_one_connection(&error) {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        // Who comes now is refused at once and can go elsewhere, while what runs is finished.
        match self.socket {
            Socket::Tcp(listener) => drop(listener),
            Socket::Unix(listener, path) => {
                drop(listener);
                // It may be gone already, and a new process may have taken its place.
                let _ = std::fs::remove_file(path);
            }
        }
        while connections.join_next().await.is_some() {}
    }

    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Socket::Unix(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What every request passes: it is screened before it is routed, and counted afterwards.
struct FrontDoor {
    listener: ListenerName,
    router: TowerToHyperService<Router>,
    metrics: Arc<Metrics>,
}

impl FrontDoor {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response, Infallible> {
        let response = match screen(&request) {
            Ok(()) => self.router.call(request).await?,
            Err(error) => error.into_response(),
        };
        self.metrics.http_request(self.listener, response.status().as_u16());
        Ok(response)
    }
}

async fn serve(
    stream: Box<dyn Stream>,
    door: Arc<FrontDoor>,
    limits: ConnectionLimits,
    mut closing: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) {
    let pace = Pace::new();
    let watched = pace.clone();
    let service = service_fn(move |request| {
        let pace = pace.clone();
        pace.answering();
        let answer = door.clone().answer(request);
        async move {
            let answer = answer.await;
            pace.answered();
            answer
        }
    });
    let connection = http1::Builder::new()
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Paced::new(stream, watched.clone())), service);
    tokio::pin!(connection);
    let served = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = closed(&mut closing) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    let ended = tokio::select! {
        biased;
        ended = served => ended,
        () = watched.too_slow(limits.header_timeout, limits.idle_timeout) => Ok(()),
    };
    if let Err(error) = ended {
        // A client's doing: it hung up, sent no HTTP or was too slow.
        tracing::debug!(%error, "A connection ended early.");
    }
    drop(permit);
}

/// Waits until `closing` says true, or until nobody can say it any more.
async fn closed(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Errors of a single connection; others mean that the machine has run out of something.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let no_ipv6 = bound.is_err() && address.is_ipv6() && address.ip().is_unspecified();
    if no_ipv6 {
        let any = std::net::Ipv4Addr::UNSPECIFIED;
        return TcpListener::bind((any, address.port())).await;
    }
    bound
}

fn bind_unix(path: &Path, mode: u32) -> io::Result<Socket> {
    // A socket that a killed process left behind would keep the place taken; one that answers is somebody's.
    if std::os::unix::net::UnixStream::connect(path).is_err() {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(Socket::Unix(listener, path.to_owned()))
}
