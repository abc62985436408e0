//! A source file seen three ways: without comments, without strings, without test code.

/// One file of `src/`.
#[derive(Debug)]
pub(super) struct Source {
    /// The path below `src/`, such as `net/resolve.rs`.
    pub(super) path: String,
    /// As it is on disk.
    pub(super) text: String,
    /// Comments and the insides of strings blanked.
    pub(super) whole: Vec<char>,
    /// Comments and test code blanked; strings stand.
    pub(super) code: Vec<char>,
    /// Comments, test code and the insides of strings blanked.
    pub(super) bare: Vec<char>,
}

impl Source {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let (mut code, whole) = blank_comments_and_strings(text);
        let mut bare = whole.clone();
        let is_test_file = path.ends_with("/tests.rs") || path.contains("/tests/");
        let tests = if is_test_file { vec![(0, bare.len())] } else { test_items(&bare) };
        for (begin, end) in tests {
            blank(&mut code, begin, end);
            blank(&mut bare, begin, end);
        }
        Self { path: path.to_owned(), text: text.to_owned(), whole, code, bare }
    }

    /// The module's path: `net/resolve.rs` is `net::resolve`, `lib.rs` is the root.
    pub(super) fn module(&self) -> Vec<String> {
        let path = self.path.strip_suffix(".rs").expect("a Rust file");
        if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
    }
}

/// The places where a text stands in code, as whole words where it begins or ends with a word's character.
pub(super) fn find(code: &[char], text: &str) -> Vec<usize> {
    let pattern: Vec<char> = text.chars().collect();
    let is_word =
        |at: Option<usize>| at.and_then(|at| code.get(at)).copied().is_some_and(is_word_character);
    let stands_alone = |at: &usize| {
        let begins = !is_word_character(pattern[0]) || !is_word(at.checked_sub(1));
        begins
            && (!is_word_character(pattern[pattern.len() - 1])
                || !is_word(Some(at + pattern.len())))
    };
    let starts = code.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern);
    starts.map(|(at, _)| at).filter(stands_alone).collect()
}

/// The line of a place, counted from 1.
pub(super) fn line(code: &[char], at: usize) -> usize {
    code[..at].iter().filter(|character| **character == '\n').count() + 1
}

pub(super) fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn blank(code: &mut [char], begin: usize, end: usize) {
    for character in &mut code[begin..end] {
        if *character != '\n' {
            *character = ' ';
        }
    }
}

/// The text without comments, and without the insides of strings as well; both as long as the text.
fn blank_comments_and_strings(text: &str) -> (Vec<char>, Vec<char>) {
    let text: Vec<char> = text.chars().collect();
    let (mut code, mut bare) = (text.clone(), text.clone());
    let starts = |at: usize, what: &str| {
        what.chars().enumerate().all(|(n, one)| text.get(at + n) == Some(&one))
    };
    let mut at = 0;
    while at < text.len() {
        let begin = at;
        if starts(at, "//") {
            while at < text.len() && text[at] != '\n' {
                at += 1;
            }
            blank(&mut code, begin, at);
            blank(&mut bare, begin, at);
        } else if starts(at, "/*") {
            let mut depth = 0;
            loop {
                if starts(at, "/*") {
                    (depth, at) = (depth + 1, at + 2);
                } else if starts(at, "*/") {
                    (depth, at) = (depth - 1, at + 2);
                } else {
                    at += 1;
                }
                if depth == 0 || at >= text.len() {
                    break;
                }
            }
            at = at.min(text.len());
            blank(&mut code, begin, at);
            blank(&mut bare, begin, at);
        } else if let Some(hashes) = raw_string(&text, at) {
            let end = format!("\"{}", "#".repeat(hashes));
            at += hashes + 2;
            while at < text.len() && !starts(at, &end) {
                at += 1;
            }
            blank(&mut bare, begin + hashes + 2, at);
            at += end.len();
        } else if text[at] == '"' {
            at += 1;
            while at < text.len() && text[at] != '"' {
                at += if text[at] == '\\' { 2 } else { 1 };
            }
            blank(&mut bare, begin + 1, at.min(text.len()));
            at += 1;
        } else if text[at] == '\''
            && (text.get(at + 1) == Some(&'\\') || text.get(at + 2) == Some(&'\''))
        {
            // A character, not a lifetime.
            at += if text[at + 1] == '\\' { 3 } else { 2 };
            while at < text.len() && text[at] != '\'' {
                at += 1;
            }
            blank(&mut bare, begin + 1, at.min(text.len()));
            at += 1;
        } else {
            at += 1;
        }
    }
    (code, bare)
}

/// How many hashes a raw string that begins here has.
fn raw_string(text: &[char], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|before| text[before]);
    if text[at] != 'r' || before.is_some_and(|before| is_word_character(before) && before != 'b') {
        return None;
    }
    let hashes = text[at + 1..].iter().take_while(|character| **character == '#').count();
    (text.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

/// The items under `#[cfg(test)]`, from the attribute to the end of the item.
fn test_items(bare: &[char]) -> Vec<(usize, usize)> {
    let items = find(bare, "#[cfg(test)]").into_iter();
    items
        .map(|begin| {
            let mut depth = 0usize;
            let mut at = begin + "#[cfg(test)]".len();
            while at < bare.len() {
                match bare[at] {
                    ';' if depth == 0 => return (begin, at + 1),
                    '{' | '(' | '[' => depth += 1,
                    ')' | ']' => depth = depth.saturating_sub(1),
                    '}' if depth <= 1 => return (begin, at + 1),
                    '}' => depth -= 1,
                    _ => {}
                }
                at += 1;
            }
            (begin, bare.len())
        })
        .collect()
}

#[track_caller]
fn check(text: &str, code: &str, bare: &str) {
    let source = Source::new("x.rs", text);
    let squeeze = |view: &[char]| {
        view.iter().collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!((squeeze(&source.code).as_str(), squeeze(&source.bare).as_str()), (code, bare));
    assert_eq!(source.bare.len(), text.chars().count());
}

#[test]
fn comments_strings_and_tests_are_blanked() {
    check("a /* b /* c */ d */ e // f\ng", "a e g", "a e g");
    check(r#"f("x // \" y", 'z')"#, r#"f("x // \" y", 'z')"#, r#"f(" ", ' ')"#);
    check("r#\"a \" b\"# c", "r#\"a \" b\"# c", "r#\" \"# c");
    check(
        "fn f<'a>(x: &'a str, y: '\\'') {}",
        "fn f<'a>(x: &'a str, y: '\\'') {}",
        "fn f<'a>(x: &'a str, y: ' ') {}",
    );
    check("a\n#[cfg(test)]\nmod tests { fn f() { g({}) } }\nb", "a b", "a b");
    check("a #[cfg(test)] mod tests; b", "a b", "a b");
    check("a #[cfg(test)] #[path = \"x\"] fn t(x: [u8; 3]) { y; } b", "a b", "a b");
    let tests = Source::new("policy/address/tests.rs", "use tokio;");
    assert!(find(&tests.bare, "tokio").is_empty() && !find(&tests.whole, "tokio").is_empty());
}

#[test]
fn texts_are_found_as_whole_words() {
    let code: Vec<char> = "unknown() now() x.now()\nasync_x async".chars().collect();
    assert_eq!(find(&code, "now()"), [10, 18]);
    assert_eq!(find(&code, "async").into_iter().map(|at| line(&code, at)).collect::<Vec<_>>(), [2]);
}
