//! The walk through an approval, run as it stands.

use serde_json::{Value, json};

use super::page::{self, Page, Shell};
use super::server::Server;
use super::{API, config};
use crate::support::gateway::Gateway;
use crate::support::http::{exchange, post};
use crate::support::languages::runs;

/// A folder as the reader has it after the first call.
fn first_call(page: &Page, server: &Server) -> Shell {
    let section = page.section("## A verified call to a server of your own");
    let mut shell = Shell::new();
    for line in page::lines(&section.blocks("sh")[1]) {
        match line.strip_prefix("cd ") {
            Some(folder) => {
                let folder = shell.folder().join(folder);
                shell.move_to(&folder);
            }
            None => {
                shell.run(&line);
            }
        }
    }
    shell.write("server.py", &server.at_home(&section.blocks("python")[0]));
    shell
}

/// A block as one script, at this gateway.
fn run(shell: &Shell, block: &str, gateway: &Gateway) -> String {
    shell.run(&block.replace(API, &gateway.api().to_string()))
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

// The commands wait for the fixtures, so these need threads of their own.
#[tokio::test(flavor = "multi_thread")]
async fn the_walk_through_an_approval_runs_as_it_is_written() {
    if !runs("python3", &["--version"]) || !runs("curl", &["--version"]) {
        return;
    }
    let page = Page::read();
    let mut server = Server::new();
    let mut shell = first_call(&page, &server);
    let section = page.section("## Approvals");
    let blocks = section.blocks("sh");
    let [key, serve, call, list, approve, follow, command] = blocks.as_slice() else {
        panic!("the walk has other steps: {blocks:#?}");
    };
    server.start("python3 server.py", &shell).await;
    shell.run(key);
    let approver = shell.read("secrets/approver");
    let yaml = page.blocks("yaml").first().cloned().expect("the configuration");
    let builder = config(&server.at_home(&yaml), &shell)
        .file("secrets/approver", &approver)
        .watch(approver.trim_end())
        .file("approvals.yaml", &section.blocks("yaml")[0]);
    assert_eq!(serve, "sortie serve --config sortie.yaml --config approvals.yaml\n");
    let gateway = builder.start_with("approvals.yaml").await;
    shell.move_to(gateway.folder().path());

    let waiting = json(&run(&shell, call, &gateway));
    assert_eq!(
        (&waiting["id"], &waiting["status"]),
        (&json!("call_walk"), &json!("waiting_approval"))
    );
    let approvals = json(&run(&shell, list, &gateway));
    let approval = &approvals["data"][0];
    assert_eq!(approval["arguments"], json!({"order_number": "A-1042"}));
    assert_eq!(approvals["data"].as_array().map(Vec::len), Some(1));
    // The runtime's own key cannot decide.
    let runtime = shell.read("secrets/runtime");
    let path = format!("/v1/approvals/{}/approve", approval["id"].as_str().expect("an id"));
    let body = json!({"arguments_digest": approval["arguments_digest"]}).to_string();
    let own = exchange(gateway.api(), &post(&path, Some(runtime.trim_end()), &body)).await;
    assert_eq!(own.status, 403, "{}", own.text());
    let decided = json(&run(&shell, approve, &gateway));
    assert_eq!(
        (&decided["status"], &decided["decided_by"]["id"]),
        (&json!("approved"), &json!("approver"))
    );
    let ended = json(&run(&shell, follow, &gateway));
    let order = json!({"order": "A-1042", "status": "shipped"});
    assert_eq!((&ended["status"], &ended["result"]), (&json!("succeeded"), &order));
    let again = exchange(gateway.api(), &post(&path, Some(approver.trim_end()), &body)).await;
    assert_eq!(again.json()["error"]["code"], "approval_closed");
    let tables = run(&shell, command, &gateway);
    assert!(tables.contains("\n0 approvals\n") && tables.ends_with("\n1 approval\n"), "{tables}");
    gateway.finish().await;
}
