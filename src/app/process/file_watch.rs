//! Noticing that a configuration file has another content.
//!
//! The directories are watched, not the files: editors replace files, and a ConfigMap mount swaps a
//! symbolic link above them. What counts in the end is the content, and what it is compared with was read
//! after the watch had begun: whoever reads a file after it is [followed](FileWatch::follow) is told of
//! every later change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{ErrorKind, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// How long a writer may take from the first to the last event of one change.
const SETTLE: Duration = Duration::from_millis(200);

/// How often files are looked at where the system does not tell of changes.
const LOOK: Duration = Duration::from_secs(10);

/// Symbolic links on the way to a file that are followed.
const HOPS: usize = 16;

/// Files being watched.
pub struct FileWatch {
    watcher: Option<RecommendedWatcher>,
    /// Directories that cannot be watched, each of which was named in the log.
    blind: BTreeSet<PathBuf>,
    events: Arc<Notify>,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
    /// Something has happened and was not looked at yet.
    stirred: bool,
}

impl Default for FileWatch {
    fn default() -> Self {
        Self::new()
    }
}

impl FileWatch {
    /// Watches nothing yet.
    pub fn new() -> Self {
        let events = Arc::new(Notify::new());
        Self { watcher: None, blind: BTreeSet::new(), events, files: Vec::new(), stirred: false }
    }

    /// Watches these files from here on, of which some may not exist yet. A file that was watched before
    /// keeps the content that it is compared with, so that no change of it is lost. What cannot be watched
    /// is logged, and looked at now and then. Tells whether one of them was not watched before: who has read it
    /// already may have missed a change.
    pub fn follow(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> bool {
        let paths: BTreeSet<PathBuf> = paths.into_iter().collect();
        let mut old = std::mem::take(&mut self.files);
        self.files = paths.iter().map(|path| (path.clone(), None)).collect();
        self.watch();
        let mut new = false;
        for (path, content) in &mut self.files {
            match old.iter_mut().find(|(known, _)| known == path) {
                Some((_, seen)) => *content = seen.take(),
                None => (new, *content) = (true, read(path)),
            }
        }
        new
    }

    /// The same, and goes on with what is watched already.
    pub fn follow_also(&mut self, paths: impl IntoIterator<Item = PathBuf>) -> bool {
        let known: Vec<PathBuf> = self.files.iter().map(|(path, _)| path.clone()).collect();
        self.follow(known.into_iter().chain(paths))
    }

    /// Completes when a file has another content than when it was last looked at. Nothing is lost when it
    /// is not waited for to the end.
    pub async fn changed(&mut self) {
        loop {
            if !self.stirred {
                if self.blind.is_empty() {
                    self.events.notified().await;
                } else {
                    // Told or not.
                    let _ = tokio::time::timeout(LOOK, self.events.notified()).await;
                }
                self.stirred = true;
            }
            tokio::time::sleep(SETTLE).await;
            self.stirred = false;
            // What happened may have been a link or a directory that leads elsewhere now.
            self.watch();
            if self.look() {
                return;
            }
        }
    }

    /// Whether a file has another content than at the last look.
    fn look(&mut self) -> bool {
        let mut changed = false;
        for (path, content) in &mut self.files {
            let now = read(path);
            changed |= now != *content;
            *content = now;
        }
        changed
    }

    /// Watches every directory whose entries decide what the files contain.
    fn watch(&mut self) {
        if self.files.is_empty() {
            return;
        }
        if self.watcher.is_none() {
            let waker = Arc::clone(&self.events);
            self.watcher = match watcher(move || waker.notify_one()) {
                Ok(watcher) => Some(watcher),
                Err(error) => return self.complain(Path::new("*"), &error),
            };
        }
        let directories: BTreeSet<PathBuf> =
            self.files.iter().flat_map(|(path, _)| directories(path)).collect();
        for directory in directories {
            let Some(watcher) = &mut self.watcher else { return };
            match watcher.watch(&directory, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.blind.remove(&directory);
                }
                // It went away meanwhile, of which the directory above it told.
                Err(error) if matches!(error.kind, ErrorKind::PathNotFound) => {}
                Err(error) => self.complain(&directory, &error),
            }
        }
    }

