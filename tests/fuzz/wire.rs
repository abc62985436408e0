//! What is sent: signatures, and requests in any profile.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use sortie::config::profile;
use sortie::model::call::{CallContext, EndUser};
use sortie::model::id::{CallId, Token, ToolName};
use sortie::model::json::read_object;
use sortie::model::secret::Secret;
use sortie::policy::endpoint::Endpoint;
use sortie::policy::schema::ArgumentSchema;
use sortie::policy::scheme::SchemeText;
use sortie::policy::sign::{MessageId, Received, SignatureScheme, SigningKeys};
use sortie::policy::wire::{OwnHeader, Rendering, WireProfile};

use super::{NOW, number, take_line, text};

/// Key material that every encoding of keys takes.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A key that signed nothing in any corpus.
const STRANGER: &str = "whsec_YW5vdGhlciBrZXksIHdoaWNoIG5vIGNvcnB1cyBzaWducyB3aXRo";

/// The hub that signs the body alone, as an operator would write it.
const HUB: &str =
    r#"{"signed": "{body}", "key": "text", "digest": "hex", "value": "sha256={digest}"}"#;

/// The shipped schemes in the order of their profiles, then the hub's.
static SCHEMES: LazyLock<Vec<SignatureScheme>> = LazyLock::new(|| {
    let hub: SchemeText = serde_json::from_str(HUB).expect("JSON");
    let profiles = profile::builtin();
    let shipped = profiles.iter().filter_map(|profile| profile.signature().cloned());
    shipped.chain([hub.compile().expect("a scheme")]).collect()
});

/// Lines of scheme, header value, time, id and key, then a body: nothing verifies but what the key's owner wrote.
pub fn signature(data: &[u8]) {
    let mut rest = data;
    let which = number(take_line(&mut rest)).unwrap_or(0);
    let scheme = SCHEMES.get(which).or(SCHEMES.last()).expect("there are some");
    let value = text(take_line(&mut rest));
    let time = text(take_line(&mut rest));
    let id = text(take_line(&mut rest));
    let secret = Secret::new(take_line(&mut rest));
    let body = rest;
    let accepted = scheme.accept_key(&secret);
    let Ok(keys) = scheme.prepare(std::slice::from_ref(&secret)) else {
        assert!(accepted.is_err());
        return;
    };
    assert!(accepted.is_ok());
    let received = Received { value, timestamp: Some(time), id: Some(id), body };
    if scheme.verify(&keys, &received, NOW, u64::MAX).is_ok() {
        is_the_owners(scheme, &keys, &received);
    }
    if secret.expose() != STRANGER.as_bytes() {
        let other = scheme.prepare(&[Secret::new(STRANGER)]).expect("a good key");
        assert!(scheme.verify(&other, &received, NOW, u64::MAX).is_err(), "another's key");
    }
    comes_back(scheme, &keys, id, body);
}

/// What verified holds the digest that the key gives.
fn is_the_owners(scheme: &SignatureScheme, keys: &SigningKeys, received: &Received<'_>) {
    let times = received.value.split(',').filter_map(|part| part.strip_prefix("t="));
    let times = times.chain(received.timestamp).filter_map(|time| time.parse().ok());
    let id = received.id.and_then(|id| MessageId::parse(id).ok()).unwrap_or(no_id());
    let holds = |t: i64| {
        let right = scheme.header_value(keys, t, id, received.body);
        let digest = right.rsplit_once("v1=").or(right.split_once(',')).or(right.split_once('='));
        received.value.contains(digest.expect("a digest").1)
    };
    assert!(times.chain([0]).any(holds), "a signature that nobody wrote: {received:?}");
}

fn no_id() -> MessageId<'static> {
    MessageId::parse("call_0000").expect("an id")
}

