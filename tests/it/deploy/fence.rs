//! The egress fence: in a namespace as a pod has it, nobody but the gateway's UID gets out, in both families.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::deploy::oci::{self, Image};
use crate::deploy::{shipped, tool};
use crate::support::cli::sortie;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::gateway::Gateway;
use crate::support::namespace::{HOST, OTHER_HOST, PUBLIC, PUBLIC_V6, SECOND, ip, isolated};
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;
use crate::support::wait::DEADLINE;

const GATEWAY: u32 = 65532;
const APP: u32 = 1000;

/// The pod's own addresses, and the other end of its cable, behind which everything else is.
const POD: &str = "10.244.0.2";
const POD_V6: &str = "fd00:244::2";
const CABLE: &str = "netns add pod\n\
                     link add world type veth peer name eth0 netns pod\n\
                     address add 10.244.0.1/24 dev world\n\
                     address add fd00:244::1/64 dev world nodad\n\
                     link set world up\n";
const POD_SIDE: &str = "link set lo up\n\
                        address add 10.244.0.2/24 dev eth0\n\
                        address add fd00:244::2/64 dev eth0 nodad\n\
                        link set eth0 up\n\
                        route add default via 10.244.0.1\n\
                        route add default via fd00:244::1\n";

/// Where everybody can run the binary, whoever owns the folder that it was built in.
const BINARY: &str = "/run/sortie";

/// A network namespace beside the world's, as the init container of a pod finds it.
struct Pod;

