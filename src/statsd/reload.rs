//! Serializes reloads.
//!
//! Each caller reads the file after it requested the reload and before the next one reads it. When all
//! reloads have finished, the active version is the file's content at the time of the last request, or newer.

use std::sync::{Mutex, PoisonError};

/// A lock that serializes reloads of one file.
#[derive(Debug, Default)]
pub(crate) struct ReloadLock {
    /// The number of successful reloads.
    done: Mutex<u64>,
}

impl ReloadLock {
    /// Waits for running reloads, reads the file and, on success, publishes the content with its generation,
    /// which starts at 1.
    ///
    /// # Errors
    /// Returns the error of `read`; nothing is published.
    pub(crate) fn run<T, P, E>(
        &self,
        read: impl FnOnce() -> Result<T, E>,
        publish: impl FnOnce(T, u64) -> P,
    ) -> Result<P, E> {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let new = read()?;
        *done += 1;
        Ok(publish(new, *done))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_last_reload_wins() {
        let (reload_lock, file) = (&ReloadLock::default(), &Mutex::new("old"));
        let active = &Mutex::new(("", 0));
        let read = || -> Result<&'static str, ()> { Ok(*file.lock().expect("file")) };
        let set = |text, generation| *active.lock().expect("active") = (text, generation);
        let (began, has_begun) = channel();
        let (go_on, told) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let slowly = || {
                    let text = read();
                    began.send(()).expect("told");
                    told.recv().expect("go on");
                    text
                };
                reload_lock.run(slowly, set).expect("read");
            });
            has_begun.recv().expect("begun");
            *file.lock().expect("file") = "new";
            let later = scope.spawn(move || reload_lock.run(read, set).expect("read"));
            go_on.send(()).expect("told");
            later.join().expect("later");
        });
        assert_eq!(*active.lock().expect("active"), ("new", 2));
        let failed: Result<(), &str> = reload_lock.run(|| Err("no file"), |(), _| ());
        assert_eq!(failed, Err("no file"));
    }
}
