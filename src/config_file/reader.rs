//! Configuration file reads with timeouts, so that an unresponsive file blocks nothing else.
//!
//! A file may be on an unreachable network file system, or be a pipe without a writer. Until the process serves, reads
//! wait without a limit: a signal ends the process. After [`limit_waits`], every operation runs on its own thread, and
//! a caller waits for [`READ_TIMEOUT`] at most. While an operation hangs, later callers get [`io::ErrorKind::TimedOut`]
//! at once and keep what they read last, at most [`MAX_THREADS`] operations run at once, and [`hanging`] lists the
//! files. Content that arrives late is kept for the next caller; [`late`] notifies of it. A pipe returns its content only
//! once, so all that it returned, late or in time, stays available until a caller has applied it ([`forget_applied`]).
//!
//! Operations are identified by device and inode: a path that points to another file by now is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use crate::util::lock::Lock;

/// The time that a caller waits for one operation.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of operations at once, including those that hang.
const MAX_THREADS: usize = 32;

/// The stack size of a reading thread, in bytes.
const STACK_SIZE: usize = 256 << 10;

/// A file system operation that has not finished.
struct Operation {
    id: u64,
    path: PathBuf,
    began: SystemTime,
    /// Device and inode, once the file system has returned them.
    file: Option<(u64, u64)>,
    /// The caller has given up, or the log has named it.
    is_overdue: bool,
    /// The path was since read successfully, as another file.
    is_superseded: bool,
}

#[derive(Default)]
struct Operations {
    started: u64,
    running: Vec<Operation>,
    /// Results that must not be lost, at most one of each path, and how many have been kept so far.
    kept: BTreeMap<PathBuf, Kept>,
    kept_so_far: u64,
    /// The files that could not be read the last time, for a reason that may pass without an event of the file system.
    failed: BTreeSet<PathBuf>,
}

/// A result that arrived after its caller had timed out, or content that cannot be read again.
struct Kept {
    number: u64,
    content: io::Result<Vec<u8>>,
    /// No caller that applies it has read it.
    is_new: bool,
}

static OPERATIONS: Lock<Operations> = Lock::new(Operations {
    started: 0,
    running: Vec::new(),
    kept: BTreeMap::new(),
    kept_so_far: 0,
    failed: BTreeSet::new(),
});
static LATE: LazyLock<watch::Sender<u64>> = LazyLock::new(|| watch::Sender::new(0));

/// Accesses the process-wide flag that bounds waits.
#[cfg(not(test))]
fn limited<T>(with: impl FnOnce(&AtomicBool) -> T) -> T {
    static IS_LIMITED: AtomicBool = AtomicBool::new(false);
    with(&IS_LIMITED)
}

/// Accesses the flag of the current test, since tests run in parallel in one process.
#[cfg(test)]
fn limited<T>(with: impl FnOnce(&AtomicBool) -> T) -> T {
    thread_local! {
        static IS_LIMITED: AtomicBool = const { AtomicBool::new(false) };
    }
    IS_LIMITED.with(with)
}

fn is_limited() -> bool {
    limited(|is_limited| is_limited.load(Ordering::Relaxed))
}

/// Bounds the waits of all callers from now on: the process serves, and keeps what it has read.
pub(crate) fn limit_waits() {
    limited(|is_limited| is_limited.store(true, Ordering::Relaxed));
}

impl Operations {
    /// Registers an operation.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if an operation on the same path has not even opened its file.
    fn begin(&mut self, path: &Path) -> io::Result<u64> {
        let is_limited = is_limited();
        let hangs = |one: &Operation| one.path == path && one.is_overdue && one.file.is_none();
        if is_limited && self.running.iter().any(hangs) {
            return Err(no_answer());
        }
        if is_limited && self.running.len() >= MAX_THREADS {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{MAX_THREADS} other files are being read and do not answer"),
            ));
        }
        self.started += 1;
        self.running.push(Operation {
            id: self.started,
            path: path.to_owned(),
            began: SystemTime::now(),
            file: None,
            is_overdue: false,
            is_superseded: false,
        });
        Ok(self.started)
    }

    /// Records the file that an operation works on.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if another operation on the same file hangs. Of two readers of a pipe, only one gets the
    /// content, so the second gets this error at once.
    fn identify(&mut self, id: u64, metadata: &Metadata, is_limited: bool) -> io::Result<()> {
        let file = Some((metadata.dev(), metadata.ino()));
        let is_in_the_way = |one: &Operation| one.is_overdue || !metadata.is_file();
        if is_limited && self.running.iter().any(|one| one.file == file && is_in_the_way(one)) {
            return Err(no_answer());
        }
        if let Some(one) = self.running.iter_mut().find(|one| one.id == id) {
            one.file = file;
        }
        Ok(())
    }

    /// Keeps the result of a path in place of the one before.
    fn keep(&mut self, path: PathBuf, content: io::Result<Vec<u8>>, is_new: bool) {
        self.kept_so_far += 1;
        self.kept.insert(path, Kept { number: self.kept_so_far, content, is_new });
    }

    /// Returns a kept result that no caller has read. Content is kept until it is applied, and stays new with `leave`; an
    /// error is returned only once.
    fn take_new(&mut self, path: &Path, leave: bool) -> Option<io::Result<Vec<u8>>> {
        let kept = self.kept.get_mut(path).filter(|kept| kept.is_new)?;
        kept.is_new = leave;
        match &kept.content {
            Ok(content) => Some(Ok(content.clone())),
            Err(_) => self.kept.remove(path).map(|kept| kept.content),
        }
    }

    fn end(&mut self, id: u64) -> Option<Operation> {
        let at = self.running.iter().position(|one| one.id == id)?;
        Some(self.running.swap_remove(at))
    }
}

