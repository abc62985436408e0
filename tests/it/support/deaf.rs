//! Ports without a server: a listener whose queue is full, so that who connects hears nothing, and none at all.

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

/// A loopback port at which nobody listens. It stays taken, so that no other test gets it meanwhile.
pub(crate) struct Vacant(Socket);

impl Vacant {
    pub(crate) fn take() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        // Whoever names this very port, and sets this too, may listen there.
        socket.set_reuse_address(true).expect("an option");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        socket.bind(&address.into()).expect("a free port");
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address").as_socket().expect("IPv4")
    }

    pub(crate) fn port(&self) -> u16 {
        self.address().port()
    }
}
