//! `sendmmsg` and `recvmmsg`: many datagrams with one system call, which is what both a load of
//! hundreds of thousands of datagrams per second and the limit of receiving them need.
#![allow(unsafe_code)]

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Datagrams of one call at most.
pub const BATCH: usize = 64;
/// Longest datagram that is received.
const DATAGRAM: usize = 65_536;

/// Sends datagrams on a connected socket; returns how many the kernel took.
///
/// # Errors
/// The kernel took none. That nobody listens (which loopback tells) counts as taken.
pub fn send(socket: &UdpSocket, datagrams: &[&[u8]]) -> io::Result<usize> {
    let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|at| {
        let datagram: &[u8] = datagrams.get(at).copied().unwrap_or_default();
        libc::iovec { iov_base: datagram.as_ptr().cast_mut().cast(), iov_len: datagram.len() }
    });
    let mut headers = headers(&mut vectors);
    let count = datagrams.len().min(BATCH);
    // SAFETY: the first `count` headers point to vectors, those to datagrams, all of which outlive the
    // call; the kernel only reads what the vectors point to.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint, 0)
    };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => match io::Error::last_os_error() {
            // The answer to an earlier datagram; this call sent nothing.
            error if error.kind() == io::ErrorKind::ConnectionRefused => Ok(0),
            error => Err(error),
        },
    }
}

/// Buffers for receiving.
pub struct Receiver {
    buffers: Vec<u8>,
}

impl Receiver {
    /// Buffers for one batch.
    pub fn new() -> Self {
        Self { buffers: vec![0; BATCH * DATAGRAM] }
    }

    /// Waits for datagrams and hands over each.
    ///
    /// # Errors
    /// The kernel refuses, or the socket's timeout passes without a datagram.
    pub fn receive(&mut self, socket: &UdpSocket, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut rest = self.buffers.as_mut_slice();
        let mut vectors: [libc::iovec; BATCH] = std::array::from_fn(|_| {
            let (buffer, others) = std::mem::take(&mut rest).split_at_mut(DATAGRAM);
            rest = others;
            libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: DATAGRAM }
        });
        let mut headers = headers(&mut vectors);
        // SAFETY: each header points to one vector and each vector to its own part of `buffers`, which
        // outlive the call; WAITFORONE makes it return with what there is after the first datagram.
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
