//! Writes log lines to standard error without waiting for its reader.
//!
//! Standard error is usually a pipe, which holds 64 KiB, a terminal, which holds less, or the socket of a service manager.
//! While nobody reads it, a further write waits, and with it the thread that logs, such as a worker that answers requests.
//! Other processes may share it, so it stays blocking; each kind has another way of not waiting (see [`Way`]). A line
//! without room is lost, and the number of lost lines is reported before the next one that has room. A terminal, or a
//! line of more than [`libc::PIPE_BUF`] bytes, may have room for a beginning, whose rest follows.
#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal as _, Stderr, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::util::lock::Lock;

/// The time that the last text of the process waits for room.
pub(super) const LAST_WAIT: Duration = Duration::from_millis(200);

/// Standard error.
pub(super) static STDERR: LazyLock<Lock<LineWriter<Stderr>>> =
    LazyLock::new(|| Lock::new(LineWriter::new(io::stderr())));

/// A way of writing without waiting.
enum Way {
    /// By the pipe or terminal opened once more: this open file does not wait, and the shared one still does.
    Reopened(File),
    /// A socket is told with each write. `poll` finds room only while three quarters of its buffer are free.
    Socket,
    /// When `poll` finds room, which is right for a pipe that is not shared. Regular files never wait.
    Polled,
}

impl Way {
    fn of(out: &impl AsFd) -> Self {
        if SockRef::from(out).r#type().is_ok() {
            return Self::Socket;
        }
        let fd = out.as_fd();
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let is_pipe = || fs::metadata(&path).is_ok_and(|file| file.file_type().is_fifo());
        // Anything else may have a position, at which the shared open file writes on.
        if !fd.is_terminal() && !is_pipe() {
            return Self::Polled;
        }
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        // Fails without /proc or without permission, such as for the terminal of another user.
        let reopened = OpenOptions::new().write(true).custom_flags(flags).open(path);
        reopened.map_or(Self::Polled, Self::Reopened)
    }
}

/// Writes lines as far as there is room for them.
pub(super) struct LineWriter<W> {
    out: W,
    way: Way,
    /// The number of lost lines since the last report.
    lost: u64,
    /// The part of the last line that had no room.
    rest: Vec<u8>,
}

impl<W: AsFd + Write> LineWriter<W> {
    fn new(out: W) -> Self {
        Self { way: Way::of(&out), out, lost: 0, rest: Vec::new() }
    }

    /// Writes a line, which ends with a line feed, if there is room. `report` formats the number of lost lines.
    pub(super) fn write(&mut self, line: &[u8], report: impl Fn(u64) -> String) {
        if self.lost > 0 && self.begin(format!("{}\n", report(self.lost)).as_bytes()) {
            self.lost = 0;
        }
        if self.lost > 0 || !self.begin(line) {
            self.lost += 1;
        }
    }

    /// Writes a line, or as much of it as there is room for, and the rest later. Returns whether there is room for any.
    fn begin(&mut self, line: &[u8]) -> bool {
        let earlier = mem::take(&mut self.rest);
        self.rest = self.write_available(&earlier, Duration::ZERO).to_vec();
        if !self.rest.is_empty() {
            return false;
        }
        let rest = self.write_available(line, Duration::ZERO);
        let is_begun = rest.len() < line.len();
        if is_begun {
            self.rest = rest.to_vec();
        }
        is_begun
    }

    /// Writes the last text of the process, after a wait for room if necessary.
    pub(super) fn write_last(&mut self, text: &[u8], wait: Duration) {
        let all = [&mem::take(&mut self.rest), text].concat();
        self.write_available(&all, wait);
    }

    /// Writes as much as there is room for within `wait`; returns the rest.
    fn write_available<'a>(&mut self, text: &'a [u8], wait: Duration) -> &'a [u8] {
        let deadline = Instant::now() + wait;
        let mut rest = text;
        while !rest.is_empty() {
            // A pipe takes so much as a whole or not at all.
            let part = rest.get(..libc::PIPE_BUF).unwrap_or(rest);
            match self.write_part(part) {
                Ok(written @ 1..) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    // A socket may have room for a part even if it does not say so in time.
                    self.has_room(left);
                }
                // There is nowhere to report a failure, such as a closed pipe.
                _ => break,
            }
        }
        rest
    }

    fn write_part(&mut self, part: &[u8]) -> io::Result<usize> {
        match &self.way {
            Way::Reopened(file) => (&*file).write(part),
            Way::Socket => {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                SockRef::from(&self.out).send_with_flags(part, flags)
            }
            Way::Polled if !self.has_room(Duration::ZERO) => Err(ErrorKind::WouldBlock.into()),
            Way::Polled => self.out.write(part),
        }
    }

    /// Returns whether a part can be written, or will fail, within `wait`.
    fn has_room(&self, wait: Duration) -> bool {
        let fd = self.out.as_fd().as_raw_fd();
        let mut fd = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
        let wait = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the pointer leads to one `pollfd`, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut fd, 1, wait) };
        ready > 0
    }
}

