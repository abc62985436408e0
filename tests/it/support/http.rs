//! A raw HTTP client: it writes what it is told and reads what comes.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::support::wait::within;

/// An answer, byte for byte.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Status line and headers with the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The first header of this name, in any case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .into_iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("a UTF-8 body")
    }

    /// The body as JSON, on failure with the answer printed.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}{}", self.head, self.text()))
    }
}

/// Plain or encrypted.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// One client connection.
pub(crate) struct RawClient {
    stream: Box<dyn Stream>,
    pending: Vec<u8>,
}

impl RawClient {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: Box::new(dial(address).await), pending: Vec::new() }
    }

    /// The same for an address at which perhaps nobody listens.
    pub(crate) async fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = within("a connection or none", TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: Box::new(stream), pending: Vec::new() })
    }

    /// With next to no room for what it has not read yet.
    pub(crate) async fn connect_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a small buffer");
        let stream = within("a connection", socket.connect(address)).await.expect("a connection");
        Self { stream: Box::new(stream), pending: Vec::new() }
    }

    /// To a Unix socket.
    pub(crate) async fn connect_unix(path: &Path) -> Self {
        let stream = within("a connection", UnixStream::connect(path)).await;
        Self { stream: Box::new(stream.expect("a connection")), pending: Vec::new() }
    }

    /// Speaks TLS, to whoever has this name.
    pub(crate) async fn connect_tls(
        address: SocketAddr,
        config: Arc<ClientConfig>,
        name: &'static str,
    ) -> io::Result<Self> {
        let name = name.try_into().expect("a server's name");
        let shaking = TlsConnector::from(config).connect(name, dial(address).await);
        let stream = within("a handshake to end", shaking).await?;
        Ok(Self { stream: Box::new(stream), pending: Vec::new() })
    }

    /// Writes bytes, and reads all that comes back: nothing where the other side does not want to.
    pub(crate) async fn offer(mut self, bytes: &[u8]) -> Vec<u8> {
        // A peer that has left already is no error here.
        let _ = within("bytes to be taken", self.stream.write_all(bytes)).await;
        self.read_to_end().await
    }

    /// Writes bytes as they are.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        within("bytes to be taken", self.stream.write_all(bytes))
            .await
            .expect("bytes that are taken");
    }

    /// Ends the sending direction.
    pub(crate) async fn half_close(&mut self) {
        self.stream.shutdown().await.expect("a FIN");
    }

    /// Reads one answer with its body: by Content-Length, by chunks, or up to the end of the connection.
    pub(crate) async fn read_reply(&mut self) -> Reply {
        let mut reply = self.read_head().await;
        if reply
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            reply.body = self.read_chunks().await;
        } else if let Some(length) = reply.header("content-length") {
            let length = length.parse().expect("a length");
            self.read_at_least(length).await;
            reply.body = self.take(length);
        } else {
            reply.body = self.read_to_end().await;
        }
        reply
    }

    /// Reads an answer without its body.
    pub(crate) async fn read_head(&mut self) -> Reply {
        let end = self.read_past(b"\r\n\r\n").await;
        let head = String::from_utf8(self.take(end)).expect("a UTF-8 head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        Reply { status, head, body: Vec::new() }
    }

    /// Reads one chunk of a body; `None` is the last one.
    pub(crate) async fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let end = self.read_past(b"\r\n").await;
        let line = String::from_utf8(self.take(end)).expect("a chunk's size");
        let size = usize::from_str_radix(line.trim(), 16).expect("a chunk's size");
        self.read_at_least(size + 2).await;
        let chunk = self.take(size);
        self.take(2);
        (size > 0).then_some(chunk)
    }

    /// Waits until an answer has begun, and takes no more than its first bytes. It is for its caller to say how long.
    pub(crate) async fn begun(&mut self) {
        if self.pending.is_empty() {
            self.pending.reserve(64);
            let read = self.stream.read_buf(&mut self.pending).await;
            assert!(read.is_ok_and(|count| count > 0), "there is no answer");
        }
    }

    /// Reads until the other side closes; a reset counts as an end.
    pub(crate) async fn read_to_end(&mut self) -> Vec<u8> {
        while self.read_more().await {}
        std::mem::take(&mut self.pending)
    }

    async fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some(chunk) = self.read_chunk().await {
            body.extend(chunk);
        }
        body
    }

    async fn read_past(&mut self, mark: &[u8]) -> usize {
        loop {
            if let Some(at) = self.pending.windows(mark.len()).position(|window| window == mark) {
                return at + mark.len();
            }
            self.read_or_fail().await;
        }
    }

    async fn read_at_least(&mut self, count: usize) {
        while self.pending.len() < count {
            self.read_or_fail().await;
        }
    }

    async fn read_or_fail(&mut self) {
        let more = self.read_more().await;
        assert!(more, "the answer breaks off: {:?}", String::from_utf8_lossy(&self.pending));
    }

    async fn read_more(&mut self) -> bool {
        let read = within("an answer", self.stream.read_buf(&mut self.pending)).await;
        read.is_ok_and(|count| count > 0)
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        self.pending.drain(..count).collect()
    }
}

async fn dial(address: SocketAddr) -> TcpStream {
    let stream = within("a connection", TcpStream::connect(address)).await.expect("a connection");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream
}

/// Sends one request on a connection of its own.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Reply {
    let mut client = RawClient::connect(address).await;
    client.write(request).await;
    client.read_reply().await
}

/// A whole request with a JSON body and any method.
pub(crate) fn request(method: &str, path: &str, key: Option<&str>, body: &str) -> String {
    let authorization =
        key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// A whole GET request.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").into_bytes()
}

/// A whole POST request with a JSON body.
pub(crate) fn post(path: &str, key: Option<&str>, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let authorization =
        key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let mut bytes = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
