//! Sockets of the service: of TCP, and of Unix.

#[cfg(unix)]
use std::path::{Path, PathBuf};
use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    str::FromStr,
    task::{Context, Poll},
};

#[cfg(unix)]
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket, TcpStream},
};

use crate::values;

/// How much the system keeps of what is written to a connection. The limit of a client that does not read is that of
/// writes to the socket: by default the system keeps megabytes, and a slow client takes nothing of the next write until it
/// has read a third of them. With this, one that reads 5 KB a second is never taken for one that does not read.
pub(super) const SEND_BUFFER: u32 = 256 * 1024;
/// How many connections wait to be accepted.
const BACKLOG: u32 = 1024;
/// Who may use a Unix socket unless it is named: its owner and its group.
#[cfg(unix)]
const SOCKET_MODE: u32 = 0o660;

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// On an address, whose port may be 0.
    Address(SocketAddr),
    /// On a Unix socket, at this path.
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Listen {
    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Address(address) => address.ip().is_loopback(),
            #[cfg(unix)]
            Self::Unix(_) => true,
        }
    }

    /// Whether it is on every address of this machine.
    pub(crate) fn is_unspecified(&self) -> bool {
        matches!(self, Self::Address(address) if address.ip().is_unspecified())
    }

    /// Whether it is on a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        !matches!(self, Self::Address(_))
    }

    /// Returns the URL for a client on this machine, without a slash at the end.
    pub(crate) fn url(&self, is_tls: bool) -> String {
        let address = match self {
            Self::Address(address) => *address,
            #[cfg(unix)]
            Self::Unix(path) => return format!("unix:{}", path.display()),
        };
        match (is_tls, address.ip()) {
            // A certificate names a host.
            (true, ip) if ip.is_loopback() || ip.is_unspecified() => format!("https://localhost:{}", address.port()),
            (true, _) => format!("https://{address}"),
            // An unspecified address is none to connect to.
            (false, IpAddr::V4(ip)) if ip.is_unspecified() => {
                format!("http://{}:{}", Ipv4Addr::LOCALHOST, address.port())
            }
            (false, IpAddr::V6(ip)) if ip.is_unspecified() => {
                format!("http://[{}]:{}", Ipv6Addr::LOCALHOST, address.port())
            }
            (false, _) => format!("http://{address}"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self::Address(address)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            #[cfg(unix)]
            Some("") => Err("it names no file: unix:PATH".to_owned()),
            #[cfg(unix)]
            Some(path) => Ok(Self::Unix(path.into())),
            #[cfg(not(unix))]
            Some(_) => Err("this system has no Unix sockets".to_owned()),
            None => values::listen(text).map(Self::Address),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Of TCP.
    Tcp(TcpListener),
    /// Of Unix, with its file.
    #[cfg(unix)]
    Unix(UnixListener, SocketFile),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    /// Listens. `mode`: that of a Unix socket, if it is another than by default.
    #[cfg_attr(not(unix), expect(unused_variables))]
    pub(crate) fn bind(listen: &Listen, mode: Option<u32>) -> io::Result<Self> {
        match listen {
            Listen::Address(address) => tcp(*address).map(Self::Tcp),
            #[cfg(unix)]
            Listen::Unix(path) => unix(path, mode.unwrap_or(SOCKET_MODE)),
        }
    }

    /// Returns where it listens, with the port that it has got.
    pub(crate) fn listens_at(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Listen::Address),
            #[cfg(unix)]
            Self::Unix(_, file) => Ok(Listen::Unix(file.path.clone())),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are small: waiting to fill packets would only delay them.
                let _ = stream.set_nodelay(true);
                Ok(Socket::Tcp(stream))
            }
            #[cfg(unix)]
            Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

/// Listens on an address, whose port may be 0.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A service that is restarted need not wait for the connections of its predecessor.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    // Connections inherit it from the listener.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Listens on a Unix socket. Its file gets its name once it has its mode and listens: nobody connects before, whatever the umask is, and another
/// service that starts does not take it for left behind. The file of a predecessor that was killed is replaced.
#[cfg(unix)]
fn unix(path: &Path, mode: u32) -> io::Result<Listener> {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt as _,
    };
    let own = path.with_file_name(format!(".{}", std::process::id()));
    // What a process with this id has left that was killed.
    let _ = fs::remove_file(&own);
    let socket = UnixSocket::new_stream()?;
    socket.bind(&own)?;
    let listening = fs::set_permissions(&own, Permissions::from_mode(mode))
        .and_then(|()| socket.listen(BACKLOG))
        .and_then(|listener| name(&own, path).map(|()| listener));
    let _ = fs::remove_file(&own);
    let listener = listening?;
    let file = SocketFile { path: path.to_owned(), id: id_of(&fs::symlink_metadata(path)?) };
    Ok(Listener::Unix(listener, file))
}

/// Gives the file of a socket its name, if no service has it.
#[cfg(unix)]
fn name(own: &Path, path: &Path) -> io::Result<()> {
    use std::{
        fs,
        os::unix::{fs::FileTypeExt as _, net::UnixStream},
    };
    loop {
        match fs::hard_link(own, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_left = fs::symlink_metadata(path)?.file_type().is_socket()
                    && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
                if !is_left {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                fs::remove_file(path)?;
            }
            // A file system whose files have one name.
            Err(_) if !path.try_exists()? => return fs::rename(own, path),
            named => return named,
        }
    }
}

/// The file of a Unix socket. It is removed with the listener.
#[cfg(unix)]
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Which file it is: a successor may have replaced it.
    id: FileId,
}

