//! Tells what this machine has run out of from what is wrong elsewhere.

use std::io;
use std::net::SocketAddr;

/// Whether this machine ran out of something on the way to an address. Without IPv6, an IPv6 address is "not available"
/// too: that is no lack.
pub fn is_shortage(address: SocketAddr, error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => address.is_ipv4(),
        io::ErrorKind::OutOfMemory => true,
        _ => matches!(error.raw_os_error(), Some(ENFILE | EMFILE | ENOBUFS)),
    }
}
