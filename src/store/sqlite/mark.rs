//! Whose calls are in a chunk, in few bytes: a chunk that cannot have what is asked for is not read.

use crate::store::frame::Frame;
use crate::store::records::CallFilter;

/// Bytes of a mark.
const BYTES: usize = 8;

/// The marks of a chunk that is being filled.
#[derive(Debug, Default)]
pub(super) struct Marks(Vec<[u8; BYTES]>);

impl Marks {
    /// A call comes in.
    pub(super) fn add(&mut self, call: &Frame<'_>) {
        let organisation = call.organisation;
        self.0.push(mark("organisation", organisation, ""));
        if let Some(session_id) = call.session_id {
            self.0.push(mark("session", organisation, session_id));
        }
        if let Some(run_id) = call.run_id {
            self.0.push(mark("run", organisation, run_id));
        }
    }

    /// As they are kept: in order, each once.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        self.0.sort_unstable();
        self.0.dedup();
        self.0.iter().flatten().copied().collect()
    }
}

/// What a filter wants of a chunk.
pub(super) struct Wanted(Vec<[u8; BYTES]>);

impl Wanted {
    /// Of this filter.
    pub(super) fn of(filter: &CallFilter) -> Self {
        let organisation = &filter.organisation;
        let session = filter.session_id.as_deref().map(|id| mark("session", organisation, id));
        let run = filter.run_id.as_deref().map(|id| mark("run", organisation, id));
        let whole = mark("organisation", organisation, "");
        Self([Some(whole), session, run].into_iter().flatten().collect())
    }

    /// Whether a chunk with these marks may have it: `false` is sure.
    pub(super) fn may_be_in(&self, marks: &[u8]) -> bool {
        let (marks, _) = marks.as_chunks::<BYTES>();
        self.0.iter().all(|wanted| marks.binary_search(wanted).is_ok())
    }
}

/// FNV-1a, the same in every process: whoever makes two of them meet only has a chunk read in vain.
fn mark(kind: &str, organisation: &str, text: &str) -> [u8; BYTES] {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in [kind, organisation, text] {
        // No text has this byte: what follows is another part.
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_may_have_what_was_marked() {
        let mut marks = Marks::default();
        for number in 0..100 {
            marks.0.push(mark("session", "shop", &format!("s{number}")));
            marks.0.push(mark("run", "shop", &format!("r{number}")));
        }
        marks.0.push(mark("organisation", "shop", ""));
        let bytes = marks.bytes();
        let wants = |organisation: &str, session: Option<&str>, run: Option<&str>| {
            let filter = CallFilter {
                organisation: organisation.to_owned(),
                session_id: session.map(str::to_owned),
                run_id: run.map(str::to_owned),
                ..CallFilter::default()
            };
            Wanted::of(&filter).may_be_in(&bytes)
        };
        assert!(wants("shop", None, None) && wants("shop", Some("s0"), Some("r99")));
        assert!(!wants("bank", None, None) && !wants("bank", Some("s0"), None));
        assert!(!wants("shop", Some("r1"), None) && !wants("shop", Some("s1"), Some("s1")));
    }
}
