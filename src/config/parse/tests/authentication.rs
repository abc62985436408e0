//! Who Sortie is towards a tool's server: tokens, passwords, certificates.

use super::*;

const OAUTH2: &str =
    "token_url: \"https://login.example.com/t\", client_id: me, client_secret: {file: /s/good}";

#[test]
fn a_header_that_stays_the_same_stands_before_the_others() {
    let bearer =
        tool("headers: {X-A: {file: /s/short}}\nauthentication: {bearer: {file: /s/good}}");
    let names: Vec<_> = bearer.headers.iter().map(|header| header.spelling()).collect();
    assert_eq!(names, ["Authorization", "X-A"]);
    let value = format!("Bearer whsec_{CANARY}_0123456789012345");
    assert_eq!(bearer.headers[0].value(), value.as_str());
    assert!(bearer.headers[0].value().is_sensitive());
    let basic = tool("authentication: {basic: {user: Aladdin, password: {file: /s/short}}}");
    assert_eq!(basic.headers[0].value(), "Basic QWxhZGRpbjpjYW5hcnk3ZjNh");
    assert!(basic.tokens.is_none());
}

#[test]
fn oauth2_is_where_tokens_come_from() {
    let tool = tool(&format!(
        "authentication: {{oauth2: {{{OAUTH2}, scope: a b, audience: c, method: post}}}}"
    ));
    let source = tool.tokens.as_ref().expect("a source");
    assert_eq!(source.endpoint.to_string(), "https://login.example.com/t");
    assert!(
        source
            .body()
            .starts_with(b"grant_type=client_credentials&scope=a+b&audience=c&client_id=me&")
    );
    assert!(tool.headers.is_empty());
    assert!(!format!("{tool:?}").contains(CANARY));
}

#[test]
fn one_way_is_chosen_and_nothing_else_sends_authorization() {
    bad_tool(
        "authentication: {}",
        "8:21: tools[0].authentication: says nothing, write `bearer`, `basic` or `oauth2`",
    );
    bad_tool("authentication: ~", "");
    bad_tool(
        "authentication: {bearer: {file: /s/good}, basic: {user: a, password: {file: /s/short}}}",
        "8:54: tools[0].authentication.basic: stands beside `bearer`, a server is told once",
    );
    bad_tool(
        "headers: {authorization: {file: /s/short}}\nauthentication: {bearer: {file: /s/good}}",
        "9:21: tools[0].authentication: stands beside an `Authorization` of `headers`, one is enough",
    );
    bad_tool(
        "accept_credentials: [Authorization]\nauthentication: {bearer: {file: /s/good}}",
        "9:21: tools[0].authentication: stands beside an `Authorization` of `accept_credentials`, \
         it is either the tool's or the person's",
    );
}

#[test]
fn what_is_missing_or_wrong_is_told_with_its_place() {
    bad_tool(
        "authentication: {basic: {user: \"a:b\"}}",
        "8:29: tools[0].authentication.basic.password: is missing, write {file: PATH} or {env: NAME}\n\
         8:36: tools[0].authentication.basic.user: must not hold a `:`, which ends the user's name",
    );
    bad_tool(
        "authentication: {basic: {user: a, password: {file: /s/two-lines}}}",
        "8:49: tools[0].authentication.basic.password: holds a control character, such as a second line end",
    );
    bad_tool(
        "authentication: {bearer: {file: /s/spaced}}",
        "8:30: tools[0].authentication.bearer: holds a character that a token cannot have, such as a space or a second \
         line end",
    );
    bad_tool(
        "authentication: {bearer: {file: /s/empty}}",
        "8:30: tools[0].authentication.bearer: file `/s/empty` is empty",
    );
    bad_tool(
        "authentication: {oauth2: {client_id: \"\", method: jwt}}",
        "8:30: tools[0].authentication.oauth2.token_url: is missing, write the https URL of the token endpoint\n\
         8:30: tools[0].authentication.oauth2.client_secret: is missing, write {file: PATH} or {env: NAME}\n\
         8:42: tools[0].authentication.oauth2.client_id: must be text without control characters, and not empty\n\
         8:54: tools[0].authentication.oauth2.method: must be `basic` or `post`",
    );
    bad_tool(
        "authentication: {oauth2: {token_url: \"http://login.example.com/\", client_id: a, client_secret: {file: /s/good}}}",
        "8:42: tools[0].authentication.oauth2.token_url: `http://login.example.com` is not https; \
         plain http needs an entry of `egress.exceptions` with `http: true`, and goes to its private addresses only (scheme)",
    );
    bad_tool(
        "authentication: {oauth2: {token_url: \"https://10.0.0.5/\", client_id: a, client_secret: {file: /s/good}}}",
        "8:42: tools[0].authentication.oauth2.token_url: 10.0.0.5 is a private address; \
         only an entry of `egress.exceptions` that names the tool, the host and the range opens it (private)",
    );
    bad_tool(
        &format!(
            "authentication: {{basic: {{{CANARY}: a, user: b, password: {{file: /s/short}}}}}}"
        ),
        "8:30: tools[0].authentication.basic: has another key than `user` or `password`",
    );
}

#[test]
fn without_its_secret_a_tool_is_unavailable() {
    for fields in [
        "authentication: {bearer: {file: /s/gone}}",
        "authentication: {basic: {user: a, password: {file: /s/gone}}}",
        "authentication: {oauth2: {token_url: \"https://login.example.com/\", client_id: a, client_secret: {file: /s/gone}}}",
        "client_certificate: {chain: {file: /s/gone}, key: {file: /s/key.pem}}",
        "client_certificate: {chain: {file: /s/chain.pem}, key: {file: /s/gone}}",
    ] {
        let snapshot = good(&with_tool(fields));
        let unavailable = &snapshot.tool("lookup").expect("the tool").unavailable;
        assert!(matches!(unavailable, Some(Unavailable::NoSecret(_))), "{fields}: {unavailable:?}");
        assert_eq!(snapshot.warnings.len(), 1, "{fields}");
    }
}

#[test]
fn a_client_certificate_goes_with_its_key() {
    let with = tool("client_certificate: {chain: {file: /s/chain.pem}, key: {file: /s/key.pem}}");
    assert!(with.identity.is_some());
    bad_tool(
        "client_certificate: {chain: {file: /s/chain.pem}}",
        "8:25: tools[0].client_certificate.key: is missing, write {file: PATH} or {env: NAME}",
    );
    bad_tool(
        "client_certificate: {chain: {file: /s/good}, key: {file: /s/key.pem}}",
        "8:33: tools[0].client_certificate.chain: is not a list of PEM certificates: it holds no certificate",
    );
    bad_tool(
        "client_certificate: {chain: {file: /s/chain.pem}, key: {file: /s/other-key.pem}}",
        "8:60: tools[0].client_certificate.key: is not the key of the first certificate of `chain`",
    );
}
