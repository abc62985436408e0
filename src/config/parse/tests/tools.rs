//! The tools.

use super::*;

#[test]
fn a_tool_has_the_profiles_defaults() {
    let tool = tool("");
    assert_eq!(tool.profile.name, "envelope-v1");
    assert_eq!(tool.timeout, Duration::from_secs(10));
    assert_eq!(tool.result_limit, 32_768);
    assert_eq!((tool.policy.effect, &tool.policy.candidate), (Effect::Allow, &None));
    assert_eq!(tool.endpoint.to_string(), "https://shop.example.com/lookup");
    assert!(tool.enabled && !tool.idempotent && !tool.read_only && tool.unavailable.is_none());
    assert!(tool.signing.overlap.is_none());
    assert_eq!(tool.signing.at(NOW).len(), 1);
}

#[test]
fn a_tool_can_say_everything() {
    let tool = tool(
        "owner: shop\nrunbook: https://wiki.example.com/lookup\nkind: webhook\ninput: {type: object, properties: {n: {type: string}}}\n\
         endpoint: https://shop.example.com/v2?x=1\ntimeoutSeconds: 5\nheaders: {Authorization: {file: /s/good, prefix: \"Bearer \"}, X-Shop: {env: GOOD}}\n\
         secret: {current: {env: GOOD}, previous: {file: /s/old}, last: current, previous_until: 2026-11-01T00:00:00Z}\n\
         policy: {effect: require_approval, shadow: {effect: allow}}\nannotations: {read_only: true, idempotent: true, destructive: false}\n\
         result_max_bytes: 1KiB\naccept_credentials: [X-User-Token]\nfiller: One moment.\nenabled: false\n",
    );
    assert_eq!(tool.timeout, Duration::from_secs(5));
    assert_eq!(tool.endpoint.path_and_query(), "/v2?x=1");
    assert_eq!(
        tool.headers.iter().map(|header| header.spelling()).collect::<Vec<_>>(),
        ["Authorization", "X-Shop"]
    );
    assert_eq!(
        (tool.policy.effect, tool.policy.candidate.as_ref().map(|candidate| candidate.effect)),
        (Effect::RequireApproval, Some(Effect::Allow))
    );
    assert!(tool.read_only && tool.idempotent && !tool.enabled);
    assert_eq!((tool.result_limit, tool.owner.as_deref()), (1024, Some("shop")));
    assert_eq!(tool.accept_credentials, ["X-User-Token"]);
    let until = 1_793_491_200;
    assert_eq!((tool.signing.at(until - 1).len(), tool.signing.at(until).len()), (2, 1));
}

#[test]
fn what_a_tool_must_have_is_asked_for() {
    bad(
        "tools:\n  - {}\n  - enabled: true\n",
        "4:5: tools[0].name: is missing, it is what the model calls the tool by\n\
         4:5: tools[0].description: is missing, say what the tool returns and when to use it, the model chooses by it\n\
         4:5: tools[0].url: is missing, write the tool's https URL\n\
         4:5: tools[0].secret: is missing, profile envelope-v1 signs: write {current: {file: PATH}}\n\
         5:5: tools[1].name: is missing, it is what the model calls the tool by\n\
         5:5: tools[1].description: is missing, say what the tool returns and when to use it, the model chooses by it\n\
         5:5: tools[1].url: is missing, write the tool's https URL\n\
         5:5: tools[1].secret: is missing, profile envelope-v1 signs: write {current: {file: PATH}}",
    );
}

#[track_caller]
fn check_name(profile: &str, name: &str, error: &str) {
    let text = with_head(&format!(
        "tools:\n  - profile: {profile}\n    description: Looks an order up by its number.\n    url: https://shop.example.com/lookup\n    secret: {{current: {{file: /s/good}}}}\n    name: {name:?}\n"
    ));
    let expected =
        if error.is_empty() { String::new() } else { format!("8:11: tools[0].name: {error}") };
    check_errors(&text, &expected);
}

#[test]
fn names_follow_the_profile() {
    for name in ["a", "a_1", &"a".repeat(64)] {
        check_name("envelope-v1", name, "");
    }
    let pattern = "must match ^[a-z][a-z0-9_]{0,63}$ (profile envelope-v1)";
    check_name("envelope-v1", "a.b", pattern);
    check_name("bare-v1", "scans.get", "");
    let any = "a tool name is 1 to 64 of a-z, 0-9, `_` and `.`, and starts with a letter";
    for name in ["", "A", "1a", "a-b", &"a".repeat(65)] {
        check_name("envelope-v1", name, any);
    }
    for name in ["search_knowledge", "remember_relation", "forget_fact"] {
        check_name(
            "envelope-v1",
            name,
            &format!("`{name}` is the name of a built-in tool, choose another"),
        );
    }
}

