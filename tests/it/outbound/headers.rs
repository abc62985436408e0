//! `Authorization` headers that stay the same.

use serde_json::json;

use crate::support::script::{Script, answer};
use crate::support::world::World;

const OK: &str = r#"{"ok":true}"#;

#[tokio::test]
async fn bearer_and_basic_go_out_before_the_own_headers() {
    let world = World::tls().await;
    world.upstream.default(Script::always(answer(200, "application/json", OK)));
    let gateway = world
        .config()
        .file("secrets/token", "tok-6Vd2Ns8Qx.aB_~+/==\n")
        .watch("tok-6Vd2Ns8Qx.aB_~+/==")
        .file("secrets/password", "open sesame 7Hq\n")
        .watch("open sesame 7Hq")
        .watch("QWxhZGRpbjpvcGVuIHNlc2FtZSA3SHE=")
        .tool(
            world
                .tool("with_token")
                .header("X-Api-Key", "", "key-9Kd3Lm2Pq")
                .set("authentication", json!({"bearer": {"file": "secrets/token"}})),
        )
        .tool(world.tool("with_password").set(
            "authentication",
            json!({"basic": {"user": "Aladdin", "password": {"file": "secrets/password"}}}),
        ))
        .set("/logging/level", json!("trace"))
        .start()
        .await;
    gateway.call("with_token", json!({})).await.succeeded();
    gateway.call("with_password", json!({})).await.succeeded();

    let requests = world.upstream.requests();
    let own = |at: usize| -> Vec<(String, String)> {
        let headers = requests[at].headers().into_iter();
        let own = headers.filter(|(name, _)| ["Authorization", "X-Api-Key"].contains(name));
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        own(0),
        [
            pair("Authorization", "Bearer tok-6Vd2Ns8Qx.aB_~+/=="),
            pair("X-Api-Key", "key-9Kd3Lm2Pq")
        ]
    );
    assert_eq!(own(1), [pair("Authorization", "Basic QWxhZGRpbjpvcGVuIHNlc2FtZSA3SHE=")]);
    gateway.finish().await;
}

#[tokio::test]
async fn without_its_token_a_tool_is_sent_nothing() {
    let world = World::tls().await;
    world.upstream.default(Script::new());
    let gateway = world
        .gateway(
            world
                .tool("lookup")
                .set("authentication", json!({"bearer": {"file": "secrets/not_there"}})),
        )
        .await;
    let outcome = gateway.call("lookup", json!({})).await;
    outcome.failed("not_configured", None, "not_sent");
    assert_eq!(outcome.model_text(), "The tool is not configured: a secret of it is missing.");
    world.upstream.assert_untouched().await;
    gateway.finish().await;
}
