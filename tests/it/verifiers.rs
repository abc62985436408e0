//! The verifiers that authors of tool servers are given, run against requests as they were captured.

#[expect(unreachable_pub, reason = "it is written for the crates of others")]
#[path = "../../deploy/verifiers/verify.rs"]
mod shipped;

use std::path::Path;
use std::process::{Command, Stdio};

use regex::Regex;
use serde_json::{Value, json};

use crate::support::config::SECRET;
use crate::support::languages::{good, runs};
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
    arguments: &'static [&'static str],
    file: &'static str,
    /// What the verifier is called where it is run, and the files beside it; the last one is what the command runs.
    stands_as: &'static str,
    beside: &'static [(&'static str, &'static str)],
}

const PYTHON: Language = Language {
    command: "python3",
    arguments: &["driver.py"],
    file: "verify.py",
    stands_as: "verify.py",
    beside: &[(
        "driver.py",
        "import json, sys, time\nfrom verify import verify\n\
         def ask(c):\n    time.time = lambda: c['now']\n    \
         return verify(c['secret'], c['header'], c['body'].encode())\n\
         print(json.dumps([ask(c) for c in json.load(sys.stdin)]))\n",
    )],
};

const NODE: Language = Language {
    command: "node",
    arguments: &["driver.mjs"],
    file: "verify.ts",
    stands_as: "verify.mjs",
    beside: &[(
        "driver.mjs",
        "import { readFileSync } from 'node:fs';\nimport { verify } from './verify.mjs';\n\
         const cases = JSON.parse(readFileSync(0, 'utf8'));\n\
         const ask = (c) => {\n  Date.now = () => c.now * 1000;\n  \
         return verify(c.secret, c.header, Buffer.from(c.body));\n};\n\
         console.log(JSON.stringify(cases.map(ask)));\n",
    )],
};

const GO: Language = Language {
    command: "go",
    arguments: &["run", "."],
    file: "verify.go",
    stands_as: "verify/verify.go",
    beside: &[
        ("go.mod", "module driver\n\ngo 1.18\n"),
        (
            "main.go",
            "package main\n\nimport (\n\t\"driver/verify\"\n\t\"encoding/json\"\n\t\"os\"\n)\n\n\
             func main() {\n\tvar cases []struct {\n\t\tSecret, Header, Body string\n\t\tNow int64\n\t}\n\
             \tif err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {\n\t\tpanic(err)\n\t}\n\
             \tanswers := []bool{}\n\tfor _, c := range cases {\n\
             \t\tanswers = append(answers, verify.Verify(c.Secret, c.Header, []byte(c.Body), c.Now, 300))\n\
             \t}\n\tjson.NewEncoder(os.Stdout).Encode(answers)\n}\n",
        ),
    ],
};

fn source(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/verifiers");
    std::fs::read_to_string(folder.join(file)).expect("the verifier is shipped")
}

impl Language {
    /// Writes verifier and driver into a folder. Types are taken out, since not every node reads them; that they are right is
    /// the compiler's to say, in the tests of the clients.
    fn write(&self, folder: &Path) {
        let types = Regex::new(r": (string|number|boolean|Buffer)\b").expect("a pattern");
        let source = match self.command {
            "node" => types.replace_all(&source(self.file), "").into_owned(),
            _ => source(self.file),
        };
        for (name, text) in self.beside.iter().copied().chain([(self.stands_as, source.as_str())]) {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a written file");
        }
    }

