//! `sortie demo`: a tool server, a name server and a gateway on loopback, and four calls to watch.

pub mod certificates;
pub mod dns;
pub mod folder;
pub mod scenes;
pub mod tool_server;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hyper::Method;
use tokio::time::timeout;

use crate::app::{App, StartError};
use crate::cli::client::{Ask, ClientError, Place, ask};
use crate::cli::demo::certificates::{CertificateError, Certificates};
use crate::cli::demo::dns::{Entry, NameServer};
use crate::cli::demo::folder::{Folder, random_text};
use crate::cli::demo::scenes::{SCENES, show_received};
use crate::cli::demo::tool_server::{Received, ToolServer};
use crate::cli::exit::{OK, fail};
use crate::model::secret::Secret;
use crate::telemetry::log::LogSink;

const SHOP: &str = "shop.example.com";
const ZONE: &[Entry] =
    &[(SHOP, Ipv4Addr::LOCALHOST), ("stock.example.com", Ipv4Addr::new(10, 0, 0, 5))];
const ELSEWHERE: &str = "https://elsewhere.example.com/";

/// How long one call may take: far more than it needs.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the demo did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// No certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// No answer from the gateway.
    #[error("call {number}: {source}")]
    Client {
        /// Which call.
        number: usize,
        /// What went wrong.
        source: ClientError,
    },
    /// A file, a socket or the terminal.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What went wrong.
        source: io::Error,
    },
    /// The gateway listens on no TCP address.
    #[error("the gateway listens on no TCP address")]
    NoListener,
    /// The gateway did not start.
    #[error("the gateway does not start: {0}")]
    Start(#[from] StartError),
    /// No answer in time.
    #[error("call {number}: no answer within {CALL_TIMEOUT:?}")]
    Timeout {
        /// Which call.
        number: usize,
    },
    /// Some call ended otherwise than it should.
    #[error("not as expected: {}", .0.join("; "))]
    Unexpected(Vec<String>),
}

/// Watch four calls on this machine: no configuration, no network.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// End after the four calls instead of keeping the gateway running
    #[arg(long)]
    once: bool,
}

/// Runs the demo: 0 where all calls ended as they should, else 1.
pub fn run(arguments: &Arguments) -> u8 {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("the runtime does not start: {error}")),
    };
    match runtime.block_on(play(arguments.once, &mut io::stdout())) {
        Ok(()) => OK,
        Err(error) => fail(&error.to_string()),
    }
}

/// Plays the scenes. With `once` that is all, else the gateway runs on until Ctrl-C.
async fn play(once: bool, page: &mut dyn Write) -> Result<(), DemoError> {
    let io = |what| move |source| DemoError::Io { what, source };
    let folder = Folder::make().map_err(io("cannot make a temporary folder"))?;
    let (key, secret) =
        (format!("sk_demo_{}", random_text(24)), format!("whsec_{}", random_text(32)));

    let certificates = Certificates::make(SHOP)?;
    let name_server = NameServer::start(ZONE).await.map_err(io("cannot start the name server"))?;
    let tool_server = ToolServer::start(certificates.server, &secret, ELSEWHERE);
    let mut tool_server = tool_server.await.map_err(io("cannot start the tool server"))?;

    let write =
        |name, text: &str| folder.write(name, text).map_err(io("cannot write the configuration"));
    write("agent.key", &key)?;
    write("tool.secret", &secret)?;
    write("ca.pem", &certificates.authority_pem)?;
    let config = write("sortie.yaml", &configuration(name_server.address(), tool_server.port()))?;
    // The page is for people: the gateway's own log stays out of it.
    let (log, _writer) =
        LogSink::start(true, io::sink()).map_err(io("cannot start the log writer"))?;
    let gateway = App::start(std::slice::from_ref(&config), log).await?;
    let address = gateway.api_address().ok_or(DemoError::NoListener)?;

    let print = io("cannot write to the terminal");
    let telemetry = gateway.telemetry_address().ok_or(DemoError::NoListener)?;
    let places = introduction([address, telemetry], &config, &name_server, &tool_server);
    page.write_all(places.as_bytes()).map_err(print)?;
    let (api, bearer) = (Place::Tcp(address), Secret::new(key));
    let mut surprises = Vec::new();
    for (number, scene) in (1..).zip(SCENES) {
        let call = Ask {
            method: Method::POST,
            path: "/v1/calls",
            bearer: Some(&bearer),
            json: Some(scene.call),
        };
        let answer = timeout(CALL_TIMEOUT, ask(&api, call)).await;
        let answer = answer.map_err(|_| DemoError::Timeout { number })?;
        let (status, answer) = answer.map_err(|source| DemoError::Client { number, source })?;
        let received = drain(&mut tool_server);
        page.write_all(scene.show(number, status, &answer, &received).as_bytes()).map_err(print)?;
        let surprise = scene.surprise(status, &answer, &received);
        surprises.extend(surprise.map(|surprise| format!("call {number}: {surprise}")));
    }
    let strangers = name_server.strangers();
    if !strangers.is_empty() {
        surprises.push(format!("somebody looked up {}", strangers.join(", ")));
    }
    if surprises.is_empty() {
        writeln!(page, "\nAll four calls ended as they should.").map_err(print)?;
    }
    if !once {
        page.write_all(invitation(address, folder.path()).as_bytes()).map_err(print)?;
        keep_running(&mut tool_server, page).await.map_err(print)?;
    }
    gateway.shutdown().await;
    if surprises.is_empty() { Ok(()) } else { Err(DemoError::Unexpected(surprises)) }
}

