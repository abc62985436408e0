//! Spans as OTLP has them: each is written once, when it ends, and a request is made of those that wait.

use crate::model::trace::{SpanId, TraceContext};
use crate::telemetry::protobuf::{Field, Message, fields};

/// The flags of a span: it is sampled, and it is known whether its parent is elsewhere.
const SAMPLED_AND_KNOWN: u32 = 0x101;
/// The flag of a span whose parent is the caller's.
const PARENT_IS_REMOTE: u32 = 0x200;
const STATUS_ERROR: u64 = 2;

/// What a span is to the process that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something that happens inside.
    Internal = 1,
    /// A request to somebody else.
    Client = 3,
}

/// A value of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// An integer.
    Number(u64),
    /// A text.
    Text(&'a str),
    /// Yes or no.
    Truth(bool),
}

/// The name of an attribute, and its value where there is one.
pub(super) type Attribute<'a> = (&'static str, Option<Value<'a>>);

/// A span that has ended.
#[derive(Debug)]
pub(super) struct Span<'a> {
    /// The trace, and the caller's span where the parent is that one.
    pub(super) context: TraceContext,
    /// Its own id.
    pub(super) id: SpanId,
    /// The span around it, where that is one of this process.
    pub(super) inside: Option<SpanId>,
    /// Its name.
    pub(super) name: &'a str,
    /// What it is.
    pub(super) kind: Kind,
    /// Unix nanoseconds of its beginning and its end.
    pub(super) nanoseconds: [u64; 2],
    /// What is known of it.
    pub(super) attributes: &'a [Attribute<'a>],
    /// What went wrong.
    pub(super) error: Option<&'a str>,
}

impl Span<'_> {
    /// Appends it as one of the spans of a scope.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        Message(out).message(2, |span| {
            span.bytes(1, self.context.id.bytes());
            span.bytes(2, self.id.bytes());
            if let Some(parent) = self.inside.or(self.context.parent) {
                span.bytes(4, parent.bytes());
            }
            span.text(5, self.name);
            span.number(6, self.kind as u64);
            let [begin, end] = self.nanoseconds;
            span.fixed64(7, begin);
            span.fixed64(8, end.max(begin));
            let own = [("error.type", self.error.map(Value::Text))];
            for (name, value) in self.attributes.iter().chain(&own) {
                let Some(value) = value else { continue };
                span.message(9, |pair| write_attribute(pair, name, *value));
            }
            if let Some(error) = self.error {
                span.message(15, |status| {
                    status.text(2, error);
                    status.number(3, STATUS_ERROR);
                });
            }
            let is_remote = self.inside.is_none() && self.context.parent.is_some();
            let remote = if is_remote { PARENT_IS_REMOTE } else { 0 };
            span.fixed32(16, SAMPLED_AND_KNOWN | remote);
        });
    }
}

fn write_attribute(pair: &mut Message<'_>, name: &str, value: Value<'_>) {
    pair.text(1, name);
    pair.message(2, |any| match value {
        Value::Text(text) => any.text(1, text),
        Value::Truth(truth) => any.number(2, u64::from(truth)),
        Value::Number(number) => any.number(3, number),
    });
}

/// The body of an export: these spans, of what `resource` says.
pub fn request<'a>(
    resource: &[(String, String)],
    spans: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::new();
    Message(&mut out).message(1, |of_resource| {
        of_resource.message(1, |message| {
            for (name, value) in resource {
                message.message(1, |pair| write_attribute(pair, name, Value::Text(value)));
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.text(1, env!("CARGO_PKG_NAME"));
                scope.text(2, env!("CARGO_PKG_VERSION"));
            });
            for written in spans {
                of_scope.0.extend_from_slice(written);
            }
        });
    });
    out
}

/// How many spans of an export were not taken, and why, by the body of its answer.
pub fn refused(answer: &[u8]) -> (u64, String) {
    let partial = fields(answer).find_map(|(field, value)| match value {
        Field::Bytes(bytes) if field == 1 => Some(bytes),
        Field::Bytes(_) | Field::Number(_) => None,
    });
    let mut refused = (0, String::new());
    for (field, value) in fields(partial.unwrap_or_default()) {
        match (field, value) {
            (1, Field::Number(count)) => refused.0 = count,
            (2, Field::Bytes(text)) => refused.1 = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::TraceId;

    fn span(inside: Option<SpanId>, error: Option<&str>) -> Vec<u8> {
        let parent = SpanId::new([9; 8]);
        let id = TraceId::new([7; 16]).expect("not zero");
        let mut out = Vec::new();
        Span {
            context: TraceContext { id, parent, is_sampled: true },
            id: SpanId::new([8; 8]).expect("not zero"),
            inside,
            name: "dns",
            kind: Kind::Internal,
            nanoseconds: [5, 4],
            attributes: &[("a", Some(Value::Truth(true))), ("b", None)],
            error,
        }
        .write(&mut out);
        out
    }

    fn inner(bytes: &[u8]) -> Vec<(u32, Field<'_>)> {
        let outer: Vec<_> = fields(bytes).collect();
        let [(2, Field::Bytes(inner))] = outer[..] else { panic!("{outer:?}") };
        fields(inner).collect()
    }

    #[test]
    fn a_span_ends_no_earlier_than_it_begins_and_says_whose_its_parent_is() {
        let written = span(None, None);
        let found = inner(&written);
        let [begin, end] = [7, 8].map(|at| found.iter().find(|(field, _)| *field == at));
        assert_eq!(begin.map(|(_, at)| *at), Some(Field::Number(5)));
        assert_eq!(end.map(|(_, at)| *at), Some(Field::Number(5)));
        assert!(found.contains(&(4, Field::Bytes(&[9; 8]))));
        assert!(found.contains(&(16, Field::Number(0x301))));
        assert_eq!(found.iter().filter(|(field, _)| *field == 9).count(), 1, "what is there");
        let written = span(SpanId::new([6; 8]), None);
        let found = inner(&written);
        assert!(found.contains(&(4, Field::Bytes(&[6; 8]))));
        assert!(found.contains(&(16, Field::Number(0x101))));
    }

    #[test]
    fn an_error_is_a_status_and_an_attribute() {
        let written = span(None, Some("timeout"));
        let found = inner(&written);
        let status = found.iter().find_map(|(field, value)| match value {
            Field::Bytes(bytes) if *field == 15 => Some(fields(bytes).collect::<Vec<_>>()),
            _ => None,
        });
        let expected = [(2, Field::Bytes(b"timeout")), (3, Field::Number(2))];
        assert_eq!(status.expect("a status"), expected);
        assert_eq!(found.iter().filter(|(field, _)| *field == 9).count(), 2);
    }

    #[test]
    fn what_a_collector_did_not_take_is_read() {
        let mut answer = Vec::new();
        Message(&mut answer).message(1, |partial| {
            partial.number(1, 3);
            partial.text(2, "too old");
        });
        assert_eq!(refused(&answer), (3, "too old".into()));
        assert_eq!(refused(b""), (0, String::new()));
        assert_eq!(refused(b"{\"partialSuccess\":{}}"), (0, String::new()));
    }
}
