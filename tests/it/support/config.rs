//! Builds a configuration folder: the file, its secrets and its CA, all throw-away.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::canary::Canaries;
use crate::support::cli::{Finished, run};
use crate::support::dns::DnsServer;
use crate::support::upstream::Upstream;

/// The signing secret of a tool that names no other.
pub(crate) const SECRET: &str = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";

/// The bearer key that every configuration has, with scope `agent:call`.
pub(crate) const API_KEY: &str = "sk-test-Vq7RkX2mPz9LcT4nBw6";

/// The admin listener of every configuration, beside the file.
pub(crate) const ADMIN_SOCKET: &str = "admin.sock";

/// One entry of `tools`.
#[derive(Debug, Clone)]
pub(crate) struct Tool {
    entry: Value,
    secret: Option<String>,
    headers: Vec<(String, String, String)>,
}

impl Tool {
    /// A tool that runs unasked, takes any arguments and signs with [`SECRET`] in the default profile.
    pub(crate) fn new(name: &str, url: &str) -> Self {
        let entry = json!({
            "name": name,
            "description": "Answers what its test has scripted; for tests of the gateway.",
            "url": url,
            "policy": "allow",
            "parameters": {"type": "object", "properties": {}},
        });
        Self { entry, secret: Some(SECRET.to_owned()), headers: Vec::new() }
    }

    pub(crate) fn profile(self, name: &str) -> Self {
        self.set("profile", json!(name))
    }

    pub(crate) fn parameters(self, schema: Value) -> Self {
        self.set("parameters", schema)
    }

    pub(crate) fn secret(mut self, secret: &str) -> Self {
        self.secret = Some(secret.to_owned());
        self
    }

    /// For profiles that do not sign.
    pub(crate) fn no_secret(mut self) -> Self {
        self.secret = None;
        self
    }

    /// An own header whose value is prefix and secret.
    pub(crate) fn header(mut self, name: &str, prefix: &str, secret: &str) -> Self {
        self.headers.push((name.to_owned(), prefix.to_owned(), secret.to_owned()));
        self
    }

    pub(crate) fn url(&self) -> String {
        self.entry["url"].as_str().expect("a URL").to_owned()
    }

    /// Any other field.
    pub(crate) fn set(mut self, field: &str, value: Value) -> Self {
        self.entry[field] = value;
        self
    }
}

/// A configuration in the making.
pub(crate) struct ConfigBuilder {
    document: Value,
    raw: Option<String>,
    files: Vec<(String, String)>,
    canaries: Canaries,
    pub(in crate::support) environment: Vec<(String, String)>,
}

impl ConfigBuilder {
    /// Loopback listeners on free ports, one key, no tool, and no breaker: most tests let a tool fail often.
    pub(crate) fn new() -> Self {
        let document = json!({
            "version": 1,
            "listeners": {"api": {"address": "127.0.0.1:0"}, "telemetry": {"address": "127.0.0.1:0"}, "admin": {"unix": {"path": ADMIN_SOCKET}}},
            "auth": {"keys": []},
            "egress": {"exceptions": []},
            "defaults": {"breaker": "off"},
            "tools": [],
        });
        let mut builder = Self {
            document,
            raw: None,
            files: Vec::new(),
            canaries: Canaries::default(),
            environment: Vec::new(),
        };
        builder.push_key("test-runtime", API_KEY, json!({"scopes": ["agent:call"]}));
        builder
    }

    /// Adds a tool, its secrets as files.
    pub(crate) fn tool(mut self, tool: Tool) -> Self {
        let mut entry = tool.entry;
        let name = entry["name"].as_str().expect("a name").to_owned();
        if let Some(secret) = tool.secret {
            let file = self.secret_file(&format!("{name}.secret"), &secret);
            entry["secret"] = json!({"current": {"file": file}});
        }
        for (header, prefix, secret) in tool.headers {
            let file = self.secret_file(&format!("{name}.{header}"), &secret);
            entry["headers"][header] = json!({"file": file, "prefix": prefix});
        }
        self.push("/tools", entry)
    }

    /// Adds a bearer key; `fields` holds scopes, agents, tools and the like.
    pub(crate) fn key(mut self, name: &str, key: &str, fields: Value) -> Self {
        self.push_key(name, key, fields);
        self
    }

