//! Mistakes that must not pass in silence, and what their errors must not repeat.

use super::*;

#[track_caller]
fn bad_key(fields: &str, expected: &str) {
    let text = format!(
        "version: 1\nauth:\n  keys:\n    - name: a\n      key: {{file: /s/good}}\n      {}\n",
        fields.replace('\n', "\n      ")
    );
    check_errors(&text, expected);
}

#[test]
fn a_bound_without_a_value_does_not_unbind_a_key() {
    let item = "is empty, write a value or take the item out";
    let empty = "is empty, name one or leave it out for all";
    let scopes = "scopes: [agent]\n";
    for bound in ["agents", "tools"] {
        let (list, first) = (bound.len() + 9, bound.len() + 10);
        let at = format!("auth.keys[0].{bound}");
        bad_key(&format!("{scopes}{bound}: [~]"), &format!("7:{first}: {at}[0]: {item}"));
        let second = first + 3;
        bad_key(&format!("{scopes}{bound}: [a, null]"), &format!("7:{second}: {at}[1]: {item}"));
        bad_key(&format!("{scopes}{bound}: ~"), &format!("7:{list}: {at}: {empty}"));
        bad_key(&format!("{scopes}{bound}: []"), &format!("7:{list}: {at}: {empty}"));
        let found = parse_text(&format!(
            "version: 1\nauth: {{keys: [{{name: a, {}, key: {{file: /s/good}}, {bound}: }}]}}\n",
            scopes.trim()
        ));
        assert!(found.is_err_and(|found| found.to_string().contains(empty)));
    }
    bad_key(
        &format!("{scopes}tools:\n  -\n  - lookup"),
        &format!("8:10: auth.keys[0].tools[0]: {item}"),
    );
    bad_key(
        &format!("{scopes}tools:\n  # - lookup"),
        &format!("7:12: auth.keys[0].tools: {empty}"),
    );
}

#[test]
fn list_items_without_a_value_are_errors_everywhere() {
    let item = "is empty, write a value or take the item out";
    bad_key("scopes: [~]", &format!("6:16: auth.keys[0].scopes[0]: {item}"));
    bad("dns: {servers: [~]}\n", &format!("3:17: dns.servers[0]: {item}"));
    check_errors(
        "version: 1\nauth: {keys: [~]}\ntools: [null]\nprofiles: [~]\n",
        &format!("2:15: auth.keys[0]: {item}\n3:9: tools[0]: {item}\n4:12: profiles[0]: {item}"),
    );
    bad(
        "egress: {deny_cidrs: [~], exceptions: [~]}\n",
        &format!("3:23: egress.deny_cidrs[0]: {item}\n3:40: egress.exceptions[0]: {item}"),
    );
    bad_tool("accept_credentials: [~]", &format!("8:26: tools[0].accept_credentials[0]: {item}"));
}

#[test]
fn a_list_of_which_nothing_is_left_is_empty() {
    bad(
        "dns:\n  servers:\n",
        "4:10: dns.servers: must name a server, or be left out for the system's",
    );
    check_errors("version: 1\nauth: {keys: }\n", "2:12: auth.keys: is empty, nobody could call");
    let snapshot = good(&with_head("tools:\nprofiles:\negress:\n  deny_hosts:\n"));
    assert!(snapshot.tools.is_empty());
}

#[test]
fn a_file_of_nothing_lacks_what_must_be_there() {
    for text in ["", "~\n", "---\n", "# tools: []\n", "null"] {
        let found = parse_text(text).expect_err("nothing is there");
        let paths: Vec<_> = found.errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["version", "auth"], "{text:?}");
    }
}

#[test]
fn what_may_be_a_secret_in_the_wrong_place_is_not_repeated() {
    bad_tool(
        "policy: whsec_canary7f3a",
        "8:13: tools[0].policy: must be `allow`, `ask_first`, `deny` or `require_approval`",
    );
    bad_tool(
        "policy: alow",
        "8:13: tools[0].policy: must be `allow`, `ask_first`, `deny` or `require_approval`, not `alow`",
    );
    check_errors("version: 1\nauth: sk_canary7f3a\n", "2:7: auth: must be `none`");
    bad_tool(
        "profile: canary7f3a",
        "8:14: tools[0].profile: must be `bare-v1`, `envelope-v1`, `plain-v1` or `standard-webhooks`",
    );
    bad_tool(
        "secret: {current: {whsec_canary7f3a: ~, fil: x}, canary7f3a: 1}",
        "8:23: tools[0].secret.current: names no secret, write {file: PATH} or {env: NAME}\n\
         8:24: tools[0].secret.current: has another key than `file` or `env`\n\
         8:45: tools[0].secret.current.fil: is not a known key, did you mean `file`?\n\
         8:54: tools[0].secret: has another key than `current`, `previous`, `last` or `previous_until`",
    );
    bad_tool(
        "headers:\n  \"Authorization: Bearer canary7f3a\": ~\n  X-A: {sk_canary7f3a: 1, file: /s/good}",
        "9:7: tools[0].headers: has a key that is not a header name; a name has letters, digits and `-`\n\
         10:13: tools[0].headers.X-A: has another key than `file`, `env` or `prefix`",
    );
    bad_tool(
        "accept_credentials: [Bearer canary7f3a]",
        "8:26: tools[0].accept_credentials[0]: is not a header name, which has letters, digits and `-`",
    );
    bad_key(
        "scopes: [agent]\nprevious: {sk_canary7f3a: 1, env: GOOD}",
        "7:18: auth.keys[0].previous: has another key than `file`, `env` or `sha256`",
    );
    bad_tool(
        "url: \"https://shop.example.com/a?key=canary7f3a<\"",
        "8:10: tools[0].url: the query has characters that are not sent as they are: percent-encode them (malformed_url)",
    );
    bad_tool(
        "url: \"https://shop.example.com/b/../a?key=canary7f3a\"",
        "8:10: tools[0].url: the path has dot segments or characters that are not sent as they are: write `/a` (malformed_url)",
    );
    bad_tool(
        "url: \"https://shop:canary7f3a/\"",
        "8:10: tools[0].url: what follows the host's colon is not a port from 1 to 65535 (malformed_url)",
    );
}

