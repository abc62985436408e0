//! A tool that is described elsewhere, on its way into a configuration file.

use serde_json::{Map, Value};

use crate::policy::wire::WireProfile;

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The answer to `tools/list` of an MCP server.
    Mcp,
    /// A `tools` array of OpenAI's APIs.
    Openai,
    /// An OpenAPI 3 document.
    Openapi,
}

impl Form {
    /// The word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Openai => "openai",
            Self::Openapi => "openapi",
        }
    }
}

/// Where the tools are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Below this URL.
    Base(String),
    /// Where the document says it.
    Document,
    /// At this URL, in which `{name}` stands for the tool's name.
    Template(String),
}

/// How tools are written.
#[derive(Debug)]
pub struct Terms<'a> {
    /// The wire format of all of them.
    pub profile: &'a WireProfile,
    /// Where they are.
    pub place: Place,
    /// Values for parameters of paths and queries.
    pub set: Vec<(String, String)>,
}

/// Why nothing can be read from a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The document says nothing of where its operations are.
    #[error(
        "the document names no server with a full URL; say where the tools are with --base-url"
    )]
    NoServer,
    /// It is something else.
    #[error("this is not {expected}")]
    Other {
        /// What was expected.
        expected: &'static str,
    },
}

/// A tool in the making.
#[derive(Debug)]
pub struct Draft {
    /// Where it stands in the document.
    pub pointer: String,
    /// As the document calls it.
    pub name: String,
    /// What it says of it.
    pub description: String,
    /// `None`: that of [`Place`].
    pub url: Option<String>,
    /// The schema of its arguments, and where that stands.
    pub parameters: Option<(Value, String)>,
    /// `annotations`, as the configuration has them.
    pub annotations: Map<String, Value>,
}