    fn push_key(&mut self, name: &str, key: &str, mut fields: Value) {
        let file = self.secret_file(&format!("{name}.key"), key);
        fields["name"] = json!(name);
        fields["key"] = json!({"file": file});
        self.array("/auth/keys").push(fields);
    }

    /// Gives a name the upstream's address in the zone, and opens that address to all tools under that name.
    pub(crate) fn reach(self, upstream: &Upstream, dns: &DnsServer, host: &str) -> Self {
        let address = upstream.address();
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        dns.set(host, &[&format!("{kind} {}", address.ip())]);
        self.dns(dns).exception(json!({
            "tools": ["*"],
            "hosts": [host],
            "cidrs": [format!("{}/{}", address.ip(), if address.is_ipv4() { 32 } else { 128 })],
            "ports": [address.port().to_string()],
            "http": upstream.url(host, "/").starts_with("http:"),
            "reason": "the test's own upstream",
            "owner": "tests",
        }))
    }

    pub(crate) fn exception(self, exception: Value) -> Self {
        self.push("/egress/exceptions", exception)
    }

    pub(crate) fn dns(self, dns: &DnsServer) -> Self {
        self.dns_at(dns.address())
    }

    pub(crate) fn dns_at(self, address: SocketAddr) -> Self {
        self.set("/dns/servers", json!([address.to_string()]))
    }

    /// Trusts one more certificate authority.
    pub(crate) fn ca(self, pem: &str) -> Self {
        self.file("ca.pem", pem).set("/egress/tls/extra_ca", json!({"file": "ca.pem"}))
    }

    /// Sets one value by its JSON pointer; objects on the way are made.
    pub(crate) fn set(mut self, pointer: &str, value: Value) -> Self {
        *self.place(pointer) = value;
        self
    }

    /// Idle clients are not closed while a test lasts.
    pub(crate) fn patient(self) -> Self {
        self.set("/listeners/api/idle_timeout", json!("10m"))
    }

    /// Replaces the whole document by this text; secrets and files stay as they are.
    pub(crate) fn raw(mut self, yaml: &str) -> Self {
        self.raw = Some(yaml.to_owned());
        self
    }

    /// Adds a file beside the configuration.
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    /// Watches for a text that must not come out of the gateway.
    pub(crate) fn watch(mut self, secret: &str) -> Self {
        self.canaries.watch(secret);
        self
    }

    /// Sets a variable of the gateway's environment.
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes everything into a fresh folder.
    pub(crate) fn write(&self) -> Folder {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in &self.files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a written file");
        }
        let config = dir.path().join("sortie.yaml");
        std::fs::write(&config, self.text()).expect("a written file");
        Folder { dir, config, canaries: self.canaries.clone() }
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> String {
        self.raw.clone().unwrap_or_else(|| format!("{:#}\n", self.document))
    }

    /// Runs `sortie check` on it.
    pub(crate) fn check(&self, options: &[&str]) -> Finished {
        let folder = self.write();
        let config = folder.config.to_str().expect("a UTF-8 path");
        let finished = run(["check", config].iter().chain(options), "");
        folder.canaries.assert_absent(
            "the output of check",
            &format!("{}{}", finished.stdout, finished.stderr),
        );
        finished
    }

    fn secret_file(&mut self, name: &str, secret: &str) -> String {
        self.canaries.watch(secret);
        let path = format!("secrets/{name}");
        self.files.push((path.clone(), format!("{secret}\n")));
        path
    }

    fn push(mut self, pointer: &str, value: Value) -> Self {
        self.array(pointer).push(value);
        self
    }

    fn array(&mut self, pointer: &str) -> &mut Vec<Value> {
        self.place(pointer).as_array_mut().expect("a list")
    }

    fn place(&mut self, pointer: &str) -> &mut Value {
        let mut place = &mut self.document;
        for part in pointer.split('/').skip(1) {
            place = match part.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[part],
            };
        }
        place
    }
}

/// A written configuration; it is removed when it is dropped.
pub(crate) struct Folder {
    dir: TempDir,
    pub(crate) config: PathBuf,
    pub(crate) canaries: Canaries,
}

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces a file as a whole: it is written beside its place and renamed.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let (path, beside) = (self.path().join(name), self.path().join(format!("{name}.new")));
        std::fs::write(&beside, text).expect("a written file");
        std::fs::rename(beside, path).expect("a renamed file");
    }
}
