//! The fault catalogue, row by row: each test is named after the rows that it proves. Rows that need a network of their
//! own stand in `namespace` as well, those of address ranges and of `accept` beside the code.

mod caller;
mod connect;
mod dns;
mod link;
mod names;
pub(crate) mod proof;
mod slow;
mod stale;
