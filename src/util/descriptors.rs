//! Divides the limit on open files (`RLIMIT_NOFILE`) between the users of connections.
//!
//! The limit applies to the whole process, so idle StatsD connections could leave no descriptor for the next scrape. Each
//! [`Share`] therefore has a guaranteed part, and the rest is first come, first served. Every accepted or opened connection
//! holds a [`Permit`]. Descriptors of listeners, logs, configuration files and profiles are reserved and not counted.

use std::io;
use std::sync::OnceLock;

use super::lock::Lock;

/// A user of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// HTTP connections of scrapes and probes, except those of the telemetry listener.
    Http,
    /// TCP connections of StatsD senders.
    Senders,
    /// Connections to the API server.
    ApiServer,
    /// HTTP connections of the telemetry listener.
    Telemetry,
}

const SHARES: usize = 4;

/// Maximum number of descriptors reserved for other files.
const RESERVED: usize = 48;

/// The guaranteed part of each share: a divisor of the unreserved descriptors, and an upper bound.
const GUARANTEED: [(usize, usize); SHARES] = [(4, 512), (8, 256), (4, 128), (8, 16)];

/// A semaphore over the descriptors of a process, divided into shares.
#[derive(Debug)]
pub struct Descriptors {
    /// The limit being divided.
    pub limit: usize,
    /// Guaranteed number for each share.
    guaranteed: [usize; SHARES],
    /// Number available to all shares.
    common: usize,
    used: Lock<[usize; SHARES]>,
}

/// The descriptor of one connection, released on drop.
#[derive(Debug)]
pub struct Permit<'a> {
    descriptors: &'a Descriptors,
    share: Share,
}

impl Descriptors {
    /// Divides a limit of `limit` open files.
    pub fn new(limit: usize) -> Self {
        let usable = limit - RESERVED.min(limit / 2);
        let guaranteed = GUARANTEED.map(|(divisor, most)| (usable / divisor).min(most));
        let common = usable - guaranteed.iter().sum::<usize>();
        Self { limit, guaranteed, common, used: Lock::default() }
    }

    /// Takes a descriptor for `share`. Returns `None` if both its guaranteed and the common part are used up.
    pub fn take(&self, share: Share) -> Option<Permit<'_>> {
        let mut used = self.used.lock();
        let mine = share as usize;
        if used[mine] >= self.guaranteed[mine] {
            let common: usize =
                used.iter().zip(self.guaranteed).map(|(used, own)| used.saturating_sub(own)).sum();
            if common >= self.common {
                return None;
            }
        }
        used[mine] += 1;
        Some(Permit { descriptors: self, share })
    }

    /// Returns true if `share` uses more than its guaranteed part, so that a released descriptor is available to all.
    pub(crate) fn exceeds_guarantee(&self, share: Share) -> bool {
        self.used.lock()[share as usize] > self.guaranteed[share as usize]
    }

    /// Returns the number of descriptors in use by `share`.
    #[cfg(test)]
    pub(crate) fn used_by(&self, share: Share) -> usize {
        self.used.lock()[share as usize]
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut used = self.descriptors.used.lock();
        used[self.share as usize] = used[self.share as usize].saturating_sub(1);
    }
}

/// Returns the descriptors of this process. The limit is the one in force at the first call.
pub fn of_process() -> &'static Descriptors {
    static PROCESS: OnceLock<Descriptors> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let (soft, _) = limits().unwrap_or((1_024, 1_024));
        Descriptors::new(usize::try_from(soft).unwrap_or(usize::MAX))
    })
}

/// Raises the soft limit on open files to the hard limit, as the Go runtime does, and returns the new limit.
///
/// # Errors
/// Returns the error of the system call; the limit is then unchanged.
pub fn raise_limit() -> io::Result<u64> {
    let (soft, hard) = limits()?;
    if soft < hard {
        let limit = libc::rlimit { rlim_cur: hard, rlim_max: hard };
        // SAFETY: the pointer leads to `limit`, which outlives the call.
        #[allow(unsafe_code)]
        let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(hard)
}

/// Returns the soft and the hard limit on open files.
fn limits() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer leads to `limit`, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result == 0 { Ok((limit.rlim_cur, limit.rlim_max)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(descriptors: &Descriptors, share: Share) -> Vec<Permit<'_>> {
        std::iter::from_fn(|| descriptors.take(share)).collect()
    }

    #[test]
    fn shares_keep_their_guarantees() {
        for limit in [1, 2, 16, 64, 256, 1_024, 1 << 20] {
            let descriptors = Descriptors::new(limit);
            let senders = take_all(&descriptors, Share::Senders);
            let servers = take_all(&descriptors, Share::ApiServer);
            let http = take_all(&descriptors, Share::Http);
            let telemetry = take_all(&descriptors, Share::Telemetry);
            let all = senders.len() + servers.len() + http.len() + telemetry.len();
            assert_eq!(all, limit - RESERVED.min(limit / 2), "limit {limit}");
            assert_eq!(http.len(), descriptors.guaranteed[Share::Http as usize]);
            assert_eq!(servers.len(), descriptors.guaranteed[Share::ApiServer as usize]);
            assert!(limit < 64 || http.len() >= 8, "limit {limit}");
            assert!(limit < 64 || telemetry.len() >= 4, "limit {limit}");
        }
    }

    #[test]
    fn returned_descriptors_are_reused() {
        let descriptors = Descriptors::new(256);
        let mut senders = take_all(&descriptors, Share::Senders);
        assert!(descriptors.take(Share::Senders).is_none());
        assert_eq!(descriptors.used_by(Share::Senders), senders.len());
        senders.pop();
        assert!(descriptors.take(Share::Senders).is_some());
        drop(senders);
        assert_eq!(descriptors.used_by(Share::Senders), 0);
        assert!(take_all(&descriptors, Share::Http).len() > descriptors.guaranteed[0]);
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        let limit = raise_limit().expect("allowed");
        assert_eq!(limits().expect("known"), (limit, limit));
    }
}
