//! Questions to the configured DNS servers: absolute names, one question per family, no search list, no hosts file.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hickory_resolver::Resolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ServerOrderingStrategy,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::{
    DnsUdpSocket, RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;

use crate::config::snapshot::DnsSettings;
use crate::net::shortage::is_shortage;
use crate::policy::address::Answers;

/// One more than the address rules take, so that they see that it was too many.
const MAX_ANSWERS: usize = 65;

/// Caps on how long a failure is believed: a name that was just made, or a server that restarts, must not stay dead.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Why a lookup found nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResolveErrorKind {
    /// This machine has no descriptor, port or memory left to ask with: not the name's fault.
    Exhausted,
    /// The name exists without an address.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Anything else: a broken answer, a server that is not there.
    Other,
    /// The servers refuse to answer.
    Refused,
    /// The servers failed.
    ServFail,
    /// No server answered in time.
    Timeout,
}

impl ResolveErrorKind {
    /// The value of the label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted | Self::Other => "error",
            Self::NoData => "nodata",
            Self::NxDomain => "nxdomain",
            Self::Refused => "refused",
            Self::ServFail => "servfail",
            Self::Timeout => "timeout",
        }
    }
}

/// The resolver could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ResolverError {
    /// A server cannot be used.
    #[error("the DNS server {server} cannot be used: {message}")]
    Build {
        /// Which one.
        server: SocketAddr,
        /// Why.
        message: String,
    },
    /// There is none.
    #[error("there is no DNS server; name one in `dns.servers`")]
    NoServers,
}

/// What both families said together.
#[derive(Debug)]
pub struct Found {
    /// The addresses and the names of the chain.
    pub answers: Answers,
    /// The shortest time to live among the records.
    pub ttl: Duration,
}

/// Why there is no address.
#[derive(Debug)]
pub struct Miss {
    /// What happened.
    pub kind: ResolveErrorKind,
    /// The operator's words.
    pub message: String,
    /// How long this may be believed.
    pub ttl: Duration,
}

/// The servers, each behind its own stub, so that order and repeats are ours.
pub struct Servers {
    stubs: Vec<Stub>,
    /// Where the next question goes first: the last one that answered.
    preferred: AtomicUsize,
    rounds: u32,
    /// How much longer the second family may take once the first has answered.
    patience: Duration,
}

struct Stub {
    address: SocketAddr,
    resolver: Resolver<ConnectedUdp>,
    sockets: ConnectedUdp,
}

impl Servers {
    /// Prepares the stubs; no socket is opened.
    pub fn new(settings: &DnsSettings) -> Result<Self, ResolverError> {
        let stubs = settings
            .servers
            .iter()
            .map(|address| Stub::new(*address, settings.timeout))
            .collect::<Result<Vec<_>, _>>()?;
        if stubs.is_empty() {
            return Err(ResolverError::NoServers);
        }
        Ok(Self {
            stubs,
            preferred: AtomicUsize::new(0),
            rounds: settings.attempts.max(1),
            patience: settings.timeout,
        })
    }

    /// Asks for A and AAAA at the same time. One family is enough.
    pub async fn ask(&self, name: &str) -> Result<Found, Miss> {
        let absolute = Name::from_ascii(name).map(|mut absolute| {
            absolute.set_fqdn(true);
            absolute
        });
        let absolute = absolute.map_err(|error| Miss {
            kind: ResolveErrorKind::Other,
            message: format!("`{name}` is no DNS name: {error}"),
            ttl: NEGATIVE_TTL,
        })?;
        let mut v6 = pin!(self.family(&absolute, RecordType::AAAA));
        let mut v4 = pin!(self.family(&absolute, RecordType::A));
        let (v6, v4) = tokio::select! {
            found = &mut v6 => {
                let other = self.other(&absolute, found.is_ok(), v4).await;
                (found, other)
            }
            found = &mut v4 => {
                let other = self.other(&absolute, found.is_ok(), v6).await;
                (other, found)
            }
        };
        match (v6, v4) {
            // A first, always: of several refused addresses the first one gives the code.
            (Ok(v6), Ok(v4)) => Ok(v4.and(v6)),
            (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
            (Err(v6), Err(v4)) => Err(v6.or_worse(v4)),
        }
    }

    /// The second family. Where the first one answered, silence about this one must not use up the call's time: some
    /// servers drop what they are not asked for every day.
    async fn other(
        &self,
        name: &Name,
        first_answered: bool,
        family: impl Future<Output = Result<Found, Miss>>,
    ) -> Result<Found, Miss> {
        if !first_answered {
            return family.await;
        }
        let in_time = tokio::time::timeout(self.patience, family).await;
        in_time.unwrap_or_else(|_| {
            let message = format!("`{name}`: one family was not answered in time");
            Err(Miss { kind: ResolveErrorKind::Timeout, message, ttl: FAILURE_TTL })
        })
    }

    /// Asks one server after the other. Silence is asked again in the next round, an answer never is.
    async fn family(&self, name: &Name, family: RecordType) -> Result<Found, Miss> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut silent: Vec<usize> =
            (0..self.stubs.len()).map(|at| (first + at) % self.stubs.len()).collect();
        let mut worst: Option<Miss> = None;
        for _ in 0..self.rounds {
            for at in std::mem::take(&mut silent) {
                let Some(stub) = self.stubs.get(at) else { continue };
                match stub.lookup(name, family).await {
                    Ok(lookup) => {
                        self.preferred.store(at, Ordering::Relaxed);
                        return read(name, family, &lookup);
                    }
                    Err(miss) => {
                        match miss.kind {
                            ResolveErrorKind::NxDomain | ResolveErrorKind::NoData => {
                                self.preferred.store(at, Ordering::Relaxed);
                                return Err(miss);
                            }
                            ResolveErrorKind::Timeout => silent.push(at),
                            ResolveErrorKind::Exhausted
                            | ResolveErrorKind::Other
                            | ResolveErrorKind::Refused
                            | ResolveErrorKind::ServFail => {}
                        }
                        worst = Some(match worst {
                            Some(before) => before.or_worse(miss),
                            None => miss,
                        });
                    }
                }
            }
        }
        Err(worst.unwrap_or_else(|| Miss::no_data(name)))
    }
}

