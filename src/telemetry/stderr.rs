//! Writes log lines to standard error without waiting for its reader.
//!
//! Standard error is usually a pipe. It holds 64 KiB, and while nobody reads it, a further write waits, and with it the
//! thread that logs, such as a worker that answers requests. Other processes may share the pipe, so it stays blocking.
//! Instead a line is written in parts of at most [`libc::PIPE_BUF`] bytes: a pipe that `poll` reports as writable has room
//! for one. A line without room is lost, and the number of lost lines is reported before the next one that has room.
#![allow(unsafe_code)]

use std::io::{self, Stderr, Write};
use std::os::fd::AsRawFd;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that the last text of the process waits for room.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Standard error.
static STDERR: LazyLock<Mutex<LineWriter<Stderr>>> =
    LazyLock::new(|| Mutex::new(LineWriter::new(io::stderr())));

fn stderr() -> MutexGuard<'static, LineWriter<Stderr>> {
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

struct LineWriter<W> {
    out: W,
    /// The number of lost lines since the last report.
    lost: u64,
    /// The beginning of the last line was written.
    is_cut: bool,
}

impl<W: AsRawFd + Write> LineWriter<W> {
    fn new(out: W) -> Self {
        Self { out, lost: 0, is_cut: false }
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
        while !rest.is_empty() && self.has_room(deadline) {
            let part = rest.get(..libc::PIPE_BUF).unwrap_or(rest);
            // There is nowhere to report a failure, such as a closed pipe.
            match self.out.write(part) {
                Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
                _ => break,
            }
        }
        text.len() - rest.len()
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
    use std::io::{PipeReader, PipeWriter, Read as _};

    use super::*;

    fn pipe() -> (PipeReader, LineWriter<PipeWriter>) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (reader, LineWriter::new(writer))
    }

    fn report(lost: u64) -> String {
        format!("{lost} lost")
    }

    /// Writes lines until one is lost; returns the number of the others.
    fn fill(writer: &mut LineWriter<PipeWriter>, line: &[u8]) -> usize {
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
        let (mut reader, mut writer) = pipe();
        let whole = fill(&mut writer, b"a line\n");
        assert!(whole > 1_000, "{whole}");
        for _ in 0..9 {
            writer.write(b"a line\n", report);
        }
        assert_eq!(read(&mut reader, 7 * whole), b"a line\n".repeat(whole));
        writer.write(b"the next\n", report);
        writer.write(b"the last\n", report);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "10 lost\nthe next\nthe last\n");
    }

    #[test]
    fn a_line_that_does_not_fit_as_a_whole_is_cut() {
        let (mut reader, mut writer) = pipe();
        let line = [&[b'x'; 10 * libc::PIPE_BUF][..], b"\n"].concat();
        let whole = fill(&mut writer, &line);
        writer.write(b"without room\n", report);
        read(&mut reader, whole * line.len());
        writer.write(b"the next\n", report);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        let (cut, after) = rest.split_once('\n').expect("lines");
        assert!(!cut.is_empty() && cut.bytes().all(|byte| byte == b'x'), "{cut}");
        assert_eq!(after, "2 lost\nthe next\n");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let (reader, mut writer) = pipe();
        drop(reader);
        writer.write(b"a line\n", report);
        assert_eq!((writer.lost, writer.is_cut), (1, false));
        assert_eq!(writer.write_available(b"the last\n", LAST_WAIT), 0);
    }
}
