//! One request to a server of the operator's own: over a connection of its own, and no redirect is followed.
//!
//! Such a server is the operator's word, as the proxy is: it is looked up and dialled without the rules for tools.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::net::client::{ExchangeError, HttpConnection, Outbound, RawAnswer, ReadLimits};
use crate::net::connect::{ConnectError, ConnectErrorKind, Dialled, IoStream, handshake, tcp};
use crate::net::epoch::Epoch;
use crate::net::header_case::HeaderCase;
use crate::net::resolve::ResolveError;
use crate::policy::endpoint::{Endpoint, Host, Scheme};

/// Why there is no answer, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OwnServerError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The exchange broke.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// Its time ran out before there was a connection.
    #[error("no connection in time")]
    TooLate,
}

/// What is posted.
pub(in crate::net) struct Letter<'a> {
    /// Every header line, in order, `Host` and `Content-Length` too.
    pub(in crate::net) headers: HeaderMap,
    /// Their names as they are spelled.
    pub(in crate::net) spelling: &'a [&'a str],
    /// The body.
    pub(in crate::net) body: Bytes,
    /// How much of an answer is read.
    pub(in crate::net) limits: ReadLimits,
}

/// An address of the operator's own server.
#[derive(Clone, Copy)]
struct OwnAddr(SocketAddr);

impl Dialled for OwnAddr {
    fn socket(&self) -> SocketAddr {
        self.0
    }
}

/// Posts a letter to the server, and gives its answer, whatever its status.
pub(in crate::net) async fn post(
    epoch: &Epoch,
    endpoint: &Endpoint,
    letter: Letter<'_>,
    deadline: Instant,
    clock: &dyn Clock,
) -> Result<RawAnswer, OwnServerError> {
    let stream = dial(epoch, endpoint, deadline).await?;
    let encrypted = endpoint.scheme() == Scheme::Https;
    let opened = HttpConnection::open(stream, encrypted).await;
    let mut http = opened.map_err(|error| ConnectError::not_http(&error))?;
    let Letter { headers, spelling, body, limits } = letter;
    let target = endpoint.path_and_query().parse();
    let outbound = Outbound {
        method: Method::POST,
        path_and_query: target.expect("an endpoint's target is a URI"),
        headers,
        body,
    };
    let case = HeaderCase::capture(spelling).expect("names that HTTP knows");
    Ok(http.exchange(outbound, &case, limits, deadline, clock).await?)
}

async fn dial(
    epoch: &Epoch,
    endpoint: &Endpoint,
    deadline: Instant,
) -> Result<Box<dyn IoStream>, OwnServerError> {
    let found = timeout_at(deadline, addresses(epoch, endpoint)).await;
    let found = found.map_err(|_| OwnServerError::TooLate)??;
    let socket = |ip: &_| OwnAddr(SocketAddr::new(*ip, endpoint.port()));
    let addresses: Vec<_> = found.iter().map(socket).collect();
    let (stream, _) = tcp(&addresses, deadline, ConnectErrorKind::DeadlineInConnect).await?;
    match endpoint.scheme() {
        Scheme::Http => Ok(Box::new(stream)),
        Scheme::Https => {
            let (tls, late) = (&epoch.network.tls().config, ConnectErrorKind::DeadlineInTls);
            Ok(Box::new(handshake(tls, stream, endpoint.host(), deadline, late).await?))
        }
    }
}

async fn addresses(epoch: &Epoch, endpoint: &Endpoint) -> Result<Vec<IpAddr>, ResolveError> {
    if let Host::Name(name) = endpoint.host()
        && name == "localhost"
    {
        // Name servers do not know it (RFC 6761).
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    Ok(epoch.network.resolver.lookup_own(endpoint).await?.addresses.clone())
}
