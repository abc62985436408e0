//! A signing secret is replaced under load, and no receiver refuses a call: neither one that looks at every signature,
//! nor one that knows only the last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::{apply, ok, wait_for};
use crate::support::config::ConfigBuilder;
use crate::support::gateway::Gateway;
use crate::support::receiver::{hex, hmac};
use crate::support::script::{Script, answer};
use crate::support::upstream::Request;
use crate::support::wait::together;
use crate::support::world::World;

const A: &str = "whsec_8sKqT1vN5rYbH2mZ0cLdWx9Qa";
const B: &str = "whsec_Zp4LwE7uGfRk3JtN6yVs1XcBm";

/// The secrets whose signatures a request carries, in their order.
fn signers(request: &Request) -> String {
    let value = request.header("X-Tool-Signature").expect("a signature");
    let mut parts = value.split(',');
    let t = parts.next().and_then(|part| part.strip_prefix("t=")).expect("a time");
    let signed = [t.as_bytes(), b".", &request.body].concat();
    let name = |part: &str| {
        let of = |key: &str| format!("v1={}", hex(&hmac(key.as_bytes(), &signed))) == part;
        [("A", A), ("B", B)].iter().find_map(|(name, key)| of(key).then_some(*name))
    };
    parts.map(|part| name(part).unwrap_or("?")).collect()
}

/// Each path is a receiver of its own, which holds one secret at a time.
struct Receivers {
    any: Mutex<&'static str>,
    last: Mutex<&'static str>,
}

impl Receivers {
    fn accepts(&self, request: &Request) -> bool {
        let signers = signers(request);
        if request.line().contains("/any") {
            signers.contains(*self.any.lock().expect("a lock"))
        } else {
            signers.ends_with(*self.last.lock().expect("a lock"))
        }
    }
}

fn set(place: &Mutex<&'static str>, secret: &'static str) {
    *place.lock().expect("a lock") = secret;
}

async fn calls(gateway: &Gateway, tool: &str, count: usize) {
    for _ in 0..count {
        gateway.call(tool, json!({})).await.succeeded();
    }
}

async fn keys(gateway: &Gateway) -> f64 {
    let labels = [("tool", "last")];
    gateway.metrics().await.value("sortie_signing_keys_active", &labels)
}

#[tokio::test]
async fn f150_a_secret_is_replaced_under_load_and_no_receiver_refuses_a_call() {
    let world = World::plain().await;
    let receivers = Arc::new(Receivers { any: Mutex::new("A"), last: Mutex::new("A") });
    let shared = Arc::clone(&receivers);
    world.upstream.default(Script::responding(move |request| {
        if shared.accepts(request) { ok() } else { answer(401, "text/plain", "not signed") }
    }));
    let config = |last: &str| {
        let secret = json!({"current": {"file": "keys/current"}, "previous": {"file": "keys/previous"}, "last": last});
        let tool = |name| world.tool(name).no_secret().set("secret", secret.clone());
        let config: ConfigBuilder = world.config().tool(tool("any")).tool(tool("last"));
        config.file("keys/current", A).file("keys/previous", A).watch(A).watch(B)
    };
    let gateway = config("previous").start().await;
    let over = AtomicBool::new(false);
    let load = together((0..4).map(|_| async {
        while !over.load(Ordering::Relaxed) {
            calls(&gateway, "any", 1).await;
        }
    }));
    // What each request of the receiver that knows only the last signature carried in this phase.
    let phase = async |expected: &str| {
        let before = world.upstream.requests().len();
        together((0..4).map(|_| calls(&gateway, "last", 10))).await;
        let requests = world.upstream.requests().split_off(before);
        let mut last = requests.iter().filter(|request| request.line().contains("/last"));
        assert_eq!(last.clone().count(), 40);
        assert!(last.all(|request| signers(request) == expected), "{expected}");
    };
    let rotation = async {
        // Both files hold the one secret: it signs once.
        phase("A").await;
        assert_eq!(keys(&gateway).await, 1.0);
        // The old one first: whatever is read in between is right.
        gateway.folder().replace("keys/previous", A);
        gateway.folder().replace("keys/current", B);
        wait_for(&gateway, "applied", 1).await;
        phase("BA").await;
        assert_eq!(keys(&gateway).await, 2.0);
        set(&receivers.any, "B");
        phase("BA").await;
        // The receiver that knows only the last one changes over together with the file.
        apply(&gateway, &config("current").text()).await;
        set(&receivers.last, "B");
        phase("AB").await;
        assert_eq!(keys(&gateway).await, 2.0);
        gateway.folder().replace("keys/previous", B);
        wait_for(&gateway, "applied", 3).await;
        phase("B").await;
        assert_eq!(keys(&gateway).await, 1.0);
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(load, rotation);
    let metrics = gateway.metrics().await;
    let failed = metrics.value("sortie_calls_total", &[("status", "failed")]);
    assert_eq!((failed, metrics.value("sortie_secret_errors", &[])), (0.0, 0.0));
    gateway.finish().await;
}
