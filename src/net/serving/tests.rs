//! Who a connection's client is, and until when.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType, date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::*;

/// 2026-10-30T09:55:02Z; the certificates of these tests hold from 1975 to 2030.
const NOW: i64 = 1_793_354_102;
/// 2031-01-01T00:00:00Z.
const LATER: i64 = 1_924_992_000;
const CLIENT: &str = "spiffe://example.com/runtime";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A leaf with this name, and its key.
fn leaf(authority: &Authority, name: SanType) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![name];
    params.not_after = date_time_ymd(2030, 1, 1);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (certificate.der().clone(), key)
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    Arc::new(roots)
}

/// A server of one authority that takes clients of another one.
fn server(own: &Authority, of_clients: &Authority, names: &[&str]) -> Arc<ServerTls> {
    serving(own, of_clients, names, false)
}

fn serving(
    own: &Authority,
    of_clients: &Authority,
    names: &[&str],
    required: bool,
) -> Arc<ServerTls> {
    let (certificate, key) = leaf(own, SanType::DnsName("gateway.example".try_into().unwrap()));
    let provider = aws_lc_rs::default_provider();
    let identity = CertifiedKey::from_der(vec![certificate], key, &provider).unwrap();
    let clients = ClientCertificates {
        authorities: roots(of_clients),
        names: names.iter().map(|name| NamePattern::parse(name).unwrap()).collect(),
        required,
    };
    let settings =
        ServingTls { identity: Arc::new(identity), clients: Some(clients), digest: [0; 32] };
    Arc::new(ServerTls::new(&settings).unwrap())
}

fn client(server: &Authority, of_client: Option<&Authority>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(server));
    Arc::new(match of_client {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let (certificate, key) = leaf(authority, SanType::URI(CLIENT.try_into().unwrap()));
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    })
}

async fn handshake(server: &Arc<ServerTls>, client: Arc<ClientConfig>) -> io::Result<Peer> {
    let (near, far) = tokio::io::duplex(16 << 10);
    let name = "gateway.example".try_into().unwrap();
    let connector = TlsConnector::from(client);
    let connect = connector.connect(name, near);
    let (accepted, _client) = tokio::join!(server.clone().accept(far), connect);
    accepted.map(|(_, peer)| peer)
}

fn uris(names: &[&str]) -> Vec<PeerName> {
    names.iter().map(|name| PeerName::Uri((*name).to_owned())).collect()
}

#[tokio::test]
async fn a_client_is_its_certificate_s_names() {
    let (own, theirs) = (authority(), authority());
    let tls = server(&own, &theirs, &[]);
    let peer = handshake(&tls, client(&own, Some(&theirs))).await.unwrap();
    assert_eq!(peer.names(Some(&tls), NOW), uris(&[CLIENT]));
    assert!(peer.is_current(Some(&tls), NOW) && !peer.is_current(None, NOW));
    let nobody = handshake(&tls, client(&own, None)).await.unwrap();
    assert_eq!(nobody.names(Some(&tls), NOW), []);
    assert!(handshake(&tls, client(&own, Some(&own))).await.is_err(), "another authority's");
}

#[tokio::test]
async fn only_listed_names_connect() {
    let (own, theirs) = (authority(), authority());
    let tls = server(&own, &theirs, &["spiffe://example.com/*"]);
    assert!(handshake(&tls, client(&own, Some(&theirs))).await.is_ok());
    let tls = server(&own, &theirs, &["spiffe://example.org/*", "*"]);
    let error = handshake(&tls, client(&own, Some(&theirs))).await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_kept_connection_is_judged_by_the_settings_in_force() {
    let (own, theirs) = (authority(), authority());
    let tls = server(&own, &theirs, &[]);
    let peer = handshake(&tls, client(&own, Some(&theirs))).await.unwrap();
    // Other certificate of ours, same clients: nothing changes for them.
    let renewed = server(&own, &theirs, &["spiffe://example.com/runtime"]);
    assert_eq!(peer.names(Some(&renewed), NOW), uris(&[CLIENT]));
    assert!(!peer.is_current(Some(&renewed), NOW));
    for other in [server(&own, &own, &[]), server(&own, &theirs, &["other.example"])] {
        assert_eq!(peer.names(Some(&other), NOW), []);
    }
    assert_eq!(peer.names(None, NOW), []);
}

#[tokio::test]
async fn a_kept_connection_does_not_outlive_its_certificate() {
    let (own, theirs) = (authority(), authority());
    let tls = server(&own, &theirs, &[]);
    let peer = handshake(&tls, client(&own, Some(&theirs))).await.unwrap();
    for serving in [&tls, &server(&own, &theirs, &[])] {
        assert_eq!(peer.names(Some(serving), LATER), []);
    }
    // A client that has a new certificate by then must get to show it.
    assert!(!peer.is_current(Some(&tls), LATER));
}

#[tokio::test]
async fn a_required_certificate_that_is_no_longer_taken_ends_the_connection_for_keys_too() {
    let (own, theirs) = (authority(), authority());
    let tls = serving(&own, &theirs, &[], true);
    let peer = handshake(&tls, client(&own, Some(&theirs))).await.unwrap();
    assert!(peer.may_ask(Some(&tls), NOW) && !peer.may_ask(Some(&tls), LATER));
    let renamed = serving(&own, &theirs, &["other.example"], true);
    let resigned = serving(&own, &own, &[], true);
    assert!(!peer.may_ask(Some(&renamed), NOW) && !peer.may_ask(Some(&resigned), NOW));
    assert!(peer.may_ask(Some(&server(&own, &own, &[])), NOW), "a key alone may come");
    let optional = server(&own, &theirs, &[]);
    let nobody = handshake(&optional, client(&own, None)).await.unwrap();
    assert!(nobody.may_ask(Some(&optional), NOW) && !nobody.may_ask(Some(&tls), NOW));
}

#[tokio::test]
async fn a_session_with_a_certificate_is_never_resumed() {
    let (own, theirs) = (authority(), authority());
    let tls = server(&own, &theirs, &[]);
    let client = client(&own, Some(&theirs));
    for _ in 0..2 {
        let (near, far) = tokio::io::duplex(16 << 10);
        let connector = TlsConnector::from(client.clone());
        let connect = connector.connect("gateway.example".try_into().unwrap(), near);
        let (accepted, connected) = tokio::join!(tls.clone().accept(far), connect);
        assert!(accepted.is_ok());
        let kind = connected.unwrap().get_ref().1.handshake_kind();
        assert_eq!(kind, Some(rustls::HandshakeKind::Full));
    }
}
