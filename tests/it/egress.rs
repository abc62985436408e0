//! The address rules from outside: every line of the case file, by the command, the loader and real calls.

mod calls;
mod cases;
mod command;
