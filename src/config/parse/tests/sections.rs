//! Every section but the tools.

use super::*;
use crate::policy::identity::Caller;

#[test]
fn listeners_are_addresses_or_sockets() {
    let at = |text: &str| good(&with_head(text)).listeners;
    let listeners =
        at("listeners: {api: {address: \"[::1]:80\"}, telemetry: {address: 127.0.0.1:81}}");
    assert_eq!(listeners.api.bind, Bind::Tcp("[::1]:80".parse().expect("an address")));
    assert_eq!(listeners.telemetry.address.to_string(), "127.0.0.1:81");
    let listeners =
        at("listeners: {api: {unix: {path: api.sock, mode: \"0660\"}, max_body: 256KiB}}");
    assert_eq!(listeners.api.bind, Bind::Unix { path: "api.sock".into(), mode: 0o660 });
    assert_eq!(listeners.api.max_body, 262_144);
}

#[test]
fn bad_listeners_are_told() {
    bad(
        "listeners:\n  api: {address: \"${HOST}:80\", unix: {mode: \"888\"}, max_body: 1, header_timeout: 1h}\n",
        "4:18: listeners.api.address: must be text without `${`: nothing is put into it, name a file or a variable of \
         the environment instead\n\
         4:38: listeners.api.unix: stands beside `address`, one of the two is enough\n\
         4:38: listeners.api.unix.path: is missing, write where the socket is to be\n\
         4:45: listeners.api.unix.mode: must be permission bits in octal, such as \"0600\"\n\
         4:63: listeners.api.max_body: must be from 1024 to 67108864, not 1\n\
         4:82: listeners.api.header_timeout: must be from 100ms to 5m, not 1h",
    );
    bad(
        "listeners: {api: {address: localhost:80}}\n",
        "3:28: listeners.api.address: must be an address and a port such as 127.0.0.1:8477, or `:8477` for all interfaces",
    );
    bad(
        "listeners: {api: {address: 127.0.0.1:80}, telemetry: {address: \":80\"}}\n",
        "3:54: listeners.telemetry: api and telemetry would both take port 80",
    );
    bad(
        "listeners: {api: {unix: {path: a, mode: 0600}}}\n",
        "3:41: listeners.api.unix.mode: must be text, not a number, put it in quotes",
    );
    bad(
        "listeners: {admin: {}}\n",
        "3:20: listeners.admin.unix: is missing, write where the socket is to be",
    );
}

#[test]
fn nobody_is_let_in_without_a_key_from_elsewhere() {
    bad(
        "listeners: {api: {address: \":8477\"}}\n",
        "2:7: auth: `none` needs the api listener on loopback or a Unix socket, write {keys: […]}",
    );
    check_errors("version: 1\nauth: off\n", "2:7: auth: must be `none`");
    check_errors(
        "version: 1\nauth: {}\n",
        "2:7: auth: lets nobody in, write `keys`, `certs` or `jwt`",
    );
    good("version: 1\nauth: none\nlisteners: {api: {unix: {path: /run/api.sock}}}\n");
}

/// Whose key this is.
fn find(snapshot: &Snapshot, key: &[u8], now: i64) -> Option<Arc<Caller>> {
    let Authentication::Known(known) = &snapshot.authentication else { panic!("nobody is known") };
    known.keys.find(key, now)
}

#[test]
fn keys_have_scopes_bounds_and_an_end() {
    let text = "version: 1\nauth:\n  keys:\n    - {name: a, scopes: [agent, \"agent:call\"], agents: [\"support-*\"], tools: [lookup],\n       key: {file: /s/good}, previous: {file: /s/old}, expires: 2027-01-01}\n";
    let snapshot = good(text);
    assert_eq!(snapshot.warnings, []);
    let key = format!("whsec_{CANARY}_0123456789012345");
    let caller = find(&snapshot, key.as_bytes(), NOW).expect("known");
    assert!(caller.may_call("lookup") && !caller.may_call("other"));
    assert_eq!(&*caller.name, "a");
    let old = format!("whsec_{CANARY}_abcdefghijklmnop");
    assert!(find(&snapshot, old.as_bytes(), NOW).is_some());
    // 2027-01-01 still counts.
    assert!(find(&snapshot, key.as_bytes(), 1_798_847_999).is_some());
    assert!(find(&snapshot, key.as_bytes(), 1_798_848_000).is_none());
}

#[test]
fn a_digest_stands_for_a_key() {
    let text = "version: 1\nauth: {keys: [{name: a, scopes: [agent], key: {sha256: 2BB80D537B1DA3E38BD30361AA855686BDE0EACD7162FEF6A25FE97BF527A25B}}]}\n";
    assert!(find(&good(text), b"secret", NOW).is_some());
}

