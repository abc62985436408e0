//! `sortie demo --once`, the first thing that a newcomer runs.

use crate::support::cli::run;

#[test]
fn four_calls_end_as_they_should_and_nothing_is_left_behind() {
    let finished = run(["demo", "--once"], "");
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{finished:#?}");
    let page = finished.stdout;
    for expected in [
        "POST /tools/lookup-order HTTP/1.1",
        "X-Tool-Signature: t=",
        "\"status\": \"succeeded\"",
        "\"code\": \"invalid_arguments\"",
        "\"code\": \"blocked_host\"",
        "\"code\": \"redirect\"",
        "All four calls ended as they should.",
    ] {
        assert!(page.contains(expected), "no {expected:?} in\n{page}");
    }
    assert_eq!(page.matches("checked the signature: verified.").count(), 2, "{page}");
    assert_eq!(page.matches("nothing left the gateway").count(), 2, "{page}");
    let config = page
        .lines()
        .find_map(|line| line.trim().strip_prefix("configuration"))
        .expect("the file's place");
    assert!(!std::path::Path::new(config.trim()).exists(), "the folder is gone");
}