/// The device and inode of a file, and when it was made and given its mode: an inode is used again.
#[cfg(unix)]
type FileId = (u64, u64, i64, i64);

#[cfg(unix)]
fn id_of(file: &std::fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt as _;
    (file.dev(), file.ino(), file.ctime(), file.ctime_nsec())
}

#[cfg(unix)]
impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|file| id_of(&file) == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The socket of a connection.
pub(super) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    /// Writes as much as fits, without waiting.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }
}

/// Calls a method of whichever stream it is.
macro_rules! of_stream {
    ($socket:expr, $stream:ident => $called:expr) => {
        match $socket.get_mut() {
            Socket::Tcp($stream) => $called,
            #[cfg(unix)]
            Socket::Unix($stream) => $called,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, stream => Pin::new(stream).poll_read(context, into))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        of_stream!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_stream!(self, stream => Pin::new(stream).poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        // Both can.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_stream!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_listened_on_is_read_and_shown_as_a_url_that_works() {
        for (text, is_tls, url) in [
            ("8080", false, "http://127.0.0.1:8080"),
            ("0.0.0.0:8080", false, "http://127.0.0.1:8080"),
            ("[::]:8080", false, "http://[::1]:8080"),
            ("10.0.0.1:80", false, "http://10.0.0.1:80"),
            ("0.0.0.0:8443", true, "https://localhost:8443"),
            ("127.0.0.1:8443", true, "https://localhost:8443"),
            ("10.0.0.1:443", true, "https://10.0.0.1:443"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().url(is_tls), url);
        }
        for text in ["example.com:80", "", "unix:"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_socket_has_its_mode_and_listens_once_it_has_its_name() {
        use std::os::unix::{fs::PermissionsExt as _, net::UnixStream};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        for mode in [0o600, 0o660, 0o666, 0o600, 0o660, 0o666] {
            let seen = path.clone();
            let connecting = std::thread::spawn(move || {
                while !seen.exists() {
                    std::thread::yield_now();
                }
                let found = std::fs::metadata(&seen).unwrap().permissions().mode() & 0o777;
                (found, UnixStream::connect(&seen).is_ok())
            });
            let listener = unix(&path, mode).unwrap();
            assert_eq!(connecting.join().unwrap(), (mode, true));
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
            drop(listener);
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_one_in_use_and_other_files_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listen: Listen = format!("unix:{}", path.display()).parse().unwrap();
        let first = Listener::bind(&listen, None).unwrap();
        let in_use = Listener::bind(&listen, None).unwrap_err();
        assert_eq!(in_use.kind(), io::ErrorKind::AddrInUse);
        // As after a kill: the file stays, and nobody listens.
        let Listener::Unix(listener, file) = first else { panic!("it is a Unix socket") };
        drop(listener);
        let second = Listener::bind(&listen, None).unwrap();
        drop(file);
        assert!(path.exists(), "the successor's file stays");
        drop(second);
        assert!(!path.exists());
        std::fs::write(&path, "data").unwrap();
        assert!(Listener::bind(&listen, None).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    }
}
