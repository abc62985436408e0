//! The gateway as a process: it is told to stop (rows 136 to 138), its clock jumps (151), it is frozen (152).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::faults::proof::{Fault, RUN, prove_while};
use crate::faults::tls_by_tools::move_clock;
use crate::support::cli::sortie;
use crate::support::config::{API_KEY, ConfigBuilder, Tool};
use crate::support::dns::Answer;
use crate::support::gateway::Gateway;
use crate::support::http::{RawClient, post};
use crate::support::script::{Script, answer};
use crate::support::wait::{Signal, poll, together, within};
use crate::support::world::World;

/// How many calls run when the end is asked for.
const CALLS: usize = 50;

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

/// A runtime that posts a call and waits for the answer.
async fn runtime(gateway: &Gateway, tool: &str, call_id: &str) -> RawClient {
    gateway.open_call(tool, call_id, json!({"run_id": RUN, "step": call_id})).await
}

/// Fifty of them, whose calls the tool's server has.
async fn fifty(world: &World, gateway: &Gateway, tool: &str) -> Vec<RawClient> {
    let before = world.upstream.requests().len();
    let ids: Vec<_> = (0..CALLS).map(|n| format!("call_running{n}")).collect();
    let clients = together(ids.iter().map(|id| runtime(gateway, tool, id))).await;
    world.upstream.wait_for_requests(before + CALLS).await;
    clients
}

/// Every one of them has its result, and one line of its own in what the gateway has written to its end.
async fn fifty_succeed(clients: Vec<RawClient>, gateway: Gateway) {
    for mut client in clients {
        let reply = client.read_reply().await;
        assert_eq!((reply.status, &reply.json()["status"]), (200, &json!("succeeded")));
        assert_eq!(reply.header("connection"), Some("close"));
    }
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    assert!(finished.stderr.is_empty(), "{finished:#?}");
    for n in 0..CALLS {
        let id = format!("\"call_running{n}\"");
        let logged = finished.stdout.lines().filter(|line| line.contains(&id));
        let logged: Vec<_> = logged.filter(|line| line.contains(r#""code":"ok""#)).collect();
        assert_eq!(logged.len(), 1, "{id}: {finished:#?}");
    }
    assert!(!finished.stdout.contains("did not finish in time"), "{finished:#?}");
    assert!(finished.stdout.ends_with('}'), "the last line is whole: {finished:#?}");
}

/// Waits until the drain has begun.
async fn draining(gateway: &Gateway) {
    poll("/readyz to say 503", || async {
        (gateway.probe("/readyz").await.status == 503).then_some(())
    })
    .await;
}

/// A whole call of the tool, on a connection that may be kept.
fn kept_call(tool: &str, step: &str) -> Vec<u8> {
    let body = json!({"tool": tool, "arguments": {}, "run_id": RUN, "step": step});
    let request = post("/v1/calls", Some(API_KEY), body.to_string());
    let text = String::from_utf8(request).expect("a request of text");
    text.replace("Connection: close\r\n", "").into_bytes()
}

#[tokio::test]
async fn f136_a_sidecar_that_is_told_to_stop_finishes_its_calls_and_takes_no_other() {
    let world = World::tls().await;
    let go = Signal::new();
    world.upstream.default(Script::new().request().wait(&go).send(ok()).stall());
    world.upstream.next(Script::once(ok()));
    // Nobody waits for the grace: it is only as long as the calls.
    let config = world.config().set("/shutdown", json!({"accept_for": "0s", "grace": "600s"}));
    let mut gateway = config.tool(world.tool("running")).start().await;
    let mut idle = RawClient::connect(gateway.api()).await;
    idle.write(&kept_call("running", "idle")).await;
    assert_eq!(idle.read_reply().await.status, 200);
    let clients = fifty(&world, &gateway, "running").await;
    // One of the runtimes does not wait, and its call is finished all the same.
    let orphan = runtime(&gateway, "running", "call_orphan1").await;
    world.upstream.wait_for_requests(CALLS + 2).await;
    drop(orphan);

    gateway.terminate();
    assert!(idle.read_to_end().await.is_empty(), "an idle connection is closed at once");
    draining(&gateway).await;
    assert_eq!(gateway.probe("/livez").await.status, 200);
    assert_eq!(gateway.metrics().await.value("sortie_draining", &[]), 1.0);
    // Who comes now is told to go elsewhere.
    for step in ["late1", "late2"] {
        let mut late = RawClient::connect(gateway.api()).await;
        late.write(&kept_call("running", step)).await;
        let reply = late.read_reply().await;
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("draining")));
        assert_eq!(reply.header("connection"), Some("close"));
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert!(late.read_to_end().await.is_empty());
    }
    go.fire();
    gateway.call_line("call_orphan1").await;
    fifty_succeed(clients, gateway).await;
}

