//! From a signed token to a caller, or to the reason why not.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::*;
use crate::policy::token::Token;

const NOW: i64 = 1_793_354_102;
const ISSUER: &str = "https://idp.example";

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn key() -> EcdsaKeyPair {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key")
}

fn public(key: &EcdsaKeyPair, id: &str) -> Value {
    let point = key.public_key().as_ref();
    json!({"kty": "EC", "crv": "P-256", "kid": id, "x": text(&point[1..33]), "y": text(&point[33..])})
}

fn set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({"keys": keys}).to_string().as_bytes()).expect("a set")
}

fn sign(key: &EcdsaKeyPair, header: &Value, claims: &Value) -> String {
    let signed =
        format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()));
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
    format!("{signed}.{}", text(signature.as_ref()))
}

fn issuer(agent: Option<&str>, scopes: ScopeRule) -> Issuer {
    Issuer {
        name: ISSUER.into(),
        audiences: vec!["sortie".into(), "sortie-eu".into()],
        keys: KeySource::Missing,
        organisation: "default".into(),
        agent: agent.map(str::to_owned),
        scopes,
    }
}

fn by_scope() -> ScopeRule {
    ScopeRule::Claim("scope".into())
}

/// Good claims with some changed; null removes one.
fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": "sortie", "sub": "runtime-7", "exp": NOW + 300, "scope": "agent agent:call",
    });
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => drop(claims.as_object_mut().expect("an object").remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

fn caller(issuer: &Issuer, changes: Value) -> Result<Caller, TokenError> {
    let key = key();
    let token = sign(&key, &json!({"alg": "ES256", "kid": "a"}), &claims(changes));
    let keys = set(&[public(&key, "a")]);
    issuer.caller(Token::parse(token.as_bytes())?.verify(&keys)?, NOW)
}

#[track_caller]
fn refused(changes: Value, expected: TokenError) {
    let found = caller(&issuer(None, by_scope()), changes.clone());
    assert_eq!(found.err(), Some(expected), "{changes}");
}

#[track_caller]
fn taken(changes: Value) -> Caller {
    caller(&issuer(None, by_scope()), changes).expect("taken")
}

fn lacks(name: &str) -> TokenError {
    TokenError::Claim(name.into())
}

#[test]
fn a_good_token_is_its_subject() {
    let caller = taken(json!({}));
    assert_eq!((&*caller.name, caller.proof), ("runtime-7", Proof::Token));
    assert_eq!(caller.scopes, [Scope::Agent, Scope::AgentCall]);
    assert_eq!((caller.agents.len(), caller.tools.len()), (0, 0));
    assert_eq!(caller.noun(), "the token of `runtime-7`");
}

#[test]
fn a_token_must_be_for_us_and_by_its_issuer() {
    taken(json!({"aud": ["other", "sortie-eu"]}));
    for other in [json!("Sortie"), json!("sortie "), json!([]), json!(["other"])] {
        refused(json!({"aud": other}), TokenError::Audience);
    }
    for other in [json!(null), json!(1), json!(["sortie", 1]), json!({"sortie": true})] {
        refused(json!({"aud": other}), lacks("aud"));
    }
    for other in [json!("https://idp.example/"), json!(null), json!([ISSUER])] {
        refused(json!({"iss": other}), TokenError::Issuer);
    }
}

#[test]
fn a_token_lives_from_nbf_to_exp_with_a_minute_of_leeway() {
    taken(json!({"exp": NOW - LEEWAY + 1}));
    refused(json!({"exp": NOW - LEEWAY}), TokenError::Expired);
    refused(json!({"exp": null}), lacks("exp"));
    refused(json!({"exp": "never"}), lacks("exp"));
    taken(json!({"exp": i64::MAX}));
    taken(json!({"nbf": NOW + LEEWAY}));
    refused(json!({"nbf": NOW + LEEWAY + 1}), TokenError::NotYet);
    refused(json!({"nbf": "now"}), lacks("nbf"));
}

#[test]
fn a_subject_is_needed_and_bounded() {
    taken(json!({"sub": "é".repeat(128)}));
    for other in [json!(null), json!(""), json!(7), json!("é".repeat(129))] {
        refused(json!({"sub": other}), lacks("sub"));
    }
}

#[test]
fn an_agent_claim_binds_and_is_never_a_pattern() {
    let bound = issuer(Some("agent"), by_scope());
    let one = caller(&bound, json!({"agent": "support"})).expect("taken");
    assert_eq!(one.agent(None), Ok(Some("support".into())));
    assert!(one.agent(Some("sales")).is_err());
    let two = caller(&bound, json!({"agent": ["support", "desk"]})).expect("taken");
    assert_eq!(two.agent(Some("desk")), Ok(Some("desk".into())));
    assert!(two.agent(None).is_err());
    for other in [json!(null), json!("support-*"), json!("*"), json!([]), json!(""), json!(["a b"])]
    {
        let found = caller(&bound, json!({"agent": other.clone()}));
        assert_eq!(found.err(), Some(lacks("agent")), "{other}");
    }
    let many: Vec<_> = (0..=MAX_AGENTS).map(|n| n.to_string()).collect();
    assert_eq!(caller(&bound, json!({"agent": many})).err(), Some(lacks("agent")));
}

#[test]
fn scopes_are_those_that_are_known() {
    let scopes = |scope: Value| taken(json!({"scope": scope})).scopes;
    assert_eq!(scopes(json!("openid agent:call email agent:call")), [Scope::AgentCall]);
    assert_eq!(scopes(json!(["agent:write", "agent"])), [Scope::Agent, Scope::AgentWrite]);
    for nothing in [json!(null), json!(""), json!("AGENT"), json!(7), json!(["agent", 7])] {
        assert_eq!(scopes(nothing.clone()), [], "{nothing}");
    }
}

#[test]
fn values_of_the_issuer_s_own_stand_for_scopes() {
    let values = vec![
        ("runtime".to_owned(), vec![Scope::AgentCall, Scope::Agent]),
        ("Tool Desk".to_owned(), vec![Scope::AgentWrite]),
    ];
    let rule = ScopeRule::Values { claim: "/realm/roles".into(), values };
    let issuer = issuer(None, rule);
    let scopes =
        |roles: Value| caller(&issuer, json!({"realm": {"roles": roles}})).expect("taken").scopes;
    assert_eq!(scopes(json!(["runtime"])), [Scope::Agent, Scope::AgentCall]);
    assert_eq!(scopes(json!("runtime")), [Scope::Agent, Scope::AgentCall]);
    assert_eq!(scopes(json!(["Tool Desk", "x"])), [Scope::AgentWrite]);
    assert_eq!(scopes(json!("Tool Desk")), [Scope::AgentWrite]);
    // A text is one value: its words may be anybody's choice.
    assert_eq!(scopes(json!("other runtime")), []);
    assert_eq!(scopes(json!(["agent:policy", "runtimes"])), []);
}

#[test]
fn the_scope_claim_holds_words_that_stand_for_scopes() {
    let values = vec![("orders:write".to_owned(), vec![Scope::AgentCall])];
    for claim in ["scope", "scp"] {
        let rule = ScopeRule::Values { claim: claim.into(), values: values.clone() };
        let changes = json!({ claim: "openid orders:write" });
        let caller = caller(&issuer(None, rule), changes).expect("taken");
        assert_eq!(caller.scopes, [Scope::AgentCall], "{claim}");
    }
}

#[test]
fn a_signature_is_by_the_key_that_is_named() {
    let (one, other) = (key(), key());
    let header = |id: Value| json!({"alg": "ES256", "kid": id});
    let keys = set(&[public(&one, "one"), public(&other, "other")]);
    let verified = |token: &str, keys: &KeySet| {
        Token::parse(token.as_bytes()).expect("a token").verify(keys).map(|_| ())
    };
    let token = sign(&one, &header(json!("one")), &claims(json!({})));
    assert_eq!(verified(&token, &keys), Ok(()));
    let wrong = sign(&other, &header(json!("one")), &claims(json!({})));
    assert_eq!(verified(&wrong, &keys), Err(TokenError::Signature));
    let unknown = sign(&one, &header(json!("three")), &claims(json!({})));
    assert_eq!(verified(&unknown, &keys), Err(TokenError::Key));
    let unnamed = sign(&one, &json!({"alg": "ES256"}), &claims(json!({})));
    assert_eq!(verified(&unnamed, &keys), Err(TokenError::NoKeyId));
    assert_eq!(verified(&unnamed, &set(&[public(&one, "one")])), Ok(()));
    // A header that asks for another algorithm finds no key of that kind.
    let confused = sign(&one, &json!({"alg": "RS256", "kid": "one"}), &claims(json!({})));
    assert_eq!(verified(&confused, &keys), Err(TokenError::Key));
    // Other claims under an old signature.
    let parts: Vec<_> = token.split('.').collect();
    let changed = text(claims(json!({"sub": "boss"})).to_string().as_bytes());
    let forged = format!("{}.{changed}.{}", parts[0], parts[2]);
    assert_eq!(verified(&forged, &keys), Err(TokenError::Signature));
}
