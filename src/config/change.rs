//! What can change between two configurations: each kind of change, what it is called, and when it is looser.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use serde::Serialize;

use crate::config::leaf::Span;
use crate::policy::names::{HostPattern, glob_matches};
use crate::policy::ports::PortRange;

/// Longer values are cut where they are shown.
const SHOWN: usize = 200;

/// What a change does to what is possible, in the order in which a reviewer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Something is possible that was not, or nobody can tell that it is not.
    Looser,
    /// Something is no longer possible.
    Tighter,
    /// Neither.
    Neutral,
}

impl Direction {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Looser => "looser",
            Self::Tighter => "tighter",
            Self::Neutral => "neutral",
        }
    }
}

/// One difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it does.
    pub direction: Direction,
    /// Where, such as `tools.lookup_order.policy`.
    pub path: String,
    /// What it is called: the name of its kind.
    pub change: &'static str,
    /// The value before. Never a secret: those are references.
    pub old: String,
    /// The value after.
    pub new: String,
}

/// Whether a wide entry of a list holds all that a narrow one holds.
type Covers = fn(&str, &str) -> bool;

/// When a change of some kind is looser.
#[derive(Clone, Copy)]
enum Rule {
    /// Entries of a list each close something.
    Closes(Covers),
    /// A list names all that something closes; an empty one is about everything.
    ClosesAll(Covers),
    /// Whoever compares says it.
    Judged,
    /// Less of it is looser.
    Less,
    /// More of it is looser.
    More,
    /// A list names all that is possible; an empty one does not bound anything.
    Narrows(Covers),
    /// Never.
    Neutral,
    /// Entries of a list each open something.
    Opens(Covers),
    /// Always: it is another one, and nothing says that it may do less.
    Other,
}

macro_rules! kinds {
    ($($kind:ident, $name:literal, $rule:expr;)*) => {
        /// The kinds of changes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $(#[doc = $name] $kind,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// What it is called.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            fn rule(self) -> Rule {
                match self { $(Self::$kind => $rule,)* }
            }
        }
    };
}

