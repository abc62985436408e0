//! The command line: arguments to one of the commands, and its exit code.

pub mod approvals;
pub mod call;
pub mod calls;
pub mod check;
pub mod client;
pub mod completions;
pub mod config_files;
pub mod demo;
pub mod dev;
pub mod diff;
pub mod egress;
pub mod exit;
pub mod explain;
mod explain_words;
pub mod format;
pub mod given;
pub mod import;
mod judge;
pub mod key;
pub mod listener;
pub mod man;
pub mod page;
pub mod probe;
pub mod schema;
pub mod serve;
pub mod sign;
pub mod status;
pub mod try_server;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::cli::exit::{OK, USAGE};
use crate::model::build;

/// Egress gateway for the tool calls of AI agents.
#[derive(Debug, Parser)]
#[command(name = "sortie", version = build::text(), arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Approvals(approvals::Arguments),
    Call(call::Arguments),
    Calls(calls::Arguments),
    Check(check::Arguments),
    Completions(completions::Arguments),
    Demo(demo::Arguments),
    Dev(dev::Arguments),
    Diff(diff::Arguments),
    Egress(egress::Arguments),
    Explain(explain::Arguments),
    Import(import::Arguments),
    Key(key::Arguments),
    Man(man::Arguments),
    Probe(probe::Arguments),
    Schema(schema::Arguments),
    Serve(serve::Arguments),
    Sign(sign::SignArguments),
    Status(status::Arguments),
    Try(try_server::Arguments),
    Verify(sign::VerifyArguments),
}

/// Runs what the command line asks for.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { OK };
            // Nowhere to print to is no reason to fail twice.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    ExitCode::from(match arguments.command {
        Command::Approvals(arguments) => approvals::run(&arguments),
        Command::Call(arguments) => call::run(&arguments),
        Command::Calls(arguments) => calls::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments, Arguments::command()),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Egress(arguments) => egress::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Key(arguments) => key::run(&arguments),
        Command::Man(arguments) => man::run(&arguments, Arguments::command()),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Sign(arguments) => sign::sign(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Try(arguments) => try_server::run(&arguments),
        Command::Verify(arguments) => sign::verify(&arguments),
    })
}
