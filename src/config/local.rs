//! What local development forces, whatever the file says: listeners on loopback, no keys, servers on this machine.

use std::net::SocketAddr;

use crate::policy::egress::Exception;

/// The listeners of local development. Only [`Local::new`] makes one, so that nobody else reaches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    api: SocketAddr,
    telemetry: SocketAddr,
}

/// An address that others could reach.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a loopback address; local development listens on 127.0.0.1 or [::1] only")]
pub struct NotLocal(SocketAddr);

impl Local {
    /// Takes loopback addresses only.
    pub fn new(api: SocketAddr, telemetry: SocketAddr) -> Result<Self, NotLocal> {
        match [api, telemetry].into_iter().find(|address| !address.ip().is_loopback()) {
            Some(address) => Err(NotLocal(address)),
            None => Ok(Self { api, telemetry }),
        }
    }

    /// Where calls are taken.
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// Where metrics and probes are.
    pub fn telemetry(&self) -> SocketAddr {
        self.telemetry
    }

    /// Besides the file's own exceptions: tools whose URL has a loopback address for its host, by http too. A name is never
    /// among them: it could lead anywhere.
    pub fn exceptions(&self) -> [Exception; 2] {
        [("127.0.0.1", "127.0.0.1/32"), ("::1", "::1/128")].map(|(host, range)| Exception {
            tools: vec!["*".to_owned()],
            hosts: vec![host.to_owned()],
            cidrs: vec![range.to_owned()],
            ports: vec!["1-65535".to_owned()],
            http: true,
            reason: Some("local development".to_owned()),
            owner: Some("sortie dev".to_owned()),
            expires: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::context::{Environment, SourceError};
    use crate::config::listening::{Operators, Serving};
    use crate::config::parse::parse;
    use crate::config::snapshot::Snapshot;
    use crate::policy::authentication::Authentication;

    const FILE: &str = "version: 1
listeners:
  api: {address: ':8477', tls: {cert: {file: c}, key: {file: k}}}
  telemetry: {address: ':9477'}
  admin: {address: '127.0.0.1:9478', token: {file: t}}
logging: {level: warn}
auth: {keys: [{name: a, scopes: [agent], key: {file: missing}}]}
tools:
  - {name: here, description: Runs on the developer's own machine., url: 'http://127.0.0.1:3000/', profile: plain-v1, policy: allow}
";

    fn local() -> Local {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Local::new(loopback(8477), loopback(9477)).expect("loopback")
    }

    fn compile(text: &str, local: Option<Local>) -> Result<Snapshot, String> {
        let lookup = |_: &_| Err(SourceError::Missing);
        let environment = Environment { local, ..Environment::bare(&lookup, 0) };
        parse("f", text, &environment).map_err(|found| found.to_string())
    }

    #[test]
    fn only_loopback_is_local() {
        let there = SocketAddr::from(([0, 0, 0, 0], 8477));
        let here: SocketAddr = "[::1]:8477".parse().expect("an address");
        assert!(Local::new(here, here).is_ok());
        for (api, telemetry) in [(there, here), (here, there)] {
            let error = Local::new(api, telemetry).expect_err("not local");
            assert!(error.to_string().starts_with("0.0.0.0:8477 is not a loopback"), "{error}");
        }
    }

    #[test]
    fn a_file_for_production_listens_on_loopback_and_asks_for_no_key() {
        let snapshot = compile(FILE, Some(local())).expect("valid");
        let addresses: Vec<_> = snapshot.listeners.addresses().collect();
        assert_eq!(addresses, [local().api(), local().telemetry()]);
        assert!(!snapshot.listeners.api.tls && snapshot.listeners.admin.is_none());
        assert!(matches!(snapshot.authentication, Authentication::None(_)));
        assert_eq!((snapshot.operators, snapshot.serving), (Operators::Nobody, Serving::Plain));
        assert!(!snapshot.logging.json);
        assert_eq!(snapshot.local, Some(local()));
        assert_eq!(snapshot.warnings, []);
        let error = compile(FILE, None).expect_err("a server on loopback");
        assert!(error.contains("tools[0].url"), "{error}");
    }

    #[test]
    fn names_of_this_machine_and_other_addresses_stay_closed() {
        for host in ["http://localhost:3000", "http://127.0.0.2:3000", "http://10.0.0.5:3000"] {
            let file = FILE.replace("http://127.0.0.1:3000", host);
            let error = compile(&file, Some(local())).expect_err(host);
            assert!(error.contains("tools[0].url"), "{error}");
        }
        let six = FILE.replace("http://127.0.0.1:3000", "http://[::1]:3000");
        assert!(compile(&six, Some(local())).is_ok());
    }
}