#[test]
fn text_is_asked_for_where_a_number_stands() {
    let number = "must be text, not a number, put it in quotes";
    bad_tool("url: 443", &format!("8:10: tools[0].url: {number}"));
    bad(
        "listeners: {telemetry: {address: 9477}}\n",
        &format!("3:34: listeners.telemetry.address: {number}"),
    );
}

#[test]
fn the_end_of_an_exception_makes_its_tool_unavailable_and_no_other() {
    let exception = |expires: &str| {
        format!(
            "egress: {{exceptions: [{{tools: [lookup], hosts: [10.1.2.3], cidrs: [10.1.0.0/16], reason: x, owner: y, expires: {expires}}}]}}\n"
        )
    };
    let tool = with_tool("url: https://10.1.2.3/");
    let ended = format!("{tool}{}", exception("2026-10-29"));
    let message = "8:10: tools[0].url: 10.1.2.3 is a private address; only an entry of `egress.exceptions` that names the tool, \
                   the host and the range opens it (private): its exception ended, the tool is unavailable";
    let of_exception =
        "egress.exceptions[0].expires: ended after 2026-10-29: nothing is opened any more";
    let snapshot = good(&ended);
    let told = lines(&snapshot.warnings);
    assert!(told.starts_with(message) && told.ends_with(of_exception), "{told}");
    let reason = snapshot.tool("lookup").and_then(|tool| tool.unavailable.clone());
    assert_eq!(reason, Some(Unavailable::ExceptionEnded));
    check_errors(&format!("{ended}strict: true\n"), message);
    let holds = good(&format!("{tool}{}", exception("2026-12-31")));
    assert_eq!(holds.tool("lookup").and_then(|tool| tool.unavailable.clone()), None);
    // What no exception ever opened stays an error.
    let other = ended.replace("https://10.1.2.3/", "https://10.9.2.3/");
    assert!(parse_text(&other).is_err_and(|found| found.to_string().ends_with("(private)")));
}

#[test]
fn header_names_that_servers_take_for_one_stand_once() {
    let same = "stands twice: letter case makes no difference, nor does `_` for `-`";
    bad_tool(
        "headers: {X-Shop: {file: /s/good}, x_shop: {file: /s/good}}",
        &format!("8:48: tools[0].headers.x_shop: {same}"),
    );
    bad_tool(
        "accept_credentials: [X_User, x-user, X_Tool_Name, Content_Length, X_Shop]\nheaders: {X-Shop: {file: /s/good}}",
        &format!(
            "8:34: tools[0].accept_credentials[1]: {same}\n\
             8:42: tools[0].accept_credentials[2]: `X_Tool_Name` cannot be a tool's own header: the gateway or a profile sets it\n\
             8:55: tools[0].accept_credentials[3]: `Content_Length` cannot be a tool's own header: the gateway or a profile sets it\n\
             8:71: tools[0].accept_credentials[4]: `X_Shop` stands in `headers` too, it is either the tool's or the person's"
        ),
    );
}

#[test]
fn name_servers_that_cannot_be_asked_are_warned_about() {
    let resolv_conf = "nameserver fe80::1%eth0\nnameserver 10.0.0.10\n".to_owned();
    let environment = Environment { resolv_conf, ..environment() };
    let snapshot = parse("f", "version: 1\nauth: none\n", &environment).expect("valid");
    let message = "1:1: dns.servers: `nameserver fe80::1%eth0` of resolv.conf is skipped, it is no address without a zone";
    assert_eq!(lines(&snapshot.warnings), message);
    assert_eq!(snapshot.dns.servers, ["10.0.0.10:53".parse().expect("an address")]);
}

#[test]
fn many_keys_are_read_quickly() {
    let keys: String = (0..5_000)
        .map(|n| format!("    - {{name: k{n}, scopes: [agent], key: {{sha256: \"{n:064x}\"}}}}\n"))
        .collect();
    good(&format!("version: 1\nauth:\n  keys:\n{keys}"));
}
