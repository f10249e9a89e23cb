//! Receives many datagrams with one system call.
//!
//! Unsafe code is needed for `recvmmsg`, which has no safe wrapper, and for the buffers that the kernel
//! writes to in each call. `tests/pointers` runs this file under Miri with a substitute for `kernel`.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::ptr;

use super::kernel;

/// The number of datagrams per call.
const BATCH: usize = 64;
/// The size of a buffer. A UDP datagram has at most 65,507 bytes; statsd_exporter reads up to 65,535.
const DATAGRAM: usize = 65_535;
/// The distance between buffers. It is not a power of two, so that their first bytes do not compete for the
/// same cache lines.
const STRIDE: usize = DATAGRAM + 1 + 1_408;
/// The length of a sender's address: that of the longer IP family.
const NAME: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

/// The length of the credentials of a sender in words: a `cmsghdr` of two, and a `ucred`.
const CREDENTIALS: usize = 4;

/// A slice that the kernel writes to through pointers kept between calls. Readers use the same pointer,
/// because a reference with another provenance would invalidate those pointers.
struct Shared<T>(*mut [T]);

impl<T> Shared<T> {
    fn new(items: Vec<T>) -> Self {
        Self(Box::into_raw(items.into_boxed_slice()))
    }

    /// Returns a pointer to an item and those after it.
    fn at(&mut self, index: usize) -> *mut T {
        assert!(index < self.0.len(), "beyond the end");
        // SAFETY: the item is within the slice.
        unsafe { self.0.cast::<T>().add(index) }
    }

