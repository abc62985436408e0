//! Compiles `egress.proxy`: where it is, what it judges, and who Sortie is towards it.

use crate::config::basic::basic;
use crate::config::context::{Context, SecretProblem};
use crate::config::given::Given;
use crate::config::leaf::Verbatim;
use crate::config::raw_egress::{RawProxy, RawProxyMode};
use crate::config::raw_tool::RawReference;
use crate::config::snapshot::Proxy;
use crate::model::secret::Secret;
use crate::policy::egress::Proxying;
use crate::policy::endpoint::Endpoint;

/// The part that the proxy has; a broken `url` leaves it as it is declared.
pub fn proxying(given: &Given<RawProxy>) -> Proxying {
    match given.get() {
        Some(raw) if raw.url.node().is_some() => match raw.mode.get() {
            Some(RawProxyMode::ConnectName) => Proxying::ConnectName,
            Some(RawProxyMode::ConnectIp) | None => Proxying::ConnectIp,
        },
        _ => Proxying::Off,
    }
}

/// Compiles the proxy, where there is one; `roots` reads a reference to PEM certificates.
pub fn proxy(
    context: &Context<'_>,
    given: &Given<RawProxy>,
    roots: impl Fn(&Given<RawReference>) -> Option<String>,
) -> Option<Proxy> {
    let (raw, _) = given.found()?;
    if raw.url.node().is_none() {
        let name = raw.mode.found().filter(|(mode, _)| **mode == RawProxyMode::ConnectName);
        let name = name.map(|(_, node)| node);
        for node in [name, raw.basic.node(), raw.extra_ca.node()].into_iter().flatten() {
            context.report.error(node, "means nothing without `url`");
        }
    }
    let extra_ca = roots(&raw.extra_ca);
    let authorization = raw.basic.found().and_then(|(raw, node)| {
        basic(context, raw, node, |password| password_of(context, password))
    });
    let (Verbatim(text), node) = raw.url.found()?;
    let endpoint = Endpoint::parse(text)
        .map_err(|error| context.report.error(node, error.to_string()))
        .ok()?;
    if endpoint.path_and_query() != "/" {
        context.report.error(node, "must end after the host and the port");
    }
    Some(Proxy { endpoint, authorization, extra_ca })
}

/// Without its password the proxy refuses what it wants to: nothing gets further than with it.
fn password_of(context: &Context<'_>, given: &Given<RawReference>) -> Option<Secret> {
    let (reference, node) = given.found()?;
    let source = context.source(node, &reference.file, &reference.env)?;
    match context.secret(node, &source) {
        Ok(password) => Some(password),
        Err(SecretProblem::Reported) => None,
        Err(SecretProblem::Lookup(error)) => {
            context.unreadable(node, &source, &error, "the proxy is asked without it");
            None
        }
    }
}
