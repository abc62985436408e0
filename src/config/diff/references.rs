//! The places of secrets: values are never compared, since whoever reviews a file need not have them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::change::{Changes, Kind, Told, pairs};

/// Compares the places outside of tools.
pub(super) fn compare(changes: &mut Changes, old: &Value, new: &Value) {
    let outside = |all: &Value| {
        let mut found = BTreeMap::new();
        for (name, part) in all.as_object().into_iter().flatten() {
            if name != "tools" {
                collect(part, name.clone(), &mut found);
            }
        }
        found
    };
    compare_places(changes, &outside(old), &outside(new));
    let folder = |all: &Value| {
        let folder = all.pointer("/secrets/dir").and_then(Value::as_str);
        Told::text(folder.unwrap_or("none"))
    };
    changes.compare(Kind::Reference, "secrets.dir", &folder(old), &folder(new));
}

/// Compares the places of one tool, whose path this is.
pub(super) fn compare_tool(changes: &mut Changes, path: &str, old: &Value, new: &Value) {
    let of = |written: &Value| {
        let mut found = BTreeMap::new();
        for (name, part) in written.as_object().into_iter().flatten() {
            // A schema may have arguments of such names.
            if !["input", "parameters"].contains(&name.as_str()) {
                collect(part, format!("{path}.{name}"), &mut found);
            }
        }
        found
    };
    compare_places(changes, &of(old), &of(new));
}

fn compare_places(
    changes: &mut Changes,
    old: &BTreeMap<String, String>,
    new: &BTreeMap<String, String>,
) {
    for (path, old, new) in pairs(old, new) {
        let told = |place: Option<&String>| Told::text(place.map_or("none", String::as_str));
        // Other authorities and other keys of tokens are other people.
        let kind = match path.rsplit('.').next() {
            Some("jwks") => Kind::KeySet,
            Some("client_ca") => Kind::Roots,
            _ => Kind::Reference,
        };
        let is_new = old.is_none() || new.is_none();
        changes.compare(if is_new { Kind::Reference } else { kind }, path, &told(old), &told(new));
    }
}

/// Every `{file: …}` and `{env: …}` below, by its path. A list's entry goes by its name, where it has one.
fn collect(value: &Value, path: String, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(members) => {
            let place = ["file", "env"].into_iter().find_map(|way| {
                let place = members.get(way)?.as_str()?;
                let prefix = members.get("prefix").and_then(Value::as_str);
                let prefix = prefix.map(|prefix| format!(" after {prefix:?}")).unwrap_or_default();
                Some(format!("{way} `{place}`{prefix}"))
            });
            match place {
                Some(place) => {
                    found.insert(path, place);
                }
                None => {
                    for (name, part) in members {
                        collect(part, format!("{path}.{name}"), found);
                    }
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = ["name", "issuer"].into_iter().find_map(|key| item.get(key)?.as_str());
                let path = match name {
                    Some(name) => format!("{path}.{name}"),
                    None => format!("{path}[{index}]"),
                };
                collect(item, path, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
