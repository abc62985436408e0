//! `sortie try`: what it shows of a call, and that it tells apart servers that verify, that do not, and that take old requests.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::certs::Authority;
use crate::support::cli::{Finished, run};
use crate::support::config::SECRET;
use crate::support::receiver::{hex, hmac, signed_at};
use crate::support::script::{Script, answer};
use crate::support::upstream::{Request, Upstream};

const ARGUMENTS: &str = r#"{"order_number":"A-1042"}"#;
/// What a server may find too old, in seconds.
const TOLERANCE: u64 = 300;

/// Files for one run.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }
}

/// Runs `sortie try` with the secret; whatever it prints, the secret is not in it.
fn attempt(url: &str, profile: &str, secret: &str, more: &[&str]) -> Finished {
    let files = Files::new();
    let file = files.write("secret", &format!("{secret}\n"));
    let arguments = ["try", url, "--profile", profile, "--secret-file", &file, ARGUMENTS];
    // The command waits for servers of this test, which have other threads.
    let finished = tokio::task::block_in_place(|| run(arguments.iter().chain(more), ""));
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    assert!(!printed.contains(secret) && !printed.contains(&secret[6..]), "{printed}");
    finished
}

#[track_caller]
fn ended(finished: &Finished, code: i32, said: &str) {
    assert_eq!(finished.code, Some(code), "{finished:#?}");
    let printed = format!("{}{}", finished.stdout, finished.stderr);
    assert!(printed.contains(said), "no {said:?} in\n{printed}");
}

