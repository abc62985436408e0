//! `sortie completions`: what a shell needs to complete a command line.

use clap::Command;
use clap_complete::{Shell, generate};

use crate::cli::exit::{OK, print};

/// Print what a shell needs to complete `sortie`'s commands and options.
///
/// For bash: `sortie completions bash > /etc/bash_completion.d/sortie`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for all of `command`.
pub fn run(arguments: &Arguments, mut command: Command) -> u8 {
    let mut script = Vec::new();
    generate(arguments.shell, &mut command, "sortie", &mut script);
    print(&String::from_utf8_lossy(&script), OK)
}
