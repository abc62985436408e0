//! What a configuration is compiled with: the world as plain values, and small readers with bounds.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::finding::Report;
use crate::config::given::Given;
use crate::config::leaf::{Span, Verbatim};
use crate::config::local::Local;
use crate::config::signing::KeyPair;
use crate::config::variables::Variables;
use crate::config::yaml::{Fault, NodeId};
use crate::model::secret::Secret;

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// A variable of the environment.
    Env(String),
    /// A file.
    File(PathBuf),
    /// A file that may be absent, which then means that there is no such secret.
    OptionalFile(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "variable `{name}`"),
            Self::File(path) | Self::OptionalFile(path) => write!(f, "file `{}`", path.display()),
        }
    }
}

/// Why a secret could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is none.
    #[error("is not there")]
    Missing,
    /// Larger than any secret.
    #[error("is larger than 64 KiB")]
    TooLarge,
    /// Anything else that the operating system says.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// Looks a secret up; the bytes come back as they are.
pub type Lookup<'a> = dyn Fn(&Source) -> Result<Secret, SourceError> + 'a;

/// Finds the files that a pattern names, in the order of their paths, and reads them.
pub type Include<'a> = dyn Fn(&Path) -> Result<Vec<FoundFile>, SourceError> + 'a;

/// A file that a pattern names.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// Its path, as the pattern leads to it.
    pub path: PathBuf,
    /// Its text, or why there is none.
    pub text: Result<Arc<str>, Fault>,
}

/// The world, as far as a configuration depends on it.
pub struct Environment<'a> {
    /// Reads secrets.
    pub lookup: &'a Lookup<'a>,
    /// Reads the files that a configuration includes.
    pub include: &'a Include<'a>,
    /// The text of resolv.conf; empty where there is none.
    pub resolv_conf: String,
    /// The addresses of this machine's interfaces.
    pub interfaces: Vec<IpAddr>,
    /// The time.
    pub unix_seconds: i64,
    /// As if the file said `strict: true`.
    pub strict: bool,
    /// What the listeners took, where they are bound already; otherwise the file says it.
    pub bound: Option<Vec<SocketAddr>>,
    /// What is taken over from the configuration in force, where there is one.
    pub earlier: Option<&'a Earlier>,
    /// For local development: what is forced.
    pub local: Option<Local>,
    /// What the environment says of traces.
    pub open_telemetry: Variables,
}

impl<'a> Environment<'a> {
    /// A world in which there is nothing but secrets, at this time.
    pub fn bare(lookup: &'a Lookup<'a>, unix_seconds: i64) -> Self {
        Self {
            lookup,
            include: &|_| Ok(Vec::new()),
            resolv_conf: String::new(),
            interfaces: Vec::new(),
            unix_seconds,
            strict: false,
            bound: None,
            earlier: None,
            local: None,
            open_telemetry: Variables::default(),
        }
    }
}

/// What a configuration takes over from the one that it replaces.
#[derive(Debug, Default)]
pub struct Earlier {
    secrets: HashMap<Source, Secret>,
    overlaps: HashMap<(String, KeyPair), i64>,
    texts: HashMap<String, Arc<str>>,
}

impl Earlier {
    /// Of the secrets that were read, of when each tool's pair of keys was first seen in Unix seconds, and of the last good
    /// texts of included files.
    pub fn new(
        secrets: HashMap<Source, Secret>,
        overlaps: HashMap<(String, KeyPair), i64>,
        texts: HashMap<String, Arc<str>>,
    ) -> Self {
        Self { secrets, overlaps, texts }
    }

    /// The last text of an included file that could be used.
    pub fn text(&self, file: &str) -> Option<&Arc<str>> {
        self.texts.get(file)
    }

    /// The last value of a secret.
    pub fn secret(&self, source: &Source) -> Option<&Secret> {
        self.secrets.get(source)
    }

    /// When a tool's pair of keys was first seen, in Unix seconds.
    pub fn overlap_since(&self, tool: &str, pair: KeyPair) -> Option<i64> {
        self.overlaps.get(&(tool.to_owned(), pair)).copied()
    }
}

/// What every section's compiler has at hand.
pub struct Context<'a> {
    /// Takes the findings.
    pub report: &'a Report<'a>,
    /// The world.
    pub environment: &'a Environment<'a>,
    /// Whether an error is what makes one tool or key unavailable.
    pub strict: bool,
}

