//! A listener whose queue is full: who connects hears nothing.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use socket2::{Domain, Socket, Type};

/// Lets nobody in until it is dropped.
pub(crate) struct Deaf {
    address: SocketAddr,
    _listener: Socket,
    _queued: TcpStream,
}

impl Deaf {
    /// Takes a free loopback port.
    pub(crate) fn listen() -> Self {
        Self::listen_at((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Takes an IPv4 address. A queue of 0 holds one connection; the kernel drops every further SYN.
    pub(crate) fn listen_at(address: SocketAddr) -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        listener.bind(&address.into()).expect("a free address");
        listener.listen(0).expect("a listener");
        let address = listener.local_addr().expect("an address").as_socket().expect("IPv4");
        let queued = TcpStream::connect(address).expect("the one connection that fits");
        Self { address, _listener: listener, _queued: queued }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
