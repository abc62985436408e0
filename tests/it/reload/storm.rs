//! Reload after reload under load, half of them broken: no call fails, none sees two configurations, nothing grows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{FILE, always, apply, is_current, reloads, wait_for};
use crate::support::gateway::Gateway;
use crate::support::wait::{poll, together};
use crate::support::world::{HOST, World};

/// For longer storms: `SORTIE_STORM_SECONDS=60`.
const SECONDS: &str = "SORTIE_STORM_SECONDS";
const CALLERS: usize = 8;

/// The region of each finished call, from its line.
async fn regions(gateway: &Gateway, count: usize) -> HashMap<String, String> {
    poll("a line for each call", || async {
        let text = |line: &Value, field: &str| line[field].as_str().map(str::to_owned);
        let lines = gateway.log_lines();
        let calls = lines.iter().filter(|line| line["stream"] == "call");
        let regions: HashMap<_, _> = calls
            .filter_map(|line| Some((text(line, "call_id")?, text(line, "region")?)))
            .collect();
        (regions.len() >= count).then_some(regions)
    })
    .await
}

#[tokio::test]
async fn f148_a_storm_of_reloads_fails_no_call_and_each_sees_one_configuration() {
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let world = World::plain().await;
    world.upstream.default(always());
    // Path, header and region are of one configuration, or the call saw two.
    let config = |name: &str| {
        let tool =
            world.tool("one").set("url", json!(world.upstream.url(HOST, &format!("/{name}"))));
        let tool = tool.set("headers", json!({"X-Set": {"file": format!("sets/{name}")}}));
        let other = world.tool("two");
        world
            .config()
            .tool(tool)
            .tool(other)
            .set("/region", json!(name))
            .file("sets/a", "a")
            .file("sets/b", "b")
            .file("sets/last", "last")
    };
    let (a, b) = (config("a").text(), config("b").text());
    let broken = [a[..a.len() / 2].to_owned(), a.replace("\"version\": 1", "\"version\": 2")];
    let gateway = config("a").start().await;
    let over = AtomicBool::new(false);
    let load = together((0..CALLERS).map(|caller| {
        let (gateway, over) = (&gateway, &over);
        async move {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                let tool = if caller == 0 { "two" } else { "one" };
                gateway.call(tool, json!({})).await.succeeded();
                count += 1;
            }
            count
        }
    }));
    let storm = async {
        let began = Instant::now();
        let mut tick = interval(Duration::from_millis(50));
        let mut early = None;
        for text in [&b, &broken[0], &a, &broken[1]].into_iter().cycle() {
            tick.tick().await;
            gateway.folder().replace(FILE, text);
            gateway.hang_up();
            let elapsed = began.elapsed();
            if elapsed > Duration::from_secs(seconds) / 4 {
                early.get_or_insert_with(|| gateway.resources());
            }
            if elapsed > Duration::from_secs(seconds) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        early.expect("a measurement")
    };
    let (counts, (memory, descriptors)) = tokio::join!(load, storm);
    let calls: usize = counts.iter().sum();

    // The storm ends with something broken: the last good configuration serves, and the gauges say so. The error of
    // this very file ends the storm: what is read after it cannot be an earlier one.
    gateway.folder().replace(FILE, &a.replace("\"region\"", "\"storm_over\""));
    gateway.hang_up();
    poll("the gateway to name what is wrong in the last file", || async {
        let said = |line: &Value| line["error"].as_str().is_some_and(|e| e.contains("storm_over"));
        gateway.log_lines().iter().any(said).then_some(())
    })
    .await;
    poll("the gauge to say that the files are wrong", || async {
        (!is_current(&gateway).await).then_some(())
    })
    .await;
    gateway.call("one", json!({})).await.succeeded();
    apply(&gateway, &config("last").text()).await;
    gateway.call("one", json!({})).await.succeeded();
    assert!(is_current(&gateway).await);
    let (applied, invalid) =
        (reloads(&gateway, "applied").await, reloads(&gateway, "invalid").await);
    assert!(applied >= 5.0 && invalid >= 5.0, "{applied} applied, {invalid} invalid");
    wait_for(&gateway, "applied", 5).await;
    assert_eq!(
        gateway.metrics().await.value("sortie_calls_total", &[("code", "ok")]),
        (calls + 2) as f64
    );

    let regions = regions(&gateway, calls + 2).await;
    let mut seen = HashMap::new();
    for request in world.upstream.requests() {
        let id = request.json()["call_id"].as_str().expect("an id").to_owned();
        let region = &regions[&id];
        *seen.entry(region.clone()).or_insert(0) += 1;
        if !request.line().starts_with("POST /two ") {
            assert_eq!(request.line(), format!("POST /{region} HTTP/1.1"));
            assert_eq!(request.header("X-Set"), Some(region.as_str()));
        }
    }
    assert!(seen.len() == 3, "both configurations served, and the last one: {seen:?}");

    // Old connections end with their configuration; two tools keep what the callers left them.
    poll("the connections of old configurations to be closed", || async {
        let open = gateway.metrics().await.value("sortie_upstream_connections_open", &[]);
        (open <= CALLERS as f64 + 2.0).then_some(())
    })
    .await;
    let (memory_after, descriptors_after) = poll("descriptors to be given back", || async {
        let now = gateway.resources();
        (now.1 <= descriptors + 16).then_some(now)
    })
    .await;
    assert!(
        memory_after < memory + (48 << 20),
        "{memory} bytes and {descriptors} descriptors became {memory_after} and {descriptors_after}"
    );
    println!("{seconds} s: {calls} calls, {applied} reloads applied, {invalid} invalid, {seen:?}");
    gateway.finish().await;
}
