//! What a person who reviews, runs or writes tools gets to see of a configuration, by the real command.

mod diff;
mod egress;
mod explain;
mod import;
