//! Who imports whom: paths point down the floors, and no files import each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Source, find, is_word_character, line};

/// The floor of each top-level module, from words to the binary.
const FLOORS: &[(&str, u8)] = &[
    ("model", 0),
    ("policy", 1),
    ("config", 2),
    ("clock", 3),
    ("limits", 3),
    ("net", 3),
    ("source", 3),
    ("store", 3),
    ("telemetry", 3),
    ("exec", 4),
    ("gateway", 5),
    ("serve", 6),
    ("app", 7),
    ("reload", 7),
    ("cli", 7),
    ("main", 8),
];

/// The floor of a module; the root has none.
pub(super) fn floor(module: &[String]) -> Option<u8> {
    let first = module.first()?;
    FLOORS.iter().find(|(name, _)| name == first).map(|(_, floor)| *floor)
}

/// Paths that point up, modules without a floor, and circles.
pub(super) fn findings(sources: &[Source]) -> Vec<String> {
    let modules: BTreeMap<Vec<String>, &str> =
        sources.iter().map(|source| (source.module(), source.path.as_str())).collect();
    let mut findings = Vec::new();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in sources {
        let module = source.module();
        let Some(own_floor) = floor(&module) else {
            if source.path != "lib.rs" {
                findings.push(format!("src/{}: the module has no floor", source.path));
            }
            continue;
        };
        for (at, target) in paths(source) {
            let place = format!("src/{}:{}", source.path, line(&source.bare, at));
            match floor(&target) {
                None => findings.push(format!("{place}: `{}` has no floor", target.join("::"))),
                Some(floor) if floor > own_floor => {
                    findings.push(format!("{place}: `{}` is on a higher floor", target.join("::")));
                }
                Some(_) => {}
            }
            let file = (1..=target.len()).rev().find_map(|length| modules.get(&target[..length]));
            if let Some(file) = file.filter(|file| **file != source.path) {
                edges.entry(&source.path).or_default().insert(file);
            }
        }
    }
    findings.extend(circles(&edges));
    findings
}

/// Every path into this crate that the file's code names, with its place.
fn paths(source: &Source) -> Vec<(usize, Vec<String>)> {
    let module = source.module();
    let parent = &module[..module.len() - 1];
    let mut paths = Vec::new();
    let roots = [("crate::", &[][..]), ("self::", &module[..]), ("super::", parent)];
    for (word, root) in roots {
        for at in find(&source.bare, word) {
            read_tree(&source.bare, at + word.len(), at, root.to_vec(), &mut paths);
        }
    }
    if source.path == "main.rs" {
        for at in find(&source.bare, "sortie::") {
            read_tree(&source.bare, at + "sortie::".len(), at, Vec::new(), &mut paths);
        }
    }
    for child in children(source) {
        for at in find(&source.bare, &format!("{child}::")) {
            if at == 0 || source.bare[at - 1] != ':' {
                paths.push((at, [&module[..], std::slice::from_ref(&child)].concat()));
            }
        }
    }
    paths
}

/// The modules that the file declares with `mod name;`.
fn children(source: &Source) -> Vec<String> {
    let declarations = find(&source.bare, "mod").into_iter().map(|at| &source.bare[at + 3..]);
    let names = declarations.filter_map(|rest| {
        let name: String = rest.iter().skip(1).take_while(|one| is_word_character(**one)).collect();
        (rest.get(name.len() + 1) == Some(&';') && !name.is_empty()).then_some(name)
    });
    names.collect()
}

/// Reads one path or group that follows `prefix::`; returns where it ends.
fn read_tree(
    code: &[char],
    mut at: usize,
    place: usize,
    mut prefix: Vec<String>,
    paths: &mut Vec<(usize, Vec<String>)>,
) -> usize {
    loop {
        at = skip_space(code, at);
        if code.get(at) == Some(&'{') {
            at += 1;
            loop {
                at = skip_space(code, at);
                match code.get(at) {
                    None => return at,
                    Some('}') => return at + 1,
                    Some(',') => at += 1,
                    Some(_) => {
                        let end = read_tree(code, at, place, prefix.clone(), paths);
                        // What is no path (a macro's fragment) must not hold us up.
                        at = if end == at { at + 1 } else { end };
                    }
                }
            }
        }
        let word: String =
            code[at.min(code.len())..].iter().take_while(|one| is_word_character(**one)).collect();
        at += word.chars().count();
        match word.as_str() {
            "" | "self" => {}
            "super" => drop(prefix.pop()),
            _ => prefix.push(word),
        }
        let end = skip_space(code, at);
        if code.get(end) == Some(&':') && code.get(end + 1) == Some(&':') {
            at = end + 2;
            continue;
        }
        if !prefix.is_empty() {
            paths.push((place, prefix));
        }
        return skip_rename(code, at);
    }
}

