//! Runs the buffers that the kernel writes to under Miri, which checks every pointer. A substitute for the
//! system call writes to them like the kernel.

#[allow(dead_code)]
#[path = "../../../src/statsd/receive/batch.rs"]
mod batch;

/// The substitute for the system call: it delivers the datagrams sent by a test.
mod kernel {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::mem::size_of;
    use std::ptr;

    /// A datagram and its metadata.
    pub(crate) struct Sent {
        pub(crate) bytes: Vec<u8>,
        /// The sender's address, if it has one.
        pub(crate) from: Option<[u8; 4]>,
        /// The process that sent it, if the kernel reports it.
        pub(crate) process: Option<u32>,
    }

    thread_local! {
        pub(crate) static SENT: RefCell<VecDeque<Sent>> = const { RefCell::new(VecDeque::new()) };
    }

    /// Behaves like recvmmsg(2) on a non-blocking socket.
    pub(crate) unsafe fn recvmmsg(
        _descriptor: libc::c_int,
        headers: *mut libc::mmsghdr,
        len: libc::c_uint,
        _flags: libc::c_int,
        _timeout: *mut libc::timespec,
    ) -> libc::c_int {
        SENT.with_borrow_mut(|sent| {
            let mut received = 0;
            while received < len
                && let Some(datagram) = sent.pop_front()
            {
                // SAFETY: the caller passes this many headers with valid pointers and lengths.
                unsafe { write(headers.add(received as usize), &datagram) };
                received += 1;
            }
            if received > 0 {
                return received as libc::c_int;
            }
            // SAFETY: errno is thread-local.
            unsafe { *libc::__errno_location() = libc::EAGAIN };
            -1
        })
    }

    unsafe fn write(header: *mut libc::mmsghdr, datagram: &Sent) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let message = &raw mut (*header).msg_hdr;
            assert_eq!((*message).msg_iovlen, 1);
            let space = (*message).msg_iov;
            let len = datagram.bytes.len().min((*space).iov_len);
            ptr::copy_nonoverlapping(datagram.bytes.as_ptr(), (*space).iov_base.cast(), len);
            (*header).msg_len = len as u32;
            if len < datagram.bytes.len() {
                (*message).msg_flags |= libc::MSG_TRUNC;
            }
            assert_eq!((*message).msg_namelen as usize, size_of::<libc::sockaddr_in6>());
            (*message).msg_namelen = 0;
            if let Some(address) = datagram.from {
                let name: *mut libc::sockaddr_in = (*message).msg_name.cast();
                (*name).sin_family = libc::AF_INET as libc::sa_family_t;
                (*name).sin_addr.s_addr = u32::from_ne_bytes(address);
                (*message).msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            // A `cmsghdr`, of length, level and type, and a `ucred` of 12 bytes.
            let credentials = |process: u32| {
                let level = u64::from(libc::SOL_SOCKET as u32);
                let kind = u64::from(libc::SCM_CREDENTIALS as u32) << 32;
                vec![16 + 12, level | kind, u64::from(process), 0]
            };
            let words: Vec<u64> = datagram.process.map(credentials).unwrap_or_default();
            assert!((*message).msg_controllen >= words.len() * 8);
            ptr::copy_nonoverlapping(words.as_ptr(), (*message).msg_control.cast(), words.len());
            (*message).msg_controllen = words.len() * 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::fd::{AsRawFd, RawFd};

    use super::batch::Batch;
    use super::kernel::{SENT, Sent};

    /// A socket that the substitute ignores.
    struct IgnoredSocket;

    impl AsRawFd for IgnoredSocket {
        fn as_raw_fd(&self) -> RawFd {
            0
        }
    }

    fn send(number: usize) -> Vec<u8> {
        let bytes = vec![number as u8; [0, 1, 700, 66_000][number % 4]];
        let from = (!number.is_multiple_of(3)).then_some([127, 0, 0, number as u8]);
        let process = number.is_multiple_of(2).then_some(number as u32);
        SENT.with_borrow_mut(|sent| sent.push_back(Sent { bytes: bytes.clone(), from, process }));
        bytes
    }

    /// Repeated calls into the same memory, which is read in between, also after the batch has moved.
    #[test]
    fn received_datagrams_are_read() {
        let mut batch = Batch::new(true);
        let mut number = 0;
        for count in [3, 64, 1, 5] {
            let sent: Vec<_> = (0..count).map(|at| (number + at, send(number + at))).collect();
            assert_eq!(batch.receive(&IgnoredSocket).ok(), Some(count));
            let long = sent.iter().filter(|(_, bytes)| bytes.len() > 65_535).count();
            assert_eq!((batch.truncated(), batch.is_full()), (long, count == 64));
            for (number, bytes) in &sent {
                let process = number.is_multiple_of(2).then_some(*number as u32);
                assert_eq!(batch.process(), process);
                let (datagram, address) = batch.take().expect("it was sent");
                assert!(datagram == &bytes[..bytes.len().min(65_535)], "{number}");
                let from =
                    (!number.is_multiple_of(3)).then(|| Ipv4Addr::new(127, 0, 0, *number as u8));
                assert_eq!(address, from.map(Into::into));
            }
            assert!(batch.is_done() && batch.take().is_none());
            number += count;
            batch = std::thread::spawn(move || batch).join().expect("no panic");
        }
        assert!(batch.receive(&IgnoredSocket).is_err());
    }
}
