//! `sortie schema`: the JSON Schema of the configuration file, for editors and for `config/sortie.schema.json`.

use crate::cli::exit::{OK, print};
use crate::config::raw::{RawConfig, RawIncluded};

/// Print the JSON Schema of the configuration file.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// That of a file that the configuration includes
    #[arg(long)]
    included: bool,
}

/// Prints the schema.
pub fn run(arguments: &Arguments) -> u8 {
    print(&if arguments.included { included() } else { text() }, OK)
}

/// The schema as it is printed, with a line end.
pub fn text() -> String {
    printed(&schemars::schema_for!(RawConfig))
}

/// The same of an included file.
fn included() -> String {
    printed(&schemars::schema_for!(RawIncluded))
}

fn printed(schema: &schemars::Schema) -> String {
    format!("{:#}\n", schema.as_value())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checked_in_schema_is_the_printed_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/sortie.schema.json");
        if std::env::var_os("SORTIE_BLESS").is_some() {
            std::fs::write(path, text()).expect("written");
        }
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(file == text(), "sortie schema > config/sortie.schema.json writes the file anew");
    }
}
