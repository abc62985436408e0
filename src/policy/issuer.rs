//! Whose tokens are taken, and which caller a token makes.

use std::sync::Arc;

use serde_json::Value;

use crate::policy::endpoint::Endpoint;
use crate::policy::identity::{Caller, Glob, Proof, Scope};
use crate::policy::jwk::KeySet;
use crate::policy::token::{Claims, TokenError};

/// The name by which exceptions of the egress rules know whoever fetches a set of keys.
pub const KEY_SET_ASKER: &str = "_jwks";
/// How far two clocks may be apart, in seconds.
pub const LEEWAY: i64 = 60;
/// The longest subject: it stands in log lines.
const MAX_SUBJECT: usize = 128;
/// Most agents that a token may name.
const MAX_AGENTS: usize = 16;

/// One entry of `auth.jwt`.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// What `iss` must be.
    pub name: String,
    /// One of these must stand in `aud`.
    pub audiences: Vec<String>,
    /// Where its keys are.
    pub keys: KeySource,
    /// Whose callers they are.
    pub organisation: String,
    /// The claim that binds a token to agents.
    pub agent: Option<String>,
    /// What a token may do.
    pub scopes: ScopeRule,
}

/// Where an issuer's keys are.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// They could not be read: no token is taken.
    Missing,
    /// Read from a file.
    Set(Arc<KeySet>),
    /// Published at a URL.
    Url(Endpoint),
}

/// From claims to scopes.
#[derive(Debug, Clone)]
pub enum ScopeRule {
    /// The claim holds scopes; what is no scope of Sortie says nothing.
    Claim(String),
    /// The claim holds values of the issuer's own, each of which stands for scopes.
    Values {
        /// The claim.
        claim: String,
        /// Its values.
        values: Vec<(String, Vec<Scope>)>,
    },
}

impl Issuer {
    /// The caller whom a verified token makes at this Unix second.
    pub fn caller(&self, claims: Claims<'_>, now: i64) -> Result<Caller, TokenError> {
        let lacks = |name: &str| TokenError::Claim(name.to_owned());
        // The keys were found by this name, and a set may serve several issuers.
        if claims.find("iss").and_then(Value::as_str) != Some(&self.name) {
            return Err(TokenError::Issuer);
        }
        let audiences = claims.texts("aud").ok_or_else(|| lacks("aud"))?;
        if !audiences.iter().any(|one| self.audiences.iter().any(|own| own == one)) {
            return Err(TokenError::Audience);
        }
        let ends = claims.seconds("exp").ok_or_else(|| lacks("exp"))?;
        if now >= ends.saturating_add(LEEWAY) {
            return Err(TokenError::Expired);
        }
        if claims.find("nbf").is_some() {
            let begins = claims.seconds("nbf").ok_or_else(|| lacks("nbf"))?;
            if now.saturating_add(LEEWAY) < begins {
                return Err(TokenError::NotYet);
            }
        }
        let subject = claims.find("sub").and_then(Value::as_str);
        let subject = subject.filter(|text| (1..=MAX_SUBJECT).contains(&text.chars().count()));
        Ok(Caller {
            name: subject.ok_or_else(|| lacks("sub"))?.into(),
            proof: Proof::Token,
            organisation: self.organisation.as_str().into(),
            scopes: self.scopes.of(claims),
            agents: self.agents(claims)?,
            tools: Vec::new(),
        })
    }

    /// The agents that a token is bound to: names, never patterns, whatever the issuer writes.
    fn agents(&self, claims: Claims<'_>) -> Result<Vec<Glob>, TokenError> {
        let Some(name) = &self.agent else { return Ok(Vec::new()) };
        let lacks = || TokenError::Claim(name.clone());
        let agents = claims.texts(name).ok_or_else(lacks)?;
        if !(1..=MAX_AGENTS).contains(&agents.len()) {
            return Err(lacks());
        }
        let literal = |text: &&str| Glob::parse(text).ok().filter(|glob| glob.literal().is_some());
        agents.iter().map(literal).collect::<Option<_>>().ok_or_else(lacks)
    }
}

impl ScopeRule {
    fn of(&self, claims: Claims<'_>) -> Vec<Scope> {
        let mut scopes: Vec<Scope> = match self {
            Self::Claim(claim) => {
                claims.words(claim).into_iter().filter_map(Scope::parse).collect()
            }
            Self::Values { claim, values } => {
                let words = if is_scope(claim) {
                    claims.words(claim)
                } else {
                    claims.texts(claim).unwrap_or_default()
                };
                let held = values.iter().filter(|(value, _)| words.contains(&value.as_str()));
                held.flat_map(|(_, scopes)| scopes).copied().collect()
            }
        };
        scopes.sort_unstable_by_key(|scope| scope.as_str());
        scopes.dedup();
        scopes
    }
}

/// Whether a claim's text is words with spaces between them (RFC 8693, section 4.2): any other text is one value, so that
/// nobody's display name holds a group.
fn is_scope(claim: &str) -> bool {
    matches!(claim, "scope" | "scp")
}

#[cfg(test)]
mod tests;
