//! The tool's server: HTTPS on loopback, one answer of 1 KB to every signed request.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use sortie::cli::demo::certificates::Certificates;

use crate::process::{Bare, Child, Plan, Role, say, wait_for_parent};

/// What a good answer holds.
pub(crate) const MARK: &str = "BENCH-OK";

/// The running server.
pub(crate) struct Upstream {
    _child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) authority_pem: String,
}

impl Upstream {
    /// How the bare client calls it.
    pub(crate) fn bare(&self, plan: Plan) -> Bare {
        Bare { plan, address: self.address, authority_pem: self.authority_pem.clone() }
    }
}

/// Starts it as a child.
pub(crate) fn start() -> Upstream {
    let mut child = Child::spawn(&Role::Upstream);
    let address = child.line().parse().expect("an address");
    let authority_pem = serde_json::from_str(&child.line()).expect("a certificate");
    Upstream { _child: child, address, authority_pem }
}

/// Serves until the parent is gone.
pub(crate) fn run() {
    let certificates = Certificates::make("127.0.0.1").expect("a certificate");
    let mut tls = Arc::unwrap_or_clone(certificates.server);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    say(&listener.local_addr().expect("it is bound").to_string());
    say(&serde_json::to_string(&certificates.authority_pem).expect("text is JSON"));
    runtime.spawn(accept(listener, acceptor));
    wait_for_parent();
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor) {
    let answer = answer();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("a socket option");
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| serve(request, answer.clone()));
            let server = hyper::server::conn::http1::Builder::new();
            // Drivers hang up when their window is over.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve(
    request: Request<Incoming>,
    answer: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let signed = request.headers().contains_key("cl-signature");
    let whole = request.into_body().collect().await.is_ok();
    let mut response = Response::new(Full::new(answer));
    if !signed || !whole {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

/// One answer: 1 KB of JSON.
pub(crate) fn answer() -> Bytes {
    let rows = vec![serde_json::json!({"sku": "RX-4471", "qty": 12}); 36];
    Bytes::from(serde_json::json!({"mark": MARK, "rows": rows}).to_string())
}