impl Context<'_> {
    /// The folder of the file that a value stands in: where relative paths start.
    pub fn folder(&self, node: NodeId) -> &Path {
        Path::new(self.report.file(node)).parent().unwrap_or(Path::new(""))
    }

    /// A value that must be there; where it is absent, the hint says what to write.
    pub fn required<'g, T>(
        &self,
        map: NodeId,
        key: &str,
        given: &'g Given<T>,
        hint: &str,
    ) -> Option<(&'g T, NodeId)> {
        if given.node().is_none() {
            self.report.missing(map, key, format!("is missing, {hint}"));
        }
        given.found()
    }

    /// A duration within bounds.
    pub fn duration(
        &self,
        given: &Given<Span>,
        default: Duration,
        bounds: RangeInclusive<Duration>,
    ) -> Duration {
        let Some((Span(duration), node)) = given.found() else { return default };
        if !bounds.contains(duration) {
            let (from, to) = (Span(*bounds.start()), Span(*bounds.end()));
            self.report
                .error(node, format!("must be from {from} to {to}, not {}", Span(*duration)));
        }
        *duration
    }

    /// A number within bounds.
    pub fn number<N: Copy + PartialOrd + fmt::Display>(
        &self,
        given: Option<(N, NodeId)>,
        default: N,
        bounds: RangeInclusive<N>,
    ) -> N {
        let Some((number, node)) = given else { return default };
        if !bounds.contains(&number) {
            let message =
                format!("must be from {} to {}, not {number}", bounds.start(), bounds.end());
            self.report.error(node, message);
        }
        number
    }

    /// Where a reference leads; exactly one of the two must be given.
    pub fn source(
        &self,
        node: NodeId,
        file: &Given<Verbatim>,
        env: &Given<Verbatim>,
    ) -> Option<Source> {
        match (file.node(), env.node()) {
            (Some(_), Some(other)) => {
                self.report.error(other, "stands beside `file`, one of the two is enough");
                None
            }
            (None, None) => {
                self.report.error(node, "names no secret, write {file: PATH} or {env: NAME}");
                None
            }
            _ => {
                let (Verbatim(text), node) = file.found().or_else(|| env.found())?;
                if text.is_empty() {
                    self.report.error(node, "must not be empty");
                    return None;
                }
                let is_file = file.node().is_some();
                Some(if is_file {
                    Source::File(self.folder(node).join(text))
                } else {
                    Source::Env(text.clone())
                })
            }
        }
    }

    /// Reads a secret and removes exactly one line end. An empty one is an error at `node`; one that cannot be read any
    /// more keeps its last value.
    pub fn secret(&self, node: NodeId, source: &Source) -> Result<Secret, SecretProblem> {
        let raw = match (self.environment.lookup)(source) {
            Ok(raw) => raw,
            Err(error) => {
                let earlier = self.environment.earlier.and_then(|earlier| earlier.secret(source));
                let last = earlier.ok_or_else(|| SecretProblem::Lookup(error.clone()))?;
                self.unreadable(node, source, &error, "its last value is kept");
                last.clone()
            }
        };
        let line = raw.without_line_end();
        if line.is_empty() {
            self.report.error(node, format!("{source} is empty"));
            return Err(SecretProblem::Reported);
        }
        Ok(line)
    }

    /// The same for a secret that there may not be.
    pub fn optional_secret(
        &self,
        node: NodeId,
        source: &Source,
    ) -> Result<Option<Secret>, SecretProblem> {
        match (self.environment.lookup)(source) {
            Err(SourceError::Missing) => Ok(None),
            _ => self.secret(node, source).map(Some),
        }
    }

    /// A secret that could not be read: a warning, or an error in a strict configuration.
    pub fn unreadable(
        &self,
        node: NodeId,
        source: &Source,
        error: &SourceError,
        consequence: &str,
    ) {
        self.lacking(node, format!("{source} {error}, {consequence}"));
    }

    /// A part does not work and the others do: a warning, or an error in a strict configuration.
    pub fn lacking(&self, node: NodeId, message: String) {
        if self.strict {
            self.report.error(node, message);
        } else {
            self.report.warn(node, message);
        }
    }
}

/// Why there is no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretProblem {
    /// It could not be read.
    Lookup(SourceError),
    /// It was read and is wrong, which is reported.
    Reported,
}