fn no_answer() -> io::Error {
    let text = "it cannot be read yet, the file system does not answer";
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Reads a file, or returns the content that arrived too late for the previous caller. If the file does not answer,
/// kept content is returned again until it is applied.
///
/// # Errors
/// The file cannot be read; [`io::ErrorKind::TimedOut`] if it does not answer.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_and(path, false)
}

/// Reads a file like [`read`] without applying its content: late content and that of a pipe are left for the next
/// [`read`].
///
/// # Errors
/// As [`read`].
pub(crate) fn peek(path: &Path) -> io::Result<Vec<u8>> {
    read_and(path, true)
}

fn read_and(path: &Path, leave: bool) -> io::Result<Vec<u8>> {
    if let Some(new) = OPERATIONS.lock().take_new(path, leave) {
        return new;
    }
    let error = match read_of_kind(path, |_| Ok(())) {
        Ok((content, is_regular)) => {
            OPERATIONS.lock().failed.remove(path);
            if !is_regular && is_limited() {
                OPERATIONS.lock().keep(path.to_owned(), Ok(content.clone()), leave);
                if leave {
                    notify();
                }
            }
            return Ok(content);
        }
        Err(error) => error,
    };
    let mut operations = OPERATIONS.lock();
    if error.kind() == io::ErrorKind::TimedOut {
        // A caller has read the content but has not applied it, since another change came first.
        let unapplied = operations.kept.get(path).and_then(|kept| kept.content.as_ref().ok());
        return unapplied.cloned().ok_or(error);
    }
    operations.kept.remove(path);
    if may_pass_unnoticed(&error) {
        operations.failed.insert(path.to_owned());
    } else {
        operations.failed.remove(path);
    }
    Err(error)
}

/// Returns false for reasons that end with a change of a directory or of the file, which is watched.
fn may_pass_unnoticed(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    !matches!(error.kind(), NotFound | PermissionDenied | IsADirectory | NotADirectory)
}

/// True if the last [`read`] failed for a reason that may pass without an event of the file system, such as a lack of descriptors.
pub(crate) fn has_failed(path: &Path) -> bool {
    OPERATIONS.lock().failed.contains(path)
}

/// Discards kept content of a file.
pub(crate) fn forget(path: &Path) {
    OPERATIONS.lock().kept.remove(path);
}

/// Discards kept content that callers have read: it is applied or rejected.
pub(crate) fn forget_applied(path: &Path) {
    let mut operations = OPERATIONS.lock();
    if operations.kept.get(path).is_some_and(|kept| !kept.is_new) {
        operations.kept.remove(path);
    }
}

/// Reads a file if `allows` accepts its metadata. Late content is kept for [`read`].
///
/// # Errors
/// As [`read`], and those of `allows`.
pub(crate) fn read_if(
    path: &Path,
    allows: impl FnOnce(&Metadata) -> io::Result<()> + Send + 'static,
) -> io::Result<Vec<u8>> {
    read_of_kind(path, allows).map(|(content, _)| content)
}

/// Reads a regular file. Other files, such as pipes, can only be read once.
///
/// # Errors
/// As [`read`], and if it is no regular file.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    read_if(path, |metadata| {
        let no_file = || io::Error::other("not a regular file");
        metadata.is_file().then_some(()).ok_or_else(no_file)
    })
}

