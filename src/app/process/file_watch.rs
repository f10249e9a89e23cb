//! Detects changed contents of configuration files.
//!
//! Directories are watched instead of files, because editors replace files and ConfigMap mounts swap a symbolic link
//! above them. A change is a change of content. The baseline is read after the watch has started: code that reads a
//! file after [`follow`](WatchedFiles::follow) is notified of every later change.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::config_file::reader::{self, Stamp};
use crate::util::lock::Lock;
use crate::util::waiting;

/// Debounce time after the first event of a change, for writers that write in several steps.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Poll interval for directories that the system cannot watch, and for files that could not be read.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of symbolic links followed on the way to a file.
const MAX_LINKS: usize = 16;

/// A watch on a set of files.
pub struct FileWatch {
    files: Arc<WatchedFiles>,
    /// The time of the next comparison, since an event has arrived.
    due: Option<Instant>,
    /// The next comparison reports files that were written with the same content.
    is_unverified: bool,
    /// The next comparison is due to [`POLL_INTERVAL`]. Only then is a file that can be read again reported, so that one which
    /// fails each time is not read all the time.
    is_poll: bool,
    /// The comparison in progress on a blocking thread, and whether it reports such files.
    comparison: Option<(JoinHandle<Comparison>, bool)>,
    /// Changes when an unresponsive file answers.
    late_answers: watch::Receiver<u64>,
}

/// The files of a [`FileWatch`]. Its methods block on the file system.
#[derive(Default)]
pub struct WatchedFiles {
    events: Arc<Notify>,
    /// True if a directory cannot be watched, or a file could not be read.
    needs_polling: AtomicBool,
    state: Lock<State>,
}

#[derive(Default)]
struct State {
    watcher: Option<RecommendedWatcher>,
    /// Directories that cannot be watched; each has been logged.
    unwatchable: BTreeSet<PathBuf>,
    files: Vec<WatchedFile>,
}

/// A file and its state at the last comparison.
struct WatchedFile {
    path: PathBuf,
    content: Option<Vec<u8>>,
    stamp: Option<Stamp>,
    /// The number of the last late result that was reported.
    reported: Option<u64>,
}

/// The result of comparing all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    /// No file was written, though an event may have come from a neighbouring file.
    Same,
    /// A file was written or replaced with the same content.
    Touched,
    /// A file has a different content, or answers again.
    Changed,
}

impl FileWatch {
    /// Creates a watch without files.
    pub fn new() -> Self {
        Self {
            files: Arc::default(),
            due: None,
            is_unverified: false,
            is_poll: false,
            comparison: None,
            late_answers: reader::late(),
        }
    }

    /// Returns the files, for code that reads them.
    pub fn files(&self) -> &Arc<WatchedFiles> {
        &self.files
    }

    /// Compares the files once more, and reports a file that was written or replaced since the last comparison, even if its content
    /// is the same: the content that was read in between may have been another one.
    pub fn verify(&mut self) {
        self.is_unverified = true;
        self.due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
    }

    /// Completes when a file's content differs from the last comparison, or with `any` when a file was written or
    /// replaced. Returns true if a content differs. Cancel-safe.
    pub async fn changed(&mut self, any: bool) -> bool {
        loop {
            if self.comparison.is_none() {
                if self.due.is_none() {
                    let needs_polling = self.files.needs_polling.load(Ordering::Relaxed);
                    let look = needs_polling.then(|| Instant::now() + POLL_INTERVAL);
                    tokio::select! {
                        () = self.files.events.notified() => {}
                        Ok(()) = self.late_answers.changed() => {}
                        () = waiting::until(look) => self.is_poll = true,
                    }
                }
                let due = *self.due.get_or_insert_with(|| Instant::now() + DEBOUNCE);
                tokio::time::sleep_until(due).await;
                self.due = None;
                let (files, verifies) =
                    (Arc::clone(&self.files), std::mem::take(&mut self.is_unverified));
                let is_poll = std::mem::take(&mut self.is_poll);
                let compare = move || match files.compare() {
                    _ if is_poll && files.have_recovered() => Comparison::Changed,
                    result => result,
                };
                self.comparison = Some((spawn_blocking(compare), verifies));
            }
            let Some((comparison, verifies)) = &mut self.comparison else { continue };
            let result = comparison.await.unwrap_or(Comparison::Changed);
            let any = any || *verifies;
            self.comparison = None;
            if result == Comparison::Changed || any && result == Comparison::Touched {
                return result == Comparison::Changed;
            }
        }
    }
}