    fn complain(&mut self, directory: &Path, error: &notify::Error) {
        if self.blind.insert(directory.to_owned()) {
            let path = directory.display();
            tracing::warn!(%path, %error, every = ?LOOK, "the system does not tell of changes, looking now and then");
        }
    }
}

/// The content of a file; none of what is no file, such as a pipe, which can be read once only.
fn read(path: &Path) -> Option<Vec<u8>> {
    let is_file = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    is_file.then(|| std::fs::read(path).ok()).flatten()
}

/// The directories with the entries that lead to a file: of the path itself, of each symbolic link on the
/// way, and for one that does not exist the nearest above it that does.
fn directories(path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut path = path.to_owned();
    for _ in 0..HOPS {
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        found.extend(parent.ancestors().find(|directory| directory.is_dir()).map(Path::to_owned));
        // A link may be anywhere in the path, as `..data` is in that of a ConfigMap's file.
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
        // Reading a file is an event too, and would follow from every look at it.
        let read = |kind: EventKind| match kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
            EventKind::Access(_) => true,
            _ => false,
        };
        if !event.is_ok_and(|event| read(event.kind)) {
            wake();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), future).await.expect("in time")
    }

    #[tokio::test]
    async fn writes_creations_and_swapped_links_are_noticed() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("options.yaml");
        let mut watch = FileWatch::new();
        watch.follow([path.clone()]);
        fs::write(&path, "a").expect("write");
        within(watch.changed()).await;
        fs::write(&path, "b").expect("write");
        within(watch.changed()).await;
        // As the kubelet does it: ..data is a link to a directory, swapped as a whole.
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
            within(watch.changed()).await;
        }
    }

    #[tokio::test]
    async fn changes_between_two_watches_are_noticed() {
        let dir = tempfile::tempdir().expect("dir");
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::new();
        watch.follow([path.clone()]);
        fs::write(&path, "b").expect("write");
        assert!(watch.follow([other.clone(), path.clone()]), "one of them is new");
        assert!(!watch.follow_also([other.clone()]));
        within(watch.changed()).await;
        fs::write(&other, "c").expect("write");
        within(watch.changed()).await;
        watch.follow([other]);
        assert!(!watch.look());
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_loses_nothing() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a");
        let mut watch = FileWatch::new();
        watch.follow([path.clone()]);
        fs::write(&path, "a").expect("write");
        // Given up at each point that it can be: before the event, and while the writer may go on.
        while !watch.stirred {
            tokio::select! {
                biased;
                () = watch.changed() => panic!("it waits for the writer"),
                () = tokio::task::yield_now() => {}
            }
        }
        within(watch.changed()).await;
    }

    #[tokio::test]
    async fn directories_that_come_later_and_links_elsewhere_are_followed() {
        let dir = tempfile::tempdir().expect("dir");
        let (late, elsewhere) = (dir.path().join("x/y"), dir.path().join("elsewhere"));
        fs::create_dir(&elsewhere).expect("dir");
        fs::write(elsewhere.join("real"), "1").expect("write");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("elsewhere/real", &link).expect("link");
        let path = late.join("a");
        let mut watch = FileWatch::new();
        watch.follow([path.clone(), link]);
        fs::create_dir_all(&late).expect("dir");
        fs::write(&path, "a").expect("write");
        within(watch.changed()).await;
        fs::write(elsewhere.join("real"), "2").expect("write");
        within(watch.changed()).await;
        fs::remove_dir_all(&late).expect("remove");
        within(watch.changed()).await;
        fs::create_dir(&late).expect("dir");
        fs::write(&path, "b").expect("write");
        within(watch.changed()).await;
    }

    #[test]
    fn the_same_content_is_no_change() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a");
        fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::new();
        watch.follow([path.clone()]);
        fs::write(&path, "a").expect("write");
        assert!(!watch.look());
        fs::remove_file(&path).expect("remove");
        assert!(watch.look() && !watch.look());
    }
}