/// Returns the content of a file, and whether the file is regular: another one, such as a pipe, may not return the same
/// content to a second reader.
fn read_of_kind(
    path: &Path,
    allows: impl FnOnce(&Metadata) -> io::Result<()> + Send + 'static,
) -> io::Result<(Vec<u8>, bool)> {
    let (of, is_limited) = (path.to_owned(), is_limited());
    let keep = |all: &mut Operations, path, read: io::Result<(Vec<u8>, bool)>| {
        all.keep(path, read.map(|(content, _)| content), true);
    };
    let read = run_bounded(path, keep, move |id| {
        let metadata = std::fs::metadata(&of)?;
        allows(&metadata)?;
        OPERATIONS.lock().identify(id, &metadata, is_limited)?;
        let content = std::fs::read(&of)?;
        // A pipe without a writer, such as `/dev/stdin`, is empty once its content has been read.
        if content.is_empty() && is_limited && !metadata.is_file() {
            return Err(no_answer());
        }
        Ok((content, metadata.is_file()))
    })?;
    let mut operations = OPERATIONS.lock();
    operations.kept.remove(path);
    for one in operations.running.iter_mut().filter(|one| one.is_overdue && one.path == path) {
        one.is_superseded = true;
    }
    Ok(read)
}

/// What changes with the content of a file, and also when it is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Device and inode.
    file: (u64, u64),
    size: u64,
    /// In seconds and nanoseconds, like `changed`.
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

/// Returns the stamp of a file.
///
/// # Errors
///
/// There is no such file, or it does not answer.
pub(crate) fn stamp(path: &Path) -> io::Result<Stamp> {
    metadata(path).map(|file| Stamp {
        file: (file.dev(), file.ino()),
        size: file.size(),
        modified: (file.mtime(), file.mtime_nsec()),
        changed: (file.ctime(), file.ctime_nsec()),
    })
}

/// Returns the metadata of a file without reading it.
///
/// # Errors
/// As [`read`].
pub(crate) fn metadata(path: &Path) -> io::Result<Metadata> {
    run(path, |path| std::fs::metadata(path))
}

/// True if the file exists, or its file system does not answer.
pub(crate) fn exists(path: &Path) -> bool {
    metadata(path).is_ok() || is_hanging(path)
}

/// Runs any other file system operation on a path.
///
/// # Errors
/// Those of `operation`, and as [`read`].
pub(crate) fn run<T: Send + 'static>(
    path: &Path,
    operation: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let of = path.to_owned();
    run_bounded(path, |_, _, _| {}, move |_| operation(&of))
}

/// Returns the files whose operations hang, with the start time of each operation.
pub(crate) fn hanging() -> BTreeMap<PathBuf, SystemTime> {
    let mut found = BTreeMap::new();
    for one in OPERATIONS.lock().running.iter().filter(|one| one.is_overdue && !one.is_superseded) {
        let began = found.entry(one.path.clone()).or_insert(one.began);
        *began = one.began.min(*began);
    }
    found
}

/// True if an operation on this path hangs.
pub(crate) fn is_hanging(path: &Path) -> bool {
    hanging().contains_key(path)
}

/// True if content of this path is kept that no caller which applies it has read.
pub(crate) fn has_new(path: &Path) -> bool {
    new_result(path).is_some()
}

/// Returns the number of the content of which [`has_new`] tells. Later content has another number.
pub(crate) fn new_result(path: &Path) -> Option<u64> {
    OPERATIONS.lock().kept.get(path).filter(|kept| kept.is_new).map(|kept| kept.number)
}

/// Returns a channel that changes whenever new content is kept.
pub(crate) fn late() -> watch::Receiver<u64> {
    LATE.subscribe()
}

fn notify() {
    LATE.send_modify(|count| *count += 1);
}

/// Logs reads that hang during startup, each once.
pub(crate) fn log_hanging() {
    let now = SystemTime::now();
    let is_late = |one: &&mut Operation| {
        !one.is_overdue && now.duration_since(one.began).is_ok_and(|since| since > READ_TIMEOUT)
    };
    for one in OPERATIONS.lock().running.iter_mut().filter(is_late) {
        one.is_overdue = true;
        let file = one.path.display();
        tracing::warn!(%file, "Waiting for a file that cannot be read yet");
    }
}

