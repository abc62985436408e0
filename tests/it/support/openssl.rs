//! What rustls and rcgen refuse to make: old signatures, short keys and old versions, by the `openssl` command.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use tempfile::TempDir;

use crate::support::certs::Leaf;
use crate::support::wait::Log;

/// A folder with an authority that signs as it is told.
pub(crate) struct OpenSsl(TempDir);

impl OpenSsl {
    /// Makes an RSA authority whose key has so many bits.
    pub(crate) fn authority(bits: u32) -> Self {
        let made = Self(tempfile::tempdir().expect("a folder"));
        let bits = format!("rsa:{bits}");
        let rest = "req -x509 -nodes -keyout ca.key -out ca.pem -subj /CN=old -days 30 -sha256 \
                    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign";
        made.run(rest.split(' ').filter(|word| !word.is_empty()).chain(["-newkey", &bits]));
        made
    }

    /// The authority's certificate.
    pub(crate) fn pem(&self) -> String {
        self.read("ca.pem")
    }

    /// A certificate for a name: `key` are the words of its key's kind, `digest` is that of its signature.
    pub(crate) fn leaf(&self, host: &str, key: &[&str], digest: &str) -> Leaf {
        std::fs::write(self.path().join("names"), format!("subjectAltName=DNS:{host}\n"))
            .expect("a written file");
        let request = "req -nodes -keyout leaf.key -out leaf.csr -subj /CN=leaf".split(' ');
        self.run(request.chain(key.iter().copied()));
        let sign = "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 \
                    -extfile names -out leaf.pem";
        self.run(sign.split(' ').filter(|word| !word.is_empty()).chain([digest]));
        Leaf { certificate_pem: self.read("leaf.pem"), key_pem: self.read("leaf.key") }
    }

    /// Serves TLS with a certificate; `options` say what else is odd.
    pub(crate) async fn serve(&self, leaf: &Leaf, options: &[&str]) -> OldServer {
        let place = tempfile::tempdir_in(self.path()).expect("a folder").keep();
        std::fs::write(place.join("leaf.pem"), &leaf.certificate_pem).expect("a written file");
        std::fs::write(place.join("leaf.key"), &leaf.key_pem).expect("a written file");
        let mut command = Command::new("openssl");
        command.args("s_server -accept 127.0.0.1:0 -cert leaf.pem -key leaf.key".split(' '));
        command.args(options).current_dir(place);
        // Its input stays open: at its end it would stop.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("`openssl` is needed for this test");
        let (said, stdout) = (Arc::new(Log::new()), child.stdout.take().expect("a pipe"));
        let log = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(stdout).split(b'\n').map_while(Result::ok);
            for line in lines {
                log.push(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let address = |lines: &[String]| {
            lines.iter().find_map(|line| line.strip_prefix("ACCEPT ")?.trim().parse().ok())
        };
        let address = said.wait("the address of s_server", address).await;
        OldServer { child, reader: Some(reader), said, address }
    }

    fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) {
        let arguments: Vec<&str> = arguments.into_iter().collect();
        let output = Command::new("openssl").args(&arguments).current_dir(self.path()).output();
        let output = output.expect("`openssl` is needed for this test");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {}: {said}", arguments.join(" "));
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path().join(file)).expect("a file that openssl wrote")
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A running `openssl s_server`, which prints what it is sent.
pub(crate) struct OldServer {
    child: Child,
    reader: Option<JoinHandle<()>>,
    said: Arc<Log<String>>,
    address: SocketAddr,
}

impl OldServer {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it has said so.
    pub(crate) async fn says(&self, part: &str) {
        let says = |lines: &[String]| lines.iter().any(|line| line.contains(part)).then_some(());
        self.said.wait(&format!("s_server to say {part:?}"), says).await;
    }

    /// Ends it; all that it said.
    pub(crate) fn end(mut self) -> String {
        self.stop();
        self.said.all().join("\n")
    }

    fn stop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("a reader that ends with its pipe");
        }
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.stop();
    }
}
