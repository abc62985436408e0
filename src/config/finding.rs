//! What is wrong with a configuration, and where: collected, so that all of it is said at once.

use std::cell::RefCell;
use std::fmt;

use serde::Serialize;

use crate::config::yaml::{Document, Fault, NodeId, Position, push_index, push_key};

/// One thing that is wrong, or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The value's path, such as `tools[2].url`; empty for the whole file.
    pub path: String,
    /// What is wrong, and what would be right. Never a secret.
    pub message: String,
}

impl Finding {
    /// What is wrong with a text itself.
    pub fn of_fault(file: &str, fault: Fault) -> Self {
        let Position { line, column } = fault.position;
        Self { file: file.to_owned(), line, column, path: fault.path, message: fault.message }
    }

    /// What is wrong with one of several texts itself.
    pub fn of_fault_in(files: &[String], fault: Fault) -> Self {
        let file = files.get(fault.file).map(String::as_str).unwrap_or_default();
        Self::of_fault(file, fault)
    }

    /// The line that `check` prints for something that works but looks wrong.
    pub fn as_warning(&self) -> String {
        format!("{}warning: {}", self.place(), self.message)
    }

    fn place(&self) -> String {
        let Self { file, line, column, path, .. } = self;
        let separator = if path.is_empty() { "" } else { ": " };
        format!("{file}:{line}:{column}: {path}{separator}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place(), self.message)
    }
}

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// What keeps it from being used; at least one.
    pub errors: Vec<Finding>,
    /// What `check` would say besides.
    pub warnings: Vec<Finding>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects findings about one document while it is read and compiled.
#[derive(Debug)]
pub struct Report<'d> {
    /// The document that the findings are about.
    pub document: &'d Document,
    files: Vec<String>,
    errors: RefCell<Vec<Finding>>,
    warnings: RefCell<Vec<Finding>>,
}

impl<'d> Report<'d> {
    /// A report that begins with these errors.
    pub fn new(file: String, errors: Vec<Finding>, document: &'d Document) -> Self {
        Self::of_files(vec![file], errors, document)
    }

    /// The same for a document of several texts, by their files.
    pub fn of_files(files: Vec<String>, errors: Vec<Finding>, document: &'d Document) -> Self {
        Self { document, files, errors: errors.into(), warnings: RefCell::default() }
    }

    /// The files, as they were named.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The file that a value stands in, as it was named.
    pub fn file(&self, node: NodeId) -> &str {
        self.files.get(self.document.file(node)).map(String::as_str).unwrap_or_default()
    }

    /// The value is wrong.
    pub fn error(&self, node: NodeId, message: impl Into<String>) {
        self.errors.borrow_mut().push(self.finding(node, message));
    }

    /// The value works but looks wrong.
    pub fn warn(&self, node: NodeId, message: impl Into<String>) {
        self.warnings.borrow_mut().push(self.finding(node, message));
    }

    /// A key that should stand in this mapping does not.
    pub fn missing(&self, map: NodeId, key: &str, message: impl Into<String>) {
        let mut finding = self.finding(map, message);
        push_key(&mut finding.path, key);
        self.errors.borrow_mut().push(finding);
    }

    /// A key of the mapping is wrong and may be a secret: the place is the key's, the path is the mapping's.
    pub fn error_inside(&self, map: NodeId, key: NodeId, message: impl Into<String>) {
        let path = self.document.path(map);
        let finding = Finding { path, ..self.finding(key, message) };
        self.errors.borrow_mut().push(finding);
    }

    /// Something below the value is wrong: the steps lead there, as far as they lead.
    pub fn error_below(&self, node: NodeId, steps: &[&str], message: impl Into<String>) {
        self.errors.borrow_mut().push(self.finding_below(node, steps, message));
    }

    /// The same for a path such as `exceptions[0].cidrs[1]`.
    pub fn error_at_path(&self, node: NodeId, path: &str, message: impl Into<String>) {
        self.error_below(node, &steps(path), message);
    }

    /// Something below the value works but looks wrong.
    pub fn warn_below(&self, node: NodeId, steps: &[&str], message: impl Into<String>) {
        self.warnings.borrow_mut().push(self.finding_below(node, steps, message));
    }

    /// The paths of the errors so far.
    pub fn error_paths(&self) -> Vec<String> {
        self.errors.borrow().iter().map(|error| error.path.clone()).collect()
    }

    /// The errors and the warnings, each in the order of the file.
    pub fn into_findings(self) -> (Vec<Finding>, Vec<Finding>) {
        let sort = |findings: RefCell<Vec<Finding>>| {
            let mut findings = findings.into_inner();
            let place = |finding: &Finding| {
                let file = self.files.iter().position(|file| *file == finding.file);
                (file, finding.line, finding.column)
            };
            findings.sort_by_key(place);
            findings.dedup();
            findings
        };
        (sort(self.errors), sort(self.warnings))
    }

    fn finding_below(&self, node: NodeId, steps: &[&str], message: impl Into<String>) -> Finding {
        let mut finding = self.finding(node, message);
        let mut deepest = Some(node);
        for step in steps {
            match step.parse() {
                Ok(index) => push_index(&mut finding.path, index),
                Err(_) => push_key(&mut finding.path, step),
            }
            deepest = deepest.and_then(|at| self.document.child(at, step));
            if let Some(at) = deepest {
                finding = self.finding(at, finding.message);
            }
        }
        finding
    }

    /// A finding at this place that is nobody's yet.
    pub fn finding(&self, node: NodeId, message: impl Into<String>) -> Finding {
        let Position { line, column } = self.document.position(node);
        let (file, path) = (self.file(node).to_owned(), self.document.path(node));
        Finding { file, line, column, path, message: message.into() }
    }
}

/// `exceptions[0].cidrs[1]` as steps.
pub fn steps(path: &str) -> Vec<&str> {
    path.split(['.', '[', ']']).filter(|step| !step.is_empty()).collect()
}