fn skip_space(code: &[char], mut at: usize) -> usize {
    while code.get(at).is_some_and(|one| one.is_whitespace()) {
        at += 1;
    }
    at
}

/// Steps over ` as name`.
fn skip_rename(code: &[char], at: usize) -> usize {
    let word = skip_space(code, at);
    if code.get(word..word + 3) != Some(&['a', 's', ' ']) {
        return at;
    }
    let name = skip_space(code, word + 3);
    name + code[name..].iter().take_while(|one| is_word_character(**one)).count()
}

/// The first circle that is found from each file, if any.
fn circles(edges: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<String> {
    fn visit<'a>(
        file: &'a str,
        edges: &BTreeMap<&'a str, BTreeSet<&'a str>>,
        trail: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
        circles: &mut Vec<String>,
    ) {
        if let Some(begin) = trail.iter().position(|other| *other == file) {
            circles.push(format!("a circle of imports: {} -> {file}", trail[begin..].join(" -> ")));
            return;
        }
        if done.contains(file) {
            return;
        }
        trail.push(file);
        for next in edges.get(file).into_iter().flatten() {
            visit(next, edges, trail, done, circles);
        }
        trail.pop();
        done.insert(file);
    }
    let (mut done, mut circles) = (BTreeSet::new(), Vec::new());
    for file in edges.keys() {
        visit(file, edges, &mut Vec::new(), &mut done, &mut circles);
    }
    circles
}

#[track_caller]
fn check(files: &[(&str, &str)], expected: &[&str]) {
    let sources: Vec<Source> = files.iter().map(|(path, text)| Source::new(path, text)).collect();
    assert_eq!(findings(&sources), expected);
}

#[test]
fn imports_point_down() {
    check(
        &[("serve.rs", "use crate::gateway::Gateway; use crate::model::{id::CallId, call};")],
        &[],
    );
    check(
        &[("policy/sign.rs", "\nuse crate::clock::Clock;")],
        &["src/policy/sign.rs:2: `clock::Clock` is on a higher floor"],
    );
    check(
        &[("model/id.rs", "use crate::{model::{call as c, secret}, net::{tls}};")],
        &["src/model/id.rs:1: `net::tls` is on a higher floor"],
    );
    check(
        &[("exec.rs", "fn f() { crate::serve::g::<u8>() }")],
        &["src/exec.rs:1: `serve::g` is on a higher floor"],
    );
    check(
        &[("exec/webhook.rs", "use super::super::app::App;")],
        &["src/exec/webhook.rs:1: `app::App` is on a higher floor"],
    );
    check(
        &[("main.rs", "fn main() { sortie::cli::run() }"), ("app.rs", "use crate::main::x;")],
        &["src/app.rs:1: `main::x` is on a higher floor"],
    );
}

#[test]
fn each_module_has_a_floor() {
    check(&[("helpers.rs", "")], &["src/helpers.rs: the module has no floor"]);
    check(&[("exec.rs", "use crate::helpers::x;")], &["src/exec.rs:1: `helpers::x` has no floor"]);
}

#[test]
fn nothing_imports_in_a_circle() {
    let parent = ("exec.rs", "pub mod webhook;");
    check(&[parent, ("exec/webhook.rs", "use crate::exec::Job;")], &[]);
    check(
        &[
            ("exec.rs", "pub mod webhook;\nuse webhook::X;"),
            ("exec/webhook.rs", "use crate::exec::Job;"),
        ],
        &["a circle of imports: exec.rs -> exec/webhook.rs -> exec.rs"],
    );
    check(
        &[("net/a.rs", "use crate::net::b::B;"), ("net/b.rs", "use super::a::A;")],
        &["a circle of imports: net/a.rs -> net/b.rs -> net/a.rs"],
    );
    check(
        &[
            ("net/a.rs", "use crate::net::b;"),
            ("net/b.rs", "#[cfg(test)] mod tests { use crate::net::a; }"),
        ],
        &[],
    );
}
