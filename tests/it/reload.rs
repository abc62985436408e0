//! Another configuration while the gateway runs: all of it or nothing, from any side, and no call is lost.

mod in_flight;
mod pools;
mod refused;
mod rotation;
mod secrets;
mod settings;
mod storm;
mod triggers;

use serde_json::Value;

use crate::support::gateway::Gateway;
use crate::support::script::{Script, answer};
use crate::support::wait::poll;

/// The file of every test.
const FILE: &str = "sortie.yaml";

fn ok() -> Vec<u8> {
    answer(200, "application/json", "1")
}

fn always() -> Script {
    Script::always(ok())
}

/// `sortie_config_reloads_total` of one result.
async fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metrics().await.value("sortie_config_reloads_total", &[("result", result)])
}

/// Waits until this result was counted so often at least.
async fn wait_for(gateway: &Gateway, result: &str, count: u32) {
    poll(&format!("{count} reloads to end as {result}"), || async {
        (reloads(gateway, result).await >= f64::from(count)).then_some(())
    })
    .await;
}

/// Replaces the configuration file and waits until it is in force.
pub(crate) async fn apply(gateway: &Gateway, text: &str) {
    let before = reloads(gateway, "applied").await as u32;
    gateway.folder().replace(FILE, text);
    gateway.hang_up();
    wait_for(gateway, "applied", before + 1).await;
}

/// The hash of the configuration in force.
async fn hash(gateway: &Gateway) -> String {
    let text = gateway.metrics().await.text;
    let series: Vec<&str> =
        text.lines().filter(|line| line.starts_with("sortie_config_info{")).collect();
    assert_eq!(series.len(), 1, "one configuration is in force: {series:?}");
    series[0].to_owned()
}

/// Whether the gateway says that its configuration is that of the files.
async fn is_current(gateway: &Gateway) -> bool {
    gateway.metrics().await.value("sortie_config_last_reload_successful", &[]) == 1.0
}

/// Waits for so many log lines with this message; all of them.
async fn said(gateway: &Gateway, message: &str, count: usize) -> Vec<Value> {
    poll(&format!("{count} lines that say: {message}"), || async {
        let mut lines = gateway.log_lines();
        lines.retain(|line| line["message"].as_str().is_some_and(|text| text.contains(message)));
        (lines.len() >= count).then_some(lines)
    })
    .await
}