/// What has arrived at the tool server. It is handed over before it is answered, so after a call all of it is here.
fn drain(tool_server: &mut ToolServer) -> Vec<Received> {
    std::iter::from_fn(|| tool_server.received.try_recv().ok()).collect()
}

/// Shows each request that arrives, until Ctrl-C.
async fn keep_running(tool_server: &mut ToolServer, page: &mut dyn Write) -> io::Result<()> {
    loop {
        tokio::select! {
            stop = tokio::signal::ctrl_c() => return stop,
            received = tool_server.received.recv() => {
                let Some(received) = received else { return Ok(()) };
                page.write_all(show_received(&[received]).as_bytes())?;
            }
        }
    }
}

fn introduction(
    [api, telemetry]: [SocketAddr; 2],
    config: &Path,
    name_server: &NameServer,
    tool_server: &ToolServer,
) -> String {
    format!(
        "Sortie demo: four tool calls on this machine. Nothing leaves it.\n\n\
         \x20   tool server    https://{SHOP}:{} (in this process, with a throw-away CA)\n\
         \x20   name server    {} ({SHOP} is 127.0.0.1, stock.example.com is 10.0.0.5)\n\
         \x20   gateway        http://{api}/v1/calls, metrics at http://{telemetry}/metrics\n\
         \x20   configuration  {}\n",
        tool_server.port(),
        name_server.address(),
        config.display(),
    )
}

fn invitation(api: SocketAddr, folder: &Path) -> String {
    format!(
        "\nThe gateway keeps running. Try it from another terminal:\n\n\
         \x20   curl -s http://{api}/v1/calls \\\n\
         \x20     -H \"Authorization: Bearer $(cat {}/agent.key)\" \\\n\
         \x20     -H 'Content-Type: application/json' \\\n\
         \x20     -d '{}'\n\n\
         Ctrl-C ends it and removes its folder.\n",
        folder.display(),
        r#"{"tool":"lookup_order","arguments":{"order_number":"A-1042"}}"#,
    )
}

/// The smallest configuration that does real work; it is meant to be read.
fn configuration(name_server: SocketAddr, tool_port: u16) -> String {
    format!(
        r#"# Written by `sortie demo`.
version: 1

listeners:
  api: {{address: "127.0.0.1:0"}}        # port 0 is any free one
  telemetry: {{address: "127.0.0.1:0"}}

auth:
  keys:
    - name: demo-agent
      scopes: ["agent:call"]
      key: {{file: agent.key}}

dns:
  servers: ["{name_server}"]

egress:
  tls: {{extra_ca: {{file: ca.pem}}}}
  exceptions:                          # loopback is closed but for these tools, this host and this port
    - tools: [lookup_order, track_parcel]
      hosts: [{SHOP}]
      cidrs: [127.0.0.1/32]
      ports: ["{tool_port}"]
      reason: the demo runs its tool server on this machine
      owner: demo

tools:
  - name: lookup_order
    description: Look an order up by the number on the customer's receipt.
    url: https://{SHOP}:{tool_port}/tools/lookup-order
    parameters:
      type: object
      properties: {{order_number: {{type: string}}}}
      required: [order_number]
    secret: {{current: {{file: tool.secret}}}}

  - name: track_parcel
    description: Say where an order's parcel is.
    url: https://{SHOP}:{tool_port}/tools/track-parcel
    parameters:
      type: object
      properties: {{order_number: {{type: string}}}}
      required: [order_number]
    secret: {{current: {{file: tool.secret}}}}

  - name: check_stock
    description: Count what is in the warehouse.
    url: https://stock.example.com/tools/check-stock
    secret: {{current: {{file: tool.secret}}}}
"#
    )
}
