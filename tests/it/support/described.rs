//! Every answer of the api listener that a test sees, compared with what `config/openapi.yaml` says of it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sortie::config::json::value;
use sortie::config::yaml::Document;

use crate::support::http::Reply;

/// Larger bodies are of the same shapes, and a test that looks at many of them has its time.
const LARGEST: usize = 64 << 10;

/// The document, with the schemas that were asked for.
struct Described {
    document: Value,
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

static DESCRIBED: LazyLock<Described> = LazyLock::new(|| {
    let (document, faults) = Document::parse(include_str!("../../../config/openapi.yaml"));
    assert!(faults.is_empty(), "config/openapi.yaml: {faults:?}");
    let document = document.expect("a document");
    Described { document: value(&document, document.root()), compiled: Mutex::new(HashMap::new()) }
});

/// What is wrong with an answer, or with the request that it was given to; nothing where it is as described.
pub(crate) fn wrong(request: &[u8], reply: &Reply) -> Option<String> {
    let request = Asked::read(request)?;
    // What the server's own HTTP answers is no answer of a route.
    if matches!(reply.status, 400 | 431) && reply.body.is_empty() {
        return None;
    }
    let said = |what: String| Some(format!("{} {}: {what}", request.method, request.path));
    let Some((template, methods)) = DESCRIBED.path(request.path) else {
        let is_right = matches!(reply.status, 400 | 404 | 405);
        return if is_right { None } else { said(format!("{} of no path", reply.status)) };
    };
    // Methods are spelt in capitals; a GET is a HEAD too.
    let method = if request.method == "HEAD" { "GET" } else { request.method };
    let is_one = method.chars().all(|letter| letter.is_ascii_uppercase());
    let method = method.to_lowercase();
    let Some(operation) = methods.get(&method).filter(|_| is_one) else {
        let is_right = matches!(reply.status, 400 | 405);
        return if is_right { None } else { said(format!("{} of no method", reply.status)) };
    };
    let place = format!("/paths/{}/{method}", step(template));
    let answer = DESCRIBED.wrong_answer(operation, &place, &request, reply);
    let asked = (200..300)
        .contains(&reply.status)
        .then(|| DESCRIBED.wrong_request(operation, &methods["parameters"], &place, &request));
    answer.or(asked.flatten()).and_then(said)
}

/// What is wrong with an event of a stream.
pub(crate) fn wrong_event(name: &str, data: &Value) -> Option<String> {
    let schema = match name {
        "tool.start" => "StartEvent",
        "tool.confirm" => "ConfirmEvent",
        "tool.end" => "EndEvent",
        _ => "StreamEvent",
    };
    let wrong = DESCRIBED.mismatch(&format!("/components/schemas/{schema}"), data);
    wrong.or_else(|| (data["type"] != name).then(|| format!("{data} is no {name}")))
}

/// The parts of a request that are compared.
struct Asked<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    body: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// None where it is no request that a route could see.
    fn read(request: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(request).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut words = head.lines().next()?.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let is_whole = !head.to_ascii_lowercase().contains("transfer-encoding");
        Some(Self { method, path, query, body: is_whole.then_some(body) })
    }
}

impl Described {
    /// The path of the document that this one is of: the one with the fewest parameters.
    fn path(&self, path: &str) -> Option<(&str, &Value)> {
        let paths = self.document["paths"].as_object().expect("paths").iter();
        let fits = |template: &str| {
            let (steps, parts) = (template.split('/'), path.split('/'));
            template.matches('/').count() == path.matches('/').count()
                && steps
                    .zip(parts)
                    .all(|(step, part)| step == part || (step.starts_with('{') && !part.is_empty()))
        };
        let found = paths.filter(|(template, _)| fits(template));
        let found = found.min_by_key(|(template, _)| template.matches('{').count());
        found.map(|(template, methods)| (template.as_str(), methods))
    }

