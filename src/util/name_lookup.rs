//! Name resolution that keeps at most one thread.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::lock::Lock;

/// The addresses of a name, or the error of the resolver.
type Found = Result<Vec<SocketAddr>, Arc<io::Error>>;

/// A name with a port.
pub(crate) trait Name: ToSocketAddrs + Clone + Send + 'static {
    /// Returns the address if the name is one, for which no look-up is needed.
    fn address(&self) -> Option<SocketAddr>;
}

impl Name for String {
    fn address(&self) -> Option<SocketAddr> {
        self.parse().ok()
    }
}

impl Name for (String, u16) {
    fn address(&self) -> Option<SocketAddr> {
        self.0.parse().ok().map(|address: IpAddr| (address, self.1).into())
    }
}

/// Resolves one name. Without an answer of a name server, the system's resolver occupies its thread for up to half a
/// minute, much longer than callers wait: calls in that time share the look-up that is in progress, so that retries
/// occupy no further thread.
#[derive(Debug)]
pub(crate) struct NameLookup<T> {
    name: T,
    running: Arc<Lock<Option<Shared<oneshot::Receiver<Found>>>>>,
}

impl<T: Name> NameLookup<T> {
    pub(crate) fn new(name: T) -> Self {
        Self { name, running: Arc::default() }
    }

    /// Returns the addresses of the name. A look-up that has begun continues if this future is dropped.
    ///
    /// # Errors
    /// The name cannot be resolved, or is none.
    pub(crate) async fn addresses(&self) -> Found {
        if let Some(address) = self.name.address() {
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
        let (name, running) = (self.name.clone(), Arc::clone(&self.running));
        spawn_blocking(move || {
            let addresses = name.to_socket_addrs().map(Iterator::collect).map_err(Arc::new);
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

    /// A name whose server does not answer before it is told to.
    #[derive(Clone, Default)]
    struct Silent(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

    impl ToSocketAddrs for Silent {
        type Iter = std::vec::IntoIter<SocketAddr>;

        fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
            let (answers, changed, asked) = &*self.0;
            asked.fetch_add(1, Ordering::SeqCst);
            let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            drop(changed.wait_while(answers, |answers| !*answers));
            "127.0.0.1:9".to_socket_addrs()
        }
    }

    impl Name for Silent {
        fn address(&self) -> Option<SocketAddr> {
            None
        }
    }

    #[test]
    fn a_silent_name_server_leaves_threads_to_others() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(2)
            .build()
            .expect("runtime");
        let silent = Silent::default();
        runtime.block_on(async {
            let lookup = NameLookup::new(silent.clone());
            for _ in 0..4 {
                assert!(timeout(Duration::from_millis(1), lookup.addresses()).await.is_err());
            }
            let mut last = std::pin::pin!(lookup.addresses());
            assert!(timeout(Duration::from_millis(1), &mut last).await.is_err());
            spawn_blocking(|| ()).await.expect("a thread is left");
            *silent.0.0.lock().expect("lock") = true;
            silent.0.1.notify_all();
            let address = SocketAddr::from(([127, 0, 0, 1], 9));
            assert_eq!(last.await.expect("answer"), [address]);
            assert_eq!(silent.0.2.load(Ordering::SeqCst), 1, "look-ups in five calls");
            lookup.addresses().await.expect("answer");
            assert_eq!(silent.0.2.load(Ordering::SeqCst), 2, "an answer is not kept");
        });
    }
}
