//! The clusters that rows are measured with: the synthetic one, and one that repeats what a real API server sent.

use std::io::Read as _;
use std::sync::Arc;

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use kstatd_double::{Options, Recording};

/// What `tests/apiserver/record` has written.
const RECORDED: &[u8] = include_bytes!("../../tests/double/recorded.gz");

/// The origin of a cluster's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSet {
    /// Generated: pods with one or two containers, whose changes are mostly reports of their status.
    Synthetic,
    /// Recorded: pods with one to twelve containers and long annotations, whose changes are rollouts.
    Recorded,
}

impl DataSet {
    /// Returns the options of a double with this many pods.
    pub fn options(self, pods: u32) -> Result<Options> {
        let recording = match self {
            Self::Synthetic => None,
            Self::Recorded => {
                let mut file = Vec::new();
                GzDecoder::new(RECORDED).read_to_end(&mut file).context("recorded.gz")?;
                Some(Arc::new(Recording::parse(&file).context("recorded.gz")?))
            }
        };
        Ok(Options { pods, recording, ..Options::default() })
    }

    /// Returns what the load of a row begins with.
    pub fn label(self) -> &'static str {
        match self {
            Self::Synthetic => "",
            Self::Recorded => "recorded: ",
        }
    }
}
