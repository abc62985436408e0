//! JSON values as YAML that people edit: blocks, and every text in double quotes that could be taken for something else.

use serde_json::Value;

/// Sections one after the other.
pub fn yaml(sections: &[(&str, &Value)]) -> String {
    let mut text = String::new();
    for (name, value) in sections {
        entry(&mut text, name, value, 0);
    }
    text
}

fn entry(text: &mut String, name: &str, value: &Value, indent: usize) {
    text.push_str(&" ".repeat(indent));
    text.push_str(&key(name));
    text.push(':');
    below(text, value, indent + 2);
}

/// What follows a `:`.
fn below(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            for (name, value) in members {
                entry(text, name, value, indent);
            }
        }
        Value::Array(items) if items.iter().any(|item| !is_empty_or_scalar(item)) => {
            text.push('\n');
            for item in items {
                text.push_str(&" ".repeat(indent));
                text.push('-');
                match item {
                    // The first entry stands beside the dash.
                    Value::Object(members) if !members.is_empty() => {
                        let mut inside = String::new();
                        for (name, value) in in_order(members) {
                            entry(&mut inside, name, value, indent + 2);
                        }
                        text.push(' ');
                        text.push_str(inside.trim_start());
                    }
                    other => below(text, other, indent + 2),
                }
            }
        }
        scalar => text.push_str(&format!(" {}\n", printable(&scalar.to_string()))),
    }
}

fn is_empty_or_scalar(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// A tool begins with its name, and ends with its schema.
fn in_order(members: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    const FIRST: [&str; 5] = ["name", "description", "profile", "url", "secret"];
    let place = |name: &str| match FIRST.iter().position(|first| *first == name) {
        Some(place) => place,
        None if name == "parameters" => FIRST.len() + 1,
        None => FIRST.len(),
    };
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(name, _)| place(name));
    members
}

/// A key as it is, where nothing else can be read from it.
fn key(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&name.to_ascii_lowercase().as_str());
    if plain { name.to_owned() } else { printable(&Value::String(name.to_owned()).to_string()) }
}

/// JSON in which every character is one that YAML takes. Odd ones stand within texts only.
fn printable(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        let is_odd = character.is_control()
            || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
        if is_odd {
            text.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::json;
    use crate::config::yaml::Document;
    use proptest::prelude::*;
    use serde_json::json;

    #[track_caller]
    fn comes_back(value: &Value) {
        let text = yaml(&[("all", value)]);
        let (document, faults) = Document::parse(&text);
        assert!(faults.is_empty(), "{faults:?}\n{text}");
        let document = document.expect("a tree");
        assert_eq!(&json::value(&document, document.root())["all"], value, "{text}");
    }

    #[test]
    fn a_tool_is_written_as_people_write_it() {
        let tools = json!([{"name": "a", "url": "https://a.example.com/", "parameters": {"type": "object",
            "required": ["x"], "properties": {"x": {"enum": [1, "on"]}, "on": {}}}, "description": "Says\n\"x\"."}]);
        let expected = "tools:\n  - name: \"a\"\n    description: \"Says\\n\\\"x\\\".\"\n    url: \"https://a.example.com/\"\n    \
             parameters:\n      properties:\n        \"on\": {}\n        x:\n          enum: [1,\"on\"]\n      \
             required: [\"x\"]\n      type: \"object\"\n";
        assert_eq!(yaml(&[("tools", &tools)]), expected);
        comes_back(&tools);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|n| json!(n)),
            ".{0,12}".prop_map(Value::String),
        ];
        leaf.prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::hash_map(".{0,6}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(value in any_value()) {
            comes_back(&value);
        }
    }
}
