//! The shape of the source tree: floors, sizes, and what may stand in one place only.

mod imports;
mod rows;
mod source;

use std::path::Path;

use self::source::{Source, find, line};

/// The profiles that are shipped: data, so no code knows their names.
const SHIPPED_PROFILES: &[&str] = &["bare-v1", "envelope-v1", "plain-v1", "standard-webhooks"];

/// Which code a rule looks at.
#[derive(Clone, Copy)]
enum View {
    /// Everything but comments and strings, tests too.
    Whole,
    /// Strings too, but no tests.
    WithStrings,
    /// No comments, strings or tests.
    Product,
}

/// Texts that may not stand in the files for which `applies` says so.
struct Ban {
    why: &'static str,
    texts: &'static [&'static str],
    view: View,
    applies: fn(&str) -> bool,
}

const BANS: &[Ban] = &[
    Ban {
        why: "floors 0 to 2 do no I/O, read no clock and are not async",
        texts: &[
            "async",
            ".await",
            "tokio",
            "hyper",
            "fs::",
            "std::fs",
            "std::env",
            "std::process",
            "std::thread",
            "TcpListener",
            "TcpStream",
            "UdpSocket",
            "UnixListener",
            "UnixStream",
            "now()",
            "rand::",
        ],
        view: View::Product,
        applies: |path| {
            imports::floor(&Source::new(path, "").module()).is_some_and(|floor| floor <= 2)
        },
    },
    Ban {
        why: "profiles are data: their names stand in BUILTIN_PROFILES alone",
        texts: SHIPPED_PROFILES,
        view: View::WithStrings,
        applies: |_| true,
    },
    Ban {
        why: "only net/connect.rs dials (the other files talk to Sortie's own listeners)",
        texts: &[
            "TcpStream::connect",
            "TcpStream::connect_timeout",
            "TcpSocket",
            "UnixStream::connect",
            "Socket::new",
        ],
        view: View::Product,
        applies: |path| !["net/connect.rs", "serve/bind.rs", "cli/client.rs"].contains(&path),
    },
    Ban {
        why: "only clock.rs reads a clock",
        texts: &[
            "Instant::now",
            "SystemTime::now",
            "Timestamp::now",
            "Zoned::now",
            "UNIX_EPOCH.elapsed",
        ],
        view: View::Product,
        applies: |path| path != "clock.rs",
    },
    Ban {
        why: "a task has an owner that joins it: app.rs, serve.rs, gateway.rs, net/pool.rs and the demo start tasks",
        texts: &["tokio::spawn", "task::spawn", "spawn_local", "thread::spawn"],
        view: View::Product,
        applies: |path| {
            !["app.rs", "serve.rs", "gateway.rs", "net/pool.rs"].contains(&path)
                && !path.starts_with("cli/demo")
        },
    },
    Ban {
        why: "lints are met, or expected with a reason",
        texts: &["[allow"],
        view: View::Whole,
        applies: |_| true,
    },
    Ban {
        why: "what is merged is finished",
        texts: &["todo!", "unimplemented!"],
        view: View::Whole,
        applies: |_| true,
    },
];

fn findings(sources: &[Source]) -> Vec<String> {
    let mut findings = imports::findings(sources);
    for source in sources {
        findings.extend(shape(source));
        findings.extend(
            BANS.iter()
                .filter(|ban| (ban.applies)(&source.path))
                .flat_map(|ban| banned(source, ban)),
        );
    }
    findings
}

/// The file begins with its job and is short.
fn shape(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = source.text.lines().count();
    if lines > 500 {
        findings.push(format!("src/{}: {lines} lines, 500 at most", source.path));
    }
    let opening = if source.path == "lib.rs" { "#![doc" } else { "//! " };
    if !source.text.starts_with(opening) {
        findings.push(format!("src/{}: does not begin with `{opening}`", source.path));
    }
    findings
}

fn banned(source: &Source, ban: &Ban) -> Vec<String> {
    let view = match ban.view {
        View::Whole => &source.whole,
        View::WithStrings => &source.code,
        View::Product => &source.bare,
    };
    let table = builtin_profiles(source);
    let places =
        ban.texts.iter().flat_map(|text| find(view, text).into_iter().map(move |at| (at, text)));
    let places =
        places.filter(|(at, text)| !(SHIPPED_PROFILES.contains(text) && table.contains(at)));
    places
        .map(|(at, text)| format!("src/{}:{}: `{text}`: {}", source.path, line(view, at), ban.why))
        .collect()
}

/// Where the table of shipped profiles stands.
fn builtin_profiles(source: &Source) -> std::ops::Range<usize> {
    let begin = find(&source.bare, "const BUILTIN_PROFILES").first().copied();
    let Some(begin) = begin.filter(|_| source.path == "config/profile.rs") else { return 0..0 };
    let length = source.bare[begin..].iter().take_while(|one| **one != ';').count();
    begin..begin + length
}

