//! The API server: the double, with a cluster that goes on while nobody can ask.

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
    /// A cluster of so many pods, and what belongs to them.
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

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// So many changes per second from now on.
    pub fn churn(&self, rate: f64) {
        self.double().set_events_per_second(rate);
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.double().changes()
    }

    /// Objects sent in lists and as initial events so far.
    pub fn delivered(&self) -> u64 {
        self.double().delivered()
    }

    /// Makes what watches go on from too old, and cuts them: everybody has to list anew.
    pub fn forget_history(&self) -> Result<()> {
        self.close();
        self.double().forget_history();
        self.open()
    }

    /// Objects of a resource.
    pub fn objects_of(&self, resource: &str) -> usize {
        self.double().objects_of(resource)
    }

    /// Cuts every connection and listens no more.
    pub fn close(&self) {
        self.runtime.block_on(self.double().close());
    }

    /// Listens again.
    pub fn open(&self) -> Result<()> {
        Ok(self.runtime.block_on(self.double().open())?)
    }
}
