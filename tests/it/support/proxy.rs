//! A proxy that opens tunnels: it records what it was asked, and leads every tunnel to one place.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::support::certs::Leaf;
use crate::support::wait::Log;

/// What a proxy does with a request for a tunnel, by its head.
pub(crate) type Answer = Arc<dyn Fn(&str) -> Reply + Send + Sync>;

/// What it says, and what it does then.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// Opens the tunnel to this place.
    Open(SocketAddr),
    /// Says this and closes.
    Say(Vec<u8>),
    /// Says nothing.
    Stall,
}

/// A proxy on loopback.
pub(crate) struct Proxy {
    address: SocketAddr,
    tls: bool,
    heads: Arc<Log<String>>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Leads every tunnel to this place.
    pub(crate) async fn to(place: SocketAddr) -> Self {
        Self::start(None, Arc::new(move |_| Reply::Open(place))).await
    }

    /// Decides for each request.
    pub(crate) async fn answering(answer: Answer) -> Self {
        Self::start(None, answer).await
    }

    /// Speaks TLS itself.
    pub(crate) async fn tls(leaf: &Leaf, answer: Answer) -> Self {
        Self::start(Some(leaf.server_config(&["http/1.1"]).into()), answer).await
    }

    async fn start(tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free address");
        let address = listener.local_addr().expect("a bound address");
        let heads = Arc::new(Log::new());
        let is_tls = tls.is_some();
        let accepting = tokio::spawn(accept(listener, tls, answer, Arc::clone(&heads)));
        Self { address, tls: is_tls, heads, accepting }
    }

    /// The URL under this host.
    pub(crate) fn url(&self, host: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{host}:{}", self.address.port())
    }

    /// The heads of all requests.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.all()
    }

    /// Their first lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        let first = |head: &String| head.lines().next().unwrap_or_default().to_owned();
        self.heads().iter().map(first).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    answer: Answer,
    heads: Arc<Log<String>>,
) {
    // Owned here, so that all tunnels end when this task is aborted.
    let mut running = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (tls, answer, heads) = (tls.clone(), Arc::clone(&answer), Arc::clone(&heads));
        running.spawn(async move {
            match tls {
                None => serve(stream, &answer, &heads).await,
                Some(tls) => {
                    // Who does not like the certificate goes away.
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, &answer, &heads).await;
                    }
                }
            }
        });
        while running.try_join_next().is_some() {}
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &Answer,
    heads: &Log<String>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).expect("a UTF-8 head");
    heads.push(head.clone());
    match answer(&head) {
        Reply::Open(place) => {
            let mut upstream = TcpStream::connect(place).await.expect("the place is there");
            let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
            if stream.write_all(established).await.is_ok() {
                // However a tunnel ends, it ends.
                let _ = copy_bidirectional(&mut stream, &mut upstream).await;
            }
        }
        Reply::Say(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Reply::Stall => while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {},
    }
}