// The table: the kind, what it is called, and when it is looser.
kinds! {
    AcceptedHeaders, "headers that a call may bring", Rule::Opens(is_same_header);
    AdminListener, "admin listener", Rule::More;
    Agent, "agent", Rule::More;
    AgentClaim, "claim that binds a token to agents", Rule::Narrows(is_same);
    AgentTools, "tools that an agent is offered", Rule::Opens(glob_matches);
    AgentsListed, "whether agents are listed", Rule::Less;
    AllowedHosts, "hosts that may be called", Rule::Narrows(holds_host);
    Arguments, "what arguments may be", Rule::Judged;
    AskFirst, "whether the person is asked too", Rule::Less;
    Attempts, "attempts of a call", Rule::More;
    Audiences, "audiences of tokens", Rule::Opens(is_same);
    AuditTime, "how long it is known who decided", Rule::Less;
    Authentication, "how the server is told who calls", Rule::Neutral;
    Breaker, "pause of a tool that fails", Rule::Less;
    BreakerPause, "how long a failing tool is paused", Rule::Less;
    BreakerThreshold, "failures that pause a tool", Rule::More;
    Caller, "caller", Rule::More;
    CallerAgents, "agents that a caller may speak for", Rule::Narrows(glob_matches);
    CallerEnd, "end of a key", Rule::More;
    CallerNames, "certificate that makes a caller", Rule::Narrows(glob_matches);
    CallerTools, "tools that a caller may call", Rule::Narrows(glob_matches);
    CallersBefore, "entries that count before this one", Rule::Closes(is_same);
    CallsInFlight, "calls at the same time", Rule::More;
    CallsInRound, "calls that a reply may make", Rule::More;
    Capture, "what records of calls hold", Rule::More;
    Candidate, "policy that only watches", Rule::Neutral;
    ClientCertificates, "certificates that clients are asked for", Rule::Less;
    ClientNames, "clients that may connect", Rule::Narrows(glob_matches);
    DeniedHosts, "hosts that are never called", Rule::Closes(holds_host);
    DeniedRanges, "ranges that are never called", Rule::Closes(holds_range);
    Enabled, "whether the tool is on", Rule::More;
    ErrorBody, "error bodies that the model reads", Rule::More;
    Exception, "private target", Rule::More;
    ExceptionEnd, "end of a private target", Rule::More;
    ExceptionHosts, "hosts of a private target", Rule::Opens(holds_host);
    ExceptionHttp, "plain http to a private target", Rule::More;
    ExceptionPorts, "ports of a private target", Rule::Opens(holds_port);
    ExceptionRanges, "private ranges that are opened", Rule::Opens(holds_range);
    ExceptionTools, "tools that may call a private target", Rule::Opens(glob_matches);
    FakeRanges, "stand-ins of a proxy", Rule::Opens(holds_range);
    ForwardTrace, "whether the tool learns of the trace", Rule::More;
    Headers, "own headers", Rule::Neutral;
    Idempotent, "whether a repeat is harmless", Rule::More;
    Ipv6, "whether IPv6 is dialled", Rule::More;
    KeySet, "keys that sign tokens", Rule::Other;
    KeyValue, "value of a key", Rule::Neutral;
    ListenAddress, "who reaches a listener", Rule::More;
    ListenerLimit, "bound of a listener", Rule::More;
    ListenerTls, "TLS of a listener", Rule::Less;
    MailTo, "who gets mail", Rule::Opens(is_same);
    MixedAnswers, "names with refused addresses", Rule::More;
    Nat64, "prefixes that carry IPv4", Rule::Other;
    NoAuthentication, "callers that are not told apart", Rule::More;
    NotifyTarget, "where people are told", Rule::Other;
    Organisation, "organisation", Rule::Other;
    OwnAddresses, "own addresses, which are never called", Rule::Closes(is_same);
    Policy, "policy", Rule::Less;
    PolicyAgents, "agents that a policy is about", Rule::ClosesAll(glob_matches);
    PolicyConditions, "conditions of a policy", Rule::Opens(is_same);
    PolicyPermission, "what a policy is about", Rule::ClosesAll(is_same);
    PolicyTools, "tools that a policy is about", Rule::ClosesAll(glob_matches);
    Ports, "ports that may be called", Rule::Opens(holds_port);
    PrivateRanges, "ranges that count as private", Rule::Closes(holds_range);
    Proxy, "proxy", Rule::Other;
    ProxyMode, "who judges addresses", Rule::More;
    RateBurst, "calls at once", Rule::More;
    RateLimit, "rate limit", Rule::Less;
    RatePeriod, "calls in a time", Rule::Less;
    RetriedFailures, "failures that are tried again", Rule::Opens(is_same);
    RetriedStatuses, "answers that are tried again", Rule::Opens(is_same);
    Reference, "place of a secret", Rule::Neutral;
    ResultLimit, "bound of a result", Rule::More;
    Roots, "authorities that are trusted", Rule::Other;
    ScopeRule, "scopes of tokens", Rule::Opens(is_same);
    Scopes, "scopes", Rule::Opens(is_same);
    Setting, "setting", Rule::Neutral;
    Shadow, "whether the rules only watch", Rule::More;
    Signature, "signature", Rule::Less;
    SocketMode, "who may open a socket", Rule::Opens(is_same);
    Target, "where the tool is", Rule::Other;
    Timeout, "bound of time", Rule::More;
    TlsVersion, "oldest TLS", Rule::Less;
    TokenScope, "scopes of fetched tokens", Rule::Opens(is_same);
    TokenTarget, "where tokens are fetched", Rule::Other;
    Tool, "tool", Rule::More;
    ToolPolicies, "policies that are about the tool", Rule::Closes(is_same);
    TraceTarget, "where spans go", Rule::Other;
    TripPause, "pause after an answer", Rule::Less;
    TripStatuses, "answers that pause a tool", Rule::Closes(is_same);
    WireFormat, "what is sent", Rule::Neutral;
}

