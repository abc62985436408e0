//! YAML text to a tree of values that know where they stand.
//!
//! YAML 1.2 with its core schema, so `on` and `no` are text. One document of one or several texts; no tags and no merge
//! keys. Aliases are copied, within the same budget as everything else.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput};

/// Larger texts are refused.
pub const MAX_BYTES: usize = 8 << 20;
/// Deeper texts are refused.
pub const MAX_DEPTH: usize = 64;
/// Texts of more values than this are refused: the bound on what aliases can multiply.
pub const MAX_NODES: usize = 1 << 20;

/// A value's place in its document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(usize);

impl NodeId {
    /// The place of this index.
    pub fn from_index(index: usize) -> Self {
        Self(index)
    }

    /// The index of the place.
    pub fn index(self) -> usize {
        self.0
    }
}

/// A line and a column, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    const START: Self = Self { line: 1, column: 1 };

    fn of(span: &Span) -> Self {
        Self { line: span.start.line().max(1), column: span.start.col() + 1 }
    }
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool(bool),
    /// A number with a fraction or an exponent, or too large for an integer; and how it is written.
    Float(f64, Box<str>),
    /// A whole number that 64 bits hold, signed or unsigned.
    Integer(i128),
    /// A sequence.
    List(Vec<NodeId>),
    /// A mapping; keys are text and unique.
    Map(Vec<(NodeId, NodeId)>),
    /// Nothing, `~` or `null`.
    Null,
    /// Any other scalar.
    Text(String),
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Index(usize),
    Key(NodeId),
}

#[derive(Debug, Clone)]
struct Node {
    /// Which of the texts it stands in.
    file: usize,
    position: Position,
    parent: Option<(NodeId, Step)>,
    kind: Kind,
}

/// One document, as a tree. Its values may stand in several texts.
#[derive(Debug)]
pub struct Document {
    nodes: Vec<Node>,
    root: NodeId,
}

/// What is wrong with the text itself, before anybody looks for a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// In which of the texts, counted from 0.
    pub file: usize,
    /// Where.
    pub position: Position,
    /// The path of the value, empty where there is no tree.
    pub path: String,
    /// What.
    pub message: String,
}

impl Fault {
    /// What is wrong with a file as a whole.
    pub fn of_file(message: impl Into<String>) -> Self {
        Self { file: 0, position: Position::START, path: String::new(), message: message.into() }
    }
}

impl Document {
    /// Reads one document. Where the tree stands in spite of faults (duplicate keys), both are returned.
    pub fn parse(text: &str) -> (Option<Self>, Vec<Fault>) {
        Self::merged(&[text])
    }

    /// Reads one document of several texts, of which each changes what those before it say. There is no tree where one of
    /// them has none.
    pub fn merged(texts: &[&str]) -> (Option<Self>, Vec<Fault>) {
        let mut document = Self { nodes: Vec::new(), root: NodeId(0) };
        let (mut roots, mut faults) = (Vec::new(), Vec::new());
        for (file, text) in texts.iter().enumerate() {
            let mut builder = Builder::new(file, text, std::mem::take(&mut document.nodes));
            let root = if text.len() > MAX_BYTES {
                let message = format!("the file is larger than {} MiB", MAX_BYTES >> 20);
                Err(builder.fault(Position::START, message))
            } else {
                builder.document()
            };
            document.nodes = builder.nodes;
            let told = builder.faults.into_iter().map(|(id, message)| Fault {
                file,
                position: document.position(id),
                path: document.path(id),
                message,
            });
            faults.extend(told);
            match root {
                Ok(root) => roots.push(root),
                Err(fault) => faults.push(fault),
            }
        }
        if roots.len() < texts.len() {
            return (None, faults);
        }
        let root = roots.into_iter().reduce(|base, more| document.merge(base, more));
        (root.map(|root| Self { root, ..document }), faults)
    }

    /// The outermost value.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// What the value is.
    pub fn kind(&self, id: NodeId) -> &Kind {
        &self.nodes[id.0].kind
    }

    /// Which of the texts the value stands in, counted from 0.
    pub fn file(&self, id: NodeId) -> usize {
        self.nodes[id.0].file
    }

    /// Where the value stands; for one that came through an alias, where it was defined.
    pub fn position(&self, id: NodeId) -> Position {
        self.nodes[id.0].position
    }

    /// The value's path, such as `tools[2].url`; the root's is empty.
    pub fn path(&self, id: NodeId) -> String {
        let mut steps = Vec::new();
        let mut at = id;
        while let Some((parent, step)) = self.nodes[at.0].parent {
            steps.push(step);
            at = parent;
        }
        let mut path = String::new();
        for step in steps.into_iter().rev() {
            match step {
                Step::Index(index) => push_index(&mut path, index),
                Step::Key(key) => push_key(&mut path, self.text(key).unwrap_or_default()),
            }
        }
        path
    }

