//! The verifiers that authors of tool servers are given, run against requests as they were captured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::{Value, json};

use crate::support::config::SECRET;
use crate::support::receiver::{hex, hmac};
use crate::support::script::{Script, answer};
use crate::support::world::World;

const OLD: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";
const T: i64 = 1_760_708_872;
const BODY: &str = r#"{"scanId":"RX-4471"}"#;

/// One question to a verifier, and the right answer.
struct Case {
    what: &'static str,
    secret: String,
    header: String,
    body: String,
    now: i64,
    good: bool,
}

/// A language: how a verifier in it is asked all questions at once. It prints a JSON list of Booleans.
struct Language {
    command: &'static str,
    file: &'static str,
    driver: &'static str,
}

const PYTHON: Language = Language {
    command: "python3",
    file: "verify.py",
    driver: "import json, sys, time\nfrom verify import verify\n\
             def ask(c):\n    time.time = lambda: c['now']\n    \
             return verify(c['secret'], c['header'], c['body'].encode())\n\
             print(json.dumps([ask(c) for c in json.load(sys.stdin)]))\n",
};

const NODE: Language = Language {
    command: "node",
    file: "verify.ts",
    driver: "import { readFileSync } from 'node:fs';\nimport { verify } from './verify.mjs';\n\
             const cases = JSON.parse(readFileSync(0, 'utf8'));\n\
             const ask = (c) => {\n  Date.now = () => c.now * 1000;\n  \
             return verify(c.secret, c.header, Buffer.from(c.body));\n};\n\
             console.log(JSON.stringify(cases.map(ask)));\n",
};

impl Language {
    fn source(&self) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/verifiers");
        std::fs::read_to_string(folder.join(self.file)).expect("the verifier is shipped")
    }

    /// Writes verifier and driver into a folder; the driver's path. Types are taken out, since not every node reads them.
    fn write(&self, folder: &Path) -> PathBuf {
        let (verifier, driver) = match self.command {
            "node" => ("verify.mjs", "driver.mjs"),
            _ => ("verify.py", "driver.py"),
        };
        let types = Regex::new(r": (string|number|boolean|Buffer)\b").expect("a pattern");
        let source = match self.command {
            "node" => types.replace_all(&self.source(), "").into_owned(),
            _ => self.source(),
        };
        std::fs::write(folder.join(verifier), source).expect("a written file");
        std::fs::write(folder.join(driver), self.driver).expect("a written file");
        folder.join(driver)
    }

    /// The answers; none where the language is not installed.
    fn ask(&self, cases: &[Case]) -> Option<Vec<bool>> {
        let found = Command::new(self.command).arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: `{}` is not installed, so {} cannot run", self.command, self.file);
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let driver = self.write(folder.path());
        let questions: Vec<Value> = cases
            .iter()
            .map(|one| {
                json!({"secret": one.secret, "header": one.header, "body": one.body, "now": one.now})
            })
            .collect();
        let input = folder.path().join("questions.json");
        std::fs::write(&input, json!(questions).to_string()).expect("a written file");
        let output = Command::new(self.command)
            .arg(driver)
            .stdin(std::fs::File::open(input).expect("a file"))
            .stdout(Stdio::piped())
            .output()
            .expect("it ran before");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", self.command);
        Some(serde_json::from_slice(&output.stdout).expect("a list of Booleans"))
    }
}

fn check(language: &Language, cases: &[Case]) {
    let Some(answers) = language.ask(cases) else { return };
    assert_eq!(answers.len(), cases.len());
    for (case, answer) in cases.iter().zip(answers) {
        assert_eq!(answer, case.good, "{}: {} ({})", language.file, case.what, case.header);
    }
}

fn digest(secret: &str, t: &str, body: &str) -> String {
    hex(&hmac(secret.as_bytes(), format!("{t}.{body}").as_bytes()))
}

