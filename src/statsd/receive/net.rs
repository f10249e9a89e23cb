//! Opens sockets, and reads their drop counters and the amount of unread data.
//!
//! Unsafe code is needed for socket options and requests without a safe wrapper.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

/// The maximum number of completed connections that wait for accept; capped by `net.core.somaxconn`.
const BACKLOG: i32 = 1_024;
/// The interval of TCP keepalive probes, as in Go programs.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The receive buffer requested by default.
const DEFAULT_READ_BUFFER: usize = 16 << 20;
/// `SK_MEMINFO_DROPS`: the index of the drop counter in the result of `SO_MEMINFO`.
const MEMINFO_DROPS: usize = 8;

/// Opens a UDP socket. `read_buffer` is in bytes; 0 requests the default.
///
/// # Errors
/// Fails if the address cannot be bound.
pub(crate) fn bind_udp(
    address: SocketAddr,
    read_buffer: usize,
    reuse_port: bool,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    prepare(&socket, read_buffer);
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Opens a non-blocking TCP listener. Accepted connections use keepalive.
///
/// # Errors
/// Fails if the address cannot be bound.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Allows a restart while there are connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit this option.
    let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(9);
    if let Err(error) = socket.set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "Cannot enable TCP keepalive");
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Opens a Unix datagram socket. A name that begins with `@` is abstract.
///
/// # Errors
/// Fails if the name cannot be bound. An existing file is never replaced.
pub(crate) fn bind_unixgram(name: &str, read_buffer: usize) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    prepare(&socket, read_buffer);
    let address = match name.strip_prefix('@') {
        Some(rest) => SockAddr::unix(Path::new(&format!("\0{rest}")))?,
        None => SockAddr::unix(Path::new(name))?,
    };
    socket.bind(&address)?;
    Ok(socket)
}

fn prepare(socket: &Socket, read_buffer: usize) {
    let wanted = if read_buffer == 0 { DEFAULT_READ_BUFFER } else { read_buffer };
    let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
    // With CAP_NET_ADMIN the limit of the system does not apply. Otherwise the kernel caps the size.
    if set_option(socket, libc::SO_RCVBUFFORCE, wanted).is_err()
        && let Err(error) = socket.set_recv_buffer_size(wanted as usize)
    {
        tracing::warn!(%error, bytes = wanted, "Cannot set the size of the receive buffer");
    }
}

