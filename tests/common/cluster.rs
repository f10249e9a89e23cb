//! A synthetic cluster in the test process.

use kstatd_double::{Double, Options};

/// Runs until it is dropped.
pub struct Cluster {
    _runtime: tokio::runtime::Runtime,
    /// The server.
    pub double: Double,
}

impl Cluster {
    pub fn new(pods: u32) -> Self {
        Self::with(&Options { pods, ..Options::default() })
    }

    pub fn with(options: &Options) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("runtime");
        let double = runtime.block_on(Double::start(options)).expect("double");
        Self { _runtime: runtime, double }
    }

    /// The flag with the server's URL.
    pub fn flag(&self) -> String {
        format!("--apiserver={}", self.double.url())
    }
}
