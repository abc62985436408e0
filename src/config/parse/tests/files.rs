//! The files that are shipped, the broken ones, and texts that chance wrote.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).expect("the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    // The description of the API lies beside the configurations.
    let paths = paths.filter(|path| !path.ends_with("openapi.yaml"));
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    paths.sort();
    paths
}

/// Every reference to a secret in a text, counted by the eye of a reader.
fn references(text: &str) -> usize {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.map(|line| line.matches("{file:").count() + line.matches("{env:").count()).sum()
}

#[test]
fn shipped_files_are_valid_with_a_warning_for_each_missing_secret() {
    let nothing = |_: &Source| Err(SourceError::Missing);
    let shipped: Vec<_> = files("config").into_iter().chain(files("config/examples")).collect();
    assert!(shipped.len() >= 6, "{shipped:?}");
    for path in shipped {
        let text = std::fs::read_to_string(&path).expect("the file");
        let lenient = Environment { lookup: &nothing, ..environment() };
        let snapshot =
            parse("f", &text, &lenient).unwrap_or_else(|found| panic!("{path:?}: {found}"));
        let missing =
            snapshot.warnings.iter().filter(|warning| warning.message.contains("is not there"));
        assert_eq!(missing.count(), references(&text), "{path:?}");
        assert_eq!(snapshot.warnings.len(), references(&text), "{path:?}: {:?}", snapshot.warnings);
        let strict = Environment { strict: true, ..lenient };
        let found = parse("f", &text, &strict).expect_err("strict");
        assert_eq!((found.errors.len(), found.warnings.len()), (references(&text), 0), "{path:?}");
    }
}

#[test]
fn shipped_files_fit_the_schema_that_is_shipped_with_them() {
    let schema = include_str!("../../../../config/sortie.schema.json");
    let schema = serde_json::from_str(schema).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a schema");
    let fits = |text: &str| {
        let (document, _) = Document::parse(text);
        let document = document.expect("YAML");
        let report = Report::new("f".into(), Vec::new(), &document);
        let value: Given<serde_json::Value> = read::read(&report, &[]);
        let value = value.get().expect("read").clone();
        schema.iter_errors(&value).map(|error| error.to_string()).collect::<Vec<_>>()
    };
    let folders = ["config", "config/examples", "config/examples/many-teams"];
    for path in folders.into_iter().flat_map(files) {
        let text = std::fs::read_to_string(&path).expect("the file");
        assert_eq!(fits(&text), Vec::<String>::new(), "{path:?}");
    }
    for wrong in [
        "{}",
        "{version: 2, auth: none}",
        "{version: 1, auth: none, tool: []}",
        "{version: 1, auth: none, tools: [{name: a, description: b, timeout: 1}]}",
        "{version: 1, auth: none, tools: [~]}",
        "{version: 1, auth: {}}",
        "{version: 1, auth: {keys: [~]}}",
        "{version: 1, auth: {keys: [{name: a, scopes: [agent], key: {env: A}, tools: ~}]}}",
        "{version: 1, auth: {keys: [{name: a, scopes: [agent], key: {env: A}, tools: [~]}]}}",
        "{version: 1, auth: {keys: [{name: a, scopes: [agent], key: {}}]}}",
        "{version: 1, auth: {keys: [{name: a, scopes: [agent], key: {file: a, env: A}}]}}",
        "{version: 1, auth: none, dns: {attempts: 11}}",
    ] {
        assert!(!fits(wrong).is_empty(), "{wrong}");
    }
}

#[test]
fn every_error_of_a_broken_file_is_told() {
    let broken = files("tests/it/broken");
    assert!(broken.len() >= 10, "{broken:?}");
    for path in broken {
        let text = std::fs::read_to_string(&path).expect("the file");
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let found = parse(name, &text, &environment()).expect_err("is broken");
        let told = format!("{found}\n");
        let golden = path.with_extension("txt");
        if std::env::var_os("SORTIE_BLESS").is_some() {
            std::fs::write(&golden, &told).expect("written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(told, expected, "{path:?}; SORTIE_BLESS=1 writes the file anew");
        assert!(found.errors.len() >= 2, "{path:?} has one error only");
        assert!(!told.contains(CANARY), "{told}");
    }
}

/// What somebody's slip can put into a file.
const SCRAPS: &[&str] = &[
    "",
    " ",
    "\n",
    "\n  ",
    ":",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "|",
    ">",
    "&a ",
    "*a",
    "!x ",
    "#",
    "~",
    "null",
    "true",
    "0",
    "-1",
    "1e9",
    "99999999999999999999",
    "name",
    "tools:",
    "é",
    "\u{0}",
    "\t",
    "${A}",
    "<<: *a",
    "---\n",
];

/// The text with one scrap put in the place of a few characters.
fn edit(text: &str, (at, length, scrap): (usize, usize, usize)) -> String {
    let count = text.chars().count();
    let start = at % (count + 1);
    let before = text.chars().take(start);
    let after = text.chars().skip(start + length);
    before.chain(SCRAPS[scrap % SCRAPS.len()].chars()).chain(after).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_edited_sample_is_told_its_errors_or_checks_clean_again(edits in prop::collection::vec((any::<usize>(), 0usize..12, any::<usize>()), 1..4)) {
        let sample = include_str!("../../../../config/sortie.yaml");
        let text = edits.into_iter().fold(sample.to_owned(), |text, change| edit(&text, change));
        match parse_text(&text) {
            Ok(snapshot) => {
                let again = parse_text(&text).expect("it was good before");
                prop_assert_eq!((again.hash, again.warnings), (snapshot.hash, snapshot.warnings));
                prop_assert_eq!(again.tools.len(), snapshot.tools.len());
            }
            Err(found) => {
                prop_assert!(!found.errors.is_empty());
                for error in found.errors {
                    prop_assert!(error.line >= 1 && error.column >= 1);
                }
            }
        }
    }

    #[test]
    fn no_text_at_all_panics(text in "[ -~\n]{0,200}") {
        let _ = parse_text(&text);
    }
}
