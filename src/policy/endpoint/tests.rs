//! Tests of URL spelling.

use http::uri::PathAndQuery;
use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Endpoint {
    Endpoint::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn check(text: &str, authority: &str, port: u16, path_and_query: &str) {
    let endpoint = parse(text);
    let found = (endpoint.authority(), endpoint.port(), endpoint.path_and_query());
    assert_eq!(found, (authority, port, path_and_query), "{text}");
}

#[test]
fn an_endpoint_is_what_was_typed() {
    check("https://example.com", "example.com", 443, "/");
    check("https://example.com/", "example.com", 443, "/");
    check("HTTPS://Example.COM./a/B?c=d#e", "example.com", 443, "/a/B?c=d");
    check("https://example.com:443/", "example.com", 443, "/");
    check("https://example.com:8443/x", "example.com:8443", 8443, "/x");
    check("http://example.com/", "example.com", 80, "/");
    check("http://example.com:443/", "example.com:443", 443, "/");
    check("https://example.com?", "example.com", 443, "/?");
    check("https://example.com?@127.0.0.1/", "example.com", 443, "/?@127.0.0.1/");
    check("https://example.com#@127.0.0.1/", "example.com", 443, "/");
    check("https://example.com//a//b", "example.com", 443, "//a//b");
    check("https://example.com/a%2Fb%zz|[x]?q={a}|b", "example.com", 443, "/a%2Fb%zz|[x]?q={a}|b");
    check("https://8.8.8.8:8443/", "8.8.8.8:8443", 8443, "/");
    check("https://[2606:4700:0:0::1111]/", "[2606:4700::1111]", 443, "/");
    check("https://[2606:4700::1111]:8443/", "[2606:4700::1111]:8443", 8443, "/");
}

#[test]
fn hosts_are_names_or_addresses() {
    assert_eq!(*parse("https://A.example./").host(), Host::Name("a.example".to_owned()));
    assert_eq!(*parse("https://127.0.0.1/").host(), Host::Address("127.0.0.1".parse().unwrap()));
    assert_eq!(*parse("https://[::1]/").host(), Host::Address("::1".parse().unwrap()));
}

#[track_caller]
fn check_error(text: &str, code: EgressCode, message: &str) {
    let error = Endpoint::parse(text).unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), (code, message), "{text}");
}

#[test]
fn tricks_are_refused_with_a_cure() {
    let malformed = EgressCode::MalformedUrl;
    for (text, message) in [
        ("", "the url has no scheme: write `https://` in front"),
        ("example.com/tool", "the url has no scheme: write `https://` in front"),
        ("//example.com/", "the url has no scheme: write `https://` in front"),
        ("https:127.0.0.1", "the scheme must be followed by two slashes: `https://host/path`"),
        ("https:///127.0.0.1/", "the url has no host: write `https://host/path`"),
        ("https://:443/", "the url has no host: write `https://host/path`"),
        ("https://?x", "the url has no host: write `https://host/path`"),
        ("https://example.com:/", "what follows the host's colon is not a port from 1 to 65535"),
        (
            "https://example.com:0443/",
            "what follows the host's colon is not a port from 1 to 65535",
        ),
        (
            "https://example.com:443:80/",
            "what follows the host's colon is not a port from 1 to 65535",
        ),
        (
            "https://exam\tple.com/",
            "the url has '\\t' at byte 12: leave it out or percent-encode it",
        ),
        (
            "https://example.com/\u{7f}",
            "the url has '\\u{7f}' at byte 20: leave it out or percent-encode it",
        ),
        (
            "https://example.com/a b",
            "the url has ' ' at byte 21: leave it out or percent-encode it",
        ),
        (
            "https://a.com\\@b.com/",
            "the url has '\\\\' at byte 13: leave it out or percent-encode it",
        ),
        (
            "https://example.com/a/../b?c",
            "the path has dot segments or characters that are not sent as they are: write `/b`",
        ),
        (
            "https://example.com/a/%2e%2E/b",
            "the path has dot segments or characters that are not sent as they are: write `/b`",
        ),
        (
            "https://example.com/<a>",
            "the path has dot segments or characters that are not sent as they are: write `/%3Ca%3E`",
        ),
    ] {
        check_error(text, malformed, message);
    }
}

