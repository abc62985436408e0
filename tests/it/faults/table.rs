//! A table of answers: each at a tool and a server of its own, all called at once; and no next call is spoiled by them.

use serde_json::{Value, json};

use crate::faults::proof::{Fault, prove};
use crate::support::config::Tool;
use crate::support::fleet::{Fleet, host};
use crate::support::gateway::{Gateway, Outcome};
use crate::support::script::{Script, Step, answer};
use crate::support::upstream::Upstream;

/// What the tool's server does on its first connection, and what a call comes to.
pub(crate) struct Row {
    name: String,
    first: Script,
    tls: bool,
    shape: Box<dyn FnOnce(Tool) -> Tool>,
    expect: Expect,
    kept: bool,
}

/// A call, before its server is known.
pub(crate) type Call = Fault<'static>;

type Expect = Box<dyn FnOnce(Call) -> Call>;

impl Row {
    /// The script is that of the first connection. What it leaves open is not used again.
    pub(crate) fn new(
        name: &str,
        first: Script,
        expect: impl FnOnce(Call) -> Call + 'static,
    ) -> Self {
        let (name, expect) = (name.to_owned(), Box::new(expect));
        Self { name, first, tls: false, shape: Box::new(|tool| tool), expect, kept: false }
    }

    /// The server sends these bytes in answer to a whole request, and then waits for the end.
    pub(crate) fn answering(
        name: &str,
        answer: impl Into<Vec<u8>>,
        expect: impl FnOnce(Call) -> Call + 'static,
    ) -> Self {
        Self::new(name, Script::new().request().send(answer).stall(), expect)
    }

    /// The call succeeds with this result, and its connection serves the next one.
    pub(crate) fn giving(name: &str, answer: impl Into<Vec<u8>>, result: Value) -> Self {
        Self::answering(name, answer, |fault| fault.result(result).kept(1)).on_a_kept_connection()
    }

    /// The connection is good for the next call.
    pub(crate) fn on_a_kept_connection(mut self) -> Self {
        // The last step waits for an end that does not come now.
        let steps = self.first.steps().iter().filter(|step| !matches!(step, Step::Stall)).cloned();
        self.first = steps.fold(Script::new(), Script::then).forever(Script::once(next()));
        self.kept = true;
        self
    }

    /// The server speaks TLS.
    pub(crate) fn over_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The tool is another one than that of the fleet.
    pub(crate) fn shaped(mut self, shape: impl FnOnce(Tool) -> Tool + 'static) -> Self {
        self.shape = Box::new(shape);
        self
    }
}

/// What a good server answers.
fn next() -> Vec<u8> {
    answer(200, "application/json", r#""next""#)
}

/// Proves every row, and that the next call works: on the same connection only where the answer left it in order.
pub(crate) async fn check(rows: Vec<Row>) -> Vec<Outcome> {
    let (mut fleet, mut servers, mut expected) = (Fleet::new().await, Vec::new(), Vec::new());
    for Row { name, first, tls, shape, expect, kept } in rows {
        let good = Script::always(next());
        let (more, server) = match tls {
            true => fleet.tls(&name, good, shape).await,
            false => fleet.plain(&name, good, shape).await,
        };
        server.next(first);
        fleet = more;
        servers.push((name, server, kept));
        expected.push(expect);
    }
    let gateway = fleet.config.start().await;
    let calls = servers.iter().zip(expected).map(|((name, server, _), expect)| {
        let authority = format!("{}:{}", host(name), server.port());
        let call: Fault<'_> = expect(Fault::at(name));
        call.served_by(server, &authority, "/")
    });
    let outcomes = prove(&gateway, calls.collect()).await;
    spoils_nothing(&gateway, &servers).await;
    gateway.finish().await;
    outcomes
}

async fn spoils_nothing(gateway: &Gateway, servers: &[(String, Upstream, bool)]) {
    let again = servers.iter().map(|(name, server, kept)| {
        Fault::of_fleet(name, server).result(json!("next")).connections(usize::from(!kept))
    });
    prove(gateway, again.collect()).await;
}
