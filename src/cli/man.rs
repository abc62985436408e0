//! `sortie man`: the manual pages, in roff.

use std::io;
use std::path::PathBuf;

use clap::Command;
use clap_mangen::{Man, generate_to};

use crate::cli::exit::{OK, USAGE, fail, print};

/// Print a manual page.
///
/// To read one: `sortie man try | man -l -`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The command whose page is printed; left out: that of `sortie`
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    /// Write all pages into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<PathBuf>,
}

/// Prints one page of `command`, or writes all of them.
pub fn run(arguments: &Arguments, command: Command) -> u8 {
    // The pages are the help: none of them is about help.
    let quiet = |command: Command| command.disable_help_subcommand(true);
    let mut command = quiet(command).mut_subcommands(quiet);
    command.build();
    if let Some(folder) = &arguments.out {
        return match generate_to(command, folder) {
            Ok(()) => OK,
            Err(error) => fail(&format!("{} cannot be written: {error}", folder.display())),
        };
    }
    let page = match &arguments.command {
        None => render(command),
        Some(name) => match command.find_subcommand(name) {
            Some(found) => render(found.clone()),
            None => {
                let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
                fail(&format!("there is no command `{name}`; there are {}", names.join(", ")));
                return USAGE;
            }
        },
    };
    match page {
        Ok(page) => print(&String::from_utf8_lossy(&page), OK),
        Err(error) => fail(&format!("the page cannot be written: {error}")),
    }
}

fn render(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}