#[test]
fn other_codes_have_their_own_sentences() {
    check_error(
        "ftp://example.com/",
        EgressCode::Scheme,
        "the scheme must be https, not `ftp`; in front of a host and a port write `https://`",
    );
    check_error(
        "localhost:8080/x",
        EgressCode::Scheme,
        "the scheme must be https, not `localhost`; in front of a host and a port write `https://`",
    );
    check_error(
        "https://user:pass@example.com/",
        EgressCode::Userinfo,
        "the url has credentials or an `@` in front of its host: put credentials into the tool's headers",
    );
    check_error(
        "https://@example.com/",
        EgressCode::Userinfo,
        &EndpointError::Userinfo.to_string(),
    );
    check_error(
        "https://bücher.example:8443/",
        EgressCode::NonAsciiUrl,
        "host `bücher.example` has characters outside of ASCII: write `xn--bcher-kva.example`",
    );
    check_error(
        "https://127。0。0。1/",
        EgressCode::NonAsciiUrl,
        "host `127。0。0。1` has characters outside of ASCII",
    );
    check_error(
        "https://example.com/ü",
        EgressCode::NonAsciiUrl,
        "the url has `ü` at byte 20: percent-encode what is outside of ASCII",
    );
    check_error("https://example.com:0/", EgressCode::Port, "nothing can listen on port 0");
    check_error(
        "https://2001:db8::1/",
        EgressCode::MalformedHost,
        "write the IPv6 address in brackets: `[2001:db8::1]`",
    );
    for host in ["[fe80::1%25eth0]", "[127.0.0.1]", "[::1", "[::1]x", "[::1]]", "[v1.a]", "[]"] {
        check_error(
            &format!("https://{host}/"),
            EgressCode::MalformedHost,
            &format!(
                "`{host}` is not an IPv6 address; one in brackets has no zone: `[2001:db8::1]`"
            ),
        );
    }
}

#[test]
fn numeric_spellings_never_become_names_or_addresses() {
    for host in ["2130706433", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.", "0", "0x", "1.2.3"] {
        let code = Endpoint::parse(&format!("https://{host}/")).unwrap_err().code();
        assert_eq!(code, EgressCode::NonCanonicalHost, "{host}");
    }
    for host in ["4294967296", "1.2.3.4.5", "256.1.1.1", "127.0.0.1..", "example.123", "a.0x7f"] {
        let code = Endpoint::parse(&format!("https://{host}/")).unwrap_err().code();
        assert_eq!(code, EgressCode::MalformedHost, "{host}");
    }
}

#[test]
fn long_urls_are_refused() {
    let text = format!("https://example.com/{}", "a".repeat(MAX_LENGTH));
    let message = "the url has 8212 bytes, 8192 at most are taken";
    check_error(&text, EgressCode::MalformedUrl, message);
}

/// Pieces that parsers stumble over.
const PIECES: &[&str] = &[
    "https",
    "http",
    "://",
    ":",
    "/",
    "//",
    "\\",
    "@",
    "?",
    "#",
    "[",
    "]",
    "%",
    "%2e",
    "%40",
    "%00",
    ".",
    "..",
    "-",
    "_",
    "*",
    "|",
    "'",
    "\"",
    "{",
    "^",
    " ",
    "\t",
    "\n",
    "é",
    "。",
    "ß",
    "\u{ad}",
    "a",
    "A",
    "example.com",
    "localhost",
    "xn--",
    "xn--bcher-kva",
    "127.0.0.1",
    "0x7f",
    "1",
    "256",
    "::1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    ":443",
    ":0",
    ":8443",
    ";",
    "&",
    "=",
    "~",
];

fn tricky_text() -> impl Strategy<Value = String> {
    let pieces = proptest::collection::vec(proptest::sample::select(PIECES), 0..8);
    let start = proptest::sample::select(
        &["", "https://", "https://a.example", "https://[::1]", "http://"][..],
    );
    (start, pieces).prop_map(|(start, pieces)| format!("{start}{}", pieces.concat()))
}

fn plain_text() -> impl Strategy<Value = String> {
    (
        "https?://([a-z0-9]{1,3}\\.){1,3}[a-z]{2,3}\\.?",
        proptest::option::of(1..=u16::MAX),
        "(/[!-~]{0,6}){0,2}(\\?[!-~]{0,6})?(#[!-~]{0,3})?",
    )
        .prop_map(|(start, port, rest)| {
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("{start}{port}{rest}")
        })
}

/// What an accepted URL promises, whatever it looks like.
fn check_accepted(text: &str) -> Result<(), TestCaseError> {
    let Ok(endpoint) = Endpoint::parse(text) else { return Ok(()) };
    let second = Url::parse(text).unwrap();
    prop_assert!(text.is_ascii());
    prop_assert!(matches!(second.scheme(), "http" | "https"));
    prop_assert_eq!((second.username(), second.password()), ("", None));
    prop_assert_eq!(second.scheme(), endpoint.scheme().as_str());
    let host = second.host_str().unwrap();
    let host =
        if second.domain().is_some() { host.strip_suffix('.').unwrap_or(host) } else { host };
    match endpoint.host() {
        Host::Name(name) => prop_assert_eq!(name, host),
        Host::Address(address) => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            prop_assert_eq!(address, &bare.parse::<IpAddr>().unwrap());
        }
    }
    prop_assert_eq!(second.port_or_known_default(), Some(endpoint.port()));
    prop_assert!(endpoint.port() != 0);
    let sent: PathAndQuery = endpoint.path_and_query().parse().unwrap();
    prop_assert_eq!(sent.as_str(), endpoint.path_and_query());
    let printed = endpoint.to_string();
    prop_assert_eq!(Endpoint::parse(&printed), Ok(endpoint));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn accepted_tricks_have_one_meaning(text in tricky_text()) {
        check_accepted(&text)?;
    }

    #[test]
    fn accepted_urls_have_one_meaning(text in plain_text()) {
        check_accepted(&text)?;
    }

    #[test]
    fn any_text_gets_an_answer(text in "\\PC*") {
        check_accepted(&text)?;
    }
}