#[tokio::test]
async fn f136_a_shared_gateway_takes_calls_for_a_while_after_it_was_told_to_stop() {
    let world = World::tls().await;
    let go = Signal::new();
    world.upstream.default(Script::always(ok()));
    for _ in 0..CALLS {
        world.upstream.next(Script::new().request().wait(&go).send(ok()).stall());
    }
    let config = world.config().set("/shutdown", json!({"accept_for": "2s", "grace": "600s"}));
    let config = config.tool(world.tool("running")).tool(world.tool("later"));
    let mut gateway = config.start().await;
    let clients = fifty(&world, &gateway, "running").await;
    let mut kept = RawClient::connect(gateway.api()).await;
    kept.write(&kept_call("later", "kept1")).await;
    assert_eq!(kept.read_reply().await.header("connection"), None);

    gateway.terminate();
    draining(&gateway).await;
    // Who keeps a connection is led elsewhere, and loses no call.
    kept.write(&kept_call("later", "kept2")).await;
    let last = kept.read_reply().await;
    assert_eq!((last.status, last.header("connection")), (200, Some("close")));
    // Load balancers hear of it late: each call is taken, until those that come are told to go elsewhere.
    let mut taken = 0;
    within("calls to be taken no more", async {
        loop {
            let reply = gateway.call("later", json!({})).await;
            if reply.0.status == 503 {
                assert_eq!(reply.at("/error/code"), json!("draining"));
                break;
            }
            assert_eq!(reply.succeeded(), json!(1));
            taken += 1;
        }
    })
    .await;
    assert!(taken > 0, "calls are taken for two seconds");
    go.fire();
    fifty_succeed(clients, gateway).await;
}

