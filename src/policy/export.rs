//! A tool as a model's provider wants it: name, description and parameters in the shapes of four of them (contract,
//! section 5).
//!
//! What a provider does not take is left out of what it is shown; the gateway still enforces all of it.

mod gemini;
mod root;

use crate::model::json_tree::Tree;

/// Whose shape it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// The Messages API.
    Anthropic,
    /// Function declarations.
    Gemini,
    /// The answer to `tools/list` of the Model Context Protocol.
    Mcp,
    /// Chat completions, not strict.
    OpenAi,
}

impl Provider {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Gemini, Self::Mcp, Self::OpenAi];

    /// The name in `?format=`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Mcp => "mcp",
            Self::OpenAi => "openai",
        }
    }

    /// The provider of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == text)
    }

    /// What stands around the definitions of several tools.
    fn frame(self) -> (&'static str, &'static str) {
        match self {
            Self::Anthropic | Self::OpenAi => ("[", "]"),
            Self::Gemini => ("{\"functionDeclarations\":[", "]}"),
            Self::Mcp => ("{\"tools\":[", "]}"),
        }
    }

    /// Several definitions as one JSON text.
    pub fn list<'a>(self, definitions: impl IntoIterator<Item = &'a str>) -> String {
        let (begin, end) = self.frame();
        let mut out = begin.to_owned();
        for (index, definition) in definitions.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            out.push_str(definition);
        }
        out.push_str(end);
        out
    }
}

/// What a tool says about itself that a model or its runtime may know.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The tool's own name.
    pub name: &'a str,
    /// What the model chooses by.
    pub description: &'a str,
    /// The JSON Schema of its arguments; none: it takes none.
    pub parameters: Option<&'a Tree>,
    /// What it does to the world, as far as somebody said it.
    pub hints: Hints,
}

/// What a tool does to the world; what nobody said is not claimed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may destroy something.
    pub destructive: Option<bool>,
    /// A repeat does no harm.
    pub idempotent: Option<bool>,
}

/// A tool's definitions, made once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exports {
    /// The name in all of them.
    pub name: String,
    texts: [String; 4],
}

impl Exports {
    /// Makes all definitions.
    pub fn new(facts: &Facts<'_>) -> Self {
        let name = name(facts.name);
        let texts = Provider::ALL.map(|provider| definition(provider, &name, facts).to_json());
        Self { name, texts }
    }

    /// The definition in a provider's shape, as JSON.
    pub fn text(&self, provider: Provider) -> &str {
        let [anthropic, gemini, mcp, openai] = &self.texts;
        match provider {
            Provider::Anthropic => anthropic,
            Provider::Gemini => gemini,
            Provider::Mcp => mcp,
            Provider::OpenAi => openai,
        }
    }
}

/// The name under which providers know a tool. Each of them takes letters, digits and `_`, a letter first, 64 at most,
/// so one name serves all; of what a tool's name may have, only the dot is not among these.
pub fn name(tool: &str) -> String {
    tool.replace('.', "_")
}

fn definition(provider: Provider, name: &str, facts: &Facts<'_>) -> Tree {
    let (name, description) = (Tree::text(name), Tree::text(facts.description));
    let parameters = facts.parameters;
    match provider {
        Provider::Anthropic => Tree::map([
            ("name", name),
            ("description", description),
            ("input_schema", root::anthropic(parameters)),
        ]),
        Provider::Gemini => {
            let mut declaration = Tree::map([("name", name), ("description", description)]);
            // A declaration without parameters says nothing about them: an empty object is refused.
            if let Some(parameters) = gemini::parameters(parameters) {
                declaration.set("parameters", parameters);
            }
            declaration
        }
        Provider::Mcp => Tree::map([
            ("name", name),
            ("description", description),
            ("inputSchema", root::mcp(parameters)),
            ("annotations", annotations(facts.hints)),
        ]),
        Provider::OpenAi => {
            let function = Tree::map([
                ("name", name),
                ("description", description),
                ("parameters", root::openai(parameters)),
            ]);
            Tree::map([("type", Tree::text("function")), ("function", function)])
        }
    }
}

fn annotations(hints: Hints) -> Tree {
    let said = [
        ("readOnlyHint", hints.read_only),
        ("destructiveHint", hints.destructive),
        ("idempotentHint", hints.idempotent),
    ];
    let said = said.into_iter().filter_map(|(key, said)| Some((key.to_owned(), said?)));
    Tree::Map(said.map(|(key, said)| (key, Tree::truth(said))).collect())
}

#[cfg(test)]
mod tests;
