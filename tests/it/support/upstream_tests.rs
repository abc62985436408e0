//! Proves the fault upstream with plain clients.

use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::certs::Authority;
use crate::support::http::{RawClient, exchange, get, post};
use crate::support::script::{Script, Step, answer, answer_with_headers, head};
use crate::support::upstream::Upstream;
use crate::support::wait::{Signal, within};

async fn connect_tls(
    upstream: &Upstream,
    authority: &Authority,
    name: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(upstream.address()).await.expect("a connection");
    let connector = TlsConnector::from(authority.client_config(&["http/1.1"]));
    connector.connect(ServerName::try_from(name.to_owned()).expect("a name"), tcp).await
}

#[tokio::test]
async fn requests_are_recorded_byte_for_byte() {
    let upstream = Upstream::plain().await;
    upstream.default(Script::responding(|request| answer(200, "text/plain", &request.body)));
    let mut client = RawClient::connect(upstream.address()).await;
    for body in ["one", "two"] {
        let sent = post("/Path?q=1", Some("k"), body);
        client.write(&sent).await;
        assert_eq!(client.read_reply().await.text(), body);
        assert_eq!(upstream.requests().last().expect("a request").raw(), sent);
    }
    assert_eq!(upstream.wait_for_requests(2).await[1].connection, 0);
    let request = &upstream.requests()[0];
    assert_eq!(request.line(), "POST /Path?q=1 HTTP/1.1");
    assert_eq!(request.headers()[0], ("Host", "localhost"));
    assert_eq!(request.header("AUTHORIZATION"), Some("Bearer k"));
    assert_eq!(upstream.wait_for_connections(1).await.len(), 1);
    drop(client);
    let connection = &upstream.wait_until_closed(1).await[0];
    assert_eq!(
        connection.received.len(),
        upstream.requests().iter().map(|one| one.raw().len()).sum::<usize>()
    );
    assert!(connection.sent > 0);
}

#[tokio::test]
async fn each_connection_has_its_own_script() {
    let upstream = Upstream::plain().await;
    upstream.next(Script::once(answer(500, "text/plain", "no")));
    upstream.next(Script::once(answer_with_headers(
        302,
        &[("Location", "https://elsewhere.example/")],
        "",
    )));
    upstream.default(Script::once(answer(200, "application/json", r#"{"n":3}"#)));
    assert_eq!(exchange(upstream.address(), &get("/")).await.status, 500);
    let redirect = exchange(upstream.address(), &get("/")).await;
    assert_eq!(redirect.header("location"), Some("https://elsewhere.example/"));
    assert_eq!(exchange(upstream.address(), &post("/", None, "{}")).await.json()["n"], 3);
    assert_eq!(upstream.requests()[2].json(), serde_json::json!({}));
}

#[tokio::test]
async fn tls_shows_what_the_client_asked_for() {
    let authority = Authority::new();
    let upstream = Upstream::tls(&authority.leaf(&["tool.example.com", "127.0.0.1"])).await;
    upstream.default(Script::once(answer(200, "text/plain", "ok")));
    let mut stream =
        connect_tls(&upstream, &authority, "tool.example.com").await.expect("a handshake");
    stream.write_all(&get("/")).await.expect("a write");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("an orderly end");
    assert!(text.ends_with("\r\n\r\nok"), "{text}");
    let connection = &upstream.wait_until_closed(1).await[0];
    assert_eq!(connection.server_name.as_deref(), Some("tool.example.com"));
    assert_eq!(connection.alpn, ["http/1.1"]);
    assert_eq!(upstream.only_request().raw(), get("/"));
}

#[tokio::test]
async fn bad_certificates_are_refused_and_noted() {
    let authority = Authority::new();
    for leaf in
        [authority.leaf(&["other.example.com"]), authority.expired_leaf(&["tool.example.com"])]
    {
        let upstream = Upstream::with_tls_config(leaf.server_config(&[])).await;
        upstream.default(Script::new());
        connect_tls(&upstream, &authority, "tool.example.com")
            .await
            .expect_err("a refused certificate");
        let connection = &upstream.wait_until_closed(1).await[0];
        assert!(connection.handshake_error.is_some(), "{connection:?}");
    }
}

#[tokio::test]
async fn a_bare_fin_is_no_end_of_tls() {
    let authority = Authority::new();
    let upstream = Upstream::tls_at(
        "127.0.0.1:0".parse().expect("an address"),
        &authority.leaf(&["localhost"]),
    )
    .await;
    upstream.default(Script::new().send(head(200, &[])).send("half").bare_fin().stall());
    let mut stream = connect_tls(&upstream, &authority, "localhost").await.expect("a handshake");
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).await.expect_err("a truncation");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(bytes.ends_with(b"\r\n\r\nhalf"));
}

#[tokio::test]
async fn a_reset_is_a_reset_and_a_fin_is_a_fin() {
    let upstream = Upstream::plain().await;
    upstream
        .next(Script::new().request().reset())
        .next(Script::new().request().send("x").fin().stall());
    let mut reset = TcpStream::connect(upstream.address()).await.expect("a connection");
    reset.write_all(&get("/")).await.expect("a write");
    let error = reset.read_u8().await.expect_err("a reset");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let mut fin = RawClient::connect(upstream.address()).await;
    fin.write(&get("/")).await;
    assert_eq!(fin.read_to_end().await, b"x");
    fin.half_close().await;
    upstream.wait_until_closed(2).await;
}

#[tokio::test]
async fn scripts_wait_for_each_other_and_drip() {
    let (arrived, go) = (Signal::new(), Signal::new());
    let upstream = Upstream::plain().await;
    let script = Script::new().then(Step::Head).fire(&arrived).wait(&go);
    upstream.default(script.drip(answer(200, "text/plain", "slow"), Duration::from_micros(100)));
    let address = upstream.address();
    let asking = tokio::spawn(async move { exchange(address, &get("/")).await });
    within("the head", arrived.fired()).await;
    assert!(!asking.is_finished());
    go.fire();
    assert_eq!(asking.await.expect("an answer").text(), "slow");
}

#[tokio::test]
async fn a_flood_ends_when_the_client_goes_and_a_hold_does_not() {
    let upstream = Upstream::plain().await;
    upstream.next(Script::new().flood([b'x'; 4096])).next(Script::new().hold());
    let client = RawClient::connect(upstream.address()).await;
    drop(client);
    assert!(!upstream.wait_until_closed(1).await[0].open);
    drop(RawClient::connect(upstream.address()).await);
    assert!(upstream.wait_for_connections(2).await[1].open);
}

#[tokio::test]
async fn a_forbidden_listener_tells_of_each_connection() {
    let address = "127.0.0.1:0".parse().expect("an address");
    let untouched = Upstream::forbidden_at(address).await;
    untouched.assert_untouched().await;
    let touched = Upstream::forbidden_at(address).await;
    drop(TcpStream::connect(touched.address()).await.expect("a connection"));
    touched.wait_for_connections(1).await;
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(touched)));
    dropped.expect_err("a connection is noticed");
}

#[tokio::test]
async fn what_no_script_expects_fails_the_test() {
    for (script, bytes) in [(None, "x"), (Some(Script::new().request()), "nonsense\r\n\r\n")] {
        let upstream = Upstream::plain().await;
        if let Some(script) = script {
            upstream.next(script);
        }
        let mut client = RawClient::connect(upstream.address()).await;
        client.write(bytes.as_bytes()).await;
        client.read_to_end().await;
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(upstream)));
        dropped.expect_err("a surprise is noticed");
    }
}
