//! The API server: the API double, whose cluster keeps changing while it is closed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use kstatd_double::{Double, Options};
use tokio::runtime::Runtime;

/// A running double.
pub struct Cluster {
    runtime: Runtime,
    double: Mutex<Double>,
    url: String,
}

impl Cluster {
    /// Creates a cluster of this many pods with related objects.
    pub fn new(pods: u32) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let options = Options { pods, ..Options::default() };
        let double = runtime.block_on(Double::start(&options))?;
        Ok(Self { runtime, url: double.url(), double: Mutex::new(double) })
    }

    fn double(&self) -> MutexGuard<'_, Double> {
        self.double.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets the number of changes per second.
    pub fn churn(&self, rate: f64) {
        self.double().set_events_per_second(rate);
    }

    /// Returns the number of changes so far.
    pub fn changes(&self) -> u64 {
        self.double().changes()
    }

    /// Returns the number of objects sent in lists and as initial events so far.
    pub fn delivered(&self) -> u64 {
        self.double().delivered()
    }

    /// Expires the versions that watches continue from and cuts the watches, which forces a relist.
    pub fn forget_history(&self) -> Result<()> {
        self.close();
        self.double().forget_history();
        self.open()
    }

    /// Returns the number of objects of a resource.
    pub fn objects_of(&self, resource: &str) -> usize {
        self.double().objects_of(resource)
    }

    /// Closes every connection and the listener.
    pub fn close(&self) {
        self.runtime.block_on(self.double().close());
    }

    /// Reopens the listener.
    pub fn open(&self) -> Result<()> {
        Ok(self.runtime.block_on(self.double().open())?)
    }
}
