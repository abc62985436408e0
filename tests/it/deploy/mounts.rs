//! ConfigMaps and Secrets as Kubernetes mounts them: folders of their own, in which the kubelet swaps a link.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::cli::run;
use crate::support::config::{ConfigBuilder, SECRET};
use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::wait::poll;
use crate::support::world::World;

/// A change is in force within this time, also where the machine does not tell that something changed. It holds for the
/// quicker of two: a busy machine can be late once, and what is never seen fails all the same.
const BOUND: Duration = Duration::from_secs(15);
const OTHER_SECRET: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
const FILE: &str = "sortie.yaml";
const SECRET_FILE: &str = "lookup";

/// A mounted volume.
struct Volume {
    path: PathBuf,
    version: u32,
}

impl Volume {
    /// Mounts it with a file.
    fn new(path: PathBuf, name: &str, text: &str) -> Self {
        std::fs::create_dir_all(&path).expect("a folder");
        symlink(Path::new("..data").join(name), path.join(name)).expect("a link");
        let mut volume = Self { path, version: 0 };
        volume.swap(name, text);
        volume
    }

    /// What the kubelet does: a new folder, a new link beside the old one, one rename, and the old folder goes.
    fn swap(&mut self, name: &str, text: &str) {
        let folder = |version: u32| format!("..2026_12_01_08_00_{version:02}.123456789");
        let (before, after) = (folder(self.version), folder(self.version + 1));
        self.version += 1;
        std::fs::create_dir(self.path.join(&after)).expect("a folder");
        std::fs::write(self.path.join(&after).join(name), text).expect("a written file");
        let (beside, data) = (self.path.join("..data_tmp"), self.path.join("..data"));
        symlink(after, &beside).expect("a link");
        std::fs::rename(beside, data).expect("a renamed link");
        if self.version > 1 {
            std::fs::remove_dir_all(self.path.join(before)).expect("a removed folder");
        }
    }
}

/// The configuration in a volume, and the tool's secret in another one.
fn config(world: &World, secrets: &Path, region: &str) -> ConfigBuilder {
    let file = secrets.join(SECRET_FILE);
    let secret = json!({"current": {"file": file}});
    let tool = world.tool("lookup").no_secret().set("secret", secret);
    let config = world.config().tool(tool).set("/region", json!(region));
    // The key and the socket stand in the folder of the test, beside the volume.
    config
        .set("/auth/keys/0/key", json!({"file": "../secrets/test-runtime.key"}))
        .set("/listeners/admin/unix/path", json!("../admin.sock"))
        .set("/egress/tls", json!({}))
        .watch(SECRET)
        .watch(OTHER_SECRET)
}

/// Waits until so many changes were taken; how long that took.
async fn taken(gateway: &Gateway, what: &str, count: f64) -> Duration {
    let swapped = Instant::now();
    let applied = [("result", "applied")];
    poll(what, || async {
        let metrics = gateway.metrics().await;
        (metrics.value("sortie_config_reloads_total", &applied) == count).then_some(())
    })
    .await;
    let took = swapped.elapsed();
    eprintln!("{what} after {took:?}");
    took
}

/// The region in the log line of a call that is made now.
async fn region(gateway: &Gateway) -> Value {
    let outcome = gateway.call("lookup", json!({})).await;
    outcome.succeeded();
    gateway.call_line(&outcome.id()).await["region"].clone()
}

/// Whether a call that is made now is signed with this secret.
async fn signs_with(world: &World, gateway: &Gateway, secret: &str) -> bool {
    gateway.call("lookup", json!({})).await.succeeded();
    let request = world.upstream.requests().pop().expect("a request");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("secret");
    std::fs::write(&path, secret).expect("a written file");
    let path = path.to_str().expect("a UTF-8 path");
    let signature = request.header("X-Tool-Signature").expect("a signature");
    let verify =
        ["verify", "--profile", "envelope-v1", "--secret-file", path, "--header", signature];
    run(verify, &request.body).code == Some(0)
}

/// Swaps both volumes of a gateway that runs under this program.
async fn both_are_taken(program: Option<(&str, &[&str])>) -> String {
    let world = World::plain().await;
    world.upstream.default(Script::always(answer(200, "application/json", "1")));
    let mounted = tempfile::tempdir().expect("a folder");
    let secrets = mounted.path().join("secrets");
    let mut secret = Volume::new(secrets.clone(), SECRET_FILE, SECRET);
    let written = |region| config(&world, &secrets, region);
    let mut folder = written("before").write();
    let mut map = Volume::new(folder.path().join("etc"), FILE, &written("before").text());
    folder.config = map.path.join(FILE);
    let gateway = match program {
        None => written("before").start_in(folder).await,
        Some((program, arguments)) => {
            written("before").start_in_under(folder, program, arguments).await
        }
    };
    assert_eq!(region(&gateway).await, "before");
    assert!(signs_with(&world, &gateway, SECRET).await);

    map.swap(FILE, &written("after").text());
    let first = taken(&gateway, "the ConfigMap is in force", 1.0).await;
    assert_eq!(region(&gateway).await, "after");
    secret.swap(SECRET_FILE, OTHER_SECRET);
    let second = taken(&gateway, "the Secret is in force", 2.0).await;
    assert!(signs_with(&world, &gateway, OTHER_SECRET).await);
    assert!(!signs_with(&world, &gateway, SECRET).await, "the secret before is gone");
    // And again: what is watched now is not what was watched at the start.
    map.swap(FILE, &written("later").text());
    let third = taken(&gateway, "another ConfigMap is in force", 3.0).await;
    assert_eq!(region(&gateway).await, "later");
    secret.swap(SECRET_FILE, SECRET);
    let fourth = taken(&gateway, "another Secret is in force", 4.0).await;
    assert!(signs_with(&world, &gateway, SECRET).await);
    for (what, [once, again]) in [("ConfigMap", [first, third]), ("Secret", [second, fourth])] {
        assert!(once.min(again) < BOUND, "{what}: {once:?}, {again:?}");
    }
    let metrics = gateway.metrics().await;
    for (result, count) in [("invalid", 0.0), ("needs_restart", 0.0)] {
        let reloads = metrics.value("sortie_config_reloads_total", &[("result", result)]);
        assert_eq!(reloads, count, "{result}");
    }
    gateway.finish().await.stdout
}

#[tokio::test]
async fn a_configmap_and_a_secret_that_are_swapped_are_in_force_within_15_s() {
    let said = both_are_taken(None).await;
    assert!(!said.contains("Folders cannot be watched"), "{said}");
}

/// Its own user namespace has no watches to give.
#[tokio::test]
async fn they_are_where_nothing_can_be_watched() {
    let no_watches = "echo 0 > /proc/sys/user/max_inotify_instances";
    let tried = run_unshared(&format!("{no_watches} && exit 0"));
    if !tried {
        return crate::deploy::skip("a user namespace cannot be made");
    }
    let script = format!("{no_watches} && exec \"$@\"");
    let said = both_are_taken(Some(("unshare", &["-Ur", "sh", "-c", &script, "sh"]))).await;
    assert!(said.contains("Folders cannot be watched, changes are seen every 10 s."), "{said}");
}

fn run_unshared(script: &str) -> bool {
    let output = std::process::Command::new("unshare").args(["-Ur", "sh", "-c", script]).output();
    output.is_ok_and(|output| output.status.success())
}
