//! The last scrapes and who asked for them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// Scrapes that are remembered.
const KEPT: usize = 20;

/// Bytes of what a client calls itself that are kept.
const LONGEST: usize = 100;

/// One scrape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Scrape {
    /// When it began, in Unix seconds.
    pub(crate) at: f64,
    /// The client's address.
    pub(crate) client: String,
    /// What the client calls itself.
    pub(crate) agent: String,
    /// What was asked for, without its query.
    pub(crate) path: String,
    pub(crate) status: u16,
    /// The form of the body.
    pub(crate) form: &'static str,
    pub(crate) gzip: bool,
    /// From the head of the request to the last byte of the answer.
    pub(crate) seconds: f64,
    /// Bytes of the body as it went out.
    pub(crate) bytes: u64,
    /// Whether the client took all of it.
    pub(crate) complete: bool,
}

/// The last scrapes; every clone is the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScrapeLog(Arc<Mutex<VecDeque<Scrape>>>);

impl ScrapeLog {
    /// Notes a scrape that has ended.
    pub(crate) fn note(&self, mut scrape: Scrape) {
        for text in [&mut scrape.agent, &mut scrape.path] {
            text.truncate(text.floor_char_boundary(LONGEST));
        }
        let mut scrapes = self.lock();
        scrapes.push_front(scrape);
        scrapes.truncate(KEPT);
    }

    /// All that are remembered, the newest first.
    pub(crate) fn latest(&self) -> Vec<Scrape> {
        self.lock().iter().cloned().collect()
    }

    /// The newest.
    pub(crate) fn last(&self) -> Option<Scrape> {
        self.lock().front().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Scrape>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
