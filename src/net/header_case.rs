//! The letter case of header names, as hyper keeps it: captured once per tool, laid onto each request.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use http::{Extensions, HeaderName, Request, Response};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

/// Header names in their exact letter case.
#[derive(Debug, Clone)]
pub struct HeaderCase(Extensions);

/// A header name that HTTP does not know.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` cannot be a header name")]
pub struct HeaderCaseError {
    name: String,
}

impl HeaderCase {
    /// Captures the spelling of these names.
    ///
    /// hyper's case map is private, and only its parsers make one: a server reads a request that has these names.
    pub fn capture<S: AsRef<str>>(names: &[S]) -> Result<Self, HeaderCaseError> {
        let mut request = String::from("POST / HTTP/1.1\r\n");
        for name in names.iter().map(AsRef::as_ref) {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(HeaderCaseError { name: name.into() });
            }
            // A value that suits `Content-Length` too.
            request.push_str(name);
            request.push_str(": 0\r\n");
        }
        request.push_str("\r\n");

        let captured = Arc::new(Mutex::new(Extensions::new()));
        let keep = Arc::clone(&captured);
        let service = service_fn(move |request: Request<Incoming>| {
            let (parts, _) = request.into_parts();
            *keep.lock().unwrap_or_else(PoisonError::into_inner) = parts.extensions;
            std::future::ready(Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())))
        });
        let pipe = tokio::io::join(request.as_bytes(), tokio::io::sink());
        let server = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(names.len() + 1)
            .serve_connection(TokioIo::new(pipe), service);
        // All input is there already: one poll reads it, and nothing has to wake it up.
        let _ = pin!(server).poll(&mut Context::from_waker(Waker::noop()));
        let mut captured = captured.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Self(std::mem::take(&mut *captured)))
    }

    /// Lays the spelling onto a request.
    pub fn apply(&self, extensions: &mut Extensions) {
        *extensions = self.0.clone();
    }
}
