//! What a runtime sends: JSON, arguments against a schema, the body of a call.

use serde_json::Value;
use sortie::model::id::CallId;
use sortie::model::json::{MAX_DEPTH, measure, read_object, read_value};
use sortie::policy::schema::{ArgumentSchema, Dialect, sentence};
use sortie::serve::calls::parse_call;

use super::{take_line, text};

/// JSON text: the reader takes what `serde_json` takes, but no key twice, and the compact text is the same document.
pub fn json(data: &[u8]) {
    let Ok(raw) = std::str::from_utf8(data) else { return };
    let plain = serde_json::from_str::<Value>(raw);
    // The names by which `serde_json` passes numbers and raw text to itself: it takes them from a document, too.
    let plain = if raw.contains("$serde_json::") {
        read_value(raw).map_err(drop)
    } else {
        plain.map_err(drop)
    };
    let value = match read_value(raw) {
        Ok(value) => value,
        Err(error) => {
            let pointer = error.pointer();
            assert!(pointer.is_empty() || pointer.starts_with('/'), "{pointer}");
            let repeats = || plain.as_ref().is_ok_and(|value| keys(value) < written_keys(raw));
            let deep = || measure(raw).depth > MAX_DEPTH;
            assert!(plain.is_err() || repeats() || deep(), "refused without a reason: {error}");
            return;
        }
    };
    assert_eq!(Some(&value), plain.as_ref().ok(), "read in another way");
    assert_eq!(keys(&value), written_keys(raw), "a key stands twice");
    let Ok(arguments) = read_object(raw) else {
        assert!(!value.is_object());
        return;
    };
    let compact = text(arguments.text());
    is_compact(compact);
    assert_eq!(arguments.value(), &value);
    let again = read_object(compact).expect("the compact text is read");
    assert_eq!((again.text(), again.value()), (arguments.text(), &value));
    let spaces = |text: &str| text.bytes().filter(|b| !b" \t\r\n".contains(b)).collect::<Vec<_>>();
    assert_eq!(spaces(compact), spaces(raw), "more than white space was left out");
}

/// How many keys the objects of a value have.
fn keys(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(keys).sum(),
        Value::Object(members) => members.len() + members.values().map(keys).sum::<usize>(),
        _ => 0,
    }
}

/// The bytes of a document outside of its strings.
fn outside_strings(raw: &str) -> String {
    let mut outside = String::new();
    let mut characters = raw.chars();
    while let Some(character) = characters.next() {
        if character != '"' {
            outside.push(character);
            continue;
        }
        while let Some(inside) = characters.next() {
            match inside {
                '\\' => drop(characters.next()),
                '"' => break,
                _ => {}
            }
        }
    }
    outside
}

/// How many keys stand in the text of a document.
fn written_keys(raw: &str) -> usize {
    outside_strings(raw).matches(':').count()
}

fn is_compact(json: &str) {
    assert!(!outside_strings(json).contains([' ', '\t', '\r', '\n']), "{json}");
}

/// A schema in the first line, arguments below it: whatever they are, there is an answer, and what fits is sent as it
/// is.
pub fn arguments(data: &[u8]) {
    let mut rest = data;
    let Ok(schema) = serde_json::from_slice::<Value>(take_line(&mut rest)) else { return };
    let Ok(raw) = std::str::from_utf8(rest) else { return };
    let verdict = |schema: Option<&Value>, dialect| {
        let compiled = match ArgumentSchema::compile(schema, dialect) {
            Ok(compiled) => compiled,
            Err(errors) => {
                assert!(!errors.is_empty());
                for error in errors {
                    let pointer = &error.pointer;
                    assert!(pointer.is_empty() || pointer.starts_with('/'), "{pointer}");
                    assert!((1..=200).contains(&error.message.len()), "{}", error.message);
                }
                return None;
            }
        };
        let arguments = read_object(raw).ok()?;
        match compiled.check(&arguments) {
            Ok(valid) => {
                assert_eq!(valid.text(), arguments.text());
                Some(true)
            }
            Err(problems) => {
                assert!((1..=5).contains(&problems.len()));
                for problem in &problems {
                    let pointer = &problem.pointer;
                    assert!(pointer.is_empty() || pointer.starts_with('/'), "{pointer}");
                    assert!((1..=200).contains(&problem.message.len()), "{}", problem.message);
                }
                assert!(sentence(&problems).ends_with('.'));
                Some(false)
            }
        }
    };
    let full = verdict(Some(&schema), Dialect::Full);
    if let Some(subset) = verdict(Some(&schema), Dialect::Subset) {
        assert_eq!(full, Some(subset), "a schema of the subset means the same in both dialects");
    }
    let none = verdict(None, Dialect::Full);
    let empty = read_object(raw).is_ok_and(|read| read.text().as_ref() == b"{}");
    assert!(none.is_none_or(|fits| fits == empty), "a tool without parameters takes none");
}

/// The body of a call: what is taken is within the contract's bounds, and what is wrong is named.
pub fn call(data: &[u8]) {
    let call = match parse_call(data) {
        Ok(call) => call,
        Err(error) => {
            let field = error.field.unwrap_or_default();
            assert!(field.is_empty() || field.starts_with('/'), "{field}");
            assert!(!error.message.is_empty());
            return;
        }
    };
    let whole = read_value(text(data)).expect("it is JSON");
    assert_eq!(whole["tool"], call.tool.as_str());
    assert_eq!(&whole["arguments"], call.arguments.value());
    is_compact(text(call.arguments.text()));
    assert_eq!(CallId::parse(call.id.as_str()).as_ref(), Ok(&call.id));
    let context = &call.context;
    let user = context.end_user.clone().unwrap_or_default();
    let bounded = [
        (Some(&call.tool), 128),
        (context.agent_id.as_ref(), 256),
        (context.session_id.as_ref(), 256),
        (context.turn_id.as_ref(), 256),
        (context.model_call_id.as_ref(), 256),
        (user.id.as_ref(), 256),
        (user.external_id.as_ref(), 256),
    ];
    for (text, limit) in bounded {
        let fits = |text: &String| {
            (1..=limit).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        assert!(text.is_none_or(fits), "{text:?}");
    }
    let steps = context.run_id.is_some() && context.step.is_some();
    assert_eq!(context.idempotency_key().is_some(), steps);
    let deadline = call.deadline.map(|deadline| deadline.as_millis());
    assert_eq!(whole["deadline_ms"].as_u64().map(u128::from), deadline);
    for (at, (name, value)) in call.credentials.iter().enumerate() {
        assert_eq!(whole["credentials"][name].as_str().map(str::as_bytes), Some(value.expose()));
        let repeats = |other: &(String, _)| other.0.eq_ignore_ascii_case(name);
        assert!(!call.credentials[..at].iter().any(repeats), "{name} stands twice");
    }
}
