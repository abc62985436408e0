//! Tokens that are read, and those that are not.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn token(header: &Value, claims: &Value) -> String {
    format!("{}.{}.AAAA", part(header), part(claims))
}

#[track_caller]
fn check(text: &str, expected: TokenError) {
    assert_eq!(Token::parse(text.as_bytes()).err(), Some(expected), "{text:.120}");
}

#[test]
fn only_three_parts_of_json_are_a_token() {
    let good = token(&json!({"alg": "ES256", "kid": "a"}), &json!({"iss": "https://i.example"}));
    let read = Token::parse(good.as_bytes()).expect("a token");
    assert_eq!(read.claimed_issuer(), Some("https://i.example"));
    let (header, rest) = good.split_once('.').expect("parts");
    for bad in [
        String::new(),
        "..".into(),
        "a.b.c".into(),
        format!("{good}."),
        format!("{good}="),
        format!("{header}.{rest}.AAAA"),
        format!("{header}.AAAA"),
        format!(" {good}"),
        good.replace("AAAA", "AA+A"),
        // The last digit has bits that say nothing: two texts of one signature.
        good.replace("AAAA", "AAAB").replace("AAAB", "AB"),
        token(&json!([]), &json!({})),
        token(&json!({"alg": "ES256"}), &json!("text")),
        token(&json!({"alg": 1}), &json!({})),
        token(&json!({}), &json!({})),
        token(&json!({"alg": "ES256", "kid": 1}), &json!({})),
        token(&json!({"alg": "ES256", "crit": ["exp"]}), &json!({})),
        token(&json!({"alg": "ES256"}), &json!({"a": "x".repeat(MAX_BYTES)})),
        format!(
            "{}.{}.AAAA",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","alg":"none"}"#),
            part(&json!({}))
        ),
        format!(
            "{}.{}.AAAA",
            part(&json!({"alg": "ES256"})),
            URL_SAFE_NO_PAD.encode(r#"{"iss":"a","iss":"b"}"#)
        ),
        format!("{}.{}.AAAA", part(&json!({"alg": "ES256"})), URL_SAFE_NO_PAD.encode(b"\xff")),
    ] {
        check(&bad, TokenError::Malformed);
    }
}

#[test]
fn no_token_chooses_an_algorithm_without_a_key() {
    for name in ["none", "None", "nOnE", "HS256", "HS512", "", "RS1"] {
        check(&token(&json!({"alg": name}), &json!({})), TokenError::Algorithm);
    }
}

#[test]
fn two_dots_are_the_form_of_a_token() {
    for (text, expected) in [("a.b.c", true), ("a.b", false), ("a.b.c.d", false), ("key", false)] {
        assert_eq!(Token::has_its_form(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn claims_are_found_by_name_or_by_pointer() {
    let claims = json!({
        "https://x.example/roles": ["a", "b"], "scope": " agent  agent:call ",
        "realm": {"roles": ["c d"]}, "mixed": ["a", 1], "number": 7,
    });
    let claims = Claims(&claims);
    assert_eq!(claims.texts("https://x.example/roles"), Some(vec!["a", "b"]));
    assert_eq!(claims.words("scope"), ["agent", "agent:call"]);
    assert_eq!(claims.words("/realm/roles"), ["c d"]);
    for none in ["realm", "/realm", "mixed", "number", "nothing", "/nothing"] {
        assert_eq!(claims.texts(none), None, "{none}");
        assert_eq!(claims.words(none), [""; 0], "{none}");
    }
}

#[test]
fn times_are_whole_seconds() {
    let seconds = |value: Value| Claims(&json!({"exp": value})).seconds("exp");
    assert_eq!(seconds(json!(1_793_354_102)), Some(1_793_354_102));
    assert_eq!(seconds(json!(1_793_354_102.9)), Some(1_793_354_102));
    assert_eq!(seconds(json!(-1)), Some(-1));
    assert_eq!(seconds(json!(1e300)), None);
    assert_eq!(seconds(json!(u64::MAX)), None);
    for other in [json!("1793354102"), json!(null), json!([1]), json!(true)] {
        assert_eq!(seconds(other.clone()), None, "{other}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_token_or_are_not(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Token::parse(&text);
    }

    #[test]
    fn any_texts_as_parts_end_in_an_answer(header in ".{0,60}", claims in ".{0,60}") {
        let text = format!(
            "{}.{}.AAAA", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims)
        );
        let _ = Token::parse(text.as_bytes());
    }
}
