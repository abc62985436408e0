//! The command line from outside: what it prints, how it ends, and that it never tells a secret.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::canary::Canaries;
use crate::support::cli::{Finished, run, sortie};
use crate::support::config::{ConfigBuilder, SECRET, Tool};
use crate::support::script::{Script, answer};
use crate::support::world::World;

const OTHER_SECRET: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
const BASE64_SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";
const SCAN: &str = r#"{"scanId":"RX-4471"}"#;
const ENVELOPE: &str = r#"{"tool":"lookup_order","call_id":"call_8f2c","arguments":{"order_number":"A-1042"},"agent_id":"0193b1e2-6c1d-7a4e-9f20-5d8a3c2b1e07","session_id":"0193b2f0","turn_id":"0193b2f1","end_user":{"id":"eu_7GqT2mXcV9pLs4Hd","external_id":"cust-77"},"test":false,"sent_at":"2026-10-30T09:55:02.000Z"}"#;
const CONTACT: &str = r#"{"type":"contact.created","timestamp":"2022-11-03T20:26:10.344522Z","data":{"id":"1f81eb52-5198-4599-803e-771906343485"}}"#;

/// Every configuration file of a folder of the repository.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(&folder).expect("the folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    paths.sort();
    paths
}

fn shipped() -> Vec<PathBuf> {
    let mut shipped: Vec<_> = files("config").into_iter().chain(files("config/examples")).collect();
    // The one that is no configuration describes the API.
    shipped.retain(|path| path.file_name().is_none_or(|name| name != "openapi.yaml"));
    assert!(shipped.len() >= 6, "{shipped:?}");
    shipped
}

fn check(file: &Path, options: &[&str]) -> Finished {
    let mut arguments = vec!["check", file.to_str().expect("a UTF-8 path")];
    arguments.extend(options);
    run(arguments, "")
}