impl WatchedFiles {
    /// Watches exactly these files from now on; they need not exist. Files that were watched before keep their
    /// baseline, so that no change is lost. Directories that cannot be watched are logged and polled. Returns true if a
    /// file was not watched before: code that has read it already may have missed a change.
    pub fn follow(&self, paths: impl IntoIterator<Item = PathBuf>) -> bool {
        let mut state = self.state.lock();
        let is_new = state.follow(paths.into_iter().collect(), &self.events);
        self.needs_polling.store(state.needs_polling(), Ordering::Relaxed);
        is_new
    }

    /// Returns true if a file can be read that could not be read the last time.
    fn have_recovered(&self) -> bool {
        let recovered = |path: &Path| reader::has_failed(path) && matches!(read(path), Ok(Some(_)));
        self.state.lock().files.iter().any(|file| recovered(&file.path))
    }

    /// Compares the files with the last comparison.
    pub fn compare(&self) -> Comparison {
        let mut state = self.state.lock();
        let comparison_result = state.compare(&self.events);
        self.needs_polling.store(state.needs_polling(), Ordering::Relaxed);
        comparison_result
    }
}

impl State {
    fn needs_polling(&self) -> bool {
        !self.unwatchable.is_empty() || self.files.iter().any(|file| reader::has_failed(&file.path))
    }

    fn follow(&mut self, paths: BTreeSet<PathBuf>, events: &Arc<Notify>) -> bool {
        let mut old = std::mem::take(&mut self.files);
        let unread = |path| WatchedFile { path, content: None, stamp: None, reported: None };
        self.files = paths.into_iter().map(unread).collect();
        self.watch_directories(events);
        let mut new = false;
        for file in &mut self.files {
            if let Some(known) = old.iter_mut().find(|known| known.path == file.path) {
                std::mem::swap(file, known);
            } else {
                new = true;
                file.stamp = reader::stamp(&file.path).ok();
                file.content = read(&file.path).ok().flatten();
            }
        }
        new
    }

    /// See [`WatchedFiles::compare`].
    fn compare(&mut self, events: &Arc<Notify>) -> Comparison {
        // The event may have redirected a link or directory.
        self.watch_directories(events);
        let mut comparison_result = Comparison::Same;
        for WatchedFile { path, content, stamp: last, reported } in &mut self.files {
            if let Some(number) = reader::new_result(path) {
                // Once: nobody reads a file that only an invalid options file names.
                if reported.replace(number) != Some(number) {
                    comparison_result = Comparison::Changed;
                }
                continue;
            }
            // Taken before reading, so that writes in between count as later.
            let stamp = reader::stamp(path).ok();
            // Keep the old content of a file that does not answer.
            let Ok(now) = read(path) else { continue };
            if now != *content {
                comparison_result = Comparison::Changed;
            } else if stamp != *last {
                comparison_result = comparison_result.max(Comparison::Touched);
            }
            (*content, *last) = (now, stamp);
        }
        comparison_result
    }

    /// Watches every directory whose entries affect the contents of the files.
    fn watch_directories(&mut self, events: &Arc<Notify>) {
        if self.files.is_empty() {
            return;
        }
        if self.watcher.is_none() {
            let waker = Arc::clone(events);
            self.watcher = match watcher(move || waker.notify_one()) {
                Ok(watcher) => Some(watcher),
                Err(error) => return self.log_unwatchable(Path::new("*"), &error),
            };
        }
        let directories: BTreeSet<PathBuf> =
            self.files.iter().flat_map(|file| watched_directories(&file.path)).collect();
        for directory in directories {
            let Some(watcher) = &mut self.watcher else { return };
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.unwatchable.remove(&directory);
                }
                // The directory was removed; its parent reports that.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                Err(error) => self.log_unwatchable(&directory, &error),
            }
        }
    }

    fn log_unwatchable(&mut self, directory: &Path, error: &notify::Error) {
        if self.unwatchable.insert(directory.to_owned()) {
            let path = directory.display();
            tracing::warn!(%path, %error, every = ?POLL_INTERVAL, "Cannot watch the directory, polling it instead");
        }
    }
}