    /// The text of a text.
    pub fn text(&self, id: NodeId) -> Option<&str> {
        match self.kind(id) {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value under a key of a mapping, or at a position of a list.
    pub fn child(&self, id: NodeId, name: &str) -> Option<NodeId> {
        match self.kind(id) {
            Kind::List(items) => items.get(name.parse::<usize>().ok()?).copied(),
            Kind::Map(entries) => {
                let entry = entries.iter().find(|(key, _)| self.text(*key) == Some(name))?;
                Some(entry.1)
            }
            _ => None,
        }
    }
}

/// Appends a key to a path; one that is no plain word goes into brackets.
pub fn push_key(path: &mut String, key: &str) {
    let plain =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-$".contains(c));
    match (plain, path.is_empty()) {
        (true, true) => path.push_str(key),
        (true, false) => path.extend([".", key]),
        (false, _) => path.push_str(&format!("[{key:?}]")),
    }
}

/// Appends a list position to a path.
pub fn push_index(path: &mut String, index: usize) {
    path.push_str(&format!("[{index}]"));
}

struct Builder<'t> {
    file: usize,
    parser: Parser<'t, StrInput<'t>>,
    nodes: Vec<Node>,
    anchors: HashMap<usize, NodeId>,
    faults: Vec<(NodeId, String)>,
}

type Next<'t> = (Event<'t>, Span);
type Parent = Option<(NodeId, Step)>;

impl<'t> Builder<'t> {
    /// Nodes are added to those of the texts before.
    fn new(file: usize, text: &'t str, nodes: Vec<Node>) -> Self {
        let mut options = Options::default();
        options.emit_unresolved_aliases = true;
        Self {
            file,
            parser: Parser::new_from_str_with_options(text, options),
            nodes,
            anchors: HashMap::new(),
            faults: Vec::new(),
        }
    }

    fn fault(&self, position: Position, message: impl Into<String>) -> Fault {
        Fault { file: self.file, position, path: String::new(), message: message.into() }
    }

