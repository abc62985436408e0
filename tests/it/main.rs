//! The integration tests: one binary, one module per promise.
#![expect(clippy::disallowed_methods, reason = "tests are clients and peers themselves")]

mod demo;
mod support;
mod tidy;
