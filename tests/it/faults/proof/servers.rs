//! The servers of the faults that are proved together: who was asked, and which connections are left.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::faults::proof::{Fault, Server};
use crate::support::upstream::Upstream;

/// The servers of the faults: what stood in their logs before, and what has to come.
pub(super) struct Servers<'a>(BTreeMap<SocketAddr, Before<'a>>);

pub(super) struct Before<'a> {
    upstream: &'a Upstream,
    pub(super) requests: usize,
    connections: usize,
    kept: usize,
}

impl<'a> Servers<'a> {
    pub(super) fn new(faults: &[Fault<'a>]) -> Self {
        let servers = faults.iter().filter_map(|fault| fault.server.as_ref()).map(|server| {
            let upstream = server.upstream;
            let (requests, connections) = (upstream.requests().len(), upstream.connections().len());
            (upstream.address(), Before { upstream, requests, connections, kept: 0 })
        });
        Self(servers.collect())
    }

    pub(super) fn since(&self, server: &Server<'_>) -> &Before<'a> {
        &self.0[&server.upstream.address()]
    }

    /// No other requests came than those of the faults, and the connections that a test counts.
    pub(super) fn expect(&mut self, faults: &[Fault<'a>]) {
        for (address, before) in &mut self.0 {
            let here = || {
                faults.iter().filter(|fault| {
                    fault.server.as_ref().is_some_and(|one| one.upstream.address() == *address)
                })
            };
            let requests: usize = here().map(Fault::request_count).sum();
            assert_eq!(before.upstream.requests().len() - before.requests, requests, "requests");
            if let Some(connections) = here().map(|fault| fault.connections).sum::<Option<usize>>()
            {
                let found = before.upstream.connections().len() - before.connections;
                assert_eq!(found, connections, "connections");
            }
            before.kept = here().map(Fault::kept_count).sum();
        }
    }

    /// The fifth assertion, as the servers have it.
    pub(super) fn quiet(&self) -> Result<(), String> {
        for (address, Before { upstream, kept, .. }) in &self.0 {
            let open = upstream.connections().iter().filter(|one| one.open).count();
            if open > *kept {
                return Err(format!("{open} connections are open at {address}, {kept} are kept"));
            }
        }
        Ok(())
    }
}
