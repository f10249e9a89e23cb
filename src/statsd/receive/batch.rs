//! Many datagrams with one system call.
//!
//! Unsafe code is for `recvmmsg`, of which there is no safe form, and for the memory that the kernel is pointed at from call
//! to call. `tests/pointers` runs this file under Miri with another `kernel`.
#![allow(unsafe_code)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::ptr;

use super::kernel;
use super::stamp::{CONTROL_WORDS, Stamp, control_messages, control_stamp};

/// Datagrams taken with one call.
const BATCH: usize = 64;
/// The longest datagram is 65,507 bytes over UDP; the original reads 65,535.
const DATAGRAM: usize = 65_535;
/// Distance of buffers. Not a power of two, or the beginnings of all of them would compete for the same cache lines.
const STRIDE: usize = DATAGRAM + 1 + 1_408;
/// Bytes of a sender's name: of the longer one of both IP families.
const NAME: libc::socklen_t = size_of::<libc::sockaddr_in6>() as libc::socklen_t;

/// A slice that the kernel writes into, through pointers that are kept from call to call. All who read it go by the pointer
/// that those come from too: a reference of another origin would end what they may do.
struct Shared<T>(*mut [T]);

impl<T> Shared<T> {
    fn new(items: Vec<T>) -> Self {
        Self(Box::into_raw(items.into_boxed_slice()))
    }

    /// A pointer to an item, and to those behind it.
    fn at(&mut self, index: usize) -> *mut T {
        assert!(index < self.0.len(), "beyond the end");
        // SAFETY: the item is within the slice.
        unsafe { self.0.cast::<T>().add(index) }
    }

    fn read(&self) -> &[T] {
        // SAFETY: the slice is there until the drop. It is written within `Batch::receive` alone, which nobody who holds
        // this reference can call: it borrows the batch exclusively.
        unsafe { &*self.0 }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and is given back once.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

/// Buffers for one batch of datagrams, which are taken one after the other.
pub(crate) struct Batch {
    buffers: Shared<u8>,
    /// What the kernel is pointed at; their pointers lead into the others.
    headers: Vec<libc::mmsghdr>,
    _vectors: Shared<libc::iovec>,
    /// Where each came from.
    names: Shared<libc::sockaddr_in6>,
    control: Shared<u64>,
    filled: usize,
    /// Number of the next datagram to be taken.
    next: usize,
}

// SAFETY: the pointers lead into memory that the batch owns and nobody else knows, and go where it goes.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("filled", &self.filled).finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new() -> Self {
        // Untouched pages of these 4 MB cost nothing: a short datagram uses the first page of its buffer.
        let mut buffers = Shared::new(vec![0u8; BATCH * STRIDE]);
        let mut control = Shared::new(vec![0u64; BATCH * CONTROL_WORDS]);
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
            header.msg_hdr.msg_control = control.at(at * CONTROL_WORDS).cast();
            header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
            header
        };
        let headers = (0..BATCH).map(header).collect();
        Self { buffers, headers, _vectors: vectors, names, control, filled: 0, next: 0 }
    }

    /// Reads all datagrams that are there, up to a batch, without waiting. Those of the batch before are gone.
    ///
    /// # Errors
    /// What the system call says, `WouldBlock` if there is none; interrupted calls are repeated.
    pub(crate) fn receive(&mut self, socket: &impl AsRawFd) -> io::Result<usize> {
        let descriptor = socket.as_raw_fd();
        // The kernel wrote into those alone.
        for header in self.headers.iter_mut().take(self.filled) {
            header.msg_hdr.msg_flags = 0;
            header.msg_hdr.msg_namelen = NAME;
            header.msg_hdr.msg_controllen = CONTROL_WORDS * size_of::<u64>();
        }
        (self.filled, self.next) = (0, 0);
        loop {
            // SAFETY: each of the `BATCH` headers points to an `iovec` over its own part of `buffers`, to its own of
            // `names` and to its own part of `control`, with their true lengths, which stay where they are; no reference into them
            // exists during the call as `self` is borrowed exclusively. The descriptor is open.
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

    /// Whether every datagram has been taken.
    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.filled
    }

    /// When the next datagram came, if there is one and the kernel says so.
    pub(crate) fn next_stamp(&self) -> Option<Stamp> {
        let header = self.headers.get(..self.filled)?.get(self.next)?;
        let words = self.control.read().chunks_exact(CONTROL_WORDS).nth(self.next)?;
        control_stamp(words, header.msg_hdr.msg_controllen)
    }

    /// Takes the next datagram, with the address of its sender if that has one.
    pub(crate) fn take(&mut self) -> Option<(&[u8], Option<IpAddr>)> {
        let header = self.headers.get(..self.filled)?.get(self.next)?;
        let address = self.names.read().get(self.next).and_then(|name| {
            // The kernel writes no name for who has none, which is shorter than a family then.
            if header.msg_hdr.msg_namelen < 2 { None } else { address(name) }
        });
        let length = (header.msg_len as usize).min(DATAGRAM);
        let start = self.next * STRIDE;
        self.next += 1;
        Some((self.buffers.read().get(start..start + length)?, address))
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
        let words = self.control.read().chunks_exact(CONTROL_WORDS).nth(last)?;
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
