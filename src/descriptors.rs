//! How many files the process may have open, and whose connections may take how many of them.
//!
//! A process has one limit for everything. Without shares, senders that hold idle connections leave nothing
//! for the next scrape. Each [`Share`] has a part of its own that no other can take, the rest goes to
//! whoever asks first. Whoever accepts or opens connections takes a [`Permit`] for each and keeps it with
//! the connection; what the process needs besides (listeners, logs, configuration files, profiles) is set
//! aside and not counted.

use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Whose connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Those of scrapes and probes.
    Http,
    /// Those of StatsD senders.
    Senders,
    /// Those to the API server.
    ApiServer,
}

const SHARES: usize = 3;

/// Set aside for what is no connection, at most.
const ASIDE: usize = 48;

/// Of what remains, the part that belongs to each share alone: a divisor, and the most it needs.
const OWN: [(usize, usize); SHARES] = [(4, 512), (8, 256), (4, 128)];

/// The descriptors of a process and who has them.
#[derive(Debug)]
pub struct Descriptors {
    limit: usize,
    /// What belongs to each share alone.
    own: [usize; SHARES],
    /// What is there for all.
    common: usize,
    used: Mutex<[usize; SHARES]>,
}

/// One connection's descriptor; its drop gives it back.
#[derive(Debug)]
pub struct Permit<'a> {
    descriptors: &'a Descriptors,
    share: Share,
}

impl Descriptors {
    /// Shares out a limit of so many open files.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let usable = limit - ASIDE.min(limit / 2);
        let own = OWN.map(|(divisor, most)| (usable / divisor).min(most));
        let common = usable - own.iter().sum::<usize>();
        Self { limit, own, common, used: Mutex::default() }
    }

    /// The limit that is shared out.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Takes one, unless the share has used up its own part and what is there for all.
    #[must_use]
    pub fn take(&self, share: Share) -> Option<Permit<'_>> {
        let mut used = self.used();
        let mine = share as usize;
        if used[mine] >= self.own[mine] {
            let common: usize =
                used.iter().zip(self.own).map(|(used, own)| used.saturating_sub(own)).sum();
            if common >= self.common {
                return None;
            }
        }
        used[mine] += 1;
        Some(Permit { descriptors: self, share })
    }

    /// How many a share has now.
    #[cfg(test)]
    pub(crate) fn used_by(&self, share: Share) -> usize {
        self.used()[share as usize]
    }

    fn used(&self) -> MutexGuard<'_, [usize; SHARES]> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut used = self.descriptors.used();
        used[self.share as usize] = used[self.share as usize].saturating_sub(1);
    }
}

/// The descriptors of this process, under the limit that was in force when this was first called.
pub fn of_process() -> &'static Descriptors {
    static PROCESS: OnceLock<Descriptors> = OnceLock::new();
    PROCESS.get_or_init(|| {
        let (soft, _) = limits().unwrap_or((1_024, 1_024));
        Descriptors::new(usize::try_from(soft).unwrap_or(usize::MAX))
    })
}

/// Raises the limit of open files to what the system allows this process, as Go programs do; the new limit.
///
/// # Errors
/// When the system refuses; the limit stays what it was.
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

/// The soft and the hard limit of open files.
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
    fn no_share_takes_what_belongs_to_another() {
        for limit in [1, 2, 16, 64, 256, 1_024, 1 << 20] {
            let descriptors = Descriptors::new(limit);
            let senders = take_all(&descriptors, Share::Senders);
            let servers = take_all(&descriptors, Share::ApiServer);
            let http = take_all(&descriptors, Share::Http);
            let all = senders.len() + servers.len() + http.len();
            assert_eq!(all, limit - ASIDE.min(limit / 2), "limit {limit}");
            assert_eq!(http.len(), descriptors.own[Share::Http as usize]);
            assert_eq!(servers.len(), descriptors.own[Share::ApiServer as usize]);
            assert!(limit < 64 || http.len() >= 8, "limit {limit}");
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let descriptors = Descriptors::new(256);
        let mut senders = take_all(&descriptors, Share::Senders);
        assert!(descriptors.take(Share::Senders).is_none());
        assert_eq!(descriptors.used_by(Share::Senders), senders.len());
        senders.pop();
        assert!(descriptors.take(Share::Senders).is_some());
        drop(senders);
        assert_eq!(descriptors.used_by(Share::Senders), 0);
        assert!(take_all(&descriptors, Share::Http).len() > descriptors.own[0]);
    }

    #[test]
    fn the_limit_can_be_raised_to_the_hard_one() {
        let limit = raise_limit().expect("allowed");
        assert_eq!(limits().expect("known"), (limit, limit));
    }
}
