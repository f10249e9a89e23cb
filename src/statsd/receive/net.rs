//! Sockets: how they are opened, when what they hold reached this host, and what the kernel dropped.
//!
//! Unsafe code is for `recvmsg` and socket options that no safe wrapper offers. It moves bytes and knows nothing of lines.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::stamp::{CONTROL_WORDS, Stamp, control_stamp};

/// Connections that the kernel completes before they are accepted; capped by `net.core.somaxconn`.
const BACKLOG: i32 = 1_024;
/// Probes of idle TCP connections as Go programs send them, so that a peer that is gone is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Receive buffer that is asked for when the configuration says nothing.
const DEFAULT_READ_BUFFER: usize = 16 << 20;
/// `SK_MEMINFO_DROPS`, the place of the drop counter in what `SO_MEMINFO` gives.
const MEMINFO_DROPS: usize = 8;

/// Opens a UDP socket. `read_buffer` is in bytes, 0 for as much as the system allows.
///
/// # Errors
/// When the address cannot be bound.
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
    stamp(&socket);
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Opens a TCP listener that does not block. What it accepts stamps what it receives and probes its peer.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit both.
    stamp(&socket);
    let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(9);
    if let Err(error) = socket.set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "idle connections are not probed");
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Opens a Unix datagram socket; a name that begins with `@` is an abstract one.
///
/// # Errors
/// When the name cannot be bound; an existing file is never replaced.
pub(crate) fn bind_unixgram(name: &str, read_buffer: usize) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    prepare(&socket, read_buffer);
    stamp(&socket);
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
    // With the right to do so the limit of the system does not apply. Without, the kernel takes what it allows.
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, wanted).is_err()
        && let Err(error) = socket.set_recv_buffer_size(wanted as usize)
    {
        tracing::warn!(%error, bytes = wanted, "the receive buffer keeps its size");
    }
    // Where the kernel does not count for us there is nothing to report.
    if let Err(error) = set_option(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1) {
        tracing::debug!(%error, "the kernel does not report drops");
    }
}

/// Has the kernel say when each packet came. Where it does not, order between sockets is that of reading.
fn stamp(socket: &Socket) {
    if let Err(error) = set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1) {
        tracing::debug!(%error, "the kernel does not stamp packets");
    }
}

/// Acknowledges what a TCP connection has received, and has the kernel wait with the acknowledgement of what comes next.
///
/// The kernel joins a packet to the one before it in the receive queue, and puts its stamp in the place of the other's,
/// unless the sender of this host still holds the one before, to repeat it. It holds it until it is acknowledged. So this
/// keeps the stamps of packets that wait unread (for 40 ms, and for some 500 bytes); a sender that waits for
/// acknowledgements (Nagle) goes on as soon as what it sent has been read. Packets from other hosts are joined all the same.
pub(crate) fn keep_apart(stream: &impl AsRawFd) {
    // An even value acknowledges at once; it delays the next one, but only if there was one to be sent.
    for value in [2, 0] {
        // Where the kernel knows no such thing, packets are joined.
        let _ = set_option(stream, libc::IPPROTO_TCP, libc::TCP_QUICKACK, value);
    }
}