fn json(status: u16) -> Vec<u8> {
    answer(status, "application/json", r#"{"status":"shipped"}"#)
}

fn is_fresh(t: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    t.unsigned_abs().abs_diff(now) <= TOLERANCE
}

/// Answers 200 to what this says is right, else 401.
async fn server(is_right: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Upstream {
    let upstream = Upstream::plain().await;
    upstream.default(Script::responding(move |request| {
        json(if is_right(request) { 200 } else { 401 })
    }));
    upstream
}

#[tokio::test(flavor = "multi_thread")]
async fn three_servers_are_told_apart() {
    for (profile, header) in [("envelope-v1", "X-Tool-Signature"), ("bare-v1", "CL-Signature")] {
        let signed = move |request: &Request| signed_at(request, header, SECRET);
        let verifies = server(move |request| signed(request).is_some_and(is_fresh)).await;
        let trusts = server(|_| true).await;
        let takes_old = server(move |request| signed(request).is_some()).await;
        for (server, code, said) in [
            (&verifies, 0, "The server verifies: it refused a wrong signature and a stale time."),
            (&trusts, 3, "The server does not verify: it accepted a wrong signature"),
            (&takes_old, 3, "The server does not look at the time: it accepted a request"),
        ] {
            let url = server.url("127.0.0.1", "/tools/lookup-order");
            let finished = attempt(&url, profile, SECRET, &["--allow-loopback"]);
            ended(&finished, code, said);
            assert_eq!(finished.stderr, "");
            let requests = server.requests();
            let right: Vec<_> = requests.iter().map(|one| signed(one).map(is_fresh)).collect();
            assert_eq!(right, [Some(true), None, Some(false)], "{finished:#?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_are_shown_as_they_were() {
    let server = server(|_| true).await;
    let url = server.url("127.0.0.1", "/tools/lookup-order?region=eu");
    let finished = attempt(&url, "envelope-v1", SECRET, &["--allow-loopback", "--tool", "lookup"]);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for request in &requests {
        let raw = String::from_utf8(request.raw()).expect("UTF-8");
        let shown: String = raw.lines().map(|line| format!("    {line}\n")).collect();
        assert!(finished.stdout.contains(shown.replace("    \n", "\n").as_str()), "{finished:#?}");
        let body = request.json();
        assert_eq!((&body["tool"], &body["test"]), (&"lookup".into(), &true.into()));
    }
    let answered = "    HTTP/1.1 200 Scripted\n    Content-Type: application/json\n";
    assert_eq!(finished.stdout.matches(answered).count(), 3, "{finished:#?}");
    assert_eq!(finished.stdout.matches("    {\"status\":\"shipped\"}\n").count(), 3);
    let ids: std::collections::BTreeSet<_> =
        requests.iter().map(|request| request.header("X-Tool-Call").expect("an id")).collect();
    assert_eq!(ids.len(), 3, "no answer to one is an answer to another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_ends_it() {
    let refuses = server(|_| false).await;
    let url = refuses.url("127.0.0.1", "/");
    let finished = attempt(&url, "envelope-v1", SECRET, &["--allow-loopback"]);
    ended(&finished, 1, "It may have another secret");
    refuses.only_request();
    let nobody = Upstream::plain().await;
    let url = nobody.url("127.0.0.1", "/");
    drop(nobody);
    let finished = attempt(&url, "envelope-v1", SECRET, &["--allow-loopback"]);
    ended(&finished, 1, "FAILED: The tool's server could not be reached. (");
    ended(&finished, 1, "Nothing was sent.");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_profile_does_not_sign_is_not_asked_for() {
    let plain = server(|_| true).await;
    let url = plain.url("127.0.0.1", "/");
    let arguments = ["try", &url, "--profile", "plain-v1", "--allow-loopback", ARGUMENTS];
    let finished = tokio::task::block_in_place(|| run(arguments, ""));
    ended(&finished, 0, "The profile signs nothing");
    assert_eq!(plain.only_request().body, ARGUMENTS.as_bytes());

    let own = "name: hub\nnames: '^[a-z]+$'\nschema: full\npolicy: deny\n\
               timeout: {default: 10s, min: 1s, max: 60s}\nresult_max_bytes: 64KiB\n\
               retry: {attempts: 1}\nheaders:\n  - {name: Host, value: $host}\n\
               \x20 - {name: X-Hub-Signature-256, value: $signature}\n  - $own\n\
               \x20 - {name: Content-Length, value: $content_length}\nbody: $arguments\n\
               signature: {signed: '{body}', key: text, digest: hex, value: 'sha256={digest}'}\n";
    let files = Files::new();
    let profile = format!("@{}", files.write("hub.yaml", own));
    let verifies = server(|request| {
        let right = format!("sha256={}", hex(&hmac(SECRET.as_bytes(), &request.body)));
        request.header("X-Hub-Signature-256") == Some(&right)
    })
    .await;
    let url = verifies.url("127.0.0.1", "/");
    let finished = attempt(&url, &profile, SECRET, &["--allow-loopback"]);
    ended(&finished, 0, "The profile signs no time, so there is no stale one to refuse.");
    assert_eq!(verifies.requests().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_judged_as_in_a_gateway() {
    let forbidden = Upstream::forbidden_at(([127, 0, 0, 1], 0).into()).await;
    let port = forbidden.port();
    let here = format!("https://127.0.0.1:{port}/");
    let finished = attempt(&here, "envelope-v1", SECRET, &[]);
    ended(&finished, 1, "URL: 127.0.0.1 is a loopback address");
    ended(&finished, 1, "called with --allow-loopback");
    let http = format!("http://127.0.0.1:{port}/");
    ended(&attempt(&http, "envelope-v1", SECRET, &[]), 1, "URL: ");
    let named = format!("http://localhost:{port}/");
    ended(&attempt(&named, "envelope-v1", SECRET, &["--allow-loopback"]), 1, "localhost");
    let private = "https://10.0.0.5/";
    ended(&attempt(private, "envelope-v1", SECRET, &["--allow-loopback"]), 1, "10.0.0.5");
    let metadata = "http://169.254.169.254/";
    ended(&attempt(metadata, "envelope-v1", SECRET, &["--allow-loopback"]), 1, "169.254.169.254");
    forbidden.assert_untouched().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_checked_against_the_given_roots() {
    let authority = Authority::new();
    let upstream = Upstream::tls(&authority.leaf(&["127.0.0.1"])).await;
    upstream.default(Script::responding(|request| {
        let t = signed_at(request, "X-Tool-Signature", SECRET);
        json(if t.is_some_and(is_fresh) { 200 } else { 403 })
    }));
    let url = upstream.url("127.0.0.1", "/");
    assert!(url.starts_with("https://"), "{url}");
    let files = Files::new();
    let ca = files.write("ca.pem", &authority.pem());
    let trusted = attempt(&url, "envelope-v1", SECRET, &["--allow-loopback", "--ca", &ca]);
    ended(&trusted, 0, "The server verifies");
    let untrusted = attempt(&url, "envelope-v1", SECRET, &["--allow-loopback"]);
    ended(&untrusted, 1, "certificate");
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_typed_wrong_is_said_by_its_option() {
    let url = "https://shop.example.com/";
    let usage = |arguments: &[&str], code: i32, said: &str| {
        ended(&run(["try", url].iter().chain(arguments), ""), code, said);
    };
    usage(&["--profile", "bare-v1", "{}"], 2, "the profile `bare-v1` signs, give --secret-file");
    usage(&["--profile", "plain-v1", "[1]"], 2, "must be a JSON object");
    usage(&["--profile", "plain-v1", "@/nowhere"], 2, "`/nowhere` cannot be read");
    usage(&["--profile", "none", "{}"], 1, "--profile: ");
    usage(&["--profile", "none", "{}"], 1, "bare-v1");
    usage(&["--profile", "@/nowhere", "{}"], 1, "the profile file `/nowhere` cannot be read");
    usage(&["--profile", "bare-v1", "--secret-file", "/nowhere", "{}"], 1, "--secret-file: ");
    usage(&["--profile", "plain-v1", "--tool", "No", "{}"], 1, "--tool: ");
    usage(&["--profile", "plain-v1"], 2, "ARGS");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_used_is_a_failed_call_and_an_accepted_one() {
    let picture = Upstream::plain().await;
    picture.default(Script::responding(|_| answer(200, "image/png", "a")));
    let url = picture.url("127.0.0.1", "/");
    let arguments = ["try", &url, "--profile", "plain-v1", "--allow-loopback", ARGUMENTS];
    let finished = tokio::task::block_in_place(|| run(arguments, ""));
    ended(&finished, 1, "The call failed, so nothing more was tried.");
    let odd = Upstream::plain().await;
    odd.default(Script::responding(|request| {
        let right = signed_at(request, "X-Tool-Signature", SECRET).is_some_and(is_fresh);
        if right { json(200) } else { answer(200, "image/png", "a") }
    }));
    let finished =
        attempt(&odd.url("127.0.0.1", "/"), "envelope-v1", SECRET, &["--allow-loopback"]);
    ended(&finished, 3, "ACCEPTED with 200: it must not be.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_for_a_while_is_not_taken_for_one_that_verifies() {
    let away = Upstream::plain().await;
    away.default(Script::responding(|request| {
        let right = signed_at(request, "X-Tool-Signature", SECRET).is_some_and(is_fresh);
        json(if right { 200 } else { 503 })
    }));
    let finished =
        attempt(&away.url("127.0.0.1", "/"), "envelope-v1", SECRET, &["--allow-loopback"]);
    ended(&finished, 1, "whether the server verifies could not be told");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_s_file_is_a_profile_and_nothing_else() {
    let files = Files::new();
    let profile = files.write("a.yaml", "name: hub\rtools: []\r");
    let profile = format!("@{profile}");
    let arguments =
        ["try", "https://shop.example.com/", "--profile", &profile, "--tool", "a", ARGUMENTS];
    let finished = tokio::task::block_in_place(|| run(arguments, ""));
    ended(&finished, 1, "profiles[0].tools: ");
}
