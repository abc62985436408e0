//! TLS of the api listener, client certificates and issuers of tokens.

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use super::*;
use crate::config::listening::{Serving, ServingTls};
use crate::policy::authentication::Known;
use crate::policy::identity::Proof;
use crate::policy::issuer::KeySource;
use crate::policy::peer_name::PeerName;

/// The files of one test.
struct Files {
    pair: [String; 2],
    other: [String; 2],
}

fn pair(name: &str) -> [String; 2] {
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    [certificate.pem(), key.serialize_pem()]
}

impl Files {
    fn new() -> Self {
        Self { pair: pair("gateway.example.com"), other: pair("other.example.com") }
    }

    fn parse(&self, text: &str) -> Result<Snapshot, ConfigErrors> {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let key = json!({"kty": "OKP", "crv": "Ed25519", "x": x});
        let private = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "d": CANARY});
        let set = |key| json!({"keys": [key]}).to_string();
        let read = |source: &Source| {
            Ok(Secret::new(match source.to_string().trim_matches('`') {
                "file `/s/cert" => self.pair[0].clone(),
                "file `/s/key" => self.pair[1].clone(),
                "file `/s/both" => self.pair.concat(),
                "file `/s/other-key" => self.other[1].clone(),
                "file `/s/ca" => [&*self.pair[0], &*self.other[0]].concat(),
                "file `/s/broken" => {
                    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into()
                }
                "file `/s/jwks" => set(key.clone()),
                "file `/s/private-jwks" => set(private.clone()),
                _ => return lookup(source),
            }))
        };
        parse("f", text, &Environment { lookup: &read, ..environment() })
    }

    #[track_caller]
    fn good(&self, text: &str) -> Snapshot {
        self.parse(text).unwrap_or_else(|found| panic!("{}\n{text}", lines(&found.errors)))
    }

    #[track_caller]
    fn bad(&self, text: &str, expected: &str) {
        let found = self.parse(text).map(|_| ()).expect_err("is wrong");
        assert_eq!(lines(&found.errors), expected, "\n{text}");
        assert!(!lines(&found.errors).contains(CANARY));
    }

    #[track_caller]
    fn warns(&self, text: &str, expected: &str) {
        assert_eq!(lines(&self.good(text).warnings), expected, "\n{text}");
    }

    #[track_caller]
    fn tls(&self, tls: &str, auth: &str) -> ServingTls {
        match self.good(&with_tls(tls, auth)).serving {
            Serving::Tls(serving) => serving,
            other => panic!("{other:?}"),
        }
    }
}

const KEYS: &str = "keys: [{name: a, scopes: [agent], key: {file: /s/good}}]";
const PAIR: &str = "cert: {file: /s/cert}, key: {file: /s/key}";

/// What is in `tls` begins on line 2 and column 43, what is in `auth` on line 3 and column 8.
fn with_tls(tls: &str, auth: &str) -> String {
    format!(
        "version: 1\nlisteners: {{api: {{address: \":8477\", tls: {{{tls}}}}}}}\nauth: {{{auth}}}\n"
    )
}

/// Its fields begin on line 2 and column 15.
fn with_issuer(fields: &str) -> String {
    format!("version: 1\nauth: {{jwt: [{{{fields}}}]}}\n")
}

fn known(snapshot: &Snapshot) -> &Known {
    match &snapshot.authentication {
        Authentication::Known(known) => known,
        Authentication::None(_) => panic!("nobody is known"),
    }
}

#[test]
fn tls_makes_the_warning_about_plain_text_go() {
    let files = Files::new();
    files.warns(&with_tls(PAIR, KEYS), "");
    let snapshot = files.good(&with_tls(PAIR, KEYS));
    assert!(snapshot.listeners.api.tls);
    let plain = files.good("version: 1\nauth: none\n");
    assert!(!plain.listeners.api.tls && plain.serving == Serving::Plain);
    // A key may stand behind its certificate in one file.
    files.tls("cert: {file: /s/both}, key: {file: /s/both}", KEYS);
    let printed = format!("{snapshot:?}");
    let line = files.pair[1].lines().nth(1).expect("a line of the key");
    assert!(!printed.contains(line), "a key is printed");
}

#[test]
fn two_settings_of_tls_are_told_apart() {
    let (files, others) = (Files::new(), Files::new());
    assert_eq!(files.tls(PAIR, KEYS), files.tls(PAIR, KEYS));
    assert_ne!(files.tls(PAIR, KEYS), others.tls(PAIR, KEYS));
    let asks = format!("{PAIR}, client_ca: {{file: /s/ca}}");
    let named = |name: &str| files.tls(&format!("{asks}, client_names: [{name}]"), KEYS);
    assert_ne!(files.tls(PAIR, KEYS), files.tls(&asks, KEYS));
    assert_ne!(named("a"), named("b"));
}

