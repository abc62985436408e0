//! Compiles `auth`: who may call, by key, by certificate or by token.

use std::collections::HashSet;
use std::sync::Arc;

use crate::config::caller::{RawCaller, caller};
use crate::config::context::Context;
use crate::config::given::{Given, OneOf};
use crate::config::listening::{Bind, Listeners};
use crate::config::raw_auth::{RawAuth, RawCert, RawNoAuth};
use crate::config::snapshot::Organisation;
use crate::config::yaml::NodeId;
use crate::config::{issuers, keys};
use crate::policy::address::EgressRules;
use crate::policy::authentication::{Authentication, Known, KnownCertificate};
use crate::policy::identity::{Caller, Proof};
use crate::policy::peer_name::NamePattern;

/// What `auth` is judged with.
pub struct Surroundings<'a> {
    /// Where the api listens.
    pub listeners: &'a Listeners,
    /// Whether clients are asked for a certificate.
    pub asks_for_certificates: bool,
    /// Which key sets may be fetched; `None` where the rules have errors.
    pub rules: Option<&'a EgressRules>,
    /// Which organisations there are.
    pub organisations: &'a [Organisation],
}

/// Compiles `auth`; `root` is where it should stand.
pub fn authentication<'g>(
    context: &Context<'_>,
    root: NodeId,
    given: &'g Given<OneOf<RawNoAuth, RawAuth>>,
    around: &Surroundings<'g>,
) -> Authentication {
    let hint = "write `none` (loopback and Unix sockets only) or {keys: […]}";
    match context.required(root, "auth", given, hint) {
        Some((OneOf::Short(RawNoAuth::None), node)) => {
            let local = match &around.listeners.api.bind {
                Bind::Tcp(address) => address.ip().is_loopback(),
                Bind::Unix { .. } => true,
            };
            if !local {
                let message =
                    "`none` needs the api listener on loopback or a Unix socket, write {keys: […]}";
                context.report.error(node, message);
            }
            Authentication::None(Arc::new(Caller::anonymous()))
        }
        Some((OneOf::Long(raw), node)) => Authentication::Known(known(context, raw, node, around)),
        None => Authentication::Known(Known::default()),
    }
}

fn known<'g>(
    context: &Context<'_>,
    raw: &'g RawAuth,
    node: NodeId,
    around: &Surroundings<'g>,
) -> Known {
    let keys = raw.keys.get().map(Vec::as_slice).unwrap_or_default();
    let certs = raw.certs.get().map(Vec::as_slice).unwrap_or_default();
    let jwt = raw.jwt.get().map(Vec::as_slice).unwrap_or_default();
    if keys.is_empty() && certs.is_empty() && jwt.is_empty() {
        // A list that could not be read is reported as such.
        let empty = [
            raw.keys.found().map(|(_, node)| node),
            raw.certs.found().map(|(_, node)| node),
            raw.jwt.found().map(|(_, node)| node),
        ];
        let given = [raw.keys.node(), raw.certs.node(), raw.jwt.node()];
        match empty.into_iter().flatten().next() {
            Some(list) => context.report.error(list, "is empty, nobody could call"),
            None if given.iter().all(Option::is_none) => {
                context.report.error(node, "lets nobody in, write `keys`, `certs` or `jwt`");
            }
            None => {}
        }
    }
    let mut names = HashSet::new();
    Known {
        keys: keys::compile(context, keys, around.organisations, &mut names),
        certificates: certificates(context, certs, around, &mut names),
        issuers: issuers::compile(context, jwt, around.rules, around.organisations),
    }
}

fn certificates<'g>(
    context: &Context<'_>,
    list: &'g [Given<RawCert>],
    around: &Surroundings<'g>,
    names: &mut HashSet<&'g str>,
) -> Vec<KnownCertificate> {
    let mut known = Vec::new();
    for (raw, node) in list.iter().filter_map(Given::found) {
        if !around.asks_for_certificates {
            let message =
                "needs `listeners.api.tls.client_ca`, no client is asked for a certificate";
            context.report.error(node, message);
        }
        let written = RawCaller {
            proof: Proof::Certificate,
            name: &raw.name,
            organisation: &raw.organisation,
            organisations: around.organisations,
            scopes: &raw.scopes,
            agents: &raw.agents,
            tools: &raw.tools,
        };
        let caller = Arc::new(caller(context, node, &written, names));
        let hint = "write the certificate's DNS name or URI";
        let san = context.required(node, "san", &raw.san, hint);
        let Some((san, node)) = san else { continue };
        match NamePattern::parse(san) {
            Ok(name) => known.push(KnownCertificate { name, caller }),
            Err(error) => context.report.error(node, error.to_string()),
        }
    }
    known
}
