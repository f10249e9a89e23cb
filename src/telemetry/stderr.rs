//! Writes log lines to standard error without waiting for its reader.
//!
//! Standard error is usually a pipe, sometimes a terminal, and under systemd a socket. While nobody reads it and it is full, a
//! further write waits, and with it the thread that logs, such as a worker that answers requests. Other processes may share
//! its description, which therefore stays blocking: a pipe or a terminal is opened once more, and a write to a socket says that
//! it does not wait. Where the pipe cannot be opened, because it belongs to another user, a line is written in parts of
//! at most [`libc::PIPE_BUF`] bytes: a pipe that `poll` reports as writable has room for one. A line without room is lost, and
//! the number of lost lines is reported before the next one that has room.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, FromRawFd as _, RawFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that the last text of the process waits for room.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Standard error.
static STDERR: LazyLock<Mutex<LineWriter>> =
    LazyLock::new(|| Mutex::new(LineWriter::new(libc::STDERR_FILENO)));

fn stderr() -> MutexGuard<'static, LineWriter> {
    STDERR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line, which ends with a line feed, if there is room. `report` formats the number of lost lines.
pub(super) fn write(line: &[u8], report: impl Fn(u64) -> String) {
    stderr().write(line, report);
}

/// Writes the last text of the process, after a short wait for room if necessary.
pub(super) fn write_last(text: &[u8]) {
    stderr().write_available(text, LAST_WAIT);
}

/// What a write does when there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    Waits,
    Fails,
    /// It fails if it is sent with the flag for that.
    FailsOnRequest,
}

struct LineWriter {
    out: ManuallyDrop<File>,
    when_full: WhenFull,
    /// The number of lost lines since the last report.
    lost: u64,
    /// The beginning of the last line was written.
    is_cut: bool,
}

impl LineWriter {
    /// Writes to a descriptor, which stays open.
    fn new(fd: RawFd) -> Self {
        // SAFETY: the file is never closed, so it does not own the descriptor.
        let given = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
        let is = |wanted: fn(&std::fs::FileType) -> bool| {
            given.metadata().is_ok_and(|metadata| wanted(&metadata.file_type()))
        };
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let again = (given.is_terminal() || is(std::fs::FileType::is_fifo)).then(|| {
            File::options().write(true).custom_flags(flags).open(format!("/proc/self/fd/{fd}"))
        });
        let (out, when_full) = match again {
            Some(Ok(again)) => (ManuallyDrop::new(again), WhenFull::Fails),
            _ if is(std::fs::FileType::is_socket) => (given, WhenFull::FailsOnRequest),
            _ => (given, WhenFull::Waits),
        };
        Self { out, when_full, lost: 0, is_cut: false }
    }

    fn write(&mut self, line: &[u8], report: impl Fn(u64) -> String) {
        if self.lost > 0 {
            let end_of_cut = if self.is_cut { "\n" } else { "" };
            let text = format!("{end_of_cut}{}\n", report(self.lost));
            let written = self.write_available(text.as_bytes(), Duration::ZERO);
            self.is_cut |= written > 0;
            if written == text.len() {
                (self.lost, self.is_cut) = (0, false);
            }
        }
        if self.lost == 0 {
            let written = self.write_available(line, Duration::ZERO);
            self.is_cut = written > 0;
            self.lost = u64::from(written < line.len());
        } else {
            self.lost += 1;
        }
    }

    /// Writes as much as there is room for within `wait`; returns the number of bytes.
    fn write_available(&mut self, text: &[u8], wait: Duration) -> usize {
        let deadline = Instant::now() + wait;
        let mut rest = text;
        while !rest.is_empty() {
            if self.when_full == WhenFull::Waits && !self.has_room(deadline) {
                break;
            }
            let part = rest.get(..libc::PIPE_BUF).unwrap_or(rest);
            match self.write_part(part) {
                Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock
                        && Instant::now() < deadline
                        && self.has_room(deadline) => {}
                // There is nowhere to report a failure, such as a closed pipe.
                _ => break,
            }
        }
        text.len() - rest.len()
    }

