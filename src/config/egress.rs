//! Compiles `egress`: the address rules, and how connections are made and kept.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::config::context::{Context, SecretProblem};
use crate::config::finding::steps;
use crate::config::given::Given;
use crate::config::leaf::{Day, Ports};
use crate::config::local::Local;
use crate::config::proxy;
use crate::config::raw_egress::{
    RawEgress, RawException, RawIpv6, RawMixedAnswers, RawMode, RawPool, RawReuse, RawRoots,
    RawTls, RawTlsVersion,
};
use crate::config::raw_tool::RawReference;
use crate::config::snapshot::{
    DnsSettings, PoolSettings, Proxy, Reuse, Roots, TlsSettings, TlsVersion,
};
use crate::config::yaml::NodeId;
use crate::model::secret::Secret;
use crate::policy::address::EgressRules;
use crate::policy::egress::{EgressSettings, Exception, Ipv6, MixedAnswers, Mode};
use crate::policy::egress_check;
use crate::policy::endpoint::Endpoint;

/// `egress`, compiled.
pub struct Egress {
    /// The rules; `None` where they have errors.
    pub rules: Option<Arc<EgressRules>>,
    /// Whether the rules only watch.
    pub shadow: bool,
    /// How tools' certificates are checked.
    pub tls: TlsSettings,
    /// Bound on one TCP connect.
    pub connect_timeout: Duration,
    /// How connections are kept.
    pub pool: PoolSettings,
    /// SHA-256 over all of the section: a part of each tool's `route_digest`.
    pub digest: [u8; 32],
    /// Through which proxy they leave.
    pub proxy: Option<Proxy>,
}

/// Compiles `egress`; `own` are the addresses of Sortie's own listeners, `dns` finds the proxy.
pub fn compile(
    context: &Context<'_>,
    given: &Given<RawEgress>,
    own: Vec<SocketAddr>,
    dns: &DnsSettings,
) -> Egress {
    let default = RawEgress::default();
    let raw = given.get().unwrap_or(&default);
    let mut settings = settings(raw, own);
    settings.exceptions.extend(context.environment.local.iter().flat_map(Local::exceptions));
    let tls = tls(context, &raw.tls);
    let pool = pool(context, &raw.pool);
    let proxy = proxy::proxy(context, &raw.proxy, |roots| extra_ca(context, roots));
    let connect_timeout = context.duration(
        &raw.connect_timeout,
        Duration::from_secs(3),
        Duration::from_millis(10)..=Duration::from_secs(60),
    );
    Egress {
        rules: rules(context, &settings, given.node()).map(Arc::new),
        shadow: settings.mode == Mode::Shadow,
        digest: digest(settings, &tls, connect_timeout, &pool, proxy.as_ref().zip(Some(dns))),
        tls,
        connect_timeout,
        pool,
        proxy,
    }
}

/// A URL of the file that was judged.
pub struct Judged {
    /// Where it leads.
    pub endpoint: Endpoint,
    /// Where only an exception opened it that has ended: what it is refused for now.
    pub ended: Option<String>,
}

/// Reads a URL and judges it by the function that judges calls: what is refused there is refused here.
pub fn endpoint(
    context: &Context<'_>,
    rules: Option<&EgressRules>,
    asker: &str,
    text: &str,
    node: NodeId,
) -> Option<Judged> {
    let endpoint = match Endpoint::parse(text) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            context.report.error(node, format!("{error} ({})", error.code().as_str()));
            return None;
        }
    };
    let Some(rules) = rules else { return Some(Judged { endpoint, ended: None }) };
    let judged = rules.admit(asker, &endpoint, context.environment.unix_seconds);
    let mut ended = None;
    if let Err(refusal) = judged.verdict {
        let message = format!("{refusal} ({})", refusal.code.as_str());
        // Before all of their ends every exception is in force.
        if rules.admit(asker, &endpoint, i64::MIN).verdict.is_err() {
            context.report.error(node, message);
        } else {
            ended = Some(message);
        }
    } else if let Some(code) = judged.shadow {
        let message = format!("would be refused if `egress.mode` were enforce ({})", code.as_str());
        context.report.warn(node, message);
    }
    Some(Judged { endpoint, ended })
}

/// Debug output names every field, so that a new one cannot be forgotten. A secret hides from it and has to be added by a
/// digest of its own. A tool is looked up anew for each attempt; the proxy is looked up by whoever dials it, so that a
/// connector is made anew where the name servers are others.
fn digest(
    settings: EgressSettings,
    tls: &TlsSettings,
    connect_timeout: Duration,
    pool: &PoolSettings,
    proxy: Option<(&Proxy, &DnsSettings)>,
) -> [u8; 32] {
    // An interface that comes or goes is no reason to part with connections: each is judged again before it is used.
    let settings = EgressSettings { own_listeners: Vec::new(), ..settings };
    let authorization =
        proxy.and_then(|(proxy, _)| proxy.authorization.as_ref()).map(Secret::expose);
    let mut digest = Sha256::new();
    digest.update(format!("{settings:?} {tls:?} {connect_timeout:?} {pool:?} {proxy:?}"));
    digest.update(authorization.unwrap_or_default());
    digest.finalize().into()
}

