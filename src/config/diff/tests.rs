//! Every edit of a file, and what it is told as.

use super::*;
use crate::config::change::Direction;
use crate::config::context::{Environment, Source, SourceError};
use crate::config::parse::parse;
use crate::model::secret::Secret;

const NOW: i64 = 1_800_000_000;

/// A configuration in which everything that can change is said.
const BASE: &str = r#"
version: 1
region: eu
organisations: [{id: default, admins: [ada@example.com]}, {id: clinic}]
storage: {url: "sqlite:/v/a.db", capture: none, keep: {calls: 7d, replay: 24h, audit: 400d, max_calls: 1000}}
notifications:
  webhook: {url: "https://hooks.example.com/a", secret: {file: w1}, events: [approval.requested]}
  smtp: {url: "smtp://mail.example.com", from: s@example.com, to: [bob@example.com], events: [config.rejected]}
tracing: {otlp: {endpoint: "http://otel.example.com:4318", sample: 0.1}}
auth:
  keys:
    - {name: support, scopes: [agent], agents: ["support-*"], tools: ["orders_*"], expires: 2027-06-01,
       key: {file: k1}, previous: {sha256: 'aaaa111111111111111111111111111111111111111111111111111111111111'}}
  certs: [{name: worker, san: "*.workers.example.com", scopes: [agent]}]
  jwt: [{issuer: "https://idp.example.com", audiences: [sortie], jwks: {url: "https://idp.example.com/keys"},
         agent: agent, scopes: {claim: roles, values: {reader: [agent]}}}]
listeners:
  api: {address: "127.0.0.1:8477", tls: {cert: {file: c}, key: {file: ck}, client_ca: {file: ca}, client_names: ["*.a.example.com"]}}
  telemetry: {address: "127.0.0.1:9477"}
  admin: {unix: {path: /run/a.sock, mode: "0600"}}
shutdown: {grace: 20s}
dns: {servers: [10.0.0.10]}
egress:
  ports: ["443"]
  ipv6: off
  deny_cidrs: [203.0.113.0/24]
  private_cidrs: [198.51.100.0/24]
  deny_hosts: [bad.example.com]
  allow_hosts: ["*.example.com"]
  own_addresses: [192.0.2.1]
  nat64_prefixes: ["2001:db8:64::/96"]
  fake_ip_cidrs: [198.18.0.0/16]
  exceptions:
    - {tools: [wms], hosts: [wms.corp.example.com], cidrs: [10.20.0.0/16], ports: ["8443"], reason: vpn, owner: logistics, expires: 2027-03-01}
  tls: {min_version: "1.3", roots: webpki}
  proxy: {url: "http://proxy.example.com:3128", mode: connect_ip}
limits: {max_calls_in_flight: 100, calls_per_round: 4, confirm_for: 20m}
logging: {level: info}
agents: [{id: shop, tools: ["orders_*"]}, {id: desk, tools: ["*"]}]
policies:
  - {id: writes, match: {tools: ["orders_*"], agents: [shop], permission: WRITE, when: [{pointer: /number, operator: equals, threshold: A}]},
     effect: require_approval, message: Ask first., expires_minutes: 30, priority: 1}
  - {id: watched, mode: shadow, effect: deny}
profiles:
  - name: own
    names: "^[a-z_]+$"
    schema: subset
    policy: deny
    timeout: {default: 10s, min: 1s, max: 30s}
    result_max_bytes: 32KiB
    retry: {attempts: 2, on: ["503"]}
    circuit: {open_on: [410], for: 1h}
    error_body: never
    headers:
      - {name: Host, value: $host}
      - {name: X-Signature, value: $signature}
      - $own
      - {name: Content-Length, value: $content_length}
    body: $arguments
    signature: {signed: "{body}", key: text, digest: hex, value: "{digest}"}
