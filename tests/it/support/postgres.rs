//! A PostgreSQL server of the tests' own: found where it is installed, in a folder of its own, and ended with them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio_postgres::NoTls;

use crate::support::wait;

/// `1` where a test without PostgreSQL fails.
const REQUIRE: &str = "SORTIE_REQUIRE_POSTGRES";

/// Ends the server when it is told to (`USR1`), or when whoever started it is gone (`TERM`); then nothing is left of it.
const KEEPER: &str = r#"
trap 'kill -QUIT $server; wait $server; exit 0' USR1
trap 'kill -QUIT $server; wait $server; rm -rf "$1"; exit 0' TERM
"$2/postgres" -D "$1/data" -k "$1" -p "$3" -c listen_addresses=127.0.0.1 -c fsync=off \
    -c max_connections=300 >>"$1/log" 2>&1 &
server=$!
wait $server
"#;

/// A server.
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    running: Mutex<Option<Child>>,
}

impl Postgres {
    /// The one that all tests of this binary share; each has a database of its own. `None`, and a sentence, where
    /// PostgreSQL is not installed.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        // The server ends with the thread that started it: this one ends with the tests.
        let start = || {
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let _ = sender.send(Self::start());
                loop {
                    std::thread::park();
                }
            });
            receiver.recv().expect("the thread answers")
        };
        SHARED.get_or_init(start).as_ref()
    }

    /// One of a test's own, which it can stop and start.
    pub(crate) fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            let required = std::env::var_os(REQUIRE).is_some_and(|value| value == "1");
            assert!(!required, "{REQUIRE} is set, and there is no initdb");
            eprintln!("PostgreSQL is not installed: what needs it is skipped");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("sortie-postgres-").tempdir();
        let folder = folder.expect("a folder").keep();
        let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = port.local_addr().expect("an address").port();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&folder));
        }
        let data = folder.join("data");
        let arguments = ["-A", "trust", "-U", "sortie", "-E", "UTF8", "--locale=C", "--no-sync"];
        run(unprivileged(&programs.join("initdb")).arg("-D").arg(data).args(arguments));
        let server = Self { programs, folder, port, running: Mutex::default() };
        server.resume();
        Some(server)
    }

    /// Ends the server at once, as a crash would; its data stays.
    pub(crate) fn stop(&self) {
        let child = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            run(Command::new("kill").args(["-USR1", &child.id().to_string()]));
            child.wait().expect("it ends");
        }
    }

    /// Starts it again.
    pub(crate) fn resume(&self) {
        let mut command = unprivileged(Path::new("sh"));
        command.args(["-c", KEEPER, "keeper"]).arg(&self.folder).arg(&self.programs);
        let child = command.arg(self.port.to_string()).spawn().expect("sh runs");
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// The URL of a new, empty database.
    pub(crate) async fn database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let client = wait::poll("PostgreSQL answers", async || {
            let (client, connection) =
                tokio_postgres::connect(&self.url("postgres"), NoTls).await.ok()?;
            tokio::spawn(connection);
            Some(client)
        })
        .await;
        // Copies of one template at the same time get into each other's way.
        wait::poll("a database is made", async || {
            client.batch_execute(&format!("CREATE DATABASE {name}")).await.ok()
        })
        .await;
        self.url(&name)
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://sortie@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Where initdb and postgres are.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    folders.extend(installed.flatten().map(|version| version.path().join("bin")));
    folders
        .into_iter()
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// A command as somebody whom PostgreSQL accepts, that ends with the thread that starts it.
fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.args(["--pdeathsig", "TERM", "--"]).arg(program).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id runs");
    id.stdout == b"0\n"
}

#[track_caller]
fn run(command: &mut Command) {
    let ended = command.output().expect("it runs");
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}
