//! `sortie key new`: a key for a runtime, and what of it goes into the configuration.

use crate::cli::exit::{OK, print};
use crate::model::id::{hex, random_base62};
use crate::policy::identity::KeyDigest;

/// Make a key for a runtime.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a new key and its SHA-256; the digest may live in version control
    New,
}

/// Prints the key once: it is kept nowhere.
pub fn run(arguments: &Arguments) -> u8 {
    match arguments.command {
        Command::New => {
            let key = format!("sk_{}", random_base62(40, rand::random_iter()));
            let digest = hex(&KeyDigest::of(key.as_bytes()).0);
            print(&format!("key: {key}\nsha256: {digest}\n"), OK)
        }
    }
}
