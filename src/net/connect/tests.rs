//! Dialling on loopback: addresses, handshakes, certificates, deadlines.

use std::net::Ipv4Addr;

use rcgen::date_time_ymd;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::net::tests::{Authority, NAME, Target, listen, loopback, soon};
use crate::policy::address::Target as Way;

const WAIT: Duration = Duration::from_secs(5);

/// A listener whose queue is full: what dials it now hears nothing.
struct BlackHole {
    port: u16,
    _listener: Socket,
    _queued: Vec<Socket>,
}

impl BlackHole {
    fn new(last: u8) -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::new(loopback(last), 0).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let queued = (0..4)
            .map(|_| {
                let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                client.set_nonblocking(true).unwrap();
                let _ = client.connect(&address);
                client
            })
            .collect();
        let port = address.as_socket().unwrap().port();
        Self { port, _listener: listener, _queued: queued }
    }
}

async fn plain(
    target: &Target,
    lasts: &[u8],
    timeout: Duration,
) -> Result<Connected, ConnectError> {
    let connector = Authority::found().connector(timeout);
    connector.connect(&Way::Direct(target.vetted(lasts)), &target.endpoint, soon(2000)).await
}

/// Dials a TLS server that behaves so.
async fn tls<F: Future<Output = ()>>(
    authority: &Authority,
    host: &str,
    timeout: Duration,
    deadline: Instant,
    serve: impl FnOnce(TcpStream) -> F,
) -> Result<Connected, ConnectError> {
    let (listener, port) = listen(1).await;
    let target = Target::new("https", host, port);
    let connector = authority.connector(timeout);
    let vetted = Way::Direct(target.vetted(&[1]));
    let server = async { serve(listener.accept().await.unwrap().0).await };
    let (dialled, ()) =
        tokio::join!(connector.connect(&vetted, &target.endpoint, deadline), server);
    dialled
}

fn kind(result: Result<Connected, ConnectError>) -> ConnectErrorKind {
    match result {
        Ok(connected) => panic!("connected to {:?}", connected.peer),
        Err(error) => error.kind,
    }
}

#[tokio::test]
async fn a_refused_address_is_followed_by_the_next() {
    let (_listener, port) = listen(3).await;
    let target = Target::new("http", NAME, port);
    let connected = plain(&target, &[2, 3], WAIT).await.unwrap();
    assert_eq!(connected.peer.address().unwrap().socket(), SocketAddr::new(loopback(3), port));
    assert_eq!(connected.tls, Duration::ZERO);
}

#[tokio::test]
async fn a_silent_address_does_not_hold_up_the_next() {
    let hole = BlackHole::new(2);
    let _listener = TcpListener::bind((loopback(3), hole.port)).await.unwrap();
    let target = Target::new("http", NAME, hole.port);
    let connected = plain(&target, &[2, 3], WAIT).await.unwrap();
    assert_eq!(connected.peer.address().unwrap().socket().ip(), loopback(3));
    assert!(connected.connect >= NEXT_ADDRESS_AFTER, "{:?}", connected.connect);
    assert!(connected.connect < NEXT_ADDRESS_AFTER * 6, "{:?}", connected.connect);
}

#[tokio::test]
async fn a_closed_port_is_a_failure_to_connect() {
    let (listener, port) = listen(1).await;
    drop(listener);
    let error = plain(&Target::new("http", NAME, port), &[1, 2], WAIT).await.err().unwrap();
    assert_eq!(error.kind, ConnectErrorKind::Connect);
    assert!(error.to_string().contains(&format!("127.0.0.2:{port}")), "{error}");
}

#[tokio::test]
async fn silence_ends_at_the_timeout_or_at_the_deadline() {
    let hole = BlackHole::new(2);
    let target = Target::new("http", NAME, hole.port);
    let timed = plain(&target, &[2], Duration::from_millis(50)).await;
    assert_eq!(kind(timed), ConnectErrorKind::ConnectTimeout);
    let connector = Authority::found().connector(WAIT);
    let late =
        connector.connect(&Way::Direct(target.vetted(&[2])), &target.endpoint, soon(50)).await;
    assert_eq!(kind(late), ConnectErrorKind::DeadlineInConnect);
}

#[tokio::test]
async fn no_address_is_a_failure_to_connect() {
    let target = Target::new("http", NAME, 8443);
    let connector = Authority::found().connector(WAIT);
    let result = connector.connect(&Way::Direct(vec![]), &target.endpoint, soon(1000)).await;
    assert_eq!(kind(result), ConnectErrorKind::Connect);
}

#[tokio::test]
async fn a_stream_to_another_address_is_dropped() {
    let (listener, port) = listen(2).await;
    let stream = dial(listener.local_addr().unwrap()).await.unwrap();
    let target = Target::new("http", NAME, port);
    let vetted = target.vetted(&[2, 3]);
    assert!(check_peer(&stream, vetted[0]).is_ok());
    let error = check_peer(&stream, vetted[1]).unwrap_err();
    assert_eq!(error.kind, ConnectErrorKind::PeerMismatch);
}

