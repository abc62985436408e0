//! OpenAPI 3: each POST operation with a JSON body is a tool.

use serde_json::{Map, Value};

use crate::config::carry::{Note, Notes};
use crate::config::draft::{Draft, ImportError, Place, Terms};
use crate::model::json::pointer_step;

/// References to parameters and bodies are followed so far.
const HOPS: usize = 8;
const METHODS: &[&str] = &["delete", "get", "head", "options", "patch", "put", "query", "trace"];

/// Reads the operations.
pub(super) fn operations(
    document: &Value,
    terms: &Terms<'_>,
    notes: &mut Notes,
) -> Result<Vec<Draft>, ImportError> {
    let version = document.get("openapi").and_then(Value::as_str).unwrap_or_default();
    let paths = document.get("paths").and_then(Value::as_object);
    let (true, Some(paths)) = (version.starts_with("3."), paths) else {
        return Err(ImportError::Other { expected: "an OpenAPI 3 document with `paths`" });
    };
    let reader = Reader { document, terms };
    let mut drafts = Vec::new();
    let mut others = 0_usize;
    let mut without_server = false;
    for (path, item) in paths {
        let at = format!("/paths/{}", pointer_step(path));
        let item = reader.followed(item);
        others += METHODS.iter().filter(|method| item.get(**method).is_some()).count();
        let Some(operation) = item.get("post") else { continue };
        match reader.operation(path, item, operation, &format!("{at}/post"), notes) {
            Ok(draft) => drafts.push(draft),
            Err(Left::Out(message)) => {
                notes.push(Note::new(format!("{at}/post"), format!("left out: {message}")));
            }
            Err(Left::NoServer) => without_server = true,
        }
    }
    if without_server && drafts.is_empty() {
        return Err(ImportError::NoServer);
    }
    if others > 0 {
        let message = format!("{others} operations of other methods than POST are left out");
        notes.push(Note::new("/paths", message));
    }
    if let Some(schemes) =
        document.pointer("/components/securitySchemes").and_then(Value::as_object)
    {
        for (name, scheme) in schemes {
            let at = format!("/components/securitySchemes/{}", pointer_step(name));
            notes.push(Note::new(at, security(reader.followed(scheme))));
        }
    }
    Ok(drafts)
}

/// What an operator writes instead.
fn security(scheme: &Value) -> String {
    let text = |key: &str| scheme.get(key).and_then(Value::as_str).unwrap_or_default();
    let cure = match (text("type"), text("scheme").to_ascii_lowercase().as_str(), text("in")) {
        ("http", "bearer", _) => {
            "write `authentication: {bearer: {file: …}}` at the tools".to_owned()
        }
        ("http", "basic", _) => {
            "write `authentication: {basic: {user: …, password: {file: …}}}` at the tools"
                .to_owned()
        }
        ("oauth2" | "openIdConnect", ..) => {
            "write `authentication: {oauth2: …}` at the tools, for client credentials".to_owned()
        }
        ("apiKey", _, "header") => {
            format!("write `headers: {{{:?}: {{file: …}}}}` at the tools", text("name"))
        }
        ("apiKey", _, "cookie") => "a key in a cookie cannot be sent".to_owned(),
        ("mutualTLS", ..) => "write `client_certificate` at the tools".to_owned(),
        (kind, ..) => format!("a scheme of type {kind:?} cannot be carried over"),
    };
    format!("how callers are told apart is not carried over: {cure}")
}

/// Why an operation is no tool.
enum Left {
    NoServer,
    Out(String),
}

struct Reader<'d> {
    document: &'d Value,
    terms: &'d Terms<'d>,
}

