//! Listeners: accept, bound, serve, and close in order.

pub mod admin;
pub mod api;
pub mod approvals;
pub mod auth;
pub mod batch;
mod bind;
pub mod body;
pub mod calls;
pub mod catalogue;
mod crowd;
pub mod errand;
pub mod events;
pub mod follow;
pub mod http;
pub mod openapi;
mod pace;
pub mod policies;
pub mod query;
pub mod route;
pub mod shadow;
pub mod tagged;
pub mod telemetry;
mod tls;
pub mod told;
pub mod visit;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::{IntoResponse, Response};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::listening::Bind;
use crate::gateway::Gateway;
use crate::gateway::flight::Caught;
use crate::net::serving::{Peer, ServerTls};
use crate::serve::bind::{Place, Stream};
use crate::serve::crowd::Crowd;
use crate::serve::http::{ApiCode, ApiError, screen};
use crate::serve::pace::{Lasting, Pace, Paced};
use crate::serve::telemetry::Readiness;
use crate::serve::tls::secure;
use crate::telemetry::labels::ListenerName;
use crate::telemetry::metrics::Metrics;

/// Lines of a request's head. More: 431.
const MAX_HEADERS: usize = 64;
/// Bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// How long the accept loop rests when the machine has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A machine that is short of something says so once in this time.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(1);

/// How far a listener's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are taken, connections are kept.
    Serving,
    /// Requests are taken, each as the last one of its connection: clients are led elsewhere, and nobody loses one.
    Retiring,
    /// Requests are still answered, each as the last one of its connection, but new work is not taken.
    Draining,
    /// Nobody comes in any more, and only what runs is finished.
    Closed,
}

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
    place: Place,
    limits: ConnectionLimits,
}

/// What a listener serves with.
#[derive(Debug, Clone)]
pub struct Means {
    /// Counts requests and panics.
    pub metrics: Arc<Metrics>,
    /// Told while no connection can be accepted.
    pub readiness: Arc<Readiness>,
    /// Spaces the lines about that.
    pub clock: Arc<dyn Clock>,
    /// Where the listener may speak TLS: knows the settings in force.
    pub tls_of: Option<Arc<Gateway>>,
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
    /// Takes the place.
    pub async fn bind(
        name: ListenerName,
        bind: &Bind,
        limits: ConnectionLimits,
    ) -> Result<Self, BindError> {
        let place = Place::take(bind).await.map_err(|source| {
            let place = match bind {
                Bind::Tcp(address) => address.to_string(),
                Bind::Unix { path, .. } => path.display().to_string(),
            };
            BindError { name, place, source }
        })?;
        Ok(Self { name, place, limits })
    }

    /// Which one it is.
    pub fn name(&self) -> ListenerName {
        self.name
    }

    /// The TCP address that was taken, with the real port where 0 was asked for.
    pub fn address(&self) -> Option<SocketAddr> {
        self.place.address()
    }

    /// Where it listens, for the log.
    pub fn place(&self) -> String {
        self.place.name()
    }

