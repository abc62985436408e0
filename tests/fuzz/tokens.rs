//! Tokens of callers: nobody is let in but by what a key signed, and a caller keeps within its bounds.

use std::sync::LazyLock;

use sortie::policy::issuer::{Issuer, KeySource, ScopeRule};
use sortie::policy::jwk::KeySet;
use sortie::policy::token::Token;

use super::{NOW, take_line};

/// An Ed25519 and an RSA key, whose private halves are gone.
static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    KeySet::parse(include_str!("token_keys.json").trim_end().as_bytes()).expect("a set")
});

/// Everything that those keys ever signed, each after the line of its set.
const SIGNED: [&str; 2] = [include_str!("corpus/token/ed25519"), include_str!("corpus/token/rsa")];

/// The longest name of a caller.
const MAX_NAME: usize = 128;

/// A line with a set of keys, or an empty one for ours, then a token.
pub fn token(data: &[u8]) {
    let mut rest = data;
    let line = take_line(&mut rest);
    let own = (!line.is_empty()).then(|| KeySet::parse(line));
    let keys = match &own {
        Some(Ok(keys)) => keys,
        Some(Err(_)) => return,
        None => &KEYS,
    };
    let Ok(token) = Token::parse(rest) else { return };
    let Ok(claims) = token.verify(keys) else { return };
    if own.is_none() {
        let body = |text: &[u8]| {
            text.iter().rposition(|byte| *byte == b'.').map(|end| text[..end].to_vec())
        };
        let known = |signed: &&str| body(signed.trim_start().as_bytes()) == body(rest);
        assert!(SIGNED.iter().any(known), "a forged token is taken");
    }
    for agent in [None, Some("/act/agent".to_owned())] {
        let scopes = ScopeRule::Claim("scope".into());
        let issuer = Issuer {
            name: "https://idp.example".into(),
            audiences: vec!["sortie".into()],
            keys: KeySource::Missing,
            organisation: "default".into(),
            agent,
            scopes,
        };
        let Ok(caller) = issuer.caller(claims, NOW) else { continue };
        assert_eq!(token.claimed_issuer(), Some(issuer.name.as_str()));
        assert!((1..=MAX_NAME).contains(&caller.name.chars().count()));
        assert!(
            caller.agents.iter().all(|glob| glob.literal().is_some()),
            "a pattern from outside"
        );
        assert_eq!(issuer.agent.is_some(), !caller.agents.is_empty());
    }
}
