//! The TypeScript package, compiled in a folder of its own by the compiler that its lock file names.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::support::languages::{fetched, good, kept, runs};

/// The compiled package.
pub(super) struct Package(TempDir);

impl Package {
    /// None where there is no node, or its packages cannot be had.
    pub(super) fn build(source: &Path) -> Option<Self> {
        let new = "process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)";
        if !runs("node", &["-e", new]) || !runs("npm", &["--version"]) {
            return None;
        }
        let modules = modules(source)?;
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["package.json", "tsconfig.json", "src", "examples", "test"] {
            copy(&source.join(name), &folder.path().join(name));
        }
        std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).expect("a link");
        let mut compiler = Command::new("node");
        compiler.args(["node_modules/typescript/bin/tsc", "--project", "."]);
        good(compiler.current_dir(folder.path()));
        Some(Self(folder))
    }

    /// Runs a compiled file.
    pub(super) fn node(&self, file: &str) -> Command {
        let mut command = Command::new("node");
        command.arg(self.0.path().join("dist").join(file));
        command
    }

    /// Runs a module's text beside the compiled files.
    pub(super) fn script(&self, text: &str) -> Command {
        fs::write(self.0.path().join("dist/script.js"), text).expect("a written file");
        self.node("script.js")
    }

    /// Runs the package's tests; what they said.
    #[track_caller]
    pub(super) fn test(&self, url: &str, key: &str) -> String {
        let mut command = Command::new("node");
        command.args(["--test", "--test-reporter", "tap"]);
        let tests = fs::read_dir(self.0.path().join("dist/test")).expect("a folder");
        let mut tests: Vec<PathBuf> = tests.map(|entry| entry.expect("an entry").path()).collect();
        tests.retain(|path| path.to_string_lossy().ends_with(".test.js"));
        assert_eq!(tests.len(), 3, "{tests:?}");
        let command = command.args(tests).env("SORTIE_URL", url).env("SORTIE_KEY", key);
        String::from_utf8(good(command).stdout).expect("UTF-8")
    }
}

/// What the lock file names, kept for the next run.
fn modules(source: &Path) -> Option<PathBuf> {
    let lock = fs::read_to_string(source.join("package-lock.json")).expect("a lock file");
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    let place = kept(&format!("npm-{:016x}", hasher.finish()), |place| {
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), place.join(name)).expect("a copy");
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        fetched(npm.current_dir(place))
    })?;
    Some(place.join("node_modules"))
}

/// Copies a file or a folder; a link becomes what it leads to.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        return;
    }
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

/// The example's server; it is killed when it is dropped.
pub(super) struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts it on a free port, and waits until it says its URL.
    pub(super) fn start(command: &mut Command) -> Self {
        let command = command.env("PORT", "0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        Self { child, url: line.trim_end().to_owned() }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn address(&self) -> SocketAddr {
        let rest = self.url.strip_prefix("http://").expect("a URL");
        rest.split('/').next().and_then(|place| place.parse().ok()).expect("an address")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