#[test]
fn names_are_unique() {
    let one = "{name: a, description: Looks an order up by its number., url: \"https://a.example.com\", profile: plain-v1}";
    bad(
        &format!("tools:\n  - {one}\n  - {one}\n"),
        "5:12: tools[1].name: another tool is named `a` too, on line 4",
    );
}

#[test]
fn descriptions_are_1_to_1000_characters() {
    let text = |description: &str| {
        with_head(&format!(
            "tools: [{{name: a, url: \"https://a.example.com\", profile: plain-v1, description: {description:?}}}]\n"
        ))
    };
    let at = "3:81: tools[0].description: ";
    good(&text(&"é".repeat(1000)));
    check_errors(
        &text(&"é".repeat(1001)),
        &format!("{at}must have 1 to 1000 characters, not 1001"),
    );
    check_errors(&text(""), &format!("{at}must have 1 to 1000 characters, not 0"));
    let short = "is short: the model chooses by it, say what the tool returns and when to use it";
    warnings(&(text(&"x".repeat(19)) + STORED), &format!("{at}{short}"));
    warnings(&(text(&"x".repeat(20)) + STORED), "");
}

#[test]
fn profiles_are_named_ones() {
    bad_tool(
        "profile: bare-v2",
        "8:14: tools[0].profile: must be `bare-v1`, `envelope-v1`, `plain-v1` or `standard-webhooks`, not `bare-v2`",
    );
}

#[track_caller]
fn check_url(url: &str, code: &str) {
    let errors = match parse_text(&with_tool(&format!("url: {url:?}"))) {
        Ok(_) => String::new(),
        Err(found) => lines(&found.errors),
    };
    assert!(
        errors.starts_with("8:10: tools[0].url: ") && errors.ends_with(&format!(" ({code})")),
        "{errors}"
    );
    assert!(!errors.contains('\n') && !errors.contains(CANARY), "{errors}");
}

#[test]
fn a_url_is_judged_like_a_call() {
    check_url("http://shop.example.com/", "scheme");
    check_url("ftp://shop.example.com/", "scheme");
    check_url("https://user:canary7f3a@shop.example.com/", "userinfo");
    check_url("https://127.0.0.1/", "loopback");
    check_url("https://10.1.1.1/", "private");
    check_url("https://169.254.169.254/", "link_local");
    check_url("https://[::1]/", "loopback");
    check_url("https://[::ffff:10.0.0.1]/", "ipv4_mapped");
    check_url("https://100.64.0.1/", "cgnat");
    check_url("https://0x7f.1/", "non_canonical_host");
    check_url("https://localhost/", "name_denied");
    check_url("https://shop.example.com:22/", "port");
    bad_tool(
        "url: \"https://${HOST}/\"",
        "8:10: tools[0].url: must be text without `${`: nothing is put into it, name a file or a variable of the environment instead",
    );
    bad_tool(
        "url: https://a.example.com\nendpoint: https://a.example.com",
        "9:15: tools[0].endpoint: stands beside `url`, which says the same",
    );
}

#[test]
fn own_addresses_are_refused() {
    let text = |url: &str| {
        with_head(&format!(
            "listeners: {{telemetry: {{address: \":9477\"}}}}\negress: {{own_addresses: [8.8.8.8], ports: [\"1-65535\"]}}\ntools: [{{name: a, description: Looks an order up by its number., profile: plain-v1, url: {url:?}}}]\n"
        ))
    };
    for url in ["https://8.8.8.8/", "https://192.0.2.7:9477/"] {
        let found = parse_text(&text(url)).expect_err("is refused");
        assert!(found.to_string().ends_with("(self)"), "{found}");
    }
}

#[test]
fn an_exception_opens_its_tool_only() {
    let exception = "egress: {exceptions: [{tools: [lookup], hosts: [10.1.2.3], cidrs: [10.1.0.0/16], reason: x, owner: y}]}\n";
    let text = with_tool("url: https://10.1.2.3/");
    good(&format!("{text}{exception}"));
    let other = text.replace("name: lookup", "name: other");
    let found = parse_text(&format!("{other}{exception}")).expect_err("is refused");
    assert!(found.to_string().ends_with("(private)"), "{found}");
}