/// A value as it is told, and as it is compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    measure: Measure,
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Measure {
    Items(Vec<String>),
    Number(u128),
    Ratio(f64),
    Text(String),
}

impl Told {
    /// A number or a rank.
    pub fn number(number: impl TryInto<u128>, text: impl fmt::Display) -> Self {
        // What is larger than any number is as good as the largest.
        let number = number.try_into().unwrap_or(u128::MAX);
        Self { measure: Measure::Number(number), text: text.to_string() }
    }

    /// A duration.
    pub fn time(duration: Duration) -> Self {
        Self::number(duration.as_nanos(), Span(duration))
    }

    /// A share from 0 to 1.
    pub fn ratio(ratio: f64) -> Self {
        Self { measure: Measure::Ratio(ratio), text: ratio.to_string() }
    }

    /// Yes or no.
    pub fn truth(truth: bool) -> Self {
        Self::number(u8::from(truth), truth)
    }

    /// A list whose order means nothing; `empty` is what an empty one is told as.
    pub fn items(items: impl IntoIterator<Item = impl fmt::Display>, empty: &str) -> Self {
        let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
        items.sort();
        items.dedup();
        let text = if items.is_empty() { empty.to_owned() } else { items.join(", ") };
        Self { measure: Measure::Items(items), text }
    }

    /// A text.
    pub fn text(text: impl fmt::Display) -> Self {
        let text = text.to_string();
        Self { measure: Measure::Text(text.clone()), text }
    }

    /// A text that is told in another form than it is compared.
    pub fn hidden(compared: impl fmt::Display, text: impl fmt::Display) -> Self {
        Self { measure: Measure::Text(compared.to_string()), text: text.to_string() }
    }
}

/// The changes, as they are found.
#[derive(Debug, Default)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// Notes a change, where the two differ.
    pub fn compare(&mut self, kind: Kind, path: impl fmt::Display, old: &Told, new: &Told) {
        if old != new {
            self.note(kind, direction(kind.rule(), &old.measure, &new.measure), path, old, new);
        }
    }

    /// Notes something that is there only afterwards, or no longer; nothing of it is told apart.
    pub fn appears(
        &mut self,
        kind: Kind,
        path: impl fmt::Display,
        old: Option<&str>,
        new: Option<&str>,
    ) {
        let told =
            |text: Option<&str>| Told::number(u8::from(text.is_some()), text.unwrap_or("none"));
        self.compare(kind, path, &told(old), &told(new));
    }

    /// Notes a change that the caller has judged.
    pub fn note(
        &mut self,
        kind: Kind,
        direction: Direction,
        path: impl fmt::Display,
        old: &Told,
        new: &Told,
    ) {
        let (old, mut new_text) = (shown(&old.text), shown(&new.text));
        if old == new_text {
            // What differs is hidden, or beyond what is shown.
            new_text.push_str(" (another)");
        }
        self.0.push(Change {
            direction,
            path: path.to_string(),
            change: kind.name(),
            old,
            new: new_text,
        });
    }

    /// All of them: what is looser first, then by path.
    pub fn into_sorted(self) -> Vec<Change> {
        let mut changes = self.0;
        changes.sort_by(|a, b| {
            (a.direction, &a.path, a.change).cmp(&(b.direction, &b.path, b.change))
        });
        changes
    }
}

