//! Datagram sockets: many datagrams with one system call, and what the kernel dropped.
//!
//! Unsafe code is in this module (and in `cli::startup_code`, for one call): `recvmmsg` and three socket options that no safe wrapper
//! offers. It moves bytes and knows nothing of lines.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, size_of_val, zeroed};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Datagrams taken with one call.
const BATCH: usize = 64;
/// The longest datagram is 65,507 bytes over UDP; the original reads 65,535.
const DATAGRAM: usize = 65_535;
/// Distance of buffers. Not a power of two, or the beginnings of all of them would compete for the same cache lines.
const STRIDE: usize = DATAGRAM + 1 + 1_408;
/// Words of control data for each datagram: room for one 32-bit counter.
const CONTROL_WORDS: usize = 4;
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
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Opens a Unix datagram socket; a name that begins with `@` is an abstract one.
///
/// # Errors
/// When the name cannot be bound; an existing file is never replaced.
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
    // With the right to do so the limit of the system does not apply. Without, the kernel takes what it allows.
    if set_option(socket, libc::SO_RCVBUFFORCE, wanted).is_err()
        && let Err(error) = socket.set_recv_buffer_size(wanted as usize)
    {
        tracing::warn!(%error, bytes = wanted, "the receive buffer keeps its size");
    }
    // Where the kernel does not count for us there is nothing to report.
    if let Err(error) = set_option(socket, libc::SO_RXQ_OVFL, 1) {
        tracing::debug!(%error, "the kernel does not report drops");
    }
}

fn set_option(socket: &Socket, option: i32, value: i32) -> io::Result<()> {
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

/// Buffers for one batch of datagrams. Stays on the thread that made it.
pub(crate) struct Batch {
    buffers: Vec<u8>,
    /// What the kernel is pointed at; the pointers lead into `buffers`, `vectors` and `control`, which never move.
    headers: Vec<libc::mmsghdr>,
    _vectors: Vec<libc::iovec>,
    control: Vec<u64>,
    filled: usize,
}

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
        let headers = vectors
            .iter_mut()
            .zip(control.chunks_exact_mut(CONTROL_WORDS))
            .map(|(vector, control)| {
                // SAFETY: all fields of `mmsghdr` are integers and pointers, for which zero is a valid value.
                let mut header: libc::mmsghdr = unsafe { zeroed() };
                header.msg_hdr.msg_iov = vector;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = control.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
                header
            })
            .collect();
        Self { buffers, headers, _vectors: vectors, control, filled: 0 }
    }

    /// Waits for a datagram and takes all that are there, up to a batch; with `wait` false it does not wait.
    ///
    /// # Errors
    /// What the system call says; interrupted calls are repeated.
    pub(crate) fn receive(&mut self, socket: &Socket, wait: bool) -> io::Result<usize> {
        let descriptor: RawFd = socket.as_raw_fd();
        // The kernel wrote into those alone.
        for header in self.headers.iter_mut().take(self.filled) {
            header.msg_hdr.msg_flags = 0;
            header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
        }
        self.filled = 0;
        let flags = if wait { libc::MSG_WAITFORONE } else { libc::MSG_DONTWAIT };
        loop {
            // SAFETY: each of the `BATCH` headers points to an `iovec` over its own part of `buffers` and to its own
            // part of `control`, with their true lengths. Those vectors are never resized, so the pointers hold; no
            // reference into them exists during the call as `self` is borrowed exclusively. The descriptor is open.
            let received = unsafe {
                libc::recvmmsg(
                    descriptor,
                    self.headers.as_mut_ptr(),
                    self.headers.len() as u32,
                    flags as _,
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

    /// The datagrams of the last [`Batch::receive`].
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.headers.iter().take(self.filled).zip(self.buffers.chunks_exact(STRIDE)).map(
            |(header, buffer)| {
                let length = (header.msg_len as usize).min(DATAGRAM);
                buffer.get(..length).unwrap_or_default()
            },
        )
    }

    /// The sum of their lengths.
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
        control_counter(words, header.msg_hdr.msg_controllen)
    }
}

/// Reads a `SO_RXQ_OVFL` counter from control data: a `cmsghdr` (length, level, type) and 32 bits.
fn control_counter(words: &[u64], length: usize) -> Option<u32> {
    let [size, kind, value, ..] = *words else {
        return None;
    };
    let [level, option] = [kind as u32 as i32, (kind >> 32) as u32 as i32];
    let complete = length >= 20 && size >= 20;
    (complete && level == libc::SOL_SOCKET && option == libc::SO_RXQ_OVFL).then_some(value as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::time::Duration;

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
            batch.receive(&socket, true).expect("received");
            assert_eq!(batch.truncated(), 0);
            received.extend(batch.datagrams().map(<[u8]>::to_vec));
        }
        assert_eq!(received, sent);
        let error = batch.receive(&socket, false).expect_err("nothing is left");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.datagrams().count(), 0);
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
        while let Ok(count) = batch.receive(&socket, false) {
            received += count as u32;
        }
        assert_eq!(received + dropped, SENT);
        // A datagram that comes after drops says how many there were.
        sender.send_to(b"after", address(&socket)).expect("sent");
        batch.receive(&socket, true).expect("received");
        assert_eq!(batch.drops(), Some(dropped));
    }

    #[test]
    fn shutting_down_ends_a_wait() {
        let socket = std::sync::Arc::new(local());
        let waiting = std::sync::Arc::clone(&socket);
        let (started, begun) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut batch = Batch::new();
            started.send(()).expect("sent");
            batch.receive(&waiting, true).map(|_| batch.datagrams().map(<[u8]>::len).sum::<usize>())
        });
        begun.recv_timeout(Duration::from_secs(10)).expect("started");
        // An unconnected socket reports that it is not connected and wakes its reader all the same.
        let _ = socket.shutdown(std::net::Shutdown::Read);
        assert_eq!(thread.join().expect("joined").ok(), Some(0));
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
            assert_eq!(batch.receive(&socket, true).expect("received"), 1);
            assert_eq!(batch.datagrams().next(), Some(&b"a:1|c"[..]));
            assert_eq!(
                bind_unixgram(name, 0).expect_err("in use").kind(),
                io::ErrorKind::AddrInUse
            );
        }
        assert!(path.exists());
    }
}
