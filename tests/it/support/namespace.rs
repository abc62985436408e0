//! A network and mount namespace of a test's own: public and private addresses, resolv.conf and hosts as in a cluster.

use std::any::type_name;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::certs::Authority;
use crate::support::config::{ConfigBuilder, Tool};
use crate::support::deaf::Deaf;
use crate::support::dns::DnsServer;
use crate::support::script::{Script, answer};
use crate::support::upstream::Upstream;

/// The tool server's name, and a second name of the same server.
pub(crate) const HOST: &str = "tool.example.com";
pub(crate) const OTHER_HOST: &str = "other.example.com";

/// The tool server, on port 443 of three addresses that the address rules take for public ones.
pub(crate) const PUBLIC: &str = "93.184.216.34";
pub(crate) const SECOND: &str = "151.101.1.69";
pub(crate) const PUBLIC_V6: &str = "2606:2800:220:1:248:1893:25c8:1946";

/// Public addresses without a tool server: one swallows every SYN, one refuses it, to one there is no route.
pub(crate) const BLACK_HOLE: &str = "151.101.65.69";
pub(crate) const CLOSED: &str = "151.101.129.69";
pub(crate) const NO_ROUTE_V6: &str = "2a00:1450:4001:81b::200e";

/// Where a call would do harm; somebody listens on each of them.
pub(crate) const FORBIDDEN: &[&str] = &[
    "127.0.0.1",
    "::1",
    "10.0.0.5",
    "172.16.0.9",
    "192.168.0.10",
    "100.64.0.5",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "198.18.0.84",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fd12:3456:789a::1",
    "64:ff9b::a00:5",
    "64:ff9b::a9fe:a9fe",
    "2002:a00:5::1",
];
const FORBIDDEN_PORTS: &[u16] = &[80, 443, 8443];

const NAME_SERVER: &str = "10.96.0.10";

/// As the kubelet writes it: short names go through the search list first.
const RESOLV_CONF: &str = "search default.svc.cluster.local svc.cluster.local cluster.local\n\
                           nameserver 10.96.0.10\noptions ndots:5\n";

/// Each name leads inside.
const HOSTS: &str = "127.0.0.1 localhost\n10.0.0.5 tool.example.com other.example.com\n\
                     fd00:ec2::254 tool.example.com\n10.0.0.5 hosts-file-only.example.com\n";

/// Set for the process inside.
const INSIDE: &str = "SORTIE_TEST_NAMESPACE";
/// `1` where a namespace that cannot be made is a failure.
const REQUIRE: &str = "SORTIE_REQUIRE_NAMESPACE";

/// Everything inside, and who must not be called.
pub(crate) struct Network {
    pub(crate) authority: Authority,
    pub(crate) dns: DnsServer,
    pub(crate) public: Upstream,
    pub(crate) second: Upstream,
    pub(crate) public_v6: Upstream,
    _black_hole: Deaf,
    forbidden: Vec<Upstream>,
}

/// Runs a test's case in a process of its own in fresh namespaces, and proves afterwards that nobody called a forbidden
/// address. The process is this test binary once more, told to run that test alone: the closure's type has its name.
pub(crate) fn isolated<F: AsyncFnOnce(&Network)>(case: F) {
    if std::env::var_os(INSIDE).is_some() {
        prepare();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        return runtime.block_on(async {
            let network = Network::new().await;
            case(&network).await;
            for forbidden in &network.forbidden {
                forbidden.assert_untouched().await;
            }
        });
    }
    // `it::module::test::{{closure}}`
    let name = type_name::<F>().trim_end_matches("::{{closure}}");
    let (_, name) = name.split_once("::").expect("a path in this crate");
    if let Err(why) = namespaces() {
        let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
        assert!(!required, "{REQUIRE}=1, but there is no namespace: {why}");
        // Not `eprintln`, which the test runner keeps to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED {name}: no network namespace: {why}");
        return;
    }
    let output = Command::new("unshare")
        .args(["-n", "-m"])
        .arg(std::env::current_exe().expect("the test's own binary"))
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .expect("`unshare` starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{name} in its namespace: {}\n{stdout}\n{stderr}",
        output.status
    );
}