impl Found {
    fn and(mut self, other: Self) -> Self {
        self.answers.addresses.extend(other.answers.addresses);
        self.answers.addresses.truncate(MAX_ANSWERS);
        for name in other.answers.names {
            if !self.answers.names.contains(&name) {
                self.answers.names.push(name);
            }
        }
        self.ttl = self.ttl.min(other.ttl);
        self
    }
}

impl Miss {
    fn no_data(name: &Name) -> Self {
        let kind = ResolveErrorKind::NoData;
        Self { kind, message: format!("`{name}` has no address"), ttl: FAILURE_TTL }
    }

    fn exhausted(server: SocketAddr) -> Self {
        let message = format!("{server} cannot be asked: no descriptor, port or memory is left");
        // Over as soon as something is free again.
        Self { kind: ResolveErrorKind::Exhausted, message, ttl: Duration::ZERO }
    }

    fn read(server: SocketAddr, error: &NetError) -> Self {
        let mut ttl = FAILURE_TTL;
        let (kind, message) = match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) => {
                if let Some(seconds) = none.negative_ttl {
                    ttl = Duration::from_secs(seconds.into()).min(NEGATIVE_TTL);
                }
                let message = "no address, or a chain of more than 8 names";
                match none.response_code {
                    ResponseCode::NoError => (ResolveErrorKind::NoData, message.into()),
                    ResponseCode::NXDomain => {
                        (ResolveErrorKind::NxDomain, "the name does not exist".into())
                    }
                    code => (Self::code(code), code.to_string()),
                }
            }
            NetError::Dns(DnsError::ResponseCode(code)) => (Self::code(*code), code.to_string()),
            NetError::Timeout => (ResolveErrorKind::Timeout, "no answer in time".into()),
            error => (ResolveErrorKind::Other, error.to_string()),
        };
        Self { kind, message: format!("{server} says: {message}"), ttl }
    }

    fn code(code: ResponseCode) -> ResolveErrorKind {
        match code {
            ResponseCode::ServFail => ResolveErrorKind::ServFail,
            ResponseCode::Refused => ResolveErrorKind::Refused,
            _ => ResolveErrorKind::Other,
        }
    }

    /// A name that one family does not know is unknown; otherwise a failure weighs more than "no data".
    fn or_worse(self, other: Self) -> Self {
        let weight = |kind| match kind {
            ResolveErrorKind::NoData => 0,
            ResolveErrorKind::Other => 1,
            ResolveErrorKind::Refused => 2,
            ResolveErrorKind::ServFail => 3,
            ResolveErrorKind::Timeout => 4,
            ResolveErrorKind::Exhausted => 5,
            ResolveErrorKind::NxDomain => 6,
        };
        if weight(other.kind) > weight(self.kind) { other } else { self }
    }
}

/// Follows the chain from the name, and takes the addresses at its end.
fn read(name: &Name, family: RecordType, lookup: &Lookup) -> Result<Found, Miss> {
    let mut answers = Answers::default();
    let mut ttl = u32::MAX;
    let mut end = name;
    for record in lookup.answers() {
        match &record.data {
            RData::CNAME(target) if record.name == *end && answers.names.len() < MAX_ANSWERS => {
                end = &target.0;
                answers.names.push(plain(end));
                ttl = ttl.min(record.ttl);
            }
            _ => {}
        }
    }
    for record in lookup.answers().iter().filter(|record| record.name == *end).take(MAX_ANSWERS) {
        let address = match (&record.data, family) {
            (RData::A(address), RecordType::A) => IpAddr::V4(address.0),
            (RData::AAAA(address), RecordType::AAAA) => IpAddr::V6(address.0),
            _ => continue,
        };
        answers.addresses.push(address);
        ttl = ttl.min(record.ttl);
    }
    if answers.addresses.is_empty() {
        return Err(Miss::no_data(name));
    }
    Ok(Found { answers, ttl: Duration::from_secs(ttl.into()) })
}