#[test]
fn bad_keys_are_told() {
    check_errors(
        "version: 1\nauth:\n  keys:\n\
         \x20   - {name: \"\", organisation: acme, scopes: [], agents: [], tools: [\"a b\"], key: {}}\n\
         \x20   - {name: a, scopes: [agent:admin], key: {file: /s/empty}, expires: tomorrow}\n\
         \x20   - {name: a, scopes: [agent], key: sk_canary7f3a, previous: {sha256: abc}}\n\
         \x20   - {name: b, scopes: [agent], key: {file: a, env: B}, agent: x}\n\
         \x20   - {name: c, scopes: [agent], key: {file: /s/good, sha256: \"\"}}\n\
         \x20   - {name: d, scopes: [agent], key: {file: /s/spaced}}\n\
         \x20   - {name: e, scopes: [agent], key: {env: GOOD}, previous: {file: good}}\n\
         \x20   - {name: g, scopes: [agent], key: {env: \"${KEY}\"}}\n",
        "4:14: auth.keys[0].name: must have 1 to 64 characters\n\
         4:32: auth.keys[0].organisation: must be `default`\n\
         4:46: auth.keys[0].scopes: is empty, write for example [agent, \"agent:call\"]\n\
         4:58: auth.keys[0].agents: is empty, name one or leave it out for all\n\
         4:70: auth.keys[0].tools[0]: a bound is 1 to 128 visible ASCII characters, in which `*` stands for any run of characters\n\
         4:83: auth.keys[0].key: names no secret, write {file: PATH} or {env: NAME}\n\
         5:26: auth.keys[1].scopes[0]: must be `agent`, `agent:approve`, `agent:call`, `agent:policy` or `agent:write`\n\
         5:45: auth.keys[1].key: file `/s/empty` is empty\n\
         5:72: auth.keys[1].expires: must be a day such as `2027-03-01`\n\
         6:14: auth.keys[2].name: another key is named `a` too\n\
         6:39: auth.keys[2].key: must be a reference: {file: PATH}, {env: NAME} or {sha256: HEX}, not text\n\
         6:73: auth.keys[2].previous.sha256: must be the SHA-256 of the key, 64 hex digits\n\
         7:54: auth.keys[3].key.env: stands beside `file`, one of the two is enough\n\
         7:58: auth.keys[3].agent: is not a known key, did you mean `agents`?\n\
         8:63: auth.keys[4].key.sha256: stands beside `file` or `env`, one is enough\n\
         8:63: auth.keys[4].key.sha256: must be the SHA-256 of the key, 64 hex digits\n\
         9:39: auth.keys[5].key: file `/s/spaced` has characters that a bearer key cannot have, such as spaces\n\
         11:45: auth.keys[7].key.env: must be text without `${`: nothing is put into it, name a file or a variable of the environment instead",
    );
    check_errors(
        "version: 1\nauth: {keys: [{name: a, scopes: [agent], key: {file: /s/good}}, {name: b, scopes: [agent], key: {file: /s/good}}]}\n",
        "2:65: auth.keys[1]: has a value that stands before, each is one key's and stands once",
    );
}

#[test]
fn keys_that_look_wrong_are_warned_about() {
    warnings(
        "version: 1\nlisteners: {api: {address: \":8477\"}}\nauth:\n  keys:\n\
         \x20   - {name: a, scopes: [\"agent:call\", \"agent:approve\"], key: {file: /s/short}}\n\
         \x20   - {name: b, scopes: [agent], key: {file: /s/missing}}\n\
         \x20   - {name: c, scopes: [agent], key: {file: /s/good}, expires: 2026-10-29}\n",
        "2:28: listeners.api.address: serves keys and calls without TLS beyond this machine, give it `tls` or put a TLS proxy before it\n\
         5:25: auth.keys[0].scopes: lets one key run calls and approve them, use two keys\n\
         5:63: auth.keys[0].key: file `/s/short` has 10 characters, use at least 24\n\
         6:39: auth.keys[1].key: file `/s/missing` is not there, nobody can call with it\n\
         7:65: auth.keys[2].expires: has passed, the key is no longer taken",
    );
}

