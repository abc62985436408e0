//! Just as much of protobuf's wire format as spans need: fields are appended to a message.

/// A message that is being written; what it consists of is appended to the bytes.
pub(super) struct Message<'a>(pub(super) &'a mut Vec<u8>);

/// How a field's value is laid out.
#[derive(Clone, Copy)]
enum Layout {
    Number = 0,
    Fixed64 = 1,
    Bytes = 2,
    Fixed32 = 5,
}

impl Message<'_> {
    /// Appends an integer, a truth or a value of an enumeration.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.begin(field, Layout::Number);
        varint(self.0, value);
    }

    /// Appends eight bytes.
    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.begin(field, Layout::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends four bytes.
    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.begin(field, Layout::Fixed32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends bytes.
    pub(super) fn bytes(&mut self, field: u32, value: &[u8]) {
        self.begin(field, Layout::Bytes);
        varint(self.0, value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Appends a text.
    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Appends a message, which `write` fills.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message<'_>)) {
        self.begin(field, Layout::Bytes);
        let start = self.0.len();
        write(&mut Message(&mut *self.0));
        let length = self.0.len() - start;
        // The length stands before what it is of and is known only now.
        let end = self.0.len();
        varint(self.0, length as u64);
        let moved = self.0.len() - end;
        self.0[start..].rotate_right(moved);
    }

    fn begin(&mut self, field: u32, layout: Layout) {
        varint(self.0, u64::from(field) << 3 | layout as u64);
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A value of a message that somebody else wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field<'a> {
    /// Bytes, a text or a message.
    Bytes(&'a [u8]),
    /// An integer, however it is laid out.
    Number(u64),
}

/// The fields of a message in their order, until one cannot be read.
pub(super) fn fields(mut rest: &[u8]) -> impl Iterator<Item = (u32, Field<'_>)> {
    std::iter::from_fn(move || {
        let (key, after) = read_varint(rest)?;
        let (value, after) = match key & 7 {
            0 => read_varint(after).map(|(number, after)| (Field::Number(number), after))?,
            1 => after
                .split_first_chunk()
                .map(|(bytes, after)| (Field::Number(u64::from_le_bytes(*bytes)), after))?,
            2 => {
                let (length, after) = read_varint(after)?;
                let (bytes, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
                (Field::Bytes(bytes), after)
            }
            5 => after
                .split_first_chunk()
                .map(|(bytes, after)| (Field::Number(u32::from_le_bytes(*bytes).into()), after))?,
            _ => return None,
        };
        rest = after;
        Some((u32::try_from(key >> 3).ok()?, value))
    })
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_what_the_format_says() {
        let mut out = Vec::new();
        let mut message = Message(&mut out);
        message.number(1, 150);
        message.text(2, "testing");
        message.message(3, |inner| inner.number(1, 150));
        let golden =
            [&[0x08, 0x96, 0x01][..], &[0x12, 0x07], b"testing", &[0x1a, 0x03, 0x08, 0x96, 0x01]];
        assert_eq!(out, golden.concat());
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(number: u64, fixed: u64, small: u32, text in ".{0,300}") {
            let mut out = Vec::new();
            Message(&mut out).message(7, |inner| {
                inner.number(1, number);
                inner.fixed64(2, fixed);
                inner.fixed32(3, small);
                inner.text(400, &text);
            });
            let outer: Vec<_> = fields(&out).collect();
            let [(7, Field::Bytes(inner))] = outer[..] else { panic!("{outer:?}") };
            let inner: Vec<_> = fields(inner).collect();
            prop_assert_eq!(inner, [
                (1, Field::Number(number)),
                (2, Field::Number(fixed)),
                (3, Field::Number(small.into())),
                (400, Field::Bytes(text.as_bytes())),
            ]);
        }

        #[test]
        fn any_bytes_have_an_end(bytes: Vec<u8>) {
            prop_assert!(fields(&bytes).count() <= bytes.len());
        }
    }
}