impl<'d> Reader<'d> {
    /// Where references within the document lead.
    fn followed(&self, value: &'d Value) -> &'d Value {
        let mut value = value;
        for _ in 0..HOPS {
            let reference = value.get("$ref").and_then(Value::as_str);
            let target = reference.and_then(|reference| reference.strip_prefix('#'));
            match target.and_then(|pointer| self.document.pointer(pointer)) {
                Some(target) => value = target,
                None => break,
            }
        }
        value
    }

    fn operation(
        &self,
        path: &str,
        item: &'d Value,
        operation: &'d Value,
        at: &str,
        notes: &mut Notes,
    ) -> Result<Draft, Left> {
        // The host is somebody else's to say: nothing of a path may become a part of it.
        if !path.starts_with('/') {
            return Err(Left::Out("its path does not begin with `/`".into()));
        }
        let body = operation.get("requestBody").map(|body| self.followed(body));
        let (media, schema) = body.and_then(json_schema).ok_or_else(|| {
            let kinds: Vec<&str> = body
                .and_then(|body| body.get("content")?.as_object())
                .map(|content| content.keys().map(String::as_str).collect())
                .unwrap_or_default();
            Left::Out(match kinds.as_slice() {
                [] => "it has no JSON body".into(),
                kinds => format!("its body is {}, not JSON", kinds.join(", ")),
            })
        })?;
        let target = self.target(path, item, operation, at, notes)?;
        let server = self.server(item, operation)?;
        let url = format!("{}{target}", server.trim_end_matches('/'));
        let text = |key: &str| {
            let text = operation.get(key).and_then(Value::as_str).map(str::trim);
            text.filter(|text| !text.is_empty())
        };
        let name = text("operationId").map_or_else(|| format!("post{path}"), str::to_owned);
        let description = match (text("summary"), text("description")) {
            (Some(summary), Some(more)) if more != summary => format!("{summary}. {more}"),
            (Some(one), _) | (None, Some(one)) => one.to_owned(),
            (None, None) => {
                notes.push(Note::new(
                    at,
                    "has no description, and the model chooses by it: write one",
                ));
                format!("Sends POST {path}; nothing else is said about it.")
            }
        };
        if operation.get("deprecated").and_then(Value::as_bool) == Some(true) {
            notes.push(Note::new(at, "is deprecated"));
        }
        let place = format!("{at}/requestBody/content/{}/schema", pointer_step(media));
        let parameters = Some((schema.clone(), place));
        Ok(Draft {
            pointer: at.to_owned(),
            name,
            description,
            url: Some(url),
            parameters,
            annotations: Map::new(),
        })
    }

    /// Path and query, with what `--set` gives.
    fn target(
        &self,
        path: &str,
        item: &'d Value,
        operation: &'d Value,
        at: &str,
        notes: &mut Notes,
    ) -> Result<String, Left> {
        let given = |name: &str| {
            let found = self.terms.set.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| encoded(value))
        };
        let mut target = path.to_owned();
        let mut query = Vec::new();
        let lists =
            [item, operation].into_iter().filter_map(|one| one.get("parameters")?.as_array());
        for parameter in lists.flatten().map(|parameter| self.followed(parameter)) {
            let text = |key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default();
            let (name, place) = (text("name"), text("in"));
            let is_required = parameter.get("required").and_then(Value::as_bool) == Some(true);
            match (place, given(name)) {
                // Those that are left over are told below.
                ("path", _) => {}
                ("query", Some(value)) => query.push(format!("{}={value}", encoded(name))),
                ("query", None) if is_required => {
                    let message =
                        format!("its query needs `{name}`; give it with --set {name}=VALUE");
                    return Err(Left::Out(message));
                }
                ("cookie", _) if is_required => {
                    return Err(Left::Out(format!(
                        "it needs the cookie `{name}`, and none is sent"
                    )));
                }
                ("header", _) if is_required => {
                    let message = format!(
                        "the header `{name}` is not carried over, and needed: write `headers`"
                    );
                    notes.push(Note::new(at, message));
                }
                (place, _) => {
                    notes.push(Note::new(
                        at,
                        format!("the {place} parameter `{name}` is not carried over"),
                    ));
                }
            }
        }
        for (name, value) in &self.terms.set {
            target = target.replace(&format!("{{{name}}}"), &encoded(value));
        }
        if let Some((_, rest)) = target.split_once('{') {
            let name = rest.split('}').next().unwrap_or_default();
            let message = format!("its path needs `{name}`; give it with --set {name}=VALUE");
            return Err(Left::Out(message));
        }
        if !query.is_empty() {
            target.push('?');
            target.push_str(&query.join("&"));
        }
        Ok(target)
    }

    fn server(&self, item: &Value, operation: &Value) -> Result<String, Left> {
        if let Place::Base(base) = &self.terms.place {
            return Ok(base.clone());
        }
        let holders = [operation, item, self.document];
        let server = holders.iter().find_map(|one| one.get("servers")?.as_array()?.first());
        let mut url =
            server.and_then(|server| server.get("url")?.as_str()).unwrap_or_default().to_owned();
        let variables = server.and_then(|server| server.get("variables")?.as_object());
        for (name, variable) in variables.into_iter().flatten() {
            let given = self.terms.set.iter().find(|(known, _)| known == name);
            let default = variable.get("default").and_then(Value::as_str);
            if let Some(value) = given.map(|(_, value)| value.as_str()).or(default) {
                url = url.replace(&format!("{{{name}}}"), value);
            }
        }
        if url.starts_with("http") { Ok(url) } else { Err(Left::NoServer) }
    }
}

/// The schema of the JSON body, with its media type.
fn json_schema(body: &Value) -> Option<(&str, &Value)> {
    let content = body.get("content")?.as_object()?;
    let is_json = |media: &str| {
        let essence = media.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    };
    let (media, entry) = content.iter().find(|(media, _)| is_json(media))?;
    Some((media, entry.get("schema")?))
}

/// A value within a path or a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
