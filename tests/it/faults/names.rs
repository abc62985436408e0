//! Hosts that are refused as they are written: rows 21 and 22.

use serde_json::Value;

use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, Tool};

/// Each URL is refused with its code: by the command, which asks nobody, and as a tool's when a configuration is loaded.
fn check(rows: &[(&str, &str)]) {
    let urls: Vec<String> = rows.iter().map(|(host, _)| format!("https://{host}/")).collect();
    let targets = urls.iter().map(String::as_str);
    let options = ["egress", "--json", "--no-dns", "--"];
    let finished = run(options.into_iter().chain(targets), "");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    let lines: Vec<Value> = finished
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect();
    assert_eq!(lines.len(), rows.len(), "{finished:#?}");
    for ((host, code), line) in rows.iter().zip(&lines) {
        assert_eq!(
            (&line["verdict"], &line["code"]),
            (&"refuse".into(), &(*code).into()),
            "{host}"
        );
    }
    let config = urls.iter().enumerate().fold(ConfigBuilder::new(), |config, (at, url)| {
        config.tool(Tool::new(&format!("tool_{at}"), url))
    });
    let finished = config.check(&[]);
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    for at in 0..rows.len() {
        let told = format!(": tools[{at}].url: ");
        let all = format!("{}{}", finished.stdout, finished.stderr);
        assert!(all.contains(&told), "{told} is missing in {all}");
    }
}

#[test]
fn f021_names_of_special_use_are_refused_when_the_configuration_is_loaded() {
    check(&[
        ("localhost", "name_denied"),
        ("foo.localhost", "name_denied"),
        ("printer.local", "name_denied"),
        ("metadata.google.internal", "name_denied"),
        ("a2345.onion", "name_denied"),
        ("orders.prod.svc.cluster.local", "name_denied"),
        ("orders.prod.svc", "name_denied"),
        ("nas.home.arpa", "name_denied"),
        ("LOCALHOST.", "name_denied"),
        ("orders", "single_label"),
        ("orders.", "single_label"),
    ]);
}

#[test]
fn f022_addresses_in_disguise_are_refused_as_they_are_written() {
    check(&[
        ("127.1", "non_canonical_host"),
        ("0x7f.1", "non_canonical_host"),
        ("2130706433", "non_canonical_host"),
        ("0177.0.0.1", "non_canonical_host"),
        ("127.0.0.1", "loopback"),
        ("[::ffff:127.0.0.1]", "ipv4_mapped"),
        ("[::]", "unspecified"),
        ("[::1]", "loopback"),
        ("0.0.0.0", "this_network"),
        ("１２７.0.0.1", "non_ascii_url"),
        ("127。0。0。1", "non_ascii_url"),
    ]);
}
