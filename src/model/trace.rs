//! Trace context as W3C has it: the trace that a call belongs to, and whether it is recorded.

use std::fmt;

use serde::{Serialize, Serializer};

/// The length of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A trace's id: 16 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// A span's id: 8 bytes, not all of them zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Where a call stands in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub id: TraceId,
    /// The caller's span, where the caller gave one.
    pub parent: Option<SpanId>,
    /// Whether its spans are recorded.
    pub is_sampled: bool,
}

impl TraceId {
    /// Takes bytes that are not all zero.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        bytes.iter().any(|&byte| byte != 0).then_some(Self(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    fn read(text: &str) -> Option<Self> {
        read_hex(text).and_then(Self::new)
    }
}

impl SpanId {
    /// Takes bytes that are not all zero.
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        bytes.iter().any(|&byte| byte != 0).then_some(Self(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl TraceContext {
    /// Reads a `traceparent`; `None` where it is not one. Of a later version the part is read that this one has too.
    pub fn read(header: &str) -> Option<Self> {
        let context = Self::read_any(header)?;
        context.parent.is_some().then_some(context)
    }

    /// Reads what [`Self::to_text`] wrote.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::read_any(text)
    }

    fn read_any(text: &str) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let mut parts = known.splitn(4, '-');
        let [version] = read_hex::<1>(parts.next()?)?;
        let is_whole = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more.starts_with('-'),
        };
        let id = TraceId::read(parts.next()?)?;
        let parent = SpanId::new(read_hex(parts.next()?)?);
        let [flags] = read_hex::<1>(parts.next()?)?;
        is_whole.then_some(Self { id, parent, is_sampled: flags & 1 == 1 })
    }

    /// The context as one text, to be kept: a `traceparent`, in which zeros stand for a parent that is not there.
    pub fn to_text(&self) -> String {
        let parent = self.parent.map_or([0; 8], |parent| parent.0);
        text(&self.id, parent, self.is_sampled)
    }

    /// The `traceparent` by which another server goes on from this span.
    pub fn header(&self, span: SpanId) -> String {
        text(&self.id, span.0, self.is_sampled)
    }
}

fn text(id: &TraceId, span: [u8; 8], is_sampled: bool) -> String {
    format!("00-{id}-{}-0{}", SpanId(span), u8::from(is_sampled))
}

/// Lower-case digits only, as the header has them.
fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    let pairs = text.as_bytes().chunks_exact(2);
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[track_caller]
    fn check(header: &str, sampled: Option<bool>) {
        let read = TraceContext::read(header);
        assert_eq!(read.map(|context| context.is_sampled), sampled, "{header}");
        if let Some(context) = read {
            assert_eq!(context.id.to_string(), ID);
            assert_eq!(context.parent.expect("a parent").to_string(), SPAN);
        }
    }

    #[test]
    fn a_traceparent_is_read_with_its_flag() {
        check(&format!("00-{ID}-{SPAN}-01"), Some(true));
        check(&format!("00-{ID}-{SPAN}-00"), Some(false));
        check(&format!("00-{ID}-{SPAN}-03"), Some(true));
        check(&format!("00-{ID}-{SPAN}-fe"), Some(false));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        check(&format!("cc-{ID}-{SPAN}-01"), Some(true));
        check(&format!("cc-{ID}-{SPAN}-01-what-the-future-brings"), Some(true));
        check(&format!("cc-{ID}-{SPAN}-01.what"), None);
        check(&format!("00-{ID}-{SPAN}-01-what"), None);
        check(&format!("ff-{ID}-{SPAN}-01"), None);
    }

    #[test]
    fn what_is_malformed_is_none() {
        let zeros = "0".repeat(32);
        for header in [
            String::new(),
            "00".into(),
            ID.into(),
            format!("00-{ID}-{SPAN}"),
            format!("00-{ID}-{SPAN}-1"),
            format!("00-{ID}-{SPAN}-0x"),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{ID}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", ID.to_uppercase()),
            format!("00-{}-{SPAN}a-01", &ID[1..]),
            format!("00_{ID}_{SPAN}_01"),
            format!("00-{ID}-{SPAN}-01 "),
            format!(" 00-{ID}-{SPAN}-01"),
            format!("0-{ID}-{SPAN}-001"),
            format!("00-{ID}-{SPAN}-é1"),
        ] {
            check(&header, None);
        }
    }

    #[test]
    fn an_id_is_written_as_it_was_read() {
        let context = TraceContext::read(&format!("00-{ID}-{SPAN}-01")).expect("one");
        assert_eq!(serde_json::to_string(&context.id).expect("JSON"), format!("\"{ID}\""));
        let span = SpanId::new([0, 0, 0, 0, 0, 0, 0, 0xa]).expect("one");
        assert_eq!(context.header(span), format!("00-{ID}-000000000000000a-01"));
    }

    proptest! {
        #[test]
        fn a_kept_context_comes_back(id: [u8; 16], parent: [u8; 8], is_sampled: bool) {
            let Some(id) = TraceId::new(id) else { return Ok(()) };
            let context = TraceContext { id, parent: SpanId::new(parent), is_sampled };
            prop_assert_eq!(TraceContext::from_text(&context.to_text()), Some(context));
        }

        #[test]
        fn no_text_is_taken_amiss(text: String) {
            let _ = TraceContext::read(&text);
        }
    }
}
