//! Other languages' programs and packages, which a machine may lack.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `.ci/run` sets this where it has installed all of them: a test that is skipped proves nothing.
const REQUIRE: &str = "SORTIE_REQUIRE_SDKS";

/// Says that something is not here, so that a test ends without a word about its subject; fails where it has to be here.
pub(crate) fn skip(what: &str) {
    assert!(std::env::var_os(REQUIRE).is_none(), "{what}, and {REQUIRE} is set");
    eprintln!("skipped: {what}");
}

/// Whether a program runs with these arguments, such as `--version`. Where it does not, that is said.
pub(crate) fn runs(program: &str, arguments: &[&str]) -> bool {
    let ran = Command::new(program).args(arguments).output();
    let runs = ran.is_ok_and(|output| output.status.success());
    if !runs {
        skip(&format!("`{program}` is not installed"));
    }
    runs
}

/// The folder that `fill` makes once for all runs, under a name that tells its contents; none where it cannot be made.
pub(crate) fn kept(name: &str, fill: impl FnOnce(&Path) -> Result<(), String>) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let place = target.join(name);
    if place.exists() {
        return Some(place);
    }
    std::fs::create_dir_all(target).expect("a folder");
    let beside = tempfile::tempdir_in(target).expect("a folder");
    if let Err(what) = fill(beside.path()) {
        skip(&what);
        return None;
    }
    // Another test may have been faster; what this one made is then removed.
    if std::fs::rename(beside.path(), &place).is_ok() {
        let _ = beside.keep();
    }
    assert!(place.exists(), "{} was made", place.display());
    Some(place)
}

/// Fails unless the program ended well; what it wrote.
#[track_caller]
pub(crate) fn good(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The same, with what went wrong as the error: for what comes over the network.
pub(crate) fn fetched(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {said}")) }
}
