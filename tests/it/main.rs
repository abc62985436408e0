//! The integration tests: one binary, one module per promise.
#![expect(clippy::disallowed_methods, reason = "tests are clients and peers themselves")]

mod admin;
mod answers;
mod api;
mod arguments;
mod breaker;
mod callers;
mod catalogue;
mod cli;
mod corpus;
mod demo;
mod egress;
mod faults;
mod lifecycle;
mod limits;
mod listeners;
mod load;
mod namespace;
mod outbound;
mod outcomes;
mod policies;
mod pool;
mod readme;
mod reload;
mod retries;
mod retry_profiles;
mod retry_waits;
mod review;
mod secrets;
mod soak;
mod support;
mod tidy;
mod timeouts;
mod truncation;
mod verifiers;
mod wire;
