//! Tunnels through the configured proxy: CONNECT to an address that was judged, or to a name that the proxy judges.
//!
//! The proxy's own address is the operator's word: it is looked up and dialled without the rules for tools.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use crate::clock::BoxFuture;
use crate::config::snapshot::Proxy;
use crate::net::connect::{
    ConnectError, ConnectErrorKind, Dialled, IoStream, Opened, Tunnel, handshake, tcp,
};
use crate::net::dns::ResolveErrorKind;
use crate::net::resolve::Resolve;
use crate::policy::address::{Peer, Target};
use crate::policy::endpoint::{Endpoint, Host, Scheme};

/// Bound on the head of the proxy's answer.
const MAX_HEAD: usize = 8 * 1024;

/// The wish to be asked for another password.
const WANTS_CREDENTIALS: u16 = 407;

/// The proxy and what is needed to reach it.
pub struct ProxyTunnel {
    proxy: Proxy,
    tls: Arc<ClientConfig>,
    resolver: Arc<dyn Resolve>,
}

impl fmt::Debug for ProxyTunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyTunnel({})", self.place())
    }
}

/// An address of the proxy itself.
#[derive(Clone, Copy)]
struct ProxyAddr(SocketAddr);

impl Dialled for ProxyAddr {
    fn socket(&self) -> SocketAddr {
        self.0
    }
}

/// Why there is no tunnel.
enum Refused {
    /// The proxy answered, and another address may do.
    Answer(u16),
    /// Nothing else will do either.
    Final(ConnectError),
}

impl ProxyTunnel {
    /// `tls` is for the proxy's own certificate, where it speaks TLS.
    pub fn new(proxy: Proxy, tls: Arc<ClientConfig>, resolver: Arc<dyn Resolve>) -> Self {
        Self { proxy, tls, resolver }
    }

    fn place(&self) -> String {
        let endpoint = &self.proxy.endpoint;
        format!("{}://{}", endpoint.scheme().as_str(), endpoint.authority())
    }

    fn error(&self, what: impl fmt::Display) -> ConnectError {
        self.failure(ConnectErrorKind::Connect, what)
    }

    fn failure(&self, kind: ConnectErrorKind, what: impl fmt::Display) -> ConnectError {
        ConnectError::new(kind, format!("the proxy {} {what}", self.place()))
    }

    /// One tunnel for each of the places, one after the other, until the proxy opens one.
    async fn tunnel(
        &self,
        target: &Target<'_>,
        endpoint: &Endpoint,
        until: Instant,
        late: ConnectErrorKind,
    ) -> Opened {
        let places: Vec<(String, Peer)> = match target {
            Target::Delegated(delegated) => {
                vec![(format!("{}:{}", delegated.name(), endpoint.port()), Peer::Delegated)]
            }
            Target::Proxied(addresses) => addresses
                .iter()
                .map(|address| (address.socket().to_string(), Peer::Proxied(*address)))
                .collect(),
            Target::Direct(_) => Vec::new(),
        };
        let mut last = self.error("was given no place to go to");
        for (authority, peer) in places {
            let mut stream = self.dial(until, late).await?;
            match self.ask(&mut *stream, &authority).await {
                Ok(()) => return Ok((stream, peer)),
                Err(Refused::Answer(status)) => {
                    last = self.error(format_args!("opens no tunnel to {authority}: {status}"));
                }
                Err(Refused::Final(error)) => return Err(error),
            }
        }
        Err(last)
    }

    /// A stream to the proxy.
    async fn dial(
        &self,
        until: Instant,
        late: ConnectErrorKind,
    ) -> Result<Box<dyn IoStream>, ConnectError> {
        let Proxy { endpoint, .. } = &self.proxy;
        let found = self.resolver.lookup_own(endpoint).await;
        let answers = found.map_err(|error| {
            let kind = match error.kind {
                ResolveErrorKind::Exhausted => ConnectErrorKind::Exhausted,
                ResolveErrorKind::NoData
                | ResolveErrorKind::NxDomain
                | ResolveErrorKind::Other
                | ResolveErrorKind::Refused
                | ResolveErrorKind::ServFail
                | ResolveErrorKind::Timeout => ConnectErrorKind::Connect,
            };
            self.failure(kind, format_args!("is not found: {error}"))
        })?;
        let socket = |ip: &_| ProxyAddr(SocketAddr::new(*ip, endpoint.port()));
        let addresses: Vec<_> = answers.addresses.iter().map(socket).collect();
        let dialled = tcp(&addresses, until, late).await;
        // The kind stays: a lack of descriptors is ours, whoever was to be dialled.
        let (stream, _) = dialled.map_err(|error| {
            self.failure(error.kind, format_args!("cannot be dialled: {error}"))
        })?;
        match endpoint.scheme() {
            Scheme::Http => Ok(Box::new(stream)),
            Scheme::Https => {
                let host: &Host = endpoint.host();
                let stream = handshake(&self.tls, stream, host, until, late).await;
                let stream = stream.map_err(|error| {
                    // Its certificate is no word on the tool's, but a deadline is the call's.
                    let kind = if error.kind == late { late } else { ConnectErrorKind::Connect };
                    self.failure(kind, format_args!("fails: {error}"))
                })?;
                Ok(Box::new(stream))
            }
        }
    }

