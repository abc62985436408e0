//! The beginning of a connection that speaks TLS: a handshake within the time of a head.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::net::serving::{Peer, ServerTls};
use crate::serve::bind::Stream;
use crate::serve::pace::Pace;

/// The stream behind the handshake, and whose it is; `None` where it came to nothing. Before its head a connection is
/// nobody's, so it makes room for others, and ends at `the_end` as one does that has said nothing.
pub(super) async fn secure(
    stream: Box<dyn Stream>,
    tls: Arc<ServerTls>,
    header_timeout: Duration,
    pace: &Pace,
    the_end: impl Future<Output = ()>,
) -> Option<(Box<dyn Stream>, Arc<Peer>)> {
    let accepted = tokio::select! {
        biased;
        accepted = tls.accept(stream) => accepted,
        () = pace.too_slow(header_timeout, header_timeout) => {
            tracing::debug!("A TLS handshake took too long.");
            return None;
        }
        () = the_end => return None,
    };
    match accepted {
        Ok((stream, peer)) => Some((Box::new(stream), Arc::new(peer))),
        Err(error) => {
            tracing::debug!(%error, "A TLS handshake failed.");
            None
        }
    }
}