fn run_bounded<T: Send + 'static>(
    path: &Path,
    keep: impl FnOnce(&mut Operations, PathBuf, io::Result<T>) + Send + 'static,
    operation: impl FnOnce(u64) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let id = OPERATIONS.lock().begin(path)?;
    if !is_limited() {
        let result = operation(id);
        OPERATIONS.lock().end(id);
        return result;
    }
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("kstatd-files".to_owned()).stack_size(STACK_SIZE);
    let spawned = thread.spawn(move || {
        let result = operation(id);
        let mut all = OPERATIONS.lock();
        let Some(ended) = all.end(id) else { return };
        if !ended.is_overdue {
            let _ = sender.send(result);
            return;
        }
        if ended.is_superseded {
            return;
        }
        // At once: a read of the file that replaced this one discards what is kept, or notes that this one is superseded.
        keep(&mut all, ended.path.clone(), result);
        drop(all);
        let (file, began) = (ended.path.display(), ended.began);
        tracing::info!(%file, after = ?began.elapsed().unwrap_or_default(), "The file answers again");
        notify();
    });
    if let Err(error) = spawned {
        OPERATIONS.lock().end(id);
        return Err(error);
    }
    if let Ok(result) = receiver.recv_timeout(READ_TIMEOUT) {
        return result;
    }
    let mut all = OPERATIONS.lock();
    match all.running.iter_mut().find(|one| one.id == id) {
        Some(one) => one.is_overdue = true,
        // It has just ended.
        None => return receiver.recv().unwrap_or_else(|_| Err(no_answer())),
    }
    drop(all);
    let file = path.display();
    tracing::warn!(%file, "The file does not answer, what it said before stays in force until it does");
    Err(no_answer())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn pipe(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo");
        assert!(made.success());
    }

    /// Writes to a pipe and waits for the content.
    fn write(path: &Path, content: &str, changes: &mut watch::Receiver<u64>) {
        std::fs::write(path, content).expect("write");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(changes.wait_for(|_| has_new(path))).expect("told");
    }

    /// As of a shell's `<(command)`.
    #[test]
    fn a_pipe_that_was_read_is_not_empty() {
        limit_waits();
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        writer.write_all(b"content").expect("room");
        drop(writer);
        assert_eq!(read(&path).expect("the content"), b"content");
        forget_applied(&path);
        assert_eq!(read(&path).expect_err("nobody writes").kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_hanging_pipe_blocks_nothing_and_its_late_content_is_kept() {
        limit_waits();
        let dir = tempfile::tempdir().expect("dir");
        let (path, other) = (dir.path().join("pipe"), dir.path().join("other"));
        pipe(&path);
        std::fs::write(&other, "other").expect("write");
        for _ in 0..2 * MAX_THREADS {
            let error = read(&path).expect_err("nobody writes");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert!(is_hanging(&path) && !has_new(&path));
        let on_path = || OPERATIONS.lock().running.iter().filter(|one| one.path == path).count();
        assert_eq!(on_path(), 1, "one thread for all of them");
        assert_eq!(read(&other).expect("a file"), b"other");
        // A writer appears after all.
        let mut changes = late();
        write(&path, "late", &mut changes);
        assert!(has_new(&path) && !is_hanging(&path));
        assert_eq!(read(&path).expect("kept"), b"late");
        // The caller was interrupted before it applied the content, and a pipe has nothing to read again.
        assert!(!has_new(&path));
        assert_eq!(read(&path).expect("kept"), b"late");
        forget_applied(&path);
        // Once a file replaces the pipe, the hanging operation does not matter.
        assert!(read(&path).is_err() && is_hanging(&path));
        let beside = dir.path().join("beside");
        std::fs::write(&beside, "file").expect("write");
        std::fs::rename(&beside, &path).expect("rename");
        assert_eq!(read(&path).expect("a file"), b"file");
        assert!(!is_hanging(&path));
    }

    #[test]
    fn content_of_a_pipe_goes_to_the_caller_that_applies_it() {
        limit_waits();
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("pipe");
        pipe(&path);
        let mut changes = late();
        // Late: another caller looks at the file first.
        assert!(read(&path).is_err());
        write(&path, "late", &mut changes);
        assert_eq!(peek(&path).expect("kept"), b"late");
        forget_applied(&path);
        assert_eq!(read(&path).expect("it was not applied"), b"late");
        forget_applied(&path);
        // In time: the caller was interrupted, or only looked.
        for is_applied in [true, false] {
            let writer = std::thread::spawn({
                let path = path.clone();
                move || std::fs::write(path, "in time").expect("written")
            });
            let content = if is_applied { read(&path) } else { peek(&path) };
            assert_eq!(content.expect("in time"), b"in time");
            writer.join().expect("no panic");
            if !is_applied {
                forget_applied(&path);
            }
            assert_eq!(has_new(&path), !is_applied);
            assert_eq!(read(&path).expect("kept"), b"in time");
            forget_applied(&path);
            std::fs::remove_file(&path).expect("removed");
            pipe(&path);
        }
        // Another reader would take the content, or get nothing. The reads before may still wait for the former file.
        let before = OPERATIONS.lock().started;
        let reader = std::thread::spawn({
            let path = path.clone();
            move || {
                limit_waits();
                read(&path)
            }
        });
        let is_reading =
            |one: &Operation| one.id > before && one.path == path && one.file.is_some();
        while !OPERATIONS.lock().running.iter().any(is_reading) {
            std::thread::yield_now();
        }
        assert!(read(&path).is_err());
        std::fs::write(&path, "once").expect("written");
        let content = reader.join().expect("no panic").or_else(|_| {
            while !has_new(&path) {
                std::thread::yield_now();
            }
            read(&path)
        });
        assert_eq!(content.expect("late or in time"), b"once");
    }
}