/// What was signed verifies; with any byte changed it does not.
fn comes_back(scheme: &SignatureScheme, keys: &SigningKeys, id: &str, body: &[u8]) {
    let id = MessageId::parse(id).unwrap_or(no_id());
    let time = NOW.to_string();
    let value = scheme.header_value(keys, NOW, id, body);
    let good = Received { value: &value, timestamp: Some(&time), id: Some(id.as_str()), body };
    assert_eq!(scheme.verify(keys, &good, NOW, 0), Ok(()));
    let place = body.iter().fold(7_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
    let verifies = |changed: Received<'_>| scheme.verify(keys, &changed, NOW, u64::MAX).is_ok();
    if let Ok(value) = String::from_utf8(changed(value.as_bytes(), place)) {
        assert!(!verifies(Received { value: &value, ..good }), "{value}");
    }
    if !body.is_empty() {
        assert!(!verifies(Received { body: &changed(body, place), ..good }));
    }
    assert!(!verifies(Received { body: &[body, b"\n"].concat(), ..good }));
    if scheme.signs_id() {
        let longer = format!("{}0", id.as_str());
        assert!(!verifies(Received { id: Some(&longer), ..good }));
        assert!(!verifies(Received { id: None, ..good }));
    }
    if scheme.signs_time() && !scheme.shows_time() {
        let later = (NOW + 1).to_string();
        assert!(!verifies(Received { timestamp: Some(&later), ..good }));
        assert!(!verifies(Received { timestamp: None, ..good }));
    }
}

fn changed(bytes: &[u8], place: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let at = place % bytes.len();
    bytes[at] ^= 1 << (place % 7);
    bytes
}

/// A profile's YAML: what compiles sends well-formed requests.
pub fn profile(data: &[u8]) {
    let Ok(yaml) = std::str::from_utf8(data) else { return };
    let profile = match profile::parse("profile.yaml", yaml) {
        Ok(profile) => profile,
        Err(found) => {
            assert!(!found.errors.is_empty());
            assert!(found.errors.iter().all(|error| !error.message.is_empty()));
            return;
        }
    };
    let bounds = profile.timeout;
    assert!(bounds.min <= bounds.default && bounds.default <= bounds.max, "{bounds:?}");
    assert!(bounds.min > Duration::ZERO && profile.retry.attempts > 0);
    let endpoint = Endpoint::parse("https://shop.example.com:8443/lookup?x=1").expect("an url");
    let secret = Secret::new(SECRET);
    let keys = match profile.signature() {
        Some(scheme) => scheme.prepare(&[secret]).expect("a good key"),
        None => SigningKeys::default(),
    };
    let own = profile.check_own_header("X-Shop-Key", Secret::new("own secret"));
    let own: Vec<_> = own.into_iter().collect();
    renders(&profile, &endpoint, &own, &keys);
}

/// Two calls, one with nothing but what it must have: both become requests that nobody can read in another way.
pub fn renders(profile: &WireProfile, endpoint: &Endpoint, own: &[OwnHeader], keys: &SigningKeys) {
    let arguments =
        read_object(r#"{"q": "a\r\nb: \"c\" \u0000 $tool €", "n": 1e2}"#).expect("JSON");
    let schema = serde_json::json!({"type": "object"});
    let schema = ArgumentSchema::compile(Some(&schema), profile.dialect);
    let any = schema.unwrap_or_else(|errors| panic!("{errors:?}"));
    // The subset knows no schema that takes everything.
    let arguments = any.check(&arguments).unwrap_or_else(|_| {
        any.check(&read_object("{}").expect("JSON")).expect("nothing is required")
    });
    let token = |text| Token::parse(text).ok();
    let odd = || Some("a\"\\\r\n\u{0}$test€".to_owned());
    let full = CallContext {
        agent_id: odd(),
        session_id: odd(),
        turn_id: odd(),
        turn_index: Some(7),
        round: Some(1),
        end_user: Some(EndUser { id: odd(), external_id: None }),
        run_id: token("run_\"7Hq\\2xV"),
        step: token("3"),
        call_index: u32::MAX,
        model_call_id: odd(),
        test: true,
        trace: None,
    };
    let tool = ToolName::parse("lookup_order").expect("a name");
    let call_id = CallId::parse("call_8f2c").expect("an id");
    for context in [&full, &CallContext::default()] {
        let key = context.idempotency_key();
        let call = Rendering {
            tool: &tool,
            call_id: &call_id,
            context,
            arguments: &arguments,
            endpoint,
            sent_at_ms: NOW * 1000,
            idempotency_key: key.as_ref(),
        };
        let body = profile.body(&call);
        serde_json::from_slice::<Value>(&body).expect("a body is JSON");
        let headers = profile.headers(&call, own, &body, keys, NOW).expect("it is written").0;
        let (first, host) = headers.iter().next().expect("a header");
        assert_eq!((first.as_str(), host.as_bytes()), ("host", endpoint.authority().as_bytes()));
        let (last, length) = headers.iter().last().expect("a header");
        assert_eq!(
            (last.as_str(), text(length.as_bytes())),
            ("content-length", &*body.len().to_string())
        );
        for (name, value) in &headers {
            assert!(
                value.as_bytes().iter().all(|b| (b' '..=b'~').contains(b)),
                "{name}: {value:?}"
            );
            assert_eq!(headers.get_all(name).iter().count(), 1, "{name} stands twice");
        }
        for header in own {
            assert!(headers.get(header.name()).is_some_and(http::HeaderValue::is_sensitive));
        }
        let spelling = profile.header_spelling(own.iter().map(OwnHeader::spelling));
        assert!(headers.len() <= spelling.len());
        assert!(
            headers
                .keys()
                .all(|name| spelling.iter().any(|s| s.eq_ignore_ascii_case(name.as_str())))
        );
        verifies(profile, keys, &call_id, &headers, &body);
    }
}

/// The signature that is sent is one that a tool's server takes.
fn verifies(
    profile: &WireProfile,
    keys: &SigningKeys,
    call_id: &CallId,
    headers: &http::HeaderMap,
    body: &[u8],
) {
    let Some(scheme) = profile.signature() else { return };
    let id = MessageId::from(call_id);
    let written = profile.signature_headers(keys, NOW, Some(id), body).expect("a key is there");
    for (name, value) in &written {
        assert_eq!(headers.get(*name).map(http::HeaderValue::as_bytes), Some(value.as_bytes()));
    }
    let time = NOW.to_string();
    let verified = written.iter().any(|(_, value)| {
        let received = Received { value, timestamp: Some(&time), id: Some(id.as_str()), body };
        scheme.verify(keys, &received, NOW, 0).is_ok()
    });
    assert!(verified, "no header holds the signature");
}
