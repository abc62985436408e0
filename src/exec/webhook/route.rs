//! The route of each tool: where its connections are kept, made once per tool and configuration.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use crate::config::snapshot::Tool;
use crate::net::epoch::Epoch;
use crate::net::header_case::HeaderCase;
use crate::net::pool::{Pool, Route};
use crate::policy::wire::OwnHeader;

/// Where one tool is called, in one configuration.
#[derive(Debug)]
pub(super) struct Destination {
    /// Its kept connections.
    pub(super) route: Route,
    /// The request target in origin form.
    pub(super) target: http::Uri,
    generation: u64,
}

/// Destinations by tool id.
#[derive(Debug, Default)]
pub(super) struct Routes(RwLock<HashMap<String, Arc<Destination>>>);

impl Routes {
    /// The tool's destination in this configuration.
    ///
    /// A call that began on an older configuration than the newest one seen gets a route of its own, so that it neither
    /// takes nor leaves connections of the newer one.
    pub(super) fn of(&self, pool: &Pool, epoch: &Epoch, tool: &Tool) -> Arc<Destination> {
        let of_this = |known: &&Arc<Destination>| known.generation == epoch.snapshot.generation;
        let known = self.0.read().expect("no panic holds this lock");
        if let Some(known) = known.get(&tool.id).filter(of_this) {
            return known.clone();
        }
        drop(known);
        let mut newest = self.0.write().expect("no panic holds this lock");
        let known = newest.get(&tool.id);
        // First calls come together: one of them makes the route, so that they share what it keeps.
        if let Some(known) = known.filter(of_this) {
            return known.clone();
        }
        let is_newest = known.is_none_or(|known| known.generation < epoch.snapshot.generation);
        let made = Arc::new(make(pool, epoch, tool));
        if is_newest {
            newest.insert(tool.id.clone(), made.clone());
        }
        made
    }
}

fn make(pool: &Pool, epoch: &Epoch, tool: &Tool) -> Destination {
    let configured = tool.headers.iter().map(OwnHeader::spelling);
    let own = configured.chain(tool.accept_credentials.iter().map(String::as_str));
    let names = tool.profile.header_spelling(own);
    let case = HeaderCase::capture(&names).expect("the configuration checked the header names");
    let target = tool.endpoint.path_and_query().parse().expect("an endpoint's target is a URI");
    Destination {
        route: pool.route(&tool.id, &tool.endpoint, case, epoch.network.way(tool)),
        target,
        generation: epoch.snapshot.generation,
    }
}