/// The names of all keys in a schema, at any depth.
fn keys(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Object(properties)) = object.get("properties") {
                found.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| keys(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[test]
fn the_configuration_with_every_key_has_every_key() {
    let mut found = BTreeSet::new();
    let schema = include_str!("../../config/sortie.schema.json");
    keys(&serde_json::from_str(schema).expect("JSON"), &mut found);
    assert!(found.len() > 100, "{found:?}");
    let shown = include_str!("../../config/sortie.yaml");
    let shown: BTreeSet<&str> = shown
        .match_indices(':')
        .map(|(at, _)| &shown[..at])
        .map(|before| before.rsplit(|c: char| c != '_' && !c.is_ascii_alphanumeric()).next())
        .map(Option::unwrap_or_default)
        .collect();
    found.retain(|key| !shown.contains(key.as_str()));
    assert_eq!(found, BTreeSet::new());
}

#[test]
fn every_error_of_a_broken_file_is_printed_with_its_place() {
    let broken = files("tests/it/broken");
    assert!(broken.len() >= 10, "{broken:?}");
    for path in broken {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        let output = sortie()
            .current_dir(path.parent().expect("a folder"))
            .args(["check", name])
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let printed = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{name}: {printed}");
        let golden = fs::read_to_string(path.with_extension("txt")).expect("a golden file");
        // What a secret's own text is wrong in takes the secret, which is not in the repository.
        let readable = |line: &&str| !line.contains("the secret ") && !line.ends_with(" is empty");
        let expected: Vec<&str> = golden.lines().filter(readable).collect();
        assert!(!expected.is_empty(), "{name}");
        for line in expected {
            assert!(printed.lines().any(|one| one == line), "no {line:?} in\n{printed}");
        }
        for line in printed.lines() {
            let mut parts = line.splitn(4, ':');
            let file = parts.next();
            let place = [parts.next(), parts.next()].map(|part| part?.parse::<usize>().ok());
            assert!(file == Some(name) && place.iter().all(Option::is_some), "{line}");
        }
    }
}

/// Every reference to a secret in a text, counted by the eye of a reader.
fn references(path: &Path) -> usize {
    let text = fs::read_to_string(path).expect("the file");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.map(|line| line.matches("{file:").count() + line.matches("{env:").count()).sum()
}

#[test]
fn shipped_files_are_good_but_for_their_secrets() {
    for path in shipped() {
        let secrets = references(&path);
        let lenient = check(&path, &[]);
        assert_eq!(lenient.code, Some(0), "{lenient:?}");
        let warnings = lenient.stdout.lines().filter(|line| line.contains(": warning: "));
        assert_eq!(warnings.count(), secrets, "{}", lenient.stdout);
        let strict = check(&path, &["--strict"]);
        assert_eq!(strict.code, Some(1), "{strict:?}");
        assert_eq!(strict.stdout.lines().count(), secrets, "{}", strict.stdout);
    }
}

#[test]
fn findings_are_told_as_json_too() {
    for (path, ok) in shipped()
        .iter()
        .map(|path| (path, true))
        .chain(files("tests/it/broken").iter().map(|path| (path, false)))
    {
        let finished = check(path, &["--format", "json"]);
        let found: Value = serde_json::from_str(&finished.stdout).expect("JSON");
        assert_eq!((&found["ok"], finished.code), (&json!(ok), Some(i32::from(!ok))), "{path:?}");
        let errors = found["errors"].as_array().expect("a list");
        assert_eq!(errors.is_empty(), ok, "{path:?}");
        for error in errors {
            assert!(error["line"].as_u64() > Some(0) && error["column"].as_u64() > Some(0));
            assert!(error["message"].is_string() && error["path"].is_string());
        }
    }
}

#[track_caller]
fn is_usage_error(arguments: &[&str]) {
    let finished = run(arguments, "");
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}");
    assert!(!finished.stderr.is_empty(), "{arguments:?}");
}

#[test]
fn a_command_line_that_makes_no_sense_ends_with_2() {
    let secret = Secrets::new();
    let file = secret.file("a", SECRET);
    is_usage_error(&[]);
    is_usage_error(&["call"]);
    is_usage_error(&["check"]);
    is_usage_error(&["check", "--format", "xml", "sortie.yaml"]);
    is_usage_error(&["egress"]);
    is_usage_error(&["key"]);
    is_usage_error(&["probe", "ready", "--telemetry", "localhost"]);
    is_usage_error(&["serve"]);
    is_usage_error(&["serve", "sortie.yaml"]);
    is_usage_error(&["sign", "--profile", "no-such", "--secret-file", &file]);
    is_usage_error(&["sign", "--profile", "plain-v1", "--secret-file", &file]);
    is_usage_error(&["verify", "--profile", "bare-v1", "--secret-file", &file]);
    is_usage_error(&["demo", "--twice"]);
}

#[test]
fn help_and_version_are_no_errors() {
    let version = run(["--version"], "");
    assert_eq!(version.code, Some(0));
    assert_eq!(version.stdout, format!("sortie {}\n", env!("CARGO_PKG_VERSION")));
    let help = run(["--help"], "");
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for command in ["check", "demo", "egress", "key", "probe", "schema", "serve", "sign", "verify"]
    {
        assert!(help.stdout.contains(&format!("\n  {command} ")), "{}", help.stdout);
        assert_eq!(run([command, "--help"], "").code, Some(0), "{command}");
    }
}

#[test]
fn the_schema_is_the_one_in_the_repository() {
    let printed = run(["schema"], "");
    assert_eq!(printed.code, Some(0));
    assert!(printed.stdout == include_str!("../../config/sortie.schema.json"));
}

/// A folder of secret files.
struct Secrets(tempfile::TempDir);

impl Secrets {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// A file that holds this secret and the line end that editors add.
    fn file(&self, name: &str, secret: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, format!("{secret}\n")).expect("written");
        path.to_str().expect("a UTF-8 path").to_owned()
    }
}

/// Signs a body, and fails where the secret stands in what is printed.
fn sign(profile: &str, secret: &str, options: &[&str], body: &str) -> Finished {
    signing("sign", profile, secret, options, body)
}

fn verify(profile: &str, secret: &str, options: &[&str], body: &str) -> Finished {
    signing("verify", profile, secret, options, body)
}

fn signing(command: &str, profile: &str, secret: &str, options: &[&str], body: &str) -> Finished {
    let secrets = Secrets::new();
    let file = secrets.file("secret", secret);
    let mut arguments = vec![command, "--profile", profile, "--secret-file", &file];
    arguments.extend(options);
    let finished = run(arguments, body);
    let mut canaries = Canaries::default();
    if secret.len() >= 8 {
        canaries.watch(secret);
    }
    canaries.assert_absent(command, &format!("{}{}", finished.stdout, finished.stderr));
    finished
}

/// One vector of the `t=…,v1=…` scheme: what is signed is printed, and verifies.
#[track_caller]
fn check_vector(secret: &str, t: &str, body: &str, v1: &str) {
    for (profile, header) in [("bare-v1", "CL-Signature"), ("envelope-v1", "X-Tool-Signature")] {
        let signed = sign(profile, secret, &["--t", t], body);
        let value = format!("t={t},v1={v1}");
        assert_eq!((signed.code, signed.stdout), (Some(0), format!("{header}: {value}\n")));
        let verified = verify(profile, secret, &["--header", &value, "--now", t], body);
        assert_eq!((verified.code, verified.stdout.as_str()), (Some(0), "valid\n"));
    }
}