    fn next(&mut self) -> Result<Next<'t>, Fault> {
        match self.parser.next() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Err(self.fault(Position::START, "the text ends too early")),
        }
    }

    fn document(&mut self) -> Result<NodeId, Fault> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(self
                        .fault(Position::of(&span), "a second document begins here, one is read"));
                }
                Event::DocumentStart(..) => {
                    let first = self.next()?;
                    root = Some(self.node(first, None, 0)?);
                }
                Event::StreamEnd => break,
                _ => return Err(self.fault(Position::of(&span), "is not valid YAML")),
            }
        }
        let root = root.map_or_else(|| self.push(Position::START, None, Kind::Null), Ok)?;
        // An empty document is an empty mapping: what is missing is then said by name.
        let kind = &mut self.nodes[root.0].kind;
        if *kind == Kind::Null {
            *kind = Kind::Map(Vec::new());
        }
        Ok(root)
    }

    fn push(&mut self, position: Position, parent: Parent, kind: Kind) -> Result<NodeId, Fault> {
        if self.nodes.len() >= MAX_NODES {
            return Err(self.fault(
                position,
                format!("there are more than {MAX_NODES} values, aliases counted"),
            ));
        }
        self.nodes.push(Node { file: self.file, position, parent, kind });
        Ok(NodeId(self.nodes.len() - 1))
    }

    fn node(
        &mut self,
        (event, span): Next<'t>,
        parent: Parent,
        depth: usize,
    ) -> Result<NodeId, Fault> {
        let position = Position::of(&span);
        if event.tag().is_some() {
            return Err(self.fault(position, "tags are not supported, quote what is meant as text"));
        }
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let id = self.push(position, parent, scalar(text, style))?;
                self.anchors.insert(anchor, id);
                Ok(id)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.check_depth(depth + 1, position)?;
                let id = self.push(position, parent, Kind::Null)?;
                let items = self.items(id, depth + 1)?;
                self.nodes[id.0].kind = Kind::List(items);
                self.anchors.insert(anchor, id);
                Ok(id)
            }
            Event::MappingStart(_, anchor, _) => {
                self.check_depth(depth + 1, position)?;
                let id = self.push(position, parent, Kind::Null)?;
                let entries = self.entries(id, depth + 1)?;
                self.nodes[id.0].kind = Kind::Map(entries);
                self.anchors.insert(anchor, id);
                Ok(id)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(target) => self.copy(*target, parent, depth, position),
                None => Err(self.fault(position, "the alias stands inside of what it names")),
            },
            Event::UnresolvedAlias(_) => Err(self.fault(
                position,
                "no anchor of this name stands before the alias, quote a text that begins with `*`",
            )),
            _ => Err(self.fault(position, "is not valid YAML")),
        }
    }

    fn items(&mut self, list: NodeId, depth: usize) -> Result<Vec<NodeId>, Fault> {
        let mut items = Vec::new();
        loop {
            let next = self.next()?;
            if matches!(next.0, Event::SequenceEnd) {
                return Ok(items);
            }
            let parent = Some((list, Step::Index(items.len())));
            items.push(self.node(next, parent, depth)?);
        }
    }

    fn entries(&mut self, map: NodeId, depth: usize) -> Result<Vec<(NodeId, NodeId)>, Fault> {
        let mut entries = Vec::new();
        let mut seen = HashMap::new();
        loop {
            let next = self.next()?;
            let (key, text) = match next.0 {
                Event::MappingEnd => return Ok(entries),
                Event::Scalar(text, style, _, None) => {
                    let position = Position::of(&next.1);
                    if text == "<<" && style == ScalarStyle::Plain {
                        return Err(self
                            .fault(position, "merge keys are not supported, repeat the entries"));
                    }
                    let text = text.into_owned();
                    let key = self.push(position, None, Kind::Text(text.clone()))?;
                    self.nodes[key.0].parent = Some((map, Step::Key(key)));
                    (key, text)
                }
                _ => return Err(self.fault(Position::of(&next.1), "a key must be plain text")),
            };
            let first = self.next()?;
            let value = self.node(first, Some((map, Step::Key(key))), depth)?;
            match seen.get(&text) {
                None => {
                    seen.insert(text, key);
                    entries.push((key, value));
                }
                Some(NodeId(first)) => {
                    let line = self.nodes[*first].position.line;
                    self.faults.push((key, format!("stands twice, first on line {line}")));
                }
            }
        }
    }

    fn copy(
        &mut self,
        from: NodeId,
        parent: Parent,
        depth: usize,
        at: Position,
    ) -> Result<NodeId, Fault> {
        let Node { position, kind, .. } = self.nodes[from.0].clone();
        if matches!(kind, Kind::List(_) | Kind::Map(_)) {
            self.check_depth(depth + 1, at)?;
        }
        // The alias, not the definition, is what is too much.
        let too_many = |fault: Fault| Fault { position: at, ..fault };
        let id = self.push(position, parent, Kind::Null).map_err(too_many)?;
        let kind = match kind {
            Kind::List(items) => {
                let copies = items.into_iter().enumerate();
                let copies = copies.map(|(index, item)| {
                    self.copy(item, Some((id, Step::Index(index))), depth + 1, at)
                });
                Kind::List(copies.collect::<Result<_, _>>()?)
            }
            Kind::Map(entries) => {
                let mut copies = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let text = self.nodes[key.0].clone();
                    let key = self.push(text.position, None, text.kind).map_err(too_many)?;
                    self.nodes[key.0].parent = Some((id, Step::Key(key)));
                    copies
                        .push((key, self.copy(value, Some((id, Step::Key(key))), depth + 1, at)?));
                }
                Kind::Map(copies)
            }
            scalar => scalar,
        };
        self.nodes[id.0].kind = kind;
        Ok(id)
    }

    fn check_depth(&self, depth: usize, position: Position) -> Result<(), Fault> {
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        Err(self.fault(position, format!("values are nested more than {MAX_DEPTH} deep")))
    }

    fn syntax(&self, error: &ScanError) -> Fault {
        let marker = error.marker();
        let position = Position { line: marker.line().max(1), column: marker.col() + 1 };
        self.fault(position, format!("is not valid YAML: {}", error.kind()))
    }
}

fn scalar(text: Cow<'_, str>, style: ScalarStyle) -> Kind {
    if style != ScalarStyle::Plain {
        return Kind::Text(text.into_owned());
    }
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Bool(true),
        "false" | "False" | "FALSE" => Kind::Bool(false),
        other => number(other).unwrap_or_else(|| Kind::Text(text.into_owned())),
    }
}

fn number(text: &str) -> Option<Kind> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let radix = |prefix, radix| i128::from_str_radix(text.strip_prefix(prefix)?, radix).ok();
    let integer = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| text.parse().ok());
    let fits = |integer: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(integer);
    if let Some(integer) = integer.filter(fits) {
        return Some(Kind::Integer(integer));
    }
    let decimal = unsigned.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    let float = text.parse().ok().filter(|number: &f64| decimal && number.is_finite());
    float.map(|number| Kind::Float(number, text.into()))
}

mod merge;

#[cfg(test)]
mod tests;
