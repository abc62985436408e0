//! What is shipped for operators, tried with the tools that they use. A tool that is not here is said and skipped, and with
//! `SORTIE_REQUIRE_DEPLOY=1` a failure.

mod fence;
mod helm;
mod image;
mod monitor;
mod mounts;
mod oci;
mod openapi;
mod release;
mod rolling;
mod traces;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::support::languages::fetched;

/// `.ci/run` sets this where it has installed all of them: a test that is skipped proves nothing.
const REQUIRE: &str = "SORTIE_REQUIRE_DEPLOY";

/// Says that something is not here, so that a test ends without a word about its subject; fails where it has to be here.
pub(crate) fn skip(what: &str) {
    let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
    assert!(!required, "{what}, and {REQUIRE} is set");
    eprintln!("skipped: {what}");
}

/// A file or folder of this repository.
pub(crate) fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where a program is installed. Where it is not, that is said.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        skip(&format!("`{name}` is not installed"));
    }
    found
}

/// Looks where root's programs are too: they are not on everybody's path.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.iter().map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// The folder below `target/` that `fill` makes once for all runs; `contents` is what it is made of, with versions. None,
/// and a sentence, where it cannot be made. It is filled where it stays, so that paths in it hold.
pub(crate) fn kept(
    name: &str,
    contents: &str,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Option<PathBuf> {
    let digest = Sha256::digest(contents);
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("deploy-{name}-{digest}"));
    let complete = place.join(".complete");
    // Whoever comes meanwhile waits, in this process or in another one.
    std::fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let lock = File::create(place.with_extension("lock")).expect("a file");
    lock.lock().expect("a lock");
    if !complete.exists() {
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).expect("a folder");
        if let Err(what) = fill(&place) {
            skip(&what);
            return None;
        }
        File::create(complete).expect("a file");
    }
    Some(place)
}

/// A Python with packages of its own.
#[derive(Clone, Debug)]
pub(crate) struct Venv(PathBuf);

impl Venv {
    /// A program of one of the packages, or `python`.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.0.join("bin").join(name));
        // Nothing is written beside the scripts of this repository.
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

/// A Python that has these packages, each `NAME==VERSION`, below `target/`. None, and a sentence, where it cannot be had.
pub(crate) fn venv(packages: &[&str]) -> Option<Venv> {
    assert!(packages.iter().all(|package| package.contains("==")), "{packages:?} are pinned");
    let python = tool("python3")?;
    let fill = |place: &Path| {
        fetched(Command::new(&python).args(["-m", "venv"]).arg(place))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let polite = ["--only-binary", ":all:", "--timeout", "20", "--retries", "3"];
        fetched(Command::new(place.join("bin/python")).args(pip).args(polite).args(packages))
    };
    kept("venv", &packages.join(" "), fill).map(Venv)
}

#[test]
fn what_is_fetched_is_made_once() {
    let name = format!("once-{}", std::process::id());
    let place = kept(&name, "a", |place| {
        std::fs::write(place.join("made"), "").map_err(|error| error.to_string())
    });
    let place = place.expect("a folder");
    let again = kept(&name, "a", |_| Err("it is there".to_owned()));
    assert_eq!(again.as_deref(), Some(place.as_path()));
    assert!(place.join("made").exists());
    std::fs::remove_dir_all(&place).expect("removed");
    std::fs::remove_file(place.with_extension("lock")).expect("removed");
}

#[test]
fn a_python_has_the_packages_that_a_test_asks_for() {
    let Some(venv) = venv(&["PyYAML==6.0.3"]) else { return };
    let script = ["-c", "import yaml; print(yaml.safe_load('[1, 2]'))"];
    let output = venv.program("python").args(script).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[1, 2]\n");
}

#[test]
fn programs_are_found_and_files_are_those_of_this_repository() {
    assert!(tool("sh").is_some_and(|program| program.is_absolute()));
    assert!(find("no-such-program").is_none());
    assert!(shipped("README.md").is_file());
}
