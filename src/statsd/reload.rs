//! Reloads one after the other.
//!
//! Whoever asks for a reload reads the file after asking and before anybody else does, so that what is in force after
//! all of them is what the file said when the last of them was asked for, or later. What is read, and what becomes of it,
//! is the caller's business.

use std::sync::{Mutex, PoisonError};

/// The reloads of one thing.
#[derive(Debug, Default)]
pub(crate) struct Reloads {
    /// How many succeeded.
    done: Mutex<u64>,
}

impl Reloads {
    /// Reads and, if that succeeds, publishes what was read, together with its generation: 1 for the first. Waits for
    /// reloads under way.
    ///
    /// # Errors
    /// Those of `read`; nothing is published then.
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
    fn what_was_read_last_is_in_force() {
        let (reloads, file) = (&Reloads::default(), &Mutex::new("old"));
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
                reloads.run(slowly, set).expect("read");
            });
            has_begun.recv().expect("begun");
            *file.lock().expect("file") = "new";
            let later = scope.spawn(move || reloads.run(read, set).expect("read"));
            go_on.send(()).expect("told");
            later.join().expect("later");
        });
        assert_eq!(*active.lock().expect("active"), ("new", 2));
        let failed: Result<(), &str> = reloads.run(|| Err("no file"), |(), _| ());
        assert_eq!(failed, Err("no file"));
    }
}
