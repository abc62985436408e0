//! The providers' own packages read each export and call by the names in it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{ARGUMENTS, FORMATS, export, ten_tools};

/// `1` where packages that cannot be installed are a failure.
const REQUIRE: &str = "SORTIE_REQUIRE_SDKS";
const PACKAGES: &str = include_str!("../sdks.txt");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/catalogue/sdk.py");

/// A Python that has the packages, made once for each list of them; or why there is none.
fn python() -> Result<PathBuf, String> {
    let digest = Sha256::digest(PACKAGES);
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sdks-{name}"));
    let python = folder.join("bin/python");
    if python.exists() {
        return Ok(python);
    }
    // Another process may do the same; whoever is first gives the folder its name.
    let fresh = folder.with_extension(std::process::id().to_string());
    let _ = std::fs::remove_dir_all(&fresh);
    run(Command::new("python3").args(["-m", "venv"]).arg(&fresh))?;
    let list = fresh.join("packages.txt");
    std::fs::write(&list, PACKAGES).map_err(|error| error.to_string())?;
    let mut install = Command::new(fresh.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    install.args(["--only-binary", ":all:", "--timeout", "20", "--retries", "3", "-r"]).arg(&list);
    let installed = run(&mut install);
    if installed.is_ok() && std::fs::rename(&fresh, &folder).is_ok() {
        return Ok(python);
    }
    let _ = std::fs::remove_dir_all(&fresh);
    if python.exists() { Ok(python) } else { Err(installed.err().unwrap_or_default()) }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let said = || {
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&said)))
    };
    if output.status.success() { Ok(()) } else { said() }
}

/// The packages, or `None` where they cannot be had and nobody insists.
fn packages() -> Option<PathBuf> {
    match python() {
        Ok(python) => Some(python),
        Err(why) if std::env::var_os(REQUIRE).is_some_and(|value| value == "1") => {
            panic!("the providers' packages cannot be installed: {why}")
        }
        Err(why) => {
            eprintln!("SKIPPED: no export was read by a provider's own package: {why}");
            None
        }
    }
}

#[tokio::test]
async fn each_provider_s_own_package_reads_its_export_and_calls_by_it() {
    let Some(python) = packages() else { return };
    let (world, gateway) = ten_tools().await;
    let arguments = ARGUMENTS.map(|(name, text)| {
        let value: Value = serde_json::from_str(text).expect("JSON");
        (name.replace('.', "_"), value)
    });
    let arguments = json!(arguments.into_iter().collect::<Map<_, _>>()).to_string();
    for format in FORMATS {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, input) =
            (folder.path().join("export.json"), folder.path().join("arguments.json"));
        std::fs::write(&path, export(&gateway, format).await).expect("a written file");
        std::fs::write(&input, &arguments).expect("a written file");
        let output = Command::new(&python)
            .args([Path::new(SCRIPT), Path::new(format), &path])
            .stdin(File::open(&input).expect("a file"))
            .output()
            .expect("Python starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{format}: {said}");
        let calls: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list of calls");
        assert_eq!(calls.len(), ARGUMENTS.len(), "{format}");
        for (call, (name, _)) in calls.iter().zip(ARGUMENTS) {
            let exported = call["name"].as_str().expect("a name");
            let outcome = gateway.call(exported, call["arguments"].clone()).await;
            outcome.succeeded();
            assert_eq!(outcome.at("/tool"), json!(name), "{format}");
        }
    }
    assert_eq!(world.upstream.requests().len(), FORMATS.len() * ARGUMENTS.len());
    gateway.finish().await;
}