#[test]
fn name_servers_are_system_or_addresses() {
    let servers = |text: &str| {
        let snapshot = good(&with_head(&format!("dns: {{servers: {text}}}\n")));
        snapshot.dns.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        servers("[127.0.0.1:5353, 10.0.0.9, \"::1\", \"[::1]:54\"]"),
        "127.0.0.1:5353 10.0.0.9:53 [::1]:53 [::1]:54"
    );
    assert_eq!(servers("[10.0.0.9, system]"), "10.0.0.9:53 10.0.0.10:53 [fd00::1]:53");
    let nothing = Environment { resolv_conf: String::new(), ..environment() };
    let snapshot = parse("f", "version: 1\nauth: none\n", &nothing).expect("valid");
    assert_eq!(snapshot.dns.servers, ["127.0.0.1:53".parse().expect("an address")]);
    bad(
        "dns:\n  servers: [dns.example.com, \"10.0.0.1:0\", 0.0.0.0]\n  attempts: 11\n  cache: {max_ttl: 61s, max_entries: 0}\n",
        "4:13: dns.servers[0]: must be `system`, an address such as 10.0.0.10, or one with a port such as 127.0.0.1:5353\n\
         4:30: dns.servers[1]: must be `system`, an address such as 10.0.0.10, or one with a port such as 127.0.0.1:5353\n\
         4:44: dns.servers[2]: must be `system`, an address such as 10.0.0.10, or one with a port such as 127.0.0.1:5353\n\
         5:13: dns.attempts: must be from 1 to 10, not 11\n\
         6:20: dns.cache.max_ttl: must be from 0s to 1m, not 61s\n\
         6:38: dns.cache.max_entries: must be from 1 to 1048576, not 0",
    );
    bad(
        "dns: {servers: []}\n",
        "3:16: dns.servers: must name a server, or be left out for the system's",
    );
}

#[test]
fn bad_small_sections_are_told() {
    bad(
        "shutdown: {accept_for: 11m, grace: soon}\nlogging: {level: loud, format: xml, calls: {}}\nmetrics: {per_tool: yes}\nregion: [eu]\nstrict: maybe\n",
        "3:24: shutdown.accept_for: must be from 0s to 10m, not 11m\n\
         3:36: shutdown.grace: must be a duration such as `500ms`, `10s`, `5m`, `24h` or `7d`\n\
         4:18: logging.level: must be `trace`, `debug`, `info`, `warn` or `error`\n\
         4:32: logging.format: must be `json` or `text`\n\
         4:37: logging.calls: is not supported by this version\n\
         5:21: metrics.per_tool: must be a boolean, not text\n\
         6:9: region: must be text, not a list\n\
         7:9: strict: must be a boolean, not text",
    );
}

#[test]
fn likely_mistakes_in_egress_are_told_with_their_place() {
    bad(
        "egress:\n  ports: [https, 70000]\n  ipv6: true\n  mixed_answers: drop\n  deny_cidrs: [10.0.0.1/8, \"::ffff:0:0/96\"]\n  private_cidrs: [0.0.0.0/0]\n  nat64_prefixes: [\"2001:db8::/40\", 5]\n  own_addresses: [here]\n  mode: off\n  exceptions:\n    - {tools: [a], hosts: [localhost]}\n    - {tools: [\"*\"], hosts: [\"a.*.example.com\"], cidrs: [127.0.0.0/8]}\n    - 7\n",
        EGRESS_ERRORS,
    );
}

const EGRESS_ERRORS: &str = "\
4:11: egress.ports[0]: `https` is not a port: write one from 1 to 65535, or a range such as `1024-65535`\n\
4:18: egress.ports[1]: `70000` is not a port: write one from 1 to 65535, or a range such as `1024-65535`\n\
5:9: egress.ipv6: must be `off`, `on` or `prefer`, put it in quotes\n\
6:18: egress.mixed_answers: must be `filter` or `refuse`\n\
7:16: egress.deny_cidrs[0]: `10.0.0.1/8` has bits set behind its prefix; write `10.0.0.0/8`\n\
7:28: egress.deny_cidrs[1]: `::ffff:0:0/96` covers IPv4-mapped addresses, which are never called; write the IPv4 range\n\
8:19: egress.private_cidrs[0]: `0.0.0.0/0` is every address; only `deny_cidrs` may say that\n\
9:37: egress.nat64_prefixes[1]: must be text, not a number, put it in quotes\n\
10:19: egress.own_addresses[0]: `here` is not an IP address\n\
11:9: egress.mode: must be `enforce` or `shadow`\n\
13:7: egress.exceptions[0].cidrs: must name at least one range\n\
13:28: egress.exceptions[0].hosts[0]: `localhost` is never opened; write the address: `127.0.0.1`\n\
14:7: egress.exceptions[1].ports: must name ports, because `cidrs` has a loopback range\n\
14:30: egress.exceptions[1].hosts[0]: `a.*.example.com`: a `*` may stand only in front, as the whole first label: `*.example.com`\n\
15:7: egress.exceptions[2]: must be a mapping, not a number";

