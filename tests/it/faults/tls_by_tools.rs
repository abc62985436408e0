//! TLS that takes tools to make: rows 107 and 108 by `openssl`, row 117 by `faketime`. Without them the tests fail.

use crate::faults::proof::{Fault, prove, prove_while};
use crate::faults::tls::{Ends, Row, check, gateway};
use crate::support::certs::{Authority, valid};
use crate::support::config::ConfigBuilder;
use crate::support::dns::DnsServer;
use crate::support::openssl::{OldServer, OpenSsl};
use crate::support::script::Script;

const EC: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

#[tokio::test]
async fn f107_old_signatures_and_short_keys_are_refused() {
    let (good, short) = (OpenSsl::authority(2048), OpenSsl::authority(1024));
    let refused = Ends::Certificate("invalid peer certificate");
    let mut rows = Vec::new();
    for (name, authority, digest, ends) in [
        ("sha256", &good, "-sha256", Ends::Good),
        ("sha1", &good, "-sha1", refused),
        ("md5", &good, "-md5", refused),
        ("short_authority", &short, "-sha256", refused),
    ] {
        rows.push(Row::tls(name, |host| authority.leaf(host, EC, digest), ends).await);
    }
    // A server with a key that rustls itself would not take.
    let leaf = good.leaf("short-key.example.com", &["-newkey", "rsa:1024"], "-sha256");
    let server = good.serve(&leaf, &["-cipher", "DEFAULT:@SECLEVEL=0"]).await;
    let relay = Script::new().relay(server.address());
    rows.push(Row::script("short_key", relay, refused).await);
    check(&format!("{}{}", good.pem(), short.pem()), rows).await;
    let said = server.end();
    assert!(!said.contains("POST"), "{said}");
}

/// A server of old versions or ciphers, and what the operator reads about it.
async fn old(
    openssl: &OpenSsl,
    name: &'static str,
    options: &[&str],
    reason: &'static str,
) -> (OldServer, Row) {
    let leaf = openssl.leaf(&format!("{}.example.com", name.replace('_', "-")), EC, "-sha256");
    let server = openssl.serve(&leaf, options).await;
    let relay = Script::new().relay(server.address());
    (server, Row::script(name, relay, Ends::Handshake(reason)).await)
}

#[tokio::test]
async fn f108_old_versions_and_ciphers_are_refused() {
    let openssl = OpenSsl::authority(2048);
    let all = ["-cipher", "ALL:@SECLEVEL=0"];
    // RC4 and 3DES are no longer in the `openssl` of today; what they have in common with CBC is that they are no AEAD.
    let cbc = ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES128-SHA"];
    let mut servers = Vec::new();
    let mut rows = Vec::new();
    for (name, options, reason) in [
        ("tls_1_0", [&["-tls1"][..], &all].concat(), "ProtocolVersion"),
        ("tls_1_1", [&["-tls1_1"][..], &all].concat(), "ProtocolVersion"),
        ("cbc_only", cbc.into(), "HandshakeFailure"),
    ] {
        let (server, row) = old(&openssl, name, &options, reason).await;
        servers.push(server);
        rows.push(row);
    }
    check(&openssl.pem(), rows).await;
    for server in servers {
        let said = server.end();
        assert!(!said.contains("POST"), "{said}");
    }
    // The same with TLS 1.2 and today's ciphers gets the request, which it does not answer.
    let (server, row) = old(&openssl, "tls_1_2", &["-tls1_2"], "").await;
    let rows = [row];
    let dns = DnsServer::start().await;
    let gateway = gateway(&dns, &openssl.pem(), &rows, |config| config).await;
    let fault = Fault::at("tls_1_2").failed("network_error").detail("closed").unknown();
    let meanwhile = async {
        server.says("POST / HTTP/1.1").await;
        server.end();
    };
    prove_while(&gateway, vec![fault], meanwhile).await;
    gateway.finish().await;
}

/// The gateway's wall clock is moved, by what further variables of `faketime` say; its monotonic clock is not.
pub(in crate::faults) fn move_clock(config: ConfigBuilder) -> ConfigBuilder {
    config
        .environment("LD_PRELOAD", &faketime())
        .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .environment("DONT_FAKE_MONOTONIC", "1")
}

/// The library that moves the clock of a process.
fn faketime() -> String {
    let folders = std::fs::read_dir("/usr/lib").expect("a folder").flatten();
    let mut libraries = folders.map(|one| one.path().join("faketime/libfaketimeMT.so.1"));
    let library = libraries.find(|path| path.exists());
    let library = library.expect("`faketime` is needed for this test");
    library.to_str().expect("UTF-8").to_owned()
}

#[tokio::test]
async fn f117_a_clock_that_is_a_year_off_is_named_to_the_operator() {
    let authority = Authority::new();
    let leaf = |host: &str| authority.sign(&[host], |params| valid(params, -30..30));
    let dns = DnsServer::start().await;
    let refused = Ends::Certificate("is this machine's clock right?");
    for (name, by, ends) in
        [("right", "+0d", Ends::Good), ("ahead", "+365d", refused), ("behind", "-365d", refused)]
    {
        let rows = [Row::tls(name, leaf, ends).await];
        let gateway = gateway(&dns, &authority.pem(), &rows, |config| {
            move_clock(config).environment("FAKETIME", by)
        })
        .await;
        let outcomes = prove(&gateway, rows.iter().map(Row::fault).collect()).await;
        rows[0].is_explained(&gateway, &outcomes[0]);
        gateway.finish().await;
    }
}