fn set_option(socket: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and the length describe `value`, which outlives the call; the descriptor is open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams dropped since the socket was opened, modulo 2^32; `None` where the kernel does not tell.
pub(crate) fn kernel_drops(socket: &Socket) -> Option<u32> {
    let mut info = [0u32; 16];
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the pointers describe `info` and `length`, which outlive the call; the kernel writes at most `length`
    // bytes. The descriptor is open.
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

/// Whether what is read from a stream stays there, to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// It stays.
    Peek,
    /// It is taken.
    Take,
}

/// Reads from a stream what is there, without waiting: the number of bytes, and when the last of them came.
///
/// # Errors
/// What the system call says, `WouldBlock` if there is nothing; interrupted calls are repeated.
pub(crate) fn receive(
    stream: &impl AsRawFd,
    space: &mut [u8],
    read: Read,
) -> io::Result<(usize, Option<Stamp>)> {
    let flags = match read {
        Read::Peek => libc::MSG_DONTWAIT | libc::MSG_PEEK,
        Read::Take => libc::MSG_DONTWAIT,
    };
    let mut control = [0u64; CONTROL_WORDS];
    let mut vector = libc::iovec { iov_base: space.as_mut_ptr().cast(), iov_len: space.len() };
    loop {
        // SAFETY: all fields of `msghdr` are integers and pointers, for which zero is a valid value.
        let mut header: libc::msghdr = unsafe { zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: the header points to `space` and `control` with their true lengths; both are borrowed exclusively and
        // outlive the call. The descriptor is open.
        let received = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut header, flags) };
        if let Ok(length) = usize::try_from(received) {
            return Ok((length, control_stamp(&control, header.msg_controllen)));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::super::batch::Batch;
    use super::*;

    fn local() -> Socket {
        bind_udp("127.0.0.1:0".parse().expect("address"), 0, false).expect("bind")
    }

    fn address(socket: &Socket) -> SocketAddr {
        socket.local_addr().ok().and_then(|address| address.as_socket()).expect("address")
    }

    #[test]
    fn a_batch_holds_what_was_sent() {
        let socket = local();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let long = vec![b'x'; 65_507];
        let sent: Vec<&[u8]> = vec![b"a:1|c", b"", &long, b"b:2|g"];
        for datagram in &sent {
            sender.send_to(datagram, address(&socket)).expect("sent");
        }
        let mut batch = Batch::new();
        let mut received: Vec<Vec<u8>> = Vec::new();
        while received.len() < sent.len() {
            // Over the loopback a datagram is there when its sender goes on.
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
    fn drops_are_counted_by_the_kernel_in_both_ways() {
        let socket = bind_udp("127.0.0.1:0".parse().expect("address"), 1, false).expect("bind");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        const SENT: u32 = 2_000;
        for _ in 0..SENT {
            sender.send_to(&[b'x'; 1_000], address(&socket)).expect("sent");
        }
        let dropped = kernel_drops(&socket).expect("Linux counts");
        assert!(dropped > 0, "a tiny buffer holds no 2000 datagrams");
        let mut batch = Batch::new();
        let mut received = 0;
        while let Ok(count) = batch.receive(&socket) {
            received += count as u32;
        }
        assert_eq!(received + dropped, SENT);
        // A datagram that comes after drops says how many there were.
        sender.send_to(b"after", address(&socket)).expect("sent");
        batch.receive(&socket).expect("received");
        assert_eq!(batch.drops(), Some(dropped));
    }

    #[test]
    fn datagrams_and_bytes_say_when_they_came() {
        let socket = local();
        let listener = bind_tcp("127.0.0.1:0".parse().expect("address")).expect("bind");
        let mut stream = std::net::TcpStream::connect(listener.local_addr().expect("address"))
            .expect("connected");
        let (accepted, _) = listener.accept().expect("accepted");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let mut batch = Batch::new();
        let mut space = [0; 100];
        let mut last = Stamp::MIN;
        // The kernel begins to stamp a moment after it is told to, so the first few may be read unstamped.
        let end = std::time::Instant::now() + Duration::from_secs(120);
        let mut stamped = 0;
        while stamped < 100 {
            assert!(std::time::Instant::now() < end, "packets are not stamped");
            sender.send_to(b"u", address(&socket)).expect("sent");
            std::io::Write::write_all(&mut stream, b"t").expect("sent");
            batch.receive(&socket).expect("received");
            let first = batch.next_stamp().expect("a stamp");
            assert_eq!(batch.take().map(|(datagram, _)| datagram), Some(&b"u"[..]));
            let (length, second) = receive(&accepted, &mut space, Read::Take).expect("received");
            assert_eq!(space.get(..length), Some(&b"t"[..]));
            let Some(second) = second else { continue };
            if stamped > 0 {
                assert!(last <= first && first <= second && second <= Stamp::now());
            }
            (last, stamped) = (second, stamped + 1);
        }
        assert_eq!(
            receive(&accepted, &mut space, Read::Take).expect_err("nothing is left").kind(),
            io::ErrorKind::WouldBlock
        );
        drop(stream);
        assert_eq!(receive(&accepted, &mut space, Read::Take).expect("the end").0, 0);
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
            let mut batch = Batch::new();
            assert_eq!(batch.receive(&socket).expect("received"), 1);
            assert_eq!(batch.take(), Some((&b"a:1|c"[..], None)));
            assert_eq!(
                bind_unixgram(name, 0).expect_err("in use").kind(),
                io::ErrorKind::AddrInUse
            );
        }
        assert!(path.exists());
    }
}
