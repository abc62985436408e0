//! The real binary, started on a configuration of its own and watched from outside.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::support::cli::{Finished, sortie};
use crate::support::config::{ADMIN_SOCKET, API_KEY, ConfigBuilder, Folder};
use crate::support::described;
use crate::support::http::{RawClient, Reply, exchange, get, post, request};
use crate::support::metrics::Metrics;
use crate::support::wait::{Log, poll};

/// The resolver keeps some sockets to name servers, each with a task, however many lookups there were.
const NAME_SERVER_TASKS: u64 = 4;

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A running gateway. When it is dropped it is killed, and what it wrote is searched for its secrets.
pub(crate) struct Gateway {
    folder: Folder,
    child: Child,
    readers: Vec<JoinHandle<()>>,
    stdout: Arc<Log<String>>,
    stderr: Arc<Log<String>>,
    api: SocketAddr,
    telemetry: SocketAddr,
    replies: Mutex<Vec<String>>,
    step: AtomicUsize,
    /// Tasks of its runtime when it had done nothing yet, where it has an admin socket.
    base_tasks: Option<u64>,
}

impl ConfigBuilder {
    /// Starts the gateway and waits until it is ready.
    pub(crate) async fn start(&self) -> Gateway {
        self.start_by(sortie(), self.write()).await
    }

    /// The same, by a program that becomes it: `prlimit --nofile=64:64`.
    pub(crate) async fn start_under(&self, program: &str, arguments: &[&str]) -> Gateway {
        self.start_in_under(self.write(), program, arguments).await
    }

    /// The same in a folder that was written before.
    pub(crate) async fn start_in(&self, folder: Folder) -> Gateway {
        self.start_by(sortie(), folder).await
    }

    /// The same in a folder that was written before, by a program that becomes it.
    pub(crate) async fn start_in_under(
        &self,
        folder: Folder,
        program: &str,
        arguments: &[&str],
    ) -> Gateway {
        let mut command = Command::new(program);
        command.args(arguments).arg(sortie().get_program());
        self.start_by(command, folder).await
    }

    /// The same with a second file of its folder, which changes what the first one says.
    pub(crate) async fn start_with(&self, file: &str) -> Gateway {
        let folder = self.write();
        let mut command = sortie();
        command.arg("serve").arg("--config").arg(&folder.config);
        command.arg("--config").arg(folder.path().join(file));
        self.start_as(command, folder).await
    }

    async fn start_by(&self, mut command: Command, folder: Folder) -> Gateway {
        command.arg("serve").arg("--config").arg(&folder.config);
        self.start_as(command, folder).await
    }

    /// The same by a command that is to become it, with all of its arguments.
    pub(crate) async fn start_as(&self, mut command: Command, folder: Folder) -> Gateway {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let Process { child, readers, stdout, stderr } = Process::start(command);
        let mut gateway = Gateway {
            folder,
            child,
            readers,
            stdout,
            stderr,
            api: NOWHERE,
            telemetry: NOWHERE,
            replies: Mutex::new(Vec::new()),
            step: AtomicUsize::new(0),
            base_tasks: None,
        };
        gateway.ready().await;
        gateway.base_tasks = gateway.tasks().await;
        gateway
    }
}

/// The binary that runs, and what it writes.
struct Process {
    child: Child,
    readers: Vec<JoinHandle<()>>,
    stdout: Arc<Log<String>>,
    stderr: Arc<Log<String>>,
}

impl Process {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let (stdout, stderr) = (Arc::new(Log::new()), Arc::new(Log::new()));
        let readers = vec![
            collect(child.stdout.take().expect("a pipe"), Arc::clone(&stdout)),
            collect(child.stderr.take().expect("a pipe"), Arc::clone(&stderr)),
        ];
        Self { child, readers, stdout, stderr }
    }
}

impl Gateway {
    /// Waits until it takes calls.
    async fn ready(&mut self) {
        self.api = self.listening("api").await;
        self.telemetry = self.listening("telemetry").await;
        let telemetry = self.telemetry;
        poll("/readyz to say 200", || async move {
            (exchange(telemetry, &get("/readyz")).await.status == 200).then_some(())
        })
        .await;
    }

