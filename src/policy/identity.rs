//! Who calls: a name with scopes and bounds, and the keys by which it is known (contract, section 1).

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::policy::names::glob_matches;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Read.
    Agent,
    /// Decide on waiting calls.
    AgentApprove,
    /// Run calls.
    AgentCall,
    /// Change policies.
    AgentPolicy,
    /// Manage tools.
    AgentWrite,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Agent, Self::AgentApprove, Self::AgentCall, Self::AgentPolicy, Self::AgentWrite];

    /// The name in the configuration file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::AgentApprove => "agent:approve",
            Self::AgentCall => "agent:call",
            Self::AgentPolicy => "agent:policy",
            Self::AgentWrite => "agent:write",
        }
    }

    /// The scope of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// A bound of a caller: a name, or a pattern in which `*` stands for any run of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(String);

/// A text that cannot be a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bound is 1 to 128 visible ASCII characters, in which `*` stands for any run of characters"
)]
pub struct GlobError;

impl Glob {
    /// Takes 1 to 128 visible ASCII characters.
    pub fn parse(text: &str) -> Result<Self, GlobError> {
        let fits = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Self(text.to_owned())) } else { Err(GlobError) }
    }

    /// Whether it holds the whole text.
    pub fn matches(&self, text: &str) -> bool {
        glob_matches(&self.0, text)
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, where it is no pattern.
    pub fn literal(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&self.0)
    }
}

/// SHA-256 of a key: all that is kept of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest(pub [u8; 32]);

impl KeyDigest {
    /// The digest of a key as it is presented.
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }
}

/// By what a caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A client certificate.
    Certificate,
    /// A bearer key.
    Key,
    /// Nothing: `auth: none`.
    Nothing,
    /// A token of an issuer.
    Token,
}

/// Somebody with a name, scopes and bounds.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The name of the key or the certificate, or the token's subject: it stands in log lines.
    pub name: Arc<str>,
    /// By what it is known.
    pub proof: Proof,
    /// The organisation.
    pub organisation: Arc<str>,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Agents that it may speak for; empty: any.
    pub agents: Vec<Glob>,
    /// Tools that it may call; empty: any.
    pub tools: Vec<Glob>,
}

/// The body claims an agent outside the caller's bounds, or none where one is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds;

impl Caller {
    /// Whoever calls where `auth: none` is set.
    pub fn anonymous() -> Self {
        Self {
            name: "none".into(),
            proof: Proof::Nothing,
            organisation: crate::model::id::DEFAULT_ORGANISATION.into(),
            scopes: vec![Scope::Agent, Scope::AgentCall],
            agents: Vec::new(),
            tools: Vec::new(),
        }
    }

    /// Whoever comes by the admin listener: they decide on waiting calls of this organisation.
    pub fn operator(organisation: &str) -> Self {
        Self {
            name: "admin".into(),
            organisation: organisation.into(),
            scopes: vec![Scope::AgentApprove],
            ..Self::anonymous()
        }
    }

    /// Which caller, in a sentence: the key `runtime`.
    pub fn noun(&self) -> String {
        let kind = match self.proof {
            Proof::Certificate => "the certificate",
            Proof::Key | Proof::Nothing => "the key",
            Proof::Token => "the token of",
        };
        format!("{kind} `{}`", self.name)
    }

    /// Whether it has the scope.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// The agent that this call is for: the claimed one where the bounds hold it; the only plain name of the bounds
    /// where none is claimed.
    pub fn agent(&self, claimed: Option<&str>) -> Result<Option<String>, OutOfBounds> {
        match (claimed, self.agents.as_slice()) {
            (claimed, []) => Ok(claimed.map(str::to_owned)),
            (None, [only]) => only.literal().map(|name| Some(name.to_owned())).ok_or(OutOfBounds),
            (None, _) => Err(OutOfBounds),
            (Some(agent), _) if self.speaks_for(agent) => Ok(Some(agent.to_owned())),
            (Some(_), _) => Err(OutOfBounds),
        }
    }

    /// Whether the bounds hold this agent.
    pub fn speaks_for(&self, agent: &str) -> bool {
        self.agents.is_empty() || self.agents.iter().any(|glob| glob.matches(agent))
    }

    /// Whether the bounds hold this tool.
    pub fn may_call(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|glob| glob.matches(tool))
    }
}

/// One key of the configuration file: up to two values at once while one is replaced.
#[derive(Debug, Clone)]
pub struct Key {
    /// Whose it is.
    pub caller: Arc<Caller>,
    /// The current value and the previous one.
    pub digests: Vec<KeyDigest>,
    /// Those of them that the file states itself.
    pub stated: Vec<KeyDigest>,
    /// The first second, in Unix time, at which it is no longer taken.
    pub ends: Option<i64>,
}