impl Pod {
    /// Connects it. What is made below `/run` is this test's own.
    fn new() -> Self {
        done(Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]));
        std::fs::write(BINARY, "").expect("a written file");
        done(Command::new("mount").arg("--bind").arg(sortie().get_program()).arg(BINARY));
        ip(CABLE);
        let file = "/run/pod-side";
        std::fs::write(file, POD_SIDE).expect("a written file");
        done(Self.command(0, "ip").args(["-batch", file]));
        Self
    }

    /// A program that is to run in it as this user, with nothing of root's. A second program can take its place.
    fn command(&self, uid: u32, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", "pod"]);
        if uid != 0 {
            let id = uid.to_string();
            let who = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"];
            command.args(who).args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]);
        }
        command.arg(program);
        command
    }

    /// Runs the fence's script, with these settings alone.
    fn fence(&self, settings: &[(&str, &str)]) -> Output {
        let script = shipped("deploy/fence/fence.sh");
        let mut command = self.command(0, "env");
        command.args(["-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.args(settings.iter().map(|(name, value)| format!("{name}={value}")));
        command.arg(script).output().expect("it starts")
    }

    /// The same, where it has to succeed; what it said.
    fn fenced(&self, settings: &[(&str, &str)]) -> String {
        let output = self.fence(settings);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    /// The rules that are in force.
    fn rules(&self) -> String {
        let nft = tool("nft").expect("it was there");
        let mut list = self.command(0, nft.to_str().expect("UTF-8"));
        let output = list.args(["list", "ruleset"]).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Whether this user reaches a server by TCP: `None`, or the error, which has to come at once.
    fn refusal(&self, uid: u32, address: SocketAddr) -> Option<String> {
        let mut probe = self.command(uid, BINARY);
        let output = probe.args(["probe", "ready", "--telemetry", &address.to_string()]).output();
        let output = output.expect("it starts");
        if output.status.success() {
            return None;
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert!(said.contains(" does not answer: "), "{said}");
        Some(said)
    }

    #[track_caller]
    fn assert_refused(&self, uid: u32, address: SocketAddr) {
        let said = self.refusal(uid, address);
        let said = said.unwrap_or_else(|| panic!("UID {uid} reaches {address}"));
        // "Administratively prohibited", as the kernel tells it to programs: EHOSTUNREACH and EACCES.
        let prohibited = if address.is_ipv4() { "(os error 113)" } else { "(os error 13)" };
        assert!(said.contains(prohibited), "UID {uid} to {address}: {said}");
    }

    #[track_caller]
    fn assert_passes(&self, uid: u32, address: SocketAddr) {
        assert_eq!(self.refusal(uid, address), None, "UID {uid} to {address}");
    }

    /// Whether the app can find this name's address by the system's name servers.
    fn finds(&self, name: &str) -> bool {
        let url = format!("https://{name}/");
        let output = self.command(APP, BINARY).args(["egress", "--json", &url]).output();
        let output = output.expect("it starts");
        let line: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no JSON line: {output:?}"));
        match line["verdict"].as_str() {
            Some("allow") => true,
            Some("unresolvable") => false,
            _ => panic!("{line}"),
        }
    }

    /// The real gateway in the pod, under its own user.
    async fn gateway(&self, config: ConfigBuilder) -> Gateway {
        let config = config
            .set("/listeners/api/address", json!(format!("{POD}:0")))
            .set("/listeners/telemetry/address", json!(format!("[{POD_V6}]:0")));
        let folder = config.write();
        done(Command::new("chown").arg("-R").arg(GATEWAY.to_string()).arg(folder.path()));
        let mut command = self.command(GATEWAY, BINARY);
        command.arg("serve").arg("--config").arg(&folder.config);
        config.start_as(command, folder).await
    }
}

#[track_caller]
fn done(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().expect("an address"), port)
}

/// A server of the world that answers whoever asks it.
async fn open(address: &str, port: u16) -> Upstream {
    let server = Upstream::plain_at(at(address, port)).await;
    server.default(Script::always(answer(200, "application/json", r#"{"ok":true}"#)));
    server
}

#[test]
fn the_app_is_refused_to_the_outside_and_the_gateway_passes_in_both_families() {
    if tool("nft").is_none() {
        return;
    }
    isolated(async |network| {
        let pod = Pod::new();
        let (v4, v6) = (open(PUBLIC, 8080).await, open(PUBLIC_V6, 8080).await);
        for server in [&v4, &v6] {
            // Without the fence everybody gets there: what is refused below is refused by it.
            pod.assert_passes(APP, server.address());
        }
        let said = pod.fenced(&[]);
        assert_eq!(said, "fence: closed to all but UID 65532\n");
        for server in [&v4, &v6] {
            pod.assert_refused(APP, server.address());
            pod.assert_refused(0, server.address());
            pod.assert_passes(GATEWAY, server.address());
            assert_eq!(server.connections().len(), 2, "the app's before, and the gateway's");
        }
        // The real one: it is asked from outside the pod, asks for names, and calls in either family.
        let v6_tool = Tool::new("v6", &format!("https://{OTHER_HOST}/v6"));
        let config = network.config().tool(network.tool("v4")).tool(v6_tool);
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        network.now(OTHER_HOST, &[&format!("AAAA {PUBLIC_V6}")]);
        let gateway = pod.gateway(config).await;
        gateway.call("v4", json!({})).await.succeeded();
        gateway.call("v6", json!({})).await.succeeded();
        assert_eq!(network.public.connections().len(), 1);
        assert_eq!(network.public_v6.connections().len(), 1);
        // The app's way to its gateway stays inside.
        pod.assert_passes(APP, gateway.telemetry());
        gateway.finish().await;
    });
}

#[test]
fn only_what_the_operator_names_is_opened_to_all_and_the_next_run_closes_it() {
    if tool("nft").is_none() {
        return;
    }
    isolated(async |_| {
        let pod = Pod::new();
        let (v4, v6) = (open(PUBLIC, 5432).await, open(PUBLIC_V6, 5432).await);
        let neighbours = [open(PUBLIC, 5433).await, open(SECOND, 5432).await];
        let named = format!("{PUBLIC}:5432 [2606:2800:220:1::/64]:5432");
        let said = pod.fenced(&[("APP_TCP", &named), ("GATEWAY_UID", "1001")]);
        assert_eq!(said, format!("fence: closed to all but UID 1001, {named}\n"));
        pod.assert_passes(APP, v4.address());
        pod.assert_passes(APP, v6.address());
        for neighbour in &neighbours {
            pod.assert_refused(APP, neighbour.address());
            pod.assert_refused(GATEWAY, neighbour.address());
            pod.assert_passes(1001, neighbour.address());
        }
        // The rules are replaced as a whole.
        pod.fenced(&[]);
        pod.assert_refused(APP, v4.address());
        pod.assert_refused(APP, v6.address());
        pod.assert_refused(1001, v4.address());
        assert_eq!(pod.rules().matches("chain output").count(), 1, "{}", pod.rules());
    });
}

#[test]
fn the_app_asks_for_names_only_where_that_is_wanted() {
    if tool("nft").is_none() {
        return;
    }
    isolated(async |network| {
        let pod = Pod::new();
        // Somebody else's port 53 would be a way out for anything.
        let elsewhere = [open(PUBLIC, 53).await, open(PUBLIC_V6, 53).await];
        network.now(HOST, &[&format!("A {PUBLIC}")]);
        assert!(pod.finds(HOST));
        pod.fenced(&[]);
        assert!(!pod.finds(HOST));
        for dns in ["resolv.conf", "10.96.0.10 fd00::a"] {
            pod.fenced(&[("APP_DNS", dns)]);
            assert!(pod.finds(HOST), "{dns}");
            elsewhere.iter().for_each(|server| pod.assert_refused(APP, server.address()));
        }
        pod.fenced(&[("APP_DNS", "10.96.0.11")]);
        assert!(!pod.finds(HOST));
    });
}

#[test]
fn datagrams_are_refused_as_connections_are() {
    if tool("nft").is_none() {
        return;
    }
    isolated(async |_| {
        let pod = Pod::new();
        for address in [PUBLIC, PUBLIC_V6] {
            let socket = UdpSocket::bind(at(address, 4433)).expect("a free address");
            socket.set_read_timeout(Some(DEADLINE)).expect("a deadline");
            let send = |uid: u32, text: &str| {
                let line = format!("printf {text} >/dev/udp/{address}/4433");
                let output = pod.command(uid, "bash").args(["-c", &line]).output();
                output.expect("it starts").status.success()
            };
            let next = || {
                let mut bytes = [0; 64];
                let length = socket.recv(&mut bytes).expect("a datagram");
                String::from_utf8_lossy(&bytes[..length]).into_owned()
            };
            assert!(send(APP, "before"));
            assert_eq!(next(), "before");
            pod.fenced(&[]);
            assert!(!send(APP, "after"));
            assert!(send(GATEWAY, "gateway"));
            assert_eq!(next(), "gateway", "what was refused did not come first");
            done(pod.command(0, "nft").args(["flush", "ruleset"]));
        }
    });
}

#[test]
fn a_fence_that_is_set_wrong_says_so_and_changes_nothing() {
    if tool("nft").is_none() {
        return;
    }
    isolated(async |_| {
        let pod = Pod::new();
        pod.fenced(&[]);
        let before = pod.rules();
        assert!(before.contains("meta skuid 65532 accept"), "{before}");
        for (name, value, what) in [
            ("GATEWAY_UID", "sortie", "sortie is not a UID"),
            ("GATEWAY_UID", "0", "0 is root, which would open the fence to too many"),
            ("APP_DNS", "kube-dns", "kube-dns is not an address"),
            ("APP_DNS", "10.0.0.0/8", "10.0.0.0/8 is a range, not an address"),
            ("APP_DNS", "1.1.1.1;accept", "1.1.1.1;accept is not an address"),
            ("APP_DNS", "*", "* is not an address"),
            (
                "APP_TCP",
                "db.example.com:5432",
                "db.example.com:5432: not ADDRESS:PORT or RANGE:PORT",
            ),
            ("APP_TCP", "10.0.0.5", "10.0.0.5: not ADDRESS:PORT or RANGE:PORT"),
            ("APP_TCP", "10.0.0.5:65536", "10.0.0.5:65536: the port is not 1 to 65535"),
            (
                "APP_TCP",
                "fd00::5:5432",
                "fd00::5:5432: an IPv6 range stands in brackets, as in [fd00::/8]:5432",
            ),
            ("APP_TCP", "10.0.0.0/77:5432", "the rules could not be set"),
        ] {
            let output = pod.fence(&[(name, value)]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name}={value}: {said}");
            let told = said.lines().last().unwrap_or_default();
            let prefix =
                if what.starts_with("the rules") { "fence: " } else { &format!("fence: {name}: ") };
            assert!(told.starts_with(&format!("{prefix}{what}")), "{name}={value}: {said}");
            assert_eq!(pod.rules(), before, "{name}={value}");
        }
    });
}

#[test]
fn its_image_is_all_that_it_needs() {
    if tool("nft").is_none() || !oci::installed() {
        return;
    }
    isolated(async |_| {
        let pod = Pod::new();
        let server = open(PUBLIC, 8080).await;
        let folder = tempfile::tempdir().expect("a folder");
        done(Command::new(shipped("deploy/fence/collect.sh")).arg(folder.path()));
        let dockerfile = shipped("deploy/fence/Dockerfile.scratch");
        let image = Image::build(&dockerfile, folder.path());
        // Nothing of a distribution but three programs and what they load.
        let programs: Vec<String> = image.files();
        let programs = programs.iter().filter(|file| !file.contains("/lib"));
        assert_eq!(programs.collect::<Vec<_>>(), ["/bin/nft", "/bin/sed", "/bin/sh", "/fence.sh"]);

        let run = |dns: &str| {
            let container = image.container().network_admin("pod").environment("APP_DNS", dns);
            container.resolv_conf().run().output().expect("it starts")
        };
        let output = run("kube-dns");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        pod.assert_passes(APP, server.address());
        let output = run("resolv.conf");
        assert!(output.status.success(), "{output:?}");
        pod.assert_refused(APP, server.address());
        pod.assert_passes(GATEWAY, server.address());
        assert!(pod.rules().contains("ip daddr 10.96.0.10 udp dport 53 accept"), "{}", pod.rules());
    });
}
