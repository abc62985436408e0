//! The fault catalogue, row by row: each test is named after the rows that it proves. Rows that need a network of their
//! own stand in `namespace` as well, those of address ranges and of `accept` beside the code.

mod answers;
mod caller;
mod connect;
mod dns;
mod door;
mod framing;
mod link;
mod names;
mod process;
pub(crate) mod proof;
mod requests;
mod slow;
mod stale;
mod state;
mod table;
mod tls;
mod tls_by_tools;