#[test]
fn in_shadow_mode_a_refusal_of_the_lists_is_a_warning() {
    let text = with_tool("") + "egress: {mode: shadow, deny_hosts: [shop.example.com]}\n";
    warnings(
        &text,
        "6:10: tools[0].url: would be refused if `egress.mode` were enforce (denied_host)",
    );
}

#[test]
fn timeouts_stay_in_the_profiles_bounds() {
    let timeout = |field: &str| tool(field).timeout.as_millis();
    assert_eq!(timeout("timeout: 30s"), 30_000);
    assert_eq!(timeout("timeout_ms: 1000"), 1000);
    assert_eq!(timeout("timeoutSeconds: 10"), 10_000);
    assert_eq!(timeout("profile: plain-v1\ntimeoutSeconds: 300"), 300_000);
    assert_eq!(timeout("profile: plain-v1"), 30_000);
    bad_tool(
        "timeout: 31s",
        "8:14: tools[0].timeout: must be from 1s to 30s, not 31s (profile envelope-v1)",
    );
    bad_tool(
        "timeout_ms: 999",
        "8:17: tools[0].timeout_ms: must be from 1s to 30s, not 999ms (profile envelope-v1)",
    );
    bad_tool(
        "profile: plain-v1\ntimeoutSeconds: 301",
        "9:21: tools[0].timeoutSeconds: must be from 1s to 5m, not 301s (profile plain-v1)",
    );
    bad_tool(
        "profile: plain-v1\ntimeoutSeconds: 0",
        "9:21: tools[0].timeoutSeconds: must be from 1s to 5m, not 0s (profile plain-v1)",
    );
    bad_tool(
        "timeout: 5s\ntimeout_ms: 5000",
        "9:17: tools[0].timeout_ms: is a second way to say the timeout, one is enough",
    );
}

#[test]
fn bad_headers_are_told_by_name_and_never_by_value() {
    bad_tool(
        "headers:\n  Authorization: Bearer canary7f3a\n  Host: {file: /s/good}\n  x-tool-call: {file: /s/good}\n  \
         X-A: {file: /s/control}\n  X-B: {file: /s/good, env: GOOD}\n  x-a: {file: /s/good}\n  X-C:\n  X-D: {value: canary7f3a}\n  \"X E\": {file: /s/good}\n  X-F: {file: /s/empty}",
        HEADER_ERRORS,
    );
    let eleven: String = (0..11).map(|n| format!("\n  X-{n}: {{file: /s/good}}")).collect();
    bad_tool(&format!("headers:{eleven}"), "9:7: tools[0].headers: must be 10 at most, not 11");
}

const HEADER_ERRORS: &str = "\
9:7: tools[0].headers.X-C: has no value, write {file: PATH} or {env: NAME}\n\
9:22: tools[0].headers.Authorization: must be a reference: {file: PATH} or {env: NAME}, with `prefix: \"Bearer \"` where the value has one, not text\n\
10:13: tools[0].headers.Host: `Host` cannot be a tool's own header: the gateway or a profile sets it\n\
11:20: tools[0].headers.x-tool-call: `x-tool-call` cannot be a tool's own header: the gateway or a profile sets it\n\
12:12: tools[0].headers.X-A: the value of `X-A` may hold spaces and visible ASCII only\n\
13:33: tools[0].headers.X-B.env: stands beside `file`, one of the two is enough\n\
14:12: tools[0].headers.x-a: stands twice: letter case makes no difference, nor does `_` for `-`\n\
16:12: tools[0].headers.X-D: names no secret, write {file: PATH} or {env: NAME}\n\
16:13: tools[0].headers.X-D: has another key than `file`, `env` or `prefix`\n\
17:14: tools[0].headers: has a key that is not a header name; a name has letters, digits and `-`\n\
18:12: tools[0].headers.X-F: file `/s/empty` is empty";