#[cfg(test)]
#[path = "../../tests/support/terminal.rs"]
mod terminal;

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Seek as _};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// Far longer than a reader takes.
    const LONG: Duration = Duration::from_secs(120);

    fn pipe() -> (PipeReader, LineWriter<PipeWriter>) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (reader, LineWriter::new(writer))
    }

    fn terminal() -> (File, LineWriter<File>) {
        let (reader, writer) = terminal::pseudo_terminal();
        (reader, LineWriter::new(writer))
    }

    fn socket() -> (UnixStream, LineWriter<UnixStream>) {
        let (reader, writer) = UnixStream::pair().expect("sockets");
        (reader, LineWriter::new(writer))
    }

    fn report(lost: u64) -> String {
        format!("{lost} lost")
    }

    /// Writes lines until one is lost; returns the number of the others.
    fn fill<W: AsFd + Write>(writer: &mut LineWriter<W>, line: &[u8]) -> usize {
        (0..)
            .take_while(|_| {
                writer.write(line, report);
                writer.lost == 0
            })
            .count()
    }

    /// Reads this many bytes.
    fn read(reader: &mut impl Read, size: usize) -> String {
        let mut bytes = vec![0; size];
        reader.read_exact(&mut bytes).expect("so many bytes");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn lost_lines_are_counted_and_reported() {
        check_report(pipe());
        // Without permission to open the pipe.
        let (reader, mut writer) = pipe();
        writer.way = Way::Polled;
        check_report((reader, writer));
    }

    fn check_report((mut reader, mut writer): (PipeReader, LineWriter<PipeWriter>)) {
        let whole = fill(&mut writer, b"a line\n");
        assert!(whole > 1_000, "{whole}");
        for _ in 0..9 {
            writer.write(b"a line\n", report);
        }
        assert_eq!(read(&mut reader, 7 * whole), "a line\n".repeat(whole));
        writer.write(b"the next\n", report);
        writer.write(b"the last\n", report);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "10 lost\nthe next\nthe last\n");
    }

    #[test]
    fn the_rest_of_a_line_that_does_not_fit_as_a_whole_follows() {
        let (mut reader, mut writer) = pipe();
        let line = format!("{}\n", "x".repeat(10 * libc::PIPE_BUF));
        let begun = fill(&mut writer, line.as_bytes());
        assert!(!writer.rest.is_empty() && writer.rest.len() < line.len());
        writer.write(b"without room\n", report);
        read(&mut reader, (begun - 1) * line.len());
        writer.write(b"the next\n", report);
        drop(writer);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, format!("{line}2 lost\nthe next\n"));
    }

    /// A terminal has room for any number of bytes, so the last line is cut.
    #[test]
    fn a_terminal_does_not_wait() {
        let (mut reader, mut writer) = terminal();
        let line = format!("{}\n", "x".repeat(180));
        let shown = line.replace('\n', "\r\n");
        let begun = fill(&mut writer, line.as_bytes());
        for _ in 0..9 {
            writer.write(line.as_bytes(), report);
        }
        let before_last = read(&mut reader, (begun - 1) * shown.len());
        assert_eq!(before_last, shown.repeat(begun - 1));
        writer.write(b"the next\n", report);
        let rest = format!("{shown}10 lost\r\nthe next\r\n");
        assert_eq!(read(&mut reader, rest.len()), rest);
    }

    #[test]
    fn other_processes_can_still_wait_for_room() {
        let (_reader, writer) = terminal();
        // SAFETY: the call has no further arguments.
        let flags = unsafe { libc::fcntl(writer.out.as_raw_fd(), libc::F_GETFL) };
        assert_eq!(flags & (libc::O_NONBLOCK | libc::O_ACCMODE), libc::O_RDWR);
    }

    #[test]
    fn the_buffer_of_a_socket_is_used_up() {
        let line = [b'x'; 181];
        let (_other_reader, mut other) = UnixStream::pair().expect("sockets");
        other.set_nonblocking(true).expect("an option");
        let capacity = (0..).take_while(|_| other.write_all(&line).is_ok()).count();
        let (mut reader, mut writer) = socket();
        assert_eq!(fill(&mut writer, &line), capacity);
        read(&mut reader, capacity * line.len());
        writer.write(b"the next\n", report);
        assert_eq!(read(&mut reader, 16), "1 lost\nthe next\n");
    }

    /// A file that is opened once more is written to from its beginning.
    #[test]
    fn a_regular_file_is_written_to_where_others_ended() {
        let mut file = tempfile::tempfile().expect("a file");
        let mut writer = LineWriter::new(file.try_clone().expect("a file"));
        for text in ["of another process\n", "another one\n"] {
            file.write_all(text.as_bytes()).expect("written");
            writer.write(b"of this process\n", report);
        }
        file.rewind().expect("the beginning");
        let written = "of another process\nof this process\nanother one\nof this process\n";
        assert_eq!(read(&mut file, written.len()), written);
    }

    #[test]
    fn the_last_text_waits_for_room() {
        fn check<R: Read + Send>((mut reader, mut writer): (R, LineWriter<impl AsFd + Write>)) {
            let line = "x".repeat(180);
            let begun = fill(&mut writer, line.as_bytes());
            let text = "last".repeat(1 << 18);
            let all = thread::scope(|scope| {
                let all = scope.spawn(|| read(&mut reader, begun * line.len() + text.len()));
                writer.write_last(text.as_bytes(), LONG);
                all.join().expect("all")
            });
            assert_eq!(all, format!("{}{text}", line.repeat(begun)));
        }
        check(pipe());
        check(terminal());
        check(socket());
    }

    #[test]
    fn the_last_text_does_not_wait_for_ever() {
        let (_reader, mut writer) = pipe();
        fill(&mut writer, b"a line\n");
        let rest = writer.write_available(b"the last\n", Duration::from_millis(1));
        assert_eq!(rest, b"the last\n");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let (reader, mut writer) = pipe();
        drop(reader);
        writer.write(b"a line\n", report);
        assert_eq!((writer.lost, writer.rest.len()), (1, 0));
        writer.write_last(b"the last\n", LONG);
    }
}