    fn write_part(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.when_full != WhenFull::FailsOnRequest {
            return self.out.write(part);
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the pointer leads to as many bytes as are given, which outlive the call.
        let sent =
            unsafe { libc::send(self.out.as_raw_fd(), part.as_ptr().cast(), part.len(), flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Returns whether a part can be written, or will fail, without waiting beyond the deadline.
    fn has_room(&self, deadline: Instant) -> bool {
        let wait = deadline.saturating_duration_since(Instant::now()).as_millis();
        let mut fd = libc::pollfd { fd: self.out.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: the pointer leads to one `pollfd`, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut fd, 1, i32::try_from(wait).unwrap_or(0)) };
        ready > 0
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read as _};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;

    const LINE: &[u8] =
        b"time=2026-11-28T12:00:00Z level=INFO msg=\"a line as long as most of them\"\n";

    /// Returns a pipe whose writer has a description of its own, or one that it shares with other processes.
    fn pipe(is_opened_again: bool) -> (PipeReader, LineWriter) {
        let (reader, given) = io::pipe().expect("a pipe");
        if is_opened_again {
            let writer = LineWriter::new(given.as_raw_fd());
            assert!(writer.when_full == WhenFull::Fails);
            return (reader, writer);
        }
        let out = ManuallyDrop::new(File::from(OwnedFd::from(given)));
        (reader, LineWriter { out, when_full: WhenFull::Waits, lost: 0, is_cut: false })
    }

    fn close(writer: LineWriter) {
        drop(ManuallyDrop::into_inner(writer.out));
    }

    fn report(lost: u64) -> String {
        format!("{lost} lost")
    }

    /// Writes lines until one is lost; returns the number of the others.
    fn fill(writer: &mut LineWriter, line: &[u8]) -> usize {
        (0..)
            .take_while(|_| {
                writer.write(line, report);
                writer.lost == 0
            })
            .count()
    }

    /// Reads this many bytes.
    fn read(reader: &mut PipeReader, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        reader.read_exact(&mut bytes).expect("so many bytes");
        bytes
    }

    #[test]
    fn lost_lines_are_counted_and_reported() {
        for is_opened_again in [false, true] {
            let (mut reader, mut writer) = pipe(is_opened_again);
            let whole = fill(&mut writer, b"a line\n");
            assert!(whole > 500, "{whole}");
            for _ in 0..9 {
                writer.write(b"a line\n", report);
            }
            assert_eq!(read(&mut reader, 7 * whole), b"a line\n".repeat(whole));
            writer.write(b"the next\n", report);
            writer.write(b"the last\n", report);
            close(writer);
            let mut rest = String::new();
            reader.read_to_string(&mut rest).expect("text");
            assert_eq!(rest, "10 lost\nthe next\nthe last\n");
        }
    }

    #[test]
    fn a_line_that_does_not_fit_as_a_whole_is_cut() {
        for is_opened_again in [false, true] {
            let (mut reader, mut writer) = pipe(is_opened_again);
            let line = [&[b'x'; 10 * libc::PIPE_BUF][..], b"\n"].concat();
            let whole = fill(&mut writer, &line);
            writer.write(b"without room\n", report);
            read(&mut reader, whole * line.len());
            writer.write(b"the next\n", report);
            close(writer);
            let mut rest = String::new();
            reader.read_to_string(&mut rest).expect("text");
            let (cut, after) = rest.split_once('\n').expect("lines");
            assert!(!cut.is_empty() && cut.bytes().all(|byte| byte == b'x'), "{cut}");
            assert_eq!(after, "2 lost\nthe next\n");
        }
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        for is_opened_again in [false, true] {
            let (reader, mut writer) = pipe(is_opened_again);
            drop(reader);
            writer.write(b"a line\n", report);
            assert_eq!((writer.lost, writer.is_cut), (1, false));
            assert_eq!(writer.write_available(b"the last\n", LAST_WAIT), 0);
            close(writer);
        }
    }

    /// A terminal that `poll` reports as writable has room for a byte, not for a line.
    #[test]
    fn a_terminal_that_nobody_reads_is_not_waited_for() {
        let (mut master, mut slave) = (0, 0);
        let none = std::ptr::null_mut();
        // SAFETY: the first two pointers lead to integers that outlive the call; the others may be null.
        let made = unsafe {
            libc::openpty(&raw mut master, &raw mut slave, none, none.cast(), none.cast())
        };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: nothing else owns the descriptors.
        let (mut master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        let mut writer = LineWriter::new(slave.as_raw_fd());
        let (filled, is_filled) = mpsc::channel();
        std::thread::spawn(move || {
            fill(&mut writer, LINE);
            filled.send(writer)
        });
        let writer = is_filled.recv_timeout(Duration::from_secs(60));
        let mut writer = writer.expect("a line is lost");
        while writer.lost > 0 {
            assert!(master.read(&mut [0; 4096]).expect("lines") > 0);
            writer.write(b"the next\n", report);
        }
        close(writer);
    }

    /// A socket that `poll` reports as full has room for three times as many lines.
    #[test]
    fn the_whole_buffer_of_a_socket_is_used() {
        let (given, mut reader) = UnixStream::pair().expect("sockets");
        let mut writer = LineWriter::new(given.as_raw_fd());
        let whole = fill(&mut writer, LINE);
        given.set_nonblocking(true).expect("set");
        let full = (&given).write(LINE).expect_err("it is full");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        reader.read_exact(&mut vec![0; whole * LINE.len()]).expect("all of them");
        writer.write(b"the next\n", report);
        let mut rest = [0; 16];
        reader.read_exact(&mut rest).expect("the rest");
        assert_eq!(&rest, b"1 lost\nthe next\n");
    }
}
