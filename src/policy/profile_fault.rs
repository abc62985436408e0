//! One thing that is wrong with a profile, and where.

use std::fmt;

/// A fault in a profile's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileFault {
    /// Where in the profile: `headers[3].value`.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl ProfileFault {
    /// A fault at a path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl fmt::Display for ProfileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}
