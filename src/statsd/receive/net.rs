//! Sockets: many datagrams with one system call, when each reached this host, and what the kernel dropped.
//!
//! Unsafe code is in this module (and in `cli::startup_code` and `descriptors`, for a call each): `recvmmsg`, `recvmsg`
//! and socket options that no safe wrapper offers. It moves bytes and knows nothing of lines.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

/// Datagrams taken with one call.
const BATCH: usize = 64;
/// The longest datagram is 65,507 bytes over UDP; the original reads 65,535.
const DATAGRAM: usize = 65_535;
/// Distance of buffers. Not a power of two, or the beginnings of all of them would compete for the same cache lines.
const STRIDE: usize = DATAGRAM + 1 + 1_408;
/// Words of control data for each read: room for a time (4 words) and a 32-bit counter (3).
const CONTROL_WORDS: usize = 8;
/// Bytes of a sender's name: of the longer one of both IP families.
const NAME: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
/// Words before the data of a control message: its length, level and type.
const CONTROL_HEAD: usize = 2;
/// Connections that the kernel completes before they are accepted; capped by `net.core.somaxconn`.
const BACKLOG: i32 = 1_024;
/// Probes of idle TCP connections as Go programs send them, so that a peer that is gone is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Receive buffer that is asked for when the configuration says nothing.
const DEFAULT_READ_BUFFER: usize = 16 << 20;
/// `SK_MEMINFO_DROPS`, the place of the drop counter in what `SO_MEMINFO` gives.
const MEMINFO_DROPS: usize = 8;

/// When something reached this host: nanoseconds of its wall clock, as the kernel notes it for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// Later than everything.
    pub(crate) const MAX: Self = Self(u64::MAX);
    /// Earlier than everything.
    pub(crate) const MIN: Self = Self(0);

    /// The present time, by the clock that stamps packets.
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    #[cfg(test)]
    pub(crate) const fn at(nanos: u64) -> Self {
        Self(nanos)
    }
}

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

/// Buffers for one batch of datagrams, which are taken one after the other.
pub(crate) struct Batch {
    buffers: Vec<u8>,
    /// What the kernel is pointed at; the pointers lead into `buffers`, `vectors` and `control`, which never move.
    headers: Vec<libc::mmsghdr>,
    _vectors: Vec<libc::iovec>,
    /// Where each came from.
    names: Vec<libc::sockaddr_in6>,
    control: Vec<u64>,
    filled: usize,
    /// Number of the next datagram to be taken.
    next: usize,
}

