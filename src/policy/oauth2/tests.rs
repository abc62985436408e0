//! The request for a token byte for byte, and what answers are worth.

use super::*;

const ID: &str = "s6BhdRkqt3";

fn source(client: &Client<'_>) -> TokenSource {
    let endpoint = Endpoint::parse("https://login.example.com/oauth2/token?tenant=a").unwrap();
    TokenSource::new(endpoint, client)
}

fn client(secret: &Secret) -> Client<'_> {
    let method = ClientAuthentication::Basic;
    Client { id: ID, secret, scope: None, audience: None, method }
}

#[test]
fn basic_shows_the_secret_in_a_header_alone() {
    let secret = Secret::new("gX1fBat3bV");
    let source = source(&client(&secret));
    let headers = source.headers();
    // The example of RFC 6749, section 2.3.1.
    assert_eq!(headers[AUTHORIZATION], "Basic czZCaGRSa3F0MzpnWDFmQmF0M2JW");
    assert!(headers[AUTHORIZATION].is_sensitive());
    assert_eq!(headers[HOST], "login.example.com");
    assert_eq!(headers[CONTENT_LENGTH], "29");
    assert_eq!(source.body(), "grant_type=client_credentials");
    let names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, SPELLING.map(str::to_ascii_lowercase));
}

#[test]
fn post_shows_it_in_the_body_alone() {
    let secret = Secret::new("a&b=c d£");
    let method = ClientAuthentication::Post;
    let (scope, audience) = (Some("orders:read stock"), Some("https://api.example.com/"));
    let source = source(&Client { scope, audience, method, ..client(&secret) });
    assert!(!source.headers().contains_key(AUTHORIZATION));
    assert_eq!(
        source.body(),
        "grant_type=client_credentials&scope=orders%3Aread+stock\
         &audience=https%3A%2F%2Fapi.example.com%2F\
         &client_id=s6BhdRkqt3&client_secret=a%26b%3Dc+d%C2%A3"
    );
}

#[test]
fn what_basic_joins_is_form_encoded_first() {
    let secret = Secret::new("p:ss word");
    let source = source(&Client { id: "a:b", ..client(&secret) });
    let expected = credentials::basic("a%3Ab", &Secret::new("p%3Ass+word"));
    assert_eq!(source.headers()[AUTHORIZATION].as_bytes(), expected.expose());
}

#[test]
fn every_input_makes_another_fingerprint() {
    let (one, other) = (Secret::new("one"), Secret::new("other"));
    let base = || client(&one);
    let mut prints = vec![
        source(&base()).fingerprint(),
        source(&client(&other)).fingerprint(),
        source(&Client { id: "else", ..base() }).fingerprint(),
        source(&Client { scope: Some("a"), ..base() }).fingerprint(),
        source(&Client { audience: Some("a"), ..base() }).fingerprint(),
        source(&Client { method: ClientAuthentication::Post, ..base() }).fingerprint(),
        TokenSource::new(Endpoint::parse("https://login.example.com/").unwrap(), &base())
            .fingerprint(),
    ];
    assert_eq!(source(&base()).fingerprint(), prints[0]);
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), 7);
}

#[test]
fn debug_tells_neither_secret_nor_query() {
    let secret = Secret::new("gX1fBat3bV");
    let text = format!("{:?}", source(&client(&secret)));
    assert_eq!(text, r#"TokenSource("https://login.example.com/oauth2/token")"#);
}

#[track_caller]
fn check_life(fields: &str, seconds: u64) {
    let body = format!(r#"{{"access_token":"abc","token_type":"Bearer"{fields}}}"#);
    let grant = read_grant(200, body.as_bytes(), true).unwrap();
    assert_eq!(grant.header.value(), "Bearer abc");
    assert_eq!(grant.header.spelling(), "Authorization");
    assert_eq!(grant.usable_for, Duration::from_secs(seconds), "{fields}");
}

#[test]
fn a_token_is_not_used_up_to_its_last_moment() {
    check_life("", 270);
    check_life(r#","expires_in":3600"#, 3540);
    check_life(r#","expires_in":"3600""#, 3540);
    check_life(r#","expires_in":3600.9"#, 3540);
    check_life(r#","expires_in":100,"scope":"a","more":[1]"#, 90);
    check_life(r#","expires_in":0"#, 0);
    check_life(r#","expires_in":-5"#, 0);
    check_life(r#","expires_in":1e300"#, 86_340);
    check_life(r#","expires_in":null"#, 270);
    check_life(r#","expires_in":[1]"#, 270);
}

#[track_caller]
fn check_error(status: u16, body: &str, expected: &str) {
    let error = read_grant(status, body.as_bytes(), true).unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert!(!error.to_string().contains("canary"), "{error}");
}

#[test]
fn an_answer_without_a_token_says_why_and_quotes_nothing() {
    check_error(200, "", "not the JSON");
    check_error(200, r#"{"access_token":"canary"}"#, "not the JSON");
    check_error(200, r#"{"access_token":7,"token_type":"Bearer"}"#, "not the JSON");
    check_error(200, r#"{"access_token":"canary","token_type":"mac"}"#, "token_type");
    check_error(200, r#"{"access_token":"","token_type":"bearer"}"#, "empty");
    check_error(200, r#"{"access_token":"canary a","token_type":"bearer"}"#, "visible ASCII");
    let long = format!(r#"{{"access_token":"{}","token_type":"bearer"}}"#, "x".repeat(4090));
    check_error(200, &long, "longer");
    check_error(503, "canary", "status 503");
    check_error(302, "canary", "status 302");
    check_error(429, r#"{"error":"invalid_client"}"#, "it answered with status 429");
    check_error(401, r#"{"error":"invalid_client"}"#, "refused with status 401 (invalid_client)");
    check_error(400, r#"{"error":"canary"}"#, "refused with status 400");
    check_error(404, "canary", "refused with status 404");
    let cut = read_grant(200, b"{}", false).unwrap_err();
    assert!(cut.to_string().contains("too long or broke off"), "{cut}");
}