/// The names of two maps, each once, with what stands there before and after.
pub fn pairs<'a, K: Ord, V>(
    old: impl IntoIterator<Item = (K, &'a V)>,
    new: impl IntoIterator<Item = (K, &'a V)>,
) -> Vec<(K, Option<&'a V>, Option<&'a V>)> {
    let mut all: BTreeMap<K, (Option<&V>, Option<&V>)> = BTreeMap::new();
    for (name, value) in old {
        all.entry(name).or_default().0 = Some(value);
    }
    for (name, value) in new {
        all.entry(name).or_default().1 = Some(value);
    }
    all.into_iter().map(|(name, (old, new))| (name, old, new)).collect()
}

fn shown(text: &str) -> String {
    let mut kept: String = text.chars().take(SHOWN).collect();
    if kept.len() < text.len() {
        kept.push('…');
    }
    kept
}

fn direction(rule: Rule, old: &Measure, new: &Measure) -> Direction {
    let by_order = |order: Option<std::cmp::Ordering>| match order {
        Some(std::cmp::Ordering::Less) => Direction::Tighter,
        Some(std::cmp::Ordering::Equal) => Direction::Neutral,
        Some(std::cmp::Ordering::Greater) | None => Direction::Looser,
    };
    let order = || match (old, new) {
        (Measure::Number(old), Measure::Number(new)) => new.partial_cmp(old),
        (Measure::Ratio(old), Measure::Ratio(new)) => new.partial_cmp(old),
        _ => None,
    };
    let lists = |covers| match (old, new) {
        (Measure::Items(old), Measure::Items(new)) => Some(Lists { old, new, covers }),
        _ => None,
    };
    match rule {
        Rule::Neutral => Direction::Neutral,
        Rule::Other | Rule::Judged => Direction::Looser,
        Rule::More => by_order(order()),
        Rule::Less => by_order(order().map(std::cmp::Ordering::reverse)),
        Rule::Opens(covers) => lists(covers).map_or(Direction::Looser, |lists| lists.opening()),
        Rule::Closes(covers) => {
            let turned =
                lists(covers).map(|lists| Lists { old: lists.new, new: lists.old, covers });
            turned.map_or(Direction::Looser, |lists| lists.opening())
        }
        Rule::ClosesAll(covers) => direction(Rule::Narrows(covers), new, old),
        Rule::Narrows(covers) => match lists(covers) {
            Some(Lists { old: [], .. }) => Direction::Tighter,
            Some(Lists { new: [], .. }) | None => Direction::Looser,
            Some(lists) => lists.opening(),
        },
    }
}

struct Lists<'a> {
    old: &'a [String],
    new: &'a [String],
    covers: Covers,
}

impl Lists<'_> {
    /// For lists of what is possible.
    fn opening(&self) -> Direction {
        let lacks = |wide: &[String], narrow: &[String]| {
            narrow.iter().any(|narrow| !wide.iter().any(|wide| (self.covers)(wide, narrow)))
        };
        match (lacks(self.old, self.new), lacks(self.new, self.old)) {
            (true, _) => Direction::Looser,
            (false, true) => Direction::Tighter,
            (false, false) => Direction::Neutral,
        }
    }
}

fn is_same(wide: &str, narrow: &str) -> bool {
    wide == narrow
}

fn is_same_header(wide: &str, narrow: &str) -> bool {
    wide.eq_ignore_ascii_case(narrow)
}

fn holds_range(wide: &str, narrow: &str) -> bool {
    let ranges = wide.parse::<IpNet>().ok().zip(narrow.parse::<IpNet>().ok());
    ranges.is_some_and(|(wide, narrow)| wide.contains(&narrow))
}

fn holds_port(wide: &str, narrow: &str) -> bool {
    let Ok(range) = PortRange::parse(wide) else { return false };
    let (first, last) = narrow.split_once('-').unwrap_or((narrow, narrow));
    let holds = |port: &str| port.parse().is_ok_and(|port| range.contains(port));
    holds(first) && holds(last)
}

fn holds_host(wide: &str, narrow: &str) -> bool {
    let below = narrow.strip_prefix("*.");
    let inside = |wide: HostPattern| match below {
        // Whatever lies below the narrow one lies below this.
        Some(suffix) => wide.matches_name(&format!("x.{suffix}")),
        None => wide.matches_name(narrow),
    };
    wide == narrow
        || HostPattern::parse(wide).is_ok_and(|wide| match (below, &wide) {
            (Some(_), HostPattern::Name(_)) => false,
            _ => inside(wide),
        })
}

#[cfg(test)]
mod tests;
