//! Every metric that a page, a rule, a panel or a manifest names is exported.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

use super::expressions::recorded;
use crate::deploy::shipped;

/// What begins like a metric and is none: the Python client's package, and a table of a packet filter.
const NO_METRICS: [&str; 2] = ["sortie_client", "sortie_fence"];

/// Places that speak of metrics.
const PLACES: [&str; 5] = ["CHANGELOG.md", "README.md", "config", "deploy", "src/README.md"];

fn files(place: &Path, found: &mut Vec<PathBuf>) {
    if place.is_file() {
        return found.push(place.to_owned());
    }
    for entry in fs::read_dir(place).expect("a folder") {
        files(&entry.expect("an entry").path(), found);
    }
}

/// Every name that a scrape has, with those of a histogram's parts.
fn exported(scrape: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        names.insert(name.to_owned());
        if kind == "histogram" {
            names.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}")));
        }
    }
    names
}

#[tokio::test]
async fn every_metric_that_is_named_is_exported() {
    let mut known = exported(&crate::readme::metrics().await);
    assert!(known.contains("sortie_overhead_seconds_bucket"), "{known:?}");
    known.extend(recorded());
    known.extend(NO_METRICS.map(str::to_owned));
    let name =
        Regex::new(r"(?:\b[a-z]+:)?\b(?:sortie|process)_[a-z0-9_:]*[a-z0-9]").expect("a pattern");
    let (mut texts, mut named) = (Vec::new(), BTreeSet::new());
    PLACES.iter().for_each(|place| files(&shipped(place), &mut texts));
    for path in texts {
        // Pictures and archives name nothing.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let of_a_package = path.starts_with(shipped("deploy/clients"));
        for found in name.find_iter(&text).map(|found| found.as_str()) {
            // `sortie_*`, and files of the clients.
            if !found.ends_with('_') && !of_a_package {
                assert!(known.contains(found), "{} names {found}", path.display());
                named.insert(found.to_owned());
            }
        }
    }
    assert!(named.len() > 50, "{named:?}");
}