/// Reads a regular file. Other files, such as pipes, have no content because they can only be read once.
///
/// # Errors
/// Returns an error if the file system does not answer.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match reader::read_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(error),
        content => Ok(content.ok()),
    }
}

/// Returns the [`directories`] of a path, if the file system answers.
fn watched_directories(path: &Path) -> Vec<PathBuf> {
    reader::run(path, |path| Ok(directories(path))).unwrap_or_default()
}

/// Returns the directories with the entries that lead to a file: those of the path and of each symbolic link on the
/// way. A missing directory is replaced by its nearest existing ancestor.
fn directories(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        found.extend(parent.ancestors().find(|directory| directory.is_dir()).map(Path::to_owned));
        // A link may be anywhere in the path, such as `..data` in a ConfigMap mount.
        let link = path.ancestors().find_map(|part| {
            let target = std::fs::read_link(part).ok()?;
            let rest = path.strip_prefix(part).ok()?;
            Some((part.to_owned(), target, rest.to_owned()))
        });
        let Some((part, target, rest)) = link else { break };
        let base = part.parent().map(Path::to_owned).unwrap_or_default();
        found.push(if base == Path::new("") { PathBuf::from(".") } else { base.clone() });
        path = base.join(target).join(rest);
    }
    found
}

fn watcher(wake: impl Fn() + Send + 'static) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Ignore reads: comparing files would trigger further comparisons.
        let written = AccessKind::Close(AccessMode::Write);
        let is_read = |kind| matches!(kind, EventKind::Access(access) if access != written);
        if !event.is_ok_and(|event| is_read(event.kind)) {
            wake();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns a watch on a file that does not exist yet.
    fn watch_without_file() -> (tempfile::TempDir, PathBuf, FileWatch) {
        let dir = tempfile::tempdir().expect("dir");
        let (path, watch) = (dir.path().join("a"), FileWatch::new());
        watch.files().follow([path.clone()]);
        (dir, path, watch)
    }

    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
    }

    /// Between the read that failed and the comparison, the fault has passed without an event.
    #[tokio::test(start_paused = true)]
    async fn files_that_can_be_read_again_are_reported() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("options.yaml");
        // Reads at its beginning fail with EIO.
        std::os::unix::fs::symlink("/proc/self/mem", &path).expect("link");
        reader::read(&path).expect_err("an error");
        fs::remove_file(&path).expect("removed");
        fs::write(&path, "a").expect("written");
        let mut watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        assert_eq!(watch.files().compare(), Comparison::Same);
        assert!(within(watch.changed(false)).await);
        reader::read(&path).expect("readable");
        assert!(!watch.files().have_recovered());
    }

    #[tokio::test]
    async fn writes_creations_and_link_swaps_are_detected() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("options.yaml");
        let mut watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        fs::write(&path, "a").expect("write");
        within(watch.changed(false)).await;
        fs::write(&path, "b").expect("write");
        within(watch.changed(false)).await;
        // Like the kubelet: `..data` is a link to a directory, which is swapped atomically.
        for (version, content) in [("v1", "c"), ("v2", "d")] {
            let data = dir.path().join(version);
            fs::create_dir(&data).expect("dir");
            fs::write(data.join("options.yaml"), content).expect("write");
            let link = dir.path().join("new");
            std::os::unix::fs::symlink(&data, &link).expect("link");
            fs::rename(&link, dir.path().join("..data")).expect("rename");
            if version == "v1" {
                fs::remove_file(&path).expect("remove");
                std::os::unix::fs::symlink("..data/options.yaml", &path).expect("link");
            }
            within(watch.changed(false)).await;
        }
    }

    #[tokio::test]
    async fn changes_between_two_waits_are_detected() {
        let dir = tempfile::tempdir().expect("dir");
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        fs::write(&path, "b").expect("write");
        assert!(watch.files().follow([other.clone(), path.clone()]), "one of them is new");
        assert!(!watch.files().follow([path, other.clone()]));
        within(watch.changed(false)).await;
        fs::write(&other, "c").expect("write");
        within(watch.changed(false)).await;
        watch.files().follow([other]);
        assert_ne!(watch.files().compare(), Comparison::Changed);
    }

    #[tokio::test]
    async fn a_cancelled_wait_loses_no_change() {
        let (_dir, path, mut watch) = watch_without_file();
        fs::write(&path, "a").expect("write");
        // Cancel at each await point: before the event and during the debounce time.
        while watch.due.is_none() {
            tokio::select! {
                biased;
                _ = watch.changed(false) => panic!("it waits for the writer"),
                () = tokio::task::yield_now() => {}
            }
        }
        within(watch.changed(false)).await;
    }

    /// Other events of the process cancel the wait again and again.
    #[tokio::test(start_paused = true)]
    async fn cancelled_waits_do_not_postpone_a_comparison() {
        let (_dir, path, mut watch) = watch_without_file();
        fs::write(&path, "a").expect("write");
        let mut changes = 0;
        while watch.due.is_none() {
            let _ = tokio::time::timeout(Duration::from_millis(1), watch.changed(false)).await;
        }
        for _ in 0..2 {
            let wait = tokio::time::timeout(DEBOUNCE.mul_f64(0.7), watch.changed(false)).await;
            changes += u32::from(wait.is_ok());
        }
        assert_eq!(changes, 1);
    }

    /// A reload can read a content that has gone again when the files are compared.
    #[tokio::test(start_paused = true)]
    async fn a_content_that_comes_back_is_reported_to_who_may_have_read_another_one() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a");
        fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        fs::write(&path, "b").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"b");
        watch.verify();
        fs::write(&path, "a").expect("write");
        assert!(!within(watch.changed(false)).await, "the same content");
    }

    #[tokio::test]
    async fn rewrites_with_the_same_content_are_reported_on_request() {
        let dir = tempfile::tempdir().expect("dir");
        let (path, neighbour) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        fs::write(&neighbour, "b").expect("write");
        assert_eq!(watch.files().compare(), Comparison::Same, "nothing happened to the file");
        let other = dir.path().join("new");
        fs::write(&other, "a").expect("write");
        fs::rename(&other, &path).expect("rename");
        assert!(!within(watch.changed(true)).await, "the same content");
    }

    #[tokio::test]
    async fn directories_created_later_and_link_targets_are_watched() {
        let dir = tempfile::tempdir().expect("dir");
        let (late, elsewhere) = (dir.path().join("x/y"), dir.path().join("elsewhere"));
        fs::create_dir(&elsewhere).expect("dir");
        fs::write(elsewhere.join("real"), "1").expect("write");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("elsewhere/real", &link).expect("link");
        let path = late.join("a");
        let mut watch = FileWatch::new();
        watch.files().follow([path.clone(), link]);
        fs::create_dir_all(&late).expect("dir");
        fs::write(&path, "a").expect("write");
        within(watch.changed(false)).await;
        fs::write(elsewhere.join("real"), "2").expect("write");
        within(watch.changed(false)).await;
        fs::remove_dir_all(&late).expect("remove");
        within(watch.changed(false)).await;
        fs::create_dir(&late).expect("dir");
        fs::write(&path, "b").expect("write");
        within(watch.changed(false)).await;
    }

    #[test]
    fn a_late_result_that_nobody_reads_is_a_change_once() {
        reader::limit_waits();
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("pipe");
        assert!(
            std::process::Command::new("mkfifo").arg(&path).status().expect("mkfifo").success()
        );
        let watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        assert_ne!(watch.files().compare(), Comparison::Changed);
        for content in ["first", "second"] {
            let writer = std::thread::spawn({
                let path = path.clone();
                move || fs::write(path, content).expect("written")
            });
            // In time or late; either way the content is left for who applies it.
            let _ = reader::peek(&path);
            writer.join().expect("no panic");
            while !reader::has_new(&path) {
                std::thread::yield_now();
            }
            assert_eq!(watch.files().compare(), Comparison::Changed, "{content}");
            assert_ne!(watch.files().compare(), Comparison::Changed, "{content}");
            assert_eq!(reader::read(&path).expect("kept"), content.as_bytes());
            reader::forget_applied(&path);
        }
    }

    #[test]
    fn an_unchanged_content_is_not_a_change() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a");
        fs::write(&path, "a").expect("write");
        let watch = FileWatch::new();
        watch.files().follow([path.clone()]);
        fs::write(&path, "a").expect("write");
        assert_ne!(watch.files().compare(), Comparison::Changed);
        fs::remove_file(&path).expect("remove");
        assert_eq!(watch.files().compare(), Comparison::Changed);
        assert_ne!(watch.files().compare(), Comparison::Changed);
    }
}