fn settings(raw: &RawEgress, own: Vec<SocketAddr>) -> EgressSettings {
    let default = EgressSettings::default();
    EgressSettings {
        ports: raw.ports.get().map_or(default.ports, |list| ports(list)),
        ipv6: match raw.ipv6.get() {
            Some(RawIpv6::Off) => Ipv6::Off,
            Some(RawIpv6::On) | None => Ipv6::On,
            Some(RawIpv6::Prefer) => Ipv6::Prefer,
        },
        mixed_answers: match raw.mixed_answers.get() {
            Some(RawMixedAnswers::Filter) => MixedAnswers::Filter,
            Some(RawMixedAnswers::Refuse) | None => MixedAnswers::Refuse,
        },
        deny_cidrs: texts(&raw.deny_cidrs),
        private_cidrs: texts(&raw.private_cidrs),
        deny_hosts: texts(&raw.deny_hosts),
        allow_hosts: texts(&raw.allow_hosts),
        nat64_prefixes: texts(&raw.nat64_prefixes),
        own_addresses: texts(&raw.own_addresses),
        own_listeners: own,
        fake_ip_cidrs: texts(&raw.fake_ip_cidrs),
        mode: match raw.mode.get() {
            Some(RawMode::Enforce) | None => Mode::Enforce,
            Some(RawMode::Shadow) => Mode::Shadow,
        },
        exceptions: raw
            .exceptions
            .get()
            .map(|list| list.iter().map(exception).collect())
            .unwrap_or_default(),
        proxying: proxy::proxying(&raw.proxy),
    }
}

fn exception(given: &Given<RawException>) -> Exception {
    let default = RawException::default();
    let raw = given.get().unwrap_or(&default);
    Exception {
        tools: texts(&raw.tools),
        hosts: texts(&raw.hosts),
        cidrs: texts(&raw.cidrs),
        ports: raw.ports.get().map(|list| ports(list)).unwrap_or_default(),
        http: raw.http.get().copied().unwrap_or_default(),
        reason: raw.reason.get().cloned(),
        owner: raw.owner.get().cloned(),
        expires: raw.expires.get().map(|Day { date, .. }| date.to_string()),
    }
}

/// The texts of a list. One that could not be read leaves an empty text, so that positions stay.
fn texts(given: &Given<Vec<Given<String>>>) -> Vec<String> {
    let list = given.get().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|text| text.get().cloned().unwrap_or_default()).collect()
}

fn ports(list: &[Given<Ports>]) -> Vec<String> {
    list.iter()
        .map(|ports| ports.get().map(|Ports(text)| text.clone()).unwrap_or_default())
        .collect()
}

/// Compiles the rules; findings about what is reported already are left out.
fn rules(
    context: &Context<'_>,
    settings: &EgressSettings,
    node: Option<NodeId>,
) -> Option<EgressRules> {
    let reported = context.report.error_paths();
    let known = |field: &str| {
        let path = format!("egress.{field}");
        // The value itself, one in its list, or the entry that it stands in.
        let around = |reported: &String| {
            *reported == path
                || reported.starts_with(&format!("{path}["))
                || path.starts_with(&format!("{reported}."))
        };
        reported.iter().any(around)
    };
    for warning in egress_check::warnings(settings, context.environment.unix_seconds) {
        if let Some(node) = node.filter(|_| !known(&warning.field)) {
            context.report.warn_below(node, &steps(&warning.field), warning.problem.to_string());
        }
    }
    match EgressRules::new(settings) {
        Ok(rules) => Some(rules),
        Err(errors) => {
            for error in errors {
                if let Some(node) = node.filter(|_| !known(&error.field)) {
                    context.report.error_below(
                        node,
                        &steps(&error.field),
                        error.problem.to_string(),
                    );
                }
            }
            None
        }
    }
}

fn tls(context: &Context<'_>, given: &Given<RawTls>) -> TlsSettings {
    let default = RawTls::default();
    let raw = given.get().unwrap_or(&default);
    TlsSettings {
        min_version: match raw.min_version.get() {
            Some(RawTlsVersion::V12) | None => TlsVersion::V12,
            Some(RawTlsVersion::V13) => TlsVersion::V13,
        },
        roots: match raw.roots.get() {
            Some(RawRoots::System) => Roots::System,
            Some(RawRoots::Webpki) | None => Roots::Webpki,
        },
        extra_ca: extra_ca(context, &raw.extra_ca),
    }
}

/// The further roots. Without them every tool that needs them fails, so they are never only a warning.
fn extra_ca(context: &Context<'_>, given: &Given<RawReference>) -> Option<String> {
    let (reference, node) = given.found()?;
    let source = context.source(node, &reference.file, &reference.env)?;
    let bytes = match context.secret(node, &source) {
        Ok(bytes) => bytes,
        Err(SecretProblem::Reported) => return None,
        Err(SecretProblem::Lookup(error)) => {
            context.report.error(node, format!("{source} {error}"));
            return None;
        }
    };
    let text = std::str::from_utf8(bytes.expose()).ok();
    let pem = text.filter(|text| text.contains("-----BEGIN CERTIFICATE-----"));
    if pem.is_none() {
        context.report.error(node, format!("{source} holds no PEM certificate"));
    }
    pem.map(str::to_owned)
}

fn pool(context: &Context<'_>, given: &Given<RawPool>) -> PoolSettings {
    let default = RawPool::default();
    let raw = given.get().unwrap_or(&default);
    let idle = raw.max_idle_per_host.found().map(|(count, node)| (*count, node));
    let idle = context.number(idle, 8, 1..=1024);
    let hour = Duration::from_secs(3600);
    let second = Duration::from_secs(1);
    PoolSettings {
        reuse: match raw.reuse.get() {
            Some(RawReuse::Always) => Reuse::Always,
            Some(RawReuse::Auto) | None => Reuse::Auto,
            Some(RawReuse::Never) => Reuse::Never,
        },
        max_idle_per_host: usize::try_from(idle).unwrap_or(usize::MAX),
        idle_timeout: context.duration(&raw.idle_timeout, Duration::from_secs(30), second..=hour),
        max_age: context.duration(&raw.max_age, Duration::from_secs(300), second..=hour),
    }
}