#[test]
fn signatures_are_those_of_the_published_vectors() {
    let (then, later) = ("1760708872", "1793354102");
    check_vector(
        SECRET,
        then,
        r#"{ "scanId": "RX-4471" }"#,
        "80e1cf680ba535c6339ba8075021c54de5c5e9e6eff7a46095ca3d9bbe9c2131",
    );
    check_vector(
        SECRET,
        then,
        SCAN,
        "0003f4528fbbf0db485d73ad0bcdf6ffd0e765a914486fc0e4e258dfe0a05f8d",
    );
    check_vector(
        SECRET,
        later,
        ENVELOPE,
        "b1d30c7312238bf6d2c506ea9c7ac473a1908760f34b766bdc57813cc9a3953b",
    );
    check_vector(
        SECRET,
        later,
        "",
        "b01c6aacb30f87099d4a035dd98b0b8aae34c1659f55a2b9e632b674ae29afaa",
    );
    check_vector(
        "whsec_k\u{e9}y",
        later,
        "{\"name\":\"Zo\u{eb} \u{2013} \u{1f4e6}\"}\n",
        "ff8db2ce55d625e4b709ed15284b2c63d5d4c3dfb48254f9a80acfffb95ecc5c",
    );
    check_vector(
        SECRET,
        "1",
        r#"2.{"a":1}"#,
        "f8dd9c2b65b16cf861e98919a399256e31bed41c50b165bc392d54a47ae600e9",
    );
    check_vector(
        OTHER_SECRET,
        then,
        SCAN,
        "d4d6875816cd611d52f5cde661ec2bdcf1a1dcbf76bb4acc30eb1211aad1c5e2",
    );
    check_vector(
        &"k".repeat(100),
        then,
        SCAN,
        "97ed422faab897db26780264ceb57e5cc60a4e4c3e50aef4fa245c1f2310b30d",
    );
}

/// One vector of Standard Webhooks.
#[track_caller]
fn check_webhook(secret: &str, id: &str, t: &str, body: &str, signature: &str) {
    let signed = sign("standard-webhooks", secret, &["--id", id, "--t", t], body);
    let lines =
        format!("webhook-id: {id}\nwebhook-timestamp: {t}\nwebhook-signature: {signature}\n");
    assert_eq!((signed.code, signed.stdout), (Some(0), lines));
    let options = ["--header", signature, "--id", id, "--timestamp", t, "--now", t];
    assert_eq!(verify("standard-webhooks", secret, &options, body).code, Some(0));
    for (at, without) in [(2, "id"), (4, "time")] {
        let mut fewer = options.to_vec();
        fewer.drain(at..at + 2);
        let refused = verify("standard-webhooks", secret, &fewer, body);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stdout.contains(without), "{refused:?}");
    }
}

#[test]
fn standard_webhooks_are_those_of_the_published_vectors() {
    check_webhook(
        BASE64_SECRET,
        "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W",
        "1674087231",
        CONTACT,
        "v1,w9hHmpilBM+ZH5TWiqTF2V+zZhky2nrY7iwP4o0rZI0=",
    );
    check_webhook(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "1614265330",
        r#"{"test": 2432232314}"#,
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    );
}

#[test]
fn of_two_signatures_one_has_to_match() {
    let header = "t=1760708872,\
        v1=d4d6875816cd611d52f5cde661ec2bdcf1a1dcbf76bb4acc30eb1211aad1c5e2,\
        v1=0003f4528fbbf0db485d73ad0bcdf6ffd0e765a914486fc0e4e258dfe0a05f8d";
    for (secret, code) in [(SECRET, 0), (OTHER_SECRET, 0), ("whsec_a_third_secret_0123456", 1)] {
        let options = ["--header", header, "--now", "1760708872"];
        assert_eq!(verify("bare-v1", secret, &options, SCAN).code, Some(code), "{secret}");
    }
}

#[track_caller]
fn is_not_valid(header: &str, now: &str, body: &str, why: &str) {
    let options = ["--header", header, "--now", now];
    let finished = verify("bare-v1", SECRET, &options, body);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stdout.starts_with("not valid: "), "{finished:?}");
    assert!(finished.stdout.contains(why), "{finished:?}");
}

