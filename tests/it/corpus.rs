//! The fuzz targets over their committed corpora: what was found once stays fixed.

use std::path::{Path, PathBuf};

#[expect(unreachable_pub, reason = "the targets are a crate of their own, too")]
#[path = "../fuzz/targets.rs"]
mod targets;

use self::targets::TARGETS;

/// Fewer files than this are no corpus.
const LEAST_FILES: usize = 5;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("a UTF-8 name")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort_unstable();
    names
}

/// Runs a target over its corpus; a panic is reported with the file that caused it.
fn replay(target: &str) {
    let (_, run) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target");
    let folder = folder().join(target);
    let files = names(&folder);
    assert!(files.len() >= LEAST_FILES, "{target} has {} files", files.len());
    for file in files {
        let data = std::fs::read(folder.join(&file)).expect("a readable file");
        let ended = std::panic::catch_unwind(|| run(&data));
        assert!(ended.is_ok(), "{target} fails on {file}");
    }
}

macro_rules! replays {
    ($($test:ident: $target:literal;)*) => {
        const REPLAYED: &[&str] = &[$($target,)*];

        $(#[test] fn $test() { replay($target); })*
    };
}

replays! {
    addresses_are_judged_in_every_form: "address";
    answers_are_read_within_their_limit: "answer";
    any_arguments_get_an_answer_from_any_schema: "arguments";
    calls_are_taken_within_their_bounds: "call";
    configurations_that_are_taken_can_be_used: "config";
    urls_have_one_meaning: "endpoint";
    patterns_match_what_they_say: "host_pattern";
    json_is_read_once_and_as_it_is: "json";
    outcomes_are_one_document_and_one_line: "outcome";
    profiles_send_well_formed_requests: "profile";
    waits_are_neither_shorter_than_asked_nor_longer_than_allowed: "retry_after";
    nothing_verifies_but_what_was_signed: "signature";
    nobody_comes_in_by_a_forged_token: "token";
}

#[test]
fn every_target_is_replayed_and_every_corpus_has_a_target() {
    let targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(targets, REPLAYED);
    assert_eq!(names(&folder()), targets);
}