#[test]
fn bad_secrets_are_told_and_never_shown() {
    bad_tool(
        "secret: canary7f3a",
        "8:13: tools[0].secret: must be a mapping such as {current: {file: PATH}}, not text",
    );
    bad_tool(
        "secret: {current: canary7f3a}",
        "8:23: tools[0].secret.current: must be a reference: {file: PATH} or {env: NAME}, not text",
    );
    bad_tool(
        "secret: {current: {file: /s/empty}}",
        "8:23: tools[0].secret.current: file `/s/empty` is empty",
    );
    bad_tool(
        "secret: {current: {file: /s/spaced}}",
        "\
8:23: tools[0].secret.current: the secret begins or ends with white space; write it without",
    );
    bad_tool(
        "secret: {current: {file: /s/two-lines}}",
        "\
8:23: tools[0].secret.current: the secret begins or ends with white space; write it without",
    );
    bad_tool(
        "secret: {previous: {file: /s/good}}",
        "8:13: tools[0].secret.current: is missing, write {file: PATH} or {env: NAME}",
    );
    bad_tool(
        "secret: {current: {file: /s/good}, last: current, previous_until: 2026-11-01T00:00:00Z}",
        "8:46: tools[0].secret.last: means nothing without `previous`\n8:71: tools[0].secret.previous_until: means nothing without `previous`",
    );
    bad_tool(
        "secret: {current: {file: /s/good}, previous: {file: /s/old}, previous_until: 2026-11-07T00:00:00Z}",
        "8:82: tools[0].secret.previous_until: must be 7 days ahead at most",
    );
    bad_tool(
        "profile: plain-v1\nsecret: {current: {file: /s/good}}",
        "9:13: tools[0].secret: profile plain-v1 signs nothing, leave it out",
    );
    bad_tool(
        "profile: standard-webhooks\nsecret: {current: {file: /s/good}}",
        "\
9:23: tools[0].secret.current: the secret must be `whsec_` and standard base64 with padding",
    );
    warnings(
        &with_tool("secret: {current: {file: /s/short}}"),
        "\
8:23: tools[0].secret.current: the secret has 10 bytes; use at least 24",
    );
    warnings(
        &with_tool(
            "secret: {current: {file: /s/good}, previous: {file: /s/old}, previous_until: 2026-10-30T09:55:02Z}",
        ),
        "8:82: tools[0].secret.previous_until: has passed, the previous key no longer signs and can be removed",
    );
}

#[test]
fn a_missing_secret_makes_its_tool_unavailable() {
    for (fields, at) in [
        ("secret: {current: {file: /s/nowhere}}", "8:23: tools[0].secret.current"),
        (
            "secret: {current: {file: /s/good}, previous: {file: /s/nowhere}}",
            "8:50: tools[0].secret.previous",
        ),
        ("profile: plain-v1\nheaders: {X-A: {file: /s/nowhere}}", "9:20: tools[0].headers.X-A"),
    ] {
        let text = with_tool(fields) + STORED;
        let message = format!("{at}: file `/s/nowhere` is not there, the tool is unavailable");
        warnings(&text, &message);
        assert_eq!(
            tool(fields).unavailable,
            Some(Unavailable::NoSecret("file `/s/nowhere` is not there".into()))
        );
        let strict = Environment { strict: true, ..environment() };
        let found = parse("f", &text, &strict).expect_err("strict");
        assert_eq!(lines(&found.errors), message);
        check_errors(&format!("{text}strict: true\n"), &message);
    }
    warnings(
        &with_tool("secret: {current: {file: /s/large}}"),
        "8:23: tools[0].secret.current: file `/s/large` is larger than 64 KiB, the tool is unavailable",
    );
}

#[test]
fn relative_files_start_at_the_files_folder() {
    let text = with_tool("secret: {current: {file: good}}");
    let snapshot = parse("conf/sortie.yaml", &text, &environment()).expect("valid");
    assert_eq!(snapshot.warnings, []);
}

#[test]
fn parameters_are_compiled_in_the_profiles_dialect() {
    tool(
        "parameters: {type: object, properties: {a: {type: string, enum: [x]}, b: {type: array, items: {type: integer}}}, required: [a]}",
    );
    tool(
        "profile: plain-v1\nparameters: {type: object, properties: {scanId: {type: string, pattern: \"^RX-\\\\d{4,}$\"}}}",
    );
    bad_tool(
        "parameters:\n  type: object\n  properties:\n    a: {type: string, pattern: x}\n    b: {type: integer, minimum: 1, default: 3}\n  required: [a, c]",
        "\
11:36: tools[0].parameters.properties.a.pattern: this profile does not take this keyword\n\
12:37: tools[0].parameters.properties.b.minimum: this profile does not take this keyword\n\
12:49: tools[0].parameters.properties.b.default: this profile does not take this keyword\n\
13:21: tools[0].parameters.required[1]: there is no property `c`",
    );
    bad_tool(
        "parameters: {type: array}",
        "\
8:24: tools[0].parameters.type: must be \"object\": arguments are an object",
    );
    bad_tool(
        "parameters: {type: object}\ninput: {type: object}",
        "9:12: tools[0].input: stands beside `parameters`, which says the same",
    );
    bad_tool(
        "profile: plain-v1\nparameters: {type: object, properties: {a: {$ref: \"https://x.example.com/s\"}}}",
        "\
9:55: tools[0].parameters.properties.a.$ref: `https://x.example.com/s` leads out of the schema: copy it in",
    );
}