tools:
  - name: orders_find
    description: Finds an order by its number, for tests.
    owner: shop
    runbook: https://wiki.example.com/a
    profile: own
    url: https://shop.example.com/find?token=one
    parameters: {type: object, properties: {number: {type: string}}, required: [number]}
    headers: {X-Key: {file: h1}}
    secret: {current: {file: s1}}
    authentication: {oauth2: {token_url: "https://idp.example.com/token", client_id: a, client_secret: {file: o1}, scope: read}}
    accept_credentials: [X-Person]
    timeout: 10s
    result_max_bytes: 1KiB
    policy: {effect: require_approval, shadow: {effect: allow}}
    concurrency: 4
    rate_limits: [{per: tool, rate: 60/min, burst: 10}, {per: agent, rate: 10/min}]
    breaker: {consecutive: 5, failure_ratio: 0.5, open_for: 30s}
    annotations: {idempotent: false, read_only: false, destructive: false}
    filler: One moment.
    ask_first: true
    capture: none
    forward_trace: false
    enabled: false
"#;

fn snapshot(text: &str) -> Snapshot {
    // None of the secrets is there: a review needs none.
    let lookup = |_: &Source| -> Result<Secret, SourceError> { Err(SourceError::Missing) };
    let environment = Environment::bare(&lookup, NOW);
    match parse("f.yaml", text, &environment) {
        Ok(snapshot) => snapshot,
        Err(errors) => panic!("{errors}"),
    }
}

fn changes(from: &str, to: &str) -> Vec<Change> {
    assert!(BASE.contains(from), "{from}");
    compare(&snapshot(BASE), &snapshot(&BASE.replacen(from, to, 1)))
}

#[track_caller]
fn check(from: &str, to: &str, expected: &[(Direction, &str, Kind)]) {
    let found = changes(from, to);
    let short: Vec<(Direction, &str, &str)> =
        found.iter().map(|one| (one.direction, one.path.as_str(), one.change)).collect();
    let mut wanted: Vec<(Direction, &str, &str)> =
        expected.iter().map(|(direction, path, kind)| (*direction, *path, kind.name())).collect();
    wanted.sort();
    assert_eq!(short, wanted, "{from} -> {to}: {found:#?}");
}

/// What is looked for, what is put there, and the changes that come of it.
type Case = (&'static str, &'static str, &'static [(Direction, &'static str, Kind)]);

