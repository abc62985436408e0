//! The route of each tool: where its connections are kept, for as long as nothing changes that decides about them.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use crate::config::snapshot::Tool;
use crate::net::epoch::Epoch;
use crate::net::header_case::HeaderCase;
use crate::net::pool::{Pool, Route};
use crate::policy::wire::{OwnHeader, TRACEPARENT};

/// Where one tool is called.
#[derive(Debug)]
pub(super) struct Destination {
    /// Its kept connections.
    pub(super) route: Route,
    /// The request target in origin form.
    pub(super) target: http::Uri,
    digest: [u8; 32],
}

/// Destinations by tool id.
#[derive(Debug, Default)]
pub(super) struct Routes(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The newest configuration that was seen.
    generation: u64,
    destinations: HashMap<String, Arc<Destination>>,
}

impl Routes {
    /// The tool's destination in this configuration.
    ///
    /// Configurations that say the same about a tool's connections share them. A call that began on an older one that
    /// says something else gets a route of its own: it neither takes nor leaves connections of the newer one.
    pub(super) fn of(&self, pool: &Pool, epoch: &Epoch, tool: &Tool) -> Arc<Destination> {
        let same = |known: &&Arc<Destination>| known.digest == tool.route_digest;
        let known = self.0.read().expect("no panic holds this lock");
        if let Some(known) = known.destinations.get(&tool.id).filter(same) {
            return known.clone();
        }
        drop(known);
        let mut known = self.0.write().expect("no panic holds this lock");
        // First calls come together: one of them makes the route, so that they share what it keeps.
        if let Some(known) = known.destinations.get(&tool.id).filter(same) {
            return known.clone();
        }
        let made = Arc::new(make(pool, epoch, tool));
        if epoch.snapshot.generation >= known.generation {
            known.generation = epoch.snapshot.generation;
            if let Some(before) = known.destinations.insert(tool.id.clone(), made.clone()) {
                pool.retire(&before.route);
            }
        }
        made
    }

    /// Parts with the connections of tools that this configuration does not have, or has elsewhere.
    pub(super) fn configure(&self, pool: &Pool, epoch: &Epoch) {
        let tools = epoch.snapshot.tools.values();
        let wanted: HashMap<&str, [u8; 32]> =
            tools.map(|tool| (tool.id.as_str(), tool.route_digest)).collect();
        let mut known = self.0.write().expect("no panic holds this lock");
        known.generation = known.generation.max(epoch.snapshot.generation);
        known.destinations.retain(|id, destination| {
            let stays = wanted.get(id.as_str()) == Some(&destination.digest);
            if !stays {
                pool.retire(&destination.route);
            }
            stays
        });
    }
}

fn make(pool: &Pool, epoch: &Epoch, tool: &Tool) -> Destination {
    let fetched = tool.tokens.iter().map(|_| "Authorization");
    let configured = fetched.chain(tool.headers.iter().map(OwnHeader::spelling));
    let own = configured.chain(tool.accept_credentials.iter().map(String::as_str));
    let own = own.chain(tool.forward_trace.then_some(TRACEPARENT));
    let names = tool.profile.header_spelling(own);
    let case = HeaderCase::capture(&names).expect("the configuration checked the header names");
    let target = tool.endpoint.path_and_query().parse().expect("an endpoint's target is a URI");
    Destination {
        route: pool.route(&tool.id, &tool.endpoint, case, epoch.way(tool)),
        target,
        digest: tool.route_digest,
    }
}
