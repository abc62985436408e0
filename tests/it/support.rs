//! The fixtures that every test leans on: no test opens a socket or starts a process by itself.

pub(crate) mod canary;
pub(crate) mod certs;
pub(crate) mod cli;
pub(crate) mod config;
pub(crate) mod deaf;
pub(crate) mod described;
pub(crate) mod dev;
pub(crate) mod dns;
pub(crate) mod events;
pub(crate) mod fleet;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod languages;
pub(crate) mod link;
pub(crate) mod metrics;
pub(crate) mod namespace;
pub(crate) mod openssl;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod receiver;
pub(crate) mod script;
pub(crate) mod tokens;
pub(crate) mod upstream;
pub(crate) mod wait;
pub(crate) mod world;

mod dns_tests;
mod gateway_tests;
mod upstream_tests;
