//! `sendmmsg` and `recvmmsg`: many datagrams with one system call, which a load of hundreds of thousands of datagrams
//! per second requires on both ends.
#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Maximum number of datagrams in one call.
pub const BATCH: usize = 64;
/// Maximum size of a received datagram.
const DATAGRAM: usize = 65_536;

/// Sends datagrams on a connected socket and returns how many the kernel accepted.
///
/// # Errors
///
/// The kernel accepted none. A refused connection, which loopback reports, counts as accepted.
pub fn send(socket: &UdpSocket, datagrams: &[&[u8]]) -> io::Result<usize> {
    let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|at| {
        let datagram: &[u8] = datagrams.get(at).copied().unwrap_or_default();
        libc::iovec { iov_base: datagram.as_ptr().cast_mut().cast(), iov_len: datagram.len() }
    });
    let mut headers = headers(&mut vectors);
    let count = datagrams.len().min(BATCH);
    // SAFETY: the first `count` headers point to vectors, and these to datagrams, all of which outlive the call; the
    // kernel only reads the memory that the vectors point to.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, 0)
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => match io::Error::last_os_error() {
            // The refusal of an earlier datagram; this call sent nothing.
            error if error.kind() == io::ErrorKind::ConnectionRefused => Ok(0),
            error => Err(error),
        },
    }
}

/// Receive buffers.
pub struct Receiver {
    buffers: Vec<u8>,
}

impl Receiver {
    /// Allocates buffers for one batch.
    pub fn new() -> Self {
        Self { buffers: vec![0; BATCH * DATAGRAM] }
    }

    /// Waits for datagrams and passes each to `each`.
    ///
    /// # Errors
    ///
    /// The kernel refuses, or the socket's timeout expires without a datagram.
    pub fn receive(&mut self, socket: &UdpSocket, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut rest = self.buffers.as_mut_slice();
        let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|_| {
            let (buffer, others) = std::mem::take(&mut rest).split_at_mut(DATAGRAM);
            rest = others;
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: DATAGRAM }
        });
        let mut headers = headers(&mut vectors);
        // SAFETY: each header points to one vector and each vector to its own part of `buffers`, which outlive the
        // call; with WAITFORONE it returns with the available datagrams after the first one.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for (buffer, header) in self.buffers.chunks(DATAGRAM).zip(&headers).take(received) {
            each(&buffer[..(header.msg_len as usize).min(DATAGRAM)]);
        }
        Ok(())
    }
}

fn headers(vectors: &mut [libc::iovec; BATCH]) -> [libc::mmsghdr; BATCH] {
    let mut vectors = vectors.iter_mut();
    std::array::from_fn(|_| {
        // SAFETY: all zeroes is a valid header: no name, no vectors, no control data.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        if let Some(vector) = vectors.next() {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        header
    })
}