fn read_tree(folder: &Path, prefix: &str, sources: &mut Vec<Source>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry"))
        .collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().expect("a UTF-8 name");
        if entry.path().is_dir() {
            read_tree(&entry.path(), &format!("{prefix}{name}/"), sources);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(entry.path()).expect("UTF-8 text");
            sources.push(Source::new(&format!("{prefix}{name}"), &text));
        }
    }
}

#[test]
fn the_source_tree_is_tidy() {
    let mut sources = Vec::new();
    read_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    assert!(sources.iter().any(|source| source.path == "lib.rs"), "the tree was read");
    let findings = findings(&sources);
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// The one thing that is wrong with a file, after a good first line.
#[track_caller]
fn check(path: &str, text: &str, expected: &str) {
    let found = findings(&[Source::new(path, &format!("//! Job.\n{text}"))]);
    if expected.is_empty() {
        assert!(found.is_empty(), "{found:#?}");
    } else {
        assert!(found.len() == 1 && found[0].contains(expected), "{found:#?}");
    }
}

#[test]
fn files_are_short_and_say_their_job() {
    check("exec.rs", &"\n".repeat(499), "");
    check("exec.rs", &"\n".repeat(500), "501 lines");
    let found =
        findings(&[Source::new("exec.rs", "use x;\n"), Source::new("lib.rs", "pub mod exec;\n")]);
    assert_eq!(
        found,
        ["src/exec.rs: does not begin with `//! `", "src/lib.rs: does not begin with `#![doc`"]
    );
}

#[test]
fn the_lower_floors_are_pure() {
    for bad in [
        "async fn f() {}",
        "fn f() { g.await }",
        "use tokio::time;",
        "use std::fs;",
        "use std::{fs::File, io};",
        "use std::net::{IpAddr, TcpStream};",
        "fn f(c: C) { c.now() }",
        "fn f() { rand::random() }",
        "fn f() { std::env::var(x) }",
    ] {
        for path in ["model/id.rs", "policy/sign.rs", "config/parse.rs"] {
            let found = findings(&[Source::new(path, &format!("//! Job.\n{bad}"))]);
            assert!(
                !found.is_empty() && found.iter().all(|one| one.contains("floors 0 to 2")),
                "{bad}: {found:#?}"
            );
        }
        let elsewhere = findings(&[Source::new("exec.rs", &format!("//! Job.\n{bad}"))]);
        assert!(elsewhere.is_empty(), "{elsewhere:#?}");
    }
    check("policy/sign.rs", "/// Not async, no tokio.\nfn known(operand: u8) { \"async\" }", "");
    check("policy/sign.rs", "#[cfg(test)]\nmod tests { use std::fs; fn f() { now() } }", "");
    check("policy/sign/tests.rs", "use std::fs;", "");
}

#[test]
fn profile_names_stand_in_the_table_alone() {
    let table = "pub const BUILTIN_PROFILES: &[(&str, &str)] = &[(\"bare-v1\", include_str!(\"bare-v1.yaml\"))];\n";
    check("config/profile.rs", table, "");
    check("config/parse.rs", "fn f(x: &str) { x == \"plain-v1\" }", "profiles are data");
    check(
        "config/profile.rs",
        &format!("{table}fn f(x: &str) {{ x == \"envelope-v1\" }}"),
        "`envelope-v1`",
    );
    check(
        "config/parse.rs",
        "/// As `standard-webhooks`.\n#[cfg(test)]\nmod tests { const X: &str = \"bare-v1\"; }",
        "",
    );
}

#[test]
fn one_place_dials_and_one_reads_the_clock() {
    check("net/connect.rs", "fn f() { TcpStream::connect(x) }", "");
    check("net/pool.rs", "fn f() { TcpStream::connect(x) }", "only net/connect.rs dials");
    check("exec.rs", "fn f() { tokio::net::TcpSocket::new_v4() }", "only net/connect.rs dials");
    check(
        "cli.rs",
        "fn f() { std::net::TcpStream::connect_timeout(a, b) }",
        "only net/connect.rs dials",
    );
    check("clock.rs", "fn f() { SystemTime::now() }", "");
    check("serve.rs", "fn f() { tokio::time::Instant::now() }", "only clock.rs");
    check("serve.rs", "fn f(clock: &dyn Clock) { clock.now() }", "");
}

#[test]
fn tasks_start_where_somebody_joins_them() {
    check("net/pool.rs", "fn f() { tokio::spawn(x) }", "");
    check("cli/demo/dns.rs", "fn f() { tokio::spawn(x) }", "");
    check("net/client.rs", "fn f() { tokio::spawn(x) }", "a task has an owner");
    check("exec.rs", "fn f() { std::thread::spawn(x) }", "a task has an owner");
}

#[test]
fn nothing_is_allowed_or_left_undone() {
    check("exec.rs", "#[expect(dead_code, reason = \"x\")]\nfn f() {}", "");
    check("exec.rs", "#[allow(dead_code)]\nfn f() {}", "`[allow`");
    check("exec.rs", "#[cfg(test)]\nmod tests { #![allow(unused)] }", "`[allow`");
    check("exec.rs", "fn f() { todo!() }", "`todo!`");
}