#[test]
fn a_pair_that_does_not_fit_is_an_error_with_its_place() {
    let files = Files::new();
    files.bad(
        &with_tls("cert: {file: /s/cert}, key: {file: /s/other-key}", KEYS),
        "2:71: listeners.api.tls.key: file `/s/other-key` holds the key of another certificate",
    );
    files.bad(
        &with_tls("cert: {file: /s/key}, key: {file: /s/cert}", KEYS),
        "2:49: listeners.api.tls.cert: file `/s/key` holds no PEM certificate\n\
         2:70: listeners.api.tls.key: file `/s/cert` holds no private key as PEM (PKCS#8, PKCS#1 or SEC1)",
    );
    files.bad(
        &with_tls("key: {file: /s/key}, client_ca: {file: /s/broken}, client_name: []", KEYS),
        "2:42: listeners.api.tls.cert: is missing, write {file: PATH}\n\
         2:75: listeners.api.tls.client_ca: file `/s/broken` holds what is no authority's certificate: invalid peer certificate: BadEncoding\n\
         2:94: listeners.api.tls.client_name: is not a known key, did you mean `client_names`?",
    );
    files.bad(
        &with_tls(&format!("{PAIR}, client_names: [\"a b\"]"), KEYS),
        "2:101: listeners.api.tls.client_names: needs `client_ca` beside it, no client is asked for a certificate\n\
         2:102: listeners.api.tls.client_names[0]: must be a DNS name or a URI of 1 to 256 visible ASCII characters, in which `*` stands for any run of characters",
    );
}

#[test]
fn a_file_that_is_not_there_keeps_the_listener_from_serving() {
    let files = Files::new();
    let text = with_tls("cert: {file: /s/cert}, key: {file: /s/missing}", KEYS);
    files.warns(
        &text,
        "2:71: listeners.api.tls.key: file `/s/missing` is not there, the api listener does not serve without it",
    );
    let serving = files.good(&text).serving;
    assert_eq!(serving, Serving::Lacking("file `/s/missing` is not there".into()));
    let text = with_tls(
        &format!("{PAIR}, client_ca: {{file: /s/missing}}"),
        "certs: [{name: a, san: a, scopes: [agent]}]",
    );
    assert!(matches!(files.good(&text).serving, Serving::Lacking(_)), "and not without the check");
}

#[test]
fn a_certificate_is_a_must_where_it_is_the_only_way_or_names_are_given() {
    let files = Files::new();
    let certs = "certs: [{name: c, san: runtime.example.com, scopes: [agent]}]";
    let jwt = "jwt: [{issuer: i, audiences: [a], jwks: {file: /s/jwks}, scopes: s}]";
    let required = |tls: &str, auth: &str| {
        let tls = format!("{PAIR}, client_ca: {{file: /s/ca}}{tls}");
        files.tls(&tls, auth).clients.expect("asked for").required
    };
    assert!(required("", certs));
    assert!(!required("", &format!("{certs}, {KEYS}")));
    assert!(!required("", &format!("{certs}, {jwt}")));
    assert!(required(", client_names: [\"*\"]", &format!("{certs}, {KEYS}")));
    assert!(files.tls(PAIR, KEYS).clients.is_none());
    files.warns(
        &with_tls(&format!("{PAIR}, client_ca: {{file: /s/ca}}"), KEYS),
        "2:98: listeners.api.tls.client_ca: asks for certificates that make nobody a caller, write `client_names` or `auth.certs`",
    );
}

#[test]
fn certificates_are_callers_by_a_name_in_them() {
    let files = Files::new();
    let asks = format!("{PAIR}, client_ca: {{file: /s/ca}}");
    let auth = "certs: [{name: first, san: \"*.example.com\", scopes: [\"agent:call\"], agents: [a], tools: [t]}, {name: second, san: b.example.com, scopes: [agent]}]";
    let snapshot = files.good(&with_tls(&asks, auth));
    let find = |name: PeerName| known(&snapshot).by_certificate(&[name]).cloned();
    let caller = find(PeerName::Dns("b.example.com".into())).expect("known");
    assert_eq!((&*caller.name, caller.proof), ("first", Proof::Certificate));
    assert!(caller.may_call("t") && !caller.may_call("u"));
    assert!(find(PeerName::Dns("example.org".into())).is_none());
    assert!(find(PeerName::Uri("b.example.com".into())).is_none());
    assert!(known(&snapshot).by_certificate(&[]).is_none());
    files.bad(
        &with_tls(PAIR, &format!("{KEYS}, certs: [{{name: a, san: a.example.com, scopes: []}}, {{}}]")),
        "3:74: auth.certs[0]: needs `listeners.api.tls.client_ca`, no client is asked for a certificate\n\
         3:81: auth.certs[0].name: another caller is named `a` too\n\
         3:112: auth.certs[0].scopes: is empty, write for example [agent, \"agent:call\"]\n\
         3:117: auth.certs[1]: needs `listeners.api.tls.client_ca`, no client is asked for a certificate\n\
         3:117: auth.certs[1].name: is missing, it stands in log lines\n\
         3:117: auth.certs[1].scopes: is missing, write for example [agent, \"agent:call\"]\n\
         3:117: auth.certs[1].san: is missing, write the certificate's DNS name or URI",
    );
}