    /// The answers; none where the language is not installed.
    fn ask(&self, cases: &[Case]) -> Option<Vec<bool>> {
        // `go` has no --version.
        let version = if self.command == "go" { "version" } else { "--version" };
        if !runs(self.command, &[version]) {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        self.write(folder.path());
        let questions: Vec<Value> = cases
            .iter()
            .map(|one| {
                json!({"secret": one.secret, "header": one.header, "body": one.body, "now": one.now})
            })
            .collect();
        let input = folder.path().join("questions.json");
        std::fs::write(&input, json!(questions).to_string()).expect("a written file");
        let output = Command::new(self.command)
            .args(self.arguments)
            .current_dir(folder.path())
            // What a build keeps stays out of the home; nothing is fetched.
            .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
            .env("GOFLAGS", "-mod=mod")
            .env("GOPROXY", "off")
            .stdin(std::fs::File::open(input).expect("a file"))
            .stdout(Stdio::piped())
            .output()
            .expect("it ran before");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", self.command);
        Some(serde_json::from_slice(&output.stdout).expect("a list of Booleans"))
    }
}

fn check_rust(cases: &[Case]) {
    for case in cases {
        let now = u64::try_from(case.now).expect("a time after 1970");
        let answer = shipped::verify(&case.secret, &case.header, case.body.as_bytes(), now, 300);
        assert_eq!(answer, case.good, "verify.rs: {} ({})", case.what, case.header);
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
    assert_eq!(dotted, "f8dd9c2b65b16cf861e98919a399256e31bed41c50b165bc392d54a47ae600e9");
    let vector = |what, secret: &str, now: i64, body: &str, v1: &str| Case {
        secret: secret.to_owned(),
        body: body.to_owned(),
        now,
        ..case(what, format!("t={now},v1={v1}"), true)
    };
    vec![
        vector(
            "white space in the body",
            SECRET,
            T,
            r#"{ "scanId": "RX-4471" }"#,
            "80e1cf680ba535c6339ba8075021c54de5c5e9e6eff7a46095ca3d9bbe9c2131",
        ),
        vector(
            "an envelope",
            SECRET,
            1_793_354_102,
            r#"{"tool":"lookup_order","call_id":"call_8f2c","arguments":{"order_number":"A-1042"},"agent_id":"0193b1e2-6c1d-7a4e-9f20-5d8a3c2b1e07","session_id":"0193b2f0","turn_id":"0193b2f1","end_user":{"id":"eu_7GqT2mXcV9pLs4Hd","external_id":"cust-77"},"test":false,"sent_at":"2026-10-30T09:55:02.000Z"}"#,
            "b1d30c7312238bf6d2c506ea9c7ac473a1908760f34b766bdc57813cc9a3953b",
        ),
        vector(
            "no body",
            SECRET,
            1_793_354_102,
            "",
            "b01c6aacb30f87099d4a035dd98b0b8aae34c1659f55a2b9e632b674ae29afaa",
        ),
        vector("a dot in the body", SECRET, 1, r#"2.{"a":1}"#, &dotted),
        vector(
            "the other key",
            OLD,
            T,
            BODY,
            "d4d6875816cd611d52f5cde661ec2bdcf1a1dcbf76bb4acc30eb1211aad1c5e2",
        ),
        vector(
            "a key longer than the hash's block",
            &"k".repeat(100),
            T,
            BODY,
            "97ed422faab897db26780264ceb57e5cc60a4e4c3e50aef4fa245c1f2310b30d",
        ),
        Case {
            secret: String::new(),
            ..case("no secret at all", format!("t={t},v1={}", digest("", &t, BODY)), false)
        },
        case("an empty time", format!("t=,v1={}", digest(SECRET, "", BODY)), false),
        case(
            "more digits than a time has",
            format!("t=0000{t},v1={}", digest(SECRET, &format!("0000{t}"), BODY)),
            false,
        ),
        case(
            "a time with a line end",
            format!("t={t}\n,v1={}", digest(SECRET, &format!("{t}\n"), BODY)),
            false,
        ),
        case("digits of another script", format!("t=１７６０７０８８７２,v1={new}"), false),
        case("a space before the signature", format!("t={t}, v1={new}"), false),
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
        case("more after the time", format!("t={t}=1,v1={new}"), false),
        case("more after the signature", format!("t={t},v1={new}=1"), false),
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
fn the_python_verifier_refuses_bytes_that_are_no_text() {
    if !runs("python3", &["--version"]) {
        return;
    }
    // Servers hand such a byte on as half a character, which cannot be encoded.
    let ask = "from verify import verify\nimport time\n\
               print(verify('a secret', f't={int(time.time())},v1=\\udcff', b''))";
    let mut python = Command::new("python3");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/verifiers");
    let output = good(python.args(["-B", "-c", ask]).current_dir(folder));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "False\n");
}

#[test]
fn the_typescript_verifier_knows_right_from_wrong() {
    check(&NODE, &cases());
}

#[test]
fn the_go_verifier_knows_right_from_wrong() {
    check(&GO, &cases());
}

#[test]
fn the_rust_verifier_knows_right_from_wrong() {
    check_rust(&cases());
}

#[tokio::test]
async fn all_accept_what_the_gateway_sends() {
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
    [PYTHON, NODE, GO].iter().for_each(|language| check(language, &cases));
    check_rust(&cases);
}

#[test]
fn the_readme_shows_what_is_shipped() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).expect("a README");
    for (file, begins) in [
        ("verify.py", "import "),
        ("verify.ts", "import "),
        ("verify.go", "var "),
        ("verify.rs", "use "),
    ] {
        let source = source(file);
        let begin = source.find(begins).expect("code");
        assert!(readme.contains(&source[begin..]), "{file}");
    }
}