#[tokio::test]
async fn a_trusted_certificate_for_the_host_is_accepted_and_its_end_is_told() {
    let authority = Authority::found();
    for host in [NAME, "127.0.0.1"] {
        let acceptor = authority.acceptor(host, |params| {
            params.not_after = date_time_ymd(2061, 3, 1);
        });
        let connected = tls(&authority, host, WAIT, soon(2000), async |stream| {
            let mut stream = acceptor.accept(stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), None);
            let asked_for = stream.get_ref().1.server_name().map(ToOwned::to_owned);
            assert_eq!(asked_for.as_deref(), (host == NAME).then_some(NAME));
            stream.write_all(b"hello").await.unwrap();
        })
        .await
        .unwrap();
        assert_eq!(connected.certificate_expiry, Some(2_876_860_800));
        let mut greeting = [0; 5];
        let mut stream = connected.stream;
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"hello");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_is_told_from_a_broken_handshake() {
    use ConnectErrorKind::Certificate;
    let authority = Authority::found();
    let stranger = Authority::found();
    for (name, acceptor) in [
        ("untrusted issuer", stranger.acceptor(NAME, |_| {})),
        ("wrong name", authority.acceptor("other.example", |_| {})),
        (
            "expired",
            authority.acceptor(NAME, |params| params.not_after = date_time_ymd(2020, 1, 1)),
        ),
        (
            "not yet",
            authority.acceptor(NAME, |params| params.not_before = date_time_ymd(2070, 1, 1)),
        ),
    ] {
        let result = tls(&authority, NAME, WAIT, soon(2000), async |stream| {
            // The client breaks off.
            let _ = acceptor.accept(stream).await;
        })
        .await;
        assert_eq!(kind(result), Certificate, "{name}");
    }
}

#[tokio::test]
async fn a_broken_handshake_is_told_from_a_certificate() {
    let authority = Authority::found();
    let end = tls(&authority, NAME, WAIT, soon(2000), async |stream| drop(stream)).await;
    assert_eq!(kind(end), ConnectErrorKind::Tls);
    let garbage = tls(&authority, NAME, WAIT, soon(2000), async |mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    assert_eq!(kind(garbage), ConnectErrorKind::Tls);
    // An alert: handshake_failure.
    let alert = tls(&authority, NAME, WAIT, soon(2000), async |mut stream| {
        stream.write_all(&[21, 3, 3, 0, 2, 2, 40]).await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
    })
    .await;
    assert_eq!(kind(alert), ConnectErrorKind::Tls);
}

#[tokio::test]
async fn a_stalled_handshake_ends_and_the_stream_is_closed() {
    let authority = Authority::found();
    let stall = async |mut stream: TcpStream| {
        let mut read = Vec::new();
        // Ends when the client hangs up, whether in order or not.
        let _ = stream.read_to_end(&mut read).await;
    };
    let timed = tls(&authority, NAME, Duration::from_millis(60), soon(2000), stall).await;
    assert_eq!(kind(timed), ConnectErrorKind::Tls);
    let late = tls(&authority, NAME, WAIT, soon(60), stall).await;
    assert_eq!(kind(late), ConnectErrorKind::DeadlineInTls);
}

#[tokio::test]
async fn a_dropped_dial_closes_its_stream() {
    let (listener, port) = listen(1).await;
    let target = Target::new("https", NAME, port);
    let connector = Authority::found().connector(WAIT);
    let vetted = Way::Direct(target.vetted(&[1]));
    let mut dial = connector.connect(&vetted, &target.endpoint, soon(60_000));
    let mut stream = tokio::select! {
        _ = &mut dial => panic!("nobody answers"),
        accepted = listener.accept() => accepted.unwrap().0,
    };
    let mut hello = [0; 5];
    tokio::select! {
        _ = &mut dial => panic!("nobody answers"),
        read = stream.read_exact(&mut hello) => assert!(read.is_ok()),
    }
    drop(dial);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

#[test]
fn what_this_machine_lacks_is_not_the_tools_fault() {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 443));
    let v6: SocketAddr = "[2001:4860::1]:443".parse().unwrap();
    let lack = io::Error::from_raw_os_error;
    for (failures, kind) in [
        (vec![(v4, lack(24))], ConnectErrorKind::Exhausted),
        (vec![(v4, io::ErrorKind::AddrNotAvailable.into())], ConnectErrorKind::Exhausted),
        (vec![(v6, io::ErrorKind::AddrNotAvailable.into())], ConnectErrorKind::Connect),
        (vec![(v4, lack(24)), (v4, lack(111))], ConnectErrorKind::Connect),
        (vec![], ConnectErrorKind::Connect),
    ] {
        assert_eq!(no_dial(&failures).kind, kind, "{failures:?}");
    }
}