    /// Serves until the phase is `Closed`, then finishes the requests that run. A connection between two requests is closed
    /// as soon as the drain begins; one that has had none yet still has its first answered.
    pub async fn run(self, router: Router, means: Means, mut phase: watch::Receiver<Phase>) {
        let Self { name, place, limits } = self;
        let mut shortage =
            Shortage { listener: name, means: means.clone(), lasts: false, told: None };
        let router = TowerToHyperService::new(router);
        let Means { metrics, tls_of, .. } = means;
        let seen = phase.clone();
        let door = Arc::new(FrontDoor { listener: name, router, metrics, tls_of, phase: seen });
        let mut crowd = Crowd::new(limits.max_connections);
        loop {
            let accepted = tokio::select! {
                biased;
                () = reached(&mut phase, Phase::Closed) => break,
                () = crowd.one_leaves() => continue,
                accepted = place.accept() => accepted,
                // Nobody waits to be accepted, so nothing fails.
                () = tokio::time::sleep(ACCEPT_PAUSE), if shortage.lasts => {
                    shortage.is_over();
                    continue;
                }
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) if is_of_one_connection(&error) => {
                    tracing::debug!(listener = name.as_str(), %error, "A client left early.");
                    continue;
                }
                Err(error) => {
                    shortage.is_met(&error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            shortage.is_over();
            tokio::select! {
                biased;
                () = reached(&mut phase, Phase::Closed) => break,
                () = crowd.room() => {}
            }
            let (door, phase) = (door.clone(), phase.clone());
            crowd.admit(|pace| serve(stream, door, limits, phase, pace));
        }
        // Who comes now is refused at once and can go elsewhere, while what runs is finished.
        drop(place);
        crowd.all_leave().await;
    }
}

/// Whether connections cannot be accepted because the machine has run out of something.
struct Shortage {
    listener: ListenerName,
    means: Means,
    lasts: bool,
    told: Option<Instant>,
}

impl Shortage {
    fn is_met(&mut self, error: &io::Error) {
        let now = self.means.clock.now();
        if self.told.is_none_or(|told| now.saturating_duration_since(told) >= COMPLAINT_PAUSE) {
            let listener = self.listener.as_str();
            tracing::warn!(listener, %error, "No connection can be accepted.");
            self.told = Some(now);
        }
        self.set(true);
    }

    fn is_over(&mut self) {
        if self.lasts {
            self.set(false);
        }
    }

    fn set(&mut self, lasts: bool) {
        self.lasts = lasts;
        self.means.readiness.set_short(self.listener, lasts);
    }
}

/// What every request passes: it is screened before it is routed, and counted afterwards.
struct FrontDoor {
    listener: ListenerName,
    router: TowerToHyperService<Router>,
    metrics: Arc<Metrics>,
    tls_of: Option<Arc<Gateway>>,
    phase: watch::Receiver<Phase>,
}

impl FrontDoor {
    /// What the listener speaks TLS with now.
    fn tls(&self) -> Option<Arc<ServerTls>> {
        self.tls_of.as_ref().and_then(|gateway| gateway.epoch().network.serving().cloned())
    }

    fn may_keep(&self, peer: &Peer) -> bool {
        self.tls_of.as_ref().is_some_and(|gateway| {
            let now = gateway.clock().unix_ms().div_euclid(1000);
            peer.is_current(gateway.epoch().network.serving(), now)
        })
    }

    async fn answer(
        self: Arc<Self>,
        mut request: Request<Incoming>,
        peer: Option<Arc<Peer>>,
    ) -> Result<Response, Infallible> {
        if let Some(peer) = &peer {
            request.extensions_mut().insert(peer.clone());
        }
        let mut response = match screen(&request) {
            Ok(()) => match Caught(pin!(self.router.call(request))).await {
                Ok(routed) => routed?,
                Err(panic) => self.panicked(&panic),
            },
            Err(error) => error.into_response(),
        };
        let ends = *self.phase.borrow() > Phase::Serving;
        if ends || peer.is_some_and(|peer| !self.may_keep(&peer)) {
            // The next request finds another replica, or shakes hands by the settings in force with the certificate that
            // the client has then.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        self.metrics.http_request(self.listener, response.status().as_u16());
        Ok(response)
    }

    fn panicked(&self, panic: &str) -> Response {
        self.metrics.panics.inc();
        tracing::error!(listener = self.listener.as_str(), panic, "A request panicked.");
        ApiError::new(ApiCode::Internal, "the request failed inside the gateway").into_response()
    }
}

/// Serves one connection to its end.
async fn serve(
    stream: Box<dyn Stream>,
    door: Arc<FrontDoor>,
    limits: ConnectionLimits,
    mut phase: watch::Receiver<Phase>,
    pace: Pace,
) {
    let is_kept = *phase.borrow() == Phase::Serving;
    let header_timeout = limits.header_timeout;
    let (stream, peer) = match door.tls() {
        None => (stream, None),
        Some(tls) => {
            let the_end = reached(&mut phase, Phase::Closed);
            match secure(stream, tls, header_timeout, &pace, the_end).await {
                Some((stream, peer)) => (stream, Some(peer)),
                None => return,
            }
        }
    };
    let watched = pace.clone();
    let (metrics, listener) = (Arc::clone(&door.metrics), door.listener);
    let service = service_fn(move |request| {
        let pace = pace.clone();
        pace.answering();
        let answer = door.clone().answer(request, peer.clone());
        async move {
            let answer = answer.await;
            match &answer {
                Ok(answer) if answer.extensions().get::<Lasting>().is_some() => pace.telling(),
                _ => pace.answered(),
            }
            answer
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(is_kept)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Paced::new(stream, watched.clone())), service);
    tokio::pin!(connection);
    let served = async {
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = watched.too_slow(header_timeout, limits.idle_timeout) => return Ok(()),
            () = has_to_end(&mut phase, &watched) => connection.as_mut().graceful_shutdown(),
        }
        // Where nothing of a request has come it ends here. Nobody may take his time with the rest of one, or with
        // taking the answer.
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended,
            () = watched.too_slow(header_timeout, header_timeout) => Ok(()),
        }
    };
    if let Err(error) = served.await {
        // A client's doing: it hung up, sent no HTTP or was too slow.
        if let Some(code) = own_answer(&error) {
            metrics.http_request(listener, code);
        }
        tracing::debug!(%error, "A connection ended early.");
    }
}

/// Waits until a connection has to end. One that has had no request yet has until the listener closes: its first one may
/// be on its way since before the drain.
async fn has_to_end(phase: &mut watch::Receiver<Phase>, pace: &Pace) {
    reached(phase, Phase::Draining).await;
    if pace.is_new() {
        reached(phase, Phase::Closed).await;
    }
}

/// The status with which hyper itself answers what is no request: the front door never sees it.
fn own_answer(error: &hyper::Error) -> Option<u16> {
    if error.is_parse_too_large() {
        return Some(431);
    }
    (error.is_parse() && !error.is_parse_version_h2()).then_some(400)
}

/// Waits until the phase is this one or a later one, or until nobody can say it any more.
async fn reached(phase: &mut watch::Receiver<Phase>, least: Phase) {
    let _ = phase.wait_for(|phase| *phase >= least).await;
}

/// Errors of a single connection; others mean that the machine has run out of something.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests;
