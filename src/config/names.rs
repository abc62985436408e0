//! Names that are unique over all files, and where each of them stands.

use std::collections::HashMap;

use crate::config::finding::Report;
use crate::config::yaml::NodeId;

/// Names that are taken, by what must be unique of them.
#[derive(Debug, Default)]
pub struct Names(HashMap<String, Place>);

#[derive(Debug)]
struct Place {
    name: String,
    file: String,
    line: usize,
}

/// A name that stands in the way of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// That name.
    pub other: String,
    /// Where it stands, in words for somebody who looks at the other one.
    pub place: String,
}

impl Names {
    /// Takes a name for the value at `node`; where its key is taken, the error says by which name and where.
    pub fn take(
        &mut self,
        report: &Report<'_>,
        key: &str,
        name: &str,
        node: NodeId,
    ) -> Result<(), Taken> {
        if let Some(taken) = self.taken(report, key, node) {
            return Err(taken);
        }
        let line = report.document.position(node).line;
        self.reserve(key, name, report.file(node), line);
        Ok(())
    }

    /// Takes a name that stands on this line of another file, unless its key is taken.
    pub fn reserve(&mut self, key: &str, name: &str, file: &str, line: usize) -> bool {
        let is_free = !self.0.contains_key(key);
        if is_free {
            let place = Place { name: name.to_owned(), file: file.to_owned(), line };
            self.0.insert(key.to_owned(), place);
        }
        is_free
    }

    /// Who has taken a key, and where, for somebody who looks at `node`.
    pub fn taken(&self, report: &Report<'_>, key: &str, node: NodeId) -> Option<Taken> {
        let Place { name, file, line } = self.0.get(key)?;
        let place = if report.file(node) == file {
            format!("on line {line}")
        } else {
            format!("in {file} on line {line}")
        };
        Some(Taken { other: name.clone(), place })
    }

    /// Takes all names of another file.
    pub fn extend(&mut self, other: Self) {
        for (key, place) in other.0 {
            self.0.entry(key).or_insert(place);
        }
    }
}