    /// Kills it with SIGKILL and starts it anew on the same folder.
    pub(crate) async fn kill_and_start(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
        self.start_anew().await;
    }

    /// Starts it anew on the same folder, after its process has ended.
    pub(crate) async fn start_anew(&mut self) {
        self.join_readers();
        let written = [self.stdout.all().join("\n"), self.stderr.all().join("\n")];
        written.iter().for_each(|text| self.folder.canaries.assert_absent("what it wrote", text));
        let mut command = sortie();
        command.arg("serve").arg("--config").arg(&self.folder.config);
        let Process { child, readers, stdout, stderr } = Process::start(command);
        (self.child, self.readers, self.stdout, self.stderr) = (child, readers, stdout, stderr);
        self.ready().await;
    }

    /// The address of a listener, from its log line.
    pub(crate) async fn listening(&mut self, listener: &str) -> SocketAddr {
        poll(&format!("the {listener} listener"), || {
            let address = self.log_lines().iter().find_map(|line| {
                let matches = line["message"] == "Listening." && line["listener"] == listener;
                matches.then(|| {
                    // A Unix socket has no such address.
                    line["address"].as_str().expect("a place").parse().unwrap_or(NOWHERE)
                })
            });
            let ended = self.child.try_wait().expect("a child of ours");
            assert!(address.is_some() || ended.is_none(), "the gateway ended with {ended:?}");
            async move { address }
        })
        .await
    }

    pub(crate) fn api(&self) -> SocketAddr {
        self.api
    }

    /// The address of metrics and probes.
    pub(crate) fn telemetry(&self) -> SocketAddr {
        self.telemetry
    }