    fn read(&self) -> &[T] {
        // SAFETY: the slice lives until the drop. It is written only within `Batch::receive`, which borrows
        // the batch exclusively and so cannot run while this reference exists.
        unsafe { &*self.0 }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box and is freed once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// The buffers for one batch of datagrams.
pub(crate) struct Batch {
    buffers: Shared<u8>,
    /// The headers passed to the kernel. Their pointers point into the other fields.
    headers: Vec<libc::mmsghdr>,
    _vectors: Shared<libc::iovec>,
    /// The sender of each datagram.
    names: Shared<libc::sockaddr_in6>,
    /// The number of words of `control` for each datagram.
    room: usize,
    control: Shared<u64>,
    filled: usize,
    /// The index of the next datagram.
    next: usize,
}

// SAFETY: the pointers point to memory that only the batch owns, and move with it.
unsafe impl Send for Batch {}

impl Batch {
    /// Creates the buffers of a socket. With `credentials`, those of a Unix socket with `SO_PASSCRED`, the kernel reports the
    /// process that sent each datagram. There must not be room for anything else: a client of a Unix socket can attach open
    /// files, and the kernel opens as many of them in this process as there is room for.
    pub(crate) fn new(credentials: bool) -> Self {
        let room = if credentials { CREDENTIALS } else { 0 };
        // Untouched pages of these 4 MB use no memory: a short datagram touches only the first page of its
        // buffer.
        let mut buffers = Shared::new(vec![0u8; BATCH * STRIDE]);
        let mut control = Shared::new(vec![0u64; BATCH * room]);
        // SAFETY: all fields of `sockaddr_in6` are integers, for which zero is a valid value.
        let mut names = Shared::new(vec![unsafe { zeroed::<libc::sockaddr_in6>() }; BATCH]);
        let vector =
            |at| libc::iovec { iov_base: buffers.at(at * STRIDE).cast(), iov_len: DATAGRAM };
        let mut vectors = Shared::new((0..BATCH).map(vector).collect());
        let header = |at| {
            // SAFETY: all fields of `mmsghdr` are integers and pointers, for which zero is a valid value.
            let mut header: libc::mmsghdr = unsafe { zeroed() };
            header.msg_hdr.msg_iov = vectors.at(at);
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_name = names.at(at).cast();
            header.msg_hdr.msg_namelen = NAME;
            if credentials {
                header.msg_hdr.msg_control = control.at(at * room).cast();
            }
            header.msg_hdr.msg_controllen = room * size_of::<u64>();
            header
        };
        let headers = (0..BATCH).map(header).collect();
        Self { buffers, headers, _vectors: vectors, names, room, control, filled: 0, next: 0 }
    }

    /// Receives all available datagrams, up to a batch, without blocking. Discards the previous batch.
    ///
    /// # Errors
    /// Returns the error of the system call, `WouldBlock` if there is no datagram. Interrupted calls are
    /// repeated.
    pub(crate) fn receive(&mut self, socket: &impl AsRawFd) -> io::Result<usize> {
        let descriptor = socket.as_raw_fd();
        // Only the headers of the previous batch were modified by the kernel.
        for header in self.headers.iter_mut().take(self.filled) {
            header.msg_hdr.msg_flags = 0;
            header.msg_hdr.msg_namelen = NAME;
            header.msg_hdr.msg_controllen = self.room * size_of::<u64>();
        }
        (self.filled, self.next) = (0, 0);
        loop {
            // SAFETY: each of the `BATCH` headers points to its own `iovec`, its own element of `names` and
            // its own parts of `buffers` and `control`, with their true lengths; none of them moves. No
            // reference into them exists during the call, because `self` is borrowed exclusively. The
            // descriptor is open.
            let received = unsafe {
                kernel::recvmmsg(
                    descriptor,
                    self.headers.as_mut_ptr(),
                    self.headers.len() as u32,
                    libc::MSG_DONTWAIT as _,
                    ptr::null_mut(),
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

    /// Returns true if every datagram has been taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.filled
    }

    /// Returns the next datagram and the address of its sender, if it has one.
    pub(crate) fn take(&mut self) -> Option<(&[u8], Option<IpAddr>)> {
        let header = self.headers.get(..self.filled)?.get(self.next)?;
        let address = self.names.read().get(self.next).and_then(|name| {
            // For a sender without an address the kernel writes fewer bytes than the address family.
            if header.msg_hdr.msg_namelen < 2 { None } else { address(name) }
        });
        let length = (header.msg_len as usize).min(DATAGRAM);
        let start = self.next * STRIDE;
        self.next += 1;
        Some((self.buffers.read().get(start..start + length)?, address))
    }

    /// Returns the total length of the datagrams in the batch.
    pub(crate) fn bytes(&self) -> usize {
        self.headers.iter().take(self.filled).map(|header| header.msg_len as usize).sum()
    }

    /// Returns true if the batch is full, so the socket may contain more.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == BATCH
    }

    /// Returns the number of datagrams that did not fit into their buffer.
    pub(crate) fn truncated(&self) -> usize {
        self.headers
            .iter()
            .take(self.filled)
            .filter(|header| header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0)
            .count()
    }

    /// Returns the ID of the process that sent the next datagram, if the socket asks for credentials. It is 0 for a process
    /// that cannot be seen from here.
    pub(crate) fn process(&self) -> Option<u32> {
        let header = self.headers.get(..self.filled)?.get(self.next)?;
        let start = self.next * self.room;
        let written = header.msg_hdr.msg_controllen.div_ceil(size_of::<u64>());
        // The `cmsghdr` consists of length, level and type.
        let [_, kind, process, ..] = self.control.read().get(start..start + written)? else {
            return None;
        };
        let kind = (*kind as u32 as i32, (kind >> 32) as u32 as i32);
        (kind == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS)).then_some(*process as u32)
    }
}

/// Returns the IP address of a sender. IPv4 addresses mapped to IPv6 are converted back.
fn address(name: &libc::sockaddr_in6) -> Option<IpAddr> {
    match i32::from(name.sin6_family) {
        // `sockaddr_in` has its address at the offset of the flow information in `sockaddr_in6`.
        libc::AF_INET => Some(IpAddr::from(name.sin6_flowinfo.to_ne_bytes())),
        libc::AF_INET6 => Some(IpAddr::from(name.sin6_addr.s6_addr).to_canonical()),
        _ => None,
    }
}
