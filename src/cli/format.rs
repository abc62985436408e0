//! How a command prints what it found.

/// For people, or for programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object.
    Json,
    /// Lines for people.
    #[default]
    Text,
}
