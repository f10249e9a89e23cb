//! Name resolution that keeps at most one thread.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::lock::Lock;

/// The addresses of a name, or the error of the resolver.
type Found = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// Resolves one name with a port. Without an answer of a name server, the system's resolver occupies its thread for up
/// to half a minute, much longer than callers wait: calls in that time share the look-up that is in progress, so that
/// retries occupy no further thread.
#[derive(Debug)]
pub(crate) struct NameLookup {
    name: String,
    resolve: fn(&str) -> io::Result<Vec<SocketAddr>>,
    running: Arc<Lock<Option<Shared<oneshot::Receiver<Found>>>>>,
}

impl NameLookup {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            resolve: |name| name.to_socket_addrs().map(Iterator::collect),
            running: Arc::default(),
        }
    }

    /// Returns the addresses of the name. A look-up that has begun continues if this future is dropped.
    ///
    /// # Errors
    /// The name cannot be resolved, or is none.
    pub(crate) async fn addresses(&self) -> Found {
        // An address needs no look-up.
        if let Ok(address) = self.name.parse() {
            return Ok(vec![address]);
        }
        let found = {
            let mut running = self.running.lock();
            running.get_or_insert_with(|| self.begin()).clone()
        };
        found.await.unwrap_or_else(|_| Err(Arc::new(io::Error::other("the look-up was aborted"))))
    }

    fn begin(&self) -> Shared<oneshot::Receiver<Found>> {
        let (answer, found) = oneshot::channel();
        let (name, resolve, running) = (self.name.clone(), self.resolve, Arc::clone(&self.running));
        spawn_blocking(move || {
            let addresses = resolve(&name).map_err(Arc::new);
            // The next call looks the name up again.
            *running.lock() = None;
            let _ = answer.send(addresses);
        });
        found.shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::Duration;
    use tokio::time::timeout;

    static ANSWERS: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    static ASKED: AtomicUsize = AtomicUsize::new(0);

    /// Asks a server that does not answer before it is told to.
    fn ask_silent_server(_: &str) -> io::Result<Vec<SocketAddr>> {
        ASKED.fetch_add(1, Ordering::SeqCst);
        let answers = ANSWERS.lock().unwrap_or_else(PoisonError::into_inner);
        drop(CHANGED.wait_while(answers, |answers| !*answers));
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], 9))])
    }

    #[test]
    fn a_silent_name_server_leaves_threads_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .expect("runtime");
        runtime.block_on(async {
            let lookup = NameLookup::new("silent:9".to_owned());
            let lookup = NameLookup { resolve: ask_silent_server, ..lookup };
            for _ in 0..4 {
                assert!(timeout(Duration::from_millis(1), lookup.addresses()).await.is_err());
            }
            let mut last = std::pin::pin!(lookup.addresses());
            assert!(timeout(Duration::from_millis(1), &mut last).await.is_err());
            spawn_blocking(|| ()).await.expect("a thread is left");
            *ANSWERS.lock().expect("lock") = true;
            CHANGED.notify_all();
            let address = SocketAddr::from(([127, 0, 0, 1], 9));
            assert_eq!(last.await.expect("answer"), [address]);
            assert_eq!(ASKED.load(Ordering::SeqCst), 1, "look-ups in five calls");
            lookup.addresses().await.expect("answer");
            assert_eq!(ASKED.load(Ordering::SeqCst), 2, "an answer is not kept");
        });
    }
}
