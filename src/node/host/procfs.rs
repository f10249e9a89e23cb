//! Parsers of the files below `/proc`, and a bounded reader.

use std::ffi::CStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use crate::node::sys;

/// Ticks per second of times in `/proc` (`USER_HZ`), 100 on every supported architecture.
pub(super) const TICKS: f64 = 100.0;

/// The maximum length of a file that is read, in bytes.
const MAX_FILE: usize = 64 << 10;

/// The size of the buffer for directories, in bytes. It holds 1,024 threads: the kernel can skip one if another ends between two
/// parts of a directory.
const BUFFER: usize = 32 << 10;

/// Reads a file of a directory into `buffer`.
///
/// # Errors
///
/// When the file cannot be read or is too long.
pub(super) fn read(directory: &OwnedFd, path: &CStr, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    let mut file = sys::open_file(directory, path)?.take(MAX_FILE as u64 + 1);
    file.read_to_end(buffer)?;
    match buffer.len() > MAX_FILE {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, "too long")),
        false => Ok(()),
    }
}

/// Parses a decimal number that is followed by anything.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(text.get(..digits)?).ok()?.parse().ok()
}

/// Returns the number after a key at the start of a line.
fn field(text: &[u8], key: &[u8]) -> Option<u64> {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(key))?;
    number(line.trim_ascii_start())
}

/// Passes on the IDs in a directory of processes or threads.
///
/// # Errors
///
/// When the directory cannot be read to its end.
pub(super) fn for_each_id(directory: &OwnedFd, mut with: impl FnMut(u32)) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = sys::read_directory(directory, &mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        let records = buffer.get(..read).unwrap_or_default();
        sys::entries(records).filter_map(|entry| id(entry.name)).for_each(&mut with);
    }
}

/// Parses the ID of a process or thread.
fn id(name: &CStr) -> Option<u32> {
    name.to_str().ok()?.parse().ok()
}

/// The used fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// User and system CPU time of all threads, ended ones included, in ticks.
    pub(super) cpu: u64,
    pub(super) threads: u64,
    /// The start time in ticks since boot; tells processes with the same ID apart.
    pub(super) start: u64,
}

/// Parses `/proc/PID/stat`. The process chooses its name, so fields are counted from the last
/// parenthesis.
pub(super) fn stat(text: &[u8]) -> Option<Stat> {
    /// The positions of the fields after the name.
    const UTIME: usize = 11;
    const STIME: usize = 12;
    const THREADS: usize = 17;
    const START: usize = 19;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let rest = text.get(end + 2..)?.trim_ascii_end();
    let fields: Vec<&[u8]> = rest.split(|byte| *byte == b' ').take(START + 1).collect();
    let at = |index: usize| {
        let field = fields.get(index)?;
        number(field).filter(|_| field.iter().all(u8::is_ascii_digit))
    };
    let cpu = at(UTIME)?.checked_add(at(STIME)?)?;
    Some(Stat { cpu, threads: at(THREADS)?, start: at(START)? })
}

/// Bytes that a process caused to be read from and written to disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskBytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

/// Parses `/proc/PID/io`.
pub(super) fn io(text: &[u8]) -> Option<DiskBytes> {
    Some(DiskBytes { read: field(text, b"read_bytes:")?, written: field(text, b"write_bytes:")? })
}

/// The used fields of `/proc/PID/task/TID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ThreadStatus {
    /// Voluntary context switches; each was followed by a wake-up.
    pub(super) wakeups: u64,
    /// All context switches.
    pub(super) switches: u64,
    /// Resident memory of the process in bytes; absent for a process that is ending.
    pub(super) memory: Option<u64>,
}

/// Parses `/proc/PID/task/TID/status`. The kernel escapes line feeds in the name.
pub(super) fn status(text: &[u8]) -> Option<ThreadStatus> {
    let wakeups = field(text, b"voluntary_ctxt_switches:")?;
    let switches = wakeups.checked_add(field(text, b"nonvoluntary_ctxt_switches:")?)?;
    let memory = field(text, b"VmRSS:").and_then(|kibibytes| kibibytes.checked_mul(1024));
    Some(ThreadStatus { wakeups, switches, memory })
}

/// Parses `/proc/uptime` to ticks.
pub(super) fn uptime(text: &[u8]) -> Option<u64> {
    let (seconds, fraction) = std::str::from_utf8(text).ok()?.split(' ').next()?.split_once('.')?;
    let hundredths: u64 = fraction.get(..2)?.parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths)
}

/// The time in which tasks waited for a resource, in microseconds since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stalls {
    /// At least one task waited.
    pub(super) some: Option<u64>,
    /// All tasks waited.
    pub(super) full: Option<u64>,
}

/// Parses a file of `/proc/pressure`.
pub(super) fn stalls(text: &[u8]) -> Stalls {
    let total = |key: &[u8]| {
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(key))?;
        number(line.split(|byte| *byte == b' ').find_map(|part| part.strip_prefix(b"total="))?)
    };
    Stalls { some: total(b"some "), full: total(b"full ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_shift_the_fields_of_stat() {
        let stat_of = |name: &str| {
            let text = format!(
                "7 ({name}) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 9 9 20 0 12 0 777 1 2 18446744073709551615\n"
            );
            stat(text.as_bytes())
        };
        let want = Some(Stat { cpu: 300, threads: 12, start: 777 });
        for name in ["kubelet", "a) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "((", "", "\\n"] {
            assert_eq!(stat_of(name), want, "{name}");
        }
        for garbage in ["", "7", "7 (a", "7 (a)", "7 (a) S 1 2", &"7 (a) S".repeat(9)] {
            assert_eq!(stat(garbage.as_bytes()), None, "{garbage}");
        }
        assert_eq!(stat(b"7 (a) S 1 1 1 1 1 1 1 1 1 1 -5 2 3 4 5 6 7 8 9"), None);
    }

    #[test]
    fn other_files() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n";
        assert_eq!(io(text), Some(DiskBytes { read: 4096, written: 8192 }));
        assert_eq!(io(b"read_bytes: x\nwrite_bytes: 1\n"), None);
        let text = b"Name:\ta\nVmRSS:\t    2048 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t3\n";
        let want = ThreadStatus { wakeups: 7, switches: 10, memory: Some(2 << 20) };
        assert_eq!(status(text), Some(want));
        assert_eq!(status(b"voluntary_ctxt_switches:\t7\n"), None);
        assert_eq!(uptime(b"12345.67 999.00\n"), Some(1_234_567));
        assert_eq!(uptime(b"garbage"), None);
        let text = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        assert_eq!(stalls(text), Stalls { some: Some(5), full: Some(3) });
        assert_eq!(stalls(b"full avg10=0.00 total=x"), Stalls::default());
        assert_eq!((id(c"42"), id(c"self"), id(c"4x"), id(c"")), (Some(42), None, None, None));
    }
}
