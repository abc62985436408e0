//! Tools that are described elsewhere, as a file for `tools.d/`: what is carried over, and what cannot be.

mod functions;
mod names;
mod openapi;
mod repair;

use serde_json::{Value, json};

use crate::config::carry::{Note, Notes};
use crate::config::context::{Environment, Source, SourceError};
use crate::config::draft::{Draft, Form, ImportError, Place, Terms};
use crate::config::emit;
use crate::config::parse;
use crate::config::tools::MAX_DESCRIPTION;
use crate::model::secret::Secret;
use crate::policy::endpoint::Endpoint;

/// Rounds of leaving tools out: each leaves out at least one.
const ROUNDS: usize = 50;

/// What came of it.
#[derive(Debug)]
pub struct Imported {
    /// The file; empty of tools where `count` is 0.
    pub yaml: String,
    /// How many tools it has.
    pub count: usize,
    /// What could not be carried over, or only in part.
    pub notes: Vec<Note>,
}

/// Reads tools from a document.
pub fn import(form: Form, document: &Value, terms: &Terms<'_>) -> Result<Imported, ImportError> {
    let mut notes = Notes::default();
    let drafts = match form {
        Form::Mcp => functions::mcp(document, &mut notes)?,
        Form::Openai => functions::openai(document, &mut notes)?,
        Form::Openapi => openapi::operations(document, terms, &mut notes)?,
    };
    let mut names = names::Names::new(terms.profile);
    let mut tools = Vec::new();
    for draft in drafts {
        let pointer = draft.pointer.clone();
        match tool(form, draft, document, terms, &mut names, &mut notes) {
            Ok(tool) => tools.push((pointer, tool)),
            Err(message) => notes.push(Note::new(pointer, format!("left out: {message}"))),
        }
    }
    keep_valid(&mut tools, &mut notes);
    let count = tools.len();
    let tools: Vec<Value> = tools.into_iter().map(|(_, tool)| tool).collect();
    let mut yaml = format!("# Made by `sortie import {}`.\n", form.as_str());
    yaml.push_str(&emit::yaml(&[("tools", &Value::Array(tools))]));
    Ok(Imported { yaml, count, notes: notes.into_vec() })
}

fn tool(
    form: Form,
    draft: Draft,
    document: &Value,
    terms: &Terms<'_>,
    names: &mut names::Names<'_>,
    notes: &mut Notes,
) -> Result<Value, String> {
    let profile = terms.profile;
    let parameters = match &draft.parameters {
        None => None,
        Some((schema, at)) => {
            let root = if form == Form::Openapi { document } else { schema };
            repair::carried(schema, root, at, profile.dialect, notes)?
        }
    };
    let name = names.take(&draft.name, &draft.pointer, notes)?;
    let url = match (draft.url, &terms.place) {
        (Some(url), _) => url,
        (None, Place::Template(template)) => template.replace("{name}", &name),
        (None, Place::Base(base)) => format!("{}/{name}", base.trim_end_matches('/')),
        (None, Place::Document) => return Err("nothing says where it is".into()),
    };
    Endpoint::parse(&url).map_err(|error| format!("its URL `{url}`: {error}"))?;
    let mut tool = vec![
        ("name", json!(name)),
        ("description", json!(description(&draft.description, &draft.pointer, notes))),
        ("profile", json!(profile.name)),
        ("url", json!(url)),
    ];
    if profile.signs() {
        tool.push(("secret", json!({"current": {"file": format!("secrets/{name}")}})));
    }
    if !draft.annotations.is_empty() {
        tool.push(("annotations", Value::Object(draft.annotations)));
    }
    tool.extend(parameters.map(|schema| ("parameters", schema)));
    Ok(tool.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A description of the length that a tool may have.
fn description(text: &str, pointer: &str, notes: &mut Notes) -> String {
    let text = text.trim();
    let length = text.chars().count();
    if length > MAX_DESCRIPTION {
        let message = format!(
            "the description has {length} characters, the first {MAX_DESCRIPTION} are kept"
        );
        notes.push(Note::new(pointer, message));
    }
    text.chars().take(MAX_DESCRIPTION).collect()
}

/// Leaves out what a configuration would refuse: whatever else was overlooked ends here. A URL may still need an entry of
/// `egress.exceptions`, which stands in the main file.
fn keep_valid(tools: &mut Vec<(String, Value)>, notes: &mut Notes) {
    let lookup = |_: &Source| -> Result<Secret, SourceError> { Err(SourceError::Missing) };
    let environment = Environment::bare(&lookup, 0);
    let mut told = Vec::new();
    for _ in 0..ROUNDS {
        let list: Vec<Value> = tools.iter().map(|(_, tool)| tool.clone()).collect();
        // As it will be written: YAML takes fewer characters than JSON.
        let text = emit::yaml(&[
            ("version", &json!(1)),
            ("auth", &json!("none")),
            ("tools", &Value::Array(list)),
        ]);
        let Err(found) = parse::parse("import", &text, &environment) else { return };
        let mut wrong: Vec<(usize, String)> = Vec::new();
        for error in found.errors {
            let entry = error.path.strip_prefix("tools[").and_then(|rest| rest.split_once(']'));
            let place = entry.and_then(|(index, rest)| Some((index.parse::<usize>().ok()?, rest)));
            match place {
                Some((index, ".url")) => {
                    let pointer = tools.get(index).map(|(pointer, _)| pointer.clone());
                    let note = Note::new(
                        pointer.unwrap_or_default(),
                        format!("its URL: {}", error.message),
                    );
                    told.push(note);
                }
                Some((index, _)) => wrong.push((index, error.message)),
                None => wrong.extend((0..tools.len()).map(|index| (index, error.message.clone()))),
            }
        }
        if wrong.is_empty() {
            break;
        }
        wrong.sort();
        wrong.dedup_by_key(|(index, _)| *index);
        // From the end, so that the places before stay.
        for (index, message) in wrong.into_iter().rev() {
            if index >= tools.len() {
                continue;
            }
            let (pointer, _) = tools.remove(index);
            notes.push(Note::new(pointer, format!("left out: {message}")));
        }
        told.clear();
    }
    told.into_iter().for_each(|note| notes.push(note));
}

#[cfg(test)]
mod tests;