#[test]
fn issuers_have_their_keys_by_file_or_by_url() {
    let files = Files::new();
    let fields = "issuer: \"https://i.example/\", audiences: [a, b], scopes: scope, jwks:";
    let keys = |jwks: &str| {
        let snapshot = files.good(&with_issuer(&format!("{fields} {jwks}")));
        assert_eq!(snapshot.warnings, []);
        known(&snapshot).issuer("https://i.example/").expect("known").keys.clone()
    };
    assert!(matches!(keys("{file: /s/jwks}"), KeySource::Set(_)));
    let KeySource::Url(endpoint) = keys("{url: \"https://i.example.com/keys\"}") else { panic!() };
    assert_eq!(endpoint.to_string(), "https://i.example.com/keys");
    let missing = with_issuer(&format!("{fields} {{file: /s/missing}}"));
    files.warns(
        &missing,
        "2:85: auth.jwt[0].jwks: file `/s/missing` is not there, no token of this issuer is taken",
    );
    let snapshot = files.good(&missing);
    let issuer = known(&snapshot).issuer("https://i.example/").expect("known");
    assert!(matches!(issuer.keys, KeySource::Missing), "and its tokens are refused");
    for (jwks, error) in [
        (
            "{file: /s/good}",
            "2:85: auth.jwt[0].jwks: file `/s/good` is not a JSON Web Key Set, an object with the list `keys`",
        ),
        (
            "{file: /s/private-jwks}",
            "2:85: auth.jwt[0].jwks: file `/s/private-jwks` holds a private key, write the public set",
        ),
        ("{}", "2:85: auth.jwt[0].jwks: names no key set, write {file: PATH} or {url: URL}"),
        (
            "{file: a, url: b}",
            "2:100: auth.jwt[0].jwks.url: stands beside `file`, one of the two is enough",
        ),
        ("{url: \"http://i.example.com/\"}", "2:91: auth.jwt[0].jwks.url: "),
        (
            "{url: \"https://10.0.0.1/\"}",
            "2:91: auth.jwt[0].jwks.url: 10.0.0.1 is a private address",
        ),
        ("{url: keys}", "2:91: auth.jwt[0].jwks.url: "),
    ] {
        let found = files.parse(&with_issuer(&format!("{fields} {jwks}"))).expect_err("is wrong");
        let found = lines(&found.errors);
        assert_eq!(found.lines().count(), 1, "{found}");
        let (place, expected) = error.split_once(": ").expect("a place");
        let (at, found) = found.split_once(": ").expect("a place");
        assert!(at == place && found.starts_with(expected), "{at}: {found}\n{error}");
    }
}

#[test]
fn issuers_that_are_not_whole_are_told_what_they_lack() {
    let files = Files::new();
    files.bad(
        "version: 1\nauth:\n  jwt:\n    - {}\n    - {issuer: i, audiences: [], jwks: {file: /s/jwks}, scopes: {claim: c}}\n    \
         - {issuer: i, audiences: [\"\"], jwks: {file: /s/jwks}, scopes: {claim: \"\", values: {}}, organisation: o}\n    \
         - {issuer: j, audiences: [a], jwks: {file: /s/jwks}, scopes: {claim: c, values: {v: [call], w: []}}}\n",
        "4:7: auth.jwt[0].issuer: is missing, write what `iss` of its tokens is\n\
         4:7: auth.jwt[0].audiences: is missing, write what `aud` of tokens for this gateway is\n\
         4:7: auth.jwt[0].jwks: is missing, write {file: PATH} or {url: URL}\n\
         4:7: auth.jwt[0].scopes: is missing, write the claim that holds them, or {claim: CLAIM, values: {VALUE: [SCOPE]}}\n\
         5:30: auth.jwt[1].audiences: is empty, write what `aud` of tokens for this gateway is\n\
         5:65: auth.jwt[1].scopes.values: is missing, write {VALUE: [SCOPE]}\n\
         6:16: auth.jwt[2].issuer: another entry has the issuer `i` too\n\
         6:31: auth.jwt[2].audiences[0]: must have 1 to 512 bytes\n\
         6:75: auth.jwt[2].scopes.claim: must have 1 to 512 bytes\n\
         6:87: auth.jwt[2].scopes.values: is empty, write {VALUE: [SCOPE]}\n\
         6:106: auth.jwt[2].organisation: must be `default`\n\
         7:90: auth.jwt[3].scopes.values.v[0]: must be `agent`, `agent:approve`, `agent:call`, `agent:policy` or `agent:write`\n\
         7:100: auth.jwt[3].scopes.values.w: is empty, write for example [agent, \"agent:call\"]",
    );
}

#[test]
fn nobody_is_let_in_by_empty_lists() {
    let files = Files::new();
    files.bad("version: 1\nauth: {certs: []}\n", "2:15: auth.certs: is empty, nobody could call");
    files.bad(
        "version: 1\nauth: {keys: [], jwt: []}\n",
        "2:14: auth.keys: is empty, nobody could call",
    );
    files.good(&format!("version: 1\nauth: {{{KEYS}, certs: [], jwt: []}}\n"));
}
