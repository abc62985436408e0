//! Images without a daemon: built by `buildah`, unpacked by `umoci`, run by `runc` with what a cluster allows and no more.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::deploy::tool;
use crate::support::languages::good;

/// What has to be installed.
const PROGRAMS: &[&str] = &["buildah", "runc", "umoci"];

/// Whether images can be built and run here. Where they cannot, that is said.
pub(crate) fn installed() -> bool {
    PROGRAMS.iter().all(|program| tool(program).is_some())
}

/// An image that was built, and what it unpacks to.
pub(crate) struct Image {
    folder: TempDir,
    /// As the builder describes it.
    pub(crate) description: Value,
}

impl Image {
    /// Builds it from this Dockerfile and context, without a network.
    pub(crate) fn build(dockerfile: &Path, context: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let buildah = || {
            let mut command = program("buildah");
            // No layers that need a kernel's help, and no container to build in: nothing is run.
            command.env("STORAGE_DRIVER", "vfs").env("BUILDAH_ISOLATION", "chroot");
            command.arg("--root").arg(folder.path().join("store"));
            command.arg("--runroot").arg(folder.path().join("run"));
            command
        };
        // Only docker's format has a health check.
        let build = ["bud", "--format", "docker", "--timestamp", "0", "--pull-never", "-t", "it"];
        good(buildah().args(build).arg("-f").arg(dockerfile).arg(context));
        let described = good(buildah().args(["inspect", "--type", "image", "it"]));
        let description = serde_json::from_slice(&described.stdout).expect("JSON");
        let layout = format!("oci:{}:it", folder.path().join("layout").display());
        good(buildah().args(["push", "it", &layout]));
        let mut unpack = program("umoci");
        unpack.args(["unpack", "--image"]).arg(format!("{}:it", &layout[4..layout.len() - 3]));
        good(unpack.arg(folder.path().join("bundle")));
        Self { folder, description }
    }

    /// Where its files are.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("bundle/rootfs")
    }

    /// Its layers as they are stored and sent, in bytes.
    pub(crate) fn packed_bytes(&self) -> u64 {
        let blobs = self.folder.path().join("layout/blobs/sha256");
        let blobs = std::fs::read_dir(blobs).expect("a folder");
        blobs.map(|blob| blob.expect("an entry").metadata().expect("its size").len()).sum()
    }

    /// Every file and empty folder in it.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut open = vec![self.root()];
        while let Some(folder) = open.pop() {
            let entries: Vec<_> = std::fs::read_dir(&folder).expect("a folder").collect();
            if entries.is_empty() {
                found.push(folder);
            }
            for entry in entries {
                let entry = entry.expect("an entry");
                let is_folder = entry.file_type().expect("its kind").is_dir();
                if is_folder { &mut open } else { &mut found }.push(entry.path());
            }
        }
        let root = self.root();
        let inside = |path: PathBuf| {
            let path = path.strip_prefix(&root).expect("a path below it");
            format!("/{}", path.display())
        };
        let mut found: Vec<_> = found.into_iter().map(inside).collect();
        found.sort();
        found
    }

    /// A container of it, which has the network that its test has, no capability, and a root that cannot be written.
    pub(crate) fn container(&self) -> Container<'_> {
        let file = self.folder.path().join("bundle/config.json");
        let text = std::fs::read_to_string(file).expect("a file");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config["process"]["terminal"] = json!(false);
        config["process"]["noNewPrivileges"] = json!(true);
        config["process"]["capabilities"] = json!({});
        config["root"]["readonly"] = json!(true);
        let namespaces = config["linux"]["namespaces"].as_array_mut().expect("a list");
        namespaces.retain(|namespace| namespace["type"] != "network");
        let id = format!("sortie-test-{}", std::process::id());
        Container { image: self, config, id }
    }
}

/// A container, which is gone when it is dropped.
pub(crate) struct Container<'a> {
    image: &'a Image,
    config: Value,
    id: String,
}

impl Container<'_> {
    /// Shows it a file or folder of this machine.
    pub(crate) fn mount(mut self, from: &Path, to: &str, mode: &str) -> Self {
        let mounts = self.config["mounts"].as_array_mut().expect("a list");
        mounts.push(json!({
            "type": "none", "source": from, "destination": to, "options": ["bind", mode],
        }));
        self
    }

    /// Tells it this test's name servers, in a file of its own as a cluster does.
    pub(crate) fn resolv_conf(self) -> Self {
        let text = std::fs::read_to_string("/etc/resolv.conf").expect("a file");
        let file = self.image.folder.path().join("resolv.conf");
        std::fs::write(&file, text).expect("a written file");
        self.mount(&file, "/etc/resolv.conf", "ro")
    }

    /// Gives it root's right over its network, as an init container has it, in this named namespace.
    pub(crate) fn network_admin(mut self, namespace: &str) -> Self {
        let sets = ["bounding", "effective", "permitted"];
        for set in sets {
            self.config["process"]["capabilities"][set] = json!(["CAP_NET_ADMIN"]);
        }
        let namespaces = self.config["linux"]["namespaces"].as_array_mut().expect("a list");
        let path = format!("/run/netns/{namespace}");
        namespaces.push(json!({"type": "network", "path": path}));
        self
    }

    /// Adds a variable to its environment.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        let environment = self.config["process"]["env"].as_array_mut().expect("a list");
        environment.push(json!(format!("{name}={value}")));
        self
    }

    /// The command that runs it, and ends as it does.
    pub(crate) fn run(&self) -> Command {
        let bundle = self.image.folder.path().join("bundle");
        std::fs::write(bundle.join("config.json"), self.config.to_string()).expect("written");
        let mut command = self.runc("run");
        command.arg("--bundle").arg(bundle).arg(&self.id);
        command
    }

    /// Runs one more program in it.
    pub(crate) fn exec(&self, arguments: &[&str]) -> Output {
        self.runc("exec").arg(&self.id).args(arguments).output().expect("it starts")
    }

    /// The id of its first process, as this machine counts.
    pub(crate) fn process(&self) -> u64 {
        let state = good(self.runc("state").arg(&self.id));
        let state: Value = serde_json::from_slice(&state.stdout).expect("JSON");
        state["pid"].as_u64().expect("a process")
    }

    fn runc(&self, verb: &str) -> Command {
        let mut command = program("runc");
        command.arg("--root").arg(self.image.folder.path().join("runc")).arg(verb);
        command
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.runc("delete").args(["--force", &self.id]).output();
    }
}

fn program(name: &str) -> Command {
    Command::new(tool(name).expect("`installed` was asked"))
}
