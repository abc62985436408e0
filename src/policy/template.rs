//! Body templates: the JSON text that a profile sends, with slots for what the call brings.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Number, Value};

use crate::model::call::{CallContext, EndUser};
use crate::model::id::{CallId, IdempotencyKey, ToolName};
use crate::model::time::rfc3339;
use crate::policy::profile_fault::ProfileFault;

/// A profile's `body` as it is written: JSON whose keys keep their order.
#[derive(Debug, Clone, PartialEq)]
pub enum TemplateText {
    /// Several values.
    List(Vec<TemplateText>),
    /// Keys and values in order.
    Object(Vec<(String, TemplateText)>),
    /// Null, a number or a Boolean.
    Plain(Value),
    /// Text: `$slot`, `$slot?`, or itself (`$$` stands for `$`).
    Text(String),
}

/// A profile's body, compiled.
#[derive(Debug, Clone)]
pub struct BodyTemplate(Node);

/// What a call can put into a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// `$agent_id`
    AgentId,
    /// `$arguments`: the validated text, byte for byte.
    Arguments,
    /// `$call_id`
    CallId,
    /// `$call_index`
    CallIndex,
    /// `$end_user`: an object of `id` and `external_id`, or null.
    EndUser,
    /// `$end_user.external_id`
    EndUserExternalId,
    /// `$end_user.id`
    EndUserId,
    /// `$idempotency_key`
    IdempotencyKey,
    /// `$model_call_id`
    ModelCallId,
    /// `$run_id`
    RunId,
    /// `$sent_at`: RFC 3339, UTC, three decimals.
    SentAt,
    /// `$session_id`
    SessionId,
    /// `$step`
    Step,
    /// `$test`
    Test,
    /// `$tool`
    Tool,
    /// `$turn_id`
    TurnId,
}

/// What one call puts into the slots.
#[derive(Debug, Clone, Copy)]
pub struct BodyValues<'a> {
    /// The tool.
    pub tool: &'a ToolName,
    /// The call.
    pub call_id: &'a CallId,
    /// Where it comes from.
    pub context: &'a CallContext,
    /// The validated text.
    pub arguments: &'a Bytes,
    /// Unix milliseconds of the first attempt.
    pub sent_at_ms: i64,
    /// The key of run, step and index.
    pub idempotency_key: Option<&'a IdempotencyKey>,
}

#[derive(Debug, Clone)]
enum Node {
    List(Vec<Item>),
    Object(Vec<Field>),
    /// JSON text that is the same for every call.
    Raw(String),
    Slot(Slot),
}

#[derive(Debug, Clone)]
struct Item {
    node: Node,
    /// Written with `?`: left out when null.
    optional: bool,
}

#[derive(Debug, Clone)]
struct Field {
    /// The key as JSON, with its colon.
    key: String,
    item: Item,
}

/// What a slot holds for one call.
enum Content<'a> {
    Bool(bool),
    EndUser(&'a EndUser),
    Json(&'a [u8]),
    Null,
    Number(u32),
    Text(&'a str),
    Time(i64),
}

impl Slot {
    /// Every slot, as they are listed to whoever misspelt one.
    pub const ALL: [Self; 16] = [
        Self::Tool,
        Self::CallId,
        Self::Arguments,
        Self::AgentId,
        Self::SessionId,
        Self::TurnId,
        Self::EndUser,
        Self::EndUserId,
        Self::EndUserExternalId,
        Self::Test,
        Self::SentAt,
        Self::RunId,
        Self::Step,
        Self::CallIndex,
        Self::IdempotencyKey,
        Self::ModelCallId,
    ];

    /// The slot's name, without `$`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AgentId => "agent_id",
            Self::Arguments => "arguments",
            Self::CallId => "call_id",
            Self::CallIndex => "call_index",
            Self::EndUser => "end_user",
            Self::EndUserExternalId => "end_user.external_id",
            Self::EndUserId => "end_user.id",
            Self::IdempotencyKey => "idempotency_key",
            Self::ModelCallId => "model_call_id",
            Self::RunId => "run_id",
            Self::SentAt => "sent_at",
            Self::SessionId => "session_id",
            Self::Step => "step",
            Self::Test => "test",
            Self::Tool => "tool",
            Self::TurnId => "turn_id",
        }
    }
}