    /// The configuration folder.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Calls a tool with the default key, as a step of its own.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        self.call_with(json!({"tool": tool, "arguments": arguments})).await
    }

    /// Calls with a whole body; run and step are filled in where they are missing.
    pub(crate) async fn call_with(&self, mut body: Value) -> Outcome {
        let step = self.next_step();
        let fields = body.as_object_mut().expect("an object");
        fields.entry("run_id").or_insert_with(|| json!("run_test"));
        fields.entry("step").or_insert(json!(step));
        Outcome(self.post(Some(API_KEY), body.to_string()).await)
    }

    /// Posts a call and leaves the connection open: its owner reads the answer or hangs up. `more` are further fields.
    pub(crate) async fn open_call(&self, tool: &str, call_id: &str, more: Value) -> RawClient {
        let mut body = json!({"tool": tool, "arguments": {}, "call_id": call_id});
        for (field, value) in more.as_object().expect("an object") {
            body[field] = value.clone();
        }
        let mut client = RawClient::connect(self.api).await;
        client.write(&post("/v1/calls", Some(API_KEY), body.to_string())).await;
        client
    }

    /// A step that no other call has.
    pub(crate) fn next_step(&self) -> String {
        self.step.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Posts any bytes to `/v1/calls`.
    pub(crate) async fn post(&self, key: Option<&str>, body: impl AsRef<[u8]>) -> Reply {
        self.send(&post("/v1/calls", key, body)).await
    }

    /// Sends any whole request to the API listener on a connection of its own. The answer is one that is described.
    pub(crate) async fn send(&self, request: &[u8]) -> Reply {
        let reply = exchange(self.api, request).await;
        if let Some(wrong) = described::wrong(request, &reply) {
            panic!("config/openapi.yaml does not say so: {wrong}");
        }
        let text = format!("{}{}", reply.head, String::from_utf8_lossy(&reply.body));
        self.replies.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        reply
    }

    /// Asks the admin listener on its socket.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: &str) -> Reply {
        let socket = self.folder.path().join(ADMIN_SOCKET);
        let mut client = RawClient::connect_unix(&socket).await;
        client.write(request(method, path, None, body).as_bytes()).await;
        let reply = client.read_reply().await;
        let text = format!("{}{}", reply.head, String::from_utf8_lossy(&reply.body));
        self.replies.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        reply
    }

    /// How it stands, as its admin listener says.
    pub(crate) async fn status(&self) -> Value {
        self.admin("GET", "/status", "").await.json()
    }

    /// Tasks of its runtime; `None` where it has no admin socket.
    async fn tasks(&self) -> Option<u64> {
        let socket = self.folder.path().join(ADMIN_SOCKET);
        if !socket.exists() {
            return None;
        }
        self.status().await["tasks"].as_u64()
    }

    /// How many tasks there are beyond those of a gateway that has done nothing, and those of its name servers.
    pub(crate) async fn tasks_beyond_the_base(&self) -> u64 {
        let base = self.base_tasks.expect("an admin socket") + NAME_SERVER_TASKS;
        self.tasks().await.expect("an admin socket").saturating_sub(base)
    }

    /// A path of the telemetry listener.
    pub(crate) async fn probe(&self, path: &str) -> Reply {
        exchange(self.telemetry, &get(path)).await
    }

    pub(crate) async fn metrics(&self) -> Metrics {
        Metrics::parse(self.probe("/metrics").await.text())
    }

    /// The lines of standard output, as they were written.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.stdout.all()
    }

    /// The lines of standard output, as JSON.
    pub(crate) fn log_lines(&self) -> Vec<Value> {
        let lines = self.stdout.all();
        let parse = |line: &String| {
            serde_json::from_str(line).unwrap_or_else(|_| panic!("not a JSON line: {line}"))
        };
        lines.iter().map(parse).collect()
    }

    /// The one log line of a finished call.
    pub(crate) async fn call_line(&self, call_id: &str) -> Value {
        serde_json::from_str(&self.call_text(call_id).await).expect("a JSON line")
    }

    /// The same, as it was written.
    pub(crate) async fn call_text(&self, call_id: &str) -> String {
        let is_it = |line: &&String| {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            line["stream"] == "call" && line["call_id"] == call_id
        };
        let what = format!("the line of {call_id}");
        self.stdout.wait(&what, |lines| lines.iter().find(is_it).cloned()).await
    }

    /// The lines of all finished calls, by call. What the gateway has written is read to its end first.
    pub(crate) async fn call_lines(&self) -> HashMap<String, Vec<Value>> {
        let metrics = self.metrics().await;
        let written = metrics.value("sortie_call_log_entries_total", &[("result", "written")]);
        let is_one = |line: &&String| line.starts_with(r#"{"stream":"call""#);
        self.stdout
            .wait("the lines of all calls", |lines| {
                (lines.iter().filter(is_one).count() as f64 >= written).then_some(())
            })
            .await;
        let mut by_call: HashMap<String, Vec<Value>> = HashMap::new();
        for line in self.stdout.all().iter().filter(is_one) {
            let line: Value = serde_json::from_str(line).expect("a JSON line");
            let call = line["call_id"].as_str().expect("a call id").to_owned();
            by_call.entry(call).or_default().push(line);
        }
        by_call
    }

    /// The id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until no call is in flight.
    pub(crate) async fn assert_quiet(&self) {
        poll("no call in flight", || async {
            (self.metrics().await.value("sortie_calls_in_flight", &[]) == 0.0).then_some(())
        })
        .await;
    }

    /// Bounds how many descriptors it may have; the bound before.
    pub(crate) fn limit_descriptors(&self, bound: u64) -> u64 {
        let id = self.child.id();
        let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).expect("its limits");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
        let before = line.split_whitespace().nth(3).and_then(|soft| soft.parse().ok());
        let mut command = Command::new("prlimit");
        command.args(["--pid", &id.to_string(), &format!("--nofile={bound}:")]);
        assert!(command.status().expect("`prlimit` starts").success(), "the bound is set");
        before.expect("a number")
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&mut self) {
        assert!(self.child.try_wait().expect("a child of ours").is_none(), "the gateway runs");
        self.signal("TERM");
    }

    /// Sends SIGHUP.
    pub(crate) fn hang_up(&self) {
        self.signal("HUP");
    }

    /// Sends a signal by its name: `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let (name, id) = (format!("-{name}"), self.child.id().to_string());
        let status = Command::new("kill").args([name, id]).status().expect("`kill` starts");
        assert!(status.success(), "the gateway takes a signal");
    }

    /// Resident memory in bytes, and open descriptors.
    pub(crate) fn resources(&self) -> (u64, usize) {
        let proc = std::path::Path::new("/proc").join(self.child.id().to_string());
        let status = std::fs::read_to_string(proc.join("status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        (kilobytes << 10, std::fs::read_dir(proc.join("fd")).expect("its descriptors").count())
    }

    /// Waits for the end, and searches what was written for secrets.
    pub(crate) async fn ended(mut self) -> Finished {
        let status = poll("the gateway to end", || {
            let ended = self.child.try_wait().expect("a child of ours");
            async move { ended }
        })
        .await;
        self.join_readers();
        Finished {
            code: status.code(),
            stdout: self.stdout.all().join("\n"),
            stderr: self.stderr.all().join("\n"),
        }
    }

    /// The end of an ordinary test: nothing is in flight, no metric tells a secret, SIGTERM ends it with 0.
    pub(crate) async fn finish(mut self) -> Finished {
        self.assert_quiet().await;
        self.folder.canaries.assert_absent("the metrics", &self.metrics().await.text);
        self.terminate();
        let finished = self.ended().await;
        assert_eq!(finished.code, Some(0), "{finished:#?}");
        finished
    }

    fn join_readers(&mut self) {
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader that ends with its pipe");
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.join_readers();
        let (stdout, stderr) = (self.stdout.all().join("\n"), self.stderr.all().join("\n"));
        if std::thread::panicking() {
            eprintln!("--- the gateway's output ---\n{stdout}\n--- its errors ---\n{stderr}\n---");
            return;
        }
        let canaries = &self.folder.canaries;
        canaries.assert_absent("standard output", &stdout);
        canaries.assert_absent("standard error", &stderr);
        let replies = self.replies.get_mut().unwrap_or_else(PoisonError::into_inner);
        replies.iter().for_each(|reply| canaries.assert_absent("an answer of the API", reply));
    }
}

pub(crate) fn collect(pipe: impl Read + Send + 'static, log: Arc<Log<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            log.push(line.expect("UTF-8 output"));
        }
    })
}