/// The vectors and the traps of a `t=…,v1=…` header.
fn cases() -> Vec<Case> {
    let t = T.to_string();
    let (new, old) = (digest(SECRET, &t, BODY), digest(OLD, &t, BODY));
    assert_eq!(new, "0003f4528fbbf0db485d73ad0bcdf6ffd0e765a914486fc0e4e258dfe0a05f8d");
    let case = |what, header: String, good| {
        let (secret, body) = (SECRET.to_owned(), BODY.to_owned());
        Case { what, secret, header, body, now: T, good }
    };
    let good = || format!("t={t},v1={new}");
    let moved = |what, by: i64, good_then| Case { now: T + by, ..case(what, good(), good_then) };
    let dotted = digest(SECRET, "1", r#"2.{"a":1}"#);
    vec![
        case("a good one", good(), true),
        moved("299 s old", 299, true),
        moved("300 s old", 300, true),
        moved("301 s old", 301, false),
        moved("299 s ahead", -299, true),
        moved("301 s ahead", -301, false),
        case("two keys, ours last", format!("t={t},v1={old},v1={new}"), true),
        case("two keys, ours first", format!("t={t},v1={new},v1={old}"), true),
        case("somebody else's", format!("t={t},v1={old}"), false),
        case("one digit off", format!("t={t},v1=1{}", &new[1..]), false),
        case("upper case", format!("t={t},v1={}", new.to_uppercase()), false),
        case("cut off", format!("t={t},v1={}", &new[..63]), false),
        case("no signature", format!("t={t}"), false),
        case("an empty signature", format!("t={t},v1="), false),
        case("another version", format!("t={t},v0={new}"), false),
        case("no time", format!("v1={new}"), false),
        case("two times", format!("t={t},t={t},v1={new}"), false),
        case("a signed time", format!("t=+{t},v1={new}"), false),
        case("no header", String::new(), false),
        case("not ASCII", format!("t={t},v1=é"), false),
        Case { body: "{}".into(), ..case("another body", good(), false) },
        Case { secret: OLD.into(), ..case("another secret", good(), false) },
        Case {
            body: "{\"name\":\"Zoë – 📦\"}\n".into(),
            secret: "whsec_kéy".into(),
            now: 1_793_354_102,
            ..case(
                "text beyond ASCII",
                "t=1793354102,v1=ff8db2ce55d625e4b709ed15284b2c63d5d4c3dfb48254f9a80acfffb95ecc5c"
                    .into(),
                true,
            )
        },
        Case {
            body: r#"{"a":1}"#.into(),
            now: 1,
            ..case("a time that is no integer", format!("t=1.2,v1={dotted}"), false)
        },
    ]
}

#[test]
fn the_python_verifier_knows_right_from_wrong() {
    check(&PYTHON, &cases());
}

#[test]
fn the_typescript_verifier_knows_right_from_wrong() {
    check(&NODE, &cases());
}

#[tokio::test]
async fn both_accept_what_the_gateway_sends() {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", "{}")));
    let gateway = world
        .config()
        .tool(world.tool("bare").profile("bare-v1").parameters(json!({"type": "object"})))
        .tool(world.tool("wrapped"))
        .tool(world.tool("changing"))
        .file("secrets/old", OLD)
        .watch(OLD)
        .set("/tools/2/secret/previous", json!({"file": "secrets/old"}))
        .start()
        .await;
    let mut cases = Vec::new();
    for (tool, header, secrets) in [
        ("bare", "CL-Signature", &[SECRET][..]),
        ("wrapped", "X-Tool-Signature", &[SECRET]),
        ("changing", "X-Tool-Signature", &[SECRET, OLD]),
    ] {
        gateway.call(tool, json!({"name": "Zoë – 📦", "n": 1})).await.succeeded();
        let request = world.upstream.requests().pop().expect("a request");
        let header = request.header(header).expect("a signature").to_owned();
        let t = header["t=".len()..].split(',').next().expect("a time");
        let t: i64 = t.parse().expect("seconds");
        let body = String::from_utf8(request.body).expect("UTF-8");
        for secret in [SECRET, OLD] {
            for (now, in_time) in [(t, true), (t + 299, true), (t + 301, false)] {
                let (header, body, secret) = (header.clone(), body.clone(), secret.to_owned());
                let good = in_time && secrets.contains(&secret.as_str());
                cases.push(Case { what: tool, secret, header, body, now, good });
            }
        }
    }
    gateway.finish().await;
    check(&PYTHON, &cases);
    check(&NODE, &cases);
}

#[test]
fn the_readme_shows_what_is_shipped() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("a README");
    for language in [PYTHON, NODE] {
        let source = language.source();
        let begin = source.find("import ").expect("code");
        assert!(readme.contains(&source[begin..]), "{}", language.file);
    }
}
