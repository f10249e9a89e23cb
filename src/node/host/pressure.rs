//! Pressure stall information (PSI) of the host.

use std::io;
use std::os::fd::OwnedFd;

use super::procfs::{self, Stalls};

/// The resources with their files, sorted.
const RESOURCES: [(&str, &std::ffi::CStr); 4] = [
    ("cpu", c"pressure/cpu"),
    ("io", c"pressure/io"),
    ("irq", c"pressure/irq"),
    ("memory", c"pressure/memory"),
];

/// The stall times of each resource that the kernel reports.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    pub(super) stalls: Vec<(&'static str, Stalls)>,
    /// The error of the first file, if no file could be read.
    error: Option<io::Error>,
}

impl Pressure {
    /// Reads all files.
    pub(super) fn read(proc: &OwnedFd) -> Self {
        let (mut pressure, mut buffer) = (Self::default(), Vec::new());
        for (resource, path) in RESOURCES {
            match procfs::read(proc, path, &mut buffer) {
                Ok(()) => pressure.stalls.push((resource, procfs::stalls(&buffer))),
                Err(error) => pressure.error = pressure.error.or(Some(error)),
            }
        }
        pressure
    }

    /// Returns an explanation if the kernel reports nothing.
    pub(super) fn gap(&self) -> Option<String> {
        let has_any = self.stalls.iter().any(|(_, of)| of.some.is_some() || of.full.is_some());
        (!has_any).then(|| {
            let error = self.error.as_ref().map_or("malformed".to_owned(), io::Error::to_string);
            format!(
                "no figures of pressure: the kernel has no pressure stall information, or it is off (psi=1 at boot turns \
                 it on): {error}"
            )
        })
    }
}