#[test]
fn exceptions_that_look_wrong_are_warned_about() {
    warnings(
        &with_head(
            "egress:\n  exceptions:\n    - {tools: [a], hosts: [a.corp.example.com], cidrs: [10.0.0.0/8], expires: 2026-11-10}\n",
        ),
        "\
5:7: egress.exceptions[0].reason: should say what this exception is for\n\
5:7: egress.exceptions[0].owner: should name who answers for this exception\n\
5:79: egress.exceptions[0].expires: ends after 2026-11-10, in 11 days",
    );
}

#[test]
fn tls_and_pool_are_read() {
    let snapshot = good(&with_head(
        "egress: {tls: {min_version: \"1.3\", roots: system, extra_ca: {file: /s/ca.pem}}, connect_timeout: 1s, pool: {reuse: never, max_idle_per_host: 2, idle_timeout: 5s, max_age: 1m}}\n",
    ));
    assert_eq!(snapshot.tls.min_version, TlsVersion::V13);
    assert!(snapshot.tls.extra_ca.is_some());
    assert_eq!(
        (snapshot.pool.reuse, snapshot.pool.max_age),
        (Reuse::Never, Duration::from_secs(60))
    );
    bad(
        "egress:\n  tls: {min_version: 1.2, roots: none, extra_ca: {file: /s/missing}}\n  connect_timeout: 0s\n  pool: {max_idle_per_host: 0, idle_timeout: 1ms}\n",
        "4:22: egress.tls.min_version: must be `1.2` or `1.3`, put it in quotes\n\
         4:34: egress.tls.roots: must be `system` or `webpki`\n\
         4:50: egress.tls.extra_ca: file `/s/missing` is not there\n\
         5:20: egress.connect_timeout: must be from 10ms to 1m, not 0s\n\
         6:29: egress.pool.max_idle_per_host: must be from 1 to 1024, not 0\n\
         6:46: egress.pool.idle_timeout: must be from 1s to 1h, not 1ms",
    );
    bad(
        "egress: {tls: {extra_ca: {file: /s/short}}}\n",
        "3:26: egress.tls.extra_ca: file `/s/short` holds no PEM certificate",
    );
}

#[test]
fn an_item_that_is_empty_is_told_instead_of_left_out() {
    check_errors(
        "version: 1\nauth:\n  keys:\n    - {name: a, scopes: [agent], key: {file: /s/good}, tools: [~]}\n    -\negress: {deny_cidrs: [null]}\n",
        "4:64: auth.keys[0].tools[0]: is empty, write a value or take the item out\n\
         5:6: auth.keys[1]: is empty, write a value or take the item out\n\
         6:23: egress.deny_cidrs[0]: is empty, write a value or take the item out",
    );
}

#[test]
fn a_bound_with_nothing_behind_it_does_not_bind_to_everything() {
    check_errors(
        "version: 1\nauth:\n  keys:\n    - name: a\n      scopes: [agent]\n      key: {file: /s/good}\n      tools:\n        # - lookup\n      agents: []\n",
        "7:12: auth.keys[0].tools: is empty, name one or leave it out for all\n\
         9:15: auth.keys[0].agents: is empty, name one or leave it out for all",
    );
}

#[test]
fn a_proxy_is_a_place_and_a_mode() {
    let proxy = |text: &str| good(&with_head(&format!("egress: {{proxy: {{{text}}}}}\n")));
    let with =
        proxy("url: \"http://proxy.corp:3128\", basic: {user: sortie, password: {file: /s/short}}");
    let found = with.proxy.as_ref().expect("a proxy");
    assert_eq!(found.endpoint.to_string(), "http://proxy.corp:3128/");
    assert!(found.authorization.is_some() && !with.egress.delegates());
    assert!(!format!("{with:?}").contains(CANARY));
    assert!(proxy("url: \"https://10.0.0.3\", mode: connect_name").egress.delegates());
    let without = proxy("url: null, mode: connect_ip");
    assert!(without.proxy.is_none());
    warnings(
        &with_head(
            "egress: {proxy: {url: \"http://proxy:80\", basic: {user: a, password: {env: GONE}}}}\n",
        ),
        "3:69: egress.proxy.basic.password: variable `GONE` is not there, the proxy is asked without it",
    );
    bad(
        "egress: {proxy: {mode: connect_name, basic: {user: a, password: {file: /s/short}}}}\n",
        "3:24: egress.proxy.mode: means nothing without `url`\n\
         3:45: egress.proxy.basic: means nothing without `url`",
    );
    bad(
        "egress: {proxy: {url: \"http://proxy:3128/path\", mode: direct, extra_ca: {file: /s/good}}}\n",
        "3:23: egress.proxy.url: must end after the host and the port\n\
         3:55: egress.proxy.mode: must be `connect_ip` or `connect_name`\n\
         3:73: egress.proxy.extra_ca: file `/s/good` holds no PEM certificate",
    );
}
