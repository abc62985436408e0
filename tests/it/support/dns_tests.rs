//! Proves the DNS fixture with a plain client.

use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::proto::rr::RecordType::{A, AAAA};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::support::dns::{Answer, DnsServer, Question, Transport, absolute, blank, encode};
use crate::support::wait::{Signal, within};

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(absolute(name), kind));
    message
}

async fn ask_packet(server: SocketAddr, message: &Message) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    socket.send_to(&encode(message), server).await.expect("a question");
    let mut buffer = vec![0; 4096];
    let length = within("an answer", socket.recv(&mut buffer)).await.expect("an answer");
    buffer.truncate(length);
    buffer
}

async fn ask(dns: &DnsServer, name: &str, kind: RecordType) -> Message {
    let mut question = question(name, kind);
    question.metadata.id = rand::random();
    Message::from_vec(&ask_packet(dns.address(), &question).await).expect("a message")
}

async fn ask_tcp(dns: &DnsServer, name: &str, kind: RecordType) -> std::io::Result<Message> {
    let mut stream = TcpStream::connect(dns.address()).await?;
    let packet = encode(&question(name, kind));
    stream.write_u16(u16::try_from(packet.len()).expect("a short packet")).await?;
    stream.write_all(&packet).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(Message::from_vec(&answer).expect("a message"))
}

fn data(message: &Message) -> Vec<String> {
    message
        .answers
        .iter()
        .map(|record| format!("{} {} {}", record.name, record.ttl, record.data))
        .collect()
}

#[tokio::test]
async fn records_come_by_type_and_along_the_chain() {
    let dns = DnsServer::start().await;
    dns.set(
        "shop.example.com",
        &["CNAME edge.example.net", "A 192.0.2.1", "AAAA 2001:db8::1", "A 192.0.2.2"],
    );
    let v4 = data(&ask(&dns, "Shop.example.COM", A).await);
    let chain = "Shop.example.COM. 60 edge.example.net.";
    assert_eq!(v4, [chain, "edge.example.net. 60 192.0.2.1", "edge.example.net. 60 192.0.2.2"]);
    let v6 = data(&ask(&dns, "Shop.example.COM", AAAA).await);
    assert_eq!(v6, [chain, "edge.example.net. 60 2001:db8::1"]);
    let first = Question { name: "Shop.example.COM.".into(), kind: A, transport: Transport::Udp };
    assert_eq!(dns.wait_for_questions(2).await[0], first);
    assert_eq!(
        (dns.count("shop.example.com", A), dns.count("shop.example.com", RecordType::MX)),
        (1, 0)
    );
}

#[tokio::test]
async fn answers_change_between_questions_and_the_last_one_stays() {
    let dns = DnsServer::start().await;
    let answers = vec![Answer::with_ttl(0, &["A 192.0.2.1"]), Answer::lines(&["A 10.0.0.5"])];
    dns.script("shop.example.com", answers);
    for expected in ["0 192.0.2.1", "60 10.0.0.5", "60 10.0.0.5"] {
        assert_eq!(
            data(&ask(&dns, "shop.example.com", A).await),
            [format!("shop.example.com. {expected}")]
        );
    }
    assert!(data(&ask(&dns, "shop.example.com", AAAA).await).is_empty(), "the types count apart");
    dns.set("shop.example.com", &["NXDOMAIN"]);
    assert_eq!(
        ask(&dns, "shop.example.com", A).await.metadata.response_code,
        ResponseCode::NXDomain
    );
}

#[tokio::test]
async fn a_code_can_be_for_one_type_alone() {
    let dns = DnsServer::start().await;
    dns.set("half.example.com", &["A 192.0.2.1", "SERVFAIL AAAA"])
        .set("no.example.com", &["REFUSED"]);
    assert_eq!(
        ask(&dns, "half.example.com", A).await.metadata.response_code,
        ResponseCode::NoError
    );
    assert_eq!(
        ask(&dns, "half.example.com", AAAA).await.metadata.response_code,
        ResponseCode::ServFail
    );
    assert_eq!(
        ask(&dns, "no.example.com", AAAA).await.metadata.response_code,
        ResponseCode::Refused
    );
}

#[tokio::test]
async fn truncated_answers_are_whole_over_tcp() {
    let dns = DnsServer::start().await;
    dns.script("cut.example.com", vec![Answer::lines(&["A 192.0.2.1"]).truncated()]);
    let many: Vec<String> = (0..500).map(|n| format!("A 192.0.{}.{}", n / 256, n % 256)).collect();
    dns.set("many.example.com", &many.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, count) in [("cut.example.com", 1), ("many.example.com", 500)] {
        let udp = ask(&dns, name, A).await;
        assert_eq!((udp.metadata.truncation, udp.answers.len()), (true, 0));
        let tcp = ask_tcp(&dns, name, A).await.expect("an answer");
        assert_eq!((tcp.metadata.truncation, tcp.answers.len()), (false, count));
    }
    let alone = DnsServer::udp_only().await;
    ask_tcp(&alone, "cut.example.com", A).await.expect_err("TCP is refused");
}

#[tokio::test]
async fn answers_can_be_held_dropped_and_forged() {
    let dns = DnsServer::start_at("127.0.0.1:0".parse().expect("an address")).await;
    let go = Signal::new();
    let forged = Answer::Forged(std::sync::Arc::new(|request| {
        let mut wrong = blank(request);
        wrong.metadata.id ^= 1;
        vec![encode(&wrong)]
    }));
    dns.script(
        "x.example.com",
        vec![Answer::Drop, Answer::lines(&["A 192.0.2.1"]).held(&go), forged],
    );
    let impatient = tokio::time::timeout(Duration::from_millis(20), ask(&dns, "x.example.com", A));
    impatient.await.expect_err("no answer");
    let (held, ()) = tokio::join!(ask(&dns, "x.example.com", A), async {
        dns.wait_for_questions(2).await;
        go.fire();
    });
    assert_eq!(held.answers.len(), 1);
    let packet = ask_packet(dns.address(), &question("x.example.com", A)).await;
    assert_eq!(Message::from_vec(&packet).expect("a message").metadata.id, 6);
}

#[tokio::test]
async fn a_repeated_question_is_answered_again_and_counted_once() {
    let dns = DnsServer::start().await;
    let answers = vec![Answer::lines(&["A 192.0.2.1"]), Answer::lines(&["A 10.0.0.5"])];
    dns.script("shop.example.com", answers);
    let same = question("shop.example.com", A);
    let first = ask_packet(dns.address(), &same).await;
    // As a resolver does that has not heard anything for so long.
    tokio::time::sleep(Duration::from_millis(333)).await;
    assert_eq!(ask_packet(dns.address(), &same).await, first);
    assert_eq!(dns.count("shop.example.com", A), 1);
    let next = data(&ask(&dns, "shop.example.com", A).await);
    assert_eq!(next, ["shop.example.com. 60 10.0.0.5"]);
    assert_eq!(dns.count("shop.example.com", A), 2);
}

#[tokio::test]
async fn a_name_that_the_zone_does_not_have_fails_the_test() {
    let dns = DnsServer::start().await;
    let answer = ask(&dns, "stray.example.com.search.example", A).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(dns)));
    dropped.expect_err("a stray question is noticed");
}
