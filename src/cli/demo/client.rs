//! The demo's agent: one HTTP request to the gateway that the demo started.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// An answer's largest body, in bytes.
const MAX_BODY: usize = 1024 * 1024;

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

/// Posts one call and reads the answer: its status and its text.
pub async fn post_call(
    gateway: SocketAddr,
    key: &str,
    call: &str,
) -> Result<(u16, String), ClientError> {
    #[expect(clippy::disallowed_methods, reason = "the gateway's own listener, never a tool")]
    let stream = TcpStream::connect(gateway).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::post("/v1/calls")
        .header(HOST, gateway.to_string())
        .header(AUTHORIZATION, format!("Bearer {key}"))
        .header(CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(call.to_owned()))?;
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