/// Whether namespaces can be made here, with what is needed inside.
fn namespaces() -> Result<(), String> {
    let made = Command::new("unshare")
        .args(["-n", "-m", "ip", "link", "set", "lo", "up"])
        .output()
        .map_err(|error| format!("`unshare` does not start: {error}"))?;
    match made.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
    }
}

/// Gives the loopback interface its addresses, and lays other files over those of the machine.
fn prepare() {
    let public = [PUBLIC, SECOND, PUBLIC_V6, BLACK_HOLE, CLOSED, NAME_SERVER];
    let own = FORBIDDEN.iter().filter(|text| !address(text).is_loopback());
    let mut batch = "link set lo up\n".to_owned();
    for text in public.iter().chain(own) {
        let length = if address(text).is_ipv4() { 32 } else { 128 };
        batch.push_str(&format!("address add {text}/{length} dev lo\n"));
    }
    ip(&batch);
    // The files stay as long as they are mounted.
    let folder = tempfile::tempdir().expect("a folder");
    for (target, text) in [("/etc/resolv.conf", RESOLV_CONF), ("/etc/hosts", HOSTS)] {
        let file = folder.path().join("file");
        std::fs::write(&file, text).expect("a written file");
        command("mount", &["--bind", file.to_str().expect("UTF-8"), target], "");
        std::fs::remove_file(file).expect("a file");
        assert_eq!(std::fs::read_to_string(target).expect("a file"), text);
    }
}

/// Runs commands of `ip`, one on each line.
pub(crate) fn ip(batch: &str) {
    command("ip", &["-batch", "-"], batch);
}

fn command(program: &str, arguments: &[&str], input: &str) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("input that is taken");
    drop(stdin);
    let status = child.wait().expect("a child of ours");
    assert!(status.success(), "{program} {arguments:?} ended with {status}\n{input}");
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Network {
    async fn new() -> Self {
        let authority = Authority::new();
        let leaf = authority.leaf(&[HOST, OTHER_HOST, PUBLIC]);
        let server = async |text| {
            let server = Upstream::tls_at(SocketAddr::new(address(text), 443), &leaf).await;
            server.default(Script::always(answer(200, "application/json", r#"{"ok":true}"#)));
            server
        };
        let mut forbidden = Vec::new();
        for text in FORBIDDEN {
            for &port in FORBIDDEN_PORTS {
                forbidden.push(Upstream::forbidden_at(SocketAddr::new(address(text), port)).await);
            }
        }
        Self {
            dns: DnsServer::start_at(SocketAddr::new(address(NAME_SERVER), 53)).await,
            public: server(PUBLIC).await,
            second: server(SECOND).await,
            public_v6: server(PUBLIC_V6).await,
            _black_hole: Deaf::listen_at(SocketAddr::new(address(BLACK_HOLE), 443)),
            authority,
            forbidden,
        }
    }

    /// A tool at the public server, in the default profile.
    pub(crate) fn tool(&self, name: &str) -> Tool {
        Tool::new(name, &format!("https://{HOST}/{name}"))
    }

    /// A configuration without any exception, in an environment that names a proxy for everything.
    pub(crate) fn config(&self) -> ConfigBuilder {
        let config =
            ConfigBuilder::new().set("/dns/servers", json!(["system"])).ca(&self.authority.pem());
        let proxies = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];
        proxies.iter().fold(config, |config, name| {
            let proxy = "http://10.0.0.5:80";
            config.environment(name, proxy).environment(&name.to_lowercase(), proxy)
        })
    }

    /// From now on the name has these records, to be asked for each time.
    pub(crate) fn now(&self, host: &str, lines: &[&str]) {
        self.dns.chain(host, lines);
    }

    /// How many connections the tool server took, on all of its addresses.
    pub(crate) fn dials(&self) -> usize {
        let servers = [&self.public, &self.second, &self.public_v6];
        servers.iter().map(|server| server.connections().len()).sum()
    }

    /// How many requests it saw.
    pub(crate) fn requests(&self) -> usize {
        let servers = [&self.public, &self.second, &self.public_v6];
        servers.iter().map(|server| server.requests().len()).sum()
    }
}
