//! Noticing that a configuration file has another content.
//!
//! The directories are watched, not the files: editors replace files, and a ConfigMap mount swaps a
//! symbolic link above them. What counts in the end is the content.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// How long a writer may take from the first to the last event of one change.
const SETTLE: Duration = Duration::from_millis(200);

/// Files being watched.
pub struct FileWatch {
    /// Held for its inotify descriptor.
    _watcher: Option<RecommendedWatcher>,
    events: Arc<Notify>,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl FileWatch {
    /// Watches these files, of which some may not exist yet. What cannot be watched is logged.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let files: Vec<_> = paths
            .into_iter()
            .map(|path| {
                let content = std::fs::read(&path).ok();
                (path, content)
            })
            .collect();
        let events = Arc::new(Notify::new());
        let watcher = if files.is_empty() {
            None
        } else {
            let waker = Arc::clone(&events);
            watcher(files.iter().map(|(path, _)| path.as_path()), move || waker.notify_one())
        };
        Self { _watcher: watcher, events, files }
    }

    /// Watches these files from here on. A change since the last look, at a file that was watched before,
    /// is not lost.
    pub fn replace(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        let mut new = Self::new(paths);
        for (path, content) in &mut new.files {
            if let Some((_, seen)) = self.files.iter().find(|(old, _)| old == path) {
                content.clone_from(seen);
            }
        }
        // Of such a change only the old watch was told.
        new.events.notify_one();
        *self = new;
    }

    /// Completes when a file has another content than when it was last looked at.
    pub async fn changed(&mut self) {
        loop {
            self.events.notified().await;
            tokio::time::sleep(SETTLE).await;
            if self.look() {
                return;
            }
        }
    }

    /// Whether a file has another content than at the last look.
    fn look(&mut self) -> bool {
        let mut changed = false;
        for (path, content) in &mut self.files {
            let now = std::fs::read(path).ok();
            changed |= now != *content;
            *content = now;
        }
        changed
    }
}

fn watcher<'a>(
    files: impl Iterator<Item = &'a Path>,
    wake: impl Fn() + Send + 'static,
) -> Option<RecommendedWatcher> {
    let handler = move |event: notify::Result<notify::Event>| {
        // Reading a file is an event too, and would follow from every look at it.
        let read = |kind: EventKind| match kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
            EventKind::Access(_) => true,
            _ => false,
        };
        if !event.is_ok_and(|event| read(event.kind)) {
            wake();
        }
    };
    let warn = |path: &Path, error: &notify::Error| {
        tracing::warn!(path = %path.display(), %error, "changes of the file are not noticed");
    };
    let mut watcher = match notify::recommended_watcher(handler) {
        Ok(watcher) => watcher,
        Err(error) => {
            files.for_each(|path| warn(path, &error));
            return None;
        }
    };
    let directory = |path: &Path| match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let directories: BTreeSet<PathBuf> = files.map(directory).collect();
    for directory in directories {
        if let Err(error) = watcher.watch(&directory, RecursiveMode::NonRecursive) {
            warn(&directory, &error);
        }
    }
    Some(watcher)
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
        let mut watch = FileWatch::new([path.clone()]);
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
        let mut watch = FileWatch::new([path.clone()]);
        fs::write(&path, "b").expect("write");
        watch.replace([other.clone(), path.clone()]);
        within(watch.changed()).await;
        fs::write(&other, "c").expect("write");
        within(watch.changed()).await;
        watch.replace([other]);
        assert!(!watch.look());
    }

    #[test]
    fn the_same_content_is_no_change() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a");
        fs::write(&path, "a").expect("write");
        let mut watch = FileWatch::new([path.clone()]);
        fs::write(&path, "a").expect("write");
        assert!(!watch.look());
        fs::remove_file(&path).expect("remove");
        assert!(watch.look() && !watch.look());
    }
}
