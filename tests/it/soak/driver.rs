//! A runtime of the soak: it calls tools one after another, and sometimes hangs up or writes nonsense.

use std::sync::Arc;
use std::time::Instant;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use crate::support::config::API_KEY;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, post};

use super::history::{Asked, History};

/// What is known of a tool.
#[derive(Debug)]
pub(super) struct SoakTool {
    pub(super) name: &'static str,
    pub(super) profile: &'static str,
    /// An Idempotency-Key is sent.
    pub(super) keyed: bool,
    pub(super) read_only: bool,
    /// The lookups of its name fail now and then.
    pub(super) unsteady_name: bool,
}

const fn tool(name: &'static str, profile: &'static str, keyed: bool) -> SoakTool {
    SoakTool { name, profile, keyed, read_only: false, unsteady_name: false }
}

pub(super) static TOOLS: [SoakTool; 6] = [
    tool("plain", "plain-v1", false),
    tool("eager", "eager", false),
    tool("eager_key", "eager-key", true),
    SoakTool { read_only: true, ..tool("reader", "eager", false) },
    SoakTool { unsteady_name: true, ..tool("unsteady", "eager", false) },
    SoakTool { unsteady_name: true, ..tool("unsteady_key", "eager-key", true) },
];

/// How a runtime behaves with one call.
enum Manner {
    /// Reads its outcome.
    Honest,
    /// Goes away with half of the request written.
    LeavesEarly,
    /// Goes away with the request written.
    LeavesLate,
    /// Arguments that do not fit.
    WrongArguments,
}

/// One runtime.
pub(super) struct Driver<'a> {
    gateway: &'a Gateway,
    history: &'a Arc<History>,
    random: StdRng,
    client: Option<RawClient>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(gateway: &'a Gateway, history: &'a Arc<History>, random: StdRng) -> Self {
        Self { gateway, history, random, client: None }
    }

    /// Calls until then.
    pub(super) async fn run(mut self, until: Instant) {
        while Instant::now() < until {
            self.one().await;
        }
    }

    async fn one(&mut self) {
        let tool = &TOOLS[self.random.random_range(0..TOOLS.len())];
        let id = format!("call_{:016x}", self.random.random::<u64>());
        let manner = match self.random.random_range(0..100) {
            0..5 => Manner::LeavesEarly,
            5..10 => Manner::LeavesLate,
            10..12 => Manner::WrongArguments,
            _ => Manner::Honest,
        };
        let arguments = match manner {
            Manner::WrongArguments => json!({"call": 7}),
            _ => json!({"call": id}),
        };
        let body = json!({
            "tool": tool.name, "call_id": id, "arguments": arguments, "run_id": "run_soak", "step": id,
        });
        let request = post("/v1/calls", Some(API_KEY), body.to_string());
        let text = String::from_utf8(request).expect("a request of text");
        let request = text.replace("Connection: close\r\n", "");
        let mut client = match self.client.take() {
            Some(client) => client,
            None => RawClient::connect(self.gateway.api()).await,
        };
        match manner {
            Manner::LeavesEarly => {
                client.write(&request.as_bytes()[..request.len() / 2]).await;
                return;
            }
            Manner::LeavesLate => {
                self.history.asked(id, Asked { tool, answered: None });
                client.write(request.as_bytes()).await;
                return;
            }
            Manner::Honest | Manner::WrongArguments => client.write(request.as_bytes()).await,
        }
        let reply = client.read_reply().await;
        let at = Instant::now();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let outcome: Value = reply.json();
        assert_eq!(outcome["id"], id.as_str(), "the outcome of this call");
        check_result(&id, &outcome);
        if let Manner::WrongArguments = manner {
            assert_eq!(outcome["error"]["code"], "invalid_arguments", "{outcome}");
        }
        self.history.asked(id, Asked { tool, answered: Some((at, outcome)) });
        self.client = (reply.header("connection") != Some("close")).then_some(client);
    }
}

/// A result is that of this call: the server gives its id back.
fn check_result(id: &str, outcome: &Value) {
    let own = match &outcome["result"] {
        Value::Object(fields) => fields.get("call").is_some_and(|call| call == id),
        Value::String(text) => text.starts_with(id) && outcome["truncated"] == true,
        Value::Null => outcome["status"] != "succeeded",
        _ => false,
    };
    assert!(own, "the result of another call: {outcome}");
}
