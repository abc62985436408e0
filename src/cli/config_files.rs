//! The files of one configuration, as a command line names them.

use std::path::PathBuf;

/// One configuration: a file, and files that change what it says.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConfigFiles {
    /// The configuration file
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// A configuration file; each further one changes what those before it say
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

impl ConfigFiles {
    /// Their paths, in the order in which they count.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.file.iter().chain(&self.config).cloned().collect()
    }
}

impl From<PathBuf> for ConfigFiles {
    fn from(file: PathBuf) -> Self {
        Self { file: Some(file), config: Vec::new() }
    }
}
