//! Function tools of OpenAI's APIs, and tools of an MCP server.

use serde_json::{Map, Value};

use crate::config::carry::{Note, Notes};
use crate::config::draft::{Draft, ImportError};

/// Reads a `tools` array, alone or in a request: functions in the form of either API.
pub(super) fn openai(document: &Value, notes: &mut Notes) -> Result<Vec<Draft>, ImportError> {
    let expected = "an array of OpenAI's tools, or a request with `tools`";
    let (base, list) = list(document, &[""], "/tools", expected)?;
    let mut drafts = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let pointer = format!("{base}/{index}");
        match entry.get("type").and_then(Value::as_str) {
            None | Some("function") => {}
            Some(other) => {
                notes.push(Note::new(
                    pointer,
                    format!("left out: a tool of type {other:?} is the provider's own"),
                ));
                continue;
            }
        }
        let (function, at) = match entry.get("function") {
            Some(function) => (function, format!("{pointer}/function")),
            None => (entry, pointer.clone()),
        };
        let schema = function.get("parameters").filter(|schema| !schema.is_null());
        let parameters = schema.map(|schema| (schema.clone(), format!("{at}/parameters")));
        drafts.extend(draft(function, pointer, parameters, Map::new(), notes));
    }
    Ok(drafts)
}

/// Reads the answer to `tools/list`, with or without its JSON-RPC frame.
pub(super) fn mcp(document: &Value, notes: &mut Notes) -> Result<Vec<Draft>, ImportError> {
    let expected = "the answer of an MCP server to `tools/list`";
    let (base, list) = list(document, &["", "/result"], "/tools", expected)?;
    let holder = base.strip_suffix("/tools").and_then(|holder| document.pointer(holder));
    if holder.and_then(|holder| holder.get("nextCursor")).is_some_and(|cursor| !cursor.is_null()) {
        notes.push(Note::new("/nextCursor", "there are more tools on further pages"));
    }
    let mut drafts = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let pointer = format!("{base}/{index}");
        let schema = entry.get("inputSchema").filter(|schema| !schema.is_null());
        let parameters = schema.map(|schema| (schema.clone(), format!("{pointer}/inputSchema")));
        if entry.get("outputSchema").is_some() {
            let message = "answers are not checked against a schema; it is left out";
            notes.push(Note::new(format!("{pointer}/outputSchema"), message));
        }
        let mut annotations = Map::new();
        for (hint, name) in [
            ("readOnlyHint", "read_only"),
            ("destructiveHint", "destructive"),
            ("idempotentHint", "idempotent"),
        ] {
            let hint = entry.pointer(&format!("/annotations/{hint}"));
            if let Some(truth) = hint.filter(|hint| hint.is_boolean()) {
                annotations.insert(name.into(), truth.clone());
            }
        }
        drafts.extend(draft(entry, pointer, parameters, annotations, notes));
    }
    Ok(drafts)
}

/// The list, with its pointer: the document itself, or below one of these places.
fn list<'d>(
    document: &'d Value,
    places: &[&str],
    key: &str,
    expected: &'static str,
) -> Result<(String, &'d Vec<Value>), ImportError> {
    if let Value::Array(list) = document {
        return Ok((String::new(), list));
    }
    places
        .iter()
        .find_map(|place| {
            let pointer = format!("{place}{key}");
            let list = document.pointer(&pointer)?.as_array()?;
            Some((pointer, list))
        })
        .ok_or(ImportError::Other { expected })
}

fn draft(
    entry: &Value,
    pointer: String,
    parameters: Option<(Value, String)>,
    annotations: Map<String, Value>,
    notes: &mut Notes,
) -> Option<Draft> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::trim);
    let Some(name) = text("name") else {
        notes.push(Note::new(pointer, "left out: it has no name"));
        return None;
    };
    let description = match text("description").filter(|text| !text.is_empty()) {
        Some(description) => description.to_owned(),
        None => {
            notes.push(Note::new(
                &pointer,
                "has no description, and the model chooses by it: write one",
            ));
            format!("Runs {name}; nothing else is said about it.")
        }
    };
    let name = name.to_owned();
    Some(Draft { pointer, name, description, url: None, parameters, annotations })
}