    /// Asks for a tunnel (RFC 9110, section 9.3.6).
    async fn ask(&self, stream: &mut dyn IoStream, authority: &str) -> Result<(), Refused> {
        let broken = |error: std::io::Error| {
            Refused::Final(self.error(format_args!("broke the connection: {error}")))
        };
        let request = self.request(authority);
        stream.write_all(&request).await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        let mut head = Vec::with_capacity(512);
        loop {
            if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                return self.judge(&head, end + 4);
            }
            if head.len() >= MAX_HEAD {
                return Err(Refused::Final(self.error("answers with a head of more than 8 KiB")));
            }
            let mut part = [0; 512];
            match stream.read(&mut part).await.map_err(broken)? {
                0 => return Err(Refused::Final(self.error("closed before it answered"))),
                read => head.extend_from_slice(part.get(..read).unwrap_or_default()),
            }
        }
    }

    fn request(&self, authority: &str) -> Zeroizing<Vec<u8>> {
        let authorization = self.proxy.authorization.as_ref();
        let room = 128 + 2 * authority.len() + authorization.map_or(0, |value| value.len());
        let mut request = Zeroizing::new(Vec::with_capacity(room));
        request.extend_from_slice(
            format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").as_bytes(),
        );
        if let Some(value) = authorization {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(value.expose());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request
    }

    /// Only 2xx opens a tunnel, and nothing may be in it yet: in TLS the client speaks first.
    fn judge(&self, head: &[u8], end: usize) -> Result<(), Refused> {
        let fatal = |what: &str| Err(Refused::Final(self.error(what)));
        match status(head) {
            None => fatal("does not answer in HTTP/1"),
            Some(200..300) if head.len() > end => fatal("sent more than its answer"),
            Some(200..300) => Ok(()),
            Some(WANTS_CREDENTIALS) => {
                fatal("does not take the credentials of `egress.proxy.basic`, or wants some: 407")
            }
            Some(status) => Err(Refused::Answer(status)),
        }
    }
}

impl Tunnel for ProxyTunnel {
    fn open<'a>(
        &'a self,
        target: &'a Target<'a>,
        endpoint: &'a Endpoint,
        until: Instant,
        late: ConnectErrorKind,
    ) -> BoxFuture<'a, Opened> {
        Box::pin(async move {
            let opened = timeout_at(until, self.tunnel(target, endpoint, until, late)).await;
            opened.unwrap_or_else(|_| Err(self.failure(late, "opened no tunnel in time")))
        })
    }
}

/// The status of an answer in HTTP/1.
fn status(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let (digits, rest) = rest.split_at_checked(3)?;
    let ends = rest.first().is_some_and(|byte| matches!(byte, b' ' | b'\r'));
    let status = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (ends && digits.iter().all(u8::is_ascii_digit)).then_some(status)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::snapshot::{Roots, TlsSettings, TlsVersion};
    use crate::net::resolve::{ResolveError, Resolved};
    use crate::net::tests::soon;
    use crate::net::tls::client_tls;
    use crate::policy::address::{Admitted, Answers};

    /// A resolver without anything left to ask with.
    struct Spent;

    impl Resolve for Spent {
        fn lookup<'a>(
            &'a self,
            _: &'a Admitted<'_>,
        ) -> BoxFuture<'a, Result<Resolved, ResolveError>> {
            unreachable!("the proxy's own name is asked for")
        }

        fn lookup_own<'a>(
            &'a self,
            endpoint: &'a Endpoint,
        ) -> BoxFuture<'a, Result<Arc<Answers>, ResolveError>> {
            Box::pin(async move {
                match *endpoint.host() {
                    Host::Address(address) => {
                        Ok(Arc::new(Answers { addresses: vec![address], names: Vec::new() }))
                    }
                    Host::Name(_) => Err(ResolveError::new(ResolveErrorKind::Exhausted, "spent")),
                }
            })
        }
    }

    /// What dialling this proxy comes to when the deadline is close.
    async fn kind(url: &str) -> ConnectErrorKind {
        let endpoint = Endpoint::parse(url).unwrap();
        let proxy = Proxy { endpoint, authorization: None, extra_ca: None };
        let (min_version, roots) = (TlsVersion::V12, Roots::Webpki);
        let tls = client_tls(&TlsSettings { min_version, roots, extra_ca: None }).unwrap();
        let tunnel = ProxyTunnel::new(proxy, tls.config, Arc::new(Spent));
        let dialled = tunnel.dial(soon(100), ConnectErrorKind::DeadlineInConnect).await;
        dialled.err().unwrap().kind
    }

    #[tokio::test]
    async fn a_proxy_without_a_handshake_uses_up_the_call_s_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("https://127.0.0.1:{}/", listener.local_addr().unwrap().port());
        assert_eq!(kind(&url).await, ConnectErrorKind::DeadlineInConnect);
    }

    #[tokio::test]
    async fn a_lookup_that_this_machine_cannot_make_is_not_the_proxy_s_fault() {
        assert_eq!(kind("http://proxy.corp.internal:3128/").await, ConnectErrorKind::Exhausted);
    }

    #[test]
    fn a_status_line_is_read_strictly() {
        for (line, expected) in [
            ("HTTP/1.1 200 Connection established\r\n\r\n", Some(200)),
            ("HTTP/1.0 200\r\n\r\n", Some(200)),
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", Some(407)),
            ("HTTP/2 200 OK\r\n\r\n", None),
            ("HTTP/1.1 2000 OK\r\n\r\n", None),
            ("HTTP/1.1 +20 OK\r\n\r\n", None),
            ("HTTP/1.1 20\r\n\r\n", None),
            ("SSH-2.0-OpenSSH\r\n\r\n", None),
        ] {
            assert_eq!(status(line.as_bytes()), expected, "{line}");
        }
    }
}