    /// What a reference leads to, with its place.
    fn resolved<'a>(&'a self, place: String, value: &'a Value) -> (String, &'a Value) {
        match value["$ref"].as_str() {
            None => (place, value),
            Some(to) => {
                let to = to.trim_start_matches('#');
                (to.to_owned(), self.document.pointer(to).expect("a place of the document"))
            }
        }
    }

    fn wrong_answer(
        &self,
        operation: &Value,
        place: &str,
        request: &Asked<'_>,
        reply: &Reply,
    ) -> Option<String> {
        let status = reply.status.to_string();
        let Some(response) = operation["responses"].get(&status) else {
            return Some(format!("the status {status} is not described: {}", reply.text()));
        };
        let (place, response) = self.resolved(format!("{place}/responses/{status}"), response);
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let (place, _) = self.resolved(String::new(), header);
            let Some(value) = reply.header(name) else {
                return Some(format!("{status} without {name}"));
            };
            let value = value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number));
            if let Some(wrong) = self.mismatch(&format!("{place}/schema"), &value) {
                return Some(format!("{name} of {status}: {wrong}"));
            }
        }
        let kind = reply.header("content-type");
        let Some(content) = response["content"].as_object() else {
            let is_empty = reply.body.is_empty() && kind.is_none();
            return (!is_empty).then(|| format!("{status} with a body: {}", reply.text()));
        };
        let Some(kind) = kind.filter(|kind| content.contains_key(*kind)) else {
            return Some(format!("the type {kind:?} of {status} is not described"));
        };
        if kind != "application/json" || request.method == "HEAD" {
            return None;
        }
        if reply.body.len() > LARGEST {
            return None;
        }
        // A tool may answer with a number that no double holds: it is passed on, and cannot be compared here.
        if let (Ok(_), Err(_)) = (
            serde_json::from_slice::<&RawValue>(&reply.body),
            serde_json::from_slice::<Value>(&reply.body),
        ) {
            return None;
        }
        let schema = format!("{place}/content/{}/schema", step(kind));
        self.mismatch(&schema, &reply.json()).map(|wrong| format!("the body of {status}: {wrong}"))
    }

    /// A request that was taken is one that may be sent.
    fn wrong_request(
        &self,
        operation: &Value,
        shared: &Value,
        place: &str,
        request: &Asked<'_>,
    ) -> Option<String> {
        let own = operation["parameters"].as_array().into_iter().flatten();
        let shared = shared.as_array().into_iter().flatten();
        let known: Vec<&Value> =
            own.chain(shared).map(|one| self.resolved(String::new(), one).1).collect();
        for pair in request.query.split('&').filter(|pair| !pair.is_empty()) {
            let name = pair.split('=').next().unwrap_or_default();
            if !known.iter().any(|one| one["in"] == "query" && one["name"] == name) {
                return Some(format!("the parameter {name} is not described"));
            }
        }
        let body = request.body.filter(|body| !body.is_empty())?;
        let described = operation.get("requestBody")?;
        let (place, _) = self.resolved(format!("{place}/requestBody"), described);
        let schema = format!("{place}/content/application~1json/schema");
        // Again numbers: that it is JSON is known where it was taken.
        let body = serde_json::from_str(body).ok()?;
        self.mismatch(&schema, &body).map(|wrong| format!("the body that was taken: {wrong}"))
    }

    /// How a value differs from the schema at this place.
    fn mismatch(&self, place: &str, value: &Value) -> Option<String> {
        let validator = {
            let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
            let made = compiled.entry(place.to_owned()).or_insert_with(|| {
                // Every reference in the document leads to one of its components.
                let mut schema = self.document.pointer(place).expect("a schema").clone();
                schema["components"] = self.document["components"].clone();
                Arc::new(jsonschema::draft202012::new(&schema).expect("a schema"))
            });
            Arc::clone(made)
        };
        let wrong: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{error} at `{}`", error.instance_path()))
            .collect();
        (!wrong.is_empty()).then(|| format!("{} in {value}", wrong.join("; ")))
    }
}

/// A name as one step of a JSON pointer.
fn step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