impl BodyTemplate {
    /// Compiles a body; all faults at once, with paths that begin with `body`.
    pub fn compile(text: &TemplateText) -> Result<Self, Vec<ProfileFault>> {
        let mut faults = Vec::new();
        let item = compile_item(text, "body", &mut faults);
        if item.optional {
            faults.push(ProfileFault::new(
                "body",
                "the whole body cannot be left out; write it without `?`",
            ));
        }
        if faults.is_empty() { Ok(Self(item.node)) } else { Err(faults) }
    }

    /// Whether a slot stands anywhere in the body.
    pub fn holds(&self, slot: Slot) -> bool {
        self.0.holds(slot)
    }

    /// The body of one call: compact JSON.
    pub fn fill(&self, values: &BodyValues<'_>) -> Bytes {
        if let Node::Slot(Slot::Arguments) = self.0 {
            return values.arguments.clone();
        }
        let mut out = Vec::with_capacity(values.arguments.len() + 512);
        self.0.write(values, &mut out);
        out.into()
    }
}

impl Node {
    fn holds(&self, slot: Slot) -> bool {
        match self {
            Self::List(items) => items.iter().any(|item| item.node.holds(slot)),
            Self::Object(fields) => fields.iter().any(|field| field.item.node.holds(slot)),
            Self::Raw(_) => false,
            Self::Slot(own) => *own == slot,
        }
    }

    fn write(&self, values: &BodyValues<'_>, out: &mut Vec<u8>) {
        match self {
            Self::List(items) => {
                let items = items.iter().filter(|item| item.is_sent(values));
                write_group(b"[]", items, out, |item, out| item.node.write(values, out));
            }
            Self::Object(fields) => {
                let fields = fields.iter().filter(|field| field.item.is_sent(values));
                write_group(b"{}", fields, out, |field, out| {
                    out.extend_from_slice(field.key.as_bytes());
                    field.item.node.write(values, out);
                });
            }
            Self::Raw(json) => out.extend_from_slice(json.as_bytes()),
            Self::Slot(slot) => values.content(*slot).write(out),
        }
    }
}

impl Item {
    fn is_sent(&self, values: &BodyValues<'_>) -> bool {
        match self.node {
            Node::Slot(slot) if self.optional => !matches!(values.content(slot), Content::Null),
            _ => true,
        }
    }
}

impl<'a> BodyValues<'a> {
    fn content(&self, slot: Slot) -> Content<'a> {
        fn text<T: AsRef<str> + ?Sized>(value: Option<&T>) -> Content<'_> {
            value.map_or(Content::Null, |text| Content::Text(text.as_ref()))
        }
        let context = self.context;
        let end_user = context.end_user.as_ref();
        match slot {
            Slot::AgentId => text(context.agent_id.as_ref()),
            Slot::Arguments => Content::Json(self.arguments),
            Slot::CallId => Content::Text(self.call_id.as_str()),
            Slot::CallIndex => Content::Number(context.call_index),
            Slot::EndUser => end_user.map_or(Content::Null, Content::EndUser),
            Slot::EndUserExternalId => text(end_user.and_then(|user| user.external_id.as_ref())),
            Slot::EndUserId => text(end_user.and_then(|user| user.id.as_ref())),
            Slot::IdempotencyKey => text(self.idempotency_key.map(IdempotencyKey::as_str)),
            Slot::ModelCallId => text(context.model_call_id.as_ref()),
            Slot::RunId => text(context.run_id.as_ref().map(|id| id.as_str())),
            Slot::SentAt => Content::Time(self.sent_at_ms),
            Slot::SessionId => text(context.session_id.as_ref()),
            Slot::Step => text(context.step.as_ref().map(|step| step.as_str())),
            Slot::Test => Content::Bool(context.test),
            Slot::Tool => Content::Text(self.tool.as_str()),
            Slot::TurnId => text(context.turn_id.as_ref()),
        }
    }
}

