//! What `egress` and `explain` ask the address rules: may this be called, and where does it lead now?

use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use crate::clock::{Clock, SystemClock};
use crate::config::snapshot::DnsSettings;
use crate::net::resolve::{HickoryResolver, Resolve};
use crate::policy::address::{Admitted, EgressRules, Judged, Refusal, WayOut};
use crate::policy::egress_check::CompiledException;
use crate::policy::egress_code::EgressCode;
use crate::policy::endpoint::Endpoint;

/// Whether names are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookups {
    /// A name that passes is allowed.
    None,
    /// As a call does it.
    Now,
}

/// Asks the rules, and DNS where it is wanted.
pub(super) struct Judge {
    rules: Arc<EgressRules>,
    resolver: Option<HickoryResolver>,
    runtime: tokio::runtime::Runtime,
    now: i64,
}

/// What the rules say.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    /// `allow`, `refuse` or `unresolvable`.
    pub(super) verdict: &'static str,
    /// Why.
    pub(super) code: &'static str,
    /// Where it leads, or the address that is refused.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether the proxy looks the name up and judges what it finds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) delegated: bool,
    /// In words.
    #[serde(skip)]
    pub(super) reason: Option<String>,
    /// The exception that names it.
    #[serde(skip)]
    pub(super) exception: Option<ExceptionNote>,
}

/// An exception, for people.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ExceptionNote {
    /// What it opens.
    pub(super) opens: String,
    reason: Option<String>,
    owner: Option<String>,
    expires: Option<String>,
}

impl ExceptionNote {
    fn of(exception: &CompiledException) -> Self {
        let note = |name: &str| {
            let found = exception.notes.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| text.clone())
        };
        Self {
            opens: exception.to_string(),
            reason: note("reason"),
            owner: note("owner"),
            expires: note("expires"),
        }
    }
}

impl Judge {
    /// Judges by these rules and name servers.
    pub(super) fn new(
        rules: Arc<EgressRules>,
        dns: &DnsSettings,
        lookups: Lookups,
    ) -> Result<Self, String> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let now = clock.unix_ms().div_euclid(1000);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("the runtime does not start: {error}"))?;
        let resolver = match lookups {
            Lookups::None => None,
            Lookups::Now => {
                Some(HickoryResolver::new(dns, clock).map_err(|error| error.to_string())?)
            }
        };
        Ok(Self { rules, resolver, runtime, now })
    }

    /// An address alone: no exception applies.
    pub(super) fn address(&self, address: IpAddr) -> Verdict {
        Verdict::of(self.rules.judge_address(address).verdict.map(|address| vec![address]))
    }

    /// What this tool would call.
    pub(super) fn endpoint(&self, tool: &str, endpoint: &Endpoint) -> Verdict {
        let judged: Judged<Admitted<'_>> = self.rules.admit(tool, endpoint, self.now);
        let admitted = match judged.verdict {
            Ok(admitted) => admitted,
            Err(refusal) => return Verdict::of(Err(refusal)),
        };
        let exception = self.rules.excepting(&admitted).first().copied().map(ExceptionNote::of);
        Verdict { exception, ..self.admitted(&admitted) }
    }

    fn admitted(&self, admitted: &Admitted<'_>) -> Verdict {
        if let WayOut::Delegated(_) = self.rules.way_out(admitted) {
            let reason = "delegated: the proxy judges it".to_owned();
            let verdict = Verdict::without("allow", EgressCode::Ok.as_str(), Some(reason));
            return Verdict { delegated: true, ..verdict };
        }
        let answers = match (admitted.literal(), &self.resolver) {
            (Some(answers), _) => answers,
            (None, None) => return Verdict::of(Ok(Vec::new())),
            (None, Some(resolver)) => match self.runtime.block_on(resolver.lookup(admitted)) {
                Ok(resolved) => (*resolved.answers).clone(),
                Err(error) => {
                    let code = EgressCode::ResolveFailed.as_str();
                    return Verdict::without("unresolvable", code, Some(error.to_string()));
                }
            },
        };
        let vetted = self.rules.vet(admitted, &answers).verdict;
        Verdict::of(vetted.map(|all| all.iter().map(|one| one.socket().ip()).collect()))
    }
}

impl Verdict {
    /// One that names no address.
    pub(super) fn without(
        verdict: &'static str,
        code: &'static str,
        reason: Option<String>,
    ) -> Self {
        Self { verdict, code, addresses: Vec::new(), delegated: false, reason, exception: None }
    }

    fn of(verdict: Result<Vec<IpAddr>, Refusal>) -> Self {
        match verdict {
            Ok(addresses) => {
                let code = EgressCode::Ok.as_str();
                Self { addresses, ..Self::without("allow", code, None) }
            }
            Err(refusal) => {
                let is_unresolvable = refusal.code == EgressCode::ResolveFailed;
                let verdict = if is_unresolvable { "unresolvable" } else { "refuse" };
                let reason = Some(refusal.to_string());
                Self {
                    addresses: refusal.address.into_iter().collect(),
                    ..Self::without(verdict, refusal.code.as_str(), reason)
                }
            }
        }
    }

    /// Whether it may be called.
    pub(super) fn allows(&self) -> bool {
        self.verdict == "allow"
    }

    /// The reason, or else the addresses.
    pub(super) fn in_words(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        self.reason.clone().unwrap_or_else(|| addresses.join(", "))
    }
}