#[test]
fn verify_says_why_a_signature_is_not_valid() {
    let good = "t=1760708872,v1=0003f4528fbbf0db485d73ad0bcdf6ffd0e765a914486fc0e4e258dfe0a05f8d";
    let upper = good.to_uppercase().replace("T=", "t=").replace("V1=", "v1=");
    is_not_valid(good, "1760708872", r#"{"scanId": "RX-4471"}"#, "no signature matches");
    is_not_valid(good, "1760709173", SCAN, "301 s off");
    is_not_valid(good, "1760708571", SCAN, "301 s off");
    is_not_valid(&good.replace("t=1760708872,", ""), "1760708872", SCAN, "the time is missing");
    is_not_valid("t=1760708872", "1760708872", SCAN, "no signature of this scheme");
    is_not_valid(&upper, "1760708872", SCAN, "");
    // Integers only: else the text `1.2` would pass for the time 1 and a body that begins with `2.`.
    let tricky = "t=1.2,v1=f8dd9c2b65b16cf861e98919a399256e31bed41c50b165bc392d54a47ae600e9";
    is_not_valid(tricky, "1", r#"{"a":1}"#, "plain decimal seconds");
}

#[test]
fn a_secret_that_cannot_be_used_is_named_by_its_file_only() {
    let cases =
        [("bare-v1", ""), ("bare-v1", " canary-with-a-space"), ("standard-webhooks", SECRET)];
    for (profile, secret) in cases {
        let finished = sign(profile, secret, &["--id", "msg_1"], SCAN);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""), "{finished:?}");
        assert!(finished.stderr.starts_with("sortie: the secret "), "{finished:?}");
    }
    let missing = run(["sign", "--profile", "bare-v1", "--secret-file", "/nowhere/secret"], SCAN);
    assert_eq!(missing.code, Some(1));
    assert_eq!(missing.stderr, "sortie: the secret file `/nowhere/secret` is not there\n");
}

#[tokio::test]
async fn a_new_key_works_by_its_digest() {
    let made = run(["key", "new"], "");
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let line = |name| {
        let line = made.stdout.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {made:?}"))
    };
    let (key, digest) = (line("key: "), line("sha256: "));
    assert_ne!(made.stdout, run(["key", "new"], "").stdout);

    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "7")));
    let keys = json!([{"name": "new", "scopes": ["agent:call"], "key": {"sha256": digest}}]);
    let config = world.config().tool(world.tool("lookup")).set("/auth/keys", keys).watch(key);
    let gateway = config.start().await;
    let body = json!({"tool": "lookup", "arguments": {}}).to_string();
    let reply = gateway.post(Some(key), &body).await;
    assert_eq!((reply.status, &reply.json()["result"]), (200, &json!(7)), "{}", reply.text());
    assert_eq!(gateway.post(Some(digest), &body).await.status, 401, "the digest is no key");
    gateway.finish().await;
}

#[tokio::test]
async fn probe_ready_tells_whether_calls_are_taken() {
    let gateway = ConfigBuilder::new().start().await;
    let address = gateway.telemetry().to_string();
    let ready = run(["probe", "ready", "--telemetry", &address], "");
    assert_eq!((ready.code, ready.stderr.as_str()), (Some(0), ""));
    gateway.finish().await;
    let gone = run(["probe", "ready", "--telemetry", &address], "");
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.starts_with(&format!("sortie: {address} does not answer: ")), "{gone:?}");
}

#[track_caller]
fn does_not_start(config: &ConfigBuilder, says: &[&str]) {
    let folder = config.write();
    let finished = run(["serve", "--config", folder.config.to_str().expect("a UTF-8 path")], "");
    assert_eq!(finished.code, Some(1), "{finished:?}");
    for text in says {
        assert!(finished.stderr.contains(text), "no {text:?} in {finished:?}");
    }
    let output = format!("{}{}", finished.stdout, finished.stderr);
    folder.canaries.assert_absent("the output of serve", &output);
}

#[test]
fn serve_says_why_it_does_not_start() {
    let missing = run(["serve", "--config", "/nowhere/sortie.yaml"], "");
    assert_eq!(missing.code, Some(1));
    let sentence = "sortie: the configuration file `/nowhere/sortie.yaml` cannot be read: ";
    assert!(missing.stderr.starts_with(sentence), "{missing:?}");

    let tool = Tool::new("lookup", "https://10.0.0.5/").secret(" canary-with-a-space");
    let invalid = ["the configuration is not valid:\n", "tools[0].url: 10.0.0.5 is a private"];
    does_not_start(&ConfigBuilder::new().tool(tool).set("/tool", json!([])), &invalid);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let place = taken.local_addr().expect("an address").to_string();
    let says = format!("the api listener cannot listen at {place}: ");
    does_not_start(&ConfigBuilder::new().set("/listeners/api/address", json!(place)), &[&says]);

    let tool = Tool::new("lookup", "https://shop.example.com/").set("secret", json!(null));
    let strict = ConfigBuilder::new()
        .tool(tool)
        .set("/tools/0/secret", json!({"current": {"env": "SORTIE_TEST_IS_NOT_SET"}}))
        .set("/strict", json!(true));
    does_not_start(&strict, &["variable `SORTIE_TEST_IS_NOT_SET` is not there"]);
}
