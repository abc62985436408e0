//! A carried schema made to fit a wire format: what the format does not take is left out, and said.

use serde_json::Value;

use crate::config::carry::{Note, Notes, carry};
use crate::policy::schema::{ArgumentSchema, Dialect};

/// Rounds of leaving words out; each leaves out at least one.
const ROUNDS: usize = 40;

/// The schema as the dialect takes it; `None` where the tool takes no arguments. An error says why it cannot be.
pub(super) fn carried(
    schema: &Value,
    root: &Value,
    at: &str,
    dialect: Dialect,
    notes: &mut Notes,
) -> Result<Option<Value>, String> {
    let too_large = || "the schema of its arguments leads to too many others".to_owned();
    let mut carried = carry(schema, root, at, dialect, notes).ok_or_else(too_large)?;
    if carried.as_object().is_some_and(serde_json::Map::is_empty) {
        carried = serde_json::json!({"type": "object"});
    }
    for _ in 0..ROUNDS {
        let Err(faults) = ArgumentSchema::compile(Some(&carried), dialect) else {
            return Ok(Some(carried));
        };
        for fault in &faults {
            if fault.pointer.is_empty() || fault.pointer == "/type" {
                return Err(format!("the schema of its arguments {}", fault.message));
            }
        }
        let mut is_less = false;
        for fault in faults {
            if let Some(what) = remove(&mut carried, &fault.pointer) {
                is_less = true;
                let message = format!("{} ({what} is left out)", fault.message);
                notes.push(Note::new(format!("{at}{}", fault.pointer), message));
            }
        }
        if !is_less {
            break;
        }
    }
    Err("the schema of its arguments cannot be made to fit".into())
}

/// Takes what stands there out of its parent; says what that was.
fn remove(schema: &mut Value, pointer: &str) -> Option<&'static str> {
    let (parent_path, last) = pointer.rsplit_once('/')?;
    let last = last.replace("~1", "/").replace("~0", "~");
    let is_property = parent_path.ends_with("/properties");
    let parent = schema.pointer_mut(parent_path)?;
    match parent {
        Value::Object(members) => {
            members.remove(&last)?;
        }
        Value::Array(items) => {
            let index = last.parse::<usize>().ok().filter(|index| *index < items.len())?;
            items.remove(index);
            if items.is_empty() {
                // An empty list of ways is none at all.
                return remove(schema, parent_path).or(Some("it"));
            }
        }
        _ => return None,
    }
    if !is_property {
        return Some("it");
    }
    let object = parent_path.strip_suffix("/properties")?;
    if let Some(Value::Array(required)) = schema.pointer_mut(object)?.get_mut("required") {
        required.retain(|name| name.as_str() != Some(&last));
    }
    Some("the argument")
}
