//! End to end with nothing switched off: system DNS, port 443, no exception, and private addresses that answer.

mod cluster;
mod refusals;
mod routes;
