//! The demo's name server: it knows two names and remembers what it was asked.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::A;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// A name and its address.
pub type Entry = (&'static str, Ipv4Addr);

/// A running name server on loopback; it ends when it is dropped.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    strangers: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl NameServer {
    /// Answers for these names on a free UDP port.
    pub async fn start(zone: &'static [Entry]) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let strangers = Arc::new(Mutex::new(BTreeSet::new()));
        let task = tokio::spawn(serve(socket, zone, Arc::clone(&strangers)));
        Ok(Self { address, strangers, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The names that it was asked for and does not know.
    pub fn strangers(&self) -> Vec<String> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, zone: &'static [Entry], strangers: Arc<Mutex<BTreeSet<String>>>) {
    let mut buffer = [0; 1024];
    loop {
        // What fails here is one packet's business, such as the ICMP error of an earlier answer.
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else { continue };
        let packet = buffer.get(..length).unwrap_or_default();
        if let Some((answer, stranger)) = answer(packet, zone) {
            strangers.lock().unwrap_or_else(PoisonError::into_inner).extend(stranger);
            let _ = socket.send_to(&answer, peer).await;
        }
    }
}

/// The answer to a question, and the name if it is not in the zone.
fn answer(packet: &[u8], zone: &[Entry]) -> Option<(Vec<u8>, Option<String>)> {
    let request = Message::from_vec(packet).ok()?;
    let query = request.queries.first()?;
    let asked = query.name().to_ascii().to_ascii_lowercase();
    let name = asked.trim_end_matches('.');

    let mut answer =
        Message::new(request.metadata.id, MessageType::Response, request.metadata.op_code);
    answer.metadata.recursion_desired = request.metadata.recursion_desired;
    answer.metadata.recursion_available = true;
    answer.add_query(query.clone());
    let known = zone.iter().find(|(known, _)| *known == name);
    match known {
        Some((_, address)) if query.query_type() == RecordType::A => {
            answer.add_answer(Record::from_rdata(query.name().clone(), 60, RData::A(A(*address))));
        }
        Some(_) => {}
        None => answer.metadata.response_code = ResponseCode::NXDomain,
    }
    Some((answer.to_vec().ok()?, known.is_none().then(|| name.to_owned())))
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::{OpCode, Query};
    use hickory_resolver::proto::rr::Name;

    use super::*;

    const ZONE: &[Entry] = &[("shop.example.com", Ipv4Addr::LOCALHOST)];

    #[track_caller]
    fn check(
        name: &str,
        kind: RecordType,
        addresses: &[&str],
        code: ResponseCode,
        stranger: Option<&str>,
    ) {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        let (packet, found) = answer(&message.to_vec().unwrap(), ZONE).unwrap();
        let reply = Message::from_vec(&packet).unwrap();
        assert_eq!((reply.metadata.id, reply.metadata.response_code), (7, code));
        assert_eq!(
            reply.answers.iter().map(|one| one.data.to_string()).collect::<Vec<_>>(),
            addresses
        );
        assert_eq!(found.as_deref(), stranger);
    }

    #[test]
    fn known_names_have_an_ipv4_address_and_no_other() {
        check("Shop.Example.com.", RecordType::A, &["127.0.0.1"], ResponseCode::NoError, None);
        check("shop.example.com.", RecordType::AAAA, &[], ResponseCode::NoError, None);
    }

    #[test]
    fn other_names_do_not_exist_and_are_remembered() {
        check("x.example.org.", RecordType::A, &[], ResponseCode::NXDomain, Some("x.example.org"));
    }

    #[test]
    fn noise_is_not_answered() {
        assert!(answer(b"noise", ZONE).is_none());
    }
}