// SAFETY: the pointers in `headers` lead into vectors that the batch owns and nobody else knows, and go where it goes.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        // Untouched pages of these 4 MB cost nothing: a short datagram uses the first page of its buffer.
        let mut buffers = vec![0u8; BATCH * STRIDE];
        let mut control = vec![0u64; BATCH * CONTROL_WORDS];
        let mut vectors: Vec<libc::iovec> = buffers
            .chunks_exact_mut(STRIDE)
            .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: DATAGRAM })
            .collect();
        // SAFETY: all fields of `sockaddr_in6` are integers, for which zero is a valid value.
        let mut names: Vec<libc::sockaddr_in6> = vec![unsafe { zeroed() }; BATCH];
        let headers = vectors
            .iter_mut()
            .zip(control.chunks_exact_mut(CONTROL_WORDS))
            .zip(&mut names)
            .map(|((vector, control), name)| {
                // SAFETY: all fields of `mmsghdr` are integers and pointers, for which zero is a valid value.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
                header.msg_hdr.msg_namelen = NAME;
                header.msg_hdr.msg_control = control.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
                header
            })
            .collect();
        Self { buffers, headers, _vectors: vectors, names, control, filled: 0, next: 0 }
    }

    /// Reads all datagrams that are there, up to a batch, without waiting. Those of the batch before are gone.
    ///
    /// # Errors
    /// What the system call says, `WouldBlock` if there is none; interrupted calls are repeated.
    pub(crate) fn receive(&mut self, socket: &Socket) -> io::Result<usize> {
        let descriptor: RawFd = socket.as_raw_fd();
        // The kernel wrote into those alone.
        for header in self.headers.iter_mut().take(self.filled) {
            header.msg_hdr.msg_flags = 0;
            header.msg_hdr.msg_namelen = NAME;
            header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
        }
        (self.filled, self.next) = (0, 0);
        loop {
            // SAFETY: each of the `BATCH` headers points to an `iovec` over its own part of `buffers`, to its own of
            // `names` and to its own part of `control`, with their true lengths. Those vectors are never resized, so the pointers hold; no
            // reference into them exists during the call as `self` is borrowed exclusively. The descriptor is open.
            let received = unsafe {
                libc::recvmmsg(
                    descriptor,
                    self.headers.as_mut_ptr(),
                    self.headers.len() as u32,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            if received >= 0 {
                self.filled = received as usize;
                return Ok(self.filled);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Whether every datagram has been taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.filled
    }

    /// When the next datagram came, if there is one and the kernel says so.
    pub(crate) fn next_stamp(&self) -> Option<Stamp> {
        let header = self.headers.get(..self.filled)?.get(self.next)?;
        let words = self.control.chunks_exact(CONTROL_WORDS).nth(self.next)?;
        control_stamp(words, header.msg_hdr.msg_controllen)
    }

    /// Takes the next datagram, with the address of its sender if that has one.
    pub(crate) fn take(&mut self) -> Option<(&[u8], Option<IpAddr>)> {
        let header = self.headers.get(..self.filled)?.get(self.next)?;
        let address = self.names.get(self.next).and_then(|name| {
            // The kernel writes no name for who has none, which is shorter than a family then.
            if header.msg_hdr.msg_namelen < 2 { None } else { address(name) }
        });
        let length = (header.msg_len as usize).min(DATAGRAM);
        let start = self.next * STRIDE;
        self.next += 1;
        Some((self.buffers.get(start..start + length)?, address))
    }

    /// The sum of the lengths of all datagrams of the batch.
    pub(crate) fn bytes(&self) -> usize {
        self.headers.iter().take(self.filled).map(|header| header.msg_len as usize).sum()
    }

    /// Whether the batch has no room for another datagram, so that the socket may hold more.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    /// How many of those datagrams did not fit into their buffer.
    pub(crate) fn truncated(&self) -> usize {
        self.headers
            .iter()
            .take(self.filled)
            .filter(|header| header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0)
            .count()
    }

    /// The kernel's drop counter that came with the last of those datagrams; it comes once there were drops.
    pub(crate) fn drops(&self) -> Option<u32> {
        let last = self.filled.checked_sub(1)?;
        let header = self.headers.get(last)?;
        let words = self.control.chunks_exact(CONTROL_WORDS).nth(last)?;
        control_messages(words, header.msg_hdr.msg_controllen)
            .find(|(option, _)| *option == libc::SO_RXQ_OVFL)
            .and_then(|(_, data)| Some(*data.first()? as u32))
    }
}

/// The IP address in a name that the kernel wrote; IPv4 is in it as such, whatever the socket's family.
fn address(name: &libc::sockaddr_in6) -> Option<IpAddr> {
    match i32::from(name.sin6_family) {
        // `sockaddr_in` has its address where `sockaddr_in6` has the flow.
        libc::AF_INET => Some(IpAddr::from(name.sin6_flowinfo.to_ne_bytes())),
        libc::AF_INET6 => Some(IpAddr::from(name.sin6_addr.s6_addr).to_canonical()),
        _ => None,
    }
}

fn control_stamp(words: &[u64], length: usize) -> Option<Stamp> {
    control_messages(words, length).find(|(option, _)| *option == libc::SCM_TIMESTAMPNS).and_then(
        |(_, data)| match data {
            [seconds, nanos, ..] => {
                Some(Stamp(seconds.checked_mul(1_000_000_000)?.checked_add(*nanos)?))
            }
            _ => None,
        },
    )
}

/// Control messages of the socket level: type and data. Each is a `cmsghdr` (length, level, type), then the data, up to
/// a full word. `length` is in bytes.
fn control_messages(words: &[u64], length: usize) -> impl Iterator<Item = (i32, &[u64])> {
    let mut rest = words.get(..(length / size_of::<u64>()).min(words.len())).unwrap_or_default();
    std::iter::from_fn(move || {
        let [size, kind, ..] = *rest else { return None };
        let end = (size as usize).div_ceil(size_of::<u64>());
        let data = rest.get(CONTROL_HEAD..end)?;
        rest = rest.get(end..)?;
        Some(([kind as u32 as i32, (kind >> 32) as u32 as i32], data))
    })
    .filter(|([level, _], _)| *level == libc::SOL_SOCKET)
    .map(|([_, option], data)| (option, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

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
        let mut last = Stamp(0);
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
