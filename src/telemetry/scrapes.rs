//! The log of recent scrapes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// The maximum number of logged scrapes.
const KEPT: usize = 20;

/// The maximum bytes of the user agent.
const LONGEST: usize = 100;

/// A logged scrape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Scrape {
    /// The start time, in Unix seconds.
    pub(crate) at: f64,
    /// The address of the client.
    pub(crate) client: String,
    /// The user agent.
    pub(crate) agent: String,
    /// The path, without the query.
    pub(crate) path: String,
    pub(crate) status: u16,
    /// The format of the body.
    pub(crate) form: &'static str,
    pub(crate) gzip: bool,
    /// Seconds from the request head to the last byte of the response.
    pub(crate) seconds: f64,
    /// Bytes of the body as sent.
    pub(crate) bytes: u64,
    /// True if the client received the entire body.
    pub(crate) complete: bool,
}

/// The log of recent scrapes; clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScrapeLog(Arc<Mutex<VecDeque<Scrape>>>);

impl ScrapeLog {
    /// Logs a completed scrape.
    pub(crate) fn note(&self, mut scrape: Scrape) {
        for text in [&mut scrape.agent, &mut scrape.path] {
            text.truncate(text.floor_char_boundary(LONGEST));
        }
        let mut scrapes = self.lock();
        scrapes.push_front(scrape);
        scrapes.truncate(KEPT);
    }

    /// Returns the logged scrapes, newest first.
    pub(crate) fn latest(&self) -> Vec<Scrape> {
        self.lock().iter().cloned().collect()
    }

    /// Returns the newest scrape.
    pub(crate) fn last(&self) -> Option<Scrape> {
        self.lock().front().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Scrape>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