/// The keys, by digest.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    by_digest: HashMap<KeyDigest, (Arc<Caller>, Option<i64>)>,
    all: Vec<Key>,
}

impl Keys {
    /// Takes the file's keys; returns the name of a key whose value another one has too.
    pub fn new(keys: &[Key]) -> Result<Self, String> {
        let mut by_digest = HashMap::new();
        for key in keys {
            for digest in &key.digests {
                let entry = (key.caller.clone(), key.ends);
                if by_digest.insert(*digest, entry).is_some() {
                    return Err(key.caller.name.to_string());
                }
            }
        }
        Ok(Self { by_digest, all: keys.to_vec() })
    }

    /// The keys in the order of the file, those whose value could not be read too.
    pub fn all(&self) -> &[Key] {
        &self.all
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.by_digest.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_digest.is_empty()
    }

    /// The caller who presents this key at this Unix second; `None` where it is unknown or has ended.
    ///
    /// The look-up is by SHA-256 of what was presented: timing tells nothing about a key that one does not have.
    pub fn find(&self, presented: &[u8], now: i64) -> Option<Arc<Caller>> {
        let (caller, ends) = self.by_digest.get(&KeyDigest::of(presented))?;
        let lives = ends.is_none_or(|end| now < end);
        lives.then(|| caller.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(agents: &[&str], tools: &[&str]) -> Caller {
        let globs =
            |list: &[&str]| list.iter().map(|text| Glob::parse(text).expect("valid")).collect();
        Caller {
            name: "k".into(),
            scopes: vec![Scope::AgentCall],
            agents: globs(agents),
            tools: globs(tools),
            ..Caller::anonymous()
        }
    }

    #[track_caller]
    fn check_agent(
        bounds: &[&str],
        claimed: Option<&str>,
        expected: Result<Option<&str>, OutOfBounds>,
    ) {
        let found = caller(bounds, &[]).agent(claimed);
        assert_eq!(found, expected.map(|agent| agent.map(str::to_owned)));
    }

    #[test]
    fn an_unbound_key_speaks_for_any_agent_or_none() {
        check_agent(&[], None, Ok(None));
        check_agent(&[], Some("x"), Ok(Some("x")));
    }

    #[test]
    fn one_plain_name_is_filled_in() {
        check_agent(&["support"], None, Ok(Some("support")));
        check_agent(&["support"], Some("support"), Ok(Some("support")));
        check_agent(&["support"], Some("sales"), Err(OutOfBounds));
    }

    #[test]
    fn globs_need_a_claim_inside_of_them() {
        check_agent(&["support-*"], None, Err(OutOfBounds));
        check_agent(&["support-*"], Some("support-eu"), Ok(Some("support-eu")));
        check_agent(&["support-*"], Some("sales"), Err(OutOfBounds));
        check_agent(&["a", "b"], None, Err(OutOfBounds));
    }

    #[test]
    fn tool_bounds_hold_globs_and_names() {
        let caller = caller(&[], &["orders.*", "lookup_order"]);
        assert!(caller.may_call("orders.get") && caller.may_call("lookup_order"));
        assert!(!caller.may_call("refund") && !caller.may_call("lookup_orders"));
    }

    #[test]
    fn both_values_of_a_key_are_taken_until_its_end() {
        let key = Key {
            caller: Arc::new(caller(&[], &[])),
            digests: vec![KeyDigest::of(b"new"), KeyDigest::of(b"old")],
            stated: Vec::new(),
            ends: Some(100),
        };
        let keys = Keys::new(&[key]).expect("distinct");
        assert!(keys.find(b"new", 99).is_some());
        assert!(keys.find(b"old", 99).is_some());
        assert!(keys.find(b"new", 100).is_none());
        assert!(keys.find(b"other", 0).is_none());
        assert!(keys.find(b"", 0).is_none());
    }

    #[test]
    fn two_keys_cannot_share_a_value() {
        let key = Key {
            caller: Arc::new(caller(&[], &[])),
            digests: vec![KeyDigest::of(b"same"), KeyDigest::of(b"same")],
            stated: Vec::new(),
            ends: None,
        };
        assert_eq!(Keys::new(&[key]).err().as_deref(), Some("k"));
    }

    #[test]
    fn nobody_manages_or_approves_without_a_key() {
        let anonymous = Caller::anonymous();
        let has: Vec<_> = Scope::ALL.into_iter().filter(|scope| anonymous.has(*scope)).collect();
        assert_eq!(has, [Scope::Agent, Scope::AgentCall]);
    }
}
