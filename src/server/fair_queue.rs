//! A fair semaphore for expensive work that unauthenticated clients can request: no single client can use up its
//! permits.
//!
//! Each client address has a limit on permits and on waiting requests. Permits are granted in the order of requests, so
//! the wait behind requests of other addresses is bounded. A large request takes several permits.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::util::lock::Lock;

/// The maximum number of waiting requests of one client.
const MAX_WAITING_PER_CLIENT: usize = 256;

/// The maximum number of waiting requests of all clients.
const MAX_WAITING: usize = 1024;

/// A fair semaphore.
#[derive(Debug)]
pub(super) struct FairQueue {
    permits: Arc<Semaphore>,
    permits_each: usize,
    waiting: Arc<Semaphore>,
    clients: Lock<SharedByKey<Option<IpAddr>, Client>>,
}

/// The state of one client.
#[derive(Debug)]
struct Client {
    permits: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The permits of a request, returned on drop.
#[derive(Debug)]
pub(super) struct Permit {
    _of_all: OwnedSemaphorePermit,
    _of_client: OwnedSemaphorePermit,
    _client: Arc<Client>,
}

impl FairQueue {
    /// Creates a semaphore with `permits` in total and `permits_each` per client.
    pub(super) fn new(permits: usize, permits_each: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(permits)),
            permits_each,
            waiting: Arc::new(Semaphore::new(MAX_WAITING)),
            clients: Lock::default(),
        }
    }

    /// Waits for this number of permits, which a client can have; `None` if too many requests are waiting. Addresses of one
    /// IPv6 network (/64) count as one client.
    pub(super) async fn acquire(&self, client: Option<IpAddr>, permits: u32) -> Option<Permit> {
        let client = self.client(client.map(network));
        let _waiting = (
            Arc::clone(&self.waiting).try_acquire_owned().ok()?,
            Arc::clone(&client.waiting).try_acquire_owned().ok()?,
        );
        let of_client = Arc::clone(&client.permits).acquire_many_owned(permits).await.ok()?;
        let of_all = Arc::clone(&self.permits).acquire_many_owned(permits).await.ok()?;
        Some(Permit { _of_all: of_all, _of_client: of_client, _client: client })
    }

    fn client(&self, network: Option<IpAddr>) -> Arc<Client> {
        self.clients.lock().get(network, || Client {
            permits: Arc::new(Semaphore::new(self.permits_each)),
            waiting: Arc::new(Semaphore::new(MAX_WAITING_PER_CLIENT)),
        })
    }
}

/// Values that exist as long as they are in use.
#[derive(Debug)]
pub(super) struct SharedByKey<K, V>(BTreeMap<K, Weak<V>>);

impl<K, V> Default for SharedByKey<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> SharedByKey<K, V> {
    /// Returns the value of a key, which is made if it is not in use.
    pub(super) fn get(&mut self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        if let Some(value) = self.0.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        self.0.retain(|_, value| value.strong_count() > 0);
        let value = Arc::new(make());
        self.0.insert(key, Arc::downgrade(&value));
        value
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("address"))
    }

    #[tokio::test]
    async fn permits_alternate_between_clients() {
        let queue = FairQueue::new(2, 2);
        let attacker = address("::ffff:10.0.0.1");
        let first = queue.acquire(attacker, 1).await.expect("a permit");
        let second = queue.acquire(attacker, 1).await.expect("a permit");
        let mut flood: Vec<_> = (0..300).map(|_| Box::pin(queue.acquire(attacker, 1))).collect();
        let refused = flood.iter_mut().map(|it| poll(it.as_mut())).filter(Poll::is_ready).count();
        assert_eq!(refused, 300 - MAX_WAITING_PER_CLIENT);
        let mut other = pin!(queue.acquire(address("10.0.0.2"), 1));
        assert!(poll(other.as_mut()).is_pending());
        drop(first);
        assert!(matches!(poll(other.as_mut()), Poll::Ready(Some(_))));
        drop(second);
    }

    #[tokio::test]
    async fn waiting_requests_are_bounded() {
        let queue = FairQueue::new(1, 1);
        let kept = queue.acquire(None, 1).await.expect("a permit");
        let clients: Vec<_> = (0..MAX_WAITING as u128 + 1)
            .map(|number| Some(IpAddr::V6(Ipv6Addr::from_bits(number << 64))))
            .collect();
        let mut waiting: Vec<_> =
            clients.iter().map(|it| Box::pin(queue.acquire(*it, 1))).collect();
        let refused = waiting.iter_mut().map(|it| poll(it.as_mut())).filter(Poll::is_ready).count();
        assert_eq!(refused, 1);
        // The same network, another address.
        let mut same = pin!(queue.acquire(address("::2"), 1));
        assert!(matches!(poll(same.as_mut()), Poll::Ready(None)));
        drop((waiting, kept));
        drop(queue.acquire(address("10.0.0.1"), 1).await.expect("a permit"));
        assert_eq!(queue.clients.lock().0.len(), 1);
    }
}
