//! A text that a simple pattern matches. What it does not know, it does not guess.

/// Repeats beyond this are not made up.
const MOST: usize = 200;
/// Groups are not followed deeper.
const DEPTH: usize = 8;

/// A text for the pattern, or `None` where the pattern is not a simple one. Whoever shows it checks it first.
pub fn text(pattern: &str) -> Option<String> {
    let mut reader = Reader { rest: pattern, depth: 0 };
    let text = reader.choice()?;
    reader.rest.is_empty().then_some(text)
}

struct Reader<'p> {
    rest: &'p str,
    depth: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = self.rest.get(character.len_utf8()..)?;
        Some(character)
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The first of several ways; the others are read too.
    fn choice(&mut self) -> Option<String> {
        let first = self.sequence()?;
        while self.take("|") {
            self.sequence()?;
        }
        Some(first)
    }

    fn sequence(&mut self) -> Option<String> {
        let mut text = String::new();
        while !self.rest.is_empty() && !self.rest.starts_with(['|', ')']) {
            let one = self.atom()?;
            let count = self.count()?;
            if text.len() + one.len() * count > MOST {
                return None;
            }
            text.push_str(&one.repeat(count));
        }
        Some(text)
    }

    /// One piece without its repeat.
    fn atom(&mut self) -> Option<String> {
        match self.next()? {
            '^' | '$' => Some(String::new()),
            '.' => Some("x".into()),
            '\\' => self.escape().map(String::from),
            '[' => self.class().map(String::from),
            '(' => {
                if self.rest.starts_with('?') && !self.take("?:") {
                    return None;
                }
                self.depth += 1;
                if self.depth > DEPTH {
                    return None;
                }
                let inside = self.choice()?;
                self.depth -= 1;
                self.take(")").then_some(inside)
            }
            '*' | '+' | '?' | '{' | '}' | ']' => None,
            character => Some(character.into()),
        }
    }

    fn escape(&mut self) -> Option<char> {
        match self.next()? {
            'd' => Some('1'),
            's' => Some(' '),
            'w' => Some('a'),
            character if character.is_ascii_alphanumeric() => None,
            character => Some(character),
        }
    }

    /// One character of a class.
    fn class(&mut self) -> Option<char> {
        let excludes = self.take("^");
        let mut first = None;
        let mut excluded = Vec::new();
        loop {
            let one = match self.next()? {
                ']' => break,
                '[' => return None,
                '\\' => self.escape()?,
                character => character,
            };
            first = first.or(Some(one));
            excluded.push(one);
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next()?;
                let last = match self.next()? {
                    '\\' => self.escape()?,
                    character => character,
                };
                excluded.extend((one..=last).take(256));
            }
        }
        if excludes {
            ('a'..='z').chain('0'..='9').find(|one| !excluded.contains(one))
        } else {
            first
        }
    }

    /// How often the piece stands: as seldom as it may, but once where it may.
    fn count(&mut self) -> Option<usize> {
        let count = if self.take("*") || self.take("+") || self.take("?") {
            1
        } else if self.take("{") {
            let (inside, rest) = self.rest.split_once('}')?;
            self.rest = rest;
            let least = inside.split(',').next()?;
            least.parse().ok().filter(|count| *count <= MOST)?
        } else {
            return Some(1);
        };
        self.take("?");
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(pattern: &str, expected: Option<&str>) {
        assert_eq!(text(pattern).as_deref(), expected, "{pattern}");
        if let Some(text) = expected {
            assert!(regex::Regex::new(pattern).expect("a pattern").is_match(text), "{pattern}");
        }
    }

    #[test]
    fn simple_patterns_have_a_text() {
        check(r"^RX-\d{4,}$", Some("RX-1111"));
        check("^[A-Z]{2}[0-9]{3}$", Some("AA000"));
        check("^(yes|no)$", Some("yes"));
        check(r"^\w+@[a-z.]+\.com$", Some("a@a.com"));
        check("^[^a-c]+$", Some("d"));
        check("^(?:a?b)*$", Some("ab"));
        check("", Some(""));
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        for pattern in ["(?=a)b", r"\p{L}", r"(a)\1", "[", "(", "a{9999}", "*", "[[:alpha:]]"] {
            check(pattern, None);
        }
    }

    proptest! {
        #[test]
        fn no_pattern_is_too_odd(pattern in ".{0,40}", deep in "[(\\[{|a]{0,200}") {
            text(&pattern);
            text(&deep);
        }
    }
}