/// The answer to a call.
#[derive(Debug, Clone)]
pub(crate) struct Outcome(pub(crate) Reply);

impl Outcome {
    /// The value at a JSON pointer; null where there is none.
    #[track_caller]
    pub(crate) fn at(&self, pointer: &str) -> Value {
        self.0.json().pointer(pointer).cloned().unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn id(&self) -> String {
        self.at("/id").as_str().expect("a call id").to_owned()
    }

    #[track_caller]
    pub(crate) fn model_text(&self) -> String {
        self.at("/model/text").as_str().expect("a text for the model").to_owned()
    }

    /// Fails unless the call succeeded; its result.
    #[track_caller]
    pub(crate) fn succeeded(&self) -> Value {
        assert_eq!(
            (self.0.status, self.at("/status")),
            (200, json!("succeeded")),
            "{}",
            self.0.text()
        );
        assert_eq!(
            (self.at("/error"), self.at("/model/is_error")),
            (Value::Null, json!(false)),
            "{}",
            self.0.text()
        );
        self.at("/result")
    }

    /// Fails unless the call failed in this way.
    #[track_caller]
    pub(crate) fn failed(&self, code: &str, detail: Option<&str>, outcome: &str) {
        self.without_result("failed", code, detail, outcome);
    }

    /// Fails unless the call was refused in this way.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str, detail: Option<&str>) {
        self.without_result("refused", code, detail, "not_sent");
    }

    #[track_caller]
    fn without_result(&self, status: &str, code: &str, detail: Option<&str>, outcome: &str) {
        let found = ["/status", "/error/code", "/error/detail", "/error/outcome"]
            .map(|pointer| self.at(pointer));
        let expected = [json!(status), json!(code), json!(detail), json!(outcome)];
        assert_eq!((self.0.status, found), (200, expected), "{}", self.0.text());
        assert_eq!(
            (self.at("/result"), self.at("/model/is_error")),
            (Value::Null, json!(true)),
            "{}",
            self.0.text()
        );
    }
}