#[tokio::test]
async fn f136_a_gateway_that_is_told_to_stop_while_it_starts_ends_in_order() {
    let folder = ConfigBuilder::new().write();
    let text = std::fs::read_to_string(&folder.config).expect("a file");
    std::fs::remove_file(&folder.config).expect("a file");
    // The start stands still where it reads this.
    let made = std::process::Command::new("mkfifo").arg(&folder.config).status();
    assert!(made.expect("`mkfifo` starts").success());
    let mut command = sortie();
    command.arg("serve").arg("--config").arg(&folder.config);
    let output = std::process::Stdio::piped;
    let mut child = command.stdout(output()).stderr(output()).spawn().expect("the binary starts");
    let config = folder.config.clone();
    // It opens when the gateway opens it, which is after its first instruction.
    let pipe = tokio::task::spawn_blocking(move || std::fs::File::create(config));
    let pipe = within("the gateway to read its configuration", pipe).await.expect("no panic");
    let mut kill = std::process::Command::new("kill");
    let told = kill.arg("-TERM").arg(child.id().to_string()).status();
    assert!(told.expect("`kill` starts").success());
    // What it reads after this is an ordinary file.
    folder.replace("sortie.yaml", &text);
    std::io::Write::write_all(&mut pipe.expect("a pipe"), text.as_bytes()).expect("written");
    let ended = poll("the gateway to end", || {
        let ended = child.try_wait().expect("a child of ours");
        async move { ended }
    })
    .await;
    let output = child.wait_with_output().expect("its output");
    assert_eq!(ended.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[tokio::test]
async fn f137_a_call_longer_than_the_grace_is_cut_off_with_its_outcome_open() {
    let world = World::tls().await;
    let (held, arrived) = (Signal::new(), Signal::new());
    world.upstream.default(Script::new().request().fire(&arrived).stall());
    let config = world.config().set("/shutdown", json!({"grace": "300ms"}));
    // The second tool has a name of its own, whose lookup never ends.
    let other = Tool::new("unsent", "https://unsent.example.com/");
    world.dns.script("unsent.example.com", vec![Answer::lines(&[]).held(&held)]);
    let config = config.set("/dns/timeout", json!("30s"));
    let mut gateway = config.tool(world.tool("hanging")).tool(other).start().await;
    let mut sent = runtime(&gateway, "hanging", "call_hanging1").await;
    let mut unsent = runtime(&gateway, "unsent", "call_unsent1").await;
    arrived.fired().await;
    world.dns.wait_for_questions(4).await;

    let told = Instant::now();
    gateway.terminate();
    let (sent, unsent) = (sent.read_reply().await.json(), unsent.read_reply().await.json());
    let finished = gateway.ended().await;
    assert!(told.elapsed() < Duration::from_secs(5), "it took {:?}", told.elapsed());

    assert_eq!(finished.code, Some(0), "{finished:#?}");
    let error =
        |reply: &Value| ["code", "outcome", "retryable"].map(|field| reply["error"][field].clone());
    assert_eq!(error(&sent), [json!("cancelled"), json!("unknown"), json!(false)], "{sent}");
    let text = "The call was cancelled. It may have taken effect; check before trying again.";
    assert_eq!(sent["model"]["text"], text);
    assert_eq!(sent["attempts"][0]["error"], json!({"code": "cancelled", "detail": null}));
    assert_eq!(error(&unsent), [json!("cancelled"), json!("not_sent"), json!(true)], "{unsent}");
    assert_eq!(unsent["model"]["text"], "The call was cancelled.");
    for call in ["call_hanging1", "call_unsent1"] {
        let is_line =
            |line: &&str| line.contains(call) && line.contains(r#""code":"cancelled","outcome""#);
        assert_eq!(finished.stdout.lines().filter(is_line).count(), 1, "{finished:#?}");
    }
    assert!(finished.stdout.contains("Some calls did not finish in time"), "{finished:#?}");
    world.upstream.wait_until_closed(1).await;
}

/// A second signal ends what the first one left to finish.
async fn check_hurried(config: ConfigBuilder, hurry: fn(&mut Gateway)) {
    let world = World::plain().await;
    world.upstream.default(Script::new().request().stall());
    let config = config.reach(&world.upstream, &world.dns, crate::support::world::HOST);
    let mut gateway = config.tool(world.tool("stuck").set("timeout", json!("30s"))).start().await;
    let mut client = runtime(&gateway, "stuck", "call_stuck1").await;
    world.upstream.wait_for_requests(1).await;
    gateway.terminate();
    draining(&gateway).await;
    hurry(&mut gateway);
    // Within less than what the tool may take: nobody waits that long here.
    let finished = gateway.ended().await;
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert!(finished.stdout.contains(r#""message":"Draining.""#), "{finished:#?}");
    assert!(finished.stdout.ends_with('}'), "the last line is whole: {finished:#?}");
    assert!(client.read_to_end().await.is_empty());
}

#[tokio::test]
async fn f138_a_second_signal_ends_the_gateway_at_once() {
    check_hurried(ConfigBuilder::new(), Gateway::terminate).await;
    check_hurried(ConfigBuilder::new(), |gateway| gateway.signal("INT")).await;
    // Also while calls are still taken.
    let shared = || ConfigBuilder::new().set("/shutdown", json!({"accept_for": "600s"}));
    check_hurried(shared(), Gateway::terminate).await;
}

#[tokio::test]
async fn f151_a_wall_clock_that_jumps_moves_signatures_and_nothing_else() {
    let world = World::plain().await;
    world.upstream.default(Script::always(ok()));
    let folder = tempfile::tempdir().expect("a folder");
    let clock = folder.path().join("clock");
    let set = |by: &str| {
        let beside = folder.path().join("next");
        std::fs::write(&beside, format!("{by}\n")).expect("written");
        std::fs::rename(beside, &clock).expect("renamed");
    };
    set("+0d");
    let limited =
        world.tool("limited").set("rate_limits", json!([{"per": "tool", "rate": "4/day"}]));
    let failing = Tool::new("failing", "https://failing.example.com/");
    let failing = failing.set("breaker", json!({"consecutive": 1, "open_for": "10m"}));
    world.dns.set("failing.example.com", &["NXDOMAIN"]);
    let config = move_clock(world.config())
        .environment("FAKETIME_TIMESTAMP_FILE", clock.to_str().expect("UTF-8"))
        .environment("FAKETIME_NO_CACHE", "1");
    let gateway = config.tool(limited).tool(failing).start().await;
    let open = [("tool", "failing"), ("state", "open")];
    let failing = Fault::at("failing").failed("network_error").detail("dns").retryable();
    failing
        .metric("sortie_circuit_transitions_total", &[("to", "open")], 1.0)
        .holds(&gateway)
        .await;

    let mut times = Vec::new();
    for by in ["+0d", "+1d", "+1h", "-1h", "-1d"] {
        set(by);
        let limited = Fault::of(&world, "limited");
        if times.len() == 4 {
            // A day has not passed, whatever the clock says.
            limited.refused("rate_limited").retryable().kept(1).holds(&gateway).await;
        } else {
            let outcome = limited.holds(&gateway).await;
            let took = outcome.at("/duration_ms").as_u64().expect("a duration");
            assert!(took < 60_000, "{took} ms");
        }
        Fault::at("failing").refused("circuit_open").retryable().kept(1).holds(&gateway).await;
        assert_eq!(gateway.metrics().await.value("sortie_circuit_state", &open), 1.0);
        if let Some(request) = world.upstream.requests().get(times.len()) {
            let signature = request.header("X-Tool-Signature").expect("a signature");
            let time = signature.strip_prefix("t=").and_then(|rest| rest.split_once(','));
            times.push(time.and_then(|(time, _)| time.parse::<i64>().ok()).expect("a time"));
        }
    }
    // Within half an hour, however slow the machine is.
    for (time, hours) in times.iter().zip([0, 24, 1, -1]) {
        let off = time - times[0] - hours * 3600;
        assert!(off.abs() < 1800, "{off} s off after a jump of {hours} h");
    }
    gateway.finish().await;
}

#[tokio::test]
async fn f152_a_gateway_that_was_frozen_ends_late_calls_and_trusts_no_old_connection() {
    let world = World::tls().await;
    let arrived = Signal::new();
    world.upstream.default(Script::always(ok()));
    let config = world.config().set("/egress/pool", json!({"idle_timeout": "1s"}));
    let slow = world.tool("slow").set("timeout", json!("1s")).profile("bare-v1");
    let gateway = config.tool(world.tool("kept")).tool(slow).start().await;
    // One connection is kept when the freeze comes, one waits for its answer.
    Fault::of(&world, "kept").holds(&gateway).await;
    world.upstream.next(Script::new().request().fire(&arrived).stall());
    let frozen = async {
        arrived.fired().await;
        gateway.signal("STOP");
        // Longer than either bound: this is the fault itself.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        gateway.signal("CONT");
    };
    let late = Fault::of(&world, "slow").arguments(json!({})).profile("bare-v1");
    let late =
        late.failed("timeout").detail("first_byte").unknown().requests(1).connections(1).kept(1);
    let call = async {
        let mut client = runtime(&gateway, "slow", "call_frozen1").await;
        frozen.await;
        let outcome = client.read_reply().await.json();
        assert_eq!(outcome["error"]["code"], "timeout", "{outcome}");
    };
    prove_while(&gateway, vec![late.unheard("call_frozen1")], call).await;
    // The kept one is past its time: another one is opened.
    Fault::of(&world, "kept").connections(1).holds(&gateway).await;
    gateway.finish().await;
}
