//! One request to a place that the configuration names besides the tools (a token endpoint, a key set): the same name and
//! address rules, one connection pinned to a checked address, no redirect, one deadline, one bound.

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::net::client::{ExchangeError, HttpConnection, Outbound, RawAnswer, ReadLimits};
use crate::net::connect::ConnectError;
use crate::net::epoch::Epoch;
use crate::net::header_case::HeaderCase;
use crate::net::resolve::ResolveError;
use crate::policy::address::{Judged, Refusal, Target, WayOut};
use crate::policy::endpoint::{Endpoint, Scheme};

/// Where to, for whom, and how much of it.
#[derive(Debug)]
pub struct Fetch<'a> {
    /// The name by which exceptions of the egress rules know the asker.
    pub asker: &'a str,
    /// The place.
    pub endpoint: &'a Endpoint,
    /// GET or POST.
    pub method: Method,
    /// Every header line, `Host` too.
    pub headers: HeaderMap,
    /// The spelling in which their names go out.
    pub case: &'a HeaderCase,
    /// The body.
    pub body: Bytes,
    /// Bound on the body of any answer.
    pub limit: usize,
    /// When it must be over.
    pub deadline: Instant,
}

/// Why nothing was fetched. The texts are the operator's: they name addresses.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The exchange broke.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The host or an address of it is not allowed.
    #[error("{0}")]
    Refused(Refusal),
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The deadline came before there was a connection.
    #[error("no connection before the deadline")]
    TooLate,
}

/// Fetches over a connection of its own. Any status is an answer; a redirect is one that is not followed.
pub async fn fetch(
    epoch: &Epoch,
    fetch: Fetch<'_>,
    clock: &dyn Clock,
) -> Result<RawAnswer, FetchError> {
    fetch_judged(epoch, fetch, clock, &|_| ()).await
}

/// The same for whoever counts decisions: `decided` hears the one on this place, unless its name has no address.
pub async fn fetch_judged(
    epoch: &Epoch,
    fetch: Fetch<'_>,
    clock: &dyn Clock,
    decided: &(dyn Fn(&Judged<()>) + Sync),
) -> Result<RawAnswer, FetchError> {
    let rules = &epoch.snapshot.egress;
    let now = clock.unix_ms().div_euclid(1000);
    let refused = |refusal: Refusal| {
        decided(&Judged { verdict: Err(refusal.clone()), shadow: None });
        FetchError::Refused(refusal)
    };
    let judged = rules.admit(fetch.asker, fetch.endpoint, now);
    let admitted = judged.verdict.map_err(refused)?;
    let (target, shadow) = match rules.way_out(&admitted) {
        WayOut::Delegated(name) => (Target::Delegated(name), judged.shadow),
        way @ (WayOut::Direct | WayOut::Proxy) => {
            let lookup = epoch.network.resolver.lookup(&admitted);
            let looked_up = timeout_at(fetch.deadline, lookup).await;
            let resolved = looked_up.map_err(|_| FetchError::TooLate)??;
            let judged = rules.vet(&admitted, &resolved.answers);
            (way.to(judged.verdict.map_err(refused)?), judged.shadow)
        }
    };
    decided(&Judged { verdict: Ok(()), shadow });
    let connect = &epoch.network.connect;
    let connected = connect.connect(&target, fetch.endpoint, fetch.deadline).await?;
    let encrypted = fetch.endpoint.scheme() == Scheme::Https;
    let opened = HttpConnection::open(connected.stream, encrypted).await;
    let mut http = opened.map_err(|error| ConnectError::not_http(&error))?;
    let limits =
        ReadLimits { result_limit: fetch.limit, error_limit: fetch.limit, wants_body: |_, _| true };
    let target = fetch.endpoint.path_and_query().parse();
    let outbound = Outbound {
        method: fetch.method,
        path_and_query: target.expect("an endpoint's target is a URI"),
        headers: fetch.headers,
        body: fetch.body,
    };
    Ok(http.exchange(outbound, fetch.case, limits, fetch.deadline, clock).await?)
}