/// Lower case, without the trailing dot.
fn plain(name: &Name) -> String {
    let mut text = name.to_lowercase().to_ascii();
    if text.ends_with('.') {
        text.pop();
    }
    text
}

impl Stub {
    fn new(address: SocketAddr, timeout: Duration) -> Result<Self, ResolverError> {
        let connections =
            [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
                connection.port = address.port();
                connection
            });
        let server = NameServerConfig::new(address.ip(), true, connections.into());
        let config = ResolverConfig::from_parts(None, vec![], vec![server]);
        let sockets = ConnectedUdp::default();
        let mut builder = Resolver::builder_with_config(config, sockets.clone());
        let options = builder.options_mut();
        options.ndots = 0;
        options.use_hosts_file = ResolveHosts::Never;
        options.cache_size = 0;
        options.attempts = 0;
        options.timeout = timeout;
        options.num_concurrent_reqs = 1;
        options.server_ordering_strategy = ServerOrderingStrategy::UserProvidedOrder;
        let resolver = builder.build().map_err(|error| ResolverError::Build {
            server: address,
            message: error.to_string(),
        })?;
        Ok(Self { address, resolver, sockets })
    }

    async fn lookup(&self, name: &Name, family: RecordType) -> Result<Lookup, Miss> {
        let shortages = || self.sockets.shortages.load(Ordering::Relaxed);
        let before = shortages();
        self.resolver.lookup(name.clone(), family).await.map_err(|error| match error {
            NetError::Io(_) | NetError::NoConnections if shortages() != before => {
                Miss::exhausted(self.address)
            }
            error => Miss::read(self.address, &error),
        })
    }
}

/// The usual runtime, but its UDP sockets are connected: a server that is gone is noticed at once, and only the
/// server's own datagrams come in.
#[derive(Clone, Default)]
struct ConnectedUdp {
    tokio: TokioRuntimeProvider,
    /// Sockets that this machine could not give. The library keeps to itself why it has no connection.
    shortages: Arc<AtomicUsize>,
}

/// Counts a shortage.
fn noted<T>(shortages: &AtomicUsize, server: SocketAddr, opened: io::Result<T>) -> io::Result<T> {
    opened.inspect_err(|error| {
        if is_shortage(server, error) {
            shortages.fetch_add(1, Ordering::Relaxed);
        }
    })
}

impl RuntimeProvider for ConnectedUdp {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = Datagrams;
    type Tcp = <TokioRuntimeProvider as RuntimeProvider>::Tcp;

    fn create_handle(&self) -> Self::Handle {
        self.tokio.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Pin<Box<dyn Send + Future<Output = Result<Self::Tcp, io::Error>>>> {
        let (opening, shortages) =
            (self.tokio.connect_tcp(server, local, timeout), Arc::clone(&self.shortages));
        Box::pin(async move { noted(&shortages, server, opening.await) })
    }

    fn bind_udp(
        &self,
        local: SocketAddr,
        server: SocketAddr,
    ) -> Pin<Box<dyn Send + Future<Output = Result<Self::Udp, io::Error>>>> {
        let shortages = Arc::clone(&self.shortages);
        Box::pin(async move {
            let socket = noted(&shortages, server, UdpSocket::bind(local).await)?;
            socket.connect(server).await?;
            Ok(Datagrams { socket, server })
        })
    }
}

struct Datagrams {
    socket: UdpSocket,
    server: SocketAddr,
}

impl Datagrams {
    /// A refusal by the server's machine is an error of the socket, which waiting for data alone does not notice.
    async fn receive(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        loop {
            let ready = self.socket.ready(Interest::READABLE | Interest::ERROR).await?;
            if ready.is_error() {
                let error = self.socket.take_error()?;
                return Err(error.unwrap_or_else(|| io::ErrorKind::ConnectionRefused.into()));
            }
            match self.socket.try_recv(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                received => return received.map(|length| (length, self.server)),
            }
        }
    }
}

impl DnsUdpSocket for Datagrams {
    type Time = TokioTime;

    fn recv_from<'a, 'b, 'c>(
        &'a self,
        buf: &'b mut [u8],
    ) -> Pin<Box<dyn Future<Output = io::Result<(usize, SocketAddr)>> + Send + 'c>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(self.receive(buf))
    }

    fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buf = ReadBuf::new(buf);
        ready!(self.socket.poll_recv(cx, &mut buf))?;
        Poll::Ready(Ok((buf.filled().len(), self.server)))
    }

    fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        _target: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_send(cx, buf)
    }
}
