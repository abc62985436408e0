//! One configuration together with what reaches the network by it: what one call takes once and keeps to its end.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::clock::Clock;
use crate::config::listening::Serving;
use crate::config::snapshot::{Snapshot, TlsSettings, Tool};
use crate::net::connect::{Connect, TlsConnect, Tunnel};
use crate::net::dns::ResolverError;
use crate::net::pool::Way;
use crate::net::proxy::ProxyTunnel;
use crate::net::resolve::{HickoryResolver, Resolve};
use crate::net::serving::{ServerTls, ServingError};
use crate::net::tap::Tap;
use crate::net::tls::{ClientTls, TlsError, client_tls, with_identity};

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
    tls: Arc<ClientTls>,
    serving: Option<Arc<ServerTls>>,
    /// By the digests of client certificates: settings once for each, not for each call.
    identities: HashMap<[u8; 32], Identity>,
    tap: Option<Tap>,
}

struct Identity {
    tls: Arc<ClientConfig>,
    connect: Arc<dyn Connect>,
}

/// A configuration whose network side cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The resolver cannot be built.
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    /// The api listener cannot speak TLS.
    #[error(transparent)]
    Serving(#[from] ServingError),
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
        let network = Network::new(&snapshot, before, clock)?;
        Ok(Self { snapshot, network })
    }

    /// The same, and what passes through connections to tools is kept. Requests for tokens are not.
    pub fn tapped(mut self, tap: Tap) -> Self {
        self.network.tap = Some(tap);
        self
    }

    /// How this tool is reached: with the certificate that it shows, where it shows one.
    pub fn way(&self, tool: &Tool) -> Way {
        let Network { connect, identities, tap, .. } = &self.network;
        let connect = match &tool.identity {
            None => connect,
            Some(identity) => {
                let built = identities.get(&identity.digest());
                &built.expect("a tool of this configuration").connect
            }
        };
        let connect = match tap {
            None => connect.clone(),
            Some(tap) => tap.on(connect.clone()),
        };
        Way { connect, settings: self.snapshot.pool.clone() }
    }
}

impl Network {
    fn new(
        snapshot: &Snapshot,
        before: Option<&Epoch>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, NetworkError> {
        let resolver: Arc<dyn Resolve> =
            match before.filter(|before| before.snapshot.dns == snapshot.dns) {
                Some(before) => before.network.resolver.clone(),
                None => Arc::new(HickoryResolver::new(&snapshot.dns, clock.clone())?),
            };
        let tls = match before.filter(|before| before.snapshot.tls == snapshot.tls) {
            Some(before) => before.network.tls.clone(),
            None => Arc::new(client_tls(&snapshot.tls)?),
        };
        let serving = match before.filter(|before| before.snapshot.serving == snapshot.serving) {
            Some(before) => before.network.serving.clone(),
            None => server_tls(&snapshot.serving)?,
        };
        let timeout = snapshot.connect_timeout;
        let tunnel = tunnel(snapshot, &resolver)?;
        let connector = |config: &Arc<ClientConfig>| -> Arc<dyn Connect> {
            let connector = TlsConnect::new(config.clone(), timeout, clock.clone());
            Arc::new(connector.through(tunnel.clone()))
        };
        let known = before.map(|before| &before.network);
        let known = known.filter(|known| Arc::ptr_eq(&known.tls, &tls));
        let mut identities = HashMap::new();
        for identity in snapshot.tools.values().filter_map(|tool| tool.identity.as_ref()) {
            identities.entry(identity.digest()).or_insert_with(|| {
                let known = known.and_then(|known| known.identities.get(&identity.digest()));
                let tls = match known {
                    Some(known) => known.tls.clone(),
                    None => with_identity(&tls.config, identity),
                };
                Identity { connect: connector(&tls), tls }
            });
        }
        let connect = connector(&tls.config);
        Ok(Self { resolver, connect, tls, serving, identities, tap: None })
    }

    /// What the api listener speaks TLS with; `None` where it speaks plain HTTP.
    pub fn serving(&self) -> Option<&Arc<ServerTls>> {
        self.serving.as_ref()
    }

    /// The TLS settings towards tools.
    pub fn tls(&self) -> &ClientTls {
        &self.tls
    }
}

fn server_tls(settings: &Serving) -> Result<Option<Arc<ServerTls>>, ServingError> {
    match settings {
        Serving::Lacking(reason) => Err(ServingError::Lacking(reason.clone())),
        Serving::Plain => Ok(None),
        Serving::Tls(settings) => Ok(Some(Arc::new(ServerTls::new(settings)?))),
    }
}

/// What leads through the proxy, where there is one.
fn tunnel(
    snapshot: &Snapshot,
    resolver: &Arc<dyn Resolve>,
) -> Result<Option<Arc<dyn Tunnel>>, NetworkError> {
    let Some(proxy) = &snapshot.proxy else { return Ok(None) };
    // The proxy may show a certificate of the tools' authorities too, but theirs are not the proxy's.
    let texts = [&snapshot.tls.extra_ca, &proxy.extra_ca];
    let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
    let extra_ca = (!texts.is_empty()).then(|| texts.join("\n"));
    let tls = client_tls(&TlsSettings { extra_ca, ..snapshot.tls.clone() })?;
    Ok(Some(Arc::new(ProxyTunnel::new(proxy.clone(), tls.config, resolver.clone()))))
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}