#[test]
fn the_strictest_policy_counts() {
    let effect = |fields: &str| tool(fields).policy.effect;
    assert_eq!(effect("ask_first: true"), Effect::AskFirst);
    assert_eq!(effect("ask_first: false"), Effect::Allow);
    assert_eq!(effect("policy: deny\nask_first: true"), Effect::Deny);
    assert_eq!(effect("policy: allow\nask_first: true"), Effect::AskFirst);
    assert_eq!(effect("profile: plain-v1"), Effect::RequireApproval);
    assert_eq!(effect("profile: plain-v1\npolicy: allow"), Effect::Allow);
    bad_tool(
        "policy: maybe",
        "8:13: tools[0].policy: must be `allow`, `ask_first`, `deny` or `require_approval`",
    );
    bad_tool(
        "policy: {shadow: {when: []}}",
        "8:13: tools[0].policy.effect: is missing, write allow, ask_first, require_approval or deny\n8:22: tools[0].policy.shadow.effect: is missing, write allow, ask_first, require_approval or deny\n8:29: tools[0].policy.shadow.when: must be 1 to 16 conditions, or left out",
    );
}

#[test]
fn the_rest_of_a_tool_is_bounded_too() {
    bad_tool("kind: app", "8:11: tools[0].kind: must be `webhook`");
    bad_tool("action_only: true", "8:5: tools[0].action_only: is not supported by this version");
    assert!(tool("forward_trace: true").forward_trace && !tool("").forward_trace);
    let twice = |place: &str| {
        format!(
            "{place}: tools[0].forward_trace: makes the gateway send `traceparent`: leave that header out"
        )
    };
    bad_tool("forward_trace: true\nheaders: {Traceparent: {file: /s/good}}", &twice("8:20"));
    bad_tool("forward_trace: true\naccept_credentials: [traceparent]", &twice("8:20"));
    tool("headers: {Traceparent: {file: /s/good}}");
    tool(&format!("filler: {}", "x".repeat(200)));
    bad_tool(
        &format!("filler: {}", "x".repeat(201)),
        "8:13: tools[0].filler: must have 200 characters at most, not 201",
    );
    bad_tool(
        "result_max_bytes: 33KiB",
        "8:23: tools[0].result_max_bytes: must be from 1 to 32768, not 33792",
    );
    bad_tool(
        "accept_credentials: [X-A, x-a, Host, Authorization]\nheaders: {authorization: {file: /s/good}}",
        "\
8:31: tools[0].accept_credentials[1]: stands twice: letter case makes no difference, nor does `_` for `-`\n\
8:36: tools[0].accept_credentials[2]: `Host` cannot be a tool's own header: the gateway or a profile sets it\n\
8:42: tools[0].accept_credentials[3]: `Authorization` stands in `headers` too, it is either the tool's or the person's",
    );
}

#[test]
fn own_profiles_are_compiled_and_their_faults_have_places() {
    let own = "profiles:\n  - name: github\n    names: \"[a-z_]+\"\n    schema: full\n    policy: allow\n    timeout: {default: 10s, min: 1s, max: 30s}\n    result_max_bytes: 64KiB\n    retry: {attempts: 1}\n    headers: [{name: Host, value: $host}, {name: X-Hub-Signature-256, value: $signature}, $own, {name: Content-Length, value: $content_length}]\n    body: $arguments\n    signature: {signed: \"{body}\", key: text, digest: hex, value: \"sha256={digest}\"}\n";
    let text = with_tool("profile: github\nsecret: {current: {file: /s/good}}") + own;
    assert_eq!(
        good(&text).tool("lookup").map(|tool| tool.profile.name.clone()).as_deref(),
        Some("github")
    );
    let broken = text.replace("{body}", "{bod}").replace("$own, ", "");
    check_errors(
        &broken,
        "18:14: profiles[0].headers: `$own` is missing: it marks the place of a tool's own headers\n\
         20:25: profiles[0].signature.signed: `{bod}` is no slot here; there are {t}, {id} and {body}",
    );
    let shipped = with_head(&own.replace("name: github", "name: bare-v1"));
    check_errors(
        &shipped,
        "4:11: profiles[0].name: another profile is named `bare-v1` too, choose another name",
    );
}
