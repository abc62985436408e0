//! One configuration together with what reaches the network by it: what one call takes once and keeps to its end.

use std::fmt;
use std::sync::Arc;

use crate::clock::Clock;
use crate::config::snapshot::{Snapshot, Tool};
use crate::net::connect::{Connect, TlsConnect};
use crate::net::dns::ResolverError;
use crate::net::pool::Way;
use crate::net::resolve::{HickoryResolver, Resolve};
use crate::net::tls::{ClientTls, TlsError, client_tls};

/// A configuration in force.
#[derive(Debug)]
pub struct Epoch {
    /// What the configuration says.
    pub snapshot: Arc<Snapshot>,
    /// What reaches the network by it.
    pub network: Network,
}

/// The resolver and the connectors of one configuration. Parts whose settings did not change are those of the one before.
pub struct Network {
    /// Names to addresses.
    pub resolver: Arc<dyn Resolve>,
    /// Opens connections to checked addresses.
    pub connect: Arc<dyn Connect>,
    snapshot: Arc<Snapshot>,
    tls: Arc<ClientTls>,
}

/// A configuration whose network side cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The resolver cannot be built.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Epoch {
    /// Builds the network side of a configuration; `before` is the one that it replaces.
    pub fn new(
        snapshot: Arc<Snapshot>,
        before: Option<&Self>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, NetworkError> {
        let network = Network::new(&snapshot, before.map(|before| &before.network), clock)?;
        Ok(Self { snapshot, network })
    }
}

impl Network {
    fn new(
        snapshot: &Arc<Snapshot>,
        before: Option<&Self>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, NetworkError> {
        let resolver = match before.filter(|before| before.snapshot.dns == snapshot.dns) {
            Some(before) => before.resolver.clone(),
            None => Arc::new(HickoryResolver::new(&snapshot.dns, clock.clone())?),
        };
        let tls = match before.filter(|before| before.snapshot.tls == snapshot.tls) {
            Some(before) => before.tls.clone(),
            None => Arc::new(client_tls(&snapshot.tls)?),
        };
        let timeout = snapshot.connect_timeout;
        let connect = Arc::new(TlsConnect::new(tls.config.clone(), timeout, clock.clone()));
        Ok(Self { resolver, connect, snapshot: snapshot.clone(), tls })
    }

    /// How this tool is reached.
    pub fn way(&self, _tool: &Tool) -> Way {
        Way { connect: self.connect.clone(), settings: self.snapshot.pool.clone() }
    }

    /// The TLS settings towards tools.
    pub fn tls(&self) -> &ClientTls {
        &self.tls
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}
