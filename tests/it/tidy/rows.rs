//! The fault catalogue is covered: each row has a test that is named after it, or a word why not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::read_tree;

/// The last row of the catalogue.
const LAST: u32 = 166;

/// Rows without a test, and why.
const WITHOUT: &[(std::ops::RangeInclusive<u32>, &str)] = &[
    (81..=83, "not built: answers are not decoded"),
    (88..=100, "not built: HTTP/2"),
    (102..=102, "not built: HTTP/2"),
    (109..=109, "not built: revocation lists"),
    (131..=134, "later: replays and approvals"),
    (139..=140, "later: a store"),
    (164..=164, "later: mail"),
    (166..=166, "later: app tools"),
];

/// The rows that a test's name carries: `f029_f031_…` has two.
fn rows(name: &str) -> Vec<u32> {
    let parts = name.split('_').map_while(|part| {
        let digits = part.strip_prefix('f').filter(|digits| digits.len() == 3)?;
        digits.parse().ok()
    });
    parts.collect()
}

/// The rows of every test in this folder, each with one of its names.
fn proved(folder: &str) -> BTreeMap<u32, String> {
    let mut sources = Vec::new();
    read_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), "", &mut sources);
    let mut proved = BTreeMap::new();
    for source in &sources {
        for after in source.text.split("fn ").skip(1) {
            let name = after.split('(').next().unwrap_or_default();
            proved.extend(rows(name).into_iter().map(|row| (row, name.to_owned())));
        }
    }
    proved
}

#[test]
fn each_row_of_the_fault_catalogue_has_a_test_or_a_word_why_not() {
    let mut proved = proved("src");
    proved.extend(self::proved("tests"));
    let without: BTreeSet<_> = WITHOUT.iter().flat_map(|(rows, _)| rows.clone()).collect();
    let missing: Vec<_> =
        (1..=LAST).filter(|row| !proved.contains_key(row) && !without.contains(row)).collect();
    assert!(missing.is_empty(), "no test is named after {missing:?}");
    let both: Vec<_> = proved.iter().filter(|(row, _)| without.contains(*row)).collect();
    assert!(both.is_empty(), "they have a test, so take them off the list: {both:?}");
    assert!(proved.keys().all(|row| (1..=LAST).contains(row)), "{proved:?}");
}

#[test]
fn a_name_carries_its_rows_in_front() {
    assert_eq!(rows("f029_f031_a_name"), [29, 31]);
    assert_eq!(rows("f001_name_f002"), [1]);
    assert!(rows("for_each").is_empty() && rows("f1_name").is_empty());
}