impl Content<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::EndUser(user) => {
                out.extend_from_slice(b"{\"id\":");
                write_text(user.id.as_deref(), out);
                out.extend_from_slice(b",\"external_id\":");
                write_text(user.external_id.as_deref(), out);
                out.push(b'}');
            }
            Self::Json(json) => out.extend_from_slice(json),
            Self::Null => out.extend_from_slice(b"null"),
            Self::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Text(text) => write_text(Some(text), out),
            Self::Time(ms) => {
                out.push(b'"');
                out.extend_from_slice(rfc3339(*ms).as_str().as_bytes());
                out.push(b'"');
            }
        }
    }
}

fn write_text(text: Option<&str>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, &text).expect("text is written to memory");
}

fn write_group<T>(
    braces: &[u8; 2],
    members: impl Iterator<Item = T>,
    out: &mut Vec<u8>,
    write: impl Fn(T, &mut Vec<u8>),
) {
    let [open, close] = *braces;
    out.push(open);
    for (at, member) in members.enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(member, out);
    }
    out.push(close);
}

fn compile_item(text: &TemplateText, path: &str, faults: &mut Vec<ProfileFault>) -> Item {
    let node = match text {
        TemplateText::List(items) => {
            let items = items.iter().enumerate();
            let items =
                items.map(|(at, item)| compile_item(item, &format!("{path}[{at}]"), faults));
            Node::List(items.collect())
        }
        TemplateText::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| Field {
                key: format!("{}:", Value::from(key.as_str())),
                item: compile_item(value, &format!("{path}.{key}"), faults),
            });
            Node::Object(fields.collect())
        }
        TemplateText::Plain(value) => Node::Raw(value.to_string()),
        TemplateText::Text(text) => match compile_text(text) {
            Ok(item) => return item,
            Err(message) => {
                faults.push(ProfileFault::new(path, message));
                Node::Raw(String::new())
            }
        },
    };
    Item { node, optional: false }
}

fn compile_text(text: &str) -> Result<Item, String> {
    let name = text.strip_prefix('$').filter(|rest| !rest.starts_with('$'));
    let Some(name) = name else {
        let literal = text.replace("$$", "");
        if literal.contains('$') {
            return Err("a slot stands alone; write `$$` for a `$` in text".into());
        }
        return Ok(Item {
            node: Node::Raw(Value::from(text.replace("$$", "$")).to_string()),
            optional: false,
        });
    };
    let (name, optional) = name.strip_suffix('?').map_or((name, false), |name| (name, true));
    match Slot::ALL.into_iter().find(|slot| slot.as_str() == name) {
        Some(slot) => Ok(Item { node: Node::Slot(slot), optional }),
        None => {
            let known = Slot::ALL.map(|slot| format!("${}", slot.as_str())).join(", ");
            Err(format!("`${name}` is no slot of a body; there are {known}"))
        }
    }
}

impl<'de> Deserialize<'de> for TemplateText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TemplateVisitor)
    }
}

struct TemplateVisitor;

impl<'de> Visitor<'de> for TemplateVisitor {
    type Value = TemplateText;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a body template")
    }

    fn visit_bool<E>(self, value: bool) -> Result<TemplateText, E> {
        Ok(TemplateText::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<TemplateText, E> {
        Ok(TemplateText::Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<TemplateText, E> {
        Ok(TemplateText::Plain(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<TemplateText, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("JSON has no such number"))?;
        Ok(TemplateText::Plain(number.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<TemplateText, E> {
        Ok(TemplateText::Text(value.to_owned()))
    }

    fn visit_unit<E: Error>(self) -> Result<TemplateText, E> {
        Ok(TemplateText::Plain(Value::Null))
    }

    fn visit_none<E: Error>(self) -> Result<TemplateText, E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<TemplateText, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(TemplateText::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TemplateText, A::Error> {
        let mut fields: Vec<(String, TemplateText)> = Vec::new();
        while let Some((key, value)) = map.next_entry::<String, _>()? {
            if fields.iter().any(|(known, _)| *known == key) {
                return Err(A::Error::custom(format!("the key `{key}` stands there twice")));
            }
            fields.push((key, value));
        }
        Ok(TemplateText::Object(fields))
    }
}

#[cfg(test)]
mod tests;
