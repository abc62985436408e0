//! Asks a gateway's own listener: one request over HTTP, on a TCP address or a Unix socket.

use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};

use crate::model::secret::Secret;
use crate::net::connect::IoStream;

/// An answer's largest body, in bytes.
const MAX_BODY: usize = 16 << 20;

/// Why the gateway gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The body did not come, or is too large.
    #[error("cannot read the gateway's answer: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// Nobody listens.
    #[error("cannot connect to the gateway: {0}")]
    Connect(#[from] std::io::Error),
    /// HTTP broke.
    #[error("cannot talk to the gateway: {0}")]
    Exchange(#[from] hyper::Error),
    /// The request cannot be written.
    #[error("cannot write the request: {0}")]
    Request(#[from] hyper::http::Error),
}

/// Where a listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// One request.
#[derive(Debug, Clone)]
pub struct Ask<'a> {
    /// GET or POST.
    pub method: Method,
    /// The path.
    pub path: &'a str,
    /// The bearer key or token.
    pub bearer: Option<&'a Secret>,
    /// A JSON body.
    pub json: Option<&'a str>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl<'a> Ask<'a> {
    /// Asks for what is at this path.
    pub fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, bearer: None, json: None }
    }
}

/// Asks, and reads the answer: its status and its text. Whoever asks says how long that may take.
pub async fn ask(place: &Place, ask: Ask<'_>) -> Result<(u16, String), ClientError> {
    let (stream, host) = connect(place).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::builder().method(ask.method).uri(ask.path).header(HOST, host);
    if let Some(bearer) = ask.bearer {
        let value = [b"Bearer ", bearer.expose()].concat();
        request = request.header(AUTHORIZATION, value);
    }
    if ask.json.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let request = request.body(Full::<Bytes>::from(ask.json.unwrap_or_default().to_owned()))?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_BODY)
            .collect()
            .await
            .map_err(ClientError::Body)?;
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    };
    tokio::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection ends first only when it broke or is done, which the exchange then tells.
        _ = connection => exchange.await,
    }
}

/// A connection, and the Host that belongs to it.
async fn connect(place: &Place) -> std::io::Result<(Box<dyn IoStream>, String)> {
    Ok(match place {
        #[expect(clippy::disallowed_methods, reason = "the gateway's own listener, never a tool")]
        Place::Tcp(address) => (Box::new(TcpStream::connect(address).await?), address.to_string()),
        Place::Unix(path) => (Box::new(UnixStream::connect(path).await?), "localhost".to_owned()),
    })
}