/// What each edit of the file is told as, and nothing besides.
#[rustfmt::skip]
const CASES: &[Case] = {
    use Direction::{Looser, Neutral, Tighter};
    &[
        ("name: support, ", "name: support, organisation: clinic, ", &[(Looser, "auth.keys.support.organisation", Kind::Organisation)]),
        ("ada@example.com", "eve@example.com", &[(Looser, "organisations.default.admins", Kind::MailTo)]),
        ("{id: clinic}", "{id: ward}", &[(Neutral, "organisations.clinic", Kind::Setting), (Neutral, "organisations.ward", Kind::Setting)]),
        ("sqlite:/v/a.db", "sqlite:/v/b.db", &[(Neutral, "storage.url", Kind::Setting)]),
        ("db\", capture: none", "db\", capture: full", &[(Looser, "storage.capture", Kind::Capture)]),
        ("audit: 400d", "audit: 30d", &[(Looser, "storage.keep.audit", Kind::AuditTime)]),
        ("calls: 7d", "calls: 8d", &[(Neutral, "storage.keep.calls", Kind::Setting)]),
        ("replay: 24h", "replay: 1h", &[(Neutral, "storage.keep.replay", Kind::Setting)]),
        ("max_calls: 1000", "max_calls: 0", &[(Neutral, "storage.keep.max_calls", Kind::Setting)]),
        ("https://hooks.example.com/a", "https://hooks.example.com/b", &[(Looser, "notifications.webhook.url", Kind::NotifyTarget)]),
        ("secret: {file: w1}", "secret: {file: w2}", &[(Neutral, "notifications.webhook.secret", Kind::Reference)]),
        ("events: [approval.requested]", "events: [call.finished]", &[(Neutral, "notifications.webhook.events", Kind::Setting)]),
        ("smtp://mail.example.com", "smtp://mail.example.org", &[(Looser, "notifications.smtp.url", Kind::NotifyTarget)]),
        ("from: s@", "from: t@", &[(Neutral, "notifications.smtp.from", Kind::Setting)]),
        ("to: [bob@example.com]", "to: admins", &[(Looser, "notifications.smtp.to", Kind::MailTo)]),
        ("events: [config.rejected]", "events: [call.finished]", &[(Neutral, "notifications.smtp.events", Kind::Setting)]),
        ("calls_per_round: 4", "calls_per_round: 5", &[(Looser, "limits.calls_per_round", Kind::CallsInRound)]),
        ("confirm_for: 20m", "max_rounds: 4", &[(Tighter, "limits.confirm_for", Kind::Timeout), (Looser, "limits.max_rounds", Kind::CallsInRound)]),
        ("confirm_for: 20m", "confirm_for: 20m, dispatch_within: 1h", &[(Looser, "limits.dispatch_within", Kind::Timeout)]),
        ("    ask_first: true\n", "", &[(Looser, "tools.orders_find.ask_first", Kind::AskFirst)]),
        ("    capture: none\n", "    capture: full\n", &[(Looser, "tools.orders_find.capture", Kind::Capture)]),
        ("scopes: [agent], agents", "scopes: [agent, 'agent:call'], agents", &[(Looser, "auth.keys.support.scopes", Kind::Scopes)]),
        (r#"agents: ["support-*"]"#, r#"agents: ["support-eu"]"#, &[(Tighter, "auth.keys.support.agents", Kind::CallerAgents)]),
        (r#"tools: ["orders_*"], "#, "", &[(Looser, "auth.keys.support.tools", Kind::CallerTools)]),
        ("expires: 2027-06-01", "expires: 2028-06-01", &[(Looser, "auth.keys.support.expires", Kind::CallerEnd)]),
        ("key: {file: k1}", "key: {file: k2}", &[(Neutral, "auth.keys.support.key", Kind::Reference)]),
        ("sha256: 'aaaa", "sha256: 'bbbb", &[(Neutral, "auth.keys.support.key", Kind::KeyValue)]),
        ("name: support, ", "name: sales, ", &[(Tighter, "auth.keys.support", Kind::Caller), (Looser, "auth.keys.sales", Kind::Caller),
            (Neutral, "auth.keys.support.key", Kind::Reference), (Neutral, "auth.keys.sales.key", Kind::Reference)]),
        (r#"san: "*.workers.example.com""#, r#"san: "*.example.com""#, &[(Looser, "auth.certs.worker.san", Kind::CallerNames)]),
        ("audiences: [sortie]", "audiences: [sortie, other]", &[(Looser, "auth.jwt.https://idp.example.com.audiences", Kind::Audiences)]),
        ("idp.example.com/keys", "idp.example.com/others", &[(Looser, "auth.jwt.https://idp.example.com.jwks", Kind::KeySet)]),
        ("agent: agent,", "", &[(Looser, "auth.jwt.https://idp.example.com.agent", Kind::AgentClaim)]),
        ("reader: [agent]", "reader: [agent, 'agent:call']", &[(Looser, "auth.jwt.https://idp.example.com.scopes", Kind::ScopeRule)]),
        (r#"api: {address: "127.0.0.1:8477""#, r#"api: {address: ":8477""#, &[(Looser, "listeners.api", Kind::ListenAddress)]),
        (r#"client_ca: {file: ca}, client_names: ["*.a.example.com"]"#, "client_ca: {file: ca}", &[(Looser, "listeners.api.tls.client_names", Kind::ClientNames)]),
        ("client_ca: {file: ca}", "client_ca: {file: cb}", &[(Looser, "listeners.api.tls.client_ca", Kind::Roots)]),
        ("authentication: {oauth2: {token_url: \"https://idp.example.com/token\", client_id: a, client_secret: {file: o1}, scope: read}}", "authentication: {bearer: {file: b1}}",
            &[(Neutral, "tools.orders_find.authentication", Kind::Authentication), (Neutral, "tools.orders_find.authentication.bearer", Kind::Reference),
            (Neutral, "tools.orders_find.authentication.oauth2.client_secret", Kind::Reference),
            (Tighter, "tools.orders_find.authentication.oauth2.token_url", Kind::TokenTarget)]),
        (r#"telemetry: {address: "127.0.0.1:9477"}"#, r#"telemetry: {address: "127.0.0.1:9477", max_connections: 9}"#, &[(Tighter, "listeners.telemetry.max_connections", Kind::ListenerLimit)]),
        (r#"mode: "0600""#, r#"mode: "0660""#, &[(Looser, "listeners.admin.mode", Kind::SocketMode)]),
        ("/run/a.sock", "/run/b.sock", &[(Neutral, "listeners.admin.unix.path", Kind::Setting)]),
        (r#"admin: {unix: {path: /run/a.sock, mode: "0600"}}"#, "admin: null", &[(Tighter, "listeners.admin", Kind::AdminListener)]),
        ("grace: 20s", "grace: 30s", &[(Neutral, "shutdown.grace", Kind::Setting)]),
        ("servers: [10.0.0.10]", "servers: [10.0.0.11]", &[(Neutral, "dns.servers", Kind::Setting)]),
        (r#"ports: ["443"]"#, r#"ports: ["443", "8443"]"#, &[(Looser, "egress.ports", Kind::Ports)]),
        ("ipv6: off", "ipv6: on", &[(Looser, "egress.ipv6", Kind::Ipv6)]),
        ("ipv6: off", "ipv6: off\n  mixed_answers: filter", &[(Looser, "egress.mixed_answers", Kind::MixedAnswers)]),
        ("ipv6: off", "ipv6: off\n  mode: shadow", &[(Looser, "egress.mode", Kind::Shadow)]),
        ("ipv6: off", "ipv6: off\n  connect_timeout: 5s", &[(Looser, "egress.connect_timeout", Kind::Timeout)]),
        ("ipv6: off", "ipv6: off\n  pool: {reuse: never}", &[(Neutral, "egress.pool.reuse", Kind::Setting)]),
        ("deny_cidrs: [203.0.113.0/24]", "deny_cidrs: []", &[(Looser, "egress.deny_cidrs", Kind::DeniedRanges)]),
        ("private_cidrs: [198.51.100.0/24]", "private_cidrs: [198.51.100.0/25]", &[(Looser, "egress.private_cidrs", Kind::PrivateRanges)]),
        ("deny_hosts: [bad.example.com]", "deny_hosts: []", &[(Looser, "egress.deny_hosts", Kind::DeniedHosts)]),
        (r#"allow_hosts: ["*.example.com"]"#, "allow_hosts: []", &[(Looser, "egress.allow_hosts", Kind::AllowedHosts)]),
        ("own_addresses: [192.0.2.1]", "own_addresses: []", &[(Looser, "egress.own_addresses", Kind::OwnAddresses)]),
        ("2001:db8:64::/96", "2001:db8:65::/96", &[(Looser, "egress.nat64_prefixes", Kind::Nat64)]),
        ("198.18.0.0/16", "198.18.0.0/15", &[(Looser, "egress.fake_ip_cidrs", Kind::FakeRanges)]),
        ("tools: [wms],", "tools: ['wms*'],", &[(Looser, "egress.exceptions[0].tools", Kind::ExceptionTools)]),
        ("hosts: [wms.corp.example.com]", "hosts: [wms.corp.example.com, b.corp.example.com]", &[(Looser, "egress.exceptions[0].hosts", Kind::ExceptionHosts)]),
        ("cidrs: [10.20.0.0/16]", "cidrs: [10.0.0.0/8]", &[(Looser, "egress.exceptions[0].cidrs", Kind::ExceptionRanges)]),
        (r#", ports: ["8443"], reason"#, ", reason", &[(Looser, "egress.exceptions[0].ports", Kind::ExceptionPorts)]),
        ("reason: vpn", "http: true, reason: vpn", &[(Looser, "egress.exceptions[0].http", Kind::ExceptionHttp)]),
        ("reason: vpn", "reason: other", &[(Neutral, "egress.exceptions[0].reason", Kind::Setting)]),
        (", expires: 2027-03-01", "", &[(Looser, "egress.exceptions[0].expires", Kind::ExceptionEnd)]),
        ("  tls: {min_version", "    - {tools: [b], hosts: [b.corp.example.com], cidrs: [10.9.0.0/16], reason: r, owner: o}\n  tls: {min_version", &[(Looser, "egress.exceptions[1]", Kind::Exception)]),
        (r#"min_version: "1.3""#, r#"min_version: "1.2""#, &[(Looser, "egress.tls.min_version", Kind::TlsVersion)]),
        ("roots: webpki", "roots: system", &[(Looser, "egress.tls.roots", Kind::Roots)]),
        ("mode: connect_ip", "mode: connect_name", &[(Looser, "egress.proxy.mode", Kind::ProxyMode)]),
        ("  proxy: {url: \"http://proxy.example.com:3128\", mode: connect_ip}\n", "", &[(Looser, "egress.proxy.url", Kind::Proxy), (Neutral, "egress.proxy.mode", Kind::ProxyMode)]),
        ("proxy.example.com:3128", "proxy.example.com:3129", &[(Looser, "egress.proxy.url", Kind::Proxy)]),
        ("max_calls_in_flight: 100", "max_calls_in_flight: 200", &[(Looser, "limits.max_calls_in_flight", Kind::CallsInFlight)]),
        ("level: info", "level: debug", &[(Neutral, "logging.level", Kind::Setting)]),
        ("level: info", "level: info, format: text", &[(Neutral, "logging.format", Kind::Setting)]),
        ("region: eu", "region: eu\nsecrets: {dir: /run/secrets}", &[(Neutral, "secrets.dir", Kind::Reference)]),
        ("region: eu", "region: us", &[(Neutral, "region", Kind::Setting)]),
        ("region: eu", "region: eu\nmetrics: {per_tool: false}", &[(Neutral, "metrics.per_tool", Kind::Setting)]),
        ("attempts: 2", "attempts: 3", &[(Looser, "profiles.own.retry.attempts", Kind::Attempts)]),
        (r#"on: ["503"]"#, r#"on: ["503", network]"#, &[(Looser, "profiles.own.retry.on", Kind::RetriedFailures)]),
        (r#"on: ["503"]"#, r#"on: ["503", "502"]"#, &[(Looser, "profiles.own.retry.statuses", Kind::RetriedStatuses)]),
        ("open_on: [410]", "open_on: [410, 404]", &[(Tighter, "profiles.own.circuit.statuses", Kind::TripStatuses)]),
        ("for: 1h", "for: 30m", &[(Looser, "profiles.own.circuit.lasts", Kind::TripPause)]),
        ("error_body: never", "error_body: 4xx", &[(Looser, "profiles.own.error_body", Kind::ErrorBody)]),
        ("name: X-Signature", "name: X-Other", &[(Neutral, "profiles.own.format", Kind::WireFormat)]),
        ("for tests.", "for many tests.", &[(Neutral, "tools.orders_find.description", Kind::Setting)]),
        ("owner: shop", "owner: web", &[(Neutral, "tools.orders_find.owner", Kind::Setting)]),
        ("wiki.example.com/a", "wiki.example.com/b", &[(Neutral, "tools.orders_find.runbook", Kind::Setting)]),
        ("shop.example.com/find", "till.example.com/find", &[(Looser, "tools.orders_find.url", Kind::Target)]),
        ("find?token=one", "find?token=two", &[(Neutral, "tools.orders_find.url", Kind::Setting)]),
        ("required: [number]", "required: []", &[(Looser, "tools.orders_find.parameters/required", Kind::Arguments)]),
        ("X-Key: {file: h1}", "X-Key: {file: h2}", &[(Neutral, "tools.orders_find.headers.X-Key", Kind::Reference)]),
        ("X-Key: {file: h1}", "X-Key: {file: h1}, X-More: {env: M}", &[(Neutral, "tools.orders_find.headers", Kind::Headers), (Neutral, "tools.orders_find.headers.X-More", Kind::Reference)]),
        ("current: {file: s1}", "current: {file: s2}, previous: {file: s1}", &[(Neutral, "tools.orders_find.secret.current", Kind::Reference), (Neutral, "tools.orders_find.secret.previous", Kind::Reference)]),
        ("https://idp.example.com/token", "https://token.example.com/", &[(Looser, "tools.orders_find.authentication.oauth2.token_url", Kind::TokenTarget)]),
        ("scope: read", "scope: read write", &[(Looser, "tools.orders_find.authentication.oauth2.scope", Kind::TokenScope)]),
        ("accept_credentials: [X-Person]", "accept_credentials: [X-Person, X-B]", &[(Looser, "tools.orders_find.accept_credentials", Kind::AcceptedHeaders)]),
        ("    timeout: 10s\n", "    timeout: 20s\n", &[(Looser, "tools.orders_find.timeout", Kind::Timeout)]),
        ("result_max_bytes: 1KiB", "result_max_bytes: 2KiB", &[(Looser, "tools.orders_find.result_max_bytes", Kind::ResultLimit)]),
        ("policy: {effect: require_approval", "policy: {effect: allow", &[(Looser, "tools.orders_find.policy", Kind::Policy)]),
        ("shadow: {effect: allow}", "shadow: {effect: deny}", &[(Neutral, "tools.orders_find.policy.shadow", Kind::Candidate)]),
        ("concurrency: 4", "concurrency: 5", &[(Looser, "tools.orders_find.concurrency", Kind::CallsInFlight)]),
        (", {per: agent, rate: 10/min}", "", &[(Looser, "tools.orders_find.rate_limits.agent", Kind::RateLimit)]),
        ("rate: 60/min, burst: 10", "rate: 61/min, burst: 10", &[(Looser, "tools.orders_find.rate_limits.tool", Kind::RatePeriod)]),
        ("burst: 10", "burst: 11", &[(Looser, "tools.orders_find.rate_limits.tool.burst", Kind::RateBurst)]),
        ("breaker: {consecutive: 5, failure_ratio: 0.5, open_for: 30s}", "breaker: off", &[(Looser, "tools.orders_find.breaker", Kind::Breaker)]),
        ("consecutive: 5", "consecutive: 9", &[(Looser, "tools.orders_find.breaker.consecutive", Kind::BreakerThreshold)]),
        ("failure_ratio: 0.5", "failure_ratio: 0.25", &[(Tighter, "tools.orders_find.breaker.failure_ratio", Kind::BreakerThreshold)]),
        ("open_for: 30s", "open_for: 10s", &[(Looser, "tools.orders_find.breaker.open_for", Kind::BreakerPause)]),
        ("idempotent: false", "idempotent: true", &[(Looser, "tools.orders_find.annotations.idempotent", Kind::Idempotent)]),
        ("read_only: false", "read_only: true", &[(Neutral, "tools.orders_find.annotations.read_only", Kind::Setting), (Looser, "tools.orders_find.annotations.read_only", Kind::ToolPolicies)]),
        (r#"{id: shop, tools: ["orders_*"]}"#, r#"{id: shop, tools: ["*"]}"#, &[(Looser, "agents.shop.tools", Kind::AgentTools)]),
        (r#", {id: desk, tools: ["*"]}"#, "", &[(Tighter, "agents.desk", Kind::Agent)]),
        (r#"agents: [{id: shop, tools: ["orders_*"]}, {id: desk, tools: ["*"]}]"#, "", &[(Looser, "agents", Kind::AgentsListed)]),
        ("id: writes", "id: others", &[(Looser, "policies.writes", Kind::Policy), (Tighter, "policies.others", Kind::Policy)]),
        ("effect: require_approval, message", "effect: deny, message", &[(Tighter, "policies.writes", Kind::Policy)]),
        ("mode: shadow", "mode: enforce", &[(Tighter, "policies.watched", Kind::Policy)]),
        ("mode: shadow, effect: deny", "mode: shadow, effect: ask_first", &[(Neutral, "policies.watched", Kind::Policy)]),
        ("mode: shadow", "mode: shadow, match: {tools: [a]}", &[(Neutral, "policies.watched.match.tools", Kind::Setting)]),
        (r#"match: {tools: ["orders_*"]"#, r#"match: {tools: ["orders_find"]"#, &[(Looser, "policies.writes.match.tools", Kind::PolicyTools)]),
        (r#"match: {tools: ["orders_*"], "#, "match: {", &[(Tighter, "policies.writes.match.tools", Kind::PolicyTools)]),
        ("agents: [shop], ", "agents: [shop, desk], ", &[(Tighter, "policies.writes.match.agents", Kind::PolicyAgents)]),
        ("permission: WRITE, ", "", &[(Tighter, "policies.writes.match.permission", Kind::PolicyPermission)]),
        ("threshold: A}", "threshold: B}", &[(Looser, "policies.writes.match.when", Kind::PolicyConditions)]),
        ("threshold: A}", "threshold: A, on_absent: match}", &[(Looser, "policies.writes.match.when", Kind::PolicyConditions)]),
        ("threshold: A}", "threshold: A}, {pointer: /x, operator: equals, threshold: 1}", &[(Looser, "policies.writes.match.when", Kind::PolicyConditions)]),
        ("Ask first.", "Ask.", &[(Neutral, "policies.writes.message", Kind::Setting)]),
        ("expires_minutes: 30", "expires_minutes: 60", &[(Neutral, "policies.writes.expires_minutes", Kind::Setting)]),
        ("priority: 1", "priority: 2", &[(Neutral, "policies.writes.priority", Kind::Setting)]),
        ("destructive: false", "destructive: true", &[(Neutral, "tools.orders_find.annotations.destructive", Kind::Setting)]),
        ("One moment.", "Wait.", &[(Neutral, "tools.orders_find.filler", Kind::Setting)]),
        ("forward_trace: false", "forward_trace: true", &[(Looser, "tools.orders_find.forward_trace", Kind::ForwardTrace)]),
        ("//otel.example.com", "//other.example.com", &[(Looser, "tracing.otlp.endpoint", Kind::TraceTarget)]),
        ("sample: 0.1", "sample: 0.2", &[(Neutral, "tracing.otlp.sample", Kind::Setting)]),
        ("sample: 0.1", "sample: 0.1, capture: full", &[(Looser, "tracing.otlp.capture", Kind::Capture)]),
        ("enabled: false", "enabled: true", &[(Looser, "tools.orders_find.enabled", Kind::Enabled)]),
        ("- name: orders_find", "- name: orders_get", &[(Tighter, "tools.orders_find", Kind::Tool), (Looser, "tools.orders_get", Kind::Tool)]),
    ]
};

#[test]
fn each_edit_is_told_once_with_its_direction() {
    for (from, to, expected) in CASES {
        check(from, to, expected);
    }
}

#[test]
fn nothing_is_said_of_what_did_not_change() {
    assert_eq!(compare(&snapshot(BASE), &snapshot(BASE)), []);
    let other_order = BASE.replace("# ", "").replace("region: eu\n", "") + "region: eu\n";
    assert_eq!(compare(&snapshot(BASE), &snapshot(&other_order)), []);
}

#[test]
fn the_way_back_is_the_other_direction() {
    for (from, to, _) in CASES {
        let edited = snapshot(&BASE.replacen(from, to, 1));
        let (there, back) = (compare(&snapshot(BASE), &edited), compare(&edited, &snapshot(BASE)));
        assert_eq!(there.len(), back.len(), "{from}");
        for change in &there {
            let same =
                |other: &&Change| (&other.path, other.change) == (&change.path, change.change);
            let way_back = back.iter().find(same).unwrap_or_else(|| panic!("{change:?} {back:?}"));
            let fits = match (change.direction, way_back.direction) {
                // What nobody can order is looser both ways.
                (Direction::Looser, Direction::Looser | Direction::Tighter)
                | (Direction::Tighter, Direction::Looser)
                | (Direction::Neutral, Direction::Neutral) => true,
                _ => false,
            };
            assert!(fits, "{change:?} {way_back:?}");
        }
    }
}

#[test]
fn tls_and_authentication_that_are_taken_off_are_looser() {
    let plain = "version: 1\nauth: {keys: [{name: a, scopes: [agent], key: {file: a}}]}\n";
    let none = "version: 1\nauth: none\n";
    let tls =
        format!("{plain}listeners: {{api: {{tls: {{cert: {{file: c}}, key: {{file: k}}}}}}}}\n");
    let asks = tls.replace("key: {file: k}", "key: {file: k}, client_ca: {file: ca}");
    let paths = |old: &str, new: &str| -> Vec<(Direction, String)> {
        let found = compare(&snapshot(old), &snapshot(new));
        found.into_iter().map(|one| (one.direction, one.path)).collect()
    };
    assert!(paths(plain, none).contains(&(Direction::Looser, "auth".into())));
    let off = paths(&tls, plain);
    assert_eq!(off[0], (Direction::Looser, "listeners.api.tls".into()), "{off:?}");
    let asked = paths(&asks, &tls);
    assert_eq!(asked[0], (Direction::Looser, "listeners.api.tls.client_ca".into()), "{asked:?}");
    assert!(paths(plain, &tls).iter().all(|(direction, _)| *direction != Direction::Looser));
}

/// Whether anything got looser, and whether the way back does.
#[track_caller]
fn check_looser(old: &str, new: &str, expected: (bool, bool)) {
    let (old, new) = (snapshot(old), snapshot(new));
    let looser =
        |old, new| compare(old, new).iter().any(|change| change.direction == Direction::Looser);
    assert_eq!((looser(&old, &new), looser(&new, &old)), expected, "{:#?}", compare(&old, &new));
}

#[test]
fn a_certificate_that_falls_to_an_entry_that_may_more_is_looser() {
    const NARROW: &str = "{name: narrow, san: a.example.com, scopes: [agent]}";
    const WIDE: &str = "{name: wide, san: '*.example.com', scopes: [agent, 'agent:call']}";
    const TLS: &str = "{cert: {file: c}, key: {file: k}, client_ca: {file: ca}}";
    let with = |certs: &[&str]| {
        let certs = certs.join(", ");
        format!("version: 1\nauth: {{certs: [{certs}]}}\nlisteners: {{api: {{tls: {TLS}}}}}\n")
    };
    let both = with(&[NARROW, WIDE]);
    check_looser(&both, &with(&[WIDE, NARROW]), (true, false));
    check_looser(&both, &with(&[WIDE]), (true, true));
    check_looser(&both, &with(&[&NARROW.replace("a.ex", "b.ex"), WIDE]), (true, true));
    check_looser(&with(&[WIDE, NARROW]), &with(&[NARROW]), (false, true));
}

#[test]
fn a_listener_in_another_network_is_looser() {
    let at = |address: &str| {
        let key = "{name: a, scopes: [agent], key: {file: a}}";
        format!(
            "version: 1\nauth: {{keys: [{key}]}}\nlisteners: {{api: {{address: '{address}'}}}}\n"
        )
    };
    check_looser(&at("10.0.0.5:8477"), &at("203.0.113.5:8477"), (true, true));
    check_looser(&at("10.0.0.5:8477"), &at("10.0.0.5:8478"), (false, false));
    check_looser(&at("127.0.0.1:8477"), &at("127.0.0.2:8478"), (false, false));
}

#[test]
fn an_unsigned_profile_is_looser_than_a_signed_one() {
    let tool = |more: &str| {
        let tool = "{name: t, description: A tool for the tests of diff., url: 'https://a.example.com/', policy: allow";
        format!("version: 1\nauth: none\ntools: [{tool}, {more}}}]\n")
    };
    let signed = snapshot(&tool("profile: bare-v1, secret: {current: {file: s}}"));
    let unsigned = snapshot(&tool("profile: plain-v1"));
    let found = compare(&signed, &unsigned);
    let says = |direction, path: &str| {
        found.iter().any(|one| one.direction == direction && one.path == path)
    };
    assert!(says(Direction::Looser, "tools.t.signature"), "{found:?}");
    assert!(says(Direction::Neutral, "tools.t.profile"), "{found:?}");
    assert!(says(Direction::Tighter, "tools.t.retry.attempts"), "{found:?}");
}

#[test]
fn no_kind_is_out_of_reach() {
    let mut reached: BTreeSet<Kind> = CASES
        .iter()
        .flat_map(|(_, _, expected)| expected.iter().map(|(_, _, kind)| *kind))
        .collect();
    // Seen in tests of their own.
    reached.extend([
        Kind::CallersBefore,
        Kind::ClientCertificates,
        Kind::ListenerTls,
        Kind::NoAuthentication,
        Kind::Signature,
    ]);
    let rest: Vec<Kind> =
        Kind::ALL.iter().copied().filter(|kind| !reached.contains(kind)).collect();
    assert_eq!(rest, []);
}

#[test]
fn what_hides_in_a_url_is_not_told() {
    for change in changes("find?token=one", "find?token=two") {
        assert!(!format!("{change:?}").contains("token="), "{change:?}");
    }
    for change in changes("sha256: 'aaaa", "sha256: 'bbbb") {
        assert!(!format!("{change:?}").contains("1111"), "{change:?}");
    }
}
