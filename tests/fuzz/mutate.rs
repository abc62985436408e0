//! Makes new inputs out of old ones.

/// What means something to one target or another.
const TOKENS: &[&str] = &[
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\u0061",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "{}",
    "[]",
    "null",
    "true",
    "1e2",
    "-0",
    "1e999",
    "18446744073709551616",
    "0.1",
    "\n",
    "\r\n",
    "\t",
    " ",
    "  ",
    "- ",
    "? ",
    ": ",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "~",
    "''",
    "https://",
    "http://",
    "//",
    "/../",
    "/./",
    "%2e",
    "%00",
    "%",
    "@",
    "?",
    "#x",
    ":443",
    ":0",
    ":65536",
    "[::1]",
    "[::ffff:10.0.0.1]",
    "0x7f.1",
    "127.1",
    "2130706433",
    "localhost",
    ".internal",
    "xn--",
    "xn--a-ecp",
    ".",
    "..",
    "-",
    "*",
    "*.",
    "é",
    "。",
    "😀",
    "\u{0}",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{202e}",
    "\u{feff}",
    "$ref",
    "#/$defs/a",
    "$defs",
    "$id",
    "$anchor",
    "$dynamicRef",
    "allOf",
    "oneOf",
    "not",
    "if",
    "pattern",
    "(a|b)*c",
    "\\d{1,1000}",
    "\\p{L}",
    "properties",
    "required",
    "type",
    "object",
    "enum",
    "const",
    "additionalProperties",
    "items",
    "unevaluatedProperties",
    "$arguments",
    "$tool",
    "$call_id",
    "$own",
    "$signature",
    "$t?",
    "$$",
    "{t}",
    "{body}",
    "{id}",
    "{digest}",
    "t=",
    ",v1=",
    "v1,",
    "sha256=",
    "whsec_",
    "utf-8",
    "charset=",
    "application/json",
    "text/plain",
    "iso-8859-1",
    "gzip",
    "identity",
    " GMT",
    "Fri, ",
    "Content-Length",
    "Host",
    "arguments",
    "credentials",
    "call_8f2c",
    "deadline_ms",
    "9007199254740993",
];

/// Numbers that follow from a seed (SplitMix64).
pub struct Random(u64);

impl Random {
    /// Begins anew.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`; 0 where there is none.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let at = self.below(list.len());
        list.get(at)
    }

    /// A part of that many bytes, mostly a short one.
    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        let longest = if self.below(4) == 0 { length } else { length.min(16) };
        let size = self.below(longest + 1).min(length - start);
        start..start + size
    }
}

/// Makes inputs from a corpus.
pub struct Mutator<'a> {
    random: Random,
    corpus: &'a [Vec<u8>],
}

impl<'a> Mutator<'a> {
    /// Over this corpus, which may be empty.
    pub fn new(random: Random, corpus: &'a [Vec<u8>]) -> Self {
        Self { random, corpus }
    }

    /// The next input: one of the corpus with one to eight changes.
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.random.pick(self.corpus).cloned().unwrap_or_default();
        for _ in 0..=self.random.below(8) {
            self.change(&mut input);
        }
        input.truncate(1 << 16);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let random = &mut self.random;
        let part = random.part(input.len());
        let at = part.start;
        match random.below(10) {
            0 => drop(input.drain(part)),
            1 => {
                let copy = input[part].to_vec();
                let place = random.below(input.len() + 1);
                input.splice(place..place, copy);
            }
            2 => {
                // A part again and again: what is nested or repeated too much.
                let copy = input[part].repeat(1 + random.below(40));
                input.splice(at..at, copy);
            }
            3 | 4 => {
                if let Some(token) = random.pick(TOKENS) {
                    let end = if random.below(2) == 0 { at } else { part.end };
                    input.splice(at..end, token.bytes());
                }
            }
            5 => {
                if let Some(other) = random.pick(self.corpus) {
                    let taken = random.part(other.len());
                    input.splice(part, other[taken].iter().copied());
                }
            }
            6 => self.change_value(input, at),
            7 => {
                let byte = u8::try_from(random.below(256)).unwrap_or(0);
                input.insert(at, byte);
            }
            8 => {
                // A bound's neighbours.
                if let Some(digit) = input.iter_mut().skip(at).find(|byte| byte.is_ascii_digit()) {
                    *digit = b'0' + (*digit - b'0' + 1 + u8::from(random.below(2) == 0) * 8) % 10;
                }
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }

    /// Exchanges what stands between two separators of JSON, YAML or a URL.
    fn change_value(&mut self, input: &mut Vec<u8>, at: usize) {
        let separates = |byte: &u8| b",:{}[]\"/?#@=& \n|".contains(byte);
        let end = input.iter().skip(at).position(separates).map_or(input.len(), |more| at + more);
        let start = input[..at].iter().rposition(separates).map_or(0, |before| before + 1);
        let others: Vec<&[u8]> = input.split(separates).filter(|part| !part.is_empty()).collect();
        let other = match self.random.below(3) {
            0 => self.random.pick(&others).map(|part| part.to_vec()),
            1 => self.random.pick(TOKENS).map(|token| token.as_bytes().to_vec()),
            _ => Some(Vec::new()),
        };
        input.splice(start..end, other.unwrap_or_default());
    }
}
