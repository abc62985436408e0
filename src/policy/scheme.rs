//! A signature scheme as a profile writes it, compiled into what `sign` runs.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::policy::profile_fault::ProfileFault;
use crate::policy::sign::{
    DigestText, Entry, EntrySlot, KeyEncoding, SignatureScheme, SignedPart, is_id_byte,
};

/// A profile's `signature`: HMAC-SHA256, with a key, over a text, shown in a header.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemeText {
    /// What is signed: text with `{body}` at the end, and `{t}` (Unix seconds) and `{id}` (the call id) where wanted.
    pub signed: String,
    /// Whether the secret's text is the key as it is, or base64 of it (after `whsec_`).
    pub key: KeyEncoding,
    /// How the digest is written.
    pub digest: DigestText,
    /// The header's value: `{digest}`, and `{t}` where wanted. With a `separator`, the part that holds `{digest}` stands
    /// once per key.
    pub value: String,
    /// What stands between the parts of `value`, such as `,`. Without it the value is one part, and a tool has one key.
    #[serde(default)]
    pub separator: Option<String>,
}

impl SchemeText {
    /// Compiles the scheme; all faults at once, with paths below `signature`.
    pub fn compile(&self) -> Result<SignatureScheme, Vec<ProfileFault>> {
        let mut faults = Vec::new();
        let mut note = |field: &str, message: String| {
            faults.push(ProfileFault::new(format!("signature.{field}"), message));
        };
        let signed = compile_signed(&self.signed).map_err(|message| note("signed", message)).ok();
        if let Some(separator) = &self.separator
            && let Err(message) = check_separator(separator)
        {
            note("separator", message);
        }
        let separator = self.separator.as_deref().filter(|separator| !separator.is_empty());
        let entries =
            compile_value(&self.value, separator).map_err(|message| note("value", message)).ok();
        if let (Some(signed), Some(entries)) = (&signed, &entries)
            && entries.iter().any(|entry| entry.slot == Some(EntrySlot::Time))
            && !signed.contains(&SignedPart::Time)
        {
            note("value", "`{t}` is shown but not signed; put it into `signed` too".into());
        }
        match (signed, entries) {
            (Some(signed), Some(entries)) if faults.is_empty() => Ok(SignatureScheme {
                signed,
                key: self.key,
                digest: self.digest,
                entries,
                separator: self.separator.clone(),
            }),
            _ => Err(faults),
        }
    }
}

/// A piece of text with slots in braces.
enum Piece<'a> {
    Slot(&'a str),
    Text(&'a str),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, from_slot)) = rest.split_once('{') {
        let Some((name, after)) = from_slot.split_once('}') else {
            return Err("`{` is never closed with `}`".into());
        };
        if !before.is_empty() {
            pieces.push(Piece::Text(before));
        }
        pieces.push(Piece::Slot(name));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

fn compile_signed(text: &str) -> Result<Vec<SignedPart>, String> {
    let mut parts = Vec::new();
    for piece in pieces(text)? {
        let part = match piece {
            Piece::Slot("body") => SignedPart::Body,
            Piece::Slot("id") => SignedPart::Id,
            Piece::Slot("t") => SignedPart::Time,
            Piece::Slot(other) => {
                return Err(format!(
                    "`{{{other}}}` is no slot here; there are {{t}}, {{id}} and {{body}}"
                ));
            }
            Piece::Text(text) => SignedPart::Text(text.to_owned()),
        };
        if !matches!(part, SignedPart::Text(_)) && parts.contains(&part) {
            return Err("each of {t}, {id} and {body} stands there at most once".into());
        }
        parts.push(part);
    }
    if parts.last() != Some(&SignedPart::Body) {
        return Err("the signed text must end with {body}".into());
    }
    // Two calls with different times or bodies must never have the same signed text: `1` + `2.x` is `12` + `.x`.
    let apart = parts.iter().zip(parts.iter().skip(1)).all(|(part, next)| match (part, next) {
        (SignedPart::Time | SignedPart::Id, SignedPart::Text(text)) => {
            !text.bytes().next().is_some_and(is_id_byte)
        }
        (SignedPart::Time | SignedPart::Id, _) => false,
        (SignedPart::Body | SignedPart::Text(_), _) => true,
    });
    if apart { Ok(parts) } else { Err("a separator such as `.` must follow {t} and {id}".into()) }
}

fn check_separator(separator: &str) -> Result<(), String> {
    let stands_apart = |b: u8| {
        (b == b' ' || b.is_ascii_graphic()) && !b.is_ascii_alphanumeric() && !b"+/={}".contains(&b)
    };
    if !separator.is_empty() && separator.bytes().all(stands_apart) {
        Ok(())
    } else {
        Err("must be a space or punctuation that no digest holds, such as `,`; leave it out where there is one key"
            .into())
    }
}

fn compile_value(value: &str, separator: Option<&str>) -> Result<Vec<Entry>, String> {
    if !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        return Err("must be spaces and visible ASCII".into());
    }
    let parts: Vec<&str> = match separator {
        Some(separator) => value.split(separator).collect(),
        None => vec![value],
    };
    let entries = parts.into_iter().map(compile_entry).collect::<Result<Vec<_>, _>>()?;
    let count = |slot| entries.iter().filter(|entry| entry.slot == Some(slot)).count();
    if count(EntrySlot::Digest) != 1 || count(EntrySlot::Time) > 1 {
        return Err("{digest} must stand there once, and {t} at most once".into());
    }
    let told_apart = entries.iter().enumerate().all(|(at, entry)| {
        let others = || entries.iter().enumerate().filter(|(other, _)| *other != at);
        entry.slot.is_none() || others().all(|(_, other)| !other.before.starts_with(&entry.before))
    });
    if told_apart {
        Ok(entries)
    } else {
        Err("each part needs a beginning of its own, such as `t=` and `v1=`".into())
    }
}

fn compile_entry(text: &str) -> Result<Entry, String> {
    let mut entry = Entry { before: String::new(), slot: None, after: String::new() };
    for piece in pieces(text)? {
        let slot = match piece {
            Piece::Slot("digest") => EntrySlot::Digest,
            Piece::Slot("t") => EntrySlot::Time,
            Piece::Slot(other) => {
                return Err(format!(
                    "`{{{other}}}` is no slot here; there are {{t}} and {{digest}}"
                ));
            }
            Piece::Text(text) => {
                let side = if entry.slot.is_some() { &mut entry.after } else { &mut entry.before };
                side.push_str(text);
                continue;
            }
        };
        if entry.slot.replace(slot).is_some() {
            return Err(
                "one part holds {t} or {digest}, not both; a `separator` makes them two parts"
                    .into(),
            );
        }
    }
    Ok(entry)
}

#[cfg(test)]
mod tests;
