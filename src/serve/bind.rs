//! Places to listen at: taken without taking anybody else's, and given back.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::config::listening::Bind;

/// Clients that the kernel lets wait for us.
const BACKLOG: i32 = 1024;

/// A listening socket.
#[derive(Debug)]
pub(super) enum Place {
    /// On the network.
    Tcp(TcpListener),
    /// In the file system.
    Unix(UnixListener, SocketFile),
}

/// Either kind of connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Place {
    /// Takes the place. An address on all interfaces takes IPv4 too, and IPv4 alone where there is no IPv6.
    pub(super) async fn take(bind: &Bind) -> io::Result<Self> {
        match bind {
            Bind::Tcp(address) => tcp(*address).map(Self::Tcp),
            Bind::Unix { path, mode } => unix(path, *mode).await,
        }
    }

    /// The TCP address that was taken, with the real port where 0 was asked for.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// Where it is, for the log.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tcp(_) => self.address().map_or_else(String::new, |one| one.to_string()),
            Self::Unix(_, file) => file.path.display().to_string(),
        }
    }

    /// The next client.
    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(listener, _) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    if !(address.is_ipv6() && address.ip().is_unspecified()) {
        return listen(Socket::new(Domain::for_address(address), Type::STREAM, None)?, address);
    }
    let any_ipv4 = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        listen(socket, (Ipv4Addr::UNSPECIFIED, address.port()).into())
    };
    // A kernel without IPv6 makes no such socket. Where it is short of something else, IPv4 fails in the same way.
    let Ok(socket) = Socket::new(Domain::IPV6, Type::STREAM, None) else { return any_ipv4() };
    socket.set_only_v6(false)?;
    match listen(socket, address) {
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => any_ipv4(),
        taken => taken,
    }
}

fn listen(socket: Socket, address: SocketAddr) -> io::Result<TcpListener> {
    // A restart must not wait for the connections of the process before.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

async fn unix(path: &Path, mode: u32) -> io::Result<Place> {
    clear(path).await?;
    let listener = unix_listener(path, mode)?;
    // Exactly so: the process's own mask may have taken something away.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    let file = SocketFile { path: path.to_owned(), identity: identity(&path.symlink_metadata()?) };
    Ok(Place::Unix(listener, file))
}

/// A socket whose file never has more than these permissions, not for a moment.
fn unix_listener(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = File::from(OwnedFd::from(Socket::new(Domain::UNIX, Type::STREAM, None)?));
    // On Linux the file takes its permissions from the socket; elsewhere they are not to be set before there is a file.
    let _ = socket.set_permissions(Permissions::from_mode(mode));
    let socket = Socket::from(OwnedFd::from(socket));
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// Removes a socket that a killed process left behind, and nothing else.
async fn clear(path: &Path) -> io::Result<()> {
    let found = match path.symlink_metadata() {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let text = "something that is no socket is at this path, move it away";
        return Err(io::Error::new(ErrorKind::AlreadyExists, text));
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Somebody listens, or may: binding says that the place is taken.
        _ => Ok(()),
    }
}

/// A socket's entry in the file system: removed in the end, unless a new process has put its own there.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.path.symlink_metadata().is_ok_and(|found| identity(&found) == self.identity) {
            // What cannot be removed is found by the next start, which clears the place.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    fn at(path: &Path) -> Bind {
        Bind::Unix { path: path.to_owned(), mode: 0o600 }
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let error = Place::take(&at(&path)).await.unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Place::take(&at(&link)).await.unwrap_err();
        assert!(link.is_symlink() && path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_answers_is_somebody_else_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let first = Place::take(&at(&path)).await.unwrap();
        let error = Place::take(&at(&path)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
        assert!(path.exists());
        drop(first);
        assert!(!path.exists(), "its owner removes it");
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_socket_is_never_open_to_more_than_its_mode_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = unix_listener(&path, 0o600).unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o177, 0);
    }

    #[tokio::test]
    async fn a_socket_that_was_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let place = Place::take(&at(&path)).await.unwrap();
        assert_eq!(path.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o600);
        drop(place);
    }

    #[tokio::test]
    async fn the_socket_of_a_new_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let old = Place::take(&at(&path)).await.unwrap();
        fs::rename(&path, folder.path().join("old")).unwrap();
        let _new = Place::take(&at(&path)).await.unwrap();
        drop(old);
        assert!(path.exists());
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a client of the listener")]
    async fn all_interfaces_are_both_families() {
        let place = Place::take(&Bind::Tcp((Ipv6Addr::UNSPECIFIED, 0).into())).await.unwrap();
        let port = place.address().unwrap().port();
        let client = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        let (client, served) = tokio::join!(client, place.accept());
        assert!(client.is_ok() && served.is_ok());
    }

    #[tokio::test]
    async fn a_taken_port_is_no_reason_to_listen_on_ipv4_alone() {
        let Ok(socket) = Socket::new(Domain::IPV6, Type::STREAM, None) else { return };
        socket.set_only_v6(true).unwrap();
        let Ok(taken) = listen(socket, (Ipv6Addr::UNSPECIFIED, 0).into()) else { return };
        let error = Place::take(&Bind::Tcp(taken.local_addr().unwrap())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    }
}