fn set_option(socket: &impl AsRawFd, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call; the descriptor is open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the datagrams dropped since the socket was opened, modulo 2^32; `None` if the kernel does not
/// support it.
pub(crate) fn kernel_drops(socket: &Socket) -> Option<u32> {
    let mut info = [0u32; 16];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the pointers describe `info` and `length`, which outlive the call; the kernel writes at most
    // `length` bytes. The descriptor is open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let filled = length as usize / size_of::<u32>();
    if result != 0 || filled <= MEMINFO_DROPS {
        return None;
    }
    info.get(MEMINFO_DROPS).copied()
}

/// Returns the number of bytes that a connection has received and that have not been read.
pub(crate) fn unread(stream: &impl AsRawFd) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the pointer is to `count`, which outlives the call and has the type that the request writes. The
    // descriptor is open.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, IoSlice, Read as _};
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;

    use socket2::MsgHdr;

    use super::super::batch::Batch;
    use super::*;

    fn local() -> Socket {
        bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind")
    }

    fn address(socket: &Socket) -> SocketAddr {
        socket.local_addr().ok().and_then(|address| address.as_socket()).expect("address")
    }

    #[test]
    fn a_batch_contains_the_sent_datagrams() {
        let socket = local();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let long = vec![b'x'; 65_507];
        let sent: Vec<&[u8]> = vec![b"a:1|c", b"", &long, b"b:2|g"];
        for datagram in &sent {
            sender.send_to(datagram, address(&socket)).expect("sent");
        }
        let mut batch = Batch::new(false);
        let mut received: Vec<Vec<u8>> = Vec::new();
        while received.len() < sent.len() {
            // On the loopback interface a datagram is available as soon as it is sent.
            batch.receive(&socket).expect("received");
            assert_eq!(batch.truncated(), 0);
            while let Some((datagram, address)) = batch.take() {
                assert_eq!(address, Some(std::net::Ipv4Addr::LOCALHOST.into()));
                received.push(datagram.to_vec());
            }
        }
        assert_eq!(received, sent);
        let error = batch.receive(&socket).expect_err("nothing is left");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(batch.is_done() && batch.take().is_none());
    }

    #[test]
    fn the_kernel_counts_what_it_drops() {
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 1, false).expect("bind");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        const SENT: u32 = 2_000;
        for _ in 0..SENT {
            sender.send_to(&[b'x'; 1_000], address(&socket)).expect("sent");
        }
        let dropped = kernel_drops(&socket).expect("Linux counts");
        assert!(dropped > 0, "a tiny buffer holds no 2000 datagrams");
        let mut batch = Batch::new(false);
        let mut received = 0;
        while let Ok(count) = batch.receive(&socket) {
            received += count as u32;
        }
        assert_eq!(received + dropped, SENT);
    }

    #[test]
    fn unix_names_may_be_files_or_abstract() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("s");
        let file = path.to_str().expect("text");
        let abstract_name = format!("@kstatd-test-{}", std::process::id());
        for name in [file, &abstract_name] {
            let socket = bind_unixgram(name, 0).expect("bind");
            let sender = Socket::new(Domain::UNIX, Type::DGRAM, None).expect("socket");
            sender.send_to(b"a:1|c", &socket.local_addr().expect("address")).expect("sent");
            let mut batch = Batch::new(false);
            assert_eq!(batch.receive(&socket).expect("received"), 1);
            assert_eq!(batch.take(), Some((&b"a:1|c"[..], None)));
            assert_eq!(
                bind_unixgram(name, 0).expect_err("in use").kind(),
                io::ErrorKind::AddrInUse
            );
        }
        assert!(path.exists());
    }

    /// The kernel opens files that a datagram carries wherever there is room for their numbers.
    #[test]
    fn files_that_senders_attach_are_not_opened() {
        for credentials in [false, true] {
            let name = format!("@kstatd-files-{}-{credentials}", std::process::id());
            let socket = bind_unixgram(&name, 0).expect("bind");
            socket.set_passcred(credentials).expect("an option");
            let sender = Socket::new(Domain::UNIX, Type::DGRAM, None).expect("socket");
            let (mut kept, attached) = UnixStream::pair().expect("sockets");
            let file = attached.as_raw_fd().to_ne_bytes();
            let control = [
                &20_usize.to_ne_bytes()[..],
                &libc::SOL_SOCKET.to_ne_bytes(),
                &libc::SCM_RIGHTS.to_ne_bytes(),
                &file,
                &[0; 4],
            ];
            let (control, bytes) = (control.concat(), [IoSlice::new(b"a:1|c")]);
            let address = socket.local_addr().expect("address");
            let message =
                MsgHdr::new().with_addr(&address).with_buffers(&bytes).with_control(&control);
            assert_eq!(sender.sendmsg(&message, 0).expect("sent"), 5);
            drop(attached);
            let mut batch = Batch::new(credentials);
            assert_eq!(batch.receive(&socket).expect("received"), 1);
            let is_known = batch.process() == Some(std::process::id());
            assert_eq!(is_known, credentials);
            assert_eq!(batch.take(), Some((&b"a:1|c"[..], None)));
            kept.set_nonblocking(true).expect("an option");
            let end = kept.read(&mut [0]).map_err(|error| error.kind());
            assert_ne!(end, Err(ErrorKind::WouldBlock), "the other end is open");
        }
    }
}
